"""What people say of a discovery, and the classes that follow."""

import itertools

import pytest
import torch

from newfound.discovery.edits import ACTIONS, Edit, apply, begin, classes, standing
from newfound.discovery.found import Clusters
from newfound.errors import InputError
from newfound.functional.geometry import distances
from newfound.types import generator
from tests.discovery.made import ABSENT, CAT, FIRST, PLACES, SECOND, THIRD, make_found


@pytest.fixture(scope="module")
def found():
    return make_found()


def members(now):
    """Rows by class, as sets: what laws are about."""
    return {number: frozenset(now.rows(number).tolist()) for number in now.numbers}


def state(now):
    """All of the present classes that anybody can see."""
    return (
        now.names,
        now.known,
        now.assignment.tolist(),
        now.aside.tolist(),
        dict(now.decided),
        now.distances.tolist(),
        now.owners.tolist(),
    )


def halves(found, number):
    rows = classes(found).rows(number).tolist()
    return tuple(rows[::2]), tuple(rows[1::2])


def one_of_each(found):
    """Edits that may follow one another, of every action."""
    first, second = halves(found, FIRST)
    return [
        Edit("rename", (SECOND,), names=("sea pen",)),
        Edit("merge", (CAT, SECOND)),
        Edit("split", (FIRST,), parts=(first, second), made=(6,), names=("new-9",)),
        Edit("move", (THIRD,), rows=first[:2]),
        Edit("move", rows=first[2:4], made=(7,), names=("crab",)),
        Edit("set aside", rows=second[:1]),
        Edit("accept", (6,), rows=second[1:3], by="Ada"),
    ]


def test_with_nothing_said_the_classes_are_what_was_found(found):
    now = classes(found, [])
    assert now.names == {CAT: "cat", ABSENT: "new-1", FIRST: "new-2", SECOND: "new-3", THIRD: "new-4"}
    assert now.assignment.tolist() == [found.numbers[c] for c in found.clusters.assignment.tolist()]
    assert torch.equal(now.distances, found.distances)
    assert [now.kind(number) for number in now.numbers] == ["known", "known", "new", "new", "new"]
    assert not now.aside.any()
    assert not now.decided


def test_every_action_is_tried_here(found):
    assert {edit.action for edit in one_of_each(found)} | {"undo", "redo"} == {*ACTIONS}


def test_an_edit_and_its_undo_cancel_and_redo_does_it_again(found):
    edits: list[Edit] = []
    for edit in one_of_each(found):
        before, after = state(classes(found, edits)), state(classes(found, [*edits, edit]))
        assert before != after
        assert state(classes(found, [*edits, edit, Edit("undo")])) == before
        assert state(classes(found, [*edits, edit, Edit("undo"), Edit("redo")])) == after
        edits.append(edit)


def test_all_can_be_undone_and_done_again(found):
    edits = one_of_each(found)
    back, forth = [Edit("undo")] * len(edits), [Edit("redo")] * len(edits)
    assert state(classes(found, [*edits, *back])) == state(classes(found))
    assert state(classes(found, [*edits, *back, *forth])) == state(classes(found, edits))


def test_undoing_and_redoing_nothing_changes_nothing():
    said = Edit("rename", (FIRST,), names=("a",))
    assert standing([Edit("undo"), Edit("redo"), said, Edit("redo")]) == [said]


def test_what_was_undone_is_gone_once_something_else_is_said():
    one, other = (Edit("rename", (FIRST,), names=(name,)) for name in "ab")
    assert standing([one, Edit("undo"), other, Edit("redo")]) == [other]


def test_replaying_gives_the_same_as_doing_one_after_the_other(found):
    now = begin(found)
    for edit in one_of_each(found):
        now = apply(now, edit)
    assert state(now) == state(classes(found, one_of_each(found)))


def test_edits_are_the_same_after_they_were_written_and_read(found):
    for edit in [*one_of_each(found), Edit("undo", by="Żółw\n", at="2026-01-01T00:00:00+00:00")]:
        assert "\n" not in edit.line()
        assert Edit.read(edit.line()) == edit


@pytest.mark.parametrize(
    "line",
    [
        "",
        "7",
        "{}",
        "null",
        '{"action": "explode"}',
        '{"action": "rename", "classes": ["1"]}',
        '{"action": "rename", "classes": [1.5]}',
        '{"action": "rename", "classes": [true]}',
        '{"action": "rename", "classes": 1}',
        '{"action": "move", "rows": "12"}',
        '{"action": "rename", "names": [1]}',
        '{"action": "rename", "by": 1}',
        '{"action": "rename", "unheard": 1}',
        '{"action": "split", "parts": [1]}',
        '{"action": ["rename"]}',
    ],
)
def test_what_is_no_edit_is_refused(line):
    with pytest.raises((ValueError, TypeError)):
        Edit.read(line)


def test_edits_of_different_classes_may_come_in_any_order(found):
    first, second = halves(found, FIRST)
    edits = [
        Edit("rename", (SECOND,), names=("sea pen",)),
        Edit("split", (FIRST,), parts=(first, second), made=(6,), names=("a",)),
        Edit("set aside", rows=tuple(classes(found).rows(THIRD)[:2].tolist())),
    ]
    states = [members(classes(found, order)) for order in itertools.permutations(edits)]
    assert all(other == states[0] for other in states)


def test_a_merge_loses_nothing_and_splitting_back_restores_the_members(found):
    before = classes(found)
    merged = apply(before, Edit("merge", (FIRST, SECOND)))
    assert members(merged)[FIRST] == members(before)[FIRST] | members(before)[SECOND]
    assert SECOND not in merged.names
    parts = tuple(tuple(before.rows(number).tolist()) for number in (FIRST, SECOND))
    back = apply(merged, Edit("split", (FIRST,), parts=parts, made=(6,), names=("again",)))
    assert members(back)[FIRST] == members(before)[FIRST]
    assert members(back)[6] == members(before)[SECOND]


def test_a_new_class_that_a_known_one_is_merged_into_is_known(found):
    assert classes(found, [Edit("merge", (FIRST, CAT))]).kind(FIRST) == "known"
    assert classes(found, [Edit("merge", (FIRST, SECOND))]).kind(FIRST) == "new"


def test_parts_lie_at_the_mean_of_their_images_and_the_old_centre_is_nobody_s(found):
    first, second = halves(found, FIRST)
    now = classes(found, [Edit("split", (FIRST,), parts=(first, second), made=(6,), names=("a",))])
    for number, rows in ((FIRST, first), (6, second)):
        centre = found.features[list(rows)].mean(0)
        torch.testing.assert_close(now.centres[now.owners == number], centre[None])
        for row in rows:
            away = (found.features[row] - centre).norm()
            torch.testing.assert_close(now.distances[row, now.own[row]], away)
    assert now.distances[:, FIRST - 1].isinf().all()


def test_a_known_class_that_is_split_stays_where_its_labelled_images_put_it(found):
    first, second = halves(found, CAT)
    now = classes(found, [Edit("split", (CAT,), parts=(first, second), made=(6,), names=("a",))])
    assert torch.equal(now.centres[now.owners == CAT], PLACES[:1])
    assert now.kind(CAT) == "known"
    assert now.kind(6) == "new"


def test_a_moved_image_goes_by_the_nearest_centre_of_its_class_and_somebody_decided_on_it(found):
    now = classes(found, [Edit("merge", (SECOND, THIRD)), Edit("move", (SECOND,), rows=(0, 43))])
    assert now.assignment[[0, 43]].tolist() == [SECOND, SECOND]
    for row in (0, 43):
        away = (PLACES[[3, 4]] - found.features[row]).norm(dim=1)
        assert now.own[row] == 3 + away.argmin()
    assert dict(now.decided) == {0: "somebody", 43: "somebody"}


def test_a_move_measures_no_images_but_those_that_move(found, monkeypatch):
    now = classes(found, [Edit("move", rows=(0, 1), made=(6,), names=("a",))])
    measured = []

    def measure(points, others=None):
        measured.append(len(points))
        return distances(points, others)

    monkeypatch.setattr("newfound.discovery.edits.distances", measure)
    apply(now, Edit("move", (SECOND,), rows=(2, 3, 4)))
    assert measured == [3]


def test_what_was_set_aside_is_of_no_class_until_it_is_moved_to_one(found):
    row = int(classes(found).rows(FIRST)[0])
    aside = classes(found, [Edit("set aside", rows=(row,))])
    assert row not in members(aside)[FIRST]
    back = apply(aside, Edit("move", (SECOND,), rows=(row,)))
    assert row in members(back)[SECOND]
    assert not back.aside.any()


def test_numbers_are_never_given_anew(found):
    now = classes(found, [Edit("move", rows=(0, 1), made=(8,), names=("a",)), Edit("merge", (FIRST, 8))])
    assert now.used == 8
    for number in (3, 6, 8):
        with pytest.raises(InputError, match=f"number {number} was a class's before"):
            apply(now, Edit("move", rows=(2,), made=(number,), names=("b",)))


def test_the_number_of_a_class_that_was_undone_is_not_given_to_another(found):
    made, undo, redo = Edit("move", rows=(0, 1), made=(6,), names=("a",)), Edit("undo"), Edit("redo")
    assert classes(found, [made, undo]).used == 6
    assert classes(found, [made, undo, redo]).names[6] == "a"
    with pytest.raises(InputError, match="number 6 was a class's before"):
        apply(classes(found, [made, undo]), made._replace(names=("b",)))


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit("rename", (9,), names=("a",)), r"no class 9; there are 1, 2, 3, 4, 5"),
        (Edit("rename", (FIRST,), names=(" \t",)), "is empty"),
        (Edit("rename", (FIRST,), names=("caf\udce9",)), r"'caf\\udce9' is empty, or not valid text"),
        (
            Edit("rename", (FIRST,), names=("cat",)),
            "another class's name, of number 1. Take another; merge",
        ),
        (Edit("rename", (FIRST,)), "rename of 1 class and 0 images that makes 0 and gives 0 names cannot be"),
        (Edit("rename", (FIRST,), names=("a", "b")), "gives 2 names cannot be"),
        (Edit("split", (FIRST,), parts=((10,), (11,)), made=(6,)), "split of 1 class .* gives 0 names cannot be"),
        (Edit("move", rows=(1,)), "move of 0 classes and 1 image that makes 0"),
        (Edit("move", (FIRST,)), "move of 1 class and 0 images"),
        (Edit("move", rows=(1,), made=(6,)), "gives 0 names cannot be"),
        (Edit("merge", (FIRST,)), "at least two different classes"),
        (Edit("merge", (FIRST, FIRST)), "at least two different classes"),
        (Edit("merge", (FIRST, FIRST, SECOND)), "at least two different classes"),
        (Edit("move", (FIRST,), rows=(44,)), "no image 44; there are 44 images, from 0 on"),
        (Edit("move", (FIRST,), rows=(-1,)), "no image -1"),
        (Edit("move", rows=(1,), made=(6,), names=("cat",)), "another class's name"),
        (Edit("split", (FIRST,), parts=((10, 11), (0, 1)), made=(6,), names=("a",)), "each of its images is once"),
        (Edit("accept", (FIRST,), rows=(0,)), "Image 0 is not of 3"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(found, edit, why):
    now = classes(found)
    before = state(now)
    with pytest.raises(InputError, match=why):
        apply(now, edit)
    assert state(now) == before


def test_a_class_may_be_called_by_its_number_or_its_name(found):
    now = classes(found)
    assert now.number(FIRST) == now.number("new-2") == FIRST
    with pytest.raises(InputError, match=r"no class called 'cats'.*Did you mean cat\?"):
        now.number("cats")


def test_a_class_may_keep_its_own_name(found):
    assert classes(found, [Edit("rename", (FIRST,), names=("new-2",))]).names[FIRST] == "new-2"


def test_two_classes_may_swap_names_by_a_third(found):
    steps = [(FIRST, "x"), (SECOND, "new-2"), (FIRST, "new-3")]
    now = classes(found, [Edit("rename", (number,), names=(name,)) for number, name in steps])
    assert (now.names[FIRST], now.names[SECOND]) == ("new-3", "new-2")


def test_on_the_sphere_parts_lie_at_the_mean_of_directions():
    x = torch.randn(12, 3, generator=generator("sphere"))
    unit = x / x.norm(dim=1, keepdim=True)
    found = make_found(
        features=x,
        clusters=Clusters(torch.zeros(12, dtype=torch.long), unit.mean(0)[None], torch.tensor([12]), unit=True),
        known=(),
    )
    now = classes(found, [Edit("split", (1,), parts=((*range(6),), (*range(6, 12),)), made=(2,), names=("b",))])
    torch.testing.assert_close(now.centres[1:], torch.stack([unit[:6].mean(0), unit[6:].mean(0)]))


def test_an_edit_on_its_own_uses_its_numbers_up(found):
    after = apply(begin(found), Edit("move", rows=(0, 1), made=(8,), names=("a",)))
    assert after.used == 8
