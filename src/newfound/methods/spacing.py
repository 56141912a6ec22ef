"""K J Joseph, Sujoy Paul, Gaurav Aggarwal, Soma Biswas, Piyush Rai, Kai Han, Vineeth N Balasubramanian:
Spacing Loss for Discovering Novel Categories, CVPR Workshops 2022.

`Spacing` is the method built on `SpacingLoss`, which has the formulas and the presets. `pairs` are the losses beside it
in the paper's row "Spacing Loss", which is `pairs+spacing:aligned` here.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.functional import pseudo
from newfound.functional.cluster import ClassSums
from newfound.functional.geometry import distances
from newfound.functional.schedules import warm_cosine
from newfound.methods.base import Method, Own, Reading, Recipe, own_views, unlabelled_rows
from newfound.methods.pairwise import TRAINING, Pairwise
from newfound.networks.model import Model
from newfound.spacing.loss import SpacingLoss
from newfound.spacing.presets import PRESETS, Preset, resolve
from newfound.types import ALL, Batch, Latents, Losses, Now, Problem, Survey

MEMBERS = 5
"""Images for each prototype of a finer set, below which there is none."""


@final
class Spacing(Method):
    """Spacing Loss as a method: needs no labels, stands alone or joins another method through `Sum`.

        L = L_c,   or   ½ L_c + ½ L_m   with a finer set of m = known + `finer` · novel prototypes beside the c

    Where views learn from one another, k-means places prototypes anew at some shares of the run.
    """

    known_means: Float[Tensor, "known d"] | None
    known_counts: Int[Tensor, " known"] | None
    scatter: Tensor | None

    def __init__(
        self,
        problem: Problem,
        preset: Preset | None = None,
        within_covariance: Float[Tensor, "d d"] | None = None,
        known: tuple[Float[Tensor, "known d"], Int[Tensor, " known"]] | None = None,
    ):
        """`known` are the means of known classes' latents and of how many images each is, where unlabelled images may
        be of these and their own are not at hand.
        """
        super().__init__()
        self.problem = problem
        means, counts = (None, None) if known is None else known
        self.register_buffer("known_means", means, persistent=False)
        self.register_buffer("known_counts", counts, persistent=False)
        self.loss = SpacingLoss(
            problem.classes, problem.dim, preset, within_covariance=within_covariance, images=problem.rows
        )
        self.finer: SpacingLoss | None = None
        if self.loss.preset.swap is not None and self.loss.preset.swap.finer:
            more = problem.classes + (self.loss.preset.swap.finer - 1) * problem.novel
            self.finer = SpacingLoss(
                more, problem.dim, preset, within_covariance=within_covariance, images=problem.rows
            )
        metric, scatter = self.loss.metric, None
        if within_covariance is not None:
            scatter = (within_covariance if metric is None else metric.T @ within_covariance @ metric).trace()
        self.register_buffer("scatter", scatter, persistent=False)  # of a known class's latents, whitened
        self.register_buffer("assignment", torch.full((problem.rows,), -1))  # the latest of every image
        self.register_buffer("changed", torch.zeros(2))  # images that changed class this epoch, images seen again

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Start when the share of the run is reached, and start anew where the preset says so."""
        self.get_buffer("changed").zero_()
        known = self._known_sums()
        if any(map(now.first, self._starts(known))):
            features, labels = survey()
            mixed, random = self.problem.mixed, now.random("spacing")
            self.loss.start(features, labels, random=random, mixed=mixed, known_sums=known)
            self.get_buffer("assignment").fill_(-1)  # of prototypes that are no more
            if self.finer is not None and (labels < 0).sum() >= MEMBERS * len(self.finer.prototypes):
                random = now.random("finer spacing")
                self.finer.start(features, labels, random=random, mixed=mixed, known_sums=known)

    def _starts(self, known: ClassSums | None) -> tuple[float, ...]:
        """The shares of the run at which prototypes are placed. Known classes whose images are away are remembered
        where the backbone once put them: once it has moved, only the prototypes know where they are.
        """
        start, swap = self.loss.preset.start, self.loss.preset.swap
        return (start,) if swap is None or known is not None else (start, *swap.restarts)

    def _known_sums(self) -> ClassSums | None:
        """Known classes as k-means is to hold them, where views learn from one another and their images are away.

            sum of n unit latents ≈ n m / √(‖m‖² + Tr WᵀSW),   m = μW

        with μ the mean and S the covariance of a class's latents: the mean of directions is the shorter, the wider they
        scatter.
        """
        apart = self.problem.mixed and not self.problem.labelled and self.loss.preset.swap is not None
        if not apart or self.known_means is None or self.known_counts is None:
            return None
        counts, metric = self.known_counts.to(self.known_means), self.loss.metric
        m = self.known_means if metric is None else self.known_means @ metric
        scattered = 0.0 if self.scatter is None else self.scatter
        return ClassSums(
            counts[:, None] * m / (m.square().sum(1, keepdim=True) + scattered).sqrt().clamp(min=1e-12), counts
        )

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`spacing` and `finer spacing`, on all rows: of the views that learn from one another, or of the first one."""
        unlabelled_rows(batch, self.problem)
        views = [view.z for view in own_views(latents, batch)]
        views = views[:1] if self.loss.preset.swap is None else views
        rows = batch.rows if self.problem.rows else None
        sets = {"spacing": self.loss}
        if self.finer is not None and self.finer.started:
            sets["finer spacing"] = self.finer
        return {
            name: loss.compute_loss(views, labels=batch.labels, rows=rows, progress=now.progress) / len(sets)
            for name, loss in sets.items()
        }

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Move the prototypes and write down who changed class."""
        if not self.loss.started:
            return
        view = embed(0) if self.loss.preset.update == "reembed" else latents[0]
        rows = batch.rows if self.problem.rows else None
        assignment = self.loss.move_prototypes(view.z, batch.labels, rows, now.progress)
        if self.finer is not None and self.finer.started:
            self.finer.move_prototypes(view.z, batch.labels, rows, now.progress)
        if not self.problem.rows:  # nobody said how many images there are, so nobody asks who changed class
            return
        before = self.get_buffer("assignment")
        seen = before[batch.rows] >= 0
        self.get_buffer("changed")[0] += ((before[batch.rows] != assignment) & seen).sum()
        self.get_buffer("changed")[1] += seen.sum()
        before[batch.rows] = assignment

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"] | None:
        """Cosines with the prototypes, over the temperature, where views learn from one another; else nobody trained
        the latents to be told apart so.
        """
        swap = self.loss.preset.swap
        return None if swap is None else self.loss.space(features) @ self.loss.prototypes.T / swap.temperature

    def log(self) -> dict[str, float]:
        """How far the prototypes are from the origin and from one another; once images were assigned how many classes
        are empty, and once the same images were assigned again how many of them changed class.
        """
        norms = self.loss.prototypes.norm(dim=1)
        found = {"mean prototype norm": norms.mean().item(), "largest prototype norm": norms.max().item()}
        assignment, (changed, again) = self.get_buffer("assignment"), self.get_buffer("changed").tolist()
        if len(seen := assignment[assignment >= 0]):
            found["empty clusters"] = float((torch.bincount(seen, minlength=len(norms)) == 0).sum())
        if again:
            found["changed assignments"] = changed / again
        if len(norms) > 1:
            between = distances(self.loss.prototypes).fill_diagonal_(math.inf)
            found["smallest prototype distance"] = between.min().item()
        return found


def spacing_of(method: Method) -> SpacingLoss | None:
    """The Spacing in a method, where there is one."""
    return next((part for part in method.modules() if isinstance(part, SpacingLoss)), None)


def build_pairs(problem: Problem, model: Model) -> Method:
    """The paper's auxiliary losses: pairs are alike where their latents, as they are now, have a high cosine (3.3)."""
    return Pairwise(problem, pseudo.cosine, head=model.head)


def build_teacher_pairs(problem: Problem, model: Model) -> Method:
    """The same, with pairs guessed by the frozen stage-one backbone, as the author's two-stage script for ImageNet
    does. It finds few of them, and never more (decision 9).
    """
    return Pairwise(problem, pseudo.cosine, head=model.head, teacher=model.backbone)


def build(problem: Problem, model: Model, *, preset: Preset) -> Method:
    """Spacing alone."""
    if model.known is None:
        return Spacing(problem, preset)
    return Spacing(problem, preset, model.known.within_covariance, (model.known.means, model.known.counts))


def adjust(recipe: Recipe, *, weight: float | None, initial: float | None) -> Recipe:
    """The same recipe with another λ or v₀; one without Spacing as it is."""
    if recipe.spacing is None:
        return recipe
    preset = resolve(recipe.spacing, weight=weight, initial=initial)
    return replace(recipe, build=partial(build, preset=preset), spacing=preset)


_PAPER = "Joseph et al., CVPR-W 2022"
_WHOLE = replace(
    TRAINING,
    schedule=partial(warm_cosine, warm=0.1, start=0.01, end=0.01),
    views=("strong", "strong", "small", "small"),
    trains=ALL,
)
"""Ours: views that differ much, UNO's, have much to learn from one another, and every stage learns it."""


def make_recipe(preset: Preset) -> Recipe:
    """Spacing alone looks at one view, unless views learn from one another."""
    reading: Reading = "unit k-means" if preset.unit else "k-means"
    alone = replace(TRAINING, views=("weak",))
    recipe = Recipe(_PAPER, partial(build, preset=preset), "optional", alone, reading, joins=True, spacing=preset)
    return recipe if preset.swap is None else replace(recipe, training=_WHOLE, own=Own(30, 0.05, _WHOLE.schedule))


pairs = Recipe(_PAPER, build_pairs, "optional", TRAINING, "unit k-means")  # trained as NCL, as the paper says
teacher_pairs = replace(pairs, build=build_teacher_pairs, labelled="unused")
recipes = {name: make_recipe(preset()) for name, preset in PRESETS.items()}
