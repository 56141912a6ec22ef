"""k-means on features of any number: seeds, Lloyd's steps, the best of several starts."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 2**22
"""Numbers in a temporary matrix: 16 MB of float32, large enough to keep cores busy, small beside many features."""

ENOUGH = 2**16
"""Points among which seeds are sought: all of most datasets; of a million it spares a pass over all per seed."""


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
    spherical: bool = False,
    chunk: int = CHUNK,
) -> Clustering:
    """Split points into k clusters so that each lies close to the centre of its own; the best of several starts.

        min over centres c of  Σ_i min_k ‖x_i − c_k‖²        (Lloyd 1982; seeds by Arthur & Vassilvitskii 2007)

    With `spherical` rows are scaled to unit length, and so are the centres (Dhillon & Modha 2001): the cost is then
    Σ_i 2 − 2 cos(x_i, c), and a row of zeros, which has no direction, is at distance 1 from every centre.
    Equal generators give equal clusterings. The generator is a CPU one, x lives anywhere; beside it one copy is held.
    """
    if not 1 <= k <= len(x):
        raise ValueError(f"k-means was asked for {k} clusters of {len(x)} points: ask for at least 1, at most {len(x)}")
    # ‖x‖² − 2 x·c + ‖c‖² loses digits far from the origin, so points are looked at from their mean.
    origin = x.new_zeros(x.shape[1]) if spherical else x.mean(0)
    x = F.normalize(x) if spherical else x - origin
    enough = max(ENOUGH, 64 * k)
    pool = x if len(x) <= enough else x[torch.randint(len(x), (enough,), generator=generator).to(x.device)]
    draws = torch.rand(starts, k, 2 + int(math.log(k)), generator=generator, dtype=torch.float64)
    clusterings = (
        lloyd(x, seeds(pool, some), iterations=iterations, tolerance=tolerance, spherical=spherical, chunk=chunk)
        for some in draws.split(max(1, chunk // len(x)))
    )
    best = min(clusterings, key=lambda clustering: clustering.cost)
    return best._replace(centres=best.centres + origin)


def seeds(x: Float[Tensor, "n d"], draws: Float[Tensor, "starts k tries"]) -> Float[Tensor, "starts k d"]:
    """For each start k of the points, far from one another: greedy k-means++.

        P(x_i is tried next) ∝ min_j ‖x_i − s_j‖²,   of several tries the one that lowers Σ_i min_j ‖x_i − s_j‖² most

    (Arthur & Vassilvitskii 2007, greedy as in their conclusion; 2 + ⌊ln k⌋ tries as in scikit-learn.) `draws` are
    uniform in [0, 1). When every distinct point is a seed already, the last point fills the rest.
    """
    squares = torch.linalg.vector_norm(x, dim=1).square()
    start = torch.arange(len(draws), device=x.device)

    def distances(rows: Int[Tensor, "starts tries"]) -> Float[Tensor, "n starts tries"]:
        products = torch.addmm(squares[:, None], x, x[rows].flatten(0, 1).T, alpha=-2)
        return products.view(len(x), *rows.shape).add_(squares[rows]).clamp_(min=0)

    chosen = [(draws[:, 0, 0] * len(x)).long().to(x.device)]
    distance = distances(chosen[0][:, None])[..., 0]
    for draw in draws[:, 1:].unbind(1):
        odds = distance.T.cpu().double().cumsum(1)
        tried = torch.searchsorted(odds, draw * odds[:, -1:], right=True).clamp_(max=len(x) - 1).to(x.device)
        after = torch.minimum(distance[..., None], distances(tried))
        best = after.sum(0).argmin(1)
        chosen.append(tried[start, best])
        distance = after[:, start, best]
    return x[torch.stack(chosen, 1)]


def lloyd(
    x: Float[Tensor, "n d"],
    centres: Float[Tensor, "starts k d"],
    *,
    iterations: int = 100,
    tolerance: float = 1e-4,
    spherical: bool = False,
    chunk: int = CHUNK,
) -> Clustering:
    """Move centres to the means of the points nearest to them until they rest; of several starts, keep the best.

        a_i = argmin_k ‖x_i − c_k‖,   c_k ← mean {x_i : a_i = k}        (Lloyd 1982)

    Rest is Σ_k ‖Δc_k‖² ≤ tolerance · mean variance of a feature, as in scikit-learn; tolerance 0 waits until no point
    changes cluster. Empty clusters start anew at the points farthest from their centres. With `spherical`, x and
    centres have unit rows, and means are scaled to unit length.
    """
    squares = torch.linalg.vector_norm(x, dim=1).square()
    rest = tolerance * (squares.mean() - x.mean(0).square().sum()).clamp(min=0) / x.shape[1]
    centres, steps = centres.clone(), torch.zeros(len(centres), dtype=torch.long)
    moving = torch.arange(len(centres), device=x.device)
    for _ in range(iterations):
        _, scores, sums, counts = _sweep(x, centres[moving], chunk)
        moved = F.normalize(sums, dim=2) if spherical else sums / counts[..., None]
        for start in (counts == 0).any(1).nonzero()[:, 0]:  # there the mean is 0/0
            empty = counts[start] == 0
            moved[start, empty] = x[(squares + scores[:, start]).topk(int(empty.sum())).indices]
        far = (moved - centres[moving]).square().sum((1, 2)) > rest
        centres[moving] = moved
        steps[moving.cpu()] += 1
        moving = moving[far]
        if not len(moving):
            break
    assignment, scores, *_ = _sweep(x, centres, chunk)
    best = int(scores.sum(0).argmin())
    cost = within(x, centres[best], assignment[:, best], chunk=chunk)
    return Clustering(centres[best], assignment[:, best].clone(), cost, int(steps[best]))


def within(
    x: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], assignment: Int[Tensor, " n"], *, chunk: int = CHUNK
) -> float:
    """Within-cluster sum of squares, Σ_i ‖x_i − c_a(i)‖²."""
    rows = max(1, chunk // x.shape[1])
    pairs = zip(x.split(rows), assignment.split(rows), strict=True)
    return sum((some - centres[theirs]).square().sum().item() for some, theirs in pairs)


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
        # Summing by a product with the indicator matrix, not by index_add: the same every time on a GPU too.
        members = some.new_zeros(len(some), starts, k).scatter_(2, assignment[..., None], 1).flatten(1)
        sums += members.T @ some
        counts += members.sum(0)
        assignments.append(assignment)
        scores.append(score)
    return torch.cat(assignments), torch.cat(scores), sums.view(starts, k, -1), counts.view(starts, k)
