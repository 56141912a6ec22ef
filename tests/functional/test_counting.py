"""How many classes there are."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from newfound.functional import counting
from newfound.functional.cluster import kmeans
from newfound.functional.counting import Errors, combine, count, crossing, distinct, sweep, top
from newfound.functional.metrics import accuracy, silhouette
from newfound.types import generator


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


def blobs(classes, each=30, dim=16, seed=0):
    """Classes in all directions alike, eight times as far from the middle as they are wide."""
    random = generator("blobs", classes, each, seed)
    centres = 4 * torch.nn.functional.normalize(torch.randn(classes, dim, generator=random))
    truth = torch.arange(classes).repeat_interleave(each)
    return centres[truth] + 0.5 * torch.randn(len(truth), dim, generator=random), truth


def asked(classes, known, mixed=False, each=30, seed=0, **options):
    """Count the blobs; known classes are labelled, all their images or, in a mixed pile, every other one."""
    x, truth = blobs(classes, each, seed=seed)
    labelled = (truth < known) & (torch.arange(len(truth)) % 2 == 0 if mixed else True)
    return count(x[~labelled], x[labelled], truth[labelled], **({"most": 30} | options))


@pytest.mark.parametrize(
    ("classes", "known", "mixed", "criterion"),
    [
        (16, 8, False, "pairs"),
        (16, 8, True, "pairs"),
        (24, 20, True, "pairs"),
        (9, 4, True, "pairs"),
        (16, 2, True, "silhouette"),  # two classes say too little
        (16, 0, False, "silhouette"),
        (5, 0, False, "silhouette"),
    ],
)
def test_the_number_of_classes_is_found_within_a_fifth_and_lies_in_the_interval(classes, known, mixed, criterion):
    for seed in range(2):
        found = asked(classes, known, mixed, seed=seed)
        assert found.criterion == criterion
        assert abs(found.classes - classes) <= 0.2 * classes
        assert found.least <= classes <= found.most
        assert found.classes == found.estimates[criterion]
        assert found.estimates.keys() == ({"pairs", "accuracy", "silhouette"} if known else {"silhouette"})


@pytest.mark.parametrize(("known", "criterion"), [(2, "silhouette"), (3, "pairs")])
def test_three_labelled_classes_are_enough_to_speak_of_others(known, criterion):
    assert asked(6, known, mixed=True, each=10, most=5).criterion == criterion


def test_more_classes_are_counted_as_more():
    found = [asked(classes, classes // 2, mixed=True).classes for classes in (6, 12, 24)]
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize(("known", "most"), [(8, 30), (0, 30), (5, 4), (1, 3)])
def test_numbers_from_none_to_most_new_ones_are_tried_a_quarter_more_each_time(known, most):
    tried = [number - known for number, *_ in asked(16, known, most=most).curve]
    assert tried[0] == max(0, 2 - known)  # one cluster says nothing
    assert tried[-1] == most
    for before, after in itertools.pairwise(tried):
        assert before + 1 <= after <= max(before + 1, math.ceil(1.25 * before))


def test_every_answer_has_one_new_class_at_least():
    x, truth = blobs(6, each=8)
    labelled = torch.arange(len(truth)) % 2 == 0  # none is new
    found = count(x[~labelled], x[labelled], truth[labelled], most=3)
    assert min(found.estimates.values()) == 7
    assert found.least == 7


def naive_pairs(cluster, labels, some):
    joined = shared = 0
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            if i != j and a in some and b in some:
                joined += cluster[i] == cluster[j]
                shared += a == b
    return joined, shared


def naive_crossing(scale, falls):
    for i in range(len(falls)):
        if falls[i] <= 0:
            if i == 0:
                return scale[0]
            a, b = (scale[i - 1], falls[i - 1]), (scale[i], falls[i])
            return a[0] + (b[0] - a[0]) * (0 - a[1]) / (b[1] - a[1])
    return scale[-1]


def test_the_answer_equals_that_of_loops_over_pairs_and_classes_left_out():
    classes, known, starts, most = 7, 4, 3, 6
    x, truth = blobs(classes, each=6)
    labels, new = truth[truth < known].tolist(), x[truth >= known]
    found = count(new, x[truth < known], truth[truth < known], most=most, starts=starts)
    numbers = [4, 5, 6, 7, 8, 9, 10]  # by one at first, for a quarter more would be less than that
    assert [tried.classes for tried in found.curve] == numbers
    clusters = {}
    for k in numbers:
        random = generator(0, "count", k)
        clusters[k] = [kmeans(x, k, random, starts=1).assignment.tolist() for _ in range(starts)]

    def surplus(some):
        falls = []
        for k in numbers:
            counted = [naive_pairs(cluster, labels, some) for cluster in clusters[k]]
            joined = sum(joined for joined, _ in counted) / starts
            falls.append(math.log((joined + 1) / (counted[0][1] + 1)))
        return falls

    everybody = surplus(set(range(known)))
    for tried, falls in zip(found.curve, everybody, strict=True):
        of_labelled = [accuracy(torch.tensor(labels), torch.tensor(c[: len(labels)])) for c in clusters[tried.classes]]
        assert tried.pairs == pytest.approx(falls)
        assert tried.accuracy == pytest.approx(sum(of_labelled) / starts)
        assert tried.silhouette == pytest.approx(silhouette_score(x.double(), clusters[tried.classes][0]))
    scale = [math.log(k) for k in numbers]
    estimate = math.exp(naive_crossing(scale, everybody))
    assert found.classes == max(round(estimate), known + 1)
    left_out = [naive_crossing(scale, surplus(set(range(known)) - {out})) for out in range(known)]
    mean = sum(left_out) / known
    error = math.sqrt((known - 1) / known * sum((value - mean) ** 2 for value in left_out))
    share = min(0.5, max(0.25, math.exp(error) - 1))
    assert found.least == max(math.floor(found.classes * (1 - share)), known + 1)
    assert found.most == math.ceil(found.classes * (1 + share))


@pytest.mark.parametrize(("error", "share"), [(0.0, 0.25), (0.3, math.expm1(0.3)), (9.0, 0.5)])
@pytest.mark.parametrize(("known", "name"), [(8, "_jackknife"), (0, "_plateau")])
def test_an_interval_is_an_error_to_either_side_a_quarter_at_least_and_half_at_most(
    monkeypatch, error, share, known, name
):
    monkeypatch.setattr(counting, name, lambda *_: error)
    found = asked(16, known)
    assert found.least == max(math.floor(found.classes * (1 - share)), known + 1)
    assert found.most == math.ceil(found.classes * (1 + share))


def test_the_jackknife_knows_the_standard_error_of_a_mean():
    x = np.random.default_rng(0).normal(size=12)
    left_out = [np.delete(x, i).mean() for i in range(12)]
    assert counting._jackknife(left_out) == pytest.approx(x.std(ddof=1) / math.sqrt(12))


def test_a_plateau_reaches_as_far_as_the_curve_stays_within_a_tenth_of_its_range():
    x = np.array([0.0, 1.0, 2.0, 4.0, 7.0])
    assert counting._plateau(x, np.array([0.0, 0.95, 1.0, 0.92, 0.2])) == 2.0
    assert counting._plateau(x, np.array([0.0, 0.89, 1.0, 0.89, 0.2])) == 0.0
    assert counting._plateau(x, np.array([9.5, 0.0, 10.0, 9.1, 0.0])) == 2.0


def test_a_falling_curve_crosses_between_its_points():
    x = np.array([0.0, 1.0, 3.0, 4.0])
    assert crossing(x, np.array([5.0, 3.0, -1.0, -2.0])) == 2.5
    assert crossing(x, np.array([5.0, 3.0, 0.0, -2.0])) == 3.0
    assert crossing(x, np.array([5.0, -5.0, 3.0, -3.0])) == 0.5  # the first of several


def test_a_curve_that_never_crosses_ends_where_it_is_nearest():
    x = np.array([1.0, 2.0, 4.0])
    assert crossing(x, np.array([3.0, 2.0, 1.0])) == 4.0
    assert crossing(x, np.array([-1.0, -2.0, -3.0])) == 1.0


def test_the_top_of_a_smoothed_curve_is_the_highest_weighted_mean():
    x = np.array([0.0, 0.1, 0.2, 0.5, 0.9, 1.0])
    y = np.array([0.0, 0.3, 0.1, 0.5, 0.9, 0.2])
    best, where = -math.inf, math.nan
    for i in range(512):
        t = i / 511
        weights = [math.exp(-((t - at) ** 2) / (2 * 0.15**2)) for at in x]
        height = sum(w * v for w, v in zip(weights, y, strict=True)) / sum(weights)
        if height > best:
            best, where = height, t
    assert top(x, y) == pytest.approx(where)


def test_one_jagged_point_is_not_the_top_but_a_smooth_hill_is():
    x = np.linspace(0, 3, 31)
    hill = np.exp(-((x - 1.2) ** 2))
    assert top(x, hill) == pytest.approx(1.2, abs=0.02)
    jagged = hill.copy()
    jagged[27] = 1.05  # a single number that did well by luck
    assert jagged.argmax() == 27
    assert top(x, jagged) == pytest.approx(1.2, abs=0.1)
    assert top(x, jagged, width=0.01) == pytest.approx(2.7, abs=0.05)  # without smoothing it would be believed


def test_a_sample_keeps_two_of_each_class_and_half_of_either_kind():
    x, truth = blobs(20, each=30)
    place = torch.arange(len(x)).float()[:, None].expand(-1, 16)  # that rows and labels stay together
    unlabelled, labelled, labels = counting._some(x, place, truth, 60, seed=0)
    assert len(unlabelled) == 30
    assert (torch.bincount(labels) >= 2).all()
    assert len(torch.bincount(labels)) == 20
    assert len(labelled) == 40  # two each are more than are left
    assert torch.equal(truth[labelled[:, 0].long()], labels)
    assert len(labelled[:, 0].unique()) == 40
    for rows in (200, 400):
        unlabelled, labelled, labels = counting._some(x, place, truth, rows, seed=0)
        assert (len(unlabelled), len(labelled)) == (rows // 2, rows // 2)
        assert (torch.bincount(labels, minlength=20) >= 2).all()


def test_where_one_kind_is_small_the_other_fills_the_sample():
    x, truth = blobs(4, each=30)
    for n, m, kept in ((10, 120, (10, 50)), (120, 10, (50, 10)), (20, 30, (20, 30)), (120, 0, (60, 0))):
        some = counting._some(x[:n], x[:m], truth[:m], 60, seed=0)
        assert (len(some[0]), len(some[1])) == kept
        assert len(some[2]) == kept[1]


def test_of_few_images_all_are_counted_in_their_order():
    x, truth = blobs(4, each=5)
    for got, given in zip(counting._some(x, x + 1, truth, 40, seed=3), (x, x + 1, truth), strict=True):
        assert torch.equal(got, given)


def test_another_seed_samples_other_images_of_either_kind():
    x, truth = blobs(4)
    first, again, other = (counting._some(x, x, truth, 60, seed) for seed in (0, 0, 1))
    for kind in range(2):
        assert torch.equal(first[kind], again[kind])
        assert not torch.equal(first[kind], other[kind])


def test_a_sample_is_enough():
    whole, part = asked(16, 8, each=60, rows=10_000), asked(16, 8, each=60, rows=400)
    assert abs(part.classes - whole.classes) <= 3
    assert part.curve != whole.curve


def test_how_far_clusters_lie_apart_is_asked_of_half_of_the_sample_by_the_seed():
    x, _ = blobs(4, each=10)
    found = count(x, x[:0], torch.zeros(0, dtype=torch.long), most=3, rows=40, seed=1)
    for tried in found.curve:
        cluster = kmeans(x, tried.classes, generator(1, "count", tried.classes), starts=1).assignment
        assert tried.silhouette == pytest.approx(silhouette(x, cluster, rows=20, seed=1))


def test_same_seed_same_answer_and_another_seed_another_curve():
    assert asked(9, 4, mixed=True, most=10) == asked(9, 4, mixed=True, most=10)
    x, truth = blobs(9)
    curves = [count(x[truth > 3], x[truth < 4], truth[truth < 4], most=10, seed=seed).curve for seed in (0, 1)]
    assert curves[0] != curves[1]


def test_there_are_at_most_half_as_many_classes_as_images():
    x, _ = blobs(10, each=1)
    found = count(x, x[:0], torch.zeros(0, dtype=torch.long))
    assert [tried.classes for tried in found.curve] == [2, 3, 4, 5]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_too_few_images_to_count_are_refused(n):
    x, _ = blobs(4, each=1)
    with pytest.raises(ValueError, match=f"found {n} unlabelled images: counting classes needs at least 4"):
        count(x[:n], x[:0], torch.zeros(0, dtype=torch.long))
    assert count(x, x[:0], torch.zeros(0, dtype=torch.long)).classes == 2


def test_where_nothing_is_labelled_nothing_is_said_of_labels():
    found = asked(5, 0, most=8)
    assert all(math.isnan(tried.pairs) and math.isnan(tried.accuracy) for tried in found.curve)
    heights = np.array([tried.silhouette for tried in found.curve])
    assert found.classes == round(math.exp(top(np.log([tried.classes for tried in found.curve]), heights)))


def test_counting_tells_how_far_it_is():
    told: list[tuple[int, int]] = []
    x = torch.randn(40, 3, generator=generator("told"))
    found = count(x, x[:0], torch.zeros(0, dtype=torch.long), progress=lambda done, of: told.append((done, of)))
    assert told == [(i + 1, len(found.curve)) for i in range(len(found.curve))]


TOPS = {"pairs": math.log(12), "accuracy": math.log(20), "silhouette": math.log(16)}
ERRED = [Errors(-0.4, 0.1, 0.0), Errors(-0.2, 0.9, 0.05), Errors(-0.3, 0.2, -0.2)]


def test_criteria_speak_together_as_a_loop_over_them_says():
    total = weight = 0.0
    for name, top_ in TOPS.items():
        own = [getattr(errors, name) for errors in ERRED]
        mean = sum(own) / 3
        variance = sum((error - mean) ** 2 for error in own) / 2
        total += (top_ - mean / 2) / (variance + 0.01)
        weight += 1 / (variance + 0.01)
    assert combine(TOPS, ERRED) == pytest.approx((total / weight, math.sqrt(0.17**2 + 1 / weight)))


def test_the_order_of_hidings_and_of_criteria_does_not_matter():
    found = combine(TOPS, ERRED)
    for order in itertools.permutations(ERRED):
        assert combine(dict(reversed(TOPS.items())), order) == pytest.approx(found)


def test_half_of_what_all_were_off_by_is_taken_back():
    level = [Errors(0.2, 0.2, 0.2), Errors(0.0, 0.0, 0.0)]
    shifted = [Errors(*(error + 0.6 for error in errors)) for errors in level]
    (log, error), (less, same) = combine(TOPS, level), combine(TOPS, shifted)
    assert less == pytest.approx(log - 0.3)
    assert same == pytest.approx(error)
    assert log == pytest.approx(sum(TOPS.values()) / 3 - 0.05)  # equally steady, so the mean of all


def test_who_was_off_now_by_this_and_now_by_that_counts_least():
    wild = [Errors(-0.1, -2.0, -0.1), Errors(0.1, 2.0, 0.1)]
    assert math.exp(combine(TOPS, wild)[0]) == pytest.approx(math.sqrt(12 * 16), rel=0.01)
    assert combine(TOPS, wild)[1] > combine(TOPS, [Errors(-0.1, -0.1, -0.1), Errors(0.1, 0.1, 0.1)])[1]
    assert combine(TOPS, wild[:1])[1] > 0.5  # one hiding says how far off, but not how steadily


def test_what_is_known_of_errors_decides_where_enough_classes_are_known():
    x, truth = blobs(9)
    labelled = truth < 4
    given = x[~labelled], x[labelled], truth[labelled]
    tops = sweep(*given, most=20).tops
    found, before = count(*given, most=20, errors=ERRED), count(*given, most=20)
    log, error = combine(tops, ERRED)
    assert found.criterion == "rehearsed"
    assert found.classes == round(math.exp(log))
    assert (found.least, found.most) == (round(math.exp(log - 1.28 * error)), round(math.exp(log + 1.28 * error)))
    assert (found.estimates, found.curve) == (before.estimates, before.curve)
    assert before.criterion == "pairs"
    few = truth < 2
    assert count(x[~few], x[few], truth[few], most=5, errors=ERRED).criterion == "silhouette"


def test_every_corrected_answer_has_one_new_class_at_least():
    found = asked(9, 4, errors=[Errors(9.0, 9.0, 9.0)] * 2)
    error = math.hypot(0.17, 0.1 / math.sqrt(3))  # of three that are as steady as can be
    assert (found.classes, found.least, found.most) == (5, 5, round(5 * math.exp(1.28 * error)))


@pytest.mark.parametrize("errors", [(), [Errors(-0.3, -0.3, -0.4), Errors(-0.3, -0.2, -0.3)]])
@pytest.mark.parametrize("images", [1, 3, 10])
def test_no_new_class_is_without_an_image_however_many_are_known(images, errors):
    x, truth = blobs(50, each=8)
    others = torch.randn(images, 16, generator=generator("others", images))
    found = count(others, x, truth, errors=errors)
    assert 1 <= found.least - 50 <= found.novel <= found.most - 50 <= images


def test_no_more_new_classes_are_found_than_were_looked_for_whatever_counting_was_off_by():
    found = asked(9, 4, most=6, errors=[Errors(-3.0, -3.0, -3.0)] * 2)
    assert found.novel == found.curve[-1].classes - 4 == 6
    assert found.least <= found.classes <= found.most


def test_a_novel_class_counts_where_it_lies_outside_the_ball_that_every_known_class_has_to_itself():
    random = generator("balls")
    known = torch.randn(6, 3, generator=random)
    radius = min((a - b).norm().item() for a, b in itertools.combinations(known, 2)) / 2
    away = torch.nn.functional.normalize(torch.randn(60, 3, generator=random))
    novel = known.repeat(10, 1) + 3 * radius * torch.rand(60, 1, generator=random) * away
    expected = [min((c - k).norm().item() for k in known) > radius for c in novel]
    assert distinct(novel, known).tolist() == expected
    assert 10 < sum(expected) < 50
    assert distinct(known[:1] + 1e-3, known[:1]).tolist() == [True], "one known class keeps no distance"
    assert distinct(novel[:0], known).tolist() == []
