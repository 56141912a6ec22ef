"""Kai Han, Andrea Vedaldi, Andrew Zisserman: Learning to Discover Novel Visual Categories via Deep Transfer
Clustering, ICCV 2019.

Four variants: `Baseline` sharpens alone, `PI` also holds two views together, `TE` holds an image to what was said of
it before, `TEP` sharpens a running mean over epochs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound.functional.cluster import kmeans
from newfound.functional.geometry import principal_axes
from newfound.functional.losses import consistency, divergence
from newfound.functional.pseudo import soft_assignment, target_distribution
from newfound.functional.schedules import ramp, steps
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Survey, Training, constant

WARM = 10 / 110
"""Share of the run that is warm-up: 10 epochs before 100, as on CIFAR-10."""


@final
class Ensemble(nn.Module):
    """Running mean of what was said of each image, without the bias of its start at 0.

        Z_i ← β Z_i + (1 − β) q_i,   z̃_i = Z_i / (1 − β^n_i)        (Laine & Aila 2017, Algorithm 2)

    n_i is how often image i was seen; before the first time z̃_i is 0.
    """

    total: Float[Tensor, "rows k"]
    visits: Int[Tensor, " rows"]

    def __init__(self, rows: int, classes: int, beta: float = 0.6):
        super().__init__()
        self.beta = beta
        self.register_buffer("total", torch.zeros(rows, classes))
        self.register_buffer("visits", torch.zeros(rows, dtype=torch.long))

    @torch.no_grad()
    def absorb(self, q: Float[Tensor, "n k"], rows: Int[Tensor, " n"]) -> None:
        """See these images once more."""
        self.total[rows] = torch.lerp(q, self.total[rows], self.beta)
        self.visits[rows] += 1

    def forward(self, rows: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """z̃ of these images."""
        visits = self.visits[rows].to(self.total.dtype)[:, None]
        return self.total[rows] / (1 - self.beta ** visits.clamp(min=1))


class Variant(nn.Module, ABC):
    """What stands beside the sharpening. Only `forward` must be written."""

    def __init__(self, problem: Problem):
        super().__init__()

    @abstractmethod
    def forward(self, views: list[Float[Tensor, "n k"]], rows: Int[Tensor, " n"]) -> Losses:
        """What keeps assignments steady, not yet weighted, from those of every view; may be nothing."""

    def after_step(self, q: Float[Tensor, "n k"], rows: Int[Tensor, " n"]) -> None:
        """Remember what was said of the first view; not called in the warm-up."""

    def after_epoch(self, judge: Callable[[], Float[Tensor, "all k"]]) -> None:
        """Remember what `judge` says of every image; not called in the warm-up."""

    def assign_all(self, judge: Callable[[], Float[Tensor, "all k"]]) -> Float[Tensor, "all k"]:
        """The assignment of every image that targets are sharpened from."""
        return judge()


@final
class Baseline(Variant):
    """Sharpening alone."""

    def forward(self, views: list[Float[Tensor, "n k"]], rows: Int[Tensor, " n"]) -> Losses:
        """Nothing."""
        return {}


@final
class PI(Variant):
    """Two views of an image are judged the same: mean (q − q̄)², gradient through both."""

    def forward(self, views: list[Float[Tensor, "n k"]], rows: Int[Tensor, " n"]) -> Losses:
        """`consistency` of the first two views."""
        return {"consistency": consistency(views[0], views[1])}


@final
class TE(Variant):
    """An image is judged as it was in earlier epochs: mean (q − z̃)²."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.ensemble = Ensemble(problem.rows, problem.unlabelled_classes)

    def forward(self, views: list[Float[Tensor, "n k"]], rows: Int[Tensor, " n"]) -> Losses:
        """`consistency` of the first view and the ensemble."""
        # As in the authors' code z̃ is 0 in the first epoch after warm-up, where the weight is still small.
        return {"consistency": consistency(views[0], self.ensemble(rows))}

    def after_step(self, q: Float[Tensor, "n k"], rows: Int[Tensor, " n"]) -> None:
        """See these images once more."""
        # The authors do so after the epoch; an image comes once in it, so the losses are the same.
        self.ensemble.absorb(q, rows)


@final
class TEP(Variant):
    """Targets are sharpened from the ensemble of every epoch's assignments."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.ensemble = Ensemble(problem.rows, problem.unlabelled_classes)

    def forward(self, views: list[Float[Tensor, "n k"]], rows: Int[Tensor, " n"]) -> Losses:
        """Nothing: the targets are steady."""
        return {}

    def after_epoch(self, judge: Callable[[], Float[Tensor, "all k"]]) -> None:
        """See every image once more; costs a survey an epoch."""
        q = judge()
        self.ensemble.absorb(q, torch.arange(len(q), device=q.device))

    def assign_all(self, judge: Callable[[], Float[Tensor, "all k"]]) -> Float[Tensor, "all k"]:
        """z̃ of every image."""
        return self.ensemble(torch.arange(len(self.ensemble.total), device=self.ensemble.total.device))


@final
class DTC(Method):
    """Make the soft assignment of latents to learnt centres as sure as its own sharpened form.

        L = mean_ik p_ik log(p_ik / q_ik) + w(t) · consistency
        q_ik ∝ (1 + ‖b(z_i) − μ_k‖²)⁻¹,   p_ik ∝ q_ik² / Σ_j q_jk

    b is a linear bottleneck to as many dimensions as there are novel classes. It starts at the principal directions,
    b(z) = (z − z̄) V, and the first targets p and centres μ come from k-means there. In the warm-up these targets stay.
    Then targets are made anew from surveys, and the variant's consistency joins.

    The start deviates: the authors take the first targets from the same principal components, but begin with a random
    b, and spend 10 epochs of warm-up (CIFAR-100: 30) on learning to say the same. A short run has not so many.
    """

    targets: Float[Tensor, "rows k"]

    def __init__(
        self,
        problem: Problem,
        variant: Variant,
        *,
        warm: float = WARM,
        interval: float = 5 / 110,
        rise: tuple[float, float] = (5 / 110, 10.0),
    ):
        super().__init__()
        self.problem, self.variant = problem, variant
        self.warm, self.interval = warm, interval  # shares of the run
        self.rise = rise  # of the consistency's weight, once the warm-up is over: share of the run, top
        self.bottleneck = nn.Linear(problem.dim, problem.unlabelled_classes)
        self.centres = nn.Parameter(torch.zeros(problem.unlabelled_classes, problem.unlabelled_classes))
        self.register_buffer("targets", torch.zeros(problem.rows, problem.unlabelled_classes))

    def warms_up(self, now: Now) -> bool:
        """Whether this epoch belongs to the warm-up."""
        return now.epoch / now.epochs < self.warm

    @torch.no_grad()
    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Bottleneck, centres and targets at the start; then new targets after the warm-up, after the epoch that
        follows it, and from there at every interval.
        """

        def judge() -> Float[Tensor, "all k"]:
            return self.logits(survey().features).exp()

        if now.first(0.0):
            features, labels = survey()
            self.start(features, labels < 0, now.random("dtc"))
        elif now.first(self.warm):
            self.aim(judge(), survey().labels < 0)
        elif not self.warms_up(now):
            self.variant.after_epoch(judge)
            if now.every(self.interval, self.warm + 1 / now.epochs):
                self.aim(self.variant.assign_all(judge), survey().labels < 0)

    @torch.no_grad()
    def start(self, features: Float[Tensor, "all dim"], u: Bool[Tensor, " all"], random: torch.Generator) -> None:
        """The bottleneck at as many principal directions as there are classes, centres by k-means on what it says, and
        the targets they give. Where the images fill fewer directions the outputs beyond are 0.
        """
        centre, V = principal_axes(features[u], self.problem.unlabelled_classes)
        self.bottleneck.weight.copy_(V.T)
        self.bottleneck.bias.copy_(-centre @ V)
        x = self.bottleneck(features[u])
        centres = kmeans(x, self.problem.unlabelled_classes, random).centres
        self.centres.copy_(centres)
        self.targets[u] = target_distribution(soft_assignment(x, centres).exp())

    def aim(self, q: Float[Tensor, "all k"], u: Bool[Tensor, " all"]) -> None:
        """New targets for the unlabelled images."""
        self.targets[u] = target_distribution(q[u])

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`sharpening`, and what the variant adds; labelled rows are passed over."""
        u = unlabelled_rows(batch, self.problem)
        views = [self.logits(view.z) for view in latents]
        batch.notes["dtc"] = views[0].exp()
        rows = batch.rows[u]
        weight = 0.0 if self.warms_up(now) else ramp(now.progress - self.warm, *self.rise)
        steady = self.variant([view[u].exp() for view in views], rows)
        return {"sharpening": divergence(views[0][u], self.targets[rows])} | {
            name: weight * loss for name, loss in steady.items()
        }

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Let the variant remember what `forward` said."""
        if not self.warms_up(now):
            self.variant.after_step(batch.notes["dtc"], batch.rows)

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """log q of the novel classes."""
        return soft_assignment(self.bottleneck(features), self.centres)


def build(problem: Problem, model: Model, *, variant: Callable[[Problem], Variant]) -> Method:
    """DTC with a variant."""
    return DTC(problem, variant(problem))


_PAPER = "Han et al., ICCV 2019"
_TRAINING = Training(
    epochs=110, batch=128, rate=0.1, decay=1e-5, schedule=partial(steps, at=(WARM,), factor=0.5), views=("weak",)
)
"""Of CIFAR-10. The authors begin a new optimiser after the warm-up; here its momentum goes on."""

recipes = {
    name: Recipe(_PAPER, partial(build, variant=variant), "unused", training, "head")
    for name, variant, training in (
        ("baseline", Baseline, replace(_TRAINING, schedule=constant)),
        ("pi", PI, replace(_TRAINING, decay=1e-4, views=("weak", "weak"))),
        ("te", TE, _TRAINING),
        ("tep", TEP, _TRAINING),
    )
}
