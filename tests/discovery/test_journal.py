"""The journal: lines are added, and none is lost."""

import multiprocessing

import pytest

from newfound.discovery.edits import Edit
from newfound.discovery.journal import EDITS, Journal, check_reach, read_edits
from newfound.errors import InputError
from tests.discovery.made import add_edits


def say(name):
    return Edit("rename", (1,), names=(name,))


def test_edits_come_back_in_the_order_in_which_they_were_said(tmp_path):
    assert read_edits(tmp_path) == []
    add_edits(tmp_path, [say("a"), say("b")])
    assert read_edits(tmp_path) == [say("a"), say("b")]
    add_edits(tmp_path, [say("c")])
    assert read_edits(tmp_path) == [say("a"), say("b"), say("c")]


def test_what_others_said_meanwhile_comes_first_and_is_told(tmp_path):
    ours = Journal(tmp_path)
    add_edits(tmp_path, [say("a")])
    assert ours.follow() == [say("a")]
    add_edits(tmp_path, [say("theirs")])
    with ours.adding() as theirs:
        ours.append([say("ours")])
    assert theirs == [say("theirs")]
    assert read_edits(tmp_path) == [say("a"), say("theirs"), say("ours")]
    assert ours.follow() == []  # what it wrote it need not read


@pytest.mark.parametrize("ours", [["undo"], ["redo"], ["b", "undo", "undo"], ["b", "redo"], ["undo", "b"]])
def test_what_others_said_meanwhile_is_not_undone_in_place_of_our_own(ours):
    with pytest.raises(InputError, match="Others have added 1 edit"):
        check_reach([Edit(word) if word in ("undo", "redo") else say(word) for word in ours], 1)


def test_what_we_said_and_undid_ourselves_may_come_after_what_others_said():
    check_reach([say("b"), Edit("undo"), Edit("redo"), Edit("undo")], 1)


def test_lines_that_are_there_are_never_written_again(tmp_path):
    add_edits(tmp_path, [say("a")])
    before = (tmp_path / EDITS).read_bytes()
    add_edits(tmp_path, [say("b")])
    assert (tmp_path / EDITS).read_bytes().startswith(before)


@pytest.mark.parametrize("cut", range(1, len(say("bbb").line()) + 1))
def test_a_last_line_that_a_crash_cut_off_is_left_out_and_goes_on_no_further(tmp_path, cut):
    add_edits(tmp_path, [say("a"), say("bbb")])
    path = tmp_path / EDITS
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_edits(tmp_path) == [say("a")]
    add_edits(tmp_path, [say("c")])
    assert read_edits(tmp_path) == [say("a"), say("c")]


def test_a_damaged_line_before_the_last_is_named(tmp_path):
    add_edits(tmp_path, [say("a")])
    path = tmp_path / EDITS
    path.write_bytes(path.read_bytes() + b"\xff{\n" + say("b").line().encode() + b"\n")
    with pytest.raises(InputError, match=r"Line 2 of .*edits\.jsonl is damaged"):
        read_edits(tmp_path)


def test_lines_that_somebody_took_away_are_missed(tmp_path):
    add_edits(tmp_path, [say("a"), say("b")])
    journal = Journal(tmp_path)
    journal.follow()
    (tmp_path / EDITS).unlink()
    with pytest.raises(InputError, match="is shorter than when it was read, with 2 edits"), journal.adding():
        journal.append([say("c")])
    assert not (tmp_path / EDITS).exists()


def _add(folder, names):
    for name in names:
        add_edits(folder, [say(name)])


@pytest.mark.processes
def test_of_processes_that_add_at_once_none_loses_a_line(tmp_path):
    names = [[f"{who}{i}" for i in range(25)] for who in "ab"]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add, args=(tmp_path, some)) for some in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    said = [edit.names[0] for edit in read_edits(tmp_path)]
    assert sorted(said) == sorted(name for some in names for name in some)
    for some in names:
        assert [name for name in said if name in some] == some
