"""k-means that goes on from classes somebody has looked at: some points are held, some may not join some clusters."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.cluster import CHUNK, ClassSums, Clustering


@torch.no_grad()
def warm_kmeans(
    x: Float[Tensor, "n d"],
    centres: Float[Tensor, "k d"],
    held: ClassSums,
    apart: Bool[Tensor, "n k"],
    still: Bool[Tensor, " k"] | None = None,
    *,
    iterations: int = 100,
    chunk: int = CHUNK,
) -> Clustering:
    """Lloyd's steps from given centres until no point changes cluster, under constraints.

        min over c, a of  Σ_i ‖x_i − c_a(i)‖² + Σ_k n_k ‖m_k − c_k‖²,   m_k = sum_k / n_k,   a(i) never `apart` from i

    Points that are held in cluster k are its n_k, and only their sum is needed; x are the others. Cluster k of the
    result is the one that began at centre k, so that numbers keep their meaning. A cluster without any point stays
    where it began, and so does one that is to stand `still`, whoever joins it. (Basu et al. 2002, constrained k-means,
    and Wagstaff et al. 2001, who cannot link.)
    """
    if bool((barred := apart.all(1)).any()):
        raise ValueError(f"point {int(barred.nonzero()[0])} may join none of {len(centres)} clusters: leave it one")
    (assignment, sums, counts), before, steps = _sweep(x, centres, apart, chunk), None, 0
    while steps < iterations and (before is None or not torch.equal(before, assignment)):
        total, size = sums + held.sums, counts + held.counts
        moves = size > 0 if still is None else (size > 0) & ~still
        centres = torch.where(moves[:, None], total / size.clamp(min=1)[:, None], centres)
        before, steps = assignment, steps + 1
        assignment, sums, counts = _sweep(x, centres, apart, chunk)
    there = held.counts > 0
    strain = held.counts[there] * (centres[there] - held.sums[there] / held.counts[there, None]).square().sum(1)
    cost = (x - centres[assignment]).square().sum() + strain.sum()
    return Clustering(centres, assignment, cost.item(), steps)


def _sweep(
    x: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], apart: Bool[Tensor, "n k"], chunk: int
) -> tuple[Int[Tensor, " n"], Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """The nearest centre of those that each point may join, and sum and number of the points of each."""
    rows = max(1, chunk // len(centres))
    squares, sums = centres.square().sum(1), torch.zeros_like(centres)
    counts, assignments = torch.zeros_like(squares), [torch.zeros(0, dtype=torch.long)]
    for some, barred in zip(x.split(rows), apart.split(rows), strict=True):
        assignment = torch.addmm(squares, some, centres.T, alpha=-2).masked_fill_(barred, torch.inf).argmin(1)
        members = some.new_zeros(len(some), len(centres)).scatter_(1, assignment[:, None], 1)
        sums += members.T @ some
        counts += members.sum(0)
        assignments.append(assignment)
    return torch.cat(assignments), sums, counts
