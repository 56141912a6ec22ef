"""The folder for what is computed once, and its locks."""

import signal
import subprocess
import sys

import pytest
from filelock import Timeout

from newfound import cache
from newfound.discovery.doctor import examine
from tests.commands import newfound


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))
    return tmp_path


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
