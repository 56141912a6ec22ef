import numpy as np
import pytest

from newfound.report.maps import flatten, flatten_apart, principal


def blobs(n: int) -> np.ndarray:
    """Two groups far apart, taking turns."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 8)).astype(np.float32) + 20 * (np.arange(n)[:, None] % 2)


def test_a_map_separates_far_groups():
    rows, points = flatten(blobs(60), seed=0)
    assert rows.tolist() == list(range(60))
    middles = points[::2].mean(axis=0), points[1::2].mean(axis=0)
    nearer = np.linalg.norm(points - middles[0], axis=1) < np.linalg.norm(points - middles[1], axis=1)
    assert (nearer == (rows % 2 == 0)).all()


def test_equal_seeds_give_equal_maps():
    once, again = flatten(blobs(60), seed=3), flatten(blobs(60), seed=3)
    np.testing.assert_array_equal(once[1], again[1])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5])
def test_few_rows_have_places_too(n):
    rows, points = flatten(blobs(n), seed=0)
    assert rows.tolist() == list(range(n))
    assert points.shape == (n, 2)
    assert np.isfinite(points).all()


@pytest.mark.parametrize("features", [np.ones((20, 8)), np.ones((20, 1)), np.eye(20)[[0] * 10 + [1] * 10]])
def test_equal_rows_have_finite_places(features):
    assert np.isfinite(flatten(features, seed=0)[1]).all()


def test_one_feature_is_enough():
    assert np.isfinite(flatten(np.linspace(0, 1, 20)[:, None], seed=0)[1]).all()


def test_of_many_rows_evenly_chosen_ones_are_shown():
    rows, points = flatten(blobs(101), seed=0, most=51)
    assert rows.tolist() == list(range(0, 101, 2))
    assert points.shape == (51, 2)


def test_main_directions_keep_distances():
    features = blobs(30)
    kept = principal(features, 50)
    assert kept.shape == (30, 8)
    for i, j in [(0, 1), (3, 17), (28, 29)]:
        np.testing.assert_allclose(
            np.linalg.norm(kept[i] - kept[j]), np.linalg.norm(features[i] - features[j]), rtol=1e-5
        )


@pytest.mark.processes
def test_a_process_of_its_own_makes_the_same_map():
    np.testing.assert_array_equal(flatten_apart(blobs(60), seed=3), flatten(blobs(60), seed=3, most=60)[1])


def test_where_no_process_can_be_started_the_map_is_made_here(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.executable", str(tmp_path / "gone"))
    np.testing.assert_array_equal(flatten_apart(blobs(12), seed=3), flatten(blobs(12), seed=3, most=12)[1])
