"""Distances become scores, and scores chances."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from newfound.functional.calibration import (
    FAR_OUT,
    Calibration,
    Logistic,
    carry_on,
    leave_one_out,
    log_margin,
    naming_score,
    novelty_score,
    outlier_line,
    outlier_score,
    platt,
    probability,
    ratio,
    reach,
    withhold_names,
)
from newfound.types import generator


def outcomes(slope, offset, n=4000, scale=1.0):
    """Scores, and what happened with the chance that this line says."""
    random = generator("outcomes", n)
    score = scale * torch.randn(n, generator=random, dtype=torch.float64)
    happened = torch.rand(n, generator=random, dtype=torch.float64) < torch.sigmoid(slope * score + offset)
    return score, happened


def likelihood(score, happened, slope, offset):
    """Platt's, written out: the mean over images, of targets that are never quite 0 or 1."""
    yes = int(happened.sum())
    high, low = (yes + 1) / (yes + 2), 1 / (len(happened) - yes + 2)
    total = 0.0
    for s, did in zip(score.tolist(), happened.tolist(), strict=True):
        t, p = high if did else low, 1 / (1 + math.exp(-(slope * s + offset)))
        total += t * math.log(p) + (1 - t) * math.log(1 - p)
    return total / len(score)


LINES = [(2.0, -1.0), (-0.7, 0.4), (0.0, 1.5), (6.0, -2.0)]


@pytest.mark.parametrize(("slope", "offset"), LINES)
def test_of_many_images_it_is_logistic_regression_and_the_line_they_came_from(slope, offset):
    score, happened = outcomes(slope, offset)
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(score[:, None].numpy(), happened.numpy())
    found = platt(score, happened)
    assert found.slope == pytest.approx(theirs.coef_[0, 0], abs=0.01, rel=0.02)  # targets of 1 − 1/2000, not 1
    assert found.offset == pytest.approx(theirs.intercept_[0], abs=0.01, rel=0.02)
    assert found == pytest.approx((slope, offset), abs=0.2)


@pytest.mark.parametrize("n", [30, 400])
@pytest.mark.parametrize(("slope", "offset"), LINES)
def test_it_is_logistic_regression_on_images_that_happen_a_little_both_ways(slope, offset, n):
    score, happened = outcomes(slope, offset, n)
    yes = int(happened.sum())
    t = np.where(happened.numpy(), (yes + 1) / (yes + 2), 1 / (n - yes + 2))
    twice, weights = score.repeat(2)[:, None].numpy(), np.concatenate([t, 1 - t])
    theirs = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky")
    theirs.fit(twice, np.repeat([1, 0], n), sample_weight=weights)
    assert platt(score, happened) == pytest.approx((theirs.coef_[0, 0], theirs.intercept_[0]), abs=1e-5)


@pytest.mark.parametrize("n", [5, 12, 60])
def test_no_line_of_a_grid_about_it_is_likelier(n):
    score, happened = outcomes(1.0, 0.3, n)
    slope, offset = platt(score, happened)
    best = likelihood(score, happened, slope, offset)
    for away in (1.0, 0.1, 0.01):
        around = [(slope + a * away, offset + b * away) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
        assert max(likelihood(score, happened, *line) for line in around) < best


@pytest.mark.parametrize("gap", [0.1, 1.0, 30.0])
def test_scores_that_separate_perfectly_are_trusted_but_one_in_so_many(gap):
    score = torch.tensor([-gap, gap]).double().repeat(50)
    line = platt(score, score > 0)
    assert line == pytest.approx((math.log(51) / gap, 0), abs=1e-6)
    torch.testing.assert_close(probability(score, line), torch.tensor([1 / 52, 51 / 52]).double().repeat(50))


def test_another_unit_of_the_score_changes_the_slope_alone():
    score, happened = outcomes(1.5, -0.5, 500)
    slope, offset = platt(score, happened)
    for unit in (0.001, 0.1, 8.0):
        found = platt(unit * score, happened)
        assert found.slope * unit == pytest.approx(slope, rel=1e-6)
        assert found.offset == pytest.approx(offset, rel=1e-6)


def test_what_did_not_happen_has_the_opposite_line():
    score, happened = outcomes(1.5, -0.5, 500)
    yes, no = platt(score, happened), platt(score, ~happened)
    assert no == pytest.approx((-yes.slope, -yes.offset), rel=1e-6)


@pytest.mark.parametrize("always", [True, False])
def test_what_always_or_never_happens_is_likely_or_not_but_for_no_score_certain(always):
    score = outcomes(0.0, 0.0, 98)[0]
    found = platt(score, torch.full((98,), always))
    expected = 0.99 if always else 0.01  # 99 of 100
    torch.testing.assert_close(probability(score, found), torch.full((98,), expected).double(), atol=1e-6, rtol=0)


def test_scores_without_end_do_not_move_the_line():
    score, happened = outcomes(1.0, 0.5, 200)
    ends = torch.tensor([math.inf, -math.inf, math.inf]).double()
    found = platt(torch.cat([score, ends]), torch.cat([happened, torch.tensor([False, True, True])]))
    assert found == platt(score, happened)
    assert platt(ends, torch.tensor([True, False, True])) == Logistic(0.0, 0.0)


def test_a_chance_is_the_logistic_function_of_the_line():
    score = torch.linspace(-3, 3, 13)
    for s, p in zip(score.tolist(), probability(score, Logistic(1.7, -0.4)).tolist(), strict=True):
        assert p == pytest.approx(1 / (1 + math.exp(0.4 - 1.7 * s)), abs=1e-6)


@pytest.mark.parametrize("slope", [2.0, 0.0, -2.0])
def test_a_score_without_end_is_sure_whatever_the_line(slope):
    assert probability(torch.tensor([math.inf, -math.inf]), Logistic(slope, -1.0)).tolist() == [1.0, 0.0]


def test_ratios_of_nothing_and_of_everything_are_even():
    a = torch.tensor([2.0, 0.0, math.inf, math.inf, 3.0])
    b = torch.tensor([1.0, 0.0, math.inf, 3.0, math.inf])
    found = ratio(a, b)
    assert found[:1].item() == pytest.approx(math.log(2))
    assert found[1:].tolist() == [0, 0, math.inf, -math.inf]
    assert ratio(a[:1], b[1:2]) > 80  # nothing is farther than any number, and still a number
    assert ratio(a[:1], b[1:2]).isfinite()


def apart(n=40, centres=6):
    return torch.rand(n, centres, generator=generator("apart")).double() + 0.1


GROUP = torch.tensor([1, 2, 2, 4, 5, 1])


def test_lead_equals_the_loop_over_images_and_centres():
    distances, same = apart(), GROUP[:, None] == GROUP
    own = torch.randint(6, (40,), generator=generator("own"))
    found = log_margin(distances, own, same)
    for row in range(40):
        mine = int(own[row])
        others = [distances[row, k].item() for k in range(6) if GROUP[k] != GROUP[mine]]
        assert found[row].item() == pytest.approx(math.log(min(others) / distances[row, mine].item()))


def test_strangeness_equals_the_loop_over_images_and_centres():
    distances, new = apart(), torch.tensor([True, False, True, True, False, False])
    found = novelty_score(distances, new)
    for row in range(40):
        known = min(distances[row, k].item() for k in range(6) if not new[k])
        novel = min(distances[row, k].item() for k in range(6) if new[k])
        assert found[row].item() == pytest.approx(math.log(known / novel))


def test_the_unit_of_distance_does_not_matter():
    distances, own, same = apart(), apart().argmin(1), torch.eye(6, dtype=torch.bool)
    new = torch.arange(6) < 2
    torch.testing.assert_close(log_margin(1e-3 * distances, own, same), log_margin(distances, own, same))
    torch.testing.assert_close(novelty_score(1e-3 * distances, new), novelty_score(distances, new))


def test_an_image_leads_where_its_own_centre_is_the_nearest_and_not_half_way():
    distances, same = apart(), torch.eye(6, dtype=torch.bool)
    assert (log_margin(distances, distances.argmin(1), same) > 0).all()
    assert (log_margin(distances, distances.argmax(1), same) < 0).all()
    even = torch.ones(3, 2)
    assert not log_margin(even, torch.tensor([0, 1, 0]), torch.eye(2, dtype=torch.bool)).any()


def test_merging_classes_never_lessens_the_lead():
    distances, alone = apart(), torch.eye(6, dtype=torch.bool)
    own = distances.argmin(1)
    before, after = log_margin(distances, own, alone), log_margin(distances, own, GROUP[:, None] == GROUP)
    assert (after >= before).all()
    second = distances.topk(2, largest=False).indices[:, 1]
    merged = GROUP[own] == GROUP[second]  # the nearest other centre is no longer of another class
    assert merged.any()
    assert torch.equal(after > before, merged)


def test_where_there_is_nothing_to_be_told_from_all_is_said():
    distances = apart()
    one = torch.ones(6, 6, dtype=torch.bool)
    assert (log_margin(distances, distances.argmin(1), one) == math.inf).all()
    assert (novelty_score(distances, torch.ones(6, dtype=torch.bool)) == math.inf).all()
    assert (novelty_score(distances, torch.zeros(6, dtype=torch.bool)) == -math.inf).all()


def test_without_itself_an_image_is_as_far_from_its_centre_as_from_the_mean_of_the_others():
    x = torch.randn(30, 5, generator=generator("x"), dtype=torch.float64)
    cluster = torch.arange(30) % 4
    centres = torch.stack([x[cluster == k].mean(0) for k in range(4)])
    found = leave_one_out(torch.cdist(x, centres), cluster, torch.bincount(cluster))
    for row in range(30):
        for k in range(4):
            members = [x[i] for i in range(30) if cluster[i] == k and i != row]
            assert found[row, k].item() == pytest.approx((x[row] - sum(members) / len(members)).norm().item())


def test_an_image_alone_in_the_only_new_class_is_neither_new_nor_known_for_sure():
    """Its class is gone with it, so nothing is left that could say how new it is."""
    new, own = torch.tensor([True, False, False]), torch.tensor([0, 1])
    distances = torch.tensor([[0.0, 9.0, 8.0], [5.0, 1.0, 7.0]])
    found = novelty_score(leave_one_out(distances, own, torch.tensor([1, 4, 4])), new)
    assert found[0] == 0
    assert found[1] == pytest.approx(math.log(4 / 3 / 5))
    assert novelty_score(leave_one_out(distances, own, torch.tensor([1, 4, 4])), ~new)[0] == 0


def test_an_image_alone_in_its_cluster_is_the_least_sure_of_all_and_says_nothing_of_others():
    distances, own = torch.tensor([[0.0, 4.0, 3.0], [1.0, 5.0, 2.0]]), torch.tensor([0, 2])
    found = leave_one_out(distances, own, torch.tensor([1, 7, 4]))
    assert found.tolist() == [[math.inf, 4.0, 3.0], [1.0, 5.0, pytest.approx(8 / 3)]]
    alone = log_margin(found, own, torch.eye(3, dtype=torch.bool))
    assert probability(alone, Logistic(2.0, 1.0))[0] == 0
    score, happened = torch.tensor([1.0, 2.0, -1.0, 0.5]), torch.tensor([True, True, False, False])
    with_it = torch.cat([score, alone[:1]]), torch.cat([happened, torch.tensor([True])])
    assert platt(*with_it) == platt(score, happened)


def test_an_image_is_an_outlier_by_how_little_it_is_nearer_to_one_centre_than_to_the_others():
    away = torch.rand(20, 6, generator=generator("away")) + 0.1
    away[3, 2] = away[5, :] = math.inf
    away[6, :3] = math.inf  # a nearest and two others
    away[7, :4] = math.inf  # of two centres nothing can be said
    away[8] = 2.0
    nearest, others = reach(away)
    score = outlier_score(nearest, others)
    for row, one in enumerate(away.tolist()):
        there = sorted(value for value in one if value < math.inf)
        if len(there) < 3:
            assert score[row] == -math.inf
        elif there[0] == there[-1]:
            assert score[row] == math.inf
        else:
            expected = -math.log(math.log(sum(there[1:]) / (len(there) - 1) / there[0]))
            assert score[row].item() == pytest.approx(expected, abs=1e-4)
    assert torch.allclose(outlier_score(*reach(1000 * away)), score, atol=1e-3)  # whatever the units


def test_an_image_has_a_name_where_its_class_is_likely_and_it_does_not_lie_far_out():
    confidence = torch.tensor([0.9, 0.5, 0.49, 0.9, 0.3, 0.4, 0.0])
    outlier = torch.tensor([0.0, FAR_OUT, 0.0, FAR_OUT + 1e-4, 0.5, 0.51, 1.0])
    unsure, none = withhold_names(confidence, outlier, 0.5)
    assert unsure.tolist() == [False, False, True, True, True, False, False]
    assert none.tolist() == [False, False, False, False, False, True, True]


def test_images_far_out_come_after_all_others_and_in_their_order():
    confidence, outlier = torch.rand(2, 200, generator=generator("naming"))
    outlier = outlier * 2 * FAR_OUT
    scores, far = naming_score(confidence, outlier), outlier > FAR_OUT
    assert 50 < far.sum() < 150
    assert scores[far].max() < scores[~far].min()
    for part in (far, ~far):
        assert torch.equal(scores[part].argsort(), confidence[part].argsort())
    assert not withhold_names(confidence, outlier, -1.0).unsure.any()
    assert torch.logical_xor(*withhold_names(confidence, outlier, 2.0)).all()


def test_the_line_of_outliers_is_one_half_far_out_and_where_names_end_near():
    chance = probability(torch.tensor([-3.0, 1.5, 2.0, 9.0]), outlier_line(1.5, 2.0))
    assert chance[2].item() == pytest.approx(0.5)
    assert chance[1].item() == pytest.approx(FAR_OUT, abs=1e-5)
    assert chance[0].item() < FAR_OUT / 100
    assert chance[3].item() > 0.99
    assert math.isfinite(outlier_line(1.0, 1.0).slope)


FITTED = Calibration(Logistic(9.0, 0.5), Logistic(7.0, 0.3))
OTHERS = Calibration(Logistic(6.7, -0.7), Logistic(6.2, 0.9))


def test_among_more_classes_an_image_is_right_less_often_and_as_likely_new():
    near, far = (carry_on(FITTED, OTHERS, 8, classes) for classes in (8, 16))
    assert near.right.offset - far.right.offset == pytest.approx(4 / 5 * 0.5 * math.log(2))
    assert near.right.slope == far.right.slope
    assert near.new == far.new
    assert carry_on(FITTED, OTHERS, 8, 3) == near  # how much easier fewer are nobody has seen


def test_where_classes_were_counted_being_right_means_what_it_did_among_miscounted_ones():
    counted = Logistic(5.0, 0.1)
    told = FITTED._replace(counted=counted)
    assert told.resolve(estimated=True) == FITTED._replace(right=counted)
    assert told.resolve(estimated=False) == FITTED.resolve(estimated=True) == FITTED
    assert Calibration.of(told.asdict()) == told


def test_each_reading_has_its_own_meaning_and_one_that_nobody_measured_that_of_k_means():
    line, other = Logistic(3.0, -8.0), Calibration(Logistic(1.0, 0.0), Logistic(2.0, 0.3), counted=Logistic(0.5, 0.0))
    told = FITTED._replace(outlier=line, readings={"discriminant": other})
    assert told.resolve(estimated=False, reading="discriminant") == other._replace(outlier=line, counted=None)
    assert told.resolve(estimated=True, reading="discriminant").right == Logistic(0.5, 0.0)
    for reading in ("k-means", "mean-shift", "auto"):
        assert told.resolve(estimated=False, reading=reading) == FITTED._replace(outlier=line)
    assert Calibration.of(json.loads(json.dumps(told.asdict()))) == told
    assert copy.deepcopy(told) == told  # a run has a model of its own


def test_what_fits_no_class_is_told_by_the_fitted_line_alone():
    line = Logistic(3.0, -8.0)
    assert carry_on(FITTED._replace(outlier=line), OTHERS, 8, 16).outlier == line
    assert carry_on(FITTED, OTHERS._replace(outlier=line), 8, 16).outlier is None


def test_the_more_classes_were_pretended_with_the_more_their_line_counts():
    few, many = (carry_on(FITTED, OTHERS, known, known) for known in (2, 400))
    for line, fitted, others in zip(few[:2], FITTED[:2], OTHERS[:2], strict=True):
        assert line == pytest.approx([(a + b) / 2 for a, b in zip(fitted, others, strict=True)])
    for line, fitted in zip(many[:2], FITTED[:2], strict=True):
        assert line == pytest.approx(fitted, abs=0.05)
