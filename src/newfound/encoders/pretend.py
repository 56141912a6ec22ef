"""What distances mean: known classes are pretended to be new, where the truth is known."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.encoders.known import KnownPoints
from newfound.encoders.reading import KMEANS, read_every
from newfound.functional.axes import FEW, SHRINK, axes, coordinates, moments
from newfound.functional.calibration import (
    Calibration,
    Logistic,
    leave_one_out,
    log_margin,
    novelty_score,
    outlier_line,
    outlier_score,
    platt,
    reach,
)
from newfound.functional.cluster import Clustering, semi_supervised_kmeans
from newfound.functional.geometry import covariance, distances, means
from newfound.functional.metrics import matching, right
from newfound.types import generator

ROUNDS, PRETENDED, MAIN = 4, 2000, 256
"""How often known classes are pretended to be new, with how many images at most, and along how many directions."""

MISCOUNTED = (0.8, 1.25)
"""What share of the classes an estimate may find, as often as their true number; decision 17."""

STARTS = 5
"""Starts of k-means where known classes are hidden whole: the score is not a clustering's."""

SPOKEN = 100
"""Images, over all rounds, below which what distances mean is not learnt from them."""

HIDINGS, UNNAMED, ALARMS = 8, 0.15, 0.02
"""How often known classes are hidden whole; of images that have a class, the share that is too far out to be named, and
the share that is called outliers. Decision 15.
"""


def fit_calibration(x: Float[Tensor, "n features"], labels: Int[Tensor, " n"], seed: int = 0) -> Calibration | None:
    """What distances to centres mean, learnt where the truth is known: some known classes are pretended to be new.

    Half of the classes stay known, by half of their images; the other images are unlabelled, and are read in every way
    that a run may read them, along axes that know nothing of the pretended. Where the number of classes is an estimate,
    whole classes are joined or cut, and an image may be wrong however near its centre is: so they are also read as too
    few and as too many. None where there are too few classes or images for it.
    """
    labels = labels.unique(return_inverse=True)[1]
    known = (int(labels.max()) + 1) // 2
    main = axes(moments(x), MAIN)  # a few directions hold nearly all, and are far quicker to turn and whiten
    rest = (x.double() - main.centre).square().sum(1)
    x = (x.double() - main.centre) @ main.matrix
    rest = (rest - x.square().sum(1)).clamp(min=0)
    shrink = SHRINK * x.shape[1] / len(main.centre)  # of the mean over all directions, as everywhere
    scores = dict[str, list[Scores]]()
    miscounted = dict[str, list[Scores]]()
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
        for share in (1.0, *MISCOUNTED):
            for reading, told in outcomes(u, y.where(taught, -1), y, seed + turn, share, random).items():
                (scores if share == 1 else miscounted).setdefault(reading, []).append(told)
    lines = {reading: calibrate(some, miscounted[reading]) for reading, some in scores.items()}
    plain = lines.pop(KMEANS, None)
    if plain is None:
        return None
    others = {reading: line for reading, line in lines.items() if line is not None}
    return plain._replace(outlier=calibrate_outliers(hide(x, rest, labels, shrink, seed)), readings=others)


class Scores(NamedTuple):
    """How far unlabelled images are from what, and how it truly was."""

    log_margin: Float[Tensor, " n"]
    right: Bool[Tensor, " n"]
    novelty_score: Float[Tensor, " n"]
    new: Bool[Tensor, " n"]


def outcomes(
    u: Float[Tensor, "n dim"],
    labels: Int[Tensor, " n"],
    truth: Int[Tensor, " n"],
    seed: int,
    share: float = 1.0,
    random: torch.Generator | None = None,
) -> dict[str, Scores]:
    """Read unlabelled images (−1) in every way, as so large a share of the true number of classes, and see what was
    right and what was new.
    """
    taught, known = labels >= 0, int(labels.max()) + 1
    classes = max(known + 1, round(share * (int(truth.max()) + 1)))
    counts = torch.bincount(labels[taught], minlength=known)
    unlabelled, truth = u[~taught], truth[~taught]
    every = read_every(unlabelled, classes - known, KnownPoints(u[taught], labels[taught], counts), seed)
    plain = semi_supervised_kmeans(u, labels, classes, random or generator(seed))  # its lines differ less by the draw
    every[KMEANS] = plain._replace(assignment=plain.assignment[~taught])
    return {reading: see(unlabelled, truth, found, counts) for reading, found in every.items()}


def see(
    unlabelled: Float[Tensor, "n dim"], truth: Int[Tensor, " n"], found: Clustering, counts: Int[Tensor, " known"]
) -> Scores:
    """How far unlabelled images are from the centres of their clusters and of others, and what of it was right. Known
    classes, the first clusters, hold so many images (`counts`) beside these.
    """
    classes, known, cluster = len(found.centres), len(counts), found.assignment
    sizes = torch.bincount(cluster, minlength=classes) + F.pad(counts, (0, classes - known))
    apart = leave_one_out(torch.cdist(unlabelled, found.centres), cluster, sizes)
    hits = right(truth, cluster, matching(truth, cluster))
    alone, new = torch.eye(classes, dtype=torch.bool), torch.arange(classes) >= known
    return Scores(log_margin(apart, cluster, alone), hits, novelty_score(apart, new), truth >= known)


def calibrate(scores: Sequence[Scores], miscounted: Sequence[Scores] = ()) -> Calibration | None:
    """What such scores mean, and what with others, of too few and too many classes; None where too few images say it,
    or where they say that nearer is worse.
    """
    near, right, strange, new = (torch.cat(parts) for parts in zip(*scores, strict=True))
    found = Calibration(fit_line(near, right), fit_line(strange, new))
    if len(near) < SPOKEN or min(found.right.slope, found.new.slope) <= 0:
        return None
    near, right, *_ = (torch.cat(parts) for parts in zip(*scores, *miscounted, strict=True))
    counted = fit_line(near, right)
    return found._replace(counted=counted if miscounted and counted.slope > 0 else None)


def fit_line(score: Float[Tensor, " n"], happened: Bool[Tensor, " n"]) -> Logistic:
    """The chance of something as a function of a score that is 0 half-way between two.

    There it may be either: without two images that say so, scores would mean nothing wherever all was right.
    """
    halfway, either = score.new_zeros(2), torch.tensor([True, False])
    return platt(torch.cat([score, halfway]), torch.cat([happened, either]))


class Hidden(NamedTuple):
    """How little images are nearer to one centre than to others, and whether their class has one at all."""

    score: Float[Tensor, " n"]
    outlier: Bool[Tensor, " n"]


def hide(
    x: Float[Tensor, "n features"],
    rest: Float[Tensor, " n"],
    labels: Int[Tensor, " n"],
    shrink: float,
    seed: int,
) -> list[Hidden]:
    """Hide some known classes whole, read the others, and see how the hidden ones' images lie among them.

    A quarter of the classes is neither known nor among what is read. Of the rest one half is known, by half of its
    images, the other is new. A quarter of these images is not read either: like the hidden ones they only arrive later,
    so that no axis and no centre was made for them. `rest` is what of ‖x‖² no feature holds.
    """
    classes, scores = int(labels.max()) + 1, list[Hidden]()
    there = classes - max(1, classes // 4)
    known = max(1, there // 2)
    for turn in range(HIDINGS):
        random = generator(seed, "hide", turn)
        some = torch.randperm(len(x), generator=random)[:PRETENDED]
        y = torch.randperm(classes, generator=random)[labels[some]]
        drawn = torch.rand(len(y), generator=random)
        later = (y >= there) | (drawn < 0.25)
        taught = ~later & (y < known) & (drawn < 0.625)
        if len(y[taught].unique()) < known or (~later & ~taught).sum() < there or later.all():
            continue
        scores.append(look_later(x[some], rest[some], y, later, taught, there, shrink, random))
    return scores


def look_later(
    x: Float[Tensor, "n features"],
    rest: Float[Tensor, " n"],
    y: Int[Tensor, " n"],
    later: Bool[Tensor, " n"],
    taught: Bool[Tensor, " n"],
    there: int,
    shrink: float,
    random: torch.Generator,
) -> Hidden:
    """Read images by semi-supervised k-means, and compare with their clusters those that came `later`."""
    known, read = int(y[taught].max()) + 1, ~later
    centres, _ = means(x[taught], y[taught], known)
    within = covariance(x[taught], y[taught], centres)
    found = axes(moments(x[read]), FEW, within, shrink)
    u = F.normalize((x[read] - found.centre) @ found.matrix, dim=1).float()
    cluster = semi_supervised_kmeans(u, y.where(taught, -1)[read], there, random, starts=STARTS).assignment
    along, beside = coordinates(x, found, within)
    beside = (beside.square() + rest / (shrink * within.trace() / len(within)).clamp(min=1e-12)).sqrt()
    places, sizes = means(along[read], cluster, there)
    away = torch.hypot(distances(along[later], places[sizes > 0]), beside[later, None])
    return Hidden(outlier_score(*reach(away)), y[later] >= there)


def calibrate_outliers(scores: Sequence[Hidden]) -> Logistic | None:
    """What such scores mean, by how far out images lie that have a class; None where too few say it, or where hidden
    classes lie no farther out than these.
    """
    if not scores:
        return None
    score, outlier = (torch.cat(parts) for parts in zip(*scores, strict=True))
    if len(score) < SPOKEN or outlier.all() or not outlier.any():
        return None
    near, far = (score[~outlier].double().quantile(1 - share).item() for share in (UNNAMED, ALARMS))
    return outlier_line(near, far) if platt(score, outlier).slope > 0 and math.isfinite(far) else None
