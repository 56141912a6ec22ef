"""What this machine has."""

import os

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
    monkeypatch.setattr(doctor, "usable", list)
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


@pytest.mark.parametrize("missing", [AttributeError, ValueError, OSError])
def test_a_system_that_does_not_tell_its_memory_is_no_obstacle(monkeypatch, missing):
    def refuse(name):
        raise missing

    monkeypatch.setattr(os, "sysconf", refuse)
    assert "free" in by_name(examine())["memory"].found
