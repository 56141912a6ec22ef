"""What edits teach: a pure function of those that stand."""

import pytest
import torch

from newfound.discovery import answers as said
from newfound.discovery.answers import answers
from newfound.discovery.edits import Edit, classes
from newfound.discovery.result import Discovery
from tests.discovery.made import ABSENT, CAT, FIRST, SECOND, THIRD, make_found


@pytest.fixture
def run():
    return Discovery(make_found(), by="Ana")


def told(run):
    return answers(run.found, run.edits)


def parts_of(run, number):
    rows = run.classes.rows(number).tolist()
    return [rows[:6], rows[6:]]


def pairs(found):
    """Which image must not join which class."""
    return {(row, number) for number, rows in found.apart.items() for row in rows.nonzero()[:, 0].tolist()}


def test_nothing_said_teaches_nothing(run):
    found = told(run)
    assert not found.vouched.any()
    assert not found.aside.any()
    assert found.free.all()
    assert (found.apart, found.restructured, found.decisions) == ({}, False, ())


def test_images_that_were_accepted_moved_or_made_a_class_of_are_vouched_for_and_no_others(run):
    run.rename(FIRST, "sea pen")
    run.accept("sea pen", images=[10, 11])
    run.move([20], FIRST)
    made = run.new_class([30, 31])
    run.set_aside([40])
    found = told(run)
    assert found.vouched.nonzero()[:, 0].tolist() == [10, 11, 20, 30, 31]
    assert found.classes.assignment[found.vouched].tolist() == [FIRST, FIRST, FIRST, made, made]
    assert found.aside.nonzero()[:, 0].tolist() == [40]
    assert int(found.free.sum()) == len(run.found) - 6
    assert not found.restructured


def test_who_moves_a_class_whole_speaks_of_the_class_and_vouches_for_no_image(run):
    run.move(run.classes.rows(SECOND).tolist(), FIRST)
    found = told(run)
    assert not found.vouched.any()
    assert (pairs(found), found.decisions) == (set(), ())
    assert not len(found.classes.rows(SECOND))
    run.new_class(run.classes.rows(THIRD).tolist())  # of a class of its own somebody has picked each
    assert told(run).vouched.any()


def test_which_classes_an_edit_moves_whole_is_asked_once_however_many_images_it_moves(run, monkeypatch):
    asked, ask = [], said._move_whole
    monkeypatch.setattr(said, "_move_whole", lambda now, edit: asked.append(edit) or ask(now, edit))
    run.move(run.classes.rows(FIRST)[:6].tolist(), SECOND)
    run.accept(THIRD)
    answers(run.found, run.edits)
    assert asked == [*run.edits]


def test_who_moves_an_image_out_of_a_class_says_that_it_is_not_of_it(run):
    run.move([20, 21], FIRST)
    assert pairs(told(run)) == {(20, SECOND), (21, SECOND)}
    run.move([21], SECOND)  # back again
    assert pairs(told(run)) == {(20, SECOND), (21, FIRST)}


def test_parts_of_a_split_must_not_join_until_they_are_merged_again(run):
    _, made = run.split(FIRST, parts_of(run, FIRST))
    first, second = (run.classes.rows(number).tolist() for number in (FIRST, made))
    found = told(run)
    assert pairs(found) == {(row, made) for row in first} | {(row, FIRST) for row in second}
    assert found.restructured
    assert not found.vouched.any()
    run.merge([FIRST, made])
    assert pairs(told(run)) == set()


def test_what_must_not_join_a_class_must_not_join_what_that_was_merged_into(run):
    _, made = run.split(FIRST, parts_of(run, FIRST))
    first, second = (run.classes.rows(number).tolist() for number in (FIRST, made))
    assert run.merge([SECOND, made]) == SECOND
    assert pairs(told(run)) == {(row, SECOND) for row in first} | {(row, FIRST) for row in second}


def test_an_undone_edit_teaches_nothing_and_done_again_it_teaches_again(run):
    before = told(run)
    for say in (
        lambda: run.accept(FIRST),
        lambda: run.move([20], FIRST),
        lambda: run.set_aside([3]),
        lambda: run.merge([FIRST, SECOND]),
        lambda: run.split(THIRD, parts_of(run, THIRD)),
    ):
        say()
        done = told(run)
        run.undo()
        undone = told(run)
        assert torch.equal(undone.vouched, before.vouched)
        assert torch.equal(undone.aside, before.aside)
        assert (pairs(undone), undone.restructured, undone.decisions) == (set(), False, ())
        run.redo()
        again = told(run)
        assert torch.equal(again.vouched, done.vouched)
        assert (pairs(again), again.restructured, again.decisions) == (pairs(done), done.restructured, done.decisions)
        run.undo()


def test_numbers_that_an_undone_edit_used_stay_used(run):
    run.new_class([30])
    run.undo()
    assert told(run).classes.used == classes(run.found, run.edits).used == THIRD + 1


def test_answers_are_pure(run):
    run.accept(FIRST)
    run.split(THIRD, parts_of(run, THIRD))
    edits = tuple(run.edits)
    one, other = answers(run.found, edits), answers(run.found, edits)
    assert torch.equal(one.vouched, other.vouched)
    assert pairs(one) == pairs(other)
    assert one.decisions == other.decisions
    assert tuple(run.edits) == edits


def test_classes_that_go_on_are_known_ones_and_new_ones_with_images(run):
    run.move(run.classes.rows(SECOND).tolist(), FIRST)
    assert told(run).numbers == [CAT, ABSENT, FIRST, THIRD]
    run.set_aside(run.classes.rows(THIRD).tolist())
    assert told(run).numbers == [CAT, ABSENT, FIRST]


def test_what_may_not_be_joined_stands_in_the_order_of_the_classes_that_are_asked_for(run):
    run.move([20], FIRST)
    barred = told(run).bar([THIRD, SECOND])
    assert barred.nonzero().tolist() == [[20, 1]]
    assert barred.shape == (len(run.found), 2)


def test_decisions_say_who_decided_and_when_in_the_classes_of_now(run):
    run.accept(FIRST, images=[10, 11])
    run.by = "Bo"
    run.move([20], FIRST)
    run.set_aside([30])
    run.merge([FIRST, THIRD])
    run.by = "Cy"
    run.accept(FIRST, images=[11])
    ana, bo, aside, cy = told(run).decisions
    assert (ana.action, ana.classes, ana.rows, ana.by) == ("accept", (FIRST,), (10,), "Ana")
    assert (bo.action, bo.classes, bo.rows, bo.by) == ("accept", (FIRST,), (20,), "Bo")
    assert (aside.action, aside.rows, aside.by) == ("set aside", (30,), "Bo")
    assert (cy.rows, cy.by) == ((11,), "Cy")
    assert [edit.at for edit in (ana, bo, aside, cy)] == [run.edits[place].at for place in (0, 1, 2, 4)]


def test_an_image_that_was_set_aside_after_it_was_accepted_is_vouched_for_by_nobody(run):
    run.accept(FIRST, images=[10])
    run.set_aside([10])
    assert not told(run).vouched.any()
    run.move([10], THIRD)  # and out of there again
    assert told(run).vouched.nonzero().tolist() == [[10]]
    assert not told(run).aside.any()


def test_answers_are_told_in_a_sentence(run):
    assert str(told(run)) == "0 images of 0 classes vouched for"
    run.accept(FIRST, images=[10, 11])
    run.move([20], SECOND)
    run.move([21], FIRST)
    run.set_aside([30])
    assert str(told(run)) == (
        "4 images of 2 classes vouched for, 1 set aside, 1 pair of image and class that must not join"
    )


def test_an_edit_that_names_no_one_stays_nameless(run):
    found = answers(run.found, [Edit("accept", (FIRST,), rows=(10,))])
    assert found.decisions == (Edit("accept", (FIRST,), rows=(10,)),)
