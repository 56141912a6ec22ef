"""Whether clusters are there, or were only asked for: those that are come back when half of the images are left out."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.types import generator

ROUNDS, ROWS = 8, 3000
"""How often half of the images are looked at, and how many of them at most."""


def overlap(a: Int[Tensor, " n"], b: Int[Tensor, " n"], cluster: int) -> float:
    """How well a second clustering of the same points knows a cluster of the first.

        max_l |A_k ∩ B_l| / |A_k ∪ B_l|        (Jaccard 1901)

    0 where the first has no point in it.
    """
    mine = a == cluster
    if not mine.any():
        return 0.0
    shared = torch.bincount(b[mine])
    return float((shared / (mine.sum() + torch.bincount(b)[: len(shared)] - shared)).max())


def stability(
    assignment: Int[Tensor, " n"],
    clusters: Iterable[int],
    again: Callable[[Int[Tensor, " half"], int], Int[Tensor, " half"]],
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> dict[int, float]:
    """How well some clusters are found again where only half of the points are seen: the mean `overlap`.

    mean over rounds r of overlap(assignment[h_r], again(h_r, r), k)        (Hennig 2007)

    h_r are the rows of a random half. A cluster that is one falls apart or comes back; 1 is the very same each time.
    """
    clusters = [*clusters]
    scores = torch.zeros(rounds, len(clusters))
    for turn in range(rounds):
        order = torch.randperm(len(assignment), generator=generator(seed, "stability", turn))
        half = order[: min(ROWS, -(-len(assignment) // 2))].sort().values
        found = again(half, turn)
        scores[turn] = torch.tensor([overlap(assignment[half], found, cluster) for cluster in clusters])
    return dict(zip(clusters, scores.mean(0).tolist(), strict=True))
