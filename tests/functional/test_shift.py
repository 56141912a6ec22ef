"""Mean shift over neighbours."""

import pytest
import torch
import torch.nn.functional as F

from newfound.functional.cluster import kmeans
from newfound.functional.metrics import accuracy
from newfound.functional.shift import mean_shift
from newfound.types import generator


def clumps(each=30, kinds=4, dim=12, wide=0.8):
    """Points about a few directions."""
    random = generator("clumps", each, kinds)
    truth = torch.arange(kinds).repeat_interleave(each)
    middles = F.normalize(torch.randn(kinds, dim, generator=random), dim=1)
    return middles[truth] + wide / dim**0.5 * torch.randn(len(truth), dim, generator=random), truth


def naive_mean_shift(z, rounds, neighbours, weight):
    points = [row / row.norm() for row in z]
    for _ in range(rounds):
        moved = []
        for i, own in enumerate(points):
            others = [(float(own @ other), other) for j, other in enumerate(points) if j != i]
            near = [other for _, other in sorted(others, key=lambda pair: -pair[0])[:neighbours]]
            new = (1 - weight) * own + weight * sum(near) / len(near)
            moved.append(new / new.norm())
        points = moved
    return torch.stack(points)


@pytest.mark.parametrize(("rounds", "neighbours", "weight"), [(1, 3, 0.5), (3, 8, 0.25), (2, 500, 0.5)])
def test_it_is_the_loop_over_points_and_their_neighbours(rounds, neighbours, weight):
    z, _ = clumps(10)
    found = mean_shift(z.double(), rounds=rounds, neighbours=neighbours, weight=weight)
    torch.testing.assert_close(found, naive_mean_shift(z.double(), rounds, neighbours, weight))


def test_points_stay_on_the_sphere_and_the_first_are_left_as_they_were():
    z, _ = clumps()
    before = z.clone()
    torch.testing.assert_close(mean_shift(z).norm(dim=1), torch.ones(len(z)))
    assert torch.equal(z, before)


def test_classes_become_tighter_and_easier_to_tell_apart():
    z, truth = clumps(wide=1.4)
    found = mean_shift(z)
    rest = [
        torch.cat([x[truth == k] - x[truth == k].mean(0) for k in range(4)]).square().mean()
        for x in (F.normalize(z, dim=1), found)
    ]
    assert rest[1] < 0.5 * rest[0]
    before, after = (
        accuracy(truth, kmeans(x, 4, generator("read")).assignment) for x in (F.normalize(z, dim=1), found)
    )
    assert after >= before


def test_the_order_of_points_does_not_matter():
    z, _ = clumps()
    order = torch.randperm(len(z), generator=generator("order"))
    torch.testing.assert_close(mean_shift(z[order]), mean_shift(z)[order])


def test_a_point_alone_and_none_at_all_stay_where_they_are():
    z, _ = clumps()
    torch.testing.assert_close(mean_shift(z[:1]), F.normalize(z[:1], dim=1))
    assert mean_shift(z[:0]).shape == (0, z.shape[1])


def test_of_many_points_neighbours_are_sought_among_a_sample_that_the_seed_draws():
    z, truth = clumps(100)
    some = mean_shift(z, among=80, seed=1)
    assert torch.equal(some, mean_shift(z, among=80, seed=1))
    assert not torch.equal(some, mean_shift(z, among=80, seed=2))
    assert accuracy(truth, kmeans(some, 4, generator("read")).assignment) > 0.95
