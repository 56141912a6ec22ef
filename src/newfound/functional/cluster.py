"""k-means on features of any number, with or without labels on some.

`kmeans` is seeds, Lloyd's steps, the best of several starts; `semi_supervised_kmeans` the same with labelled points
held in their class.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound.errors import InputError
from newfound.types import Scalar

CHUNK = 2**22
"""Numbers in a temporary matrix: 16 MB of float32, large enough to keep cores busy, small beside many features."""

ENOUGH = 2**16
"""Points among which seeds are sought: all of most datasets; of a million it spares a pass over all per seed."""

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
        raise InputError(
            f"k-means was asked for {k} clusters of {len(x)} points. Needed: at least 1, and a point for each. "
            "Ask for fewer clusters, or give more points."
        )
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
    _check_number(k, known, unlabelled)
    free, held = x[~labelled], ClassSums(*_tally(x[labelled], labels[labelled], known, chunk))
    if (empty := held.counts == 0).any():
        raise InputError(
            f"There is no labelled point of classes {empty.nonzero()[:, 0].tolist()}, and labels go to {known - 1}. "
            "Needed: one of each class at least. Count classes from 0, without a gap."
        )
    found = constrained_kmeans(
        free, held, k, generator, starts=starts, iterations=iterations, tolerance=tolerance, chunk=chunk
    )
    assignment = labels.masked_scatter(~labelled, found.assignment)
    return found._replace(assignment=assignment, cost=within(x, found.centres, assignment, chunk=chunk))


class ClassSums(NamedTuple):
    """Points that k-means may not move, a class each: all that it needs of them."""

    sums: Float[Tensor, "classes d"]
    counts: Float[Tensor, " classes"]


@torch.no_grad()
def constrained_kmeans(
    x: Float[Tensor, "n d"],
    held: ClassSums,
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
    more = k - len(held.counts)
    _check_number(k, len(held.counts), len(x))
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


def _check_number(k: int, known: int, unlabelled: int) -> None:
    """Refuse a number of clusters that so many classes and unlabelled points cannot have."""
    if not known <= k <= known + unlabelled:
        raise InputError(
            f"k-means was asked for {k} clusters of {known} classes and {unlabelled} unlabelled points. Needed: at "
            f"least {known}, one a class, at most {known + unlabelled}. Ask for another number, or give more points."
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
