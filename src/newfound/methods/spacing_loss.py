"""K J Joseph, Sujoy Paul, Gaurav Aggarwal, Soma Biswas, Piyush Rai, Kai Han, Vineeth N Balasubramanian:
Spacing Loss for Discovering Novel Categories, CVPR Workshops 2022.

`SpacingLoss` is for anybody's own loop. Its presets say how the paper is read: `paper` to the letter, `author` as its
first author's code does, `aligned` with anchors turned onto the prototypes, `dcn` the control without anchors; and
`swapped`, ours, in which the views of an image learn from one another, with `unanchored` as its control.
"""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound import parallel
from newfound.errors import InputError, choices
from newfound.functional.cluster import Clustering, Held, held_kmeans, kmeans, semi_supervised_kmeans
from newfound.functional.geometry import equidistant, means, nearest, orthonormal, target_distance, whitening
from newfound.functional.losses import mean, pull, swapped_cross_entropy
from newfound.functional.pseudo import sinkhorn
from newfound.types import Scalar, generator


@dataclass(frozen=True)
class Swap:
    """How the views of an image learn from one another; prototypes then lie on the unit sphere, as latents do."""

    temperature: float = 0.1
    """τ: what cosines are divided by to predict an assignment."""
    epsilon: float = 0.05
    """ε: what they are divided by to make one; smaller is surer."""
    balance: Literal["equal", "learnt", "none"] = "learnt"
    """How much each class gets of a batch: the same; half-way between that and what it had lately, and where any known
    class may be absent all the way; or what comes, and then all images soon go to one class."""
    pace: float = 0.01
    """How far learnt shares go towards those of a batch in a step."""
    memory: float = 0.8
    """How much of what an image is assigned by comes, at the end of the run, from how it was seen in earlier epochs."""
    large: int = 2
    """Views that give assignments, counted from the first; the others only learn."""


@dataclass(frozen=True)
class Preset:
    """One reading of the paper."""

    weight: float
    """λ in λ · mean_i ‖z_i − p‖² (sum over dims, mean over the batch), or of the cross-entropy that `swap` takes
    instead; chosen on pretend-novel classes (decisions 5 and 9)."""
    unit: bool = True
    """Whether latents are L2-normalised inside; the host sees them as they are."""
    whiten: float | None = 0.3
    """How far the known classes' within-class covariance, where it is known, is shrunk before latents are whitened
    by it (before they are normalised); None: never whitened. Classes are read off latents that are not whitened."""
    alpha: float = 1.1
    """Anchors are α times the largest prototype distance apart,"""
    cap: float | None = math.sqrt(2)
    """but on the unit sphere no more than this: the distance of orthogonal latents, the largest of latents ≥ 0."""
    orientation: Literal["orthonormal", "aligned", "random", "none"] = "aligned"
    """Which anchors: orthonormal ones, a simplex turned onto the prototypes, one turned at random, or none."""
    initial: float | None = None
    """The count v₀ every prototype starts with; None: as many as k-means gave it."""
    known: Literal["means", "k-means"] = "means"
    """Where prototypes of known classes start, when labelled images take part."""
    order: Literal["first", "last", "again"] = "last"
    """When prototypes move: before the loss; after the step with the latents seen; after the step with latents
    that the moved backbone computes again."""
    start: float = 0.0
    """Share of the run before it begins."""
    swap: Swap | None = None
    """How views learn from one another; None: the first is pulled to its nearest prototype, as the paper has it."""

    def __post_init__(self) -> None:
        if self.swap is not None and not (self.unit and self.order == "last"):
            raise InputError(
                f"A preset in which views learn from one another has unit={self.unit}, order={self.order!r}. Needed: "
                "unit latents, and prototypes that move last. Change these two, or leave `swap` out."
            )


def swapped() -> Preset:
    """Ours: each view is drawn to the prototypes that its other views are assigned to, with balance."""
    return Preset(weight=1.0, orientation="orthonormal", swap=Swap())


def unanchored() -> Preset:
    """The control of `swapped`: the same without anchors."""
    return replace(swapped(), orientation="none")


def aligned() -> Preset:
    """The paper's rule with the simplex turned onto the prototypes, and counts that remember k-means."""
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


def author_two_stage() -> Preset:
    """As his script for two stages on ImageNet: β = 5 in batches of 512 is λ = 2.5, from epoch 5 of 50 on."""
    return replace(author(), weight=2.5, start=0.1)


def dcn(of: Preset | None = None) -> Preset:
    """The same self-training without anchors (Yang et al. 2017): the control of another preset, by default of
    `aligned` with the weight that is best for it (decision 5).
    """
    return replace(of or replace(aligned(), weight=0.3), orientation="none")


PRESETS = {
    "swapped": swapped,
    "unanchored": unanchored,
    "aligned": aligned,
    "paper": paper,
    "author": author,
    "author-two-stage": author_two_stage,
    "dcn": dcn,
}


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
    assignment: Int[Tensor, " n"] | None = None,
) -> Moved:
    """Let each latent move its nearest prototype towards itself plus the anchor (Algorithm 2, lines 10–15).

        p_k ← (v_k p_k + Σ z_i + n_k e_k) / (v_k + n_k),   v_k ← v_k + n_k

    The paper's loop over samples in closed form: assignments are fixed before it, so order does not matter.
    Prototypes that no latent went to stay. Where an `assignment` is given, it takes the place of the nearest one.
    """
    assignment = nearest(z, prototypes) if assignment is None else assignment
    centres, n = means(z, assignment, len(prototypes))
    v = counts + n
    share = (n / v.clamp(min=1))[:, None]
    return Moved(torch.lerp(prototypes, centres + anchors, share), v, assignment)


@final
class SpacingLoss(nn.Module):
    """Draw latents to prototypes, which follow them and are pushed apart by anchors.

        L = λ · mean_{v≠w} mean_i −Σ_k t_ivk log softmax(u_iw·p / τ)_k        (`swapped`; u = unit(z W))
        t_iv = sinkhorn(unit(β m_i + (1 − β) u_iv)·p / ε)_i,   m_i ← unit(β m_i + (1 − β) u_i)
        p_k ← unit((v_k p_k + Σ u_i + n_k e_k) / (v_k + n_k)),   v_k ← min(v_k + n_k, images a class)

    t_iv is what view v of image i is assigned to, m_i how the image was seen so far (temporal ensembling, Laine & Aila
    2017; left out where nobody says which images these are), with β growing from 0 to `memory` over the run. n_k
    latents of the batch are nearest to p_k. Anchors e are orthonormal, the nearest such to the prototypes at the start,
    so all are √2 apart. W whitens by `spread`, the within-class covariance of known classes' latents, where given.

    The presets of the paper have no views; each latent is pulled to its nearest prototype, and nothing is put back on
    the sphere (Algorithm 2):

        L = λ · mean_i ‖z_i − p_a(i)‖²,   a(i) = argmin_k ‖z_i − p_k‖
        p_k ← (v_k p_k + Σ z_i + n_k e_k) / (v_k + n_k),   v_k ← v_k + n_k

    In a loop of your own:

        spacing = SpacingLoss(classes=20, dim=512)
        spacing.start(features)                 # once, latents of all images
        loss = host_loss + spacing(z, other)    # every step: two views of the same images, or one
        spacing.update(z)                       # after the optimiser's step

    A preset is given as it is or by its name. For `paper` give `update` the latents that the moved backbone computes
    again. With labels in `start`, in the call and in `update` (−1 where unlabelled), `swapped` holds labelled images to
    the prototypes of their classes, which come first. With `images`, the number of rows that `start` will be given, and
    in the call and in `update` the `rows` of a batch among them and the share of the run that is over (`progress`), it
    remembers how each was seen.
    """

    prototypes: Float[Tensor, "c d"]
    anchors: Float[Tensor, "c d"]
    counts: Float[Tensor, " c"]
    limit: Tensor
    shares: Float[Tensor, " c"]
    taught: Tensor
    reserved: Tensor
    mixed: Tensor
    started: Tensor
    metric: Float[Tensor, "d d"] | None
    seen: Float[Tensor, "images d"] | None

    def __init__(
        self,
        classes: int,
        dim: int,
        preset: Preset | str | None = None,
        spread: Float[Tensor, "d d"] | None = None,
        images: int = 0,
    ):
        super().__init__()
        self.preset = named(preset) if isinstance(preset, str) else preset or swapped()
        self.register_buffer("prototypes", torch.zeros(classes, dim))
        self.register_buffer("anchors", torch.zeros(classes, dim))
        self.register_buffer("counts", torch.zeros(classes))
        self.register_buffer("limit", torch.tensor(math.inf))  # beyond which counts do not grow
        self.register_buffer("shares", torch.full((classes,), 1 / classes))  # of unlabelled images
        self.register_buffer("taught", torch.tensor(0))  # prototypes, the first, that labels speak of
        self.register_buffer("reserved", torch.tensor(0))  # of these: which no unlabelled image is assigned to
        self.register_buffer("mixed", torch.tensor(False))  # whether unlabelled images may be of known classes
        self.register_buffer("started", torch.tensor(False))
        metric = None if spread is None or self.preset.whiten is None else whitening(spread, self.preset.whiten)
        self.register_buffer("metric", metric)
        remembers = images > 0 and self.preset.swap is not None and self.preset.swap.memory > 0
        self.register_buffer("seen", torch.zeros(images, dim) if remembers else None)

    def space(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Latents in the space where prototypes live, in the prototypes' precision: a loop may have half."""
        z = z.to(self.prototypes.dtype)
        z = z if self.metric is None else z @ self.metric
        return F.normalize(z, dim=1) if self.preset.unit else z

    @torch.no_grad()
    def start(
        self,
        features: Float[Tensor, "all d"],
        labels: Int[Tensor, " all"] | None = None,
        random: torch.Generator | None = None,
        mixed: bool = False,
        known: Held | None = None,
    ) -> None:
        """Place prototypes by k-means and anchors equidistantly (Algorithm 2, lines 1–3).

        With labels (−1 where unlabelled) and a preset that asks for it, prototypes of known classes start at their
        labelled means and k-means places the others; where unlabelled images may be of known classes too (`mixed`),
        semi-supervised k-means places all. In such a pile `known` stands for known classes whose images are not at
        hand: sums and numbers of their latents, in `space`.
        """
        if self.seen is not None and len(self.seen) != len(features):
            raise InputError(
                f"SpacingLoss was made for {len(self.seen)} images, and starts with latents of {len(features)}. "
                "Needed: a row for each. Give `images` the number of rows that `start` is given."
            )
        z, random = self.space(features), random or generator("spacing")
        if labels is None or self.preset.known == "k-means":
            labels = torch.full((len(z),), -1, device=z.device)
        self.mixed.fill_(mixed)
        self.taught.fill_(int(labels.max()) + 1)
        self.reserved.fill_(0 if mixed else int(self.taught))
        found = self._place(z, labels, random) if known is None else held_kmeans(z, known, len(self.counts), random)
        self._balance(found.assignment[labels < 0])
        self.prototypes.copy_(found.centres if self.preset.swap is None else F.normalize(found.centres, dim=1))
        sizes = torch.bincount(found.assignment, minlength=len(self.counts))
        if self.preset.swap is not None:
            self.limit.fill_(len(z) / int((sizes > 0).sum()))  # known classes may be absent
        self.counts.copy_(sizes if self.preset.initial is None else torch.full_like(self.counts, self.preset.initial))
        if known is not None:  # what is not seen here is no reason to forget it
            self.counts[: len(known.counts)] += known.counts.minimum(self.limit)
        if self.seen is not None:
            self.seen.copy_(z)
        self.anchors.copy_(self._anchors(random))
        self.started.fill_(True)
        parallel.broadcast(self)  # one process's k-means may have ended elsewhere

    def forward(
        self,
        z: Float[Tensor, "n d"],
        other: Float[Tensor, "n d"] | None = None,
        labels: Int[Tensor, " n"] | None = None,
        rows: Int[Tensor, " n"] | None = None,
        progress: float = 0.0,
    ) -> Scalar:
        """The loss of these latents; 0, with a gradient, before `start`.

        With an `other` view of the same images each view is drawn to where the other is assigned; without one, to
        where it is assigned itself. The presets of the paper look at z alone.
        """
        views = [z] if other is None else [z, other]
        batch = [parallel.gather(view.detach()) for view in views]
        part = parallel.part(len(batch[0]))
        with torch.autocast(z.device.type, enabled=False):  # cosines over 0.05 have no digits in half precision
            return self.of(views, batch, labels=_gathered(labels), rows=_gathered(rows), progress=progress, part=part)

    def of(
        self,
        views: list[Float[Tensor, "n d"]],
        batch: list[Float[Tensor, "all d"]] | None = None,
        *,
        labels: Int[Tensor, " all"] | None = None,
        rows: Int[Tensor, " all"] | None = None,
        progress: float = 0.0,
        part: slice = slice(None),
    ) -> Scalar:
        """The same, where the latents of every process are at hand: `batch`, labels and rows, of which the views are a
        `part`. Without a batch the views are all there is.
        """
        own = [self.space(view) for view in views]
        if not self.started:
            return own[0].sum() * 0.0
        seen = [u.detach() for u in own] if batch is None else [self.space(view) for view in batch]
        if self.preset.swap is None:
            prototypes = self.moved(seen[0]).prototypes if self.preset.order == "first" else self.prototypes
            return self.preset.weight * pull(
                own[0], prototypes.index_select(0, nearest(own[0].detach(), self.prototypes))
            )
        large = seen[: self.preset.swap.large]
        assigned = [self.assign(self._remembered(u, rows, progress), labels)[part] for u in large]
        if len(own) == 1:  # a view alone learns from itself
            own, assigned = own * 2, assigned * 2
        logits = torch.stack([u @ self.prototypes.T for u in own]) / self.preset.swap.temperature
        return self.preset.weight * mean(swapped_cross_entropy(logits, torch.stack(assigned)))

    @torch.no_grad()
    def assign(self, u: Float[Tensor, "n d"], labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n c"]:
        """Shares of the prototypes for latents of `space`: as labels say, else by cosines, with balance."""
        assert self.preset.swap is not None
        epsilon, reserved, unlabelled = self.preset.swap.epsilon, int(self.reserved), self._unlabelled(u, labels)
        cosines = u @ self.prototypes.T
        free = cosines[unlabelled, reserved:]
        if self.preset.swap.balance == "none":
            guess = (free / epsilon).softmax(1)
        else:
            guess = sinkhorn(free, epsilon, shares=self._balanced(reserved))
        assigned = torch.zeros_like(cosines)
        if labels is not None:
            assigned[~unlabelled, labels[~unlabelled]] = 1.0
        assigned[unlabelled, reserved:] = guess.to(assigned)
        return assigned

    def moved(self, u: Float[Tensor, "n d"], assignment: Int[Tensor, " n"] | None = None) -> Moved:
        """Where the prototypes would go, were these latents (of `space`) seen."""
        return move(u, self.prototypes, self.anchors, self.counts, assignment)

    @torch.no_grad()
    def absorb(
        self,
        z: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | None = None,
        rows: Int[Tensor, " n"] | None = None,
        progress: float = 0.0,
    ) -> Int[Tensor, " n"]:
        """Move the prototypes with the latents of the whole batch; returns the assignments they had."""
        u = self.space(z)
        moved = self.moved(u) if self.preset.swap is None else self._swap_moved(u, self._unlabelled(u, labels), labels)
        self.prototypes.copy_(moved.prototypes)
        self.counts.copy_(moved.counts.minimum(self.limit))
        if self.seen is not None and rows is not None:
            self.seen[rows] = self._remembered(u, rows, progress).to(self.seen)
        return moved.assignment

    def update(
        self,
        z: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | None = None,
        rows: Int[Tensor, " n"] | None = None,
        progress: float = 0.0,
    ) -> None:
        """Move the prototypes, with the latents of every process (Algorithm 2, lines 9–15)."""
        if self.started:
            with torch.autocast(z.device.type, enabled=False):
                self.absorb(parallel.gather(z.detach()), _gathered(labels), _gathered(rows), progress)

    def _swap_moved(
        self, u: Float[Tensor, "n d"], unlabelled: Bool[Tensor, " n"], labels: Int[Tensor, " n"] | None
    ) -> Moved:
        """Prototypes on the sphere, after labelled latents went where labels say and others to the nearest; and shares
        a little nearer to those of the batch.
        """
        assert self.preset.swap is not None
        reserved, cosines = int(self.reserved), u @ self.prototypes.T
        assignment = reserved + cosines[:, reserved:].argmax(1)
        if labels is not None:
            assignment = torch.where(unlabelled, assignment, labels)
        if self.preset.swap.balance == "learnt" and unlabelled.any():
            drawn = (cosines[unlabelled, reserved:] / self.preset.swap.temperature).softmax(1).mean(0)
            self.shares[reserved:].lerp_(drawn, self.preset.swap.pace)
        moved = self.moved(u, assignment)
        return moved._replace(prototypes=F.normalize(moved.prototypes, dim=1))

    def _remembered(
        self, u: Float[Tensor, "n d"], rows: Int[Tensor, " n"] | None, progress: float
    ) -> Float[Tensor, "n d"]:
        """Latents together with how these images were seen before, where anybody knows."""
        if self.seen is None or rows is None:
            return u
        assert self.preset.swap is not None
        return F.normalize(torch.lerp(u, self.seen[rows].to(u), self.preset.swap.memory * progress), dim=1)

    def _unlabelled(self, u: Float[Tensor, "n d"], labels: Int[Tensor, " n"] | None) -> Bool[Tensor, " n"]:
        """Which rows no label speaks of; where prototypes started without labels, none does."""
        if labels is None or not self.taught:
            return torch.ones(len(u), dtype=torch.bool, device=u.device)
        return labels < 0

    def _balanced(self, reserved: int) -> Float[Tensor, " free"]:
        """The shares of a batch that classes get: learnt ones half-way to equal ones, which these are when not learnt.

        All the way they would feed on themselves: a class that k-means made too large would stay so. But where known
        classes may be absent, equal shares would fill them with others' images.
        """
        free = self.shares[reserved:]
        return free if self.mixed else (free + 1 / len(free)) / 2

    def _place(self, z: Float[Tensor, "all d"], labels: Int[Tensor, " all"], random: torch.Generator) -> Clustering:
        """Prototypes by k-means; those of known classes, which come first, at labelled means or held near them."""
        classes, taught = len(self.prototypes), labels >= 0
        known = int(self.taught)
        if known == 0 or self.mixed:
            return semi_supervised_kmeans(z, labels, classes, random)
        rest = kmeans(z[~taught], classes - known, random)
        centres = torch.cat([means(z[taught], labels[taught], known)[0], rest.centres])
        return rest._replace(centres=centres, assignment=labels.masked_scatter(~taught, known + rest.assignment))

    def _balance(self, unlabelled: Int[Tensor, " u"]) -> None:
        """Shares as k-means found them, each class with one image more; or equal ones."""
        reserved, classes = int(self.reserved), len(self.shares)
        counts = torch.bincount(unlabelled, minlength=classes).to(self.shares) + 1
        if self.preset.swap is None or self.preset.swap.balance != "learnt":
            counts = torch.ones_like(counts)
        counts[:reserved] = 0
        self.shares.copy_(counts / counts.sum())

    def _anchors(self, random: torch.Generator) -> Float[Tensor, "c d"]:
        orientation = self.preset.orientation
        if orientation == "none":
            return torch.zeros_like(self.prototypes)
        if orientation == "orthonormal":
            return orthonormal(self.prototypes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="alpha = 1 ")  # the author's preset, not a slip
            distance = target_distance(
                self.prototypes, self.preset.alpha, self.preset.cap if self.preset.unit else None
            )
        return equidistant(self.prototypes, distance, orientation, random)


def _gathered(values: Int[Tensor, " n"] | None) -> Int[Tensor, " all"] | None:
    return None if values is None else parallel.gather(values)
