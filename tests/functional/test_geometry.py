import itertools
import math
import re

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import sklearn.decomposition
import sklearn.manifold
import torch

from newfound.errors import InputError
from newfound.functional.geometry import (
    affine_fit,
    covariance,
    covariance_root,
    directions,
    distances,
    drift,
    equidistant,
    even,
    extend,
    guttman,
    means,
    nearest,
    orthonormal,
    principal,
    principal_axes,
    simplex,
    smacof,
    stress,
    surrogate,
    target_distance,
    whitening,
)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small matrices gain nothing from threads, and wait for them long where the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def gaussian(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def symmetric(c, seed=0):
    """Positive off the diagonal, 0 on it."""
    values = gaussian(c, c, seed=seed).abs().triu(1) + 0.1
    return (values.triu(1) + values.triu(1).T).contiguous()


def centred(x):
    return x - x.mean(0)


def problems():
    """Configurations with dissimilarities: roomy and crowded, with equal and with unequal weights."""
    for c, dim, weighted in itertools.product((2, 5, 9), (1, 3, 12), (False, True)):
        weights = symmetric(c, seed=3) if weighted else None
        if weights is not None and c > 4:
            weights[0, 1] = weights[1, 0] = 0.0
        yield pytest.param(gaussian(c, dim), symmetric(c, seed=2), weights, id=f"{c}-{dim}-{weighted}")


every_problem = pytest.mark.parametrize(("Y", "delta", "weights"), list(problems()))


def spread(points, distance):
    """Largest relative error of the distances between points that should all be `distance` apart."""
    return (torch.pdist(points) / distance - 1).abs().max().item()


# Naive forms, written from the formulas with loops.


def norm(x):
    return math.sqrt(sum(float(v) ** 2 for v in x))


def pairs(c):
    return list(itertools.combinations(range(c), 2))


def naive_stress(X, delta, weights):
    w = np.ones_like(delta) if weights is None else weights.numpy()
    return sum(w[i, j] * (norm(X[i] - X[j]) - float(delta[i, j])) ** 2 for i, j in pairs(len(X)))


def naive_surrogate(X, Y, delta, weights):
    """Each d_ij(X) of the stress replaced by its Cauchy–Schwarz bound ⟨x_i − x_j, y_i − y_j⟩ / d_ij(Y)."""
    w = np.ones_like(delta) if weights is None else weights.numpy()
    total = 0.0
    for i, j in pairs(len(X)):
        x, y, d = X[i] - X[j], Y[i] - Y[j], norm(Y[i] - Y[j])
        bound = float(x @ y) / d if d > 0 else 0.0
        total += w[i, j] * (norm(x) ** 2 + float(delta[i, j]) ** 2 - 2 * float(delta[i, j]) * bound)
    return total


def naive_guttman(Y, delta, weights, sign=-1):
    """V⁺ B(Y) Y with matrices filled entry by entry; sign=+1 is the paper's Eq. 4."""
    c = len(Y)
    V, B = np.zeros((c, c)), np.zeros((c, c))
    for i, j in itertools.permutations(range(c), 2):
        w, d = 1.0 if weights is None else float(weights[i, j]), norm(Y[i] - Y[j])
        V[i, j] = -w
        B[i, j] = sign * w * float(delta[i, j]) / d if d > 0 else 0.0
    for i in range(c):
        V[i, i], B[i, i] = -V[i].sum(), -B[i].sum()
    return torch.from_numpy(np.linalg.pinv(V) @ B @ Y.numpy())


# Distances, nearest prototypes, means


def test_distances_equal_the_loop():
    x, y = gaussian(4, 3), gaussian(5, 3, seed=1)
    expected = torch.tensor([[norm(a - b) for b in y] for a in x], dtype=torch.float64)
    torch.testing.assert_close(distances(x, y), expected)
    torch.testing.assert_close(distances(x), distances(x, x))


def test_distances_far_from_the_origin_are_exact():
    x = torch.tensor([[4096.0, 1.0], [4096.0, 1.0], [4096.0, 1.0 + 2**-10]])
    assert distances(x).tolist() == [[0, 0, 2**-10], [0, 0, 2**-10], [2**-10, 2**-10, 0]]


def test_nearest_equals_the_loop():
    z, prototypes = gaussian(50, 7) * 3, gaussian(6, 7, seed=1) * 3 + 1
    expected = [min(range(6), key=lambda k: norm(row - prototypes[k])) for row in z]
    assert nearest(z, prototypes).tolist() == expected


def test_a_prototype_is_nearest_to_itself():
    prototypes = gaussian(6, 7) * torch.arange(1, 7)[:, None]
    assert nearest(prototypes, prototypes).tolist() == list(range(6))


def test_means_equal_the_loop_and_an_empty_class_is_zero():
    z, assignment = gaussian(8, 3), torch.tensor([2, 0, 2, 2, 1, 0, 2, 4])
    found, counts = means(z, assignment, 6)
    for k in range(6):
        rows = [row for row, a in zip(z, assignment, strict=True) if a == k]
        assert counts[k] == len(rows)
        torch.testing.assert_close(found[k], sum(rows) / len(rows) if rows else torch.zeros(3, dtype=torch.float64))


# Stress, its surrogate, the Guttman transform


def test_even_is_hollow_and_otherwise_constant():
    assert even(3, 2.5).tolist() == [[0, 2.5, 2.5], [2.5, 0, 2.5], [2.5, 2.5, 0]]


@every_problem
def test_stress_surrogate_and_guttman_equal_the_loops(Y, delta, weights):
    X = gaussian(*Y.shape, seed=5)
    assert stress(X, delta, weights).item() == pytest.approx(naive_stress(X, delta, weights))
    assert surrogate(X, Y, delta, weights).item() == pytest.approx(naive_surrogate(X, Y, delta, weights))
    torch.testing.assert_close(guttman(Y, delta, weights), naive_guttman(Y, delta, weights))


def test_with_equal_weights_the_guttman_transform_is_a_sum_of_unit_vectors():
    Y, expected = gaussian(6, 4), torch.zeros(6, 4, dtype=torch.float64)
    for i, j in itertools.permutations(range(6), 2):
        expected[i] += 2.5 / 6 * (Y[i] - Y[j]) / norm(Y[i] - Y[j])
    torch.testing.assert_close(guttman(Y, even(6, 2.5)), expected)


@every_problem
def test_the_surrogate_lies_above_the_stress_and_touches_it_at_its_support(Y, delta, weights):
    for seed, size in itertools.product(range(10), (0.1, 1.0, 10.0)):
        for X in (Y + size * gaussian(*Y.shape, seed=seed), -size * Y):
            assert surrogate(X, Y, delta, weights) >= stress(X, delta, weights) * (1 - 1e-12)
    torch.testing.assert_close(surrogate(Y, Y, delta, weights), stress(Y, delta, weights))


@every_problem
def test_the_guttman_transform_minimises_the_surrogate(Y, delta, weights):
    X = guttman(Y, delta, weights).requires_grad_()
    lowest = surrogate(X, Y, delta, weights)
    (gradient,) = torch.autograd.grad(lowest, X)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)
    for seed in range(20):
        assert surrogate(X + 0.1 * gaussian(*Y.shape, seed=seed), Y, delta, weights) >= lowest - 1e-12


@every_problem
def test_stress_never_rises_under_the_guttman_transform(Y, delta, weights):
    before = stress(Y, delta, weights)
    for _ in range(50):
        Y = guttman(Y, delta, weights)
        after = stress(Y, delta, weights)
        assert after <= before * (1 + 1e-12) + 1e-24
        before = after


def test_points_that_coincide_do_not_push_each_other_and_never_part():
    Y = gaussian(5, 3)
    Y[1] = Y[0]
    for _ in range(20):
        torch.testing.assert_close(guttman(Y, even(5, 1.0)), naive_guttman(Y, even(5, 1.0), None))
        Y = guttman(Y, even(5, 1.0))
        assert torch.equal(Y[0], Y[1])
    assert surrogate(gaussian(5, 3, seed=1), Y, even(5, 1.0)) >= stress(gaussian(5, 3, seed=1), even(5, 1.0))


def test_the_papers_sign_flips_every_step_and_its_stopping_rule_never_fires():
    delta = even(6, 1.0)
    ours = papers = gaussian(6, 8)
    for step in range(1, 200):
        ours, before, papers = guttman(ours, delta), papers, naive_guttman(papers, delta, None, sign=+1)
        torch.testing.assert_close(papers, (-1) ** step * ours)
    assert spread(papers, 1.0) < 1e-6  # the distances are right, so a test of them alone does not notice
    assert norm((papers - before).flatten()) == pytest.approx(2 * norm(papers.flatten()), rel=1e-6)
    assert norm((ours - guttman(ours, delta)).flatten()) < 1e-6


# SMACOF


@pytest.mark.parametrize(("c", "dim"), [(5, 2), (8, 3), (6, 20)])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_smacof_agrees_with_scikit_learn_at_equal_steps(c, dim, steps):
    delta, start = symmetric(c), gaussian(c, dim, seed=1)
    theirs, their_stress = sklearn.manifold.smacof(
        delta.numpy(), init=start.numpy(), n_init=1, max_iter=steps, eps=0, normalized_stress=False
    )
    ours = smacof(delta, dim, start=start, steps=steps, tolerance=0)
    assert ours.steps == steps
    assert ours.stress == pytest.approx(their_stress)
    torch.testing.assert_close(ours.points, torch.from_numpy(theirs))


@every_problem
def test_smacof_is_the_guttman_transform_repeated(Y, delta, weights):
    expected = Y
    for _ in range(5):
        expected = guttman(expected, delta, weights)
    found = smacof(delta, Y.shape[1], weights=weights, start=Y + 100, steps=5, tolerance=-math.inf)
    torch.testing.assert_close(found.points, expected)
    assert found.stress == pytest.approx(stress(expected, delta, weights).item())


@pytest.mark.parametrize(("c", "dim"), [(3, 2), (8, 7), (8, 64)])
def test_smacof_finds_the_regular_simplex_where_there_is_one(c, dim):
    found = smacof(even(c, 3.0), dim, starts=1, generator=torch.Generator().manual_seed(0))
    assert spread(found.points, 3.0) < 1e-5
    assert found.steps < 1000


def test_smacof_in_two_dimensions_finds_the_square_and_the_pentagon():
    square, pentagon = (
        torch.pdist(smacof(even(c, 1.0), 2, generator=torch.Generator().manual_seed(0)).points).sort().values
        for c in (4, 5)
    )
    side = (2 + math.sqrt(2)) / 4  # minimises 4 (s − 1)² + 2 (√2 s − 1)²
    expected = torch.tensor([side] * 4 + [math.sqrt(2) * side] * 2, dtype=torch.float64)
    torch.testing.assert_close(square, expected, rtol=1e-5, atol=0)
    golden = (1 + math.sqrt(5)) / 2
    torch.testing.assert_close(pentagon[5:], pentagon[:5] * golden, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("c", "dim"), [(4, 2), (5, 3), (6, 4), (8, 6), (10, 8), (6, 3)])
def test_smacof_slightly_crowded_finds_orthogonal_simplices(c, dim):
    found = smacof(even(c, 1.0), dim, starts=2, generator=torch.Generator().manual_seed(0), tolerance=1e-10)
    gram = found.points @ found.points.T
    groups = {tuple(torch.nonzero(row.abs() > 1e-2).flatten().tolist()) for row in gram}
    sizes = [c // (c - dim) + (k < c % (c - dim)) for k in range(c - dim)]
    assert sorted(map(len, groups), reverse=True) == sizes
    assert sorted(itertools.chain(*groups)) == list(range(c))
    for group in groups:
        edges = torch.pdist(found.points[list(group)])
        assert edges.max() - edges.min() < 1e-2


@pytest.mark.parametrize("c", [2, 3, 8])
def test_smacof_on_a_line_keeps_the_order_of_its_start_and_spaces_it_evenly(c):
    start = gaussian(c, 1)
    found = smacof(even(c, 3.0), 1, start=start).points.flatten()
    assert torch.equal(found.argsort(), start.flatten().argsort())
    expected = torch.tensor([3.0 * (2 * r - c - 1) / c for r in range(1, c + 1)], dtype=torch.float64)
    torch.testing.assert_close(found.sort().values, expected)


def test_smacof_with_unequal_weights_reaches_what_a_general_optimiser_reaches():
    delta, weights, c, dim = symmetric(6), symmetric(6, seed=1), 6, 2

    def objective(flat):
        X = torch.tensor(flat.reshape(c, dim), requires_grad=True)
        value = stress(X, delta, weights)
        value.backward()
        return value.item(), X.grad.numpy().flatten()

    lowest = min(
        scipy.optimize.minimize(objective, gaussian(c, dim, seed=seed).numpy().flatten(), jac=True, method="BFGS").fun
        for seed in range(5)
    )
    found = smacof(delta, dim, weights=weights, starts=5, generator=torch.Generator().manual_seed(0))
    assert found.stress == pytest.approx(lowest, rel=1e-6)
    assert found.stress == pytest.approx(naive_stress(found.points, delta, weights))


def test_smacof_does_not_hear_of_pairs_without_weight():
    weights, delta = torch.ones(5, 5, dtype=torch.float64), symmetric(5)
    weights[1, 3] = weights[3, 1] = 0.0
    other = delta.clone()
    other[1, 3] = other[3, 1] = 77.0
    start = gaussian(5, 2)
    a, b = (smacof(d, 2, weights=weights, start=start, steps=20) for d in (delta, other))
    torch.testing.assert_close(a.points, b.points)


def test_smacof_of_a_collinear_start_stays_on_its_line():
    start = gaussian(5, 1) * gaussian(1, 8, seed=1)
    found = smacof(even(5, 1.0), 8, start=start)
    assert torch.linalg.matrix_rank(found.points, rtol=1e-9) == 1
    assert found.stress > 1


def test_smacof_keeps_the_lowest_of_its_starts():
    draws = torch.Generator().manual_seed(0)
    single = [smacof(even(6, 1.0), 2, starts=1, generator=draws) for _ in range(5)]
    together = smacof(even(6, 1.0), 2, starts=5, generator=torch.Generator().manual_seed(0))
    assert together.stress == min(found.stress for found in single) == pytest.approx(1.0718, abs=1e-4)
    assert max(found.stress for found in single) == pytest.approx(1.1437, abs=1e-4)  # METHODS 1.3 c: another minimum


def test_smacof_stops_by_the_papers_own_rule():
    delta, P = even(5, 1.0), gaussian(5, 6)
    start, taken = P, 0
    while True:  # Algorithm 1, lines 4–7
        Y, P, taken = P, guttman(P, delta), taken + 1
        if norm((Y - P).flatten()) <= 1e-3:
            break
    found = smacof(delta, 6, start=start, move=1e-3)
    assert found.steps == taken
    torch.testing.assert_close(found.points, P)


def test_smacof_stops_on_the_relative_fall_of_stress_whatever_the_scale():
    start = gaussian(7, 3)
    small, large = (smacof(even(7, size), 3, start=start, tolerance=1e-6) for size in (1e-3, 1e3))
    assert small.steps == large.steps < 1000
    last, before = (smacof(even(7, 1.0), 3, start=start, steps=small.steps - k, tolerance=0).stress for k in (0, 1))
    earlier = smacof(even(7, 1.0), 3, start=start, steps=small.steps - 2, tolerance=0).stress
    assert before - last <= 1e-6 * 21 < earlier - before


def test_smacof_answers_in_the_dtype_it_was_asked_in():
    assert smacof(even(4, 1.0).float(), 3).points.dtype == torch.float32


# The regular simplex


@pytest.mark.parametrize("c", [2, 5, 20, 100, 513])
def test_the_simplex_is_equidistant_centred_and_of_the_right_radius(c):
    points = simplex(c, 512)
    assert spread(points, 1.0) < 1e-12
    assert points.mean(0).abs().max() < 1e-12
    radius = torch.full((c,), math.sqrt((c - 1) / (2 * c)), dtype=torch.float64)
    torch.testing.assert_close(points.norm(dim=1), radius, rtol=1e-12, atol=0)


def test_a_simplex_of_one_point_is_the_origin():
    assert simplex(1, 3).tolist() == [[0, 0, 0]]


def test_more_than_dim_plus_one_points_are_refused():
    assert simplex(4, 3).shape == (4, 3)
    with pytest.raises(ValueError, match="5 equidistant points need at least 4 dimensions, found 3"):
        simplex(5, 3)


# Anchors


@pytest.mark.parametrize("orientation", ["aligned", "random"])
@pytest.mark.parametrize("c", [2, 5, 20, 100, 513])
def test_anchors_are_equidistant_and_centred(c, orientation):
    anchors = equidistant(gaussian(c, 512) + 3, 7.0, orientation)
    assert spread(anchors, 7.0) < 1e-12
    assert anchors.mean(0).abs().max() < 1e-12
    radius = torch.full((c,), 7 * math.sqrt((c - 1) / (2 * c)), dtype=torch.float64)
    torch.testing.assert_close(anchors.norm(dim=1), radius, rtol=1e-12, atol=0)


def test_aligned_anchors_are_nearer_to_the_prototypes_than_a_hundred_random_ones():
    prototypes = gaussian(10, 32)
    draws = torch.Generator().manual_seed(0)
    aligned = (centred(prototypes) - equidistant(prototypes, 2.0)).square().sum()
    for _ in range(100):
        assert aligned < (centred(prototypes) - equidistant(prototypes, 2.0, "random", draws)).square().sum()


@pytest.mark.parametrize(("c", "dim"), [(2, 1), (5, 4), (10, 32)])
def test_aligned_anchors_are_orthogonal_procrustes_and_the_polar_factor(c, dim):
    prototypes = gaussian(c, dim) + 3
    anchors = equidistant(prototypes, 2.0)
    rotation, _ = scipy.linalg.orthogonal_procrustes(simplex(c, dim).numpy(), centred(prototypes).numpy())
    torch.testing.assert_close(anchors, 2 * simplex(c, dim) @ torch.from_numpy(rotation))
    U, _, Vh = np.linalg.svd(centred(prototypes).numpy(), full_matrices=False)
    torch.testing.assert_close(anchors, torch.from_numpy(math.sqrt(2) * U[:, : c - 1] @ Vh[: c - 1]))


def test_permuting_prototypes_permutes_aligned_anchors():
    prototypes, order = gaussian(10, 32), torch.randperm(10, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(equidistant(prototypes[order], 2.0), equidistant(prototypes, 2.0)[order])


def test_anchors_of_equidistant_prototypes_are_these_prototypes():
    prototypes = equidistant(gaussian(6, 9), 2.0, "random")
    torch.testing.assert_close(equidistant(prototypes + 5, 2.0), prototypes)


@pytest.mark.parametrize(
    "prototypes",
    [
        torch.ones(4, 3, dtype=torch.float64),
        torch.ones(4, 9, dtype=torch.float64),
        gaussian(3, 9)[[0, 0, 1, 2, 2, 2]],
        gaussian(3, 5)[[0, 0, 1, 2, 2, 2]],
        gaussian(6, 1) * gaussian(1, 8, seed=1),
    ],
    ids=["one place, no room", "one place", "duplicates", "duplicates, no room", "on a line"],
)
def test_prototypes_without_rank_have_equidistant_aligned_anchors_all_the_same(prototypes):
    anchors = equidistant(prototypes, 2.0)
    assert spread(anchors, 2.0) < 1e-12
    assert anchors.mean(0).abs().max() < 1e-12
    rotation, _ = scipy.linalg.orthogonal_procrustes(anchors.numpy(), centred(prototypes).numpy())
    best = anchors @ torch.from_numpy(rotation)
    assert (anchors * centred(prototypes)).sum().item() == pytest.approx((best * centred(prototypes)).sum().item())


def test_random_anchors_forget_the_prototypes_and_follow_the_generator():
    a, b = (equidistant(gaussian(5, 8, seed=s), 2.0, "random", torch.Generator().manual_seed(3)) for s in (0, 1))
    other = equidistant(gaussian(5, 8), 2.0, "random", torch.Generator().manual_seed(4))
    assert torch.equal(a, b)
    assert (a - other).abs().max() > 0.1


def test_random_anchors_favour_no_direction():
    draws = torch.Generator().manual_seed(0)
    anchors = torch.stack([equidistant(gaussian(3, 2), 1.0, "random", draws) for _ in range(100)])
    assert anchors.mean(0).abs().max() < 0.2
    sides = anchors[:, 1, 0] * anchors[:, 2, 1] - anchors[:, 1, 1] * anchors[:, 2, 0]
    assert (sides > 0).double().mean().item() == pytest.approx(0.5, abs=0.2)  # reflections are as likely as not


def test_one_prototype_has_its_anchor_at_the_origin():
    for orientation in ("aligned", "random"):
        assert equidistant(gaussian(1, 4), 2.0, orientation).tolist() == [[0, 0, 0, 0]]


def test_anchors_have_the_dtype_of_the_prototypes_and_no_gradient():
    anchors = equidistant(gaussian(4, 6).float().requires_grad_(), 2.0)
    assert anchors.dtype == torch.float32
    assert not anchors.requires_grad


@pytest.mark.parametrize("orientation", ["aligned", "random"])
def test_crowded_anchors_warn_of_the_distance_they_reached(orientation):
    with pytest.warns(UserWarning, match="5 anchors cannot be equidistant in 2 dimensions") as caught:
        anchors = equidistant(gaussian(5, 2), 3.0, orientation, torch.Generator().manual_seed(0))
    reached, share = re.search(r"two are (\S+) apart, (\S+)% of the distance 3 ", str(caught[0].message)).groups()
    assert float(reached) == pytest.approx(torch.pdist(anchors).min().item(), rel=1e-3)
    assert float(share) == pytest.approx(100 * float(reached) / 3, abs=0.1)
    assert torch.pdist(anchors).max() / torch.pdist(anchors).min() == pytest.approx((1 + math.sqrt(5)) / 2, rel=1e-5)
    assert anchors.mean(0).abs().max() < 1e-12


def test_crowded_aligned_anchors_keep_the_arrangement_of_their_prototypes():
    angles = torch.tensor([0.0, 2, 4, 1, 3], dtype=torch.float64) * 2 * math.pi / 5
    prototypes = torch.stack([angles.cos(), angles.sin()], dim=1) + 0.1 * gaussian(5, 2) + 1e6
    with pytest.warns(UserWarning, match="cannot be equidistant"):
        anchors = equidistant(prototypes, 2.0, generator=torch.Generator().manual_seed(1))
    rotation, agreement = scipy.linalg.orthogonal_procrustes(anchors.numpy(), centred(prototypes).numpy())
    torch.testing.assert_close(torch.from_numpy(rotation), torch.eye(2, dtype=torch.float64))
    assert agreement > 0.95 * norm(anchors.flatten()) * norm(centred(prototypes).flatten())


@pytest.mark.parametrize("on_a_line", [True, False])
def test_crowded_prototypes_that_coincide_or_lie_on_a_line_still_part(on_a_line):
    prototypes = gaussian(4, 1) * gaussian(1, 2, seed=1) if on_a_line else torch.ones(4, 2, dtype=torch.float64)
    with pytest.warns(UserWarning, match="cannot be equidistant"):
        anchors = equidistant(prototypes, 1.0, generator=torch.Generator().manual_seed(0))
    edges = torch.pdist(anchors)
    assert (edges.max() / edges.min()).item() == pytest.approx(math.sqrt(2), rel=1e-5)


# How far apart


def test_the_target_distance_is_alpha_times_the_largest_and_at_most_the_cap():
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    assert target_distance(prototypes, 1.5) == pytest.approx(7.5)
    assert target_distance(prototypes, 1.5, cap=2.0) == 2.0
    assert target_distance(prototypes, 1.5, cap=8.0) == pytest.approx(7.5)
    assert target_distance(prototypes[:1], 1.5) == 0.0


@pytest.mark.parametrize("alpha", [0.5, 1, 1.0])
def test_an_alpha_that_spaces_nothing_out_is_warned_of(alpha):
    with pytest.warns(UserWarning, match="the paper asks for alpha > 1"):
        assert target_distance(torch.eye(2), alpha) == pytest.approx(alpha * math.sqrt(2))


# More anchors


@pytest.mark.parametrize(("c", "more", "dim"), [(2, 1, 2), (5, 3, 7), (5, 3, 64), (20, 80, 512), (5, 0, 6)])
def test_extended_anchors_are_equidistant_and_the_old_ones_stay(c, more, dim):
    anchors = equidistant(gaussian(c, dim), 3.0) + gaussian(dim, seed=1)
    extended = extend(anchors, more)
    assert extended.shape == (c + more, dim)
    assert torch.equal(extended[:c], anchors)
    assert spread(extended, 3.0) < 1e-12


def test_anchors_extended_twice_are_equidistant_as_if_extended_once_and_the_first_ones_stay():
    anchors = equidistant(gaussian(5, 20), 3.0)
    extended = extend(extend(anchors, 4), 12)
    assert torch.equal(extended[:5], anchors)
    assert extended.shape == (21, 20)
    assert spread(extended, 3.0) < 1e-12


def test_extended_anchors_are_turned_towards_given_points_as_far_as_the_old_ones_let_them():
    anchors, wanted = orthonormal(gaussian(4, 12)), gaussian(3, 12, seed=2)
    plain, turned = extend(anchors, 3), extend(anchors, 3, wanted)
    assert torch.equal(turned[:4], anchors)
    assert spread(turned, math.sqrt(2)) < 1e-12

    def far(extended):
        return (extended[4:] - wanted).norm().item()

    assert far(turned) < far(plain)
    basis = torch.linalg.svd(anchors - anchors.mean(0)).Vh[3:].T  # directions in which they may be turned
    for seed in range(20):
        rotation = torch.linalg.qr(gaussian(9, 9, seed=3 + seed)).Q
        other = anchors.mean(0) + (turned[4:] - anchors.mean(0)) @ basis @ rotation @ basis.T
        assert far(turned) <= (other - wanted).norm().item() + 1e-9


def test_extending_anchors_moves_their_centroid_towards_the_new_ones():
    extended = extend(equidistant(gaussian(4, 9), 3.0), 2)
    c, more = 4, 2
    between = 3.0 * math.sqrt((1 / c + 1 / more) / 2)  # from the old centroid to that of the new anchors
    assert extended.mean(0).norm().item() == pytest.approx(between * more / (c + more))


def test_extended_anchors_keep_dtype_and_carry_no_gradient():
    extended = extend(equidistant(gaussian(4, 9).float(), 3.0).requires_grad_(), 2)
    assert extended.dtype == torch.float32
    assert not extended.requires_grad
    assert spread(extended, 3.0) < 1e-6


def test_anchors_that_cannot_be_extended_are_refused():
    with pytest.raises(InputError, match=r"4 anchors cannot be extended by 1 in 3 dimensions: .*room for 4"):
        extend(simplex(4, 3), 1)
    with pytest.raises(ValueError, match="two anchors at least, found 1"):
        extend(simplex(1, 3), 1)


def test_the_shared_covariance_is_that_around_each_point_s_own_mean():
    z = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(30) % 3
    centres, _ = means(z, labels, 3)
    total = torch.zeros(4, 4, dtype=torch.float64)
    for row, label in zip(z, labels.tolist(), strict=True):
        rest = row - z[labels == label].mean(0)
        total += torch.outer(rest, rest)
    torch.testing.assert_close(covariance(z, labels, centres), total / 27)


def test_whitening_makes_a_covariance_round():
    root = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    S = root @ root.T
    W = whitening(S, shrink=0.0)
    torch.testing.assert_close(W @ S @ W, torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(W, W.T)


def test_the_root_of_a_covariance_gives_it_back_also_where_some_directions_are_empty():
    x = gaussian(4, 6)
    S = x.T @ x  # of rank 4
    R = covariance_root(S)
    torch.testing.assert_close(R @ R.T, S)
    assert covariance_root(S.float()).dtype == torch.float64
    assert not covariance_root(torch.zeros(3, 3)).any()


def test_whitening_is_shrunk_by_the_mean_of_the_spreads():
    S = torch.diag(torch.tensor([4.0, 1.0, 0.0, 0.0]))  # mean 1.25, half of it added
    torch.testing.assert_close(whitening(S, shrink=0.5), torch.diag(torch.tensor([4.625, 1.625, 0.625, 0.625]) ** -0.5))


@pytest.mark.parametrize(("n", "dim", "k"), [(50, 8, 3), (50, 8, 8), (6, 20, 4), (50, 8, 1)])
def test_principal_coordinates_are_those_of_scikit_learn(n, dim, k):
    x = gaussian(n, dim) @ gaussian(dim, dim, seed=1) + 5
    expected = sklearn.decomposition.PCA(k).fit_transform(x.numpy())
    torch.testing.assert_close(principal(x, k), torch.from_numpy(expected))


def test_principal_coordinates_keep_every_distance_when_there_is_room_and_are_uncorrelated():
    x = gaussian(30, 4)
    coordinates = principal(x, 6)
    torch.testing.assert_close(torch.pdist(coordinates), torch.pdist(x))
    assert not coordinates[:, 4:].any()
    products = coordinates.T @ coordinates
    assert (products - torch.diag(products.diagonal())).abs().max() < 1e-10
    assert (products.diagonal().diff() <= 0).all()


def test_points_in_one_place_have_principal_coordinates_0_in_their_dtype():
    coordinates = principal(torch.ones(5, 3).requires_grad_(), 2)
    assert coordinates.dtype == torch.float32
    assert not coordinates.any()
    assert not coordinates.requires_grad


@pytest.mark.parametrize(("n", "dim", "k"), [(50, 8, 3), (6, 20, 4)])
def test_principal_axes_are_those_of_scikit_learn_but_for_their_signs(n, dim, k):
    x = gaussian(n, dim) @ gaussian(dim, dim, seed=1) + 5
    expected = sklearn.decomposition.PCA(k).fit(x.numpy())
    centre, V = principal_axes(x, k)
    torch.testing.assert_close(centre, torch.from_numpy(expected.mean_))
    turns = torch.from_numpy(expected.components_) @ V
    torch.testing.assert_close(turns.abs(), torch.eye(k, dtype=torch.float64))
    torch.testing.assert_close((x - centre) @ V, principal(x, k))


@pytest.mark.parametrize(("n", "dim", "filled"), [(30, 3, 3), (4, 9, 3)])
def test_principal_axes_beyond_those_that_points_fill_are_0(n, dim, filled):
    _, V = principal_axes(gaussian(n, dim), 5)
    torch.testing.assert_close(V.T @ V, torch.diag((torch.arange(5) < filled).double()))
    assert not V[:, filled:].any()


# Latents before and after


@pytest.mark.parametrize("shrink", [0.0, 0.5])
def test_an_affine_fit_is_that_of_scipy_on_rows_added_for_the_ridge(shrink):
    before, after = gaussian(40, 5) + 3, gaussian(40, 5, seed=1)
    A, b = affine_fit(before, after, shrink)
    weight = math.sqrt(shrink * sum(float(((column - column.mean()) ** 2).sum()) for column in before.T) / 5)
    rows = torch.cat([torch.cat([before, torch.ones(40, 1)], 1), weight * torch.eye(5, 6)]).double()
    targets = torch.cat([after, weight * torch.eye(5, dtype=torch.float64)])
    solution = torch.from_numpy(scipy.linalg.lstsq(rows.numpy(), targets.numpy())[0])
    torch.testing.assert_close(A, solution[:5])
    torch.testing.assert_close(b, solution[5])


def test_a_map_that_is_affine_is_found_and_holds_far_from_the_points_too():
    before, M, shift = gaussian(40, 6), gaussian(6, 6, seed=1), gaussian(6, seed=2)
    A, b = affine_fit(before, before @ M + shift, shrink=0.0)
    torch.testing.assert_close(A, M)
    torch.testing.assert_close(b, shift)


@pytest.mark.parametrize("shrink", [0.0, 1e-3])
def test_directions_that_no_point_fills_are_left_as_they_are(shrink):
    before = gaussian(40, 5)
    before[:, 3:] = torch.tensor([2.0, 7.0])
    after = before * torch.tensor([2.0, 3.0, 0.5, 1.0, 1.0]) + torch.tensor([0.0, 1.0, 0.0, 0.0, 4.0])
    A, b = affine_fit(before, after, shrink)
    torch.testing.assert_close(A[3:], torch.eye(5, dtype=torch.float64)[3:])
    torch.testing.assert_close(before.mean(0) @ A + b, after.mean(0))
    torch.testing.assert_close(b[3:], torch.tensor([0.0, 4.0], dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("shrink", [0.0, 1e-3])
def test_points_in_one_place_tell_a_shift_and_nothing_else(n, shrink):
    A, b = affine_fit(torch.ones(n, 3), torch.full((n, 3), 3.0), shrink)
    assert torch.equal(A, torch.eye(3))
    assert b.tolist() == [2.0, 2.0, 2.0]


def test_a_strong_ridge_leaves_nothing_but_the_shift_of_the_mean():
    before, after = gaussian(40, 5), gaussian(40, 5, seed=1)
    A, b = affine_fit(before, after, shrink=1e12)
    torch.testing.assert_close(A, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(b, after.mean(0) - before.mean(0))


def test_an_affine_fit_is_worked_out_exactly_whatever_the_dtype_and_carries_no_gradient():
    before, M = gaussian(40, 6).float() + 1000, gaussian(6, 6, seed=1)
    after = (before.double() @ M).float()
    A, b = affine_fit(before.requires_grad_(), after, shrink=0.0)
    assert A.dtype == b.dtype == torch.float32
    assert not A.requires_grad
    torch.testing.assert_close(A.double(), M, rtol=1e-3, atol=1e-3)


def test_a_covariance_of_nothing_leaves_everything_as_it_is():
    assert torch.equal(whitening(torch.zeros(3, 3).double(), shrink=0.3), torch.eye(3).double())


@pytest.mark.parametrize("width", [0.5, 2.0])
def test_drift_equals_the_loop_over_classes_and_images(width):
    centres, before, after = gaussian(3, 5), gaussian(20, 5, seed=1), gaussian(20, 5, seed=2)
    found = drift(centres, before, after, width)
    for k, centre in enumerate(centres):
        total, weights = torch.zeros(5).double(), 0.0
        for z, moved in zip(before, after, strict=True):
            weight = math.exp(-((z - centre) ** 2).sum().item() / (2 * width**2))
            total += weight * (moved - z)
            weights += weight
        torch.testing.assert_close(found[k], total / weights)


def test_where_all_images_moved_alike_classes_moved_with_them():
    centres, before, shift = gaussian(4, 6), gaussian(30, 6, seed=1), gaussian(1, 6, seed=2)
    torch.testing.assert_close(drift(centres, before, before + shift, 0.7), shift.expand(4, 6))


def test_a_class_moves_as_the_images_near_it_do_and_one_far_from_all_as_the_nearest():
    before = torch.cat([gaussian(10, 3), gaussian(10, 3, seed=1) + 30])
    moves = torch.tensor([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0]]).double()
    after = before + moves.repeat_interleave(10, 0)
    centres = torch.tensor([[0.0] * 3, [30.0] * 3, [5000.0] * 3]).double()
    found = drift(centres, before, after, width=1.0)
    torch.testing.assert_close(found, moves[[0, 1, 1]])  # exp(−12 million) is 0, and 0/0 is no answer


def test_where_the_quick_way_to_eigenvectors_gives_up_the_sure_one_goes_on(monkeypatch):
    x = torch.randn(30, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = directions(x.T @ x)

    def give_up(matrix):
        raise torch.linalg.LinAlgError("it did not converge")

    monkeypatch.setattr(torch.linalg, "eigh", give_up)
    torch.testing.assert_close(directions(x.T @ x), expected)
