"""Features on disk."""

import errno
import hashlib
import os
import subprocess
import sys
import threading

import pytest
import torch
from filelock import FileLock

from newfound.data.store import Store
from newfound.types import generator


def keys(*words):
    return [hashlib.sha256(word.encode()).digest() for word in words]


def records(n, name="records"):
    return torch.randn(n, 2, 3, generator=generator(name)).half().float()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", views=2, dim=3)


def test_what_was_added_is_found_again_by_its_key(store):
    some = records(3)
    store.add(keys("a", "b", "c"), some)
    places = store.places(keys("c", "x", "a"))
    assert places.tolist() == [2, -1, 0]
    assert torch.equal(store.open()[places[[0, 2]]].float(), some[[2, 0]])


def test_another_store_of_the_same_folder_finds_it_too(store, tmp_path):
    other, another = (Store(tmp_path / "store", views=2, dim=3) for _ in "ab")
    store.add(keys("a"), records(1))
    assert other.places(keys("a")).tolist() == [0]
    assert torch.equal(another.open(), store.open())


def test_it_holds_what_was_added_and_what_was_there_when_it_was_opened(store, tmp_path):
    (a, b), late = keys("a", "b"), Store(tmp_path / "store", views=2, dim=3)
    store.add([a], records(1))
    assert a in store
    assert b not in store
    assert a not in late  # nobody asked the disk again
    assert late.places([a]).tolist() == [0]
    assert a in late
    assert a in Store(tmp_path / "store", views=2, dim=3)


def test_a_record_that_did_not_reach_the_disk_has_no_key(store, tmp_path, monkeypatch):
    store.add(keys("a"), records(1))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.add(keys("b"), records(1))
    again = Store(tmp_path / "store", views=2, dim=3)
    assert again.places(keys("a", "b")).tolist() == [0, -1]


def test_who_adds_waits_while_another_does(store, tmp_path):
    with FileLock(tmp_path / "store" / "lock"):
        adding = threading.Thread(target=store.add, args=(keys("a"), records(1)))
        adding.start()
        adding.join(0.3)
        assert adding.is_alive()
        assert not (tmp_path / "store" / "keys").read_bytes()
    adding.join(30)
    assert store.places(keys("a")).tolist() == [0]


def test_changing_what_was_opened_changes_nothing_on_the_disk(store):
    some = records(2)
    store.add(keys("a", "b"), some)
    store.open().zero_()
    assert torch.equal(store.open().float(), some)


def test_a_key_that_is_there_keeps_its_record(store):
    first, second = records(1), records(3, "others")
    store.add(keys("a"), first)
    store.add(keys("b", "a", "b"), second)
    assert store.places(keys("a", "b")).tolist() == [0, 1]
    assert torch.equal(store.open()[0].float(), first[0])
    assert len(store.open()) == 2


@pytest.mark.parametrize("shape", [(1, 2, 4), (1, 1, 3), (2, 2, 3)])
def test_records_of_another_shape_are_refused_and_harm_nothing(store, shape):
    some = records(1)
    store.add(keys("a"), some)
    with pytest.raises(ValueError, match=r"1 record of shape \(2, 3\)"):
        store.add(keys("b"), torch.zeros(shape))
    assert store.places(keys("a", "b")).tolist() == [0, -1]
    assert torch.equal(store.open().float(), some)


def test_an_empty_store_is_open_to_readers(store):
    assert store.open().shape == (0, 2, 3)
    assert store.places(keys("a")).tolist() == [-1]


@pytest.mark.parametrize("torn", ["records", "keys"])
def test_what_an_interruption_tore_is_written_over(store, tmp_path, torn):
    store.add(keys("a"), records(1))
    with (tmp_path / "store" / torn).open("ab") as file:
        file.write(b"half of it")  # shorter than a record and than a key
    again = Store(tmp_path / "store", views=2, dim=3)
    assert again.places(keys("a")).tolist() == [0]
    some = records(1, "later")
    again.add(keys("b"), some)
    fresh = Store(tmp_path / "store", views=2, dim=3)
    assert fresh.places(keys("a", "b")).tolist() == [0, 1]
    assert torch.equal(fresh.open()[1].float(), some[0])


@pytest.mark.processes
def test_processes_that_add_at_once_lose_nothing(tmp_path):
    program = """
import hashlib, sys, torch
from pathlib import Path
from newfound.data.store import Store
store = Store(Path(sys.argv[1]), views=2, dim=3)
for number in range(int(sys.argv[2]), 60, 2):
    store.add([hashlib.sha256(str(number).encode()).digest()], torch.full((1, 2, 3), float(number)))
"""
    lines = [[sys.executable, "-c", program, str(tmp_path / "store"), str(first)] for first in (0, 1)]
    for process in [subprocess.Popen(line) for line in lines]:
        assert process.wait(120) == 0
    store = Store(tmp_path / "store", views=2, dim=3)
    places = store.places(keys(*map(str, range(60))))
    assert sorted(places.tolist()) == list(range(60))
    assert store.open()[places][:, 1, 2].tolist() == list(range(60))
