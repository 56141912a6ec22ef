"""What is computed once for many rows."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from newfound.benchmark import entries


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets, in seconds."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


def test_an_entry_is_made_once_and_says_what_it_is(root, clock):
    made = []

    def make(folder):
        made.append(folder)
        clock.now += 7
        (folder / "weights").write_text("w")

    first, second = (entries.entry("stage", {"seed": 0}, make) for _ in "ab")
    other, kind = entries.entry("stage", {"seed": 1}, make), entries.entry("thing", {"seed": 0}, make)
    assert first == second
    assert made == [first, other, kind]
    assert (first / "weights").read_text() == "w"
    assert first.is_relative_to(root)
    about = json.loads((first / "setting.json").read_text())
    assert about["setting"] == {"seed": 0}
    assert entries.seconds(first) == about["seconds"] == 7


def test_what_was_left_unfinished_is_thrown_away():
    def fail(folder):
        (folder / "half").write_text("h")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        entries.entry("stage", {}, fail)
    folder = entries.entry("stage", {}, lambda folder: (folder / "whole").touch())
    assert {path.name for path in folder.iterdir()} == {"whole", "setting.json"}


def test_a_checkpoint_outlives_an_interruption_and_the_time_before_it_counts(clock):
    def stop(folder):
        entries.unfinished(folder).write_text("half")
        clock.now += 7
        raise KeyboardInterrupt

    def go_on(folder):
        assert entries.unfinished(folder).read_text() == "half"
        clock.now += 3

    with pytest.raises(KeyboardInterrupt):
        entries.entry("stage", {}, stop)
    folder = entries.entry("stage", {}, go_on)
    assert entries.seconds(folder) == 10
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing is left beside it"


KILLED = """
import os, signal, sys
from newfound.benchmark import entries

def make(folder):
    begun = folder.with_name(f"{folder.name}.seconds").stat().st_mtime
    entries.unfinished(folder).touch()
    os.utime(entries.unfinished(folder), (begun + 7, begun + 7))  # as if it had taken so long to come here
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])

entries.entry("stage", {}, make)
"""


@pytest.mark.processes
def test_of_those_who_were_killed_the_time_until_their_last_checkpoint_counts(root, clock):
    for name in ("SIGKILL", "SIGTERM"):
        done = subprocess.run([sys.executable, "-c", KILLED, name], check=False, timeout=120)
        assert done.returncode == -signal.Signals[name]
        for path in (path for path in (root / "benchmark").iterdir() if path.is_file()):
            date = path.stat().st_mtime - 1000  # since then nobody worked on it
            os.utime(path, (date, date))
    folder = entries.entry("stage", {}, lambda folder: None)
    assert entries.seconds(folder) == 14
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing is left beside it"


def test_who_comes_while_an_entry_is_made_waits_for_it():
    made, found = [], []

    def make(folder):
        made.append(1)
        time.sleep(0.3)
        (folder / "weights").touch()

    def ask():
        found.append((entries.entry("stage", {}, make) / "weights").is_file())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert found == [True] * 3
