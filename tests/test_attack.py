"""Hostile files of every kind, against the real command in a process of its own."""

import os
import sys

import pytest
from scripts import attack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such files")

MOST = 1500
"""MiB that reading any folder may take, beside what the network takes."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("attack")
    stub = root / "gs"
    stub.write_text(f"#!/bin/sh\ntouch '{root / 'started'}'\n")
    stub.chmod(0o755)
    attack.make_folder(root / "hostile", each=1)
    attack.make_harmless(root / "harmless", attack.FEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{root}:{os.environ['PATH']}")
        yield root


@pytest.fixture(scope="module")
def outcome(place):
    return attack.discover(place / "attack", place / "hostile")


def test_the_command_gets_through_and_every_file_is_read_or_left_out_with_a_reason(place, outcome):
    assert outcome.code == 0, outcome.said
    assert "Traceback" not in outcome.said
    rows = attack.tabulate(place / "hostile", outcome)
    assert [row.kind for row in rows] == [*attack.KINDS]
    for row in rows:
        expected = attack.KINDS[row.kind].expected
        assert row.tried == 1
        assert row.lost == 0, row
        assert expected == attack.EITHER or row.read == (expected == attack.READ), row
        assert row.read or row.reason, row


def test_no_file_starts_another_program(place, outcome):
    assert outcome.code == 0
    assert not (place / "started").exists()


def test_memory_stays_bounded_whatever_the_files_promise(place, outcome):
    calm = attack.discover(place / "calm", place / "harmless")
    assert calm.code == 0, calm.said
    assert 0 < calm.peak < outcome.peak <= calm.peak + MOST


def test_the_folder_is_the_same_for_the_same_seed(place):
    attack.make_folder(place / "again", each=1)
    for name in attack.KINDS:
        for path in (place / "hostile" / name).iterdir():
            if path.is_file() and path.stat().st_size < 1 << 28 and not path.is_symlink():
                assert path.read_bytes() == (place / "again" / name / path.name).read_bytes(), path
