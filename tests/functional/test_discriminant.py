"""k-means along the discriminants of its own clusters."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from newfound.functional.cluster import kmeans
from newfound.functional.discriminant import discriminant_kmeans, discriminants
from newfound.functional.metrics import accuracy
from newfound.types import generator


def stretched(kinds=5, each=40, dim=12, strong=2.5, apart=3.0):
    """Points about a few places, which differ most along three directions that say nothing of their kind."""
    random = generator("stretched", kinds, each)
    truth = torch.arange(kinds).repeat_interleave(each)
    middles = apart * torch.randn(kinds, dim, generator=random)
    middles[:, :3] = 0
    wide = torch.ones(dim)
    wide[:3] = strong
    return middles[truth] + wide * torch.randn(len(truth), dim, generator=random), truth


def naive_step(z, assignment, k, held, shrink):
    """One round, a point and a cluster at a time."""
    z = z.double()
    dim, groups = z.shape[1], [z[assignment == cluster] for cluster in range(k)]
    scatter = torch.zeros(dim, dim, dtype=torch.double)
    for group in groups:
        for row in group:
            scatter += torch.outer(row - group.mean(0), row - group.mean(0))
    within = scatter / (len(z) - k)
    values, vectors = torch.linalg.eigh(within + shrink * within.trace() / dim * torch.eye(dim))
    white = vectors @ torch.diag(values**-0.5) @ vectors.T
    wide = torch.linalg.eigh(white @ torch.cov(z.T) @ white).eigenvectors[:, -max(k - 1, 4) :]
    y = torch.stack([row / row.norm() for row in (z - z.mean(0)) @ white @ wide])
    found = assignment.clone()
    for i in range(held, len(z)):
        away = [(y[i] - y[assignment == cluster].mean(0)).norm().item() for cluster in range(k)]
        found[i] = away.index(min(away))
    return found


@pytest.mark.parametrize(("k", "held", "shrink"), [(5, 0, 1.0), (8, 0, 0.3), (5, 30, 3.0), (3, 10, 1.0)])
def test_a_round_is_the_loop_over_points_and_clusters(k, held, shrink):
    z, _ = stretched()
    start = torch.arange(len(z)) % k
    start = torch.where(torch.rand(len(z), generator=generator("start")) < 0.5, start, kmeans_of(z, k))
    found = discriminant_kmeans(z, start, k, held, rounds=1, shrink=shrink)
    assert not torch.equal(found, start)
    assert torch.equal(found, naive_step(z, start, k, held, shrink))


def test_points_join_no_cluster_that_they_are_to_be_apart_from_and_stay_where_none_is_left():
    z, truth = stretched()
    apart = torch.zeros(len(z), 5, dtype=torch.bool)
    apart[torch.arange(10), truth[:10]] = True
    apart[20] = True
    start = half_wrong(truth)
    start[:10] = (truth[:10] + 1) % 5
    start[20] = 3  # not the first, where a search among nothing ends
    found = discriminant_kmeans(z, start, 5, apart=apart)
    assert not (found[:10] == truth[:10]).any()
    assert found[20] == start[20]
    assert accuracy(truth[21:], found[21:]) > 0.9


def half_wrong(truth):
    """Classes of which two in five were drawn by lot."""
    random = generator("half wrong")
    drawn = torch.randint(5, truth.shape, generator=random)
    return torch.where(torch.rand(len(truth), generator=random) < 0.6, truth, drawn)


def kmeans_of(z, k):
    return kmeans(F.normalize(z, dim=1), k, generator("read")).assignment


def test_what_differs_within_clusters_no_longer_hides_what_differs_between_them():
    z, truth = stretched(strong=3.0, apart=1.8)
    plain = start = half_wrong(truth)
    for _ in range(10):
        plain = torch.cdist(z, torch.stack([z[plain == k].mean(0) for k in range(5)])).argmin(1)
    found = discriminant_kmeans(z, start, 5, shrink=0.1)
    assert accuracy(truth, found) > 0.95 > accuracy(truth, plain) + 0.1


def test_with_the_true_classes_and_no_shrinking_the_axes_are_fisher_s():
    z, truth = stretched(dim=8)
    fisher = LinearDiscriminantAnalysis(solver="eigen").fit(z.double(), truth)
    theirs = F.normalize(torch.tensor(fisher.transform((z - z.mean(0)).double())), dim=1)
    ours = discriminants(z.double(), truth, 5, shrink=0.0)
    torch.testing.assert_close(ours @ ours.T, theirs @ theirs.T, atol=1e-6, rtol=0)  # turned at most


def test_held_points_stay_where_they_are_though_others_lie_nearer():
    z, truth = stretched()
    told = truth.clone()
    told[:15] = 1
    assert discriminant_kmeans(z, told, 5)[:15].ne(1).all()
    found = discriminant_kmeans(z, told, 5, held=15)
    assert found[:15].eq(1).all()
    assert accuracy(truth[15:], found[15:]) > 0.95


def test_it_goes_on_until_no_point_moves():
    z, truth = stretched(strong=3.0, apart=1.8)
    once, rest = (discriminant_kmeans(z, half_wrong(truth), 5, rounds=rounds) for rounds in (1, 100))
    assert not torch.equal(once, rest)
    assert torch.equal(discriminant_kmeans(z, rest, 5), rest)


def test_numbering_clusters_otherwise_numbers_what_is_found_otherwise():
    z, _ = stretched()
    start, order = kmeans_of(z, 5), torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(order[discriminant_kmeans(z, start, 5)], discriminant_kmeans(z, order[start], 5))


def test_an_empty_cluster_one_cluster_and_equal_points_do_no_harm():
    z, truth = stretched()
    found = discriminant_kmeans(z, truth, 6)
    assert 5 not in found
    assert accuracy(truth, found) > 0.95
    assert discriminant_kmeans(z, torch.zeros_like(truth), 1).eq(0).all()
    same = discriminant_kmeans(torch.ones(6, 4), torch.arange(6) % 3, 3)
    assert same.shape == (6,)
