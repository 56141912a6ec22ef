"""k-means on features of any number, with or without labels on some, and how many classes there are.

`kmeans` is seeds, Lloyd's steps, the best of several starts; `semi_supervised_kmeans` the same with labelled points
held in their class. Two ways to ask how many novel classes there are:

- `estimate_gcd` needs labelled images of the known classes, learnt or not: for one stage, where they are at hand.
- `estimate_dtc` needs labelled images of probe classes that the backbone has not learnt, for only they lie as novel
  ones do: for two stages, where a few known classes can be set aside. It tries every number, so it is the slower one.
"""

import functools
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import types
from newfound.functional.metrics import accuracy, silhouette
from newfound.types import Scalar

CHUNK = 2**22
"""Numbers in a temporary matrix: 16 MB of float32, large enough to keep cores busy, small beside many features."""

ENOUGH = 2**16
"""Points among which seeds are sought: all of most datasets; of a million it spares a pass over all per seed."""

ROWS = 10_000
"""Images among which classes are counted: a hundred each of a hundred classes."""


ALIKE = 1e-9
"""Costs that differ by less than this share of all squares are of the same clusters, numbered in another order. Only
double precision can tell.
"""


class Clustering(NamedTuple):
    """What k-means found: `assignment` names the nearest of `centres`, `cost` is taken between the two."""

    centres: Float[Tensor, "k d"]
    assignment: Int[Tensor, " n"]
    cost: float  # within-cluster sum of squares
    iterations: int  # Lloyd's steps that led there


@torch.no_grad()
def kmeans(
    x: Float[Tensor, "n d"],
    k: int,
    generator: torch.Generator,
    *,
    starts: int = 20,
    iterations: int = 100,
    tolerance: float = 1e-4,
    chunk: int = CHUNK,
) -> Clustering:
    """Split points into k clusters so that each lies close to the centre of its own; the best of several starts.

        min over centres c of  Σ_i min_k ‖x_i − c_k‖²        (Lloyd 1982; seeds by Arthur & Vassilvitskii 2007)

    Equal generators give equal clusterings. The generator is a CPU one, x lives anywhere; beside it one copy is held.
    """
    if not 1 <= k <= len(x):
        raise ValueError(f"k-means was asked for {k} clusters of {len(x)} points: ask for at least 1, at most {len(x)}")
    origin = x.mean(0)  # ‖x‖² − 2 x·c + ‖c‖² loses digits far from it
    x = x - origin
    pool = _pool(x, k, generator)
    draws = torch.rand(starts, k, 2 + int(math.log(k)), generator=generator, dtype=torch.float64)
    clusterings = (
        lloyd(x, seeds(pool, some), iterations=iterations, tolerance=tolerance, chunk=chunk)
        for some in draws.split(max(1, chunk // len(x)))
    )
    best = min(clusterings, key=lambda clustering: clustering.cost)
    return best._replace(centres=best.centres + origin)


@torch.no_grad()
def semi_supervised_kmeans(
    x: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    k: int,
    generator: torch.Generator,
    *,
    starts: int = 20,
    iterations: int = 100,
    tolerance: float = 1e-4,
    chunk: int = CHUNK,
) -> Clustering:
    """k-means in which labelled points stay in the cluster of their class; the best of several starts.

        min over c, and over a_i of unlabelled i, of  Σ_i ‖x_i − c_a(i)‖²,   a_i = y_i of labelled i

    (Han et al. 2019; Vaze et al. 2022.) Labels are −1 where unlabelled and count the C classes from 0 elsewhere:
    cluster y is class y, and unlabelled points may join it; clusters from C on hold unlabelled points alone. Classes
    start at their means, the others at unlabelled points far from those and from one another. All else is as in
    `kmeans`, which this is when nothing is labelled.
    """
    labels, labelled = labels.long(), labels >= 0
    known, unlabelled = int(labels.max()) + 1 if len(labels) else 0, int((~labelled).sum())
    if known == 0:
        return kmeans(x, k, generator, starts=starts, iterations=iterations, tolerance=tolerance, chunk=chunk)
    if not known <= k <= known + unlabelled:
        raise ValueError(
            f"k-means was asked for {k} clusters of {known} classes and {unlabelled} unlabelled points: "
            f"ask for at least {known}, at most {known + unlabelled}"
        )
    free, held = x[~labelled], Held(*_tally(x[labelled], labels[labelled], known, chunk))
    if (empty := held.counts == 0).any():
        raise ValueError(f"found no labelled point of classes {empty.nonzero()[:, 0].tolist()}: labels count from 0")
    found = held_kmeans(
        free, held, k, generator, starts=starts, iterations=iterations, tolerance=tolerance, chunk=chunk
    )
    assignment = labels.masked_scatter(~labelled, found.assignment)
    return found._replace(assignment=assignment, cost=within(x, found.centres, assignment, chunk=chunk))


class Held(NamedTuple):
    """Points that k-means may not move, a class each: all that it needs of them."""

    sums: Float[Tensor, "classes d"]
    counts: Float[Tensor, " classes"]


@torch.no_grad()
def held_kmeans(
    x: Float[Tensor, "n d"],
    held: Held,
    k: int,
    generator: torch.Generator,
    *,
    starts: int = 20,
    iterations: int = 100,
    tolerance: float = 1e-4,
    chunk: int = CHUNK,
) -> Clustering:
    """`semi_supervised_kmeans` where of the labelled points only sums and numbers are at hand.

        min over c, a of  Σ_i ‖x_i − c_a(i)‖² + Σ_y n_y ‖m_y − c_y‖²,   m_y = sum_y / n_y

    The labelled points' scatter about their own means never changes, so it is left out of the cost, and nothing is
    lost: with their sums and numbers the clusters are those of the points themselves. A class with n_y = 0 is held by
    nothing: it starts as the others do.
    """
    known, more = len(held.counts), k - len(held.counts)
    if not 0 <= more <= len(x):
        raise ValueError(
            f"k-means was asked for {k} clusters of {known} classes and {len(x)} unlabelled points: "
            f"ask for at least {known}, at most {known + len(x)}"
        )
    if not held.counts.any():
        return kmeans(x, k, generator, starts=starts, iterations=iterations, tolerance=tolerance, chunk=chunk)
    origin = (x.sum(0) + held.sums.sum(0)) / (len(x) + held.counts.sum())
    x = x - origin
    counts = F.pad(held.counts, (0, more))
    sums = F.pad(held.sums - held.counts[:, None] * origin, (0, 0, 0, more))
    there = counts > 0
    classes = sums[there] / counts[there, None]
    more = k - len(classes)
    pool = _pool(x, k, generator)
    squares = torch.linalg.vector_norm(pool, dim=1).square()
    distance = _distances(pool, squares, classes, classes.square().sum(1)).amin(1)
    # With nothing to seed every start is the same.
    shape = starts if more else 1, more, 2 + int(math.log(max(more, 1)))
    draws = torch.rand(shape, generator=generator, dtype=torch.float64)
    rest = _rest(x, tolerance)

    def attempt(draws: Float[Tensor, "starts more tries"]) -> Clustering:
        rows = _spread(pool, squares, draws, distance[:, None].expand(-1, len(draws)))
        start = x.new_empty(len(draws), k, x.shape[1])
        start[:, there], start[:, ~there] = classes, pool[rows]
        centres, joined, steps = _settle(x, start, sums, counts, rest, iterations, chunk)
        strain = (counts[there] * (centres[there] - classes).square().sum(1)).sum().item()
        return Clustering(centres, joined, within(x, centres, joined, chunk=chunk) + strain, steps)

    best = min(map(attempt, draws.split(max(1, chunk // max(1, len(x))))), key=lambda clustering: clustering.cost)
    return best._replace(centres=best.centres + origin)


def seeds(x: Float[Tensor, "n d"], draws: Float[Tensor, "starts k tries"]) -> Float[Tensor, "starts k d"]:
    """For each start k of the points, far from one another: greedy k-means++.

        P(x_i is tried next) ∝ min_j ‖x_i − s_j‖²,   of several tries the one that lowers Σ_i min_j ‖x_i − s_j‖² most

    (Arthur & Vassilvitskii 2007, greedy as in their conclusion; 2 + ⌊ln k⌋ tries as in scikit-learn.) `draws` are
    uniform in [0, 1). When every distinct point is a seed already, the last point fills the rest.
    """
    squares = torch.linalg.vector_norm(x, dim=1).square()
    first = (draws[:, 0, 0] * len(x)).long().to(x.device)
    rest = _spread(x, squares, draws[:, 1:], _distances(x, squares, x[first], squares[first]))
    return x[torch.cat([first[:, None], rest], 1)]


def lloyd(
    x: Float[Tensor, "n d"],
    centres: Float[Tensor, "starts k d"],
    *,
    iterations: int = 100,
    tolerance: float = 1e-4,
    chunk: int = CHUNK,
) -> Clustering:
    """Move centres to the means of the points nearest to them until they rest; of several starts, keep the best.

        a_i = argmin_k ‖x_i − c_k‖,   c_k ← mean {x_i : a_i = k}        (Lloyd 1982)

    Rest is Σ_k ‖Δc_k‖² ≤ tolerance · mean variance of a feature, as in scikit-learn; tolerance 0 waits until no point
    changes cluster. Empty clusters start anew at the points farthest from their centres.
    """
    nothing = torch.zeros_like(centres[0])
    rest = _rest(x, tolerance)
    best, assignment, steps = _settle(x, centres, nothing, nothing[:, 0], rest, iterations, chunk)
    return Clustering(best, assignment, within(x, best, assignment, chunk=chunk), steps)


def within(
    x: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], assignment: Int[Tensor, " n"], *, chunk: int = CHUNK
) -> float:
    """Within-cluster sum of squares, Σ_i ‖x_i − c_a(i)‖²."""
    rows = max(1, chunk // x.shape[1])
    pairs = zip(x.split(rows), assignment.split(rows), strict=True)
    return sum((some - centres[theirs]).square().sum().item() for some, theirs in pairs)


class Candidate(NamedTuple):
    """One number of novel classes that was tried, and what spoke for it."""

    novel: int
    accuracy: float  # of the labelled images that were not held in their class
    silhouette: float


class Estimate(NamedTuple):
    """How many novel classes there are, and all that were tried, from few to many."""

    novel: int
    curve: tuple[Candidate, ...]


@torch.no_grad()
def estimate_dtc(
    probe: Float[Tensor, "probes d"],
    labels: Int[Tensor, " probes"],
    unlabelled: Float[Tensor, "n d"],
    *,
    most: int = 100,
    anchors: float = 0.6,
    small: float = 0.01,
    starts: int = 3,
    rows: int = ROWS,
    seed: int = 0,
) -> Estimate:
    """How many classes the unlabelled images have, asked with the help of labelled probe classes set aside for it.

        m* = ⌈(argmax_m silhouette + argmax_m accuracy) / 2⌉,   m = 0 … most,   k = C_probe + m
        novel = |{clusters of m* that hold more than `small` times the unlabelled images of the largest}|

    (Han et al. 2019.) A share of the probe classes, the anchors, is held in semi-supervised k-means of all images. The
    other probe classes validate: their images must find their classes again, as the unlabelled ones must. `accuracy` is
    that of the validating classes, `silhouette` that of all that was not held.

    Probe classes (two at least, better ten) must be strangers to the backbone: classes it was trained on lie apart as
    novel ones never do, and say little of them. `labels` are names. Every m is one clustering, so time grows with
    most²: it is begun `starts` times (the authors: 10), and of more than `rows` images a sample is taken.
    """
    probe, labels, unlabelled = _sample(probe, labels, unlabelled, rows, seed)
    names, labels = labels.unique(return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"found {len(names)} probe classes: give at least two, one to hold and one to validate")
    held = min(max(round(anchors * len(names)), 1), len(names) - 1)
    order = torch.randperm(len(names), generator=types.generator(seed, "anchors"))
    labels = order.to(labels.device)[labels]  # those below `held` are anchors, at random
    anchor = labels < held
    x = torch.cat([probe, unlabelled])
    clamped = torch.cat([labels.where(anchor, -1), labels.new_full((len(unlabelled),), -1)])
    free = clamped < 0

    def tried(m: int) -> tuple[Candidate, Int[Tensor, " n"]]:
        random = types.generator(seed, "classes", m)
        found = semi_supervised_kmeans(x, clamped, len(names) + m, random, starts=starts).assignment
        right = accuracy(labels[~anchor], found[: len(probe)][~anchor])
        return Candidate(m, right, silhouette(x[free], found[free], seed=seed)), found[len(probe) :]

    most = min(most, int(free.sum()) + held - len(names))
    curve, clusters = zip(*map(tried, range(most + 1)), strict=True)
    # The larger of two that tie, as in DTC's code: with too few clusters a novel class may share that of an anchor far
    # away, which this silhouette does not see.
    apart = max(curve, key=lambda candidate: (candidate.silhouette, candidate.novel)).novel
    right = max(curve, key=lambda candidate: (_merit(candidate), candidate.novel)).novel
    middle = math.ceil((apart + right) / 2)
    sizes = torch.bincount(clusters[middle])
    return Estimate(int((sizes > small * sizes.max()).sum()), curve)


@torch.no_grad()
def estimate_gcd(
    labelled: Float[Tensor, "known d"],
    labels: Int[Tensor, " known"],
    unlabelled: Float[Tensor, "n d"],
    *,
    most: int = 100,
    starts: int = 3,
    rows: int = ROWS,
    seed: int = 0,
) -> Estimate:
    """How many novel classes the unlabelled images have beside the labelled ones: those that suit the labelled best.

        K* = argmax_K accuracy of the labelled images in k-means of all,   C_l ≤ K ≤ C_l + most,   novel = K* − C_l

    (Vaze et al. 2022.) With too few clusters classes are merged, with too many they are split, and the labelled images
    show both. Unlabelled images may be of known classes, of novel ones or of both. `labels` are names.

    Numbers that grow by half each time are tried first, then all about the best three of them. The paper seeks K by
    Brent's method, which needs fewer, but accuracy is a jagged curve and that often stops on a side hill. Of more than
    `rows` images a sample is taken. The paper's features have unit rows: give those that you will cluster in the end.
    """
    labelled, labels, unlabelled = _sample(labelled, labels, unlabelled, rows, seed)
    known, x = len(labels.unique()), torch.cat([labelled, unlabelled])
    most = min(most, len(x) - known)

    @functools.cache
    def tried(m: int) -> Candidate:
        found = kmeans(x, known + m, types.generator(seed, "classes", m), starts=starts).assignment
        return Candidate(m, accuracy(labels, found[: len(labels)]), silhouette(x, found, seed=seed))

    coarse = [0]
    while coarse[-1] < most:
        coarse.append(min(most, max(coarse[-1] + 1, round(1.5 * coarse[-1]))))
    numbers = set(coarse)
    for place in sorted(range(len(coarse)), key=lambda place: _merit(tried(coarse[place])))[-3:]:
        numbers.update(range(coarse[max(place - 1, 0)], coarse[min(place + 1, len(coarse) - 1)]))
    curve = tuple(map(tried, sorted(numbers)))
    return Estimate(max(curve, key=_merit).novel, curve)


def _merit(candidate: Candidate) -> tuple[float, float]:
    """By which candidates are compared: accuracy, and of equal ones how far apart clusters lie.

    Images that are easy to tell apart are so by many numbers equally well. DTC's code takes the largest of these, and
    so counts too many; the silhouette knows better. Where images are many and hard, ties hardly ever happen.
    """
    return candidate.accuracy, candidate.silhouette


def _sample(
    labelled: Float[Tensor, "known d"],
    labels: Int[Tensor, " known"],
    unlabelled: Float[Tensor, "n d"],
    rows: int,
    seed: int,
) -> tuple[Float[Tensor, "some d"], Int[Tensor, " some"], Float[Tensor, "others d"]]:
    """At most about so many images, labelled and unlabelled in proportion, though a tenth at least of either."""
    if not len(labelled) or not len(unlabelled):
        raise ValueError(f"found {len(labelled)} labelled and {len(unlabelled)} unlabelled images: give some of each")
    random, everything = types.generator(seed, "sample"), len(labelled) + len(unlabelled)

    def some(n: int) -> Int[Tensor, " some"]:
        return torch.randperm(n, generator=random)[: max(rows * n // everything, rows // 10, 1)].sort().values

    if everything <= rows:
        return labelled, labels, unlabelled
    few, others = some(len(labelled)), some(len(unlabelled))
    return (
        labelled[few.to(labelled.device)],
        labels[few.to(labels.device)],
        unlabelled[others.to(unlabelled.device)],
    )


def _pool(x: Float[Tensor, "n d"], k: int, generator: torch.Generator) -> Float[Tensor, "some d"]:
    """The points among which k seeds are sought."""
    enough = max(ENOUGH, 64 * k)
    return x if len(x) <= enough else x[torch.randint(len(x), (enough,), generator=generator).to(x.device)]


def _distances(
    x: Float[Tensor, "n d"], squares: Float[Tensor, " n"], others: Float[Tensor, "m d"], theirs: Float[Tensor, " m"]
) -> Float[Tensor, "n m"]:
    """Squared distances, given the squared lengths of both."""
    return torch.addmm(squares[:, None], x, others.T, alpha=-2).add_(theirs).clamp_(min=0)


def _spread(
    x: Float[Tensor, "n d"],
    squares: Float[Tensor, " n"],
    draws: Float[Tensor, "starts more tries"],
    distance: Float[Tensor, "n starts"],
) -> Int[Tensor, "starts more"]:
    """Rows of further seeds, by greedy k-means++, where `distance` is that to the nearest seed so far, squared."""
    start = torch.arange(len(draws), device=x.device)
    chosen = [start.new_empty(len(draws), 0)]
    for draw in draws.unbind(1):
        odds = distance.T.cpu().double().cumsum(1)
        tried = torch.searchsorted(odds, draw * odds[:, -1:], right=True).clamp_(max=len(x) - 1).to(x.device)
        away = _distances(x, squares, x[tried].flatten(0, 1), squares[tried].flatten()).view(len(x), *tried.shape)
        after = torch.minimum(distance[..., None], away)
        best = after.sum(0).argmin(1)
        chosen.append(tried[start, best][:, None])
        distance = after[:, start, best]
    return torch.cat(chosen, 1)


def _rest(x: Float[Tensor, "n d"], tolerance: float) -> Scalar:
    """How little centres may move to be at rest: a share of the mean variance of a feature."""
    squares = torch.linalg.vector_norm(x, dim=1).square()
    return tolerance * (squares.mean() - x.mean(0).square().sum()).clamp(min=0) / x.shape[1]


def _settle(
    x: Float[Tensor, "n d"],
    centres: Float[Tensor, "starts k d"],
    sums: Float[Tensor, "k d"],
    counts: Float[Tensor, " k"],
    rest: Scalar,
    iterations: int,
    chunk: int,
) -> tuple[Float[Tensor, "k d"], Int[Tensor, " n"], int]:
    """Lloyd's steps of these points and of others that are held; centres, assignment and steps of the best start.

    Held points never change cluster, so their sums and counts are all that is needed of them.
    """
    squares = torch.linalg.vector_norm(x, dim=1).square()
    centres, steps = centres.clone(), torch.zeros(len(centres), dtype=torch.long)
    moving = torch.arange(len(centres), device=x.device)
    for _ in range(iterations):
        _, scores, total, size = _sweep(x, centres[moving], chunk)
        total, size = total + sums, size + counts
        moved = total / size[..., None]
        for start in (size == 0).any(1).nonzero()[:, 0]:  # there the mean is 0/0
            empty = size[start] == 0
            moved[start, empty] = x[(squares + scores[:, start]).topk(int(empty.sum())).indices]
        far = (moved - centres[moving]).square().sum((1, 2)) > rest
        centres[moving] = moved
        steps[moving.cpu()] += 1
        moving = moving[far]
        if not len(moving):
            break
    assignment, scores, *_ = _sweep(x, centres, chunk)
    held = counts * centres.square().sum(2) - 2 * (sums * centres).sum(2)
    costs = scores.sum(0) + held.sum(1)
    # of what differs by rounding alone the first is taken: several processes might else number it in several ways
    best = int((costs <= costs.min() + ALIKE * squares.sum()).int().argmax())
    return centres[best], assignment[:, best].clone(), int(steps[best])


def _tally(
    x: Float[Tensor, "n d"], assignment: Int[Tensor, " n"], k: int, chunk: int
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Sum and number of the points of each cluster."""
    sums, counts = x.new_zeros(k, x.shape[1]), x.new_zeros(k)
    rows = max(1, chunk // k)
    for some, theirs in zip(x.split(rows), assignment.split(rows), strict=True):
        members = _members(theirs[:, None], k, some)
        sums += members.T @ some
        counts += members.sum(0)
    return sums, counts


def _sweep(
    x: Float[Tensor, "n d"], centres: Float[Tensor, "starts k d"], chunk: int
) -> tuple[Int[Tensor, "n starts"], Float[Tensor, "n starts"], Float[Tensor, "starts k d"], Float[Tensor, "starts k"]]:
    """One pass over the points: nearest centre, ‖c‖² − 2 x·c for it, sum and number of the points of each centre."""
    starts, k, _ = centres.shape
    flat = centres.flatten(0, 1)
    squares = flat.square().sum(1)
    sums, counts = torch.zeros_like(flat), torch.zeros_like(squares)
    assignments, scores = [], []
    for some in x.split(max(1, chunk // len(flat))):
        score, assignment = torch.addmm(squares, some, flat.T, alpha=-2).view(-1, starts, k).min(2)
        members = _members(assignment, k, some)
        sums += members.T @ some
        counts += members.sum(0)
        assignments.append(assignment)
        scores.append(score)
    return torch.cat(assignments), torch.cat(scores), sums.view(starts, k, -1), counts.view(starts, k)


def _members(assignment: Int[Tensor, "n starts"], k: int, like: Tensor) -> Float[Tensor, "n members"]:
    """1 where a point is in a cluster: a product with it sums the same way every time, which index_add does not."""
    return like.new_zeros(*assignment.shape, k).scatter_(2, assignment[..., None], 1).flatten(1)
