"""Hidings, and how a way is chosen by them."""

import itertools
import json
import math
import statistics

import pytest
import torch

from newfound.functional.counting import Errors
from newfound.functional.rehearsal import (
    CLASSES,
    ENOUGH,
    GLANCE,
    Expected,
    Rehearsal,
    Trial,
    Way,
    choose,
    describe,
    expect,
    gain,
    hide,
    name_family,
    tabulate,
    tell_nothing,
    thin,
)
from newfound.types import generator

PLAIN = Way("eye", 3.0, "kmeans", "k-means")
SHIFTED, OTHER, TRAINED = (
    PLAIN._replace(reading="mean-shift"),
    PLAIN._replace(shrink=1.0),
    PLAIN._replace(method="spacing"),
)


def labels(*sizes):
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def scores(mean, seed=0, noise=0.01, number=10):
    """Scores about a mean, the same hidings being hard for all."""
    hard = 0.1 * torch.randn(number, generator=generator("hard"))
    own = noise * torch.randn(number, generator=generator("own", seed))
    return tuple((mean + hard + own - own.mean()).tolist())


@pytest.mark.parametrize("sizes", [(12,) * 6, (5, 40, 9, 4, 30), (50,) * 60])
def test_a_hiding_tells_nothing_of_hidden_classes_and_shares_no_image(sizes):
    y = labels(*sizes)
    found = hide(y, 0, "turn")
    hidden = {int(label) for label in y[found.pile[found.truth >= found.known]]}
    assert len(hidden) == found.hidden <= min(CLASSES, len(sizes) // 2)
    assert not hidden & set(y[found.labelled].tolist())
    assert not set(found.labelled.tolist()) & set(found.pile.tolist())
    assert found.labels.unique().tolist() == [*range(found.known)]
    assert (found.truth < found.known).any()
    for rows, numbers in ((found.labelled, found.labels), (found.pile, found.truth)):  # numbers are those of classes
        pairs = set(zip(y[rows].tolist(), numbers.tolist(), strict=True))
        assert len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs)


def test_a_thinner_hiding_has_fewer_images_of_the_same_and_one_of_each_kept_class():
    found = hide(labels(*(30,) * 12), 0)
    few = thin(found, 4, 1)
    assert len(few.pile) == 4
    assert found.known <= len(few.labelled) < found.known + 4
    assert few.labels.unique().tolist() == [*range(found.known)]
    of_told, of_pile = (dict(zip(*map(torch.Tensor.tolist, some), strict=True)) for some in (found[:2], found[2:4]))
    assert [of_told[row] for row in few.labelled.tolist()] == few.labels.tolist()
    assert [of_pile[row] for row in few.pile.tolist()] == few.truth.tolist()
    assert thin(found, 4, 1).pile.tolist() == few.pile.tolist() != thin(found, 4, 2).pile.tolist()


def test_a_hiding_of_few_images_is_not_thinned():
    found = hide(labels(*(30,) * 12), 0)
    for mine, theirs in zip(thin(found, 400, 1), found, strict=True):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))


def test_hidings_are_a_function_of_their_key():
    y = labels(*(20,) * 8)
    first, again, other = hide(y, 0, 1), hide(y, 0, 1), hide(y, 0, 2)
    assert all(map(torch.equal, first[:4], again[:4]))
    assert first.pile.tolist() != other.pile.tolist()


def test_a_class_of_two_images_is_never_hidden():
    y = labels(2, 20, 20, 20, 20)
    for turn in range(20):
        found = hide(y, turn)
        assert 0 not in y[found.pile[found.truth >= found.known]].tolist()
        assert 0 in y[found.labelled].tolist()


@pytest.mark.parametrize("sizes", [(), (30, 30, 30), (30, 30, 30, ENOUGH - 1)])
def test_with_too_few_classes_nothing_is_hidden(sizes):
    assert hide(labels(*sizes) if sizes else torch.zeros(0, dtype=torch.long), 0) is None


def test_a_way_is_taken_where_it_is_better_by_more_than_its_noise():
    trials = [Trial(PLAIN, scores(0.6)), Trial(SHIFTED, scores(0.63, 1)), Trial(OTHER, scores(0.61, 2))]
    assert choose(trials, PLAIN) == SHIFTED
    noisy = [Trial(PLAIN, scores(0.6)), Trial(SHIFTED, scores(0.63, 1, noise=0.2))]
    assert choose(noisy, PLAIN) == PLAIN
    assert gain(noisy[1], noisy[0])[0] == pytest.approx(0.03)


def test_a_gain_too_small_to_matter_is_not_taken():
    assert choose([Trial(PLAIN, (0.6,) * 5), Trial(SHIFTED, (0.604,) * 5)], PLAIN) == PLAIN
    assert choose([Trial(PLAIN, (0.6,) * 5), Trial(SHIFTED, (0.606,) * 5)], PLAIN) == SHIFTED


def test_classes_that_are_all_alike_leave_the_default():
    trials = [Trial(way, scores(0.25, seed, noise=0.03)) for seed, way in enumerate((PLAIN, SHIFTED, OTHER, TRAINED))]
    assert choose(trials, PLAIN) == PLAIN


def test_what_was_tried_on_few_hidings_must_beat_the_best_of_the_others_on_these():
    plain, shifted = Trial(PLAIN, scores(0.6)), Trial(SHIFTED, scores(0.65, 1))
    between = Trial(TRAINED, tuple(a + 0.02 + 0.001 * i for i, a in enumerate(plain.scores[:3])))
    best = Trial(TRAINED, tuple(a + 0.02 + 0.001 * i for i, a in enumerate(shifted.scores[:3])))
    assert choose([plain, shifted, between], PLAIN) == SHIFTED
    assert choose([plain, shifted, best], PLAIN) == TRAINED


def test_the_order_of_ways_does_not_matter():
    trials = [
        Trial(PLAIN, scores(0.6)),
        Trial(SHIFTED, scores(0.63, 1)),
        Trial(OTHER, scores(0.63, 1)),  # a tie
        Trial(TRAINED, scores(0.5, 3)[:3]),
    ]
    assert len({choose(order, PLAIN) for order in itertools.permutations(trials)}) == 1


def test_what_is_not_allowed_is_not_taken():
    trials = [Trial(PLAIN, scores(0.6)), Trial(SHIFTED, scores(0.7, 1)), Trial(OTHER, scores(0.65, 2))]
    assert choose(trials, PLAIN, lambda way: way.reading == "k-means") == OTHER
    assert choose(trials, PLAIN, lambda way: way == PLAIN) == PLAIN
    assert choose(trials, PLAIN, lambda way: way != PLAIN) == SHIFTED
    assert choose(trials, PLAIN, lambda way: False) == PLAIN
    assert choose([], TRAINED) == TRAINED


def test_an_expected_accuracy_is_the_mean_of_runs_alike_with_room_for_one_more():
    values = [0.5, 0.6, 0.7, 0.6, 0.5, 0.7]
    found = expect(values, [8] * 6)
    half = 1.3 * statistics.stdev(values) * math.sqrt(1 + 1 / 6)
    assert found[:4] == pytest.approx((0.6, 0.6 - half, 0.6 + half, 8))
    assert expect([0.6, 0.6], [8, 8])[:3] == pytest.approx((0.6, 0.57, 0.63))
    assert expect([0.6], [8]) is None


def test_it_falls_with_the_number_of_classes_as_far_as_runs_show_it():
    steep = expect([0.5, 0.5, 0.7, 0.7] * 10, [16, 16, 4, 4] * 10)
    flat = expect([0.6, 0.6, 0.6, 0.6] * 10, [16, 16, 4, 4] * 10)
    assert steep.classes == 16
    assert steep.accuracy == pytest.approx(0.5, abs=0.01)
    assert steep.falls == pytest.approx(0.2 / math.log(4), abs=0.01)
    assert flat.falls == pytest.approx(0, abs=0.01)
    assert steep.at(64).accuracy == pytest.approx(0.3, abs=0.02)


def test_carried_on_to_more_classes_the_interval_widens_and_stays_an_accuracy():
    found = Expected(0.6, 0.5, 0.7, 10, 0.1)
    more = found.at(20)
    assert more.accuracy == pytest.approx(0.6 - 0.1 * math.log(2))
    assert more.most - more.least > found.most - found.least
    assert found.at(10) == found
    assert found.at(10**6)[:2] == (1e-6, 1e-6)
    assert Expected(0.97, 0.9, 1.0, 10, 0.1).at(2).most == 1.0
    assert str(found) == "60 % (50 to 70)"


def test_a_rehearsal_travels_as_plain_values():
    trials = (Trial(PLAIN, (0.5, 0.25)), Trial(TRAINED, (0.75,)))
    counted = (Errors(-0.25, 0.5, 0.0), Errors(0.125, 0.25, -1.0))
    found = Rehearsal(8, 4, trials[:1], trials, Expected(0.6, 0.5, 0.7, 8, 0.1), None, "", counted, trials[1:])
    found = found._replace(mixed_counted=Expected(0.5, 0.4, 0.6, 8, 0.1))
    assert Rehearsal.of(json.loads(json.dumps(found.asdict()))) == found
    assert Rehearsal.of(json.loads(json.dumps(Rehearsal(3, 0, why="too few").asdict()))).why == "too few"


@pytest.mark.parametrize(
    "damage",
    [
        {"known": "many"},
        {"trials": [{"backbone": "eye"}]},
        {"trials": [PLAIN._asdict() | {"scores": []}]},
        {"trials": [PLAIN._asdict() | {"scores": [math.nan]}]},
        {"mixed": [0.5]},
        {"counting": [{"pairs": 0.5}]},
        {"counting": [Errors(0.5, math.inf, 0.0)._asdict()]},
    ],
)
def test_what_is_no_rehearsal_is_refused(damage):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Rehearsal.of(Rehearsal(8, 4).asdict() | damage)


def test_a_rehearsal_from_before_classes_were_counted_in_it_is_read():
    found = Rehearsal(8, 4, why="old", counting=(Errors(0.5, 0.5, 0.5),))
    old = {name: value for name, value in found.asdict().items() if name != "counting"}
    assert Rehearsal.of(old) == found._replace(counting=())


def test_where_known_classes_are_not_among_images_the_other_trials_count():
    mixed, apart = (Trial(PLAIN, (0.5,)),), (Trial(PLAIN, (0.75,)),)
    found = Rehearsal(8, 4, trials=mixed, apart=apart)
    assert (found.tried(mixed=True), found.tried(mixed=False)) == (mixed, apart)
    assert found._replace(apart=()).tried(mixed=False) == mixed
    assert tabulate(found, PLAIN, mixed=False) == {"eye": [(PLAIN.manner, 0.75, True)]}


def test_ways_tell_nothing_where_none_does_better_than_lots():
    lots = Trial(PLAIN, scores(0.3))
    alike = [Trial(OTHER, scores(0.3, 1)), Trial(SHIFTED, scores(0.304, 2, noise=0.03))]
    assert tell_nothing(alike, lots)
    assert not tell_nothing([*alike, Trial(TRAINED, scores(0.35, 3))], lots)


@pytest.mark.parametrize(
    ("backbone", "name"),
    [
        ("net-small+net-large", "net-small+large"),
        ("net-small+net-large on whole pictures", "net-small+large on whole pictures"),
        ("net-small+other-large", "net-small+other-large"),
        ("net+nets", "net+nets"),
        ("net-small", "net-small"),
    ],
)
def test_what_networks_side_by_side_have_in_common_is_said_once(backbone, name):
    assert name_family(backbone) == name


def test_the_table_shows_backbones_first_and_the_best_before():
    found = Rehearsal(8, 4, (Trial(PLAIN, (0.5,)),), (Trial(PLAIN, (0.4,)), Trial(SHIFTED, (0.6,))))
    ways = [("mean-shift, shrunk by 3", 0.6, True), ("k-means, shrunk by 3", 0.4, False)]
    assert tabulate(found, SHIFTED) == {GLANCE: [("eye, k-means", 0.5, False)], "eye": ways}
    assert tabulate(found._replace(backbones=()), SHIFTED) == {"eye": ways}


def test_no_line_of_the_table_is_wider_than_a_terminal():
    widest = Way(
        "efficientnet-lite0+efficientnet-lite2 on whole pictures", 3.0, "pairs+spacing:aligned", "discriminant"
    )
    found = Rehearsal(100, 10, (Trial(widest, (0.5,)),), (Trial(widest, (0.4,)),))
    assert max(map(len, describe(found, widest))) <= 80
