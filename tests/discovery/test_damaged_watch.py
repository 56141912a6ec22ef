"""Damaged tables of a watcher, and that no file is left whose damage nobody has tried."""

import csv
import io
import random
import re

import pandas as pd
import pytest

from newfound.discovery.storage import ASSIGNMENTS, CHECKPOINT, CLASSES, CONFIG, HISTORY, LOG, REPORT
from newfound.discovery.watch import LINE
from newfound.discovery.watched import ABOUT, IMAGES, PROPOSED, TRIES, append, read_state
from newfound.errors import InputError
from newfound.review.places import PLACES
from tests.commands import newfound
from tests.data.pictures import write_doodles
from tests.discovery.test_damaged import FILES, damaged_bytes

WRONG = ["", "x", "-", "-1", "1.5", "1e9", "²", "9" * 30, "\x00", "a\nb", '"', "proposal-1", "proposal-9", "nan"]
"""What may stand in a cell where something else should."""

UNREAD = {LOG, REPORT, ASSIGNMENTS, CLASSES, HISTORY, "README.md", "pool.csv"}
"""Files that are written for people, and read by nobody else."""


@pytest.fixture
def state(tmp_path):
    """Tables of a watcher that has told five images, and proposed two of them as a class."""
    stamps = {"path": [f"{n}.png" for n in range(5)], "size": range(10, 15), "modified": range(10**18, 10**18 + 5)}
    told = pd.DataFrame(stamps | {"kind": ["known", "new", "unsure", "outlier", "unreadable"]})
    append(tmp_path / IMAGES, told.reindex(columns=LINE))
    append(tmp_path / TRIES, pd.DataFrame({"told": ["a", "b"], "pool": [20, 30], "folder": ["", "proposal-1"]}))
    append(tmp_path / PROPOSED, pd.DataFrame(stamps)[1:3].assign(proposal="proposal-1"))
    return tmp_path


def damaged_table(path):
    """Texts in place of a table's: in every cell something else, and every column and line gone."""
    rows = [*csv.reader(io.StringIO(path.read_text(), newline=""))]
    for number, row in enumerate(rows):
        for place in range(len(row)):
            for new in WRONG:
                yield [*rows[:number], [*row[:place], new, *row[place + 1 :]], *rows[number + 1 :]]
        yield [*rows[:number], *rows[number + 1 :]]
        yield [*rows[: number + 1], *rows[number:]]
    for place in range(len(rows[0])):
        yield [[*row[:place], *row[place + 1 :]] for row in rows]


def write_rows(rows):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@pytest.mark.parametrize("name", [IMAGES, TRIES, PROPOSED])
def test_a_damaged_table_of_a_watcher_is_refused_by_its_name_or_says_what_can_be(state, name):
    path, refused = state / name, []
    mutations = [write_rows(rows) for rows in damaged_table(path)] + [*damaged_bytes(path, random.Random(name))]
    for mutation in mutations:
        path.write_bytes(mutation)
        try:
            found = read_state(state)
        except InputError as error:
            refused.append(str(error))
        else:
            check_state(found)
    assert all(said.startswith(f"{path} is damaged: ") and "-o" in said for said in refused)
    assert max(map(len, refused)) < 1000
    assert len(mutations) / 10 < len(refused)


def check_state(state):
    """What is true of all states, said without the schema."""
    for name, (stamp, kind) in state.told.items():
        assert isinstance(name, str)
        assert all(type(value) is int for value in stamp)
        assert kind in ("known", "new", "unsure", "outlier", "set aside", "unreadable")
    assert {type(value) for _, stamp in state.proposed for value in stamp} <= {int}
    assert state.proposals in (0, 1)
    assert state.tried >= 0


def test_every_file_that_commands_write_is_damaged_in_a_test_or_read_by_nobody(tmp_path):
    write_doodles(tmp_path / "known", range(3), each=6, scale=2)
    write_doodles(tmp_path / "new", range(3), each=6, scale=2, first=30)
    small = ("--backbone", "small-resnet-18", "--size", 8, "--width", 1, "--rehearse", "no", "--pretrain-epochs", 0)
    words = (
        ("pretrain", "--known", "known", *small, "-o", "model"),
        ("discover", "--known", "known", "--unlabelled", "new", *small, "--epochs", 0, "--classes", 2, "-o", "run"),
        ("watch", "model", "new", "--once", "--settle", 0, "-o", "state"),
    )
    for each in words:
        done = newfound(*each, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    folders = (tmp_path / name for name in ("model", "run", "state"))
    found = {path.name for folder in folders for path in folder.rglob("*") if path.is_file()}
    tried = {name.rsplit("/", 1)[-1] for _, name, _, _ in FILES} | {CONFIG, IMAGES, TRIES, PROPOSED, ABOUT, PLACES}
    assert {"model.json", "model.safetensors", CONFIG, LOG, IMAGES, ABOUT, "discovery.safetensors"} <= found
    left = {name for name in found - tried - UNREAD if not re.fullmatch(rf"\..*\.lock|.*{CHECKPOINT}", name)}
    assert not left
