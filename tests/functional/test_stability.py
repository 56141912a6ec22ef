"""Clusters that are there come back; those that were only asked for do not."""

import pytest
import torch

from newfound.functional.cluster import kmeans
from newfound.functional.stability import overlap, stability
from newfound.types import generator


def naive_overlap(a, b, cluster):
    mine = {row for row, value in enumerate(a) if value == cluster}
    best = 0.0
    for other in set(b):
        theirs = {row for row, value in enumerate(b) if value == other}
        best = max(best, len(mine & theirs) / len(mine | theirs))
    return best


def test_overlap_is_that_of_sets():
    random = generator("overlap")
    a, b = (torch.randint(0, 4, (50,), generator=random) for _ in range(2))
    for cluster in range(4):
        assert overlap(a, b, cluster) == pytest.approx(naive_overlap(a.tolist(), b.tolist(), cluster))
    assert overlap(a, 3 - a, 2) == 1
    assert overlap(a, b, 9) == 0


def test_two_clouds_are_found_again_and_halves_of_one_are_not():
    random = generator("clouds")
    x = torch.cat([torch.randn(60, 16, generator=random), 8 + torch.randn(60, 16, generator=random)])

    def again(clusters):
        return lambda half, turn: kmeans(x[half], clusters, generator("again", turn)).assignment

    two = kmeans(x, 2, generator("two")).assignment
    assert min(stability(two, range(2), again(2)).values()) == 1
    eight = kmeans(x, 8, generator("eight")).assignment
    pieces = stability(eight, range(8), again(8)).values()
    assert sum(pieces) / 8 < 0.5
    assert max(pieces) < 0.7


def test_each_round_sees_another_half_and_the_same_seed_the_same_ones():
    seen = []

    def again(half, turn):
        seen.append(half)
        return torch.zeros(len(half), dtype=torch.long)

    stability(torch.zeros(11, dtype=torch.long), [0], again, rounds=3)
    stability(torch.zeros(11, dtype=torch.long), [0], again, rounds=3)
    assert [len(half) for half in seen] == [6] * 6
    assert all(torch.equal(a, b) for a, b in zip(seen[:3], seen[3:], strict=True))
    assert len({tuple(half.tolist()) for half in seen}) == 3
