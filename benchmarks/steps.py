"""Steps of training beside the same steps done otherwise."""

import copy
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.clock import Case
from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.cached_maps import recall, remember
from newfound.data.batches import Dataset
from newfound.data.features import FeatureDataset
from newfound.data.pixels import PixelDataset
from newfound.methods import rs
from newfound.methods.base import Method, Sum
from newfound.methods.spacing import Spacing
from newfound.methods.stage_one import Supervised
from newfound.networks.backbone import Backbone, Tail
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.spacing.loss import SpacingLoss
from newfound.training.loop import Learner, _step, accelerator, optimiser
from newfound.types import ALL, Now, Problem, Training, generator, seeded


@torch.no_grad()
def loop_over_samples(loss: SpacingLoss, z: Tensor) -> None:
    """Algorithm 2, lines 10–15, as it reads; latents and their assignments are fixed before."""
    p, e, v = loss.prototypes, loss.anchors, loss.counts
    z = loss.space(z)
    nearest = torch.cdist(z, p).argmin(1).tolist()
    for z_i, k in zip(z, nearest, strict=True):
        v[k] += 1
        eta = 1 / v[k]
        p[k] = (1 - eta) * p[k] + eta * (z_i + e[k])


def spacing() -> Iterator[Case]:
    """Loss, gradient and update of one batch of latents; both sides take loss and gradient from `SpacingLoss`."""
    for preset, c in itertools.product(("paper", "aligned"), (10, 100)):
        random = generator("spacing", c)
        z = torch.rand(128, 512, generator=random).requires_grad_()
        ours = SpacingLoss(c, 512, preset)
        ours.start(torch.rand(1000, 512, generator=random))
        peer = copy.deepcopy(ours)

        def step(loss: SpacingLoss, update: Callable[[SpacingLoss, Tensor], None], z: Tensor = z) -> Tensor:
            (gradient,) = torch.autograd.grad(loss(z), z)
            update(loss, z)
            return gradient

        fast = functools.partial(step, ours, SpacingLoss.update)
        slow = functools.partial(step, peer, loop_over_samples)
        torch.testing.assert_close(fast(), slow())
        torch.testing.assert_close(ours.prototypes, peer.prototypes, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.counts, peer.counts)
        name = f"Spacing step ({preset}), B = 128, d = 512, c = {c} / loop over samples"
        yield Case(name, fast, slow, 9, least=8, calls=20)
        latents = z.detach()
        update, loop = functools.partial(ours.update, latents), functools.partial(loop_over_samples, peer, latents)
        yield Case("· the update alone", update, loop, 9, calls=20)


def training() -> Iterator[Case]:
    """Whole steps of RS at the `cpu` budget, on noise in the shape of CIFAR: speed does not read the images."""
    n, classes = 1024, 5
    random = generator("training")
    pixels = torch.randint(0, 256, (n, 3, 32, 32), generator=random, dtype=torch.uint8)
    labels = torch.randint(-classes, classes, (n,), generator=random).clamp(min=-1)
    images = PixelDataset(pixels, labels)
    problem = Problem(dim=8 * BUDGETS["cpu"].width, known=classes, novel=classes, rows=n)

    def build() -> tuple[Backbone, Method]:
        with seeded("training"):
            backbone = SmallResNet(BUDGETS["cpu"].width, BUDGETS["cpu"].stride)
            model = Model(backbone, 32, 3, tuple("abcde"), head=nn.Linear(problem.dim, classes))
            return backbone, rs.build(problem, model)

    backbone, method = build()
    with tempfile.TemporaryDirectory() as folder:
        remember(backbone, pixels, Path(folder) / "maps.npy", "weak", 0)
        maps = FeatureDataset(recall(Path(folder) / "maps.npy"), labels, torch.arange(n))
        cached = steps(Tail(backbone), method, maps)
        frozen, whole = steps(*build(), images), steps(*build(), images, trains=ALL)
        yield Case("cached trunk, RS, batch 128 / every stage trained on pixels", cached, whole, 15, least=4)
        yield Case("· / frozen trunk on pixels", cached, frozen, 15)

    backbone, method = build()
    more = Spacing(problem)
    more.loss.start(torch.rand(n, problem.dim, generator=random))
    added = steps(backbone, Sum(method, more), images)
    yield Case("RS + Spacing, batch 128, frozen trunk on pixels / RS", added, frozen, repeats=61, most=1.05)


def precision() -> Iterator[Case]:
    """A step of stage one at the budget of hours, in half of the digits and in all of them."""
    n, budget = 512, BUDGETS["hours"]
    pixels = torch.randint(0, 256, (n, 3, 32, 32), generator=generator("precision"), dtype=torch.uint8)
    images = PixelDataset(pixels, torch.arange(n) % 5)

    def build(training: Training) -> Callable[[], object]:
        with seeded("precision"):
            backbone = SmallResNet(budget.width, budget.stride)
            method = Supervised(Problem(backbone.dim, known=5, novel=0))
        return steps(backbone, method, images, ALL, training)

    half, full = build(budget.supervised), build(replace(budget.supervised, precision="full"))
    yield Case("stage one at the budget `hours`, bfloat16 / full precision", half, full, 9)


def steps(
    backbone: Backbone, method: Method, data: Dataset, trains: int = 1, training: Training = rs.recipe.training
) -> Callable[[], object]:
    """One step at each call: look at the next batch, loss, gradient, and all that comes after."""
    training = replace(training, epochs=20)
    engine, learner = accelerator("cpu"), Learner(backbone, method, trains).train()
    optimizer = optimiser(learner, training)
    epochs = (data.batches(training, Now(0, epoch % 20, 20), engine.device) for epoch in itertools.count())
    batches = itertools.chain.from_iterable(epochs)

    def step() -> None:
        now, batch = next(batches)
        _step(learner, learner, engine, optimizer, training, batch, now)

    return step
