"""Stage one on features: known classes are measured, and an adapter is made that suits the images at hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound.data.embedded import Embedded
from newfound.functional.axes import SHRINK, Moments, axes, class_moments, moments, tempered, together
from newfound.functional.calibration import Trust, lead, platt, strangeness, without_self
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.geometry import covariance, means
from newfound.functional.metrics import matching, right
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model, Statistics
from newfound.networks.pretrained import Trunk
from newfound.types import generator, seeded

FEW = 48
"""Axes that features are seen along; decision 7."""

SHARPNESS = 10.0
"""What the cosine to a class's mean is multiplied by to be a score: the adapter's unit latents have no scale."""

ROUNDS, PRETENDED, MAIN = 4, 2000, 256
"""How often known classes are pretended to be new to learn what distances mean, with how many images at most, and along
how many directions.
"""


SPOKEN = 100
"""Images, over all rounds, below which what distances mean is not learnt from them."""


def measured(labelled: Embedded, trunk: Trunk, seed: int = 0) -> Model:
    """What is known of labelled pictures, in a form that holds none of them."""
    x, labels, classes = tempered(labelled.features()), labelled.labels, labelled.classes
    statistics = Statistics.of(x, labels, len(classes))
    adapter = _adapter(moments(x), statistics.spread, seed)
    trust = pretended(x, labels, seed)
    return placed(Model(adapter, trunk.size, 3, classes, trunk=trunk, statistics=statistics, trust=trust))


def plain(unlabelled: Embedded, trunk: Trunk, seed: int = 0) -> Model:
    """The model of those who know nothing: no class, and axes of the pictures at hand."""
    return Model(_adapter(moments(tempered(unlabelled.features())), None, seed), trunk.size, 3, (), trunk=trunk)


def aimed(
    model: Model, unlabelled: Embedded, labelled: Embedded | None = None, seed: int = 0, shrink: float = SHRINK
) -> Model:
    """The same knowledge, seen along the axes of the pictures that are to be told apart.

    The known classes' own axes may not be those along which new ones differ. In two stages their means and spread
    stand for their pictures, and have the same axes.
    """
    if model.statistics is None:
        return plain(unlabelled, _trunk(model), seed)
    centres, spread, counts = model.statistics
    seen = moments(tempered(unlabelled.features()))
    if labelled is not None:
        seen = together(seen, moments(tempered(labelled.features())))
    elif counts.any():
        seen = together(seen, class_moments(centres, counts.to(centres), spread))
    return placed(replace(model, backbone=_adapter(seen, spread, seed, shrink)))


def pretended(x: Float[Tensor, "n features"], labels: Int[Tensor, " n"], seed: int = 0) -> Trust | None:
    """What distances to centres mean, learnt where the truth is known: some known classes are pretended to be new.

    Half of the classes stay known, by half of their images; the other images are the pile, and semi-supervised k-means
    reads it along axes that know nothing of the pretended. None where there are too few classes or images for it.
    """
    labels = labels.unique(return_inverse=True)[1]
    known = (int(labels.max()) + 1) // 2
    main = axes(moments(x), MAIN)  # a few directions hold nearly all, and are far quicker to turn and whiten
    x = (x.double() - main.centre) @ main.matrix
    shrink = SHRINK * x.shape[1] / len(main.centre)  # of the mean over all directions, as everywhere
    scores: list[Scores] = []
    for turn in range(ROUNDS):
        random = generator(seed, "pretend", turn)
        some = torch.randperm(len(x), generator=random)[:PRETENDED]
        y = torch.randperm(int(labels.max()) + 1, generator=random)[labels[some]]
        taught = (y < known) & (torch.rand(len(y), generator=random) < 0.5)
        if known < 2 or len(y[taught].unique()) < known or (~taught).sum() <= 2 * known:
            continue
        centres, _ = means(x[some][taught], y[taught], known)
        found = axes(moments(x[some]), FEW, covariance(x[some][taught], y[taught], centres), shrink)
        u = F.normalize((x[some] - found.centre) @ found.matrix, dim=1).float()
        scores.append(outcome(u, y.where(taught, -1), y, random))
    return trusted(scores) if scores else None


class Scores(NamedTuple):
    """How far unlabelled images are from what, and how it truly was."""

    lead: Float[Tensor, " n"]
    right: Bool[Tensor, " n"]
    strangeness: Float[Tensor, " n"]
    new: Bool[Tensor, " n"]


def outcome(
    u: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], truth: Int[Tensor, " n"], random: torch.Generator
) -> Scores:
    """Read unlabelled images (−1) by semi-supervised k-means, and see what was right and what was new."""
    taught = labels >= 0
    known, classes = int(labels.max()) + 1, int(truth.max()) + 1
    pile, truth = u[~taught], truth[~taught]
    centres, cluster, *_ = semi_supervised_kmeans(u, labels, classes, random)
    sizes, cluster = torch.bincount(cluster, minlength=classes), cluster[~taught]
    apart, hits = (
        without_self(torch.cdist(pile, centres), cluster, sizes),
        right(truth, cluster, matching(truth, cluster)),
    )
    alone, new = torch.eye(classes, dtype=torch.bool), torch.arange(classes) >= known
    return Scores(lead(apart, cluster, alone), hits, strangeness(apart, new), truth >= known)


def trusted(scores: Sequence[Scores]) -> Trust | None:
    """What such scores mean; None where too few images say it, or where they say that nearer is worse.

    Half-way between two, at a score of 0, it may be either: without two images that say so, scores would mean nothing
    wherever all was right.
    """
    near, right, strange, new = (torch.cat(parts) for parts in zip(*scores, strict=True))
    halfway, either = near.new_zeros(2), torch.tensor([True, False])
    found = Trust(
        platt(torch.cat([near, halfway]), torch.cat([right, either])),
        platt(torch.cat([strange, halfway]), torch.cat([new, either])),
    )
    return found if len(near) >= SPOKEN and min(line.slope for line in found) > 0 else None


def _adapter(
    seen: Moments, spread: Float[Tensor, "features features"] | None, seed: int, shrink: float = SHRINK
) -> Adapter:
    found = axes(seen, FEW, spread, shrink)
    with seeded(seed, "adapter"):
        adapter = Adapter(*found.matrix.shape)
    adapter.aim(found)
    return adapter


@torch.no_grad()
def placed(model: Model) -> Model:
    """With head, means and spread in the adapter's space, from the statistics alone.

    The head scores by the angle to a class's mean; one that has none scores 0. Spread and means are those of
    y = (x̂ − centre) · matrix over √mean ‖y‖² of their class: the adapter takes the length out, which pulls classes
    together about so much.
    """
    adapter, statistics = model.backbone, model.statistics
    assert isinstance(adapter, Adapter)
    assert statistics is not None
    told = (statistics.counts > 0)[:, None]
    far = (statistics.means - adapter.centre) @ adapter.matrix
    spread = adapter.matrix.T @ statistics.spread @ adapter.matrix
    lengths = far.square().sum(1, keepdim=True) + spread.trace()
    centres = adapter.place(statistics.means) * told * (far.square().sum(1, keepdim=True) / lengths).sqrt()
    head = nn.Linear(adapter.dim, len(model.classes))
    head.weight.copy_(SHARPNESS * F.normalize(centres, dim=1))
    head.bias.zero_()
    scale = (lengths * told).sum() / told.sum().clamp(min=1)
    counts = statistics.counts.clone()  # memory that two tensors share cannot be saved
    return replace(model, head=head, means=centres, spread=spread / scale.clamp(min=1e-12), counts=counts)


def _trunk(model: Model) -> Trunk:
    assert model.trunk is not None
    return model.trunk
