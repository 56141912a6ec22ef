"""The journal: lines are added, and none is lost."""

import multiprocessing

import pytest

from newfound.discovery.edits import Edit
from newfound.discovery.journal import EDITS, add_edits, read_edits
from newfound.errors import InputError


def say(name):
    return Edit("rename", (1,), names=(name,))


def test_edits_come_back_in_the_order_in_which_they_were_said(tmp_path):
    assert read_edits(tmp_path) == []
    assert add_edits(tmp_path, [say("a"), say("b")], 0) == [say("a"), say("b")]
    assert add_edits(tmp_path, [say("c")], 2) == read_edits(tmp_path) == [say("a"), say("b"), say("c")]


def test_what_others_said_meanwhile_comes_first(tmp_path):
    add_edits(tmp_path, [say("a")], 0)
    add_edits(tmp_path, [say("theirs")], 1)
    assert add_edits(tmp_path, [say("ours")], 1) == [say("a"), say("theirs"), say("ours")]


@pytest.mark.parametrize("ours", [["undo"], ["redo"], ["b", "undo", "undo"], ["b", "redo"], ["undo", "b"]])
def test_what_others_said_meanwhile_is_not_undone_in_place_of_our_own(tmp_path, ours):
    said = [Edit(word) if word in ("undo", "redo") else say(word) for word in ours]
    add_edits(tmp_path, [say("a"), say("a2"), Edit("undo")], 0)
    add_edits(tmp_path, [say("theirs")], 3)
    with pytest.raises(InputError, match="Others have added 1 edit"):
        add_edits(tmp_path, said, 3)
    assert len(read_edits(tmp_path)) == 4
    assert len(add_edits(tmp_path, said, 4)) == 4 + len(said)


def test_what_we_said_and_undid_ourselves_comes_after_what_others_said(tmp_path):
    add_edits(tmp_path, [say("theirs")], 0)
    ours = [say("b"), Edit("undo"), Edit("redo"), Edit("undo")]
    assert add_edits(tmp_path, ours, 0) == [say("theirs"), *ours]


def test_lines_that_are_there_are_never_written_again(tmp_path):
    add_edits(tmp_path, [say("a")], 0)
    before = (tmp_path / EDITS).read_bytes()
    add_edits(tmp_path, [say("b")], 1)
    assert (tmp_path / EDITS).read_bytes().startswith(before)


@pytest.mark.parametrize("cut", range(1, len(say("bbb").line()) + 1))
def test_a_last_line_that_a_crash_cut_off_is_left_out_and_goes_on_no_further(tmp_path, cut):
    add_edits(tmp_path, [say("a"), say("bbb")], 0)
    path = tmp_path / EDITS
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_edits(tmp_path) == [say("a")]
    assert add_edits(tmp_path, [say("c")], 1) == read_edits(tmp_path) == [say("a"), say("c")]


def test_a_damaged_line_before_the_last_is_named(tmp_path):
    add_edits(tmp_path, [say("a")], 0)
    path = tmp_path / EDITS
    path.write_bytes(path.read_bytes() + b"\xff{\n" + say("b").line().encode() + b"\n")
    with pytest.raises(InputError, match=r"Line 2 of .*edits\.jsonl is damaged"):
        read_edits(tmp_path)


def test_lines_that_somebody_took_away_are_missed(tmp_path):
    add_edits(tmp_path, [say("a"), say("b")], 0)
    (tmp_path / EDITS).unlink()
    with pytest.raises(InputError, match="has 0 edits, and there were 2"):
        add_edits(tmp_path, [say("c")], 2)


def _add(folder, names):
    for name in names:
        add_edits(folder, [say(name)], 0)


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
