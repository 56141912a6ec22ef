"""What this machine has."""

import importlib.util
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from newfound.discovery import doctor
from newfound.discovery.doctor import Finding, examine
from tests.data.pictures import locked


def by_name(findings):
    return {finding.what: finding for finding in findings}


def test_a_sound_machine_is_fine_in_all(tmp_path):
    findings = examine(tmp_path)
    assert all(finding.fine for finding in findings), findings
    assert len(findings) <= 24, "one screen"
    assert str(os.cpu_count()) in by_name(findings)["compute"].found


def test_what_is_not_installed_is_told_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-package",))
    found = by_name(examine())["no-such-package"]
    assert found == Finding("no-such-package", "not installed; get it with `pip install no-such-package`", fine=False)


def test_a_machine_without_pretrained_weights_is_not_fine(monkeypatch):
    monkeypatch.setattr(doctor, "list_usable", list)
    found = by_name(examine())["backbones"]
    assert not found.fine
    assert "small-resnet-18" in found.found


def test_a_folder_that_does_not_exist_yet_is_judged_by_the_one_above(tmp_path):
    assert by_name(examine(tmp_path / "a" / "b"))[f"folder {tmp_path / 'a' / 'b'}"].fine
    assert not (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "mine").mkdir()
    with locked(tmp_path, "mine") as root:
        found = doctor._writable("folder", root / "mine")
    assert not found.fine
    assert "cannot be written to" in found.found


def test_the_nearest_folder_that_exists_decides():
    with tempfile.TemporaryDirectory() as place:
        for name, rights in (("open", 0o777), ("open/shut", 0o755)):
            (Path(place) / name).mkdir()
            (Path(place) / name).chmod(rights)
        with locked(Path(place), "open/shut"):
            found = {name: doctor._writable("folder", Path(place) / name) for name in ("open/new/er", "open/shut")}
    assert found["open/new/er"].fine
    assert not found["open/shut"].fine


def test_the_cache_is_looked_at_too(monkeypatch, tmp_path):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    assert by_name(examine())["cache"] == Finding("cache", f"{tmp_path / 'cache'} can be written to")


def test_torchvision_that_was_made_for_another_torch_is_told_and_no_obstacle(monkeypatch):
    for parts, told in ({"roi_align": None}, version("torchvision")), ({}, "Nothing here needs them"):
        operators = SimpleNamespace(torchvision=SimpleNamespace(**parts))
        monkeypatch.setattr(doctor, "torch", SimpleNamespace(ops=operators))
        found = doctor._torchvision()
        assert found.fine
        assert found.what == "torchvision"
        assert told in found.found
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not doctor._torchvision().fine


@pytest.mark.parametrize(
    ("cuda", "mps", "told"), [(True, False, "2 × a GPU, "), (False, True, "Apple GPU, "), (False, False, "no accel")]
)
def test_the_fastest_thing_that_computes_is_named(monkeypatch, cuda, mps, told):
    gpus = SimpleNamespace(is_available=lambda: cuda, device_count=lambda: 2, get_device_name=lambda: "a GPU")
    backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps))
    monkeypatch.setattr(doctor, "torch", SimpleNamespace(cuda=gpus, backends=backends, get_num_threads=lambda: 77))
    assert doctor._compute().startswith(told)
    assert doctor._compute().endswith(f"{os.cpu_count()} cores, 77 threads")


def test_memory_and_what_is_free_where_the_cache_is_are_told_in_gib(monkeypatch, tmp_path):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "not yet"))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**21, "SC_PAGE_SIZE": 4096}.get)
    disks = {tmp_path: SimpleNamespace(total=2**40, free=5 * 2**30)}
    monkeypatch.setattr(shutil, "disk_usage", disks.get)
    assert doctor._memory() == "8 GiB, 5 GiB free on the cache's disk"


@pytest.mark.parametrize("missing", [AttributeError, ValueError, OSError])
def test_a_system_that_does_not_tell_its_memory_is_no_obstacle(monkeypatch, missing):
    def refuse(name):
        raise missing

    monkeypatch.setattr(os, "sysconf", refuse)
    assert "free" in by_name(examine())["memory"].found
