"""k-means that goes on from classes somebody has looked at: some points are held, some may not join some clusters."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from newfound.functional.cluster import CHUNK, ClassSums, Clustering


@torch.no_grad()
def warm_kmeans(
    x: Float[Tensor, "n d"],
    centres: Float[Tensor, "k d"],
    held: ClassSums,
    apart: Bool[Tensor, "n k"],
    *,
    iterations: int = 100,
    chunk: int = CHUNK,
) -> Clustering:
    """Lloyd's steps from given centres until no point changes cluster, under constraints.

        min over c, a of  Σ_i ‖x_i − c_a(i)‖² + Σ_k n_k ‖m_k − c_k‖²,   m_k = sum_k / n_k,   a(i) never `apart` from i

    Points that are held in cluster k are its n_k, and only their sum is needed; x are the others. Cluster k of the
    result is the one that began at centre k, so that numbers keep their meaning. A cluster without any point stays
    where it began. (Basu et al. 2002, constrained k-means, and Wagstaff et al. 2001, who cannot link.)
    """
    if bool((barred := apart.all(1)).any()):
        raise ValueError(f"point {int(barred.nonzero()[0])} may join none of {len(centres)} clusters: leave it one")
    assignment, before, steps = _assign(x, centres, apart, chunk), None, 0
    while steps < iterations and (before is None or not torch.equal(before, assignment)):
        members = torch.zeros(len(x), len(centres), dtype=x.dtype).scatter_(1, assignment[:, None], 1)
        counts = members.sum(0) + held.counts
        total = members.T @ x + held.sums
        centres = torch.where(counts[:, None] > 0, total / counts.clamp(min=1)[:, None], centres)
        before, assignment, steps = assignment, _assign(x, centres, apart, chunk), steps + 1
    there = held.counts > 0
    strain = held.counts[there] * (centres[there] - held.sums[there] / held.counts[there, None]).square().sum(1)
    cost = (x - centres[assignment]).square().sum() + strain.sum()
    return Clustering(centres, assignment, cost.item(), steps)


def _assign(x: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], apart: Bool[Tensor, "n k"], chunk: int) -> Tensor:
    """The nearest centre of those that each point may join."""
    rows = max(1, chunk // len(centres))
    squares, nearest = centres.square().sum(1), []
    for some, barred in zip(x.split(rows), apart.split(rows), strict=True):
        score = torch.addmm(squares, some, centres.T, alpha=-2).masked_fill_(barred, torch.inf)
        nearest.append(score.argmin(1))
    return torch.cat(nearest) if nearest else torch.zeros(0, dtype=torch.long)
