"""The simulated reviewer: it does what the page can, knows what it has seen, and ends with everything right."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from newfound.benchmark.reviewer import SCREEN, Reviewer, expect, filled, propose_split, select
from newfound.discovery.edits import classes
from newfound.discovery.found import Clusters
from newfound.discovery.result import Discovery
from newfound.errors import InputError
from newfound.types import generator
from tests.discovery.made import make_found

PLACES = {"ant": (0.0, 0.0), "bee": (20.0, 0.0), "cow": (0.0, 20.0), "dog": (20.0, 20.0)}


def make_run(counts, clusters, known=(), spread=1.0):
    """Images about a place for every kind, so many of each, and clusters: each the images nearest to some of the places
    named. A run of which the truth is known.
    """
    truth = tuple(kind for kind, count in counts.items() for _ in range(count))
    noise = torch.randn(len(truth), 2, generator=generator("reviewer", len(truth)))
    features = torch.tensor([PLACES[kind] for kind in truth]) + spread * noise
    own = torch.tensor([next(i for i, kinds in enumerate(clusters) if kind in kinds) for kind in truth])
    centres = torch.stack([features[own == i].mean(0) for i in range(len(clusters))])
    made = Clusters(own, centres, own.bincount(minlength=len(clusters)), unit=False)
    return Discovery(make_found(features=features, clusters=made, known=known, truth=truth))


def named(run):
    now = run.classes
    return [now.names[number] == kind for number, kind in zip(now.assignment.tolist(), run.found.truth, strict=True)]


def halved(run, number):
    """The same run with a cluster in two, as if two had been found for one kind."""
    found = run.found
    rows = (found.clusters.assignment == number).nonzero()[:, 0]
    own = found.clusters.assignment.index_fill(0, rows[::2], len(found.clusters.centres))
    centres = torch.stack([found.features[own == i].mean(0) for i in range(int(own.max()) + 1)])
    return Discovery(replace(found, clusters=Clusters(own, centres, own.bincount(), unit=False), numbers=()))


def test_classes_of_one_kind_each_take_one_action_each():
    run = make_run({"ant": 30, "bee": 20, "cow": 10}, ["ant", "bee", "cow"])
    steps = [*Reviewer(run).steps()]
    assert [(step.action, step.cost) for step in steps] == [("rename", 1)] * 3
    assert [edit.names for edit in run.edits] == [("ant",), ("bee",), ("cow",)]  # the largest first
    assert all(named(run))


def test_a_kind_in_two_classes_is_named_once_and_merged():
    run = halved(make_run({"ant": 30, "bee": 20}, ["ant", "bee"]), 0)
    steps = [*Reviewer(run).steps()]
    assert Counter(step.action for step in steps) == {"rename": 2, "merge": 1}
    assert steps[-1].actions == 3
    assert all(named(run))
    assert len(filled(run.classes)) == 2


def test_two_kinds_in_one_class_are_split_and_each_part_is_named():
    run = make_run({"ant": 40, "bee": 30, "cow": 20}, [("ant", "bee"), "cow"])
    steps = [*Reviewer(run).steps()]
    assert Counter(step.action for step in steps) == {"split": 1, "rename": 3}
    assert steps[-1].actions == 4
    assert all(named(run))


def test_strangers_are_selected_and_moved_or_make_a_class():
    run = make_run({"ant": 60, "bee": 60}, ["ant", "bee"])
    truth = [*run.found.truth]
    truth[3], truth[40], truth[70] = "bee", "cow", "ant"  # they look like the others of their class
    run = Discovery(replace(run.found, truth=tuple(truth)))
    steps = [*Reviewer(run).steps()]
    assert Counter(step.action for step in steps) == {"rename": 2, "move": 2, "new class": 1}
    assert [step.cost for step in steps if step.action != "rename"] == [2, 2, 2]  # a click and the edit
    assert all(named(run))


def test_a_known_class_full_of_another_kind_gives_its_images_to_the_class_of_that_name():
    run = make_run({"ant": 40, "bee": 30}, ["ant", "bee"], known=("bee", "ant"))
    steps = [*Reviewer(run).steps()]
    assert all(named(run))
    assert steps[-1].actions <= 6  # two names that were taken, no image one by one


@pytest.mark.parametrize("spread", [4.0, 7.0])
def test_however_mixed_it_ends_with_every_image_right_and_no_class_too_many(spread):
    counts = {"ant": 90, "bee": 60, "cow": 40, "dog": 7}
    run = make_run(counts, [("ant", "bee"), ("cow", "dog")], known=("cow",), spread=spread)
    steps = [*Reviewer(run).steps()]
    assert all(named(run))
    assert len(filled(run.classes)) == len(counts)
    assert steps[-1].looked == len(run.found)
    assert [step.actions for step in steps] == [*itertools.accumulate(step.cost for step in steps)]
    assert classes(run.found, run.edits).names == run.classes.names  # it said all of it through edits


def test_the_same_run_is_reviewed_the_same_way():
    one, two = (make_run({"ant": 50, "bee": 50, "cow": 30}, [("ant", "bee"), "cow"], spread=6.0) for _ in range(2))
    assert [*Reviewer(one).steps()] == [*Reviewer(two).steps()]
    assert [edit._replace(at="") for edit in one.edits] == [edit._replace(at="") for edit in two.edits]


def test_what_was_not_looked_at_decides_nothing():
    run = make_run({"ant": 900, "bee": 700}, ["ant", "bee"])
    reviewer = Reviewer(run)
    steps = [*itertools.islice(reviewer.steps(), 2)]
    assert steps[-1].looked == len(reviewer.kinds) <= 4 * SCREEN
    other = ["cow" if row not in reviewer.kinds else kind for row, kind in enumerate(run.found.truth)]
    again = Discovery(replace(run.found, truth=tuple(other)))
    assert [*itertools.islice(Reviewer(again).steps(), 2)] == steps
    assert [edit.names for edit in again.edits] == [("ant",), ("bee",)]


def test_the_most_valuable_action_comes_first():
    run = halved(make_run({"ant": 200, "bee": 60, "cow": 25, "dog": 8}, ["ant", "bee", ("cow", "dog")]), 0)
    right = [0, *(sum(named(run)) for _ in Reviewer(run).steps())]
    gains = np.diff(right)
    assert gains[:3].tolist() == [100, 100, 60]
    assert right[-1] == len(run.found)


def test_where_accepting_is_worth_something_right_heads_are_accepted():
    run = make_run({"ant": 30, "bee": 20}, ["ant", "bee"])
    truth = [*run.found.truth]
    truth[5] = "bee"
    run = Discovery(replace(run.found, truth=tuple(truth)))
    steps = [*Reviewer(run, confirm=0.1).steps()]
    assert "accept" in {step.action for step in steps}
    assert len(run.classes.decided) == len(run.found)
    assert all(named(run))


def test_a_run_of_which_nobody_knows_the_truth_is_refused():
    with pytest.raises(InputError, match="Nobody knows what the images of this run show"):
        Reviewer(Discovery(make_found()))


def test_what_was_not_seen_of_a_class_is_expected_to_be_as_what_was():
    assert expect(range(10), {0: "ant", 1: "ant", 2: "bee", 3: "ant", 99: "cow"}) == {"ant": 7.5, "bee": 2.5}
    assert expect([], {0: "ant"}) == {}


def test_a_split_counts_the_names_that_its_parts_want():
    kinds = dict(enumerate("aaaabbbcc"))
    (found,) = propose_split(7, [[0, 1, 2, 3], [4, 5, 6], [7, 8]], kinds)
    assert (found.gain, found.cost, found.later) == (5, 1, 2)  # the first part keeps the name
    assert found.value == 5 / 3
    (found,) = propose_split(7, [[4, 5, 6, 7, 8], [0, 1, 2, 3]], kinds)
    assert (found.gain, found.later) == (3, 2)
    assert [*propose_split(7, [[0, 1, 4, 5, 7], [2, 3, 6, 8]], kinds)] == []  # no part is purer


def clicks_of(chosen, wanted, unwanted):
    """The clicks that select these images and no unwanted one: all ways to put ranges about them are tried."""
    if not chosen:
        return 0
    first, rest = chosen[0], chosen[1:]
    ways = [1 + clicks_of(rest, wanted, unwanted)]
    for last in range(first + 1, len(wanted)):
        if unwanted[last]:
            break
        ways.append(2 + clicks_of([place for place in rest if place > last], wanted, unwanted))
    return min(ways)


def test_what_is_selected_is_the_most_per_action_of_all_choices():
    draw = np.random.default_rng(0)
    for _ in range(150):
        marks = draw.integers(3, size=7)  # wanted, unwanted, neither
        wanted, unwanted = marks == 0, marks == 1
        places = wanted.nonzero()[0].tolist()
        chosen, clicks = select(wanted, unwanted)
        if not places:
            assert len(chosen) == 0
            continue
        some = [each for size in range(1, len(places) + 1) for each in itertools.combinations(places, size)]
        by_clicks = max(len(each) / (1 + clicks_of([*each], wanted, unwanted)) for each in some)
        others = clicks_of(unwanted.nonzero()[0].tolist(), unwanted, wanted)
        best = max(by_clicks, len(places) / (2 + others))
        assert len(chosen) / (1 + clicks) == pytest.approx(best)
        assert {*chosen.tolist()} <= {*places}
