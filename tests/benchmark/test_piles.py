"""Piles: which images are labelled, which are not, and that nothing is both."""

from pathlib import Path

import pandas as pd
import pytest

from newfound.benchmark import piles
from newfound.benchmark.piles import ART, KINDS, PILES, deal
from newfound.errors import InputError
from tests.needs import need

FILES = {kind: [Path(f"{kind}/{number}.png") for number in range(9)] for kind in "abcdef"}


def read(pile):
    return [pd.read_csv(path) for path in pile]


def test_half_of_the_kinds_are_known_by_the_images_that_are_to_be_labelled_and_the_rest_is_one_pile(tmp_path):
    known, unlabelled = read(deal(FILES, lambda place: place < 4, 0, tmp_path))
    assert known["label"].value_counts().to_dict() == dict.fromkeys(known["label"].unique(), 4)
    assert known["label"].nunique() == 3
    assert {*unlabelled["label"]} == {*FILES}
    assert not {*known["path"]} & {*unlabelled["path"]}
    assert len(known) + len(unlabelled) == 6 * 9
    assert all(Path(path).parent.name == label for path, label in zip(known["path"], known["label"], strict=True))


def test_the_seed_decides_which_kinds_are_known(tmp_path):
    chosen = [{*read(deal(FILES, lambda place: place < 4, seed, tmp_path))[0]["label"]} for seed in (0, 0, 1, 2, 3)]
    assert chosen[0] == chosen[1]
    assert len({frozenset(kinds) for kinds in chosen}) > 1


def test_no_picture_of_the_clip_art_is_in_two_kinds(tmp_path):
    need(ART.is_dir(), "Debian's openclipart-png is not installed")
    known, unlabelled = read(PILES["clip-art"](None, 0, tmp_path))
    both = pd.concat([known, unlabelled])
    assert len({Path(path).read_bytes() for path in both["path"]}) == len(both)
    assert {*both["label"]} == {*KINDS}
    assert both["label"].value_counts().max() <= 50
    assert known["label"].nunique() == len(KINDS) // 2


def test_missing_clip_art_is_told_with_the_package_that_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(piles, "ART", tmp_path)
    with pytest.raises(InputError, match="Install Debian's package openclipart-png"):
        PILES["clip-art"](None, 0, tmp_path)
