"""k-means on features of any number: seeding, Lloyd's steps, the best of several starts."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 2**22
"""Numbers in a temporary matrix: 16 MB of float32, large enough to keep cores busy, small beside the features."""

ENOUGH = 2**16
"""Points from which seeds are drawn: all of most datasets; of a million it spares a pass over all per seed."""


class Clustering(NamedTuple):
    """What k-means found: `assignment` names the nearest of `centres`, `cost` is taken between the two."""

    centres: Float[Tensor, "k d"]
    assignment: Int[Tensor, " n"]
    cost: float  # within-cluster sum of squares
    iterations: int  # Lloyd steps made


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
    """Split points into k clusters so that they lie close to the centre of their own; the best of several starts.

        min over centres c of  Σ_i min_k ‖x_i − c_k‖²        (Lloyd 1982, started by Arthur & Vassilvitskii 2007)

    With `spherical` rows are scaled to unit length, and so are the centres (Dhillon & Modha 2001); the cost is then
    Σ_i 2 − 2 cos(x_i, c), and a row of zeros, which has no direction, is at distance 1 from every centre.
    Equal generators give equal clusterings. `generator` lives on the CPU, x anywhere. Beside x, one copy of it is held.
    """
    if not 1 <= k <= len(x):
        raise ValueError(f"k-means was asked for {k} clusters of {len(x)} points: ask for at least 1, at most {len(x)}")
    # ‖x‖² − 2 x·c + ‖c‖² loses digits far from the origin, so points are looked at from their mean.
    origin = x.new_zeros(x.shape[1]) if spherical else x.mean(0)
    x = F.normalize(x) if spherical else x - origin
    clusterings = (
        lloyd(
            x,
            seeds(x, k, generator),
            iterations=iterations,
            tolerance=tolerance,
            spherical=spherical,
            chunk=chunk,
        )
        for _ in range(starts)
    )
    best = min(clusterings, key=lambda clustering: clustering.cost)
    return best._replace(centres=best.centres + origin)


def seeds(x: Float[Tensor, "n d"], k: int, generator: torch.Generator) -> Float[Tensor, "k d"]:
    """k of the points, far from one another: greedy k-means++.

        P(x_i is tried next) ∝ min_j ‖x_i − s_j‖²,   of 2 + ⌊ln k⌋ tries the one that lowers Σ_i min_j ‖x_i − s_j‖² most

    (Arthur & Vassilvitskii 2007, greedy as in their conclusion, with scikit-learn's number of tries.) Of very many
    points a random part is looked at. When every distinct point is a seed already, the last point fills the rest.
    """
    if len(x) > (enough := max(ENOUGH, 64 * k)):
        x = x[torch.randint(len(x), (enough,), generator=generator).to(x.device)]
    squares = torch.linalg.vector_norm(x, dim=1).square()
    tries = 2 + int(math.log(k))

    def distances(rows: Int[Tensor, " tries"]) -> Float[Tensor, "n tries"]:
        return torch.addmm(squares[:, None], x, x[rows].T, alpha=-2).add_(squares[rows]).clamp_(min=0)

    chosen = torch.randint(len(x), (1,), generator=generator).to(x.device)
    distance = distances(chosen)[:, 0]
    while len(chosen) < k:
        odds = distance.cpu().double().cumsum(0)
        draws = torch.rand(tries, generator=generator, dtype=torch.float64) * odds[-1]
        tried = torch.searchsorted(odds, draws, right=True).clamp_(max=len(x) - 1).to(x.device)
        after = torch.minimum(distance[:, None], distances(tried))
        best = after.sum(0).argmin()
        chosen = torch.cat([chosen, tried[best, None]])
        distance = after[:, best]
    return x[chosen]


def lloyd(
    x: Float[Tensor, "n d"],
    centres: Float[Tensor, "k d"],
    *,
    iterations: int = 100,
    tolerance: float = 1e-4,
    spherical: bool = False,
    chunk: int = CHUNK,
) -> Clustering:
    """Move centres to the means of the points nearest to them until they rest.

        a_i = argmin_k ‖x_i − c_k‖,   c_k ← mean {x_i : a_i = k}        (Lloyd 1982)

    Rest is Σ_k ‖Δc_k‖² ≤ tolerance · mean variance of a feature, as in scikit-learn; tolerance 0 waits until no point
    changes cluster. Empty clusters start anew at the points farthest from their centres. With `spherical`, x and
    centres have unit rows, and means are scaled to unit length.
    """
    squares = torch.linalg.vector_norm(x, dim=1).square()
    variance = (squares.mean() - x.mean(0).square().sum()).clamp(min=0) / x.shape[1]
    steps, moved = 0, math.inf
    while steps < iterations and moved > tolerance * variance:
        _, scores, sums, counts = _sweep(x, centres, chunk)
        before, centres = centres, F.normalize(sums) if spherical else sums / counts.clamp(min=1)[:, None]
        if (empty := (counts == 0).nonzero()[:, 0]).numel():
            centres[empty] = x[(squares + scores).topk(len(empty)).indices]
        moved = (centres - before).square().sum()
        steps += 1
    assignment, *_ = _sweep(x, centres, chunk)
    return Clustering(centres, assignment, within(x, centres, assignment, chunk=chunk), steps)


def within(
    x: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], assignment: Int[Tensor, " n"], *, chunk: int = CHUNK
) -> float:
    """Within-cluster sum of squares, Σ_i ‖x_i − c_a(i)‖²."""
    rows = max(1, chunk // x.shape[1])
    pairs = zip(x.split(rows), assignment.split(rows), strict=True)
    return sum((some - centres[theirs]).square().sum().item() for some, theirs in pairs)


def _sweep(
    x: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], chunk: int
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """One pass over the points: nearest centre, ‖c‖² − 2 x·c for it, sum and number of the points of each centre."""
    squares = centres.square().sum(1)
    sums, counts = torch.zeros_like(centres), torch.zeros_like(squares)
    assignments, scores = [], []
    for some in x.split(max(1, chunk // len(centres))):
        score, assignment = torch.addmm(squares, some, centres.T, alpha=-2).min(1)
        # Summing by a product with the indicator matrix, not by index_add: the same every time on a GPU too.
        members = some.new_zeros(len(centres), len(some)).scatter_(0, assignment[None], 1)
        sums += members @ some
        counts += members.sum(1)
        assignments.append(assignment)
        scores.append(score)
    return torch.cat(assignments), torch.cat(scores), sums, counts
