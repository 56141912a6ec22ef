"""Which few images speak best for their class, and which least."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


@torch.no_grad()
def herding(z: Float[Tensor, "n dim"], count: int) -> Int[Tensor, " kept"]:
    """Rows whose running mean stays nearest the mean of all, the best first; at most `count`.

        k-th:  argmin_i ‖ μ − (u_i + Σ_{j<k} u_j) / k ‖,   u = z/‖z‖,  μ = mean_i u_i,   none twice
                                                                (Rebuffi et al. 2017, iCaRL, Algorithm 4; Welling 2009)

    Any first few of them are the best few, so that a memory can be cut short later.
    """
    u = F.normalize(z, dim=1)
    centre, total, chosen = u.mean(0), torch.zeros_like(u[0]) if len(u) else z.sum(0), list[int]()
    taken = torch.zeros(len(u), dtype=torch.bool, device=z.device)
    for k in range(1, min(count, len(u)) + 1):
        far = ((u + total) / k - centre).square().sum(1).masked_fill(taken, torch.inf)
        row = int(far.argmin())
        chosen.append(row)
        taken[row] = True
        total = total + u[row]
    return torch.tensor(chosen, dtype=torch.long)


def pick_examples(
    away: Float[Tensor, " n"],
    cluster: Int[Tensor, " n"],
    lone: Bool[Tensor, " n"],
    sure: Bool[Tensor, " n"],
    typical: int,
    doubtful: int,
) -> list[int]:
    """The rows of each cluster's most typical images that are sure, and of its least typical ones; `lone` alone."""
    kept: set[int] = set()
    for number in cluster.unique():
        rows = ((cluster == number) & lone).nonzero()[:, 0]
        ordered = rows[away[rows].argsort(stable=True)]
        kept |= {*ordered[sure[ordered]][:typical].tolist(), *ordered[-doubtful:].tolist()}
    return sorted(kept)
