"""k-means from given centres, some points held and some kept apart: laws, and the obvious slow loop."""

import pytest
import torch

from newfound.functional.cluster import ClassSums, lloyd
from newfound.functional.warm import warm_kmeans
from newfound.types import generator

FOG = torch.randn(60, 3, generator=generator("warm fog"), dtype=torch.float64)
CENTRES = torch.randn(4, 3, generator=generator("warm centres"), dtype=torch.float64)
NOTHING = ClassSums(torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))
HELD = ClassSums(
    torch.tensor([[9.0, 0, 0], [0, 6, 0], [0, 0, 0], [0, 0, 0]]).double(), torch.tensor([3.0, 2, 0, 0]).double()
)
FREE = torch.zeros(60, 4, dtype=torch.bool)


STILL = torch.tensor([False, True, False, True])


def naive_warm_kmeans(x, centres, held, apart, still):
    centres, before = [c.clone() for c in centres], None
    while True:
        assigned = []
        for point, barred in zip(x, apart, strict=True):
            away = [
                float("inf") if no else ((point - c) ** 2).sum().item() for c, no in zip(centres, barred, strict=True)
            ]
            assigned.append(away.index(min(away)))
        if assigned == before:
            return torch.stack(centres), torch.tensor(assigned)
        before = assigned
        for k in range(len(centres)):
            mine = [point for point, a in zip(x, assigned, strict=True) if a == k]
            number = len(mine) + held.counts[k].item()
            if number and not still[k]:
                centres[k] = (sum(mine, torch.zeros_like(centres[k])) + held.sums[k]) / number


def some_apart():
    apart = torch.rand(60, 4, generator=generator("apart")) < 0.4
    apart[:, 3] = False
    return apart


@pytest.mark.parametrize("held", [NOTHING, HELD])
@pytest.mark.parametrize("apart", [FREE, some_apart()])
@pytest.mark.parametrize("still", [None, STILL])
@pytest.mark.parametrize("chunk", [8, 2**22])
def test_it_is_the_obvious_loop(held, apart, still, chunk):
    found = warm_kmeans(FOG, CENTRES, held, apart, still, chunk=chunk)
    centres, assignment = naive_warm_kmeans(FOG, CENTRES, held, apart, [False] * 4 if still is None else still)
    assert torch.equal(found.assignment, assignment)
    torch.testing.assert_close(found.centres, centres)


def test_with_nothing_held_or_apart_it_is_lloyd_s():
    found, theirs = warm_kmeans(FOG, CENTRES, NOTHING, FREE), lloyd(FOG, CENTRES[None], tolerance=0.0)
    assert torch.equal(found.assignment, theirs.assignment)
    torch.testing.assert_close(found.centres, theirs.centres)
    assert found.cost == pytest.approx(theirs.cost)


def test_no_point_joins_a_cluster_that_it_is_apart_from_and_cluster_k_began_at_centre_k():
    apart = some_apart()
    found = warm_kmeans(FOG, CENTRES, HELD, apart)
    assert not apart[torch.arange(60), found.assignment].any()
    order = torch.tensor([2, 0, 3, 1])
    turned = warm_kmeans(FOG, CENTRES[order], ClassSums(HELD.sums[order], HELD.counts[order]), apart[:, order])
    assert torch.equal(order[turned.assignment], found.assignment)


def test_a_cluster_is_drawn_to_what_it_holds():
    firm = ClassSums(1e6 * HELD.sums, 1e6 * HELD.counts)
    found = warm_kmeans(FOG, CENTRES, firm, FREE)
    torch.testing.assert_close(found.centres[:2], HELD.sums[:2] / HELD.counts[:2, None], atol=1e-3, rtol=0)


def test_a_cluster_without_any_point_stays_where_it_began():
    far = CENTRES.clone()
    far[2] = 1e3
    found = warm_kmeans(FOG, far, NOTHING, FREE)
    assert torch.equal(found.centres[2], far[2])
    assert not (found.assignment == 2).any()


def test_without_points_the_held_ones_are_all_there_is():
    found = warm_kmeans(FOG[:0], CENTRES, HELD, FREE[:0])
    torch.testing.assert_close(found.centres, torch.cat([torch.tensor([[3.0, 0, 0], [0, 3, 0]]).double(), CENTRES[2:]]))
    assert (len(found.assignment), found.cost) == (0, 0.0)


def test_a_point_that_may_join_nothing_is_refused():
    apart = FREE.clone()
    apart[7] = True
    with pytest.raises(ValueError, match="point 7 may join none of 4 clusters"):
        warm_kmeans(FOG, CENTRES, NOTHING, apart)
