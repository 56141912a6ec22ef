"""Spacing with anchors for known and novel classes together: ours.

After K J Joseph, Sujoy Paul, Gaurav Aggarwal, Soma Biswas, Piyush Rai, Kai Han, Vineeth N Balasubramanian:
Spacing Loss for Discovering Novel Categories, CVPR Workshops 2022, whose fifth section asks for it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound.errors import InputError
from newfound.functional.cluster import ClassSums, constrained_kmeans, kmeans
from newfound.functional.geometry import extend, means, orthonormal, whitening
from newfound.functional.losses import feature_distillation, mean, swapped_cross_entropy
from newfound.functional.pseudo import sinkhorn
from newfound.functional.schedules import warm_cosine
from newfound.methods.base import Method, Own, Recipe, note_old_latents, own_views, unlabelled_rows
from newfound.networks.backbone import Backbone, Frozen
from newfound.networks.heads import unbiased
from newfound.networks.model import Model, Statistics
from newfound.networks.replay import LatentReplay
from newfound.spacing.prototypes import move
from newfound.types import Batch, Latents, Losses, Now, Problem, Survey, Training

TEMPERATURE, EPSILON, LARGE = 0.1, 0.05, 2
"""Of predictions; of assignments; views that give these, counted from the first: as `spacing:swapped` has them."""

SHRINK = 0.3
"""Of the known classes' covariance before latents are whitened by it, as there."""

STAND = 100
"""Latents that are drawn to say where a known class lies."""


@final
class Anchored(Method):
    """Views of an image learn from one another which novel class it is of, beside the known ones; anchors hold the
    prototypes of all apart.

        L = swapped(u·P / τ, [0 ; sinkhorn(u·P_novel / ε)]) + ρ · ‖Z/‖Z‖ − Z_old/‖Z_old‖‖,   u = unit(z W)
        p_k ← unit((v_k p_k + Σ u_i + n_k e_k) / (v_k + n_k)),   v_k ← min(v_k + n_k, images a class)
        c_k ← unit((v_k c_k + Σ u_i) / (v_k + n_k))

    Known prototypes start at the directions of their classes' latents, drawn from what is remembered of them
    (`LatentReplay`), and n_k drawn latents hold them as images hold the novel ones; k-means places these. Anchors e of
    known classes are orthonormal and the nearest such to their prototypes; `extend` adds those of novel ones, at the
    same distance from all, without moving any, turned towards the novel prototypes. W whitens by the known classes'
    covariance.

    What the old backbone says of the images (ρ = 10) keeps true what is remembered. Discovery `apart` (ρ = 0) lets the
    backbone go: it is a copy, which may forget what it likes, while the next model keeps the backbone that it had, and
    there is taught by statistics what the copy found (`Recipe.apart`). That pays from pixels, where the backbone has
    much to learn (decision 19). Where unlabelled images may be of known classes (`mixed`), these are to be recognised,
    and the backbone is held.

    Images are told by the angles to the centres c, which follow the same latents and no anchor: room that is left over
    by known anchors leaves novel ones further from their classes than known ones are from theirs, and to tell images by
    the prototypes would favour known classes (decision 19).

    Where labelled images take part they take the place of drawn latents. Where unlabelled images may be of known
    classes they may be assigned to these, which k-means holds when it places the novel ones.
    """

    prototypes: Float[Tensor, "c d"]
    anchors: Float[Tensor, "c d"]
    centres: Float[Tensor, "c d"]
    counts: Float[Tensor, " c"]
    limit: Tensor
    shares: Float[Tensor, " c"]
    metric: Float[Tensor, "d d"]

    def __init__(
        self,
        problem: Problem,
        backbone: Backbone,
        known: Statistics | None = None,
        *,
        distilled: float = 10.0,
    ):
        super().__init__()
        classes = problem.known + problem.novel
        if problem.known > 1 and classes > problem.dim + 1:  # else nothing says how far apart
            raise InputError(
                f"{problem.known} known and {problem.novel} novel classes are to lie equally far apart, and latents "
                f"have {problem.dim} dimensions. Needed: at most one class more than dimensions. Look for fewer "
                "classes, take a backbone whose latents have more dimensions, or another method."
            )
        self.problem, self.distilled = problem, distilled
        self.register_buffer("prototypes", torch.zeros(classes, problem.dim))
        self.register_buffer("anchors", torch.zeros(classes, problem.dim))
        self.register_buffer("centres", torch.zeros(classes, problem.dim))
        self.register_buffer("counts", torch.zeros(classes))
        self.register_buffer("limit", torch.tensor(1.0))  # beyond which counts do not grow
        self.register_buffer("shares", torch.full((classes,), 1 / classes))  # of unlabelled images, as k-means found
        metric = torch.eye(problem.dim) if known is None else whitening(known.within_covariance, SHRINK)
        self.register_buffer("metric", metric)
        self.replay = LatentReplay(known, problem.known, problem.dim)
        self.old = Frozen(backbone) if distilled else None

    def space(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Latents as they are compared: whitened directions."""
        return F.normalize(z @ self.metric, dim=1)

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Place prototypes and anchors, once."""
        if self.counts.any():
            return
        seen, known, random = survey(), self.problem.known, now.random("novel")
        free = self.space(seen.unlabelled)
        latents, labels = (
            (seen.labelled, seen.labels[seen.labels >= 0])
            if self.problem.labelled
            else self.replay.draw(STAND, now.random("known"))
        )
        old, told = means(self.space(latents), labels, known)
        if self.problem.mixed:  # else what is known would be found once more, as novel
            held = ClassSums(old * told[:, None], told.to(old))
            assignment = constrained_kmeans(free, held, len(self.counts), random).assignment
        else:
            assignment = known + kmeans(free, self.problem.novel, random).assignment
        centres, sizes = means(free, assignment, len(self.counts))
        self.prototypes.copy_(F.normalize(torch.cat([old, centres[known:]]), dim=1))
        self.centres.copy_(self.prototypes)
        self.anchors.copy_(place_anchors(self.prototypes[:known], self.prototypes[known:]))
        self.limit.fill_(len(free) / int((sizes > 0).sum()))  # known classes may be absent
        self.counts.copy_(torch.cat([self.limit.expand(known), sizes[known:]]).minimum(self.limit).clamp(min=1))
        self.shares.copy_((sizes + 1) / (sizes + 1).sum())

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`swapped`, on all rows, and where the backbone is held `distillation`, on unlabelled ones."""
        u, views = unlabelled_rows(batch, self.problem), [view.z for view in own_views(latents, batch)]
        cosines = torch.stack([self.space(z) @ self.prototypes.T for z in views])
        targets = torch.stack([self._assign(view, batch.labels) for view in cosines.detach()[:LARGE]])
        losses = {"swapped": mean(swapped_cross_entropy(cosines / TEMPERATURE, targets))}
        if self.old is not None:
            old = batch.notes["old latents"][u]
            losses["distillation"] = self.distilled * feature_distillation(views[0][u], old)
        return losses

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Ask the old backbone, where it holds this one."""
        return note_old_latents(batch, self.old)

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Move the prototypes: novel ones with images, known ones with theirs or with as many that are drawn."""
        z, labels = latents[0].z, batch.labels
        guess = (self.space(z) @ self.prototypes.T)[:, self._first :].argmax(1) + self._first
        assignment = torch.where(labels < 0, guess, labels)
        if not self.problem.labelled:
            each = max(1, len(z) // max(1, self.problem.novel))
            drawn, drawn_labels = self.replay.draw(each, now.random("replay"))
            z, assignment = torch.cat([z, drawn]), torch.cat([assignment, drawn_labels])
        u, nowhere = self.space(z), torch.zeros_like(self.anchors)
        moved = move(u, self.prototypes, self.anchors, self.counts, assignment)
        self.centres.copy_(F.normalize(move(u, self.centres, nowhere, self.counts, assignment).prototypes, dim=1))
        self.prototypes.copy_(F.normalize(moved.prototypes, dim=1))
        self.counts.copy_(moved.counts.minimum(self.limit))

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Cosines with the centres of known classes, then of novel ones, over the temperature."""
        return self.space(features) @ self.centres.T / TEMPERATURE

    def joint_head(self) -> nn.Linear:
        """The centres behind the whitening: zW·c = z·(cW), for W is symmetric."""
        return unbiased(self.centres @ self.metric / TEMPERATURE)

    @property
    def _first(self) -> int:
        """The first prototype that an unlabelled image may be assigned to."""
        return 0 if self.problem.mixed else self.problem.known

    def _assign(self, cosines: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Shares of the prototypes: as labels say, else by cosines, with balance: novel classes get equally much, and
        where unlabelled images may be of known classes all get what k-means gave them, for these may be absent.
        """
        free, target = labels < 0, torch.zeros_like(cosines)
        target[~free, labels[~free]] = 1.0
        shares = self.shares if self.problem.mixed else None
        target[free, self._first :] = sinkhorn(cosines[free, self._first :], EPSILON, shares=shares).to(target)
        return target


def place_anchors(known: Float[Tensor, "known d"], novel: Float[Tensor, "novel d"]) -> Float[Tensor, "all d"]:
    """Anchors of known prototypes, orthonormal, and of novel ones, at the same distance √2 from all.

    Fewer than two known classes tell no distance: all anchors are orthonormal then.
    """
    if len(known) < 2:
        return orthonormal(torch.cat([known, novel]))
    return extend(orthonormal(known), len(novel), novel)


def build(problem: Problem, model: Model) -> Method:
    """With what the model remembers of known classes."""
    return Anchored(problem, model.backbone, model.known)


def build_apart(problem: Problem, model: Model) -> Method:
    """The same on a copy that nothing holds, unless it must go on recognising known classes."""
    return Anchored(problem, model.backbone, model.known, distilled=10.0 if problem.mixed else 0.0)


_SCHEDULE = partial(warm_cosine, warm=0.1, start=0.01, end=0.01)

recipe = Recipe(
    "ours, after Joseph et al., CVPR-W 2022",
    build,
    "optional",
    Training(epochs=200, batch=128, rate=0.1, schedule=_SCHEDULE, views=("weak", "weak"), trains=1),
    "head",
    own=Own(30, 0.05, _SCHEDULE),
    continual=True,
)
apart = replace(recipe, build=build_apart, apart=True)
