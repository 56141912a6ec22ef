"""Mean shift over neighbours: points gather where others are, so that k-means finds it easier to tell them apart."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from newfound.types import generator

ROUNDS, NEIGHBOURS, WEIGHT = 5, 8, 0.5
"""How often points move, to how many neighbours, and how much of the way; decision 13."""

AMONG = 2**14
"""Points among which neighbours are sought: all of most collections. Of more a sample is taken, so that time grows with
their number and not with its square.
"""

CHUNK = 2**22
"""Numbers in a temporary matrix, as in `cluster`."""


@torch.no_grad()
def mean_shift(
    z: Float[Tensor, "n dim"],
    *,
    rounds: int = ROUNDS,
    neighbours: int = NEIGHBOURS,
    weight: float = WEIGHT,
    among: int = AMONG,
    seed: int = 0,
) -> Float[Tensor, "n dim"]:
    """Unit points, each moved towards the mean of those nearest to it, all at once, a few times.

        z_i ← unit((1 − w) z_i + w / k Σ_j z_j),   j over the k nearest by cosine, i itself left out

    (Choi et al. 2024, CMS.) Small clusters keep their place: with fewer than k other points all of them are neighbours.
    """
    z = F.normalize(z, dim=1)
    some = torch.arange(len(z))
    if len(z) > among:
        some = torch.randperm(len(z), generator=generator(seed, "mean shift"))[:among].sort().values
    k = min(neighbours, len(some) - 1)
    if k < 1:
        return z
    place = torch.full((len(z),), -1).index_copy_(0, some, torch.arange(len(some)))  # of each point among the others
    for _ in range(rounds):
        others, moved = z[some], []
        for rows in torch.arange(len(z)).split(max(1, CHUNK // len(some))):
            cosine, own = z[rows] @ others.T, place[rows]
            there = (own >= 0).nonzero()[:, 0]
            cosine[there, own[there]] = -2.0  # nobody is his own neighbour
            near = others[cosine.topk(k, dim=1).indices].mean(1)
            moved.append((1 - weight) * z[rows] + weight * near)
        z = F.normalize(torch.cat(moved), dim=1)
    return z
