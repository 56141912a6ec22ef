"""Files appear whole or not at all."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open

from newfound import files
from newfound.errors import InputError
from tests.needs import need


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    files.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_on_the_way(tmp_path):
    files.write(tmp_path / "b" / "c.bin", b"\0\1")
    assert (tmp_path / "b" / "c.bin").read_bytes() == b"\0\1"


KILLED = """
import os, signal, sys
from pathlib import Path
from newfound import files
if sys.argv[2] == "named":
    files._open_unnamed = lambda folder: None
with files.writing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    if sys.argv[2] == "waits":
        print("ready", flush=True)
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(path, how):
    done = subprocess.run([sys.executable, "-c", KILLED, path, how], check=False)
    assert done.returncode == -signal.SIGKILL


def can_be_unnamed(folder):
    file = files._open_unnamed(folder)
    if file is not None:
        file.close()
    return file is not None


@pytest.mark.processes
def test_whoever_is_killed_while_writing_leaves_nothing(tmp_path):
    need(can_be_unnamed(tmp_path), "a file system with unnamed files")
    killed(tmp_path / "a.csv", "unnamed")
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
def test_where_files_need_a_name_the_next_writer_clears_what_the_killed_one_left_of_this_file(tmp_path):
    killed(tmp_path / "a.csv", "named")
    (left,) = tmp_path.iterdir()
    assert files.TEMPORARY.fullmatch(left.name)["name"] == "a.csv"
    files.write(tmp_path / "b.csv", "b")
    assert left.exists(), "it is of another file"
    files.write(tmp_path / "a.csv", "a")
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "b.csv"}


def test_what_a_living_writer_has_not_finished_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_open_unnamed", lambda folder: None)
    with files.writing(tmp_path / "a.csv") as file:
        file.write(b"long")
        (temporary,) = tmp_path.iterdir()
        files.clear_stale(tmp_path)
        files.write(tmp_path / "a.csv", "short")
        assert temporary.exists()
        assert (tmp_path / "a.csv").read_text() == "short"
    assert (tmp_path / "a.csv").read_text() == "long"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_nothing_but_our_own_is_taken_for_stale(tmp_path):
    others = [
        ".a.csv",
        ".a.csv.newfound",
        ".a.csv.0123456789abcdeF.newfound",
        "a.csv.0123456789abcdef.newfound",
        ".x.lock",
    ]
    for name in others:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / ".pipe.0123456789abcdef.newfound")  # whoever opens it waits
    (tmp_path / ".a\nb.csv.0123456789abcdef.newfound").touch()
    files.clear_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*others, ".pipe.0123456789abcdef.newfound"}


@pytest.mark.parametrize("named", [True, False])
def test_a_file_is_replaced_whole_however_it_was_written(tmp_path, monkeypatch, named):
    if named:
        monkeypatch.setattr(files, "_open_unnamed", lambda folder: None)
    path = tmp_path / "a.txt"
    for content in ("old", "new"):
        with files.writing(path) as file:
            file.write(content.encode())
            assert not path.exists() or path.read_text() == "old"
        assert path.read_text() == content
        assert list(tmp_path.iterdir()) == [path]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_told_with_the_file_and_how_much_it_needs_and_has(tmp_path, monkeypatch):
    files.write(tmp_path / "a.bin", b"old")
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9 - 12_345, 12_345))
    found = r"a\.bin cannot be written: No space left on device\. It needs 2\.4 MiB, and 12\.1 KiB are free\. Make room"
    with pytest.raises(InputError, match=found):
        files.write(tmp_path / "a.bin", bytes(2_500_000))
    with (
        pytest.raises(InputError, match=r"12\.1 KiB are free, and it needs more"),
        files.writing(tmp_path / "a.bin") as file,
    ):
        file.write(b"a part")
    assert (tmp_path / "a.bin").read_bytes() == b"old"
    assert len([*tmp_path.iterdir()]) == 1


def test_other_troubles_are_told_as_they_are(tmp_path):
    with pytest.raises(PermissionError), files.room_for(tmp_path / "a"):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("mask", [0o077, 0o002, 0o022])
def test_who_may_read_a_file_is_for_the_umask_to_say(tmp_path, mask):
    before = os.umask(mask)
    try:
        files.write(tmp_path / "a.txt", "a")
        files.write(tmp_path / "a.txt", "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


def test_tensors_and_words_about_them_come_back(tmp_path):
    files.write_tensors(tmp_path / "t.safetensors", {"x": torch.arange(6).view(2, 3).T}, {"about": "ü"})
    with safe_open(tmp_path / "t.safetensors", "pt") as file:
        assert file.get_tensor("x").equal(torch.arange(6).view(2, 3).T)
        assert file.metadata() == {"about": "ü"}


def test_a_folder_takes_another_s_place_when_it_is_whole(tmp_path):
    place = tmp_path / "folder"
    with files.building(place) as new:
        files.write(new / "a", "first")
        assert not place.exists()
    with pytest.raises(UnicodeEncodeError), files.building(place) as new:
        files.write(new / "b", "\ud800")
    assert [path.name for path in place.iterdir()] == ["a"]
    with files.building(place) as new:
        files.write(new / "c", "second")
        assert (place / "a").read_text() == "first"
    assert [path.name for path in place.iterdir()] == ["c"]
    assert [*tmp_path.iterdir()] == [place]


def test_a_folder_that_somebody_is_filling_is_left_and_one_that_a_kill_left_is_taken_away(tmp_path):
    stale = tmp_path / f".folder.{'0' * 16}{files.ENDING}"
    stale.mkdir()
    with files.building(tmp_path / "folder") as one:
        assert not stale.exists()
        with files.building(tmp_path / "folder") as other:
            assert one.is_dir()
            files.write(other / "a", "other")
        files.write(one / "a", "one")
    assert (tmp_path / "folder" / "a").read_text() == "one"
    assert [*tmp_path.iterdir()] == [tmp_path / "folder"]
