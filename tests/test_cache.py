"""What is computed once."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from filelock import Timeout

from newfound import cache
from newfound.discovery.doctor import examine
from tests.commands import newfound


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


def test_the_folder_is_where_the_user_says_or_where_the_system_keeps_caches(root, monkeypatch):
    assert cache.root() == root
    monkeypatch.setenv("NEWFOUND_CACHE", "")
    assert cache.root().name == "newfound"
    monkeypatch.delenv("NEWFOUND_CACHE")
    assert cache.root().name == "newfound"


def test_what_is_kept_has_a_size_and_is_thrown_away_and_nothing_else_is(root):
    for kind in cache.KINDS:
        (root / kind / "a").mkdir(parents=True)
        (root / kind / "a" / "b").write_bytes(b"1234")
    (root / "photo.png").write_bytes(b"a user's own")
    assert cache.measure() == 4 * len(cache.KINDS)
    assert cache.clear() == 4 * len(cache.KINDS)
    assert cache.measure() == 0
    assert [path.name for path in root.iterdir()] == ["photo.png"]


def test_the_command_tells_place_and_size_and_empties_the_cache(root):
    (root / "features").mkdir()
    (root / "features" / "records").write_bytes(bytes(3 * 2**20))
    said = newfound("cache", cwd=root).stdout
    assert f"3.0 MiB in {root}" in said
    assert "3.0 MiB" in next(finding.found for finding in examine() if finding.what == "cache's size")
    assert "3.0 MiB thrown away" in newfound("cache", "--clear", cwd=root).stdout
    assert "0 bytes in" in newfound("cache", cwd=root).stdout


def test_equal_settings_have_equal_names_in_whatever_order():
    assert cache.key({"a": 1, "b": {"c": [2], "d": 3}}) == cache.key({"b": {"d": 3, "c": [2]}, "a": 1})


@pytest.mark.parametrize("other", [{"a": 2}, {"a": 1, "b": None}, {"b": 1}, {"a": "1"}, {}])
def test_other_settings_have_other_names(other):
    assert cache.key(other) != cache.key({"a": 1})


def test_an_entry_is_made_once_and_says_what_it_is(root, clock):
    made = []

    def make(folder):
        made.append(folder)
        clock.now += 7
        (folder / "weights").write_text("w")

    first, second = (cache.entry("stage", {"seed": 0}, make) for _ in "ab")
    other, kind = cache.entry("stage", {"seed": 1}, make), cache.entry("thing", {"seed": 0}, make)
    assert first == second
    assert made == [first, other, kind]
    assert (first / "weights").read_text() == "w"
    assert first.is_relative_to(root)
    about = json.loads((first / "setting.json").read_text())
    assert about["setting"] == {"seed": 0}
    assert cache.seconds(first) == about["seconds"] == 7


def test_what_was_left_unfinished_is_thrown_away():
    def fail(folder):
        (folder / "half").write_text("h")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.entry("stage", {}, fail)
    folder = cache.entry("stage", {}, lambda folder: (folder / "whole").touch())
    assert {path.name for path in folder.iterdir()} == {"whole", "setting.json"}


def test_a_checkpoint_outlives_an_interruption_and_the_time_before_it_counts(clock):
    def stop(folder):
        cache.unfinished(folder).write_text("half")
        clock.now += 7
        raise KeyboardInterrupt

    def go_on(folder):
        assert cache.unfinished(folder).read_text() == "half"
        clock.now += 3

    with pytest.raises(KeyboardInterrupt):
        cache.entry("stage", {}, stop)
    folder = cache.entry("stage", {}, go_on)
    assert cache.seconds(folder) == 10
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing is left beside it"


KILLED = """
import os, signal, sys
from newfound import cache

def make(folder):
    begun = folder.with_name(f"{folder.name}.seconds").stat().st_mtime
    cache.unfinished(folder).touch()
    os.utime(cache.unfinished(folder), (begun + 7, begun + 7))  # as if it had taken so long to come here
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])

cache.entry("stage", {}, make)
"""


@pytest.mark.processes
def test_of_those_who_were_killed_the_time_until_their_last_checkpoint_counts(root, clock):
    for name in ("SIGKILL", "SIGTERM"):
        done = subprocess.run([sys.executable, "-c", KILLED, name], check=False, timeout=120)
        assert done.returncode == -signal.Signals[name]
        for path in (path for path in (root / "benchmark").iterdir() if path.is_file()):
            date = path.stat().st_mtime - 1000  # since then nobody worked on it
            os.utime(path, (date, date))
    folder = cache.entry("stage", {}, lambda folder: None)
    assert cache.seconds(folder) == 14
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing is left beside it"


def test_who_comes_while_an_entry_is_made_waits_for_it():
    made, found = [], []

    def make(folder):
        made.append(1)
        time.sleep(0.3)
        (folder / "weights").touch()

    def ask():
        found.append((cache.entry("stage", {}, make) / "weights").is_file())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert found == [True] * 3


HOLDER = """
import sys, time
from newfound import cache
with cache.lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.processes
def test_a_lock_is_held_against_other_processes_and_let_go_when_its_process_is_killed():
    process = subprocess.Popen([sys.executable, "-c", HOLDER, "row"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Timeout), cache.lock("row").acquire(timeout=0):
            pass
        with cache.lock("another row").acquire(timeout=0):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with cache.lock("row").acquire(timeout=10):
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
