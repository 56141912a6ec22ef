"""What distances mean, learnt by pretending that known classes are new."""

import math

import pytest
import torch
import torch.nn.functional as F

from newfound.encoders.known import KnownPoints
from newfound.encoders.pretend import (
    Hidden,
    Scores,
    calibrate,
    calibrate_outliers,
    fit_calibration,
    hide,
    outcomes,
)
from newfound.encoders.reading import READERS, read_by
from newfound.functional.axes import FEW, axes, moments, power_normalised
from newfound.functional.calibration import FAR_OUT, Logistic, probability
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.metrics import accuracy
from newfound.types import generator
from tests.encoders.features import embedded


def test_pretending_equals_the_loop_along_all_directions_of_the_features():
    random, labels = generator("faint"), torch.arange(90) % 6
    kinds = torch.rand(6, 300, generator=random)
    x = power_normalised(torch.rand(90, 300, generator=random) + 0.25 * kinds[labels])
    scores, miscounted = {reading: [] for reading in READERS}, {reading: [] for reading in READERS}
    for turn in range(4):
        random = generator(0, "pretend", turn)
        rows = torch.randperm(90, generator=random)
        y = torch.randperm(6, generator=random)[labels[rows]]
        taught = (y < 3) & (torch.rand(90, generator=random) < 0.5)
        seen, rest = x[rows].double(), torch.zeros(300, 300, dtype=torch.float64)
        for label in range(3):
            members = seen[taught & (y == label)]
            for row in members - members.mean(0):
                rest += torch.outer(row, row)
        found = axes(moments(seen), FEW, rest / (int(taught.sum()) - 3))
        u = F.normalize((seen - found.centre) @ found.matrix, dim=1).float()
        told = [outcomes(u, y.where(taught, -1), y, turn, share, random) for share in (1.0, 0.8, 1.25)]
        for reading in READERS:
            scores[reading].append(told[0][reading])
            miscounted[reading] += [each[reading] for each in told[1:]]
    calibration = fit_calibration(x, labels)
    assert set(calibration.readings) == {*READERS} - {"k-means"}
    for reading, told in {"k-means": calibration, **calibration.readings}.items():
        expected = calibrate(scores[reading])
        assert told.right == pytest.approx(expected.right, rel=1e-3)
        assert told.new == pytest.approx(expected.new, rel=1e-3)
        assert told.counted == pytest.approx(calibrate(scores[reading] + miscounted[reading]).right, rel=1e-3)


def fog(wide=1.0):
    """Eight classes that overlap, half of them labelled by half of their images."""
    y = torch.arange(240) // 30
    u = F.normalize(torch.eye(8)[y] + wide * torch.randn(240, 8, generator=generator("fog")), dim=1)
    return u, y.masked_fill((y > 3) | (torch.arange(len(y)) % 2 == 0), -1), y


@pytest.mark.parametrize("reading", READERS)
def test_scores_are_those_of_clusters_that_are_read_as_a_run_reads_them(reading):
    u, labels, y = fog(0.4)
    taught = labels >= 0
    counts = torch.bincount(labels[taught])
    told = outcomes(u, labels, y, 5)[reading]
    found = read_by(reading, u[~taught], 4, KnownPoints(u[taught], labels[taught], counts), 5)
    if reading == "k-means":  # labelled images are points of it, not sums
        whole = semi_supervised_kmeans(u, labels, 8, generator(5))
        found = whole._replace(assignment=whole.assignment[~taught])
    sizes = torch.bincount(found.assignment, minlength=8) + torch.cat([counts, torch.zeros(4, dtype=torch.long)])
    for row, (z, own) in enumerate(zip(u[~taught], found.assignment.tolist(), strict=True)):
        away = (z - found.centres).norm(dim=1)
        away[own] *= sizes[own] / (sizes[own] - 1)
        other = torch.cat([away[:own], away[own + 1 :]]).min()
        assert told.log_margin[row] == pytest.approx(math.log(other / away[own]), abs=1e-4)
        assert told.novelty_score[row] == pytest.approx(math.log(away[:4].min() / away[4:].min()), abs=1e-4)
    assert told.right.double().mean() == pytest.approx(accuracy(y[~taught], found.assignment))
    assert torch.equal(told.new, y[~taught] > 3)


def test_each_reading_has_its_own_lines():
    x, _, labels = fog(0.4)
    calibration = fit_calibration(x, labels)
    lines = [told.right for told in (calibration, *calibration.readings.values())]
    assert len({*lines}) == len(READERS)
    assert all(told.outlier is None for told in calibration.readings.values())  # it is the same in all


def test_an_image_is_right_less_often_where_its_classes_are_read_as_too_few_or_too_many():
    u, labels, y = fog(0.1)
    told = {share: outcomes(u, labels, y, 0, share)["k-means"] for share in (0.75, 1.0, 1.25)}
    right = {share: scores.right.double().mean().item() for share, scores in told.items()}
    assert right[1.0] > 0.9
    assert max(right[0.75], right[1.25]) < right[1.0] - 0.05
    assert right[0.75] <= 0.75  # two of six groups are two classes each, and all of one of them are wrong
    few = outcomes(u, labels, y, 0, 0.1)["k-means"]
    assert few.log_margin.isfinite().all()  # known ones, and one more


def test_scores_mean_something_also_where_all_was_right():
    score, always = torch.rand(100, generator=generator("score")) + 0.5, torch.ones(100, dtype=torch.bool)
    calibration = calibrate([Scores(score, always, -score, ~always)])
    halfway, clear = probability(torch.tensor([0.0, 1.0]), calibration.right).tolist()
    assert halfway < 0.85  # it was 98 % where images were clear
    assert clear > 0.95
    assert probability(torch.tensor([0.0, -1.0]), calibration.new).tolist() == pytest.approx(
        [1 - halfway, 1 - clear], abs=1e-5
    )


def test_scores_that_few_images_have_or_that_say_nearer_is_worse_mean_nothing():
    score = torch.randn(200, generator=generator("score"))
    happened = torch.rand(200, generator=generator("happened")) < torch.sigmoid(3 * score)
    assert calibrate([Scores(score, happened, score, happened)]) is not None
    few = Scores(score[:99], happened[:99], score[:99], happened[:99])
    assert calibrate([few]) is None
    assert calibrate([few, few]) is not None  # rounds speak together
    assert calibrate([Scores(score, ~happened, score, happened)]) is None
    assert calibrate([Scores(score, happened, score, ~happened)]) is None


@pytest.mark.parametrize(("classes", "each", "enough"), [(1, 30, False), (3, 30, False), (4, 30, True), (4, 1, False)])
def test_of_few_classes_or_pictures_nothing_is_learnt_by_pretending(classes, each, enough):
    images = embedded("few", range(classes), each=each)
    assert (fit_calibration(power_normalised(images.features()), images.listing.labels) is not None) == enough


def test_only_which_pictures_share_a_class_matters_to_pretending():
    images = embedded("known", range(6), each=20, strong=0.6)
    x, labels = power_normalised(images.features()), images.listing.labels
    assert fit_calibration(x, 7 * labels + 3) == fit_calibration(x, labels)
    assert fit_calibration(x, labels, seed=1) != fit_calibration(x, labels)


def test_of_kinds_that_were_hidden_whole_some_are_told_and_few_others_are_called_so():
    images = embedded("known", range(12), each=25, strong=1.0)
    x, labels = power_normalised(images.features()), images.listing.labels
    line = fit_calibration(x, labels).outlier
    main = axes(moments(x), 128)
    shown = hide((x - main.centre) @ main.matrix, torch.zeros(300), labels, 0.3, 0)
    score, outlier = (torch.cat(parts) for parts in zip(*shown, strict=True))
    called = probability(score, line) > 0.5
    assert outlier.double().mean() > 0.3
    assert called[outlier].double().mean() > 0.5
    assert called[~outlier].double().mean() <= 0.03


def test_outliers_that_too_few_images_or_the_wrong_ones_show_mean_nothing():
    score = torch.randn(400, generator=generator("score"))
    outlier = torch.rand(400, generator=generator("outlier")) < torch.sigmoid(3 * score)
    slope, offset = calibrate_outliers([Hidden(score, outlier)])
    far = (score[~outlier] > -offset / slope).double().mean()
    named = probability(score[~outlier], Logistic(slope, offset)) <= FAR_OUT
    assert 0.01 < far <= 0.021
    assert 0.84 <= named.double().mean() <= 0.86
    assert calibrate_outliers([]) is calibrate_outliers([Hidden(score[:99], outlier[:99])]) is None
    assert calibrate_outliers([Hidden(score, ~outlier)]) is None
    assert calibrate_outliers([Hidden(score, torch.ones(400, dtype=torch.bool))]) is None
