"""Bingchen Zhao, Kai Han: Novel Visual Category Discovery with Dual Ranking Statistics and Mutual Knowledge
Distillation, NeurIPS 2021.

From the authors' code, which trains on birds, cars and aircraft of 224 pixels alone. That the paper begins on CIFAR as
RS does, by rotation and then labels, is recollected; for CIFAR ramp, rate and epochs are taken from their code as they
are. Four slips of that code are not repeated: it fed the local heads the global latents, compared the local branch's
first view with itself, kept the epoch best on the truth, and needed a dictionary that the batch divides.
"""

import copy
from collections.abc import Callable
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.losses import symmetric_kl
from newfound.functional.pseudo import part_codes, part_distances, ranking_statistics
from newfound.functional.schedules import ramp
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.methods.pairwise import TRAINING, Heads
from newfound.networks.backbone import still
from newfound.networks.bank import Bank, Ring
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Scalar

RAMP = (0.75, 50.0)
"""Share of the run and weight: 150 of 200 epochs."""
DECAY = 0.99
"""How much of the running mean of squared distances to the nearest part a step keeps."""


def locations(maps: Float[Tensor, "n d height width"]) -> Float[Tensor, "n locations d"]:
    """Local descriptors, one a location; the border, which has seen padding, is left out.

    A side of 1 or 2, all border, is kept whole (the authors' maps are 7×7). Small images have few locations: a 4×4 map
    has its inner 2×2.
    """
    for side in (2, 3):
        if maps.shape[side] > 2:
            maps = maps.narrow(side, 1, maps.shape[side] - 2)
    return maps.flatten(2).transpose(1, 2)


def likeness(
    z: Float[Tensor, "n d"], other: Float[Tensor, "n d"], bank: Float[Tensor, "size d"], temperature: float
) -> Float[Tensor, "n 1+size"]:
    """Logits of whom an image resembles: itself in another view, or one of a bank (of unit latents).

    [ẑ_i·ẑ̄_i, ẑ_i·b_1, …, ẑ_i·b_size] / τ,   ẑ = z/‖z‖
    """
    z, other = F.normalize(z, dim=1), F.normalize(other, dim=1)
    return torch.cat([(z * other).sum(1, keepdim=True), z @ bank.T], dim=1) / temperature


@final
class Parts(nn.Module):
    """The dictionary of object parts: the latest local descriptors, as they are, not of unit length.

    β = 15 / running mean of min_m ‖d − v_m‖²

    Begins as in the authors' code: random descriptors, cut at 0 as after a ReLU, and a mean of ½.
    """

    nearest: Scalar

    def __init__(self, size: int, dim: int, sharpness: float = 15.0):
        super().__init__()
        self.sharpness = sharpness
        self.ring = Ring(torch.randn(size, dim).relu())
        self.register_buffer("nearest", torch.tensor(0.5))

    def running_mean(self, nearest: Float[Tensor, " n"]) -> Scalar:
        """What the running mean would be, were these images' squared distances to their nearest parts seen."""
        return torch.lerp(self.nearest, nearest.mean(), 1 - DECAY)

    def forward(self, descriptors: Float[Tensor, "n locations d"]) -> tuple[Float[Tensor, "n m"], Float[Tensor, " n"]]:
        """Each image's code, and its mean squared distance to the nearest part; β has heard of these images already."""
        far = part_distances(descriptors, self.ring.rows)
        nearest = far.amin(2).mean(1)
        # β stays finite also where all descriptors died and every part is as good as another
        mean = self.running_mean(nearest).clamp(min=torch.finfo(far.dtype).eps)
        return part_codes(far, self.sharpness / mean), nearest

    @torch.no_grad()
    def absorb(self, descriptors: Float[Tensor, "n d"], nearest: Float[Tensor, " n"]) -> None:
        """Take in one descriptor of every image, and how near the images were."""
        self.nearest.copy_(self.running_mean(nearest))
        self.ring.push(descriptors)


@final
class Branch(Heads):
    """A branch from its latents on: its heads, and a bank."""

    def __init__(self, problem: Problem, head: nn.Linear | None, bank: int):
        super().__init__(problem, head)
        self.bank = Bank(bank, problem.dim)


@final
class Dual(Method):
    """Two branches guess which images are alike, one from the whole, one from its parts, and learn from each other.

        L = Σ_b [CE_b + BCE_b + w(t) MSE_b] + sKL(s_global, s_local),   b ∈ {global, local}
        s_b = softmax([ẑ_b·ẑ̄_b, ẑ_b·bank_b] / τ)        of unlabelled images

    The global branch is the backbone's; the local one a copy of its last stage, on the same map. Pairs are guessed by
    ranking statistics of the first view: of global latents, and of part codes. In the distillation nothing is
    detached but the banks: both branches and both views move. Place j of both banks holds the same image, so that
    the branches speak of the same neighbours.
    """

    reads_map = True

    def __init__(
        self,
        problem: Problem,
        model: Model,
        *,
        parts: int = 2048,
        bank: int = 2048,
        k: int = 5,
        temperature: float = 0.07,
    ):
        super().__init__()
        self.problem, self.k, self.temperature = problem, k, temperature
        self.stage = copy.deepcopy(model.backbone.stages[-1]).requires_grad_(True)
        self.parts = Parts(parts, problem.dim)
        self.whole = Branch(problem, model.head, bank)
        self.local = Branch(problem, model.head, bank)

    def look(self, view: Latents) -> Float[Tensor, "n d height width"]:
        """The local branch's map. Its BatchNorm remembers nothing: only training asks it."""
        if view.map is None:
            raise ValueError(
                "Dual ranking branches off before the backbone's last stage, and this backbone gave no map there; "
                "take one that sees images, or another method."
            )
        with still(self.stage):
            return self.stage(view.map)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`global …` and `local …`: `pairs`, `consistency`, `cross-entropy`; and `distillation` between them."""
        u, weight = unlabelled_rows(batch, self.problem), ramp(now.progress, *RAMP)
        (z, other), maps = (view.z for view in latents[:2]), [self.look(view) for view in latents[:2]]
        local, local_other = (seen.mean(dim=(2, 3)) for seen in maps)
        descriptors = locations(maps[0].detach())
        codes, nearest = self.parts(descriptors)

        alike = ranking_statistics(z.detach()[u], self.k)
        losses = {f"global {name}": loss for name, loss in self.whole(z, other, batch.labels, alike, weight).items()}
        alike = ranking_statistics(codes[u], self.k)
        more = self.local(local, local_other, batch.labels, alike, weight)
        losses |= {f"local {name}": loss for name, loss in more.items()}
        losses["distillation"] = symmetric_kl(
            likeness(z[u], other[u], self.whole.bank.latents, self.temperature),
            likeness(local[u], local_other[u], self.local.bank.latents, self.temperature),
        )

        images, places, _ = descriptors.shape
        drawn = torch.randint(places, (images,), generator=now.random("parts")).to(z.device)
        batch.notes["part"] = descriptors[torch.arange(images, device=z.device), drawn]
        batch.notes["nearest part"] = nearest
        batch.notes["local"] = local_other.detach()
        return losses

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Every image gives the dictionary one part, an unlabelled one its second view's latents to the banks."""
        u = batch.labels < 0
        self.parts.absorb(batch.notes["part"], batch.notes["nearest part"])
        self.whole.bank.push(latents[1].z[u])
        self.local.bank.push(batch.notes["local"][u])

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Those of the global branch."""
        return self.whole.logits(features)

    def log(self) -> dict[str, float]:
        """How near local descriptors are to their nearest part."""
        return {"squared distance to the nearest part": self.parts.nearest.item()}


# authors: half of every batch is unlabelled; here images come as they are
recipe = Recipe(
    "Zhao & Han, NeurIPS 2021", Dual, "needed", TRAINING, "head", maps=True, stage_one=("rotation", "supervised")
)
