"""What distances mean: known classes are pretended to be new, where the truth is known."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.axes import FEW, SHRINK, axes, moments
from newfound.functional.calibration import Calibration, leave_one_out, log_margin, novelty_score, platt
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.geometry import covariance, means
from newfound.functional.metrics import matching, right
from newfound.types import generator

ROUNDS, PRETENDED, MAIN = 4, 2000, 256
"""How often known classes are pretended to be new, with how many images at most, and along how many directions."""

SPOKEN = 100
"""Images, over all rounds, below which what distances mean is not learnt from them."""


def fit_calibration(x: Float[Tensor, "n features"], labels: Int[Tensor, " n"], seed: int = 0) -> Calibration | None:
    """What distances to centres mean, learnt where the truth is known: some known classes are pretended to be new.

    Half of the classes stay known, by half of their images; the other images are unlabelled, and semi-supervised
    k-means reads them along axes that know nothing of the pretended. None where there are too few classes or images
    for it.
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
    return calibrate(scores) if scores else None


class Scores(NamedTuple):
    """How far unlabelled images are from what, and how it truly was."""

    log_margin: Float[Tensor, " n"]
    right: Bool[Tensor, " n"]
    novelty_score: Float[Tensor, " n"]
    new: Bool[Tensor, " n"]


def outcome(
    u: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], truth: Int[Tensor, " n"], random: torch.Generator
) -> Scores:
    """Read unlabelled images (−1) by semi-supervised k-means, and see what was right and what was new."""
    taught = labels >= 0
    known, classes = int(labels.max()) + 1, int(truth.max()) + 1
    unlabelled, truth = u[~taught], truth[~taught]
    centres, cluster, *_ = semi_supervised_kmeans(u, labels, classes, random)
    sizes, cluster = torch.bincount(cluster, minlength=classes), cluster[~taught]
    apart, hits = (
        leave_one_out(torch.cdist(unlabelled, centres), cluster, sizes),
        right(truth, cluster, matching(truth, cluster)),
    )
    alone, new = torch.eye(classes, dtype=torch.bool), torch.arange(classes) >= known
    return Scores(log_margin(apart, cluster, alone), hits, novelty_score(apart, new), truth >= known)


def calibrate(scores: Sequence[Scores]) -> Calibration | None:
    """What such scores mean; None where too few images say it, or where they say that nearer is worse.

    Half-way between two, at a score of 0, it may be either: without two images that say so, scores would mean nothing
    wherever all was right.
    """
    near, right, strange, new = (torch.cat(parts) for parts in zip(*scores, strict=True))
    halfway, either = near.new_zeros(2), torch.tensor([True, False])
    found = Calibration(
        platt(torch.cat([near, halfway]), torch.cat([right, either])),
        platt(torch.cat([strange, halfway]), torch.cat([new, either])),
    )
    return found if len(near) >= SPOKEN and min(line.slope for line in found) > 0 else None
