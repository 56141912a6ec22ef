"""scikit-learn's own questions, and what its manners do not promise: directions, known classes, new names."""

import doctest
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import newfound
from newfound import estimators, methods
from newfound.errors import InputError
from newfound.estimators import INERTIA, NovelClassDiscovery, SpacingClustering
from newfound.functional import cluster, geometry
from newfound.functional.metrics import accuracy
from newfound.functional.rows import gathered, numbered
from newfound.methods import METHODS
from newfound.training.train import train
from newfound.types import Problem

CLASSES, KNOWN = 6, 3
GUIDE = Path(__file__).parents[1] / "docs/guide.md"
ABLE = [name for name, recipe in METHODS.items() if not recipe.pixels and not recipe.maps]


@parametrize_with_checks([SpacingClustering(), NovelClassDiscovery()])
def test_scikit_learn_finds_its_manners(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rays():
    """Classes that lie in directions of their own, near and far: X, truth, and labels of half of the known ones."""
    rng = np.random.RandomState(1)
    truth = rng.permutation(np.repeat(np.arange(CLASSES), 40))
    X = np.linalg.qr(rng.randn(12, 12))[0][truth] + 0.2 * rng.randn(len(truth), 12)
    X *= rng.uniform(0.3, 3, (len(truth), 1))
    return X, truth, np.where((truth < KNOWN) & (np.arange(len(truth)) % 2 == 0), truth, -1)


@pytest.fixture(scope="module")
def clustered(rays):
    return SpacingClustering(CLASSES).fit(rays[0])


@pytest.fixture(scope="module")
def discovered(rays):
    X, _, y = rays
    return NovelClassDiscovery(CLASSES - KNOWN).fit(X, y)


def right(truth, labels):
    return accuracy(torch.as_tensor(truth), torch.as_tensor(labels))


def same(a, b):
    assert np.array_equal(a.labels_, b.labels_)
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)


# Clustering


def test_classes_that_differ_in_direction_are_found_where_k_means_sees_lengths(rays, clustered):
    X, truth, _ = rays
    standard = StandardScaler().fit_transform(X)
    assert right(truth, KMeans(CLASSES, n_init=20, random_state=0).fit_predict(standard)) < 0.85
    assert right(truth, clustered.labels_) > 0.98


@pytest.mark.parametrize(("features", "centres", "seed"), [(2, 5, 3), (2, 4, 11), (3, 6, 5)])
def test_blobs_that_lie_between_others_are_found_too(features, centres, seed):
    X, truth = make_blobs(300, n_features=features, centers=centres, random_state=seed)
    assert right(truth, SpacingClustering(centres).fit_predict(X)) > 0.97


def test_blobs_along_a_single_feature_are_found():
    X, truth = make_blobs(300, n_features=1, centers=[[0], [5], [10], [15]], cluster_std=0.5, random_state=0)
    assert right(truth, SpacingClustering(4).fit_predict(X)) > 0.98


def test_training_draws_rows_to_their_own_centre_and_centres_apart(rays, clustered):
    def apart(model):
        z, centres = model.transform(rays[0]), model.cluster_centers_
        between = np.linalg.norm(centres[:, None] - centres, axis=2)[~np.eye(CLASSES, dtype=bool)].min()
        return between / np.linalg.norm(z - centres[model.labels_], axis=1).mean()

    assert clustered.n_iter_ == 15
    assert apart(clustered) > 1.2 * apart(SpacingClustering(CLASSES, epochs=0).fit(rays[0]))


def test_clusters_are_numbered_by_their_size(rays):
    X, truth, _ = rays
    rows = np.concatenate([np.flatnonzero(truth == label)[: 10 + 5 * label] for label in range(CLASSES)])
    labels = SpacingClustering(CLASSES).fit_predict(X[rows])
    sizes = np.bincount(labels, minlength=CLASSES)
    assert (np.diff(sizes) <= 0).all()
    assert sizes[0] > sizes[-1]


def test_anchors_find_room_for_more_clusters_than_features():
    X, _ = make_blobs(100, n_features=2, centers=3, random_state=0)
    model = SpacingClustering(20).fit(X)
    assert model.cluster_centers_.shape == (20, 19)
    assert set(model.labels_) == set(range(20))


def test_the_work_of_many_known_classes_grows_as_their_number_does(monkeypatch):
    work, sweep = [], cluster._sweep

    def counted(x, centres, chunk):
        work[-1].append(x.shape[1] * centres.shape[1])  # a row's, of each start
        return sweep(x, centres, chunk)

    monkeypatch.setattr(cluster, "_sweep", counted)
    monkeypatch.setattr(geometry, "PAIRS", 0)  # how well anchors stand apart does not matter
    numbers = (80, 160, 320)
    for known in numbers:
        work.append([])
        X, truth = make_blobs(4 * known, n_features=8, centers=known, random_state=0, shuffle=False)
        y = np.where(np.arange(len(X)) % 2, truth, -1)
        model = NovelClassDiscovery(4, epochs=1).fit(X, y)
        assert model.adapter_.dim == 64
    per_class = [max(some) / (known + 4) for some, known in zip(work, numbers, strict=True)]
    assert per_class == [64, 64, 64]


# What does not matter


@pytest.mark.parametrize("change", [lambda X: 1000 * X, lambda X: X * np.logspace(-4, 4, 12), lambda X: X + 1e4])
def test_units_and_offsets_change_nothing(rays, clustered, discovered, change):
    X, _, y = rays
    assert np.array_equal(SpacingClustering(CLASSES).fit_predict(change(X)), clustered.labels_)
    assert np.array_equal(clone(discovered).fit_predict(change(X), y), discovered.labels_)


@pytest.mark.parametrize("unit", [1e300, 1e-300, 1e305, 1e-306])
def test_units_near_the_ends_of_floating_point_change_nothing(rays, clustered, discovered, unit):
    X, _, y = rays
    shrunk = X / np.abs(X).max()
    model = SpacingClustering(CLASSES).fit(shrunk * unit)
    assert np.array_equal(model.labels_, clustered.labels_)
    assert np.array_equal(model.predict(shrunk * unit), clustered.labels_)
    assert np.array_equal(clone(discovered).fit_predict(shrunk * unit, y), discovered.labels_)
    assert np.isfinite(model.transform(shrunk * unit)).all()


def test_units_that_are_powers_of_two_change_no_bit(rays, clustered):
    model = clone(clustered).fit(rays[0] * 2.0**900)
    assert np.array_equal(model.cluster_centers_, clustered.cluster_centers_)
    assert np.array_equal(model.mean_, clustered.mean_ * 2.0**900)


def test_a_constant_feature_near_the_end_of_floating_point_changes_nothing(rays, clustered):
    X = np.column_stack([rays[0], np.full(len(rays[0]), 1.7e308)])
    assert np.array_equal(SpacingClustering(CLASSES).fit_predict(X), clustered.labels_)


def test_a_row_in_other_units_that_cannot_be_compared_is_refused(rays, clustered):
    with pytest.raises(InputError, match=r"Row 2 lies more than 1e\+75 deviations from what was fitted"):
        clustered.predict(np.where(np.arange(4)[:, None] == 2, 1e300, rays[0][:4]))


def test_permuted_rows_have_permuted_labels(rays, clustered, discovered):
    X, _, y = rays
    order = np.random.RandomState(7).permutation(len(X))
    again = clone(clustered).fit(X[order])
    assert np.array_equal(again.cluster_centers_, clustered.cluster_centers_)
    assert np.array_equal(again.labels_, clustered.labels_[order])
    again = clone(discovered).fit(X[order], y[order])
    assert np.array_equal(again.cluster_centers_, discovered.cluster_centers_)
    assert np.array_equal(again.labels_, discovered.labels_[order])


def test_a_constant_feature_changes_nothing_also_when_it_is_not_constant_later(rays, clustered):
    X = np.column_stack([rays[0], np.full(len(rays[0]), 0.1)])
    model = SpacingClustering(CLASSES).fit(X)
    assert np.array_equal(model.labels_, clustered.labels_)
    X[:, -1] += 1
    assert np.array_equal(model.predict(X), clustered.labels_)


def test_single_precision_finds_the_same(rays, clustered):
    X = rays[0].astype(np.float32)
    model = SpacingClustering(CLASSES).fit(X)
    assert np.array_equal(model.labels_, clustered.labels_)
    assert model.transform(X).dtype == np.float32


# Seeds, copies, torch


def test_equal_seeds_give_equal_bits_and_others_do_not(rays, clustered, discovered):
    X, _, y = rays
    same(clone(clustered).fit(X), clustered)
    same(clone(discovered).fit(X, y), discovered)
    other = clone(clustered).set_params(random_state=1).fit(X)
    assert not np.array_equal(other.cluster_centers_, clustered.cluster_centers_)


def test_seeds_are_taken_in_scikit_learn_s_manner(rays):
    X = rays[0][:60]
    model = SpacingClustering(3, epochs=2)

    def centres(random_state):
        return clone(model).set_params(random_state=random_state).fit(X).cluster_centers_

    assert np.array_equal(centres(5), centres(np.random.RandomState(5)))
    state = np.random.RandomState(5)
    assert not np.array_equal(centres(state), centres(state))
    np.random.seed(3)  # noqa: NPY002 (what None means in scikit-learn)
    first = centres(None)
    np.random.seed(3)  # noqa: NPY002
    assert np.array_equal(centres(None), first)


def test_a_pickled_estimator_predicts_the_same(rays, clustered, discovered):
    X = rays[0][:50] + 0.01
    for model in (clustered, discovered):
        copy = pickle.loads(pickle.dumps(model))
        assert np.array_equal(copy.predict(X), model.predict(X))
        assert np.array_equal(copy.transform(X), model.transform(X))


@pytest.mark.parametrize("within", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_torch_is_left_as_it_was_and_may_be_in_any_mode(rays, within):
    X, _, y = rays
    expected = NovelClassDiscovery(3, epochs=2).fit(X, y)
    torch.manual_seed(11)
    with within():
        before = torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        model = NovelClassDiscovery(3, epochs=2).fit(X, y)
        model.predict(X)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (torch.get_num_threads(), torch.get_default_dtype()) == before[1:]
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == modes
    same(model, expected)


def test_the_package_is_still_imported_without_torch():
    assert newfound.SpacingClustering is SpacingClustering
    code = "import newfound, sys; newfound.__all__; assert not {'torch', 'sklearn'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


# Predictions


def test_what_was_fitted_is_predicted_as_it_was_labelled(rays, clustered, discovered):
    X, _, y = rays
    assert np.array_equal(clustered.predict(X), clustered.labels_)
    assert np.array_equal(discovered.predict(X)[y < 0], discovered.labels_[y < 0])


def test_other_rows_of_the_same_classes_are_predicted_right(rays):
    X, truth, y = rays
    first, rest = np.arange(len(X)) < 160, np.arange(len(X)) >= 160
    clusters = SpacingClustering(CLASSES).fit(X[first])
    assert right(truth[rest], clusters.predict(X[rest])) > 0.95
    found = NovelClassDiscovery(CLASSES - KNOWN).fit(X[first], y[first])
    known = truth[rest] < KNOWN
    assert right(truth[rest], found.predict(X[rest])) > 0.9
    assert np.mean(found.predict(X[rest])[known] == truth[rest][known]) > 0.9


def test_a_row_is_predicted_as_the_nearest_centre_of_its_latent(rays, clustered, discovered):
    X = rays[0]
    for model, names in ((clustered, np.arange(CLASSES)), (discovered, discovered.classes_)):
        z = model.transform(X)
        np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1)
        places = np.linalg.norm(z[:, None] - model.cluster_centers_, axis=2).argmin(1)
        assert np.array_equal(names[places], model.predict(X))


def test_latents_can_be_a_step_of_a_pipeline_and_a_table(rays, clustered):
    pipeline = make_pipeline(FunctionTransformer(), SpacingClustering(CLASSES)).fit(rays[0])
    assert np.array_equal(pipeline.predict(rays[0]), clustered.labels_)
    table = clone(clustered).set_output(transform="pandas").fit_transform(rays[0])
    assert list(table.columns[:2]) == ["spacingclustering0", "spacingclustering1"]


# Known classes


def test_known_classes_among_unlabelled_rows_are_recognised_and_new_ones_found(rays, discovered):
    _, truth, y = rays
    hidden, labels = y < 0, discovered.labels_
    known = hidden & (truth < KNOWN)
    assert discovered.classes_.tolist() == [*range(CLASSES)]
    assert np.mean(labels[known] == truth[known]) > 0.95
    assert right(truth[hidden], labels[hidden]) > 0.95
    assert (labels[hidden & (truth >= KNOWN)] >= KNOWN).mean() > 0.9


def test_labelled_rows_keep_their_label_also_where_it_is_wrong(rays):
    X, _, y = rays
    wrong = y.copy()
    wrong[np.flatnonzero(y == 0)[:2]] = 1
    model = NovelClassDiscovery(CLASSES - KNOWN).fit(X, wrong)
    assert np.array_equal(model.labels_[wrong >= 0], wrong[wrong >= 0])
    assert (model.predict(X)[np.flatnonzero(y == 0)[:2]] == 0).any()


def test_what_differs_within_known_classes_is_made_small():
    rng = np.random.RandomState(0)
    truth = rng.permutation(np.repeat(np.arange(4), 50))
    X = rng.randn(200, 2)[:, np.arange(20) % 2] + 0.3 * rng.randn(200, 20)  # two things that all classes share
    X[:, :2] = 2 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])[truth] + 0.7 * rng.randn(200, 2)
    y = np.where((truth < 2) & (rng.rand(200) < 0.7), truth, -1)
    hidden = y < 0
    assert right(truth[hidden], NovelClassDiscovery(4).fit(X).labels_[hidden]) < 0.7
    assert right(truth[hidden], NovelClassDiscovery(2).fit(X, y).labels_[hidden]) > 0.9


@pytest.mark.parametrize(("method", "single"), [("pairs+spacing", True), ("dtc", False)])
def test_methods_are_told_that_unlabelled_rows_may_be_of_known_classes(rays, monkeypatch, method, single):
    X, _, y = rays
    told, recipe = [], methods.parse(method)

    def listening(problem, model):
        told.append(problem)
        return recipe.build(problem, model)

    monkeypatch.setattr(methods, "parse", lambda name, **settings: replace(recipe, build=listening))
    NovelClassDiscovery(CLASSES - KNOWN, method=method, epochs=1).fit(X, y)
    rows = len(X) if single else int((y < 0).sum())
    assert told == [Problem(told[0].dim, KNOWN, CLASSES - KNOWN, labelled=single, rows=rows, mixed=True)]


@pytest.mark.parametrize(
    ("method", "heavy"), [("pairs+spacing:aligned", True), ("pairs+spacing:paper", False), ("pairs", False)]
)
def test_prototypes_start_heavy_unless_their_preset_says_how_heavy(rays, monkeypatch, method, heavy):
    X, _, y = rays
    asked, parse = [], methods.parse

    def listening(name, **settings):
        asked.append(settings.get("initial"))
        return parse(name, **settings)

    monkeypatch.setattr(methods, "parse", listening)
    NovelClassDiscovery(CLASSES - KNOWN, method=method, epochs=3).fit(X, y)
    assert asked[-1] == (INERTIA * 3 * len(X) / CLASSES if heavy else None)


def test_where_nothing_is_labelled_all_classes_are_new(rays):
    X, truth, _ = rays
    alone = NovelClassDiscovery(CLASSES).fit(X)
    assert alone.classes_.tolist() == [*range(CLASSES)]
    assert right(truth, alone.labels_) > 0.95
    same(NovelClassDiscovery(CLASSES).fit(X, np.full(len(X), -1)), alone)


def test_where_everything_is_labelled_nothing_is_new(rays):
    X, truth, _ = rays
    model = NovelClassDiscovery(2).fit(X, truth)
    assert model.classes_.tolist() == [*range(CLASSES)]
    assert np.array_equal(model.labels_, truth)
    assert np.mean(model.predict(X) == truth) > 0.95


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (np.array(["crab", "eel", "ray", -1], dtype=object), ["crab", "eel", "ray", "new-1", "new-2", "new-3"]),
        (np.array(["crab", "eel", "ray", -1.0], dtype=object), ["crab", "eel", "ray", "new-1", "new-2", "new-3"]),
        (np.array(["crab", "eel", "ray", "-1"]), ["crab", "eel", "ray", "new-1", "new-2", "new-3"]),
        (np.array(["a", "new-1", "new-3", "-1"]), ["a", "new-1", "new-3", "new-2", "new-4", "new-5"]),
        (np.array([3, 10, 7, -1]), [3, 7, 10, 11, 12, 13]),
        (np.array([-7, -2, -5, -1]), [-7, -5, -2, 0, 1, 2]),
        (np.array([3, 127, 7, -1], dtype=np.int8), [3, 7, 127, 128, 129, 130]),
        (np.array([0.5, 2.0, 1.0, -1.0]), [0.5, 1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_known_classes_may_have_any_names_and_new_ones_have_others(rays, discovered, names, expected):
    X, _, y = rays
    order = np.argsort(names[:3].astype(str if names.dtype.kind in "OU" else names.dtype))
    model = NovelClassDiscovery(CLASSES - KNOWN).fit(X, names[np.where(y < 0, 3, order[y])])
    assert model.classes_.tolist() == expected
    assert np.array_equal(model.labels_, model.classes_[discovered.labels_])
    assert set(model.predict(X)) == set(expected)


def test_numbers_that_come_as_objects_are_numbers():
    known, labels = numbered(np.array([10, 9, -1], dtype=object))
    assert known.tolist() == [9, 10]
    assert labels.tolist() == [1, 0, -1]


@pytest.mark.parametrize("mark", [-1, -1.0, "-1", np.int8(-1), np.float32(-1), np.str_("-1")], ids=repr)
def test_a_row_is_unlabelled_among_strings_whatever_kind_of_minus_one_marks_it(mark):
    known, labels = numbered(np.array(["b", mark, "a", mark], dtype=object))
    assert known.tolist() == ["a", "b"]
    assert labels.tolist() == [1, -1, 0, -1]


def test_several_marks_of_unlabelled_rows_may_stand_among_strings_and_numbers():
    known, labels = numbered(np.array(["a", -1, 2.5, -1.0, "-1", "b", 3], dtype=object))
    assert known.tolist() == ["2.5", "3", "a", "b"]
    assert labels.tolist() == [2, -1, 0, -1, -1, 3, 1]


@pytest.mark.parametrize(("mark", "expected"), [(-1, 0), (-1.0, 0.0), ("-1", "new-1")])
def test_where_objects_are_all_unlabelled_new_classes_are_named_as_the_mark_is_written(rays, mark, expected):
    model = NovelClassDiscovery(1, epochs=0).fit(rays[0], np.full(len(rays[0]), mark, dtype=object))
    assert repr(model.classes_.tolist()) == repr([expected])


def test_labels_that_are_no_marks_stay_classes_also_where_they_look_like_one():
    known, labels = numbered(np.array(["-1.0", "a", "-1", True, -2], dtype=object))
    assert known.tolist() == ["-1.0", "-2", "True", "a"]
    assert labels.tolist() == [0, 3, -1, 2, 1]
    known, labels = numbered(np.array([True, False, -1], dtype=object))
    assert known.tolist() == [0, 1]
    assert labels.tolist() == [1, 0, -1]


@pytest.mark.parametrize("first", [2**62, 2**63 - 2, 2**63, 2**64 - 3, 2**80, -(2**62), -(2**80)])
@pytest.mark.parametrize("kind", [list, lambda labels: np.array(labels, dtype=object)])
def test_labels_are_whole_numbers_of_any_size(rays, first, kind):
    X, _, y = rays
    labels = [-1 if label < 0 else first + int(label) for label in y]
    model = NovelClassDiscovery(2, epochs=0).fit(X, kind(labels))
    new = max(first + KNOWN, 0)
    assert model.classes_.tolist() == [first, first + 1, first + 2, new, new + 1]
    assert [found for found, label in zip(model.labels_.tolist(), labels, strict=True) if label != -1] == [
        label for label in labels if label != -1
    ]


def test_labels_that_numpy_would_round_stay_apart():
    known, labels = numbered(gathered([2**63 + 1, 2**63, -1]))
    assert known.tolist() == [2**63, 2**63 + 1]
    assert labels.tolist() == [1, 0, -1]


@pytest.mark.parametrize("kind", [list, lambda labels: np.array(labels, dtype=object)])
@pytest.mark.parametrize(("one", "other"), [(1, "1"), ("1.5", 1.5), (True, "True"), (2**70, str(2**70))])
def test_a_number_beside_the_text_of_it_is_refused(rays, kind, one, other):
    X, _, y = rays
    labels = kind([-1 if label < 0 else (one, other, "c")[label] for label in y])
    with pytest.raises(InputError, match=r"y has both .* Write them in one way"):
        NovelClassDiscovery(2).fit(X, labels)


def test_a_label_beyond_which_floating_point_does_not_count_is_refused(rays):
    X, _, y = rays
    with pytest.raises(InputError, match=r"the label 3e\+300, beyond which floating point does not count"):
        NovelClassDiscovery(2, epochs=0).fit(X, np.where(y < 0, -1.0, (y + 1) * 1e300))


@pytest.mark.parametrize("dtype", ["string", "category", "object"])
def test_labels_may_come_as_a_column_of_pandas(rays, discovered, dtype):
    X, _, y = rays
    column = pd.Series(np.array(["a", "b", "c", "-1"])[np.where(y < 0, 3, y)], dtype=dtype)
    model = NovelClassDiscovery(CLASSES - KNOWN).fit(X, column)
    assert model.classes_.tolist() == ["a", "b", "c", "new-1", "new-2", "new-3"]
    assert np.array_equal(model.labels_, model.classes_[discovered.labels_])


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_a_label_that_is_nothing_is_refused_with_what_marks_an_unlabelled_row(rays, nothing):
    X, _, y = rays
    names = np.array(["a", "b", "c", nothing], dtype=object)
    with pytest.raises(ValueError, match=r"None|NaN"):
        NovelClassDiscovery(CLASSES - KNOWN).fit(X, names[np.where(y < 0, 3, y)])
    with pytest.raises(InputError, match="Mark unlabelled rows with -1"):
        numbered(names)


def test_new_classes_are_named_by_their_size(rays):
    X, truth, y = rays
    rows = np.concatenate([np.flatnonzero(truth == label)[: 40 if label < KNOWN else 5 * label] for label in range(6)])
    labels = NovelClassDiscovery(CLASSES - KNOWN).fit_predict(X[rows], y[rows])
    sizes = np.bincount(labels, minlength=CLASSES)[KNOWN:]
    assert (np.diff(sizes) <= 0).all()
    assert sizes[0] > sizes[-1]


@pytest.mark.parametrize("name", ABLE)
def test_every_method_that_begins_at_latents_works_on_two_features_with_spacing_and_without(name):
    X, truth = make_blobs(60, n_features=2, centers=4, random_state=0)
    y = np.where((truth < 2) & (np.arange(60) % 2 == 0), truth, -1)
    for method in {name, name if "spacing" in name or name == "kmeans" else f"{name}+spacing"}:
        model = NovelClassDiscovery(2, method=method, epochs=2).fit(X, y)
        assert model.n_iter_ == (0 if name == "kmeans" else 2)
        assert np.isfinite(model.cluster_centers_).all()
        assert np.array_equal(model.labels_[y >= 0], y[y >= 0])


def test_a_method_whose_backbone_stays_as_it_is_leaves_latents_where_they_were(rays):
    X, _, y = rays
    kept, plain = (
        NovelClassDiscovery(CLASSES - KNOWN, method=name, epochs=2).fit(X, y) for name in ("frozen", "kmeans")
    )
    assert (kept.n_iter_, plain.n_iter_) == (2, 0)
    assert np.array_equal(kept.transform(X), plain.transform(X))


# Small and wrong inputs


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("features", [1, 2, 5])
def test_few_rows_and_features_are_enough(rows, features):
    X = np.random.RandomState(rows).randn(rows, features)
    for clusters in {1, min(2, rows), rows}:
        model = SpacingClustering(clusters, epochs=2).fit(X)
        assert set(model.labels_) == set(range(clusters))
        assert np.isfinite(model.transform(X)).all()
    count = np.arange(rows)
    for y in (count % 2, np.where(count % 2, -1, 0), np.where(count % 3, -1, count), np.where(count, 0, -1)):
        model = NovelClassDiscovery(2, epochs=2).fit(X, y)
        assert np.array_equal(model.labels_[y >= 0], y[y >= 0])
        assert np.array_equal(model.labels_[y < 0], model.predict(X)[y < 0])
        assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("X", [np.zeros((10, 3)), np.full((10, 1), 0.1), np.repeat([[1.0, 2.0], [3.0, 1.0]], 5, 0)])
def test_equal_rows_share_a_cluster(X):
    labels = SpacingClustering(3).fit_predict(X)
    assert len(np.unique(labels)) == len(np.unique(X, axis=0))
    for row in np.unique(X, axis=0):
        assert len(set(labels[(row == X).all(1)])) == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SpacingClustering(31), "n_samples=30 should be >= n_clusters=31: give more rows, or ask for fewer"),
        (SpacingClustering(0), "n_clusters is 0; give a whole number of at least 1"),
        (SpacingClustering(2, epochs=-1), "epochs is -1; give a whole number of at least 0"),
        (SpacingClustering(2, batch_size=0), "batch_size is 0; give a whole number of at least 1"),
        (SpacingClustering(2, rate=-0.1), "rate is -0.1; give a number above 0"),
        (SpacingClustering(2, rate="a"), "rate is 'a'; give a number above 0"),
        (SpacingClustering(2, rate=None), "rate is None; give a number above 0"),
        (SpacingClustering(2, rate=np.nan), "rate is nan; give a number above 0"),
        (NovelClassDiscovery(2, rate="a"), "rate is 'a'; give a number above 0"),
        (NovelClassDiscovery(2, method=None), "method is None; give the name of one, such as pairs.spacing.*: kmeans,"),
        (SpacingClustering(2, device="tpu"), "no device called 'tpu'.*auto.*cpu"),
        (NovelClassDiscovery(2, device=None), "no device called None.*auto.*cpu"),
        (NovelClassDiscovery(2, method=3), "method is 3; give the name of one"),
        (NovelClassDiscovery(0), "n_new is 0; give a whole number of at least 1"),
        (NovelClassDiscovery(2, method="spicing"), "no method called 'spicing'.*Did you mean spacing"),
        (NovelClassDiscovery(2, method="openmix"), "openmix needs images; these are features. Take one.*pairs"),
        (NovelClassDiscovery(2, method="rs-il"), "rs-il needs labelled rows; y has none. Give labels, or take.*pairs"),
    ],
)
def test_what_cannot_work_is_refused_in_words(model, message):
    X = np.random.RandomState(0).randn(30, 3)
    with pytest.raises(InputError, match=message):
        model.fit(X)


@pytest.mark.parametrize("model", [SpacingClustering(2), NovelClassDiscovery(2)])
def test_training_happens_on_the_device_that_was_asked_for(model, monkeypatch):
    asked, X = [], np.random.RandomState(0).randn(30, 3)

    def see(*given, device):
        asked.append(device)
        return train(*given, device="cpu")

    monkeypatch.setattr(estimators, "train", see)
    for device in ("auto", "cpu"):
        model.set_params(device=device, epochs=1).fit(X)
    assert asked == ["auto", "cpu"]


@pytest.mark.parametrize("model", [SpacingClustering(2), NovelClassDiscovery(2)])
def test_every_parameter_and_attribute_stands_in_the_docstring_under_its_own_name(model):
    model.fit(pd.DataFrame(np.random.RandomState(0).randn(30, 3), columns=["a", "b", "c"]))
    _, parameters, attributes = re.split(r"(?:Parameters|Attributes)\n    -{10}\n", type(model).__doc__)
    found = [
        {name for names in re.findall(r"^    (\w.*?) : ", part, re.MULTILINE) for name in names.split(", ")}
        for part in (parameters, attributes)
    ]
    assert found[0] == {*model.get_params()}
    assert found[1] == {name for name in vars(model) if name.endswith("_")}


def test_rows_and_labels_must_be_equally_many_and_finite(rays):
    X, _, y = rays
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        NovelClassDiscovery(2).fit(X, y[1:])
    with pytest.raises(ValueError, match="NaN"):
        NovelClassDiscovery(2).fit(X, np.where(y < 0, np.nan, y))


# The guide


def test_the_guide_s_example_says_what_comes_out():
    section = GUIDE.read_text(encoding="utf-8").split("## Features instead of images")[1].split("\n## ")[0]
    (code,) = re.findall(r"```pycon\n(.*?)```", section, re.DOTALL)
    example = doctest.DocTestParser().get_doctest(code, {}, "guide", str(GUIDE), 0)
    outcome = doctest.DocTestRunner().run(example)
    assert outcome.failed == 0
    assert outcome.attempted == len(code.splitlines()) - 2
