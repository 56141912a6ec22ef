"""Files appear whole or not at all."""

import os
import stat

import pytest
import torch
from safetensors import safe_open

from newfound import files


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
