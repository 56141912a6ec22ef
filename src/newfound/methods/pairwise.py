"""The step that RS, NCL and two-stage Spacing share: guess which pairs are alike, make the head agree; and how it is
trained.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound.functional.losses import consistency, cross_entropy, pairwise_bce
from newfound.functional.schedules import ramp, steps
from newfound.methods.base import Method, unlabelled_rows
from newfound.networks.backbone import Backbone, Frozen
from newfound.types import Batch, Latents, Losses, Now, Problem, Training

Alike = Callable[[Float[Tensor, "n d"]], Bool[Tensor, "n n"]]

TRAINING = Training(epochs=200, batch=128, rate=0.1, schedule=partial(steps, at=(0.85,)), trains=1)
"""AutoNovel's on CIFAR, which those after it have kept: the last stage alone, and the rate falls at epoch 170."""


def default_ramp(classes: int) -> tuple[float, float]:
    """Share of the run over which the weight of consistency grows, and its top: AutoNovel's and NCL's for CIFAR-10, or
    for CIFAR-100 where the novel head has many classes.
    """
    return (0.25, 5.0) if classes <= 10 else (0.75, 50.0)


class Heads(nn.Module):
    """A head for known classes, which starts as a copy of stage one's, and one for novel ones.

        CE(h_l(z), y) + BCE(p_u(z)·p_u(z̄), alike) + w · (MSE(p_u(z), p_u(z̄)) + MSE(p_l(z), p_l(z̄)))

    z, z̄ are two views. In two stages there is no labelled head, and its terms are absent.
    """

    def __init__(self, problem: Problem, head: nn.Linear | None = None):
        super().__init__()
        known = problem.known
        self.labelled = (copy.deepcopy(head) or nn.Linear(problem.dim, known)) if problem.labelled else None
        self.novel = nn.Linear(problem.dim, problem.unlabelled_classes)

    def forward(
        self,
        z: Float[Tensor, "n d"],
        other: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        alike: Bool[Tensor, "u u"],
        weight: float,
    ) -> Losses:
        """`pairs` and `consistency`, and `cross-entropy` where labelled images take part."""
        u = labels < 0
        p, q = self.novel(z).softmax(1), self.novel(other).softmax(1)
        losses = {"pairs": pairwise_bce(p[u], q[u], alike)}
        steady = consistency(p, q)
        if self.labelled is not None:
            known, known_other = self.labelled(z), self.labelled(other)
            losses["cross-entropy"] = cross_entropy(known[~u], labels[~u])
            steady = steady + consistency(known.softmax(1), known_other.softmax(1))
        return losses | {"consistency": weight * steady}

    def logits(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
        """Known classes, where there is a head for them, then novel ones."""
        novel = self.novel(z)
        return novel if self.labelled is None else torch.cat([self.labelled(z), novel], dim=1)


@final
class Pairwise(Method):
    """Cross-entropy on labelled images, pairwise agreement on unlabelled ones, consistency on all: `Heads`, with w(t)
    ramped up. Pairs are guessed from the latents of the first view, or from those of a frozen `teacher`, whose
    BatchNorm uses the `statistics` it has learnt or each batch's own.
    """

    def __init__(
        self,
        problem: Problem,
        alike: Alike,
        *,
        head: nn.Linear | None = None,
        teacher: Backbone | None = None,
        statistics: Literal["learnt", "batch"] = "learnt",
        ramp: tuple[float, float] | None = None,  # share of the run, top; None: `default_ramp`
    ):
        super().__init__()
        self.problem, self.alike = problem, alike
        self.heads = Heads(problem, head)
        self.teacher = None if teacher is None else Frozen(teacher, statistics)
        self.ramp = ramp or default_ramp(problem.unlabelled_classes)

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Ask the teacher, where there is one."""
        if self.teacher is not None:
            batch.notes["teacher"] = self.teacher(batch.views[0]).z
        return batch

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`pairs` and `consistency`, and `cross-entropy` where labelled images take part."""
        u = unlabelled_rows(batch, self.problem)
        z, other = latents[0].z, latents[1].z
        alike = self.alike(batch.notes.get("teacher", z.detach())[u])
        return self.heads(z, other, batch.labels, alike, ramp(now.progress, *self.ramp))

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, where there is a head for them, then novel ones."""
        return self.heads.logits(features)
