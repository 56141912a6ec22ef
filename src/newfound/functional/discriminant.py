"""k-means along its own discriminants: what differs within clusters is made small, and they are read anew."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.axes import axes, moments
from newfound.functional.geometry import covariance, means

ROUNDS, SHRINK, FEWEST = 10, 1.0, 4
"""How often clusters are read anew, how much their covariance is shrunk, and axes kept at least; decision 13."""


def discriminants(
    z: Float[Tensor, "n dim"], assignment: Int[Tensor, " n"], k: int, shrink: float = SHRINK
) -> Float[Tensor, "n few"]:
    """Unit points along the axes on which k clusters lie apart: one fewer than there are clusters, but a few at least.

        y = unit((z − z̄) W V),   W = (S + ρ s̄ I)^−½,   V: the first k − 1 eigenvectors of W Cov(z) W

    S is the shared covariance within clusters (Fisher 1936, shrunk), s̄ its mean eigenvalue.
    """
    exact = z.double()
    centres, _ = means(exact, assignment, k)
    found = axes(moments(exact), max(k - 1, FEWEST), covariance(exact, assignment, centres), shrink)
    return F.normalize((exact - found.centre) @ found.matrix, dim=1).to(z)


@torch.no_grad()
def discriminant_kmeans(
    z: Float[Tensor, "n dim"],
    assignment: Int[Tensor, " n"],
    k: int,
    held: int = 0,
    apart: Bool[Tensor, "free k"] | None = None,
    *,
    rounds: int = ROUNDS,
    shrink: float = SHRINK,
) -> Int[Tensor, " n"]:
    """Move points to the cluster whose mean is nearest along the discriminants of all clusters, until none moves.

        a_i ← argmin_k ‖y_i − mean {y_j : a_j = k}‖,   y = discriminants(z, a)

    (LDA-Km: Ding & Li 2007, with a step of Lloyd's for each turn of the axes.) The first `held` points stay where they
    are; each of the others joins no cluster that it is to be `apart` from. A cluster that loses all of its points stays
    empty, and a point that may join none of those that are left stays where it is.
    """
    for _ in range(rounds):
        y = discriminants(z, assignment, k, shrink)
        centres, sizes = means(y, assignment, k)
        away = torch.cdist(y[held:], centres).masked_fill_(sizes == 0, torch.inf)
        if apart is not None:
            away.masked_fill_(apart, torch.inf)
        nearest = torch.where(away.isinf().all(1), assignment[held:], away.argmin(1))
        if torch.equal(nearest, assignment[held:]):
            break
        assignment = torch.cat([assignment[:held], nearest])
    return assignment
