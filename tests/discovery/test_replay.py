"""Edits that come one by one give what all of them at once do; two people's edits find room beside each other."""

import random

import pytest
import torch

from newfound.discovery.edits import Classes, Edit, classes
from newfound.discovery.replay import RECENT, SPARSE, Replay, rebase
from newfound.discovery.result import Discovery
from newfound.discovery.tables import judge
from newfound.errors import InputError
from tests.discovery.made import CAT, FIRST, SECOND, THIRD, make_found
from tests.discovery.test_edits import state


@pytest.fixture(scope="module")
def found():
    return make_found()


def say_something(run: Discovery, draw: random.Random) -> None:
    """One thing that can be said of the classes as they are."""
    numbers = [number for number in run.classes.numbers if len(run.classes.rows(number)) > 1]
    number, row = draw.choice(numbers), draw.randrange(44)
    what = draw.choice(["rename", "merge", "split", "move", "new", "aside", "accept", "undo", "undo", "redo"])
    if what == "rename":
        run.rename(number, f"name {len(run.edits)}")
    elif what == "merge" and len(numbers) > 3:
        run.merge(draw.sample(numbers, 2))
    elif what == "split":
        rows = run.classes.rows(number).tolist()
        run.split(number, [rows[:1], rows[1:]])
    elif what == "move":
        run.move([row], number)
    elif what == "new":
        run.new_class([row])
    elif what == "aside":
        run.set_aside([row])
    elif what == "accept":
        run.accept(number)
    elif what == "undo":
        run.undo()
    else:
        run.redo()


@pytest.mark.parametrize("seed", range(3))
def test_one_by_one_is_as_all_at_once(found, seed):
    draw, run = random.Random(seed), Discovery(found)
    for _ in range(60):
        say_something(run, draw)
        assert state(run.classes) == state(classes(found, run.edits))
        assert run.classes.used == classes(found, run.edits).used
    for _ in range(40):  # farther back than what is kept of every edit
        run.undo()
        assert state(run.classes) == state(classes(found, run.edits))


def test_an_undo_does_not_begin_anew_and_not_every_edit_is_kept(found, monkeypatch):
    replay = Replay(found).extend([Edit("rename", (CAT,), names=(f"n{i}",)) for i in range(500)])
    assert len(replay.kept) <= RECENT + 500 // SPARSE + 2
    applied = []
    apply = "newfound.discovery.replay.apply"
    monkeypatch.setattr(apply, lambda now, edit: applied.append(edit) or now)
    back = replay.extend([Edit("undo")])
    assert not applied
    assert back.now.names[CAT] == "n498"
    replay.extend([Edit("undo")] * 100)
    assert len(applied) <= SPARSE


def test_what_cannot_be_is_refused_and_nothing_has_changed(found):
    replay = Replay(found).extend([Edit("rename", (CAT,), names=("x",))])
    with pytest.raises(InputError, match="no class 99"):
        replay.extend([Edit("rename", (FIRST,), names=("y",)), Edit("rename", (99,), names=("z",))])
    assert replay.now.names[FIRST] == "new-2"


def split(found, number, made, name, rest=()):
    rows = classes(found, rest).rows(number).tolist()
    return Edit("split", (number,), parts=(tuple(rows[1:]), tuple(rows[:1])), made=(made,), names=(name,))


def test_classes_that_two_people_make_get_numbers_and_counted_names_of_their_own(found):
    theirs = [split(found, FIRST, 6, "new-5")]
    ours = [
        split(found, SECOND, 6, "new-5"),
        Edit("rename", (6,), names=("crab",)),
        Edit("move", rows=(0,), made=(7,), names=("new-6",)),
        Edit("merge", (THIRD, 7)),
    ]
    after = rebase(ours, classes(found, theirs))
    assert [edit.made for edit in after] == [(7,), (), (8,), ()]
    assert [edit.classes for edit in after] == [(SECOND,), (7,), (), (THIRD, 8)]
    assert [edit.names for edit in after] == [("new-7",), ("crab",), ("new-6",), ()]
    now = classes(found, [*theirs, *after])
    assert now.names[6] == "new-5"
    assert now.names[7] == "crab"


def test_what_needs_no_other_number_stays_as_it_was_said(found):
    ours = [split(found, SECOND, 6, "new-5"), Edit("move", (6,), rows=(0,))]
    assert rebase(ours, classes(found, [Edit("rename", (FIRST,), names=("x",))])) == ours


def test_a_name_that_somebody_chose_is_not_changed_but_refused_where_it_is_taken(found):
    theirs = [Edit("move", rows=(0,), made=(6,), names=("crab",))]
    ours = [Edit("move", rows=(1,), made=(6,), names=("crab",))]
    after = rebase(ours, classes(found, theirs))
    assert after[0].names == ("crab",)
    with pytest.raises(InputError, match="another class's name"):
        classes(found, [*theirs, *after])


def test_two_people_who_each_make_a_class_save_to_one_folder(found, tmp_path):
    Discovery(found).save(tmp_path)
    one, other = Discovery.load(tmp_path, by="one"), Discovery.load(tmp_path, by="other")
    first = one.new_class([0, 1])
    second = other.new_class([10, 11])
    other.move([12], second)
    assert first == second  # neither knows of the other
    one.save(tmp_path)
    other.save(tmp_path)
    now = Discovery.load(tmp_path).classes
    assert now.rows(6).tolist() == [0, 1]
    assert now.rows(7).tolist() == [10, 11, 12]
    assert len({*now.names.values()}) == len(now.names)
    assert state(now) == state(other.classes)


def test_what_is_said_together_is_written_at_once_and_knows_what_others_said(found, tmp_path):
    Discovery(found).save(tmp_path)
    one, other = Discovery.load(tmp_path), Discovery.load(tmp_path)
    with one.together():
        one.new_class([0], "crab")
    assert len((tmp_path / "edits.jsonl").read_text().splitlines()) == 1
    with other.together():
        assert "crab" in other.classes.names.values()
        assert other.new_class([1], "eel") == 7
    assert one.follow() == 1
    assert one.follow() == 0
    assert state(one.classes) == state(other.classes) == state(Discovery.load(tmp_path).classes)


def test_what_cannot_be_said_together_is_not_said_at_all(found, tmp_path):
    Discovery(found).save(tmp_path)
    run, other = Discovery.load(tmp_path), Discovery.load(tmp_path)
    with other.together():
        other.rename(CAT, "dog")

    def contradict():
        with run.together():
            run.rename(FIRST, "sea pen")
            run.rename(99, "x")

    with pytest.raises(InputError, match="no class 99"):
        contradict()
    assert [edit.action for edit in run.edits] == []
    assert run.follow() == 1  # nothing of theirs was lost with it
    assert run.classes.names[CAT] == "dog"
    assert run.classes.names[FIRST] == "new-2"
    assert len((tmp_path / "edits.jsonl").read_text().splitlines()) == 1


def test_a_disk_that_fails_leaves_an_edit_unsaid(found, tmp_path, monkeypatch):
    Discovery(found).save(tmp_path)
    run = Discovery.load(tmp_path)

    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(InputError, match="No space"), run.together():
            run.rename(FIRST, "sea pen")
    assert run.classes.names[FIRST] == "new-2"
    with run.together():
        run.rename(SECOND, "crab")
    names = Discovery.load(tmp_path).classes.names
    assert (names[FIRST], names[SECOND]) == ("new-2", "crab")


def test_tables_are_of_the_last_edit_whoever_writes_them_last(found, tmp_path, monkeypatch):
    Discovery(found).save(tmp_path)
    slow, quick = Discovery.load(tmp_path), Discovery.load(tmp_path)
    quick.rename(CAT, "dog")
    quick.save(tmp_path)
    slow.write_tables()  # it had not read that
    assert "dog" in (tmp_path / "classes.csv").read_text()
    assert "dog" in (tmp_path / "report.html").read_text()
    render = "newfound.discovery.result.render_report"

    def overtaken(now: Classes) -> str:
        monkeypatch.undo()
        quick.rename(CAT, "wolf")
        quick.save(tmp_path)
        return "old"

    monkeypatch.setattr(render, overtaken)
    slow.write_tables()
    assert "wolf" in (tmp_path / "report.html").read_text()
    assert "wolf" in (tmp_path / "classes.csv").read_text()


def test_what_lies_in_no_folder_cannot_be_said_together(found):
    run = Discovery(found)
    assert not run.journalled
    with pytest.raises(InputError, match="Save it to one first"), run.together():
        pass


def test_some_images_of_a_class_are_accepted(found):
    run = Discovery(found, by="Ada")
    rows = run.classes.rows(FIRST).tolist()
    assert run.accept(FIRST, images=rows[:2]) == 2
    assert [*run.classes.decided] == rows[:2]
    with pytest.raises(InputError, match="Image 0 is not of"):
        run.accept(FIRST, images=[0])
    assert torch.equal(run.classes.rows(FIRST), torch.tensor(rows))


def test_images_of_several_classes_are_accepted_as_they_are_guessed(found):
    run = Discovery(found, by="Ada")
    before = run.classes.assignment
    assert run.accept(None, images=[0, 12, 43]) == 3
    assert run.edits[-1].classes == tuple(before[[0, 12, 43]].unique().tolist())
    assert [*run.classes.decided] == [0, 12, 43]
    assert torch.equal(run.classes.assignment, before)
    run.set_aside([1])
    with pytest.raises(InputError, match="Image 1 is not of"):
        run.accept(None, images=[0, 1])
    sure = judge(run.classes).confidence >= 0.9
    assert run.accept(None, above=0.9) == int((sure & ~run.classes.aside).sum())
    assert run.accept(None) == 43
