"""Zhun Zhong, Enrico Fini, Subhankar Roy, Zhiming Luo, Elisa Ricci, Nicu Sebe:
Neighborhood Contrastive Learning for Novel Class Discovery, CVPR 2021.

`recipe` has hard negatives, `plain` does not (the authors advise so where CIFAR-10 collapses). Without labelled images
both are the two-stage NCL*: the unlabelled half alone.

`author` are the losses beside Spacing in the one two-stage script of its first author, which is for ImageNet:
K J Joseph et al., Spacing Loss for Discovering Novel Categories, CVPR Workshops 2022.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional import pseudo
from newfound.functional.losses import consistency, soft_cross_entropy
from newfound.functional.schedules import ramp, steps
from newfound.methods.base import Method, Recipe, Sum, unlabelled_rows
from newfound.methods.pairwise import TRAINING, Pairwise
from newfound.networks.bank import Bank
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Training


@dataclass(frozen=True)
class HardNegatives:
    """How blends of unlabelled and labelled latents are made."""

    far: int
    """How many of the least similar unlabelled entries are blended for each image."""
    draws: int = 5
    """How many labelled entries each of them is blended with."""
    kept: int = 400
    """How many of the 2 · draws · far blends, the most similar ones, count."""
    start: float = 0.015
    """Share of the run before it begins: epoch 3 of 200."""


@final
class Neighbours(Method):
    """Draw an image to its other view and to the bank's entries guessed, or known, to share its class.

        L_u = CE([qᵀk, qᵀM_u, qᵀb] / τ, t),   t = 0.2 on k, 0.8/K on each of the K most similar, 0 on blends b
        L_l = CE([qᵀk, qᵀM_l] / τ, t),         t uniform over k and the entries with the image's label
        L = L_u + 0.1 L_l

    q, k are the unit latents of two views, k without gradient; M_u, M_l banks of the latest q. K is half of a novel
    class's share of the bank. L_u waits until its bank is full, since random directions are nobody's neighbours; the
    authors leave out the first of 200 epochs, which comes to the same.
    """

    def __init__(
        self,
        problem: Problem,
        hard: HardNegatives | None = None,
        *,
        size: int = 2000,
        temperature: float = 0.05,
        weight: float = 1.0,
        labelled_weight: float = 0.1,
        start: float = 0.005,  # epoch 1 of 200; the labelled half has no need to wait
    ):
        super().__init__()
        # paper: always 2000. A smaller set would be held many times over, and the bank fill late.
        size = min(size, problem.rows or size)
        self.problem, self.temperature, self.start = problem, temperature, start
        self.weight, self.labelled_weight = weight, labelled_weight
        self.k = max(1, size // problem.unlabelled_classes // 2)
        self.unlabelled = Bank(size, problem.dim)
        self.labelled = Bank(size, problem.dim) if problem.labelled else None
        self.hard = hard

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`neighbours`, and `labelled neighbours` where labelled images take part."""
        u = unlabelled_rows(batch, self.problem)
        q, k = F.normalize(latents[0].z, dim=1), F.normalize(latents[1].z.detach(), dim=1)
        own = (q * k).sum(1, keepdim=True)
        near = torch.cat([own, q @ self.unlabelled.latents.T], dim=1)[u]
        hard = self.negatives(q[u], now)
        target = F.pad(pseudo.neighbourhood(near, self.k), (0, hard.shape[1]))
        weight = self.weight if now.progress >= self.start else 0.0
        loss = soft_cross_entropy(torch.cat([near, hard], dim=1) / self.temperature, target)
        losses = {"neighbours": weight * self.unlabelled.full * loss}
        if self.labelled is not None:
            near = torch.cat([own, q @ self.labelled.latents.T], dim=1)[~u]
            same = F.pad(batch.labels[~u, None] == self.labelled.labels, (1, 0), value=True).to(near.dtype)
            loss = soft_cross_entropy(near / self.temperature, same / same.sum(1, keepdim=True))
            losses["labelled neighbours"] = self.labelled_weight * loss
        return losses

    def negatives(self, q: Float[Tensor, "n dim"], now: Now) -> Float[Tensor, "n hard"]:
        """Similarities to hard negatives: none before their start, nor where there is no labelled bank."""
        if self.hard is None or self.labelled is None or now.progress < self.hard.start:
            return q.new_zeros(len(q), 0)
        far, draws = min(self.hard.far, len(self.unlabelled.latents)), self.hard.draws
        labelled, random = len(self.labelled.latents), now.random("hard negatives")
        drawn = torch.randint(labelled, (len(q), draws, far), generator=random).to(q.device)
        kept = min(self.hard.kept, 2 * draws * far)
        return pseudo.hard_negatives(q, self.unlabelled.latents, self.labelled.latents, drawn, kept)

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Remember the latents of the first view, as `forward` saw them."""
        u, z = batch.labels < 0, latents[0].z
        self.unlabelled.push(z[u])
        if self.labelled is not None:
            self.labelled.push(z[~u], batch.labels[~u])


@final
class Steady(Method):
    """Hold two views of an image together in the eyes of stage one's head, where no label does.

        L = w(t) · MSE(p_l(z), p_l(z̄))

    The head is a copy, and goes on learning. It tells no classes: its images have stayed behind.
    """

    def __init__(self, problem: Problem, head: nn.Linear, rise: tuple[float, float]):
        super().__init__()
        self.problem, self.rise = problem, rise  # share of the run, top
        self.head = copy.deepcopy(head)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`known consistency`, over all rows."""
        unlabelled_rows(batch, self.problem)
        p, q = (self.head(view.z).softmax(1) for view in latents[:2])
        return {"known consistency": ramp(now.progress, *self.rise) * consistency(p, q)}


def pairs(problem: Problem, model: Model) -> Method:
    """The step it shares with RS; its labelled head starts as a copy of stage one's."""
    return Pairwise(problem, pseudo.cosine, head=model.head)


def build(problem: Problem, model: Model) -> Method:
    """NCL with hard negatives; the code's 50 far entries for CIFAR-10, 400 for more classes."""
    hard = HardNegatives(far=50 if problem.unlabelled_classes <= 5 else 400)
    return Sum(pairs(problem, model), Neighbours(problem, hard))


def build_plain(problem: Problem, model: Model) -> Method:
    """NCL without hard negatives."""
    return Sum(pairs(problem, model), Neighbours(problem))


RISE = (1.0, 10.0)
"""Of the weight of consistency in the author's script: it grows to 10 over the whole run."""


def build_author(problem: Problem, model: Model) -> Method:
    """Pairs guessed by the frozen stage-one backbone, consistency on both heads, and neighbours.

    The author never puts the frozen copy in eval mode, so its BatchNorm goes by each batch. Hard negatives are off.
    """
    taught = Pairwise(problem, pseudo.cosine, teacher=model.backbone, statistics="batch", ramp=RISE)
    steady = () if model.head is None else (Steady(problem, model.head, RISE),)
    return Sum(taught, *steady, Neighbours(problem, start=1 / 50))


_PAPER = "Zhong et al., CVPR 2021"

recipe = Recipe(_PAPER, build, "optional", TRAINING, "head", stage_one=("rotation", "supervised"))
plain = Recipe(_PAPER, build_plain, "optional", TRAINING, "head", stage_one=("rotation", "supervised"))
author = Recipe(
    "Joseph et al., CVPR-W 2022",
    build_author,
    "unused",
    Training(epochs=50, batch=512, rate=0.1, schedule=partial(steps, at=(30 / 50,)), trains=1),
    "unit k-means",
)
