"""The state of a watcher: tables in a folder. A line is on the disk before anybody hears of it."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from filelock import FileLock, Timeout

from newfound import files
from newfound.discovery.journal import sync_folder
from newfound.discovery.tables import WORDS, format_csv, restore
from newfound.errors import InputError, shorten
from newfound.schema import DamagedError, damaged, needs, one_of, read_json, record, text


class Stamp(NamedTuple):
    """What tells a file from another of the same name."""

    size: int
    modified: int  # nanoseconds


IMAGES, TRIES, PROPOSED = "images.csv", "tries.csv", "proposals.csv"
"""The tables: a line an image that was told; a line each time that the pool was looked at; a line an image of a class
that was proposed.
"""

ABOUT, MODEL = "watch.json", ("model.json", "model.safetensors")
"""What says whose state it is, and the files of a model that tell it from others."""

MEND = "Take it from a backup, or give a new folder (-o), in which all images are told anew."

UNREADABLE = "unreadable"
"""The kind of a file that is no image, or is damaged. Should it change, it is looked at again."""


def count(value: str | None, where: str) -> None:
    """A schema: digits, as a table has them; times before 1970 have a sign."""
    digits = (value or "").removeprefix("-")
    needs(digits.isascii() and digits.isdecimal() and len(digits) < 20, where, value, "a whole number")


SAID = {
    IMAGES: record(
        {"path": text, "size": count, "modified": count, "kind": one_of("known", "new", *WORDS.values(), UNREADABLE)}
    ),
    TRIES: record({"pool": count, "folder": text}),
    PROPOSED: record({"path": text, "size": count, "modified": count, "proposal": text}),
}
"""What the state needs of a line of each table."""


@dataclass
class State:
    """What the tables say."""

    told: dict[str, tuple[Stamp, str]] = field(default_factory=dict)  # by name, with its kind
    proposed: set[tuple[str, Stamp]] = field(default_factory=set)  # images of classes that were proposed
    tried: int = 0  # images that were in the pool when it was last looked at
    proposals: int = 0

    def take(self, lines: Iterable[Mapping[str, str]]) -> None:
        """Take on lines of `images.csv`."""
        self.told |= {restore(line["path"]): (_stamp(line), line["kind"]) for line in lines}


def read_state(place: Path) -> State:
    """What the tables of a state folder say; the end of a line that a kill cut off is taken away."""
    state = State()
    state.take(read_table(place / IMAGES))
    tries, proposed = read_table(place / TRIES), read_table(place / PROPOSED)
    folders = [line["folder"] for line in tries if line["folder"]]
    if folders != [f"proposal-{number}" for number in range(1, len(folders) + 1)]:  # the next might replace another
        found = DamagedError(f"the folders are {shorten(folders)}; needed: proposal-1, proposal-2, …")
        raise damaged(place / TRIES, found, MEND)
    kept = [line for line in proposed if line["proposal"] in folders]
    if len(kept) < len(proposed):  # a kill came before the line of their try: another look will propose them, or others
        _rewrite(place / PROPOSED, kept)
    state.proposed = {(restore(line["path"]), _stamp(line)) for line in kept}
    state.proposals = len(folders)
    if tries:
        last = tries[-1]
        inside = sum(1 for line in kept if line["proposal"] == last["folder"])
        state.tried = max(0, int(last["pool"]) - (inside if last["folder"] else 0))
    return state


def read_table(path: Path) -> list[dict[str, str]]:
    """The whole lines of a table, each with what the state needs of it; one that has not is refused."""
    try:
        lines = [*read_lines(path)]
        for number, line in enumerate(lines, 2):  # below the names of the columns
            SAID[path.name](line, f"line {number}")
    except (ValueError, csv.Error) as error:
        raise damaged(path, error, MEND) from error
    return lines


def read_lines(path: Path) -> Iterator[dict[str, str]]:
    """The lines of a table that are whole; what is behind them is cut off."""
    if not path.is_file():
        return
    data = path.read_bytes()
    whole = end_of_lines(data)
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    yield from csv.DictReader(io.StringIO(data[:whole].decode(), newline=""))


def end_of_lines(data: bytes) -> int:
    """Where the last whole line of a table ends: at an end of a line that stands in no quoted name."""
    whole = end = quotes = 0
    for line in data.split(b"\n")[:-1]:
        quotes, end = quotes + line.count(b'"'), end + len(line) + 1
        whole = whole if quotes % 2 else end
    return whole


def append(path: Path, table: pd.DataFrame) -> None:
    """Add lines to a table; on the disk when this returns, or not there at all."""
    size = path.stat().st_size if path.is_file() else 0
    lines = format_csv(table, header=size == 0).encode()
    with files.room_for(path, len(lines)), path.open("ab", buffering=0) as file:
        try:
            file.write(lines)
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(size)
            raise
    if size == 0:
        sync_folder(path.parent)


def _rewrite(path: Path, lines: Sequence[Mapping[str, str]]) -> None:
    """Leave these lines of a table alone, as they are written; without any there is no table."""
    if not lines:
        path.unlink()
        return
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, [*lines[0]], lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    files.write(path, text.getvalue())


@contextmanager
def hold(place: Path, model: Path, root: Path) -> Iterator[None]:
    """Take a state folder for oneself; refused where it is another model's, another folder's, or somebody has it."""
    files.check_writable(place)
    path = place / ABOUT
    about = {"format": "newfound watch", "model": _digest(model), "folder": str(root.absolute())}
    if place.exists() and not path.is_file() and not all(map(_is_begun, place.iterdir())):
        raise InputError(f"{place} holds other files; what is watched needs a folder of its own. Give another (-o).")
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place / f".{ABOUT}.lock", timeout=0):
            was = read_json(path, "Give another folder (-o).") if path.is_file() else about
            if differs := [name for name in about if was.get(name) != about[name]]:
                raise InputError(
                    f"{place} was begun with another {' and another '.join(differs)}: what stands there was told by "
                    "that. Give a new folder (-o), in which all images are told anew."
                )
            files.write(path, json.dumps(about, indent=1, ensure_ascii=False))
            yield
    except Timeout as error:
        raise InputError(
            f"Somebody else is watching with {place}. Wait for them, or give another folder (-o)."
        ) from error


def _is_begun(path: Path) -> bool:
    """Whether somebody who was killed at the first write of a state folder has left this."""
    return path.name == f".{ABOUT}.lock" or files.TEMPORARY.fullmatch(path.name) is not None


def _digest(model: Path) -> str:
    """What tells a model from any other."""
    return hashlib.sha256(b"".join((model / name).read_bytes() for name in MODEL)).hexdigest()


def _stamp(line: Mapping[str, str]) -> Stamp:
    return Stamp(int(line["size"]), int(line["modified"]))
