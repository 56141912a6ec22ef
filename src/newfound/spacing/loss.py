"""K J Joseph, Sujoy Paul, Gaurav Aggarwal, Soma Biswas, Piyush Rai, Kai Han, Vineeth N Balasubramanian:
Spacing Loss for Discovering Novel Categories, CVPR Workshops 2022.

`SpacingLoss` is for anybody's own loop; `presets` say how the paper is read.
"""

import math
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound import parallel
from newfound.errors import InputError
from newfound.functional.cluster import ClassSums, constrained_kmeans
from newfound.functional.geometry import nearest, whitening
from newfound.functional.losses import mean, pull, swapped_cross_entropy
from newfound.functional.pseudo import sinkhorn
from newfound.spacing.presets import Preset, resolve
from newfound.spacing.prototypes import Update, check_labels, move, place, place_anchors, warn_of_room
from newfound.types import Scalar, generator


@final
class SpacingLoss(nn.Module):
    """Draw latents to prototypes, which follow them and are pushed apart by anchors.

        L = λ · mean_{v≠w} mean_i −Σ_k t_ivk log softmax(u_iw·p / τ)_k        (`swapped`; u = unit(z W))
        t_iv = sinkhorn(unit(β m_i + (1 − β) u_iv)·p / ε)_i,   m_i ← unit(β m_i + (1 − β) u_i)
        p_k ← unit((v_k p_k + Σ u_i + n_k e_k) / (v_k + n_k)),   v_k ← min(v_k + n_k, images a class)

    t_iv is what view v of image i is assigned to, m_i how the image was seen so far (temporal ensembling, Laine & Aila
    2017; left out where nobody says which images these are), with β growing from 0 to `memory` over the run. n_k
    latents of the batch are nearest to p_k. Anchors e are orthonormal, the nearest such to the prototypes at the start,
    so all are √2 apart where c ≤ d. W whitens by `within_covariance`, that of known classes' latents, where given.

    The presets of the paper have no views; each latent is pulled to its nearest prototype, and nothing is put back on
    the sphere (Algorithm 2):

        L = λ · mean_i ‖z_i − p_a(i)‖²,   a(i) = argmin_k ‖z_i − p_k‖
        p_k ← (v_k p_k + Σ z_i + n_k e_k) / (v_k + n_k),   v_k ← v_k + n_k

    In a loop of your own:

        spacing = SpacingLoss(classes=20, dim=512)
        spacing.start(features)                 # once, latents of all images
        loss = host_loss + spacing(z, other)    # every step: two views of the same images, or one
        spacing.update(z)                       # after the optimiser's step

    A preset is given as it is or by its name; `weight` (λ) and `alpha` (how far apart anchors are, unless they are
    orthonormal) are the preset's own where they are not given. For `paper` give `update` the latents that the moved
    backbone computes again. With labels in `start`, in the call and in `update` (−1 where unlabelled), `swapped` holds
    labelled images to the prototypes of their classes, which come first. With `images`, the number of rows that `start`
    will be given, and in the call and in `update` the `rows` of a batch among them and the share of the run that is
    over (`progress`), it remembers how each was seen.
    """

    prototypes: Float[Tensor, "c d"]
    anchors: Float[Tensor, "c d"]
    counts: Float[Tensor, " c"]
    limit: Tensor
    shares: Float[Tensor, " c"]
    labelled_classes: Tensor
    reserved: Tensor
    mixed: Tensor
    started: Tensor
    metric: Float[Tensor, "d d"] | None
    memory: Float[Tensor, "images d"] | None

    def __init__(
        self,
        classes: int,
        dim: int,
        preset: Preset | str | None = None,
        *,
        weight: float | None = None,
        alpha: float | None = None,
        within_covariance: Float[Tensor, "d d"] | None = None,
        images: int = 0,
    ):
        super().__init__()
        self.preset = resolve(preset, weight=weight, alpha=alpha)
        self.register_buffer("prototypes", torch.zeros(classes, dim))
        self.register_buffer("anchors", torch.zeros(classes, dim))
        self.register_buffer("counts", torch.zeros(classes))
        self.register_buffer("limit", torch.tensor(math.inf))  # beyond which counts do not grow
        self.register_buffer("shares", torch.full((classes,), 1 / classes))  # of unlabelled images
        self.register_buffer("labelled_classes", torch.tensor(0))  # prototypes, the first, that labels speak of
        self.register_buffer("reserved", torch.tensor(0))  # of these: which no unlabelled image is assigned to
        self.register_buffer("mixed", torch.tensor(False))  # whether unlabelled images may be of known classes
        self.register_buffer("started", torch.tensor(False))
        metric = (
            None
            if within_covariance is None or self.preset.whiten is None
            else whitening(within_covariance, self.preset.whiten).to(self.prototypes)  # of 64 bits, made of numpy's
        )
        self.register_buffer("metric", metric)
        remembers = images > 0 and self.preset.swap is not None and self.preset.swap.memory > 0
        self.register_buffer("memory", torch.zeros(images, dim) if remembers else None)

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
        *,
        random: torch.Generator | None = None,
        mixed: bool = False,
        known_sums: ClassSums | None = None,
    ) -> None:
        """Place prototypes by k-means and anchors equidistantly (Algorithm 2, lines 1–3).

        With labels (−1 where unlabelled) and a preset that asks for it, prototypes of known classes start at their
        labelled means and k-means places the others; where unlabelled images may be of known classes too (`mixed`),
        semi-supervised k-means places all. There `known_sums` stand for known classes whose images are not at
        hand: sums and numbers of their latents, in `space`.
        """
        if self.memory is not None and len(self.memory) != len(features):
            raise InputError(
                f"SpacingLoss was made for {len(self.memory)} images, and starts with latents of {len(features)}. "
                "Needed: a row for each. Give `images` the number of rows that `start` is given."
            )
        if lost := int((~features.isfinite().all(1)).sum()):
            raise InputError(
                f"{lost} of {len(features)} latents that SpacingLoss starts with are NaN or infinite. Needed: numbers. "
                "Look at the backbone and at its images: a smaller learning rate may help."
            )
        if labels is not None and self.preset.known == "means":
            check_labels(labels, len(self.prototypes), mixed=mixed)
        if not self.started:  # a restart need not say it again
            warn_of_room(len(self.prototypes), self.prototypes.shape[1], self.preset)
        with torch.autocast(features.device.type, enabled=False):
            self._start(self.space(features), labels, random or generator("spacing"), mixed, known_sums)

    def _start(
        self,
        z: Float[Tensor, "all d"],
        labels: Int[Tensor, " all"] | None,
        random: torch.Generator,
        mixed: bool,
        known_sums: ClassSums | None,
    ) -> None:
        """The same, from latents in `space`."""
        if labels is None or self.preset.known == "k-means":
            labels = torch.full((len(z),), -1, device=z.device)
        labels = labels.long()  # made of numpy's they may be shorter numbers
        self.mixed.fill_(mixed)
        self.labelled_classes.fill_(int(labels.max()) + 1)
        self.reserved.fill_(0 if mixed else int(self.labelled_classes))
        found = (
            place(z, labels, len(self.counts), random, mixed=mixed)
            if known_sums is None
            else constrained_kmeans(z, known_sums, len(self.counts), random)
        )
        self._start_shares(found.assignment[labels < 0])
        self.prototypes.copy_(found.centres if self.preset.swap is None else F.normalize(found.centres, dim=1))
        sizes = torch.bincount(found.assignment, minlength=len(self.counts))
        if self.preset.swap is not None:
            self.limit.fill_(len(z) / int((sizes > 0).sum()))  # known classes may be absent
        self.counts.copy_(sizes if self.preset.initial is None else torch.full_like(self.counts, self.preset.initial))
        if known_sums is not None:  # what is not seen here is no reason to forget it
            self.counts[: len(known_sums.counts)] += known_sums.counts.minimum(self.limit)
        if self.memory is not None:
            self.memory.copy_(z)
        self.anchors.copy_(place_anchors(self.prototypes, self.preset, random))
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
            labels, rows = _gather(labels), _gather(rows)
            return self.compute_loss(views, batch, labels=labels, rows=rows, progress=progress, part=part)

    def compute_loss(
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
            prototypes = self._move(seen[0]).prototypes if self.preset.update == "before_loss" else self.prototypes
            return self.preset.weight * pull(
                own[0], prototypes.index_select(0, nearest(own[0].detach(), self.prototypes))
            )
        large = seen[: self.preset.swap.large]
        assigned = [self._assign(self._recall(u, rows, progress), labels)[part] for u in large]
        if len(own) == 1:  # a view alone learns from itself
            own, assigned = own * 2, assigned * 2
        logits = torch.stack([u @ self.prototypes.T for u in own]) / self.preset.swap.temperature
        return self.preset.weight * mean(swapped_cross_entropy(logits, torch.stack(assigned)))

    @torch.no_grad()
    def _assign(self, u: Float[Tensor, "n d"], labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n c"]:
        """Shares of the prototypes for latents of `space`: as labels say, else by cosines, with balance."""
        assert self.preset.swap is not None
        epsilon, reserved, unlabelled = self.preset.swap.epsilon, int(self.reserved), self._unlabelled(u, labels)
        cosines = u @ self.prototypes.T
        free = cosines[unlabelled, reserved:]
        if self.preset.swap.balance == "none":
            guess = (free / epsilon).softmax(1)
        else:
            guess = sinkhorn(free, epsilon, shares=self._batch_shares(reserved))
        assigned = torch.zeros_like(cosines)
        if labels is not None:
            assigned[~unlabelled, labels[~unlabelled].long()] = 1.0
        assigned[unlabelled, reserved:] = guess.to(assigned)
        return assigned

    def _move(self, u: Float[Tensor, "n d"], assignment: Int[Tensor, " n"] | None = None) -> Update:
        """Where the prototypes would go, were these latents (of `space`) seen."""
        return move(u, self.prototypes, self.anchors, self.counts, assignment)

    @torch.no_grad()
    def move_prototypes(
        self,
        z: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"] | None = None,
        rows: Int[Tensor, " n"] | None = None,
        progress: float = 0.0,
    ) -> Int[Tensor, " n"]:
        """Move the prototypes with the latents of the whole batch; returns the assignments they had."""
        u = self.space(z)
        moved = (
            self._move(u) if self.preset.swap is None else self._move_on_sphere(u, self._unlabelled(u, labels), labels)
        )
        self.prototypes.copy_(moved.prototypes)
        self.counts.copy_(moved.counts.minimum(self.limit))
        if self.memory is not None and rows is not None:
            self.memory[rows] = self._recall(u, rows, progress).to(self.memory)
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
                self.move_prototypes(parallel.gather(z.detach()), _gather(labels), _gather(rows), progress)

    def _move_on_sphere(
        self, u: Float[Tensor, "n d"], unlabelled: Bool[Tensor, " n"], labels: Int[Tensor, " n"] | None
    ) -> Update:
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
        moved = self._move(u, assignment)
        return moved._replace(prototypes=F.normalize(moved.prototypes, dim=1))

    def _recall(self, u: Float[Tensor, "n d"], rows: Int[Tensor, " n"] | None, progress: float) -> Float[Tensor, "n d"]:
        """Latents together with how these images were seen before, where anybody knows."""
        if self.memory is None or rows is None:
            return u
        assert self.preset.swap is not None
        return F.normalize(torch.lerp(u, self.memory[rows].to(u), self.preset.swap.memory * progress), dim=1)

    def _unlabelled(self, u: Float[Tensor, "n d"], labels: Int[Tensor, " n"] | None) -> Bool[Tensor, " n"]:
        """Which rows no label speaks of; where prototypes started without labels, none does."""
        if labels is None or not self.labelled_classes:
            return torch.ones(len(u), dtype=torch.bool, device=u.device)
        return labels < 0

    def _batch_shares(self, reserved: int) -> Float[Tensor, " free"]:
        """The shares of a batch that classes get: learnt ones half-way to equal ones, which these are when not learnt.

        All the way they would feed on themselves: a class that k-means made too large would stay so. But where known
        classes may be absent, equal shares would fill them with others' images.
        """
        free = self.shares[reserved:]
        return free if self.mixed else (free + 1 / len(free)) / 2

    def _start_shares(self, unlabelled: Int[Tensor, " u"]) -> None:
        """Shares as k-means found them, each class with one image more; or equal ones."""
        reserved, classes = int(self.reserved), len(self.shares)
        counts = torch.bincount(unlabelled, minlength=classes).to(self.shares) + 1
        if self.preset.swap is None or self.preset.swap.balance != "learnt":
            counts = torch.ones_like(counts)
        counts[:reserved] = 0
        self.shares.copy_(counts / counts.sum())


def _gather(values: Int[Tensor, " n"] | None) -> Int[Tensor, " all"] | None:
    return None if values is None else parallel.gather(values)
