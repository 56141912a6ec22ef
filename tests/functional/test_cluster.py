import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from newfound.errors import InputError
from newfound.functional import cluster
from newfound.functional.cluster import (
    ClassSums,
    constrained_kmeans,
    kmeans,
    lloyd,
    seeds,
    semi_supervised_kmeans,
    within,
)
from newfound.types import generator


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """On a busy machine threads wait for one another, fifty times longer than points this few take."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


def fog(n=300, d=4):
    """Points without clusters, on which every start ends elsewhere."""
    return torch.randn(n, d, generator=generator("fog", n, d), dtype=torch.float64)


def blobs(n=300, k=6, d=5, spread=1.0, dtype=torch.float64):
    random = generator("blobs", n, k, d)
    centres = 3 * torch.randn(k, d, generator=random, dtype=dtype)
    return centres[torch.arange(n) % k] + spread * torch.randn(n, d, generator=random, dtype=dtype)


def digits():
    return torch.from_numpy(load_digits().data).float()


def spread_out(x, k, starts=1):
    """Seeds as `kmeans` draws them."""
    return seeds(x, torch.rand(starts, k, 3, generator=generator("seeds"), dtype=torch.float64))


def naive_lloyd(x, centres, iterations):
    centres = [centre.clone() for centre in centres]
    nearest = None
    for _ in range(iterations):
        nearest = [min(range(len(centres)), key=lambda k: (row - centres[k]).norm().item()) for row in x]
        for k in range(len(centres)):
            members = [row for row, a in zip(x, nearest, strict=True) if a == k]
            centres[k] = torch.stack(members).mean(0)
    return torch.stack(centres)


@pytest.mark.parametrize("iterations", [1, 4])
def test_lloyd_equals_the_loop_over_points_and_centres(iterations):
    x = fog()
    start = spread_out(x, 6)
    found = lloyd(x, start, iterations=iterations, tolerance=0)
    expected = naive_lloyd(x, start[0], iterations)
    assert torch.allclose(found.centres, expected)
    assert found.assignment.tolist() == [int((row - expected).norm(dim=1).argmin()) for row in x]
    assert found.cost == pytest.approx(sum((row - expected).norm(dim=1).min().item() ** 2 for row in x))
    assert found.iterations == iterations


@pytest.mark.parametrize("iterations", [1, 2, 5, 100])
def test_lloyd_is_that_of_scikit_learn_from_equal_seeds(iterations):
    x = digits().double()
    start = spread_out(x, 10)
    reference = KMeans(10, init=start[0].numpy(), n_init=1, max_iter=iterations, tol=0).fit(x.numpy())
    found = lloyd(x, start, iterations=iterations, tolerance=0)
    assert np.allclose(found.centres.numpy(), reference.cluster_centers_)
    assert np.array_equal(found.assignment.numpy(), reference.labels_)
    assert found.cost == pytest.approx(reference.inertia_)


def test_centres_stop_moving_at_the_tolerance_of_scikit_learn():
    x = digits().double()
    start = spread_out(x, 10)
    reference = KMeans(10, init=start[0].numpy(), n_init=1, tol=1e-2).fit(x.numpy())
    found = lloyd(x, start, tolerance=1e-2)
    assert found.iterations == reference.n_iter_ < lloyd(x, start, tolerance=0).iterations
    assert np.allclose(found.centres.numpy(), reference.cluster_centers_)


@pytest.mark.parametrize(("x", "k"), [(blobs(n=1000, k=20, d=16).float(), 20), (digits(), 10)], ids=["blobs", "digits"])
def test_cost_is_as_low_as_that_of_scikit_learn(x, k):
    reference = KMeans(k, n_init=20, random_state=0).fit(x.numpy())
    assert kmeans(x, k, generator(0)).cost <= 1.02 * reference.inertia_


def test_seeds_from_a_part_of_the_points_are_as_good(monkeypatch):
    whole = kmeans(digits(), 10, generator(0))
    monkeypatch.setattr(cluster, "ENOUGH", 640)
    part = kmeans(digits(), 10, generator(0))
    assert part.cost != whole.cost
    assert part.cost == pytest.approx(whole.cost, rel=0.01)


def test_seeds_find_every_one_of_distant_blobs():
    x = blobs(spread=1e-3)
    for start in spread_out(x, 6, starts=20):
        assert torch.cdist(start, x[:6]).argmin(1).unique().numel() == 6


def test_a_seed_is_drawn_in_proportion_to_its_squared_distance():
    x = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    draws = torch.rand(20_000, 2, 1, generator=generator("odds"), dtype=torch.float64)
    first, second = seeds(x, draws)[..., 0].unbind(1)
    assert [(first == value).double().mean().item() for value in (0, 1, 3)] == pytest.approx([1 / 3] * 3, abs=0.02)
    assert (second[first == 0] == 3).double().mean().item() == pytest.approx(9 / 10, abs=0.02)
    assert (second[first == 3] == 0).double().mean().item() == pytest.approx(9 / 13, abs=0.02)


def test_a_seed_is_not_drawn_twice_while_other_points_remain():
    x = torch.tensor([[0.0], [1.0], [1.0]])
    draws = torch.zeros(1, 2, 1, dtype=torch.float64)
    assert seeds(x, draws).flatten().tolist() == [0, 1]


def test_of_several_tries_the_seed_that_lowers_the_cost_most_is_taken():
    x = torch.tensor([[0.0], [4.0], [5.0], [6.0]], dtype=torch.float64)
    odds = [16, 25, 36]
    draws = torch.tensor([[[0.0] * 3, [(sum(odds[:i]) + 1) / sum(odds) for i in range(3)]]], dtype=torch.float64)
    assert seeds(x, draws).flatten().tolist() == [0, 5]


def test_cost_never_rises():
    x = fog()
    start = spread_out(x, 10)
    costs = [lloyd(x, start, iterations=t, tolerance=0).cost for t in range(15)]
    assert all(late <= early for early, late in pairwise(costs))
    assert costs[-1] < costs[0]


def test_cost_never_rises_with_more_starts():
    x = fog()
    costs = [kmeans(x, 10, generator(0), starts=starts).cost for starts in (1, 5, 20)]
    assert costs[0] > costs[1] >= costs[2]


def test_the_best_of_several_starts_is_kept():
    x = fog()
    start = spread_out(x, 6, starts=8)
    alone = min((lloyd(x, one[None], iterations=1) for one in start), key=lambda found: found.cost)
    together = lloyd(x, start, iterations=1)
    assert together.cost == pytest.approx(alone.cost)
    assert torch.allclose(together.centres, alone.centres)
    assert torch.equal(together.assignment, alone.assignment)


def test_starts_come_to_rest_each_in_its_own_time():
    x = fog()
    start = spread_out(x, 10, starts=4)
    alone = [lloyd(x, one[None], tolerance=0) for one in start]
    best = min(alone, key=lambda found: found.cost)
    assert lloyd(x, start, tolerance=0).iterations == best.iterations < max(found.iterations for found in alone)


def test_what_is_found_is_consistent():
    x = digits()
    found = kmeans(x, 10, generator(0), starts=2)
    assert torch.equal(found.assignment, torch.cdist(x.double(), found.centres.double()).argmin(1))
    assert found.cost == pytest.approx(within(x, found.centres, found.assignment), rel=1e-5)


def test_an_empty_cluster_starts_anew_at_the_farthest_point():
    x = torch.tensor([[0.0], [1.0], [5.0]])
    found = lloyd(x, torch.tensor([[[0.0], [100.0]]]), iterations=1)
    assert found.centres.flatten().tolist() == [2, 5]
    assert found.assignment.tolist() == [0, 0, 1]


def test_no_cluster_stays_empty():
    x = blobs()
    far = torch.full((4, 5), -1e3, dtype=x.dtype)
    start = torch.stack([x[:6], torch.cat([x[:2], far])])
    for some in (start[1:], start):
        found = lloyd(x, some)
        assert found.assignment.unique().numel() == 6
        assert found.centres.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fewer_distinct_points_than_clusters_are_told_apart(dtype):
    x = blobs(n=3, dtype=dtype).repeat(10, 1)
    found = kmeans(x, 7, generator(0))
    assert found.centres.isfinite().all()
    assert found.cost == pytest.approx(0, abs=1e-4)
    points_of_clusters = {(a, i % 3) for i, a in enumerate(found.assignment.tolist())}
    assert len(points_of_clusters) == found.assignment.unique().numel() >= 3


def test_points_that_are_all_equal_make_one_cluster():
    found = kmeans(torch.full((10, 3), 0.1), 4, generator(0))
    assert found.cost == pytest.approx(0, abs=1e-10)
    assert found.assignment.unique().numel() == 1
    assert torch.allclose(found.centres, torch.tensor(0.1))


def test_one_cluster_is_the_mean_and_as_many_clusters_as_points_cost_nothing():
    x = blobs(n=12)
    assert torch.allclose(kmeans(x, 1, generator(0)).centres, x.mean(0, keepdim=True))
    every = kmeans(x, 12, generator(0))
    assert every.cost == pytest.approx(0)
    assert sorted(every.assignment.tolist()) == list(range(12))


@pytest.mark.parametrize("k", [0, 13])
def test_an_impossible_number_of_clusters_is_refused(k):
    with pytest.raises(InputError, match=f"asked for {k} clusters of 12 points"):
        kmeans(blobs(n=12), k, generator(0))


def test_equal_generators_give_equal_clusterings():
    x = fog().float()
    one, same, other = (kmeans(x, 10, generator(seed), starts=3) for seed in (0, 0, 1))
    assert torch.equal(one.centres, same.centres)
    assert torch.equal(one.assignment, same.assignment)
    assert one[2:] == same[2:]
    assert not torch.equal(one.assignment, other.assignment)


@pytest.mark.parametrize("chunk", [1, 100, 2000])
def test_chunks_do_not_change_what_is_found(chunk):
    x = fog(n=97)
    whole = kmeans(x, 5, generator(0), starts=4)
    chunked = kmeans(x, 5, generator(0), starts=4, chunk=chunk)
    assert torch.equal(chunked.assignment, whole.assignment)
    assert torch.allclose(chunked.centres, whole.centres)
    assert chunked.cost == pytest.approx(whole.cost)


def test_points_far_from_the_origin_are_told_apart():
    x = blobs(k=4, d=2).float()
    near, far = kmeans(x, 4, generator(0)), kmeans(x + 1e4, 4, generator(0))
    assert torch.equal(near.assignment, far.assignment)
    assert far.cost == pytest.approx(near.cost, rel=1e-3)
    assert torch.allclose(far.centres - 1e4, near.centres, atol=1e-2)


def test_points_are_left_as_they_were_and_no_gradient_is_kept():
    x = blobs().requires_grad_()
    before = x.detach().clone()
    assert not kmeans(x, 6, generator(0), starts=2).centres.requires_grad
    assert torch.equal(x, before)


def half_labelled(n=120, classes=3):
    """Fog in which every second point is labelled, at random: labels and places disagree."""
    labels = torch.randint(classes, (n,), generator=generator("half", n))
    labels[1::2] = -1
    return fog(n), labels


def naive_semi_supervised(x, labels, centres, iterations):
    """Lloyd's loop over points and centres in which labelled points are put back into their class."""
    centres = [centre.clone() for centre in centres]

    def assign():
        nearest = [min(range(len(centres)), key=lambda k: (row - centres[k]).norm().item()) for row in x]
        return [own if own >= 0 else near for own, near in zip(labels.tolist(), nearest, strict=True)]

    for _ in range(iterations):
        assignment = assign()
        for k in range(len(centres)):
            centres[k] = torch.stack([row for row, a in zip(x, assignment, strict=True) if a == k]).mean(0)
    return torch.stack(centres), assign()


@pytest.mark.parametrize("k", [3, 6])
@pytest.mark.parametrize("iterations", [1, 4])
def test_semi_supervised_kmeans_equals_the_loop_that_puts_labelled_points_back(iterations, k):
    x, labels = half_labelled()
    settings = {"starts": 1, "tolerance": 0}
    start = semi_supervised_kmeans(x, labels, k, generator(0), iterations=0, **settings)
    found = semi_supervised_kmeans(x, labels, k, generator(0), iterations=iterations, **settings)
    centres, assignment = naive_semi_supervised(x, labels, start.centres, iterations)
    assert torch.allclose(found.centres, centres)
    assert found.assignment.tolist() == assignment
    cost = sum((row - centres[a]).norm().item() ** 2 for row, a in zip(x, assignment, strict=True))
    assert found.cost == pytest.approx(cost)
    assert 1 <= found.iterations <= iterations  # fewer where it came to rest


def test_classes_start_at_their_means_and_the_others_at_unlabelled_points():
    x, labels = half_labelled()
    start = semi_supervised_kmeans(x, labels, 7, generator(0), starts=1, iterations=0).centres
    for k in range(3):
        members = [row for row, own in zip(x, labels.tolist(), strict=True) if own == k]
        assert torch.allclose(start[k], torch.stack(members).mean(0))
    nearest = torch.cdist(start[3:], x).min(1)
    assert nearest.values.max() < 1e-6
    assert (labels[nearest.indices] < 0).all()
    assert nearest.indices.unique().numel() == 4


def test_further_seeds_are_far_from_classes_and_from_one_another():
    x = blobs(spread=1e-3)
    labels = torch.where((torch.arange(300) % 6 < 2) & (torch.arange(300) < 60), torch.arange(300) % 6, -1)
    for seed in range(20):
        start = semi_supervised_kmeans(x, labels, 6, generator(seed), starts=1, iterations=0).centres
        assert torch.cdist(start, x[:6]).argmin(1).unique().numel() == 6


def test_labelled_points_stay_in_their_class_however_far():
    x = torch.tensor([[0.0], [10.0], [9.0], [1.0]])
    found = semi_supervised_kmeans(x, torch.tensor([0, 1, 0, -1]), 2, generator(0))
    assert found.assignment.tolist() == [0, 1, 0, 0]
    assert found.centres.flatten().tolist() == pytest.approx([10 / 3, 10])


def test_at_rest_unlabelled_points_are_nearest_their_centre_and_centres_are_means():
    x, labels = half_labelled()
    found = semi_supervised_kmeans(x, labels, 8, generator(0), tolerance=0, starts=3)
    free = labels < 0
    assert torch.equal(found.assignment[~free], labels[~free])
    assert torch.equal(found.assignment[free], torch.cdist(x[free], found.centres).argmin(1))
    means = torch.stack([x[found.assignment == k].mean(0) for k in range(8)])
    assert torch.allclose(found.centres, means)


def test_semi_supervised_cost_never_rises_with_steps_or_starts():
    x, labels = half_labelled(300)
    steps = [{"starts": 1, "iterations": t, "tolerance": 0} for t in range(12)]
    starts = [{"starts": starts, "chunk": chunk} for starts, chunk in ((1, 10**6), (5, 10**6), (20, 10**6), (20, 600))]
    for settings in (steps, starts):
        costs = [semi_supervised_kmeans(x, labels, 15, generator(0), **some).cost for some in settings]
        assert all(late <= early + 1e-9 for early, late in pairwise(costs))
        assert costs[-1] < costs[0]


def test_without_labels_semi_supervised_kmeans_is_kmeans():
    x = fog()
    plain = kmeans(x, 5, generator(0), starts=3)
    same = semi_supervised_kmeans(x, torch.full((len(x),), -1), 5, generator(0), starts=3)
    assert torch.equal(plain.assignment, same.assignment)
    assert torch.equal(plain.centres, same.centres)


def test_with_every_point_labelled_centres_are_class_means():
    x, labels = fog(30), torch.arange(30) % 4
    found = semi_supervised_kmeans(x, labels, 4, generator(0))
    assert torch.equal(found.assignment, labels)
    assert torch.allclose(found.centres, torch.stack([x[k::4].mean(0) for k in range(4)]))


def test_no_cluster_of_unlabelled_points_stays_empty():
    x = torch.cat([torch.zeros(5, 1), torch.tensor([[1.0], [1.0], [1.0], [50.0], [90.0]])])
    labels = torch.tensor([0] * 5 + [-1] * 5)
    for seed in range(10):
        found = semi_supervised_kmeans(x, labels, 4, generator(seed), starts=1)
        assert found.assignment.unique().numel() == 4
        assert found.cost == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("chunk", [1, 50])
def test_chunks_do_not_change_what_semi_supervised_kmeans_finds(chunk):
    x, labels = half_labelled()
    whole = semi_supervised_kmeans(x, labels, 5, generator(0), starts=4)
    chunked = semi_supervised_kmeans(x, labels, 5, generator(0), starts=4, chunk=chunk)
    assert torch.equal(chunked.assignment, whole.assignment)
    assert torch.allclose(chunked.centres, whole.centres)


def test_sums_and_numbers_of_labelled_points_are_as_good_as_the_points():
    x, labels = fog(200), (torch.arange(200) % 9).where(torch.arange(200) % 9 < 3, -1)
    sums = torch.stack([x[labels == k].sum(0) for k in range(3)])
    counts = torch.stack([(labels == k).sum() for k in range(3)]).to(x)
    whole = semi_supervised_kmeans(x, labels, 7, generator(0))
    found = constrained_kmeans(x[labels < 0], ClassSums(sums, counts), 7, generator(0))
    assert torch.equal(found.assignment, whole.assignment[labels < 0])
    assert torch.allclose(found.centres, whole.centres)
    own = sum(
        within(x[labels == k], (sums / counts[:, None])[k : k + 1], torch.zeros(int(counts[k]), dtype=torch.long))
        for k in range(3)
    )
    assert found.cost == pytest.approx(whole.cost - own)


def test_new_clusters_start_far_from_every_class_that_is_held():
    x = torch.cat([fog(50), fog(50) + 100, fog(5) + 50])
    held = ClassSums(torch.stack([x[:50].sum(0), x[50:100].sum(0)]), torch.tensor([50.0, 50.0]).double())
    for seed in range(5):
        found = constrained_kmeans(x, held, 3, generator(seed), starts=1)
        assert torch.bincount(found.assignment).tolist() == [50, 50, 5]


def test_a_class_of_which_nothing_is_held_starts_as_new_ones_do():
    x = torch.cat([fog(50) + 20 * torch.eye(4, dtype=torch.float64)[k] for k in range(3)])
    sums = torch.stack([50 * x[:50].mean(0), torch.zeros(4), 50 * x[100:].mean(0)])
    found = constrained_kmeans(x, ClassSums(sums, torch.tensor([50.0, 0.0, 50.0])), 3, generator(0))
    assert torch.equal(found.assignment, torch.arange(3).repeat_interleave(50))


def test_holding_nothing_at_all_is_kmeans():
    x = fog(60)
    found = constrained_kmeans(x, ClassSums(torch.zeros(2, 4), torch.zeros(2)), 5, generator(0))
    assert torch.equal(found.assignment, kmeans(x, 5, generator(0)).assignment)


def test_fewer_clusters_than_are_held_are_refused():
    with pytest.raises(InputError, match=r"asked for 1 clusters of 2 classes and 9 unlabelled points\. Needed: at"):
        constrained_kmeans(fog(9), ClassSums(torch.ones(2, 4), torch.ones(2)), 1, generator(0))


def test_impossible_labels_and_numbers_of_clusters_are_refused():
    x = fog(6)
    for k in (1, 7):
        with pytest.raises(InputError, match=f"asked for {k} clusters of 2 classes and 4 unlabelled points"):
            semi_supervised_kmeans(x, torch.tensor([0, 1, -1, -1, -1, -1]), k, generator(0))
    with pytest.raises(InputError, match=r"no labelled point of classes \[1\]"):
        semi_supervised_kmeans(x, torch.tensor([0, 2, -1, -1, -1, -1]), 4, generator(0))


@pytest.mark.processes
def test_a_million_points_need_little_memory():
    script = """
import resource, torch
from newfound.functional.cluster import kmeans
x = torch.randn(1_000_000, 128, generator=torch.Generator().manual_seed(0))
kmeans(x, 10, torch.Generator().manual_seed(0), starts=1, iterations=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=one_thread)
    gigabytes = float(done.stdout)
    assert gigabytes < 2  # the whole process: 0.5 are the points, 0.5 their centred copy, 0.2 Python with torch
