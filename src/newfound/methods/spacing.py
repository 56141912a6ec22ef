"""K J Joseph, Sujoy Paul, Gaurav Aggarwal, Soma Biswas, Piyush Rai, Kai Han, Vineeth N Balasubramanian:
Spacing Loss for Discovering Novel Categories, CVPR Workshops 2022.

`SpacingLoss` is for anybody's own loop, `Spacing` the method built on it. The presets say how the paper is read:
`paper` to the letter, `author` as its first author's code does, `aligned` ours, `dcn` the control without anchors.
`pairs` are the losses beside it in the paper's row "Spacing Loss", which is `pairs+spacing`.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound import parallel
from newfound.errors import InputError, choices
from newfound.functional import pseudo
from newfound.functional.cluster import kmeans, semi_supervised_kmeans
from newfound.functional.geometry import distances, equidistant, means, nearest, target_distance, whitening
from newfound.functional.losses import pull
from newfound.functional.schedules import steps
from newfound.methods.base import Method, Recipe, unlabelled
from newfound.methods.pairwise import Pairwise
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Scalar, Survey, Training, generator


@dataclass(frozen=True)
class Preset:
    """One reading of the paper."""

    weight: float
    """λ in λ · mean_i ‖z_i − p‖² (sum over dims, mean over the batch); chosen on pretend-novel classes (decision 5)."""
    unit: bool = True
    """Whether latents are L2-normalised inside; the host sees them as they are."""
    whiten: float | None = 0.3
    """How far the known classes' within-class covariance, where it is known, is shrunk before latents are whitened
    by it (before they are normalised); None: never whitened. Classes are read off latents that are not whitened."""
    alpha: float = 1.1
    """Anchors are α times the largest prototype distance apart,"""
    cap: float | None = math.sqrt(2)
    """but on the unit sphere no more than this: the distance of orthogonal latents, the largest of latents ≥ 0."""
    orientation: Literal["aligned", "random", "none"] = "aligned"
    """How the simplex of anchors is turned; none: no anchors."""
    initial: float | None = None
    """The count v₀ every prototype starts with; None: as many as k-means gave it."""
    known: Literal["means", "k-means"] = "means"
    """Where prototypes of known classes start, when labelled images take part."""
    order: Literal["first", "last", "again"] = "last"
    """When prototypes move: before the loss; after the step with the latents seen; after the step with latents
    that the moved backbone computes again."""
    start: float = 0.0
    """Share of the run before it begins."""


def aligned() -> Preset:
    """Ours: the simplex turned onto the prototypes, counts that remember k-means."""
    return Preset(weight=1.0)


def paper() -> Preset:
    """Algorithm 2 to the letter; α = 1.1 where the paper says only "> 1"."""
    return Preset(
        weight=0.001, unit=False, whiten=None, orientation="random", initial=0.0, known="k-means", order="again"
    )


def author() -> Preset:
    """As the first author's code: unit latents, v₀ = 100, α = 1, prototypes move before the loss.

    Its ½ β Σ_i mean_d (z − p)², β = 5, is λ = β B / 2 d: 0.625 in batches of 128 and 512 dimensions, 2.5 in 128. Our
    anchors are exact where its SMACOF stops early, and k-means sees images unaugmented.
    """
    return Preset(
        weight=0.625,
        whiten=None,
        alpha=1.0,
        cap=None,
        orientation="random",
        initial=100.0,
        known="k-means",
        order="first",
        start=0.025,
    )


def dcn(of: Preset | None = None) -> Preset:
    """The same self-training without anchors (Yang et al. 2017): the control of another preset, by default of
    `aligned` with the weight that is best for it (decision 5).
    """
    return replace(of or replace(aligned(), weight=0.3), orientation="none")


PRESETS = {"aligned": aligned, "paper": paper, "author": author, "dcn": dcn}


def named(preset: str) -> Preset:
    """The preset of this name."""
    if preset not in PRESETS:
        raise InputError(f"Spacing has no preset called {preset!r}. {choices(preset, PRESETS)}")
    return PRESETS[preset]()


class Moved(NamedTuple):
    """Prototypes and counts after some latents were seen, and which prototype each latent went to."""

    prototypes: Float[Tensor, "c d"]
    counts: Float[Tensor, " c"]
    assignment: Int[Tensor, " n"]


def move(
    z: Float[Tensor, "n d"],
    prototypes: Float[Tensor, "c d"],
    anchors: Float[Tensor, "c d"],
    counts: Float[Tensor, " c"],
) -> Moved:
    """Let each latent move its nearest prototype towards itself plus the anchor (Algorithm 2, lines 10–15).

        p_k ← (v_k p_k + Σ z_i + n_k e_k) / (v_k + n_k),   v_k ← v_k + n_k

    The paper's loop over samples in closed form: assignments are fixed before it, so order does not matter.
    Prototypes that no latent went to stay.
    """
    assignment = nearest(z, prototypes)
    centres, n = means(z, assignment, len(prototypes))
    v = counts + n
    share = (n / v.clamp(min=1))[:, None]
    return Moved(torch.lerp(prototypes, centres + anchors, share), v, assignment)


@final
class SpacingLoss(nn.Module):
    """Pull latents to their nearest prototype while anchors push the prototypes apart.

        L = λ · mean_i ‖z_i − p_a(i)‖²,   a(i) = argmin_k ‖z_i − p_k‖        (Algorithm 2)
        p_k ← (v_k p_k + Σ z_i + n_k e_k) / (v_k + n_k),   v_k ← v_k + n_k

    with n_k latents assigned to k, and anchors e equidistant (Algorithm 1). In a loop of your own:

        spacing = SpacingLoss(classes=20, dim=512)
        spacing.start(features)             # once, latents of all images
        loss = host_loss + spacing(z)       # every step
        spacing.update(z)                   # after the optimiser's step

    A preset is given as it is or by its name. For `paper` give `update` the latents that the moved backbone computes
    again. `spread` is the within-class covariance of known classes' latents, where there are any: `aligned` whitens by
    it.
    """

    prototypes: Float[Tensor, "c d"]
    anchors: Float[Tensor, "c d"]
    counts: Float[Tensor, " c"]
    started: Tensor
    metric: Float[Tensor, "d d"] | None

    def __init__(
        self, classes: int, dim: int, preset: Preset | str | None = None, spread: Float[Tensor, "d d"] | None = None
    ):
        super().__init__()
        self.preset = named(preset) if isinstance(preset, str) else preset or aligned()
        self.register_buffer("prototypes", torch.zeros(classes, dim))
        self.register_buffer("anchors", torch.zeros(classes, dim))
        self.register_buffer("counts", torch.zeros(classes))
        self.register_buffer("started", torch.tensor(False))
        metric = None if spread is None or self.preset.whiten is None else whitening(spread, self.preset.whiten)
        self.register_buffer("metric", metric)

    def space(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Latents in the space where prototypes live, in their precision at least: a loop may have half."""
        z = z.to(torch.promote_types(z.dtype, self.prototypes.dtype))
        z = z if self.metric is None else z @ self.metric
        return F.normalize(z, dim=1) if self.preset.unit else z

    @torch.no_grad()
    def start(
        self,
        features: Float[Tensor, "all d"],
        labels: Int[Tensor, " all"] | None = None,
        random: torch.Generator | None = None,
        mixed: bool = False,
    ) -> None:
        """Place prototypes by k-means and anchors equidistantly (Algorithm 2, lines 1–3).

        With labels (−1 where unlabelled) and a preset that asks for it, prototypes of known classes start at their
        labelled means and k-means places the others; where unlabelled images may be of known classes too (`mixed`),
        semi-supervised k-means places all.
        """
        z, random = self.space(features), random or generator("spacing")
        classes = len(self.prototypes)
        l = torch.zeros(len(z), dtype=torch.bool, device=z.device) if labels is None else labels >= 0  # noqa: E741
        if labels is not None and l.any() and self.preset.known == "means":
            known = int(labels.max()) + 1
            if mixed:
                prototypes, assignment, *_ = semi_supervised_kmeans(z, labels, classes, random)
            else:
                rest = kmeans(z[~l], classes - known, random)
                prototypes = torch.cat([means(z[l], labels[l], known)[0], rest.centres])
                assignment = labels.masked_scatter(~l, known + rest.assignment)
        else:
            prototypes, assignment, *_ = kmeans(z, classes, random)
        counts = torch.bincount(assignment, minlength=classes)
        self.prototypes.copy_(prototypes)
        self.counts.copy_(counts if self.preset.initial is None else torch.full_like(self.counts, self.preset.initial))
        if self.preset.orientation != "none":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="alpha = 1 ")  # the author's preset, not a slip
                distance = target_distance(prototypes, self.preset.alpha, self.preset.cap if self.preset.unit else None)
            self.anchors.copy_(equidistant(prototypes, distance, self.preset.orientation, random))
        self.started.fill_(True)
        parallel.broadcast(self)  # one process's k-means may have ended elsewhere

    def forward(self, z: Float[Tensor, "n d"]) -> Scalar:
        """The loss of these latents; 0, with a gradient, before `start`."""
        return self.of(z, parallel.gather(z.detach()) if self.preset.order == "first" else z)

    def of(self, z: Float[Tensor, "n d"], batch: Float[Tensor, "all d"]) -> Scalar:
        """The same, where the latents of every process are at hand."""
        z = self.space(z)
        if not self.started:
            return z.sum() * 0.0
        prototypes, assignment = self.prototypes, nearest(z.detach(), self.prototypes)
        if self.preset.order == "first":
            prototypes = self.moved(self.space(batch.detach())).prototypes
        return self.preset.weight * pull(z, prototypes.index_select(0, assignment))

    def moved(self, z: Float[Tensor, "n d"]) -> Moved:
        """Where the prototypes would go, were these latents (of `space`) seen."""
        return move(z, self.prototypes, self.anchors, self.counts)

    @torch.no_grad()
    def absorb(self, z: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Move the prototypes with the latents of the whole batch; returns the assignments they had."""
        moved = self.moved(self.space(z))
        self.prototypes.copy_(moved.prototypes)
        self.counts.copy_(moved.counts)
        return moved.assignment

    def update(self, z: Float[Tensor, "n d"]) -> None:
        """Move the prototypes, with the latents of every process (Algorithm 2, lines 9–15)."""
        if self.started:
            self.absorb(parallel.gather(z.detach()))


@final
class Spacing(Method):
    """Spacing Loss as a method: needs no labels, stands alone or joins another method through `Sum`."""

    def __init__(self, problem: Problem, preset: Preset | None = None, spread: Float[Tensor, "d d"] | None = None):
        super().__init__()
        self.problem = problem
        self.loss = SpacingLoss(problem.classes, problem.dim, preset, spread)
        self.register_buffer("assignment", torch.full((problem.rows,), -1))  # the latest of every image
        self.register_buffer("changed", torch.zeros(2))  # images that changed class this epoch, images seen

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Start once, when its share of the run is reached."""
        self.get_buffer("changed").zero_()
        if now.first(self.loss.preset.start):
            features, labels = survey()
            self.loss.start(features, labels, now.random("spacing"), self.problem.mixed)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`spacing`, on all rows of the first view."""
        unlabelled(batch, self.problem)
        z = latents[0].z
        return {"spacing": self.loss.of(z, z)}

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Move the prototypes and write down who changed class."""
        if not self.loss.started:
            return
        assignment = self.loss.absorb((embed(0) if self.loss.preset.order == "again" else latents[0]).z)
        if not self.problem.rows:  # nobody said how many images there are, so nobody asks who changed class
            return
        before = self.get_buffer("assignment")
        seen = before[batch.rows] >= 0
        self.get_buffer("changed")[0] += ((before[batch.rows] != assignment) & seen).sum()
        self.get_buffer("changed")[1] += seen.sum()
        before[batch.rows] = assignment

    def log(self) -> dict[str, float]:
        """How far the prototypes are from the origin and from one another, and how settled the classes are."""
        norms = self.loss.prototypes.norm(dim=1)
        assignment, (changed, seen) = self.get_buffer("assignment"), self.get_buffer("changed").tolist()
        sizes = torch.bincount(assignment[assignment >= 0], minlength=len(norms))
        found = {
            "mean prototype norm": norms.mean().item(),
            "largest prototype norm": norms.max().item(),
            "empty clusters": float((sizes == 0).sum()),
            "changed assignments": changed / max(seen, 1.0),
        }
        if len(norms) > 1:
            between = distances(self.loss.prototypes).fill_diagonal_(math.inf)
            found["smallest prototype distance"] = between.min().item()
        return found


def spacing_of(method: Method) -> SpacingLoss | None:
    """The Spacing in a method, where there is one."""
    return next((part for part in method.modules() if isinstance(part, SpacingLoss)), None)


def build_pairs(problem: Problem, model: Model) -> Method:
    """The paper's auxiliary losses; in two stages pairs are guessed by the frozen stage-one backbone, as the
    author's two-stage script does.
    """
    return Pairwise(problem, pseudo.cosine, head=model.head, teacher=None if problem.labelled else model.backbone)


def build(problem: Problem, model: Model, *, preset: Callable[[], Preset]) -> Method:
    """Spacing alone."""
    return Spacing(problem, preset(), model.spread)


_PAPER = "Joseph et al., CVPR-W 2022"
_TRAINING = Training(epochs=200, batch=128, rate=0.1, schedule=partial(steps, at=(0.85,)), trains=1)
"""NCL's, as the paper says. Spacing itself looks at one view."""

pairs = Recipe(_PAPER, build_pairs, "optional", _TRAINING, "unit k-means")
recipes = {
    name: Recipe(
        _PAPER,
        partial(build, preset=preset),
        "optional",
        replace(_TRAINING, views=("weak",)),
        "unit k-means" if preset().unit else "k-means",
        joins=True,
    )
    for name, preset in PRESETS.items()
}
