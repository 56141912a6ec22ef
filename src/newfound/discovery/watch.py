"""watch: images are told as they arrive, and what fits nothing is gathered until it is a class that can be proposed.

The tables in the state folder are the state: a line is on the disk before anybody hears of it, and whoever is killed
goes on where they stopped (decision 18).

Long, for what each table must hold stands beside what reads it.
"""

import csv
import hashlib
import io
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from filelock import FileLock, Timeout

from newfound import files
from newfound.console import Progress, silent
from newfound.data.listing import Listing, check_folder, find_images
from newfound.discovery.classifier import Classifier
from newfound.discovery.discover import discover
from newfound.discovery.journal import sync_folder
from newfound.discovery.learn import find_doubtful
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, needed
from newfound.discovery.tables import WORDS, format_csv, restore
from newfound.errors import InputError, counted, shorten
from newfound.schema import DamagedError, damaged, needs, one_of, read_json, record, text

log = logging.getLogger("newfound")


class Stamp(NamedTuple):
    """What tells a file from another of the same name."""

    size: int
    modified: int  # nanoseconds


IMAGES, TRIES, PROPOSED = "images.csv", "tries.csv", "proposals.csv"
"""The tables: a line an image that was told; a line each time that the pool was looked at; a line an image of a class
that was proposed.
"""

LINE = ["path", *Stamp._fields, "class", "number", "kind", "confidence", "newness", "distance", "guess", "told"]
"""The columns of `images.csv`: the same for all lines, whatever was told first."""

ABOUT, MODEL = "watch.json", ("model.json", "model.safetensors")
"""What says whose state it is, and the files of a model that tell it from others."""

MEND = "Take it from a backup, or give a new folder (-o), in which all images are told anew."

FROZEN = Run(method="kmeans")
"""How new classes are looked for: nothing is trained, so that what is learnt of them moves nothing either."""

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

TOGETHER = 64
"""Images that are told at once: as many at most are told again, to nobody's harm, after a kill."""

LEAST, GROWN = 20, 1.25
"""Images in the pool below which no class is looked for, and how many times as large it must have become since."""


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


def settled(before: Mapping[str, Stamp], now: Mapping[str, Stamp], state: State) -> list[str]:
    """The images that nobody was told of, and that are the same as a while ago: nobody is writing to them."""
    return sorted(
        name
        for name, stamp in now.items()
        if before.get(name) == stamp and state.told.get(name, (None, ""))[0] != stamp
    )


def pool(now: Mapping[str, Stamp], state: State) -> list[str]:
    """The images that are there, are of no class for sure, and in no proposal."""
    told = ((name, *state.told[name]) for name in sorted(now) if name in state.told)
    return [
        name
        for name, stamp, kind in told
        if now[name] == stamp and kind not in ("known", UNREADABLE) and (name, stamp) not in state.proposed
    ]


def due(size: int, state: State) -> bool:
    """Whether a pool of so many images is worth a look: it is large enough, and larger than when it was looked at."""
    return size >= LEAST and size >= GROWN * state.tried


def watch(
    model: str | Path,
    folder: str | Path,
    output: str | Path,
    *,
    once: bool = False,
    every: float = 10.0,
    settle: float = 2.0,
    run: Run = FROZEN,
    progress: Progress = silent,
) -> State:
    """Tell the class of every image in a folder and of those that arrive, until somebody stops it, or `once`.

    An image counts once its size and time have been the same for `settle` seconds. Each becomes a line of
    `images.csv`. Where the images that are of no class for sure hold a new one, it is proposed, as a run folder for
    people to review; the model learns nothing by itself.
    """
    needed("every", every, every > 0, "seconds above 0")
    needed("settle", settle, settle >= 0, "0 seconds or more")
    root, place, classifier = check_folder(folder), Path(output).expanduser(), Classifier.load(model)
    with _hold(place, Path(model).expanduser(), root):
        state, before = read_state(place), scan(root)
        log.info(f"Watching {root} with {classifier!r}: {counted(len(state.told), 'image')} told already.")
        while True:
            if any(state.told.get(name, (None, ""))[0] != stamp for name, stamp in before.items()):
                time.sleep(settle)
            now = scan(root)
            for names in _chunks(settled(before, now, state)):
                tell(classifier, root, {name: now[name] for name in names}, place, state)
            if due(len(gathered := pool(now, state)), state):
                propose(classifier, root, {name: now[name] for name in gathered}, place, state, run, progress)
            if once:
                return state
            time.sleep(max(0.0, every - settle))
            before = scan(root)


def scan(root: Path) -> dict[str, Stamp]:
    """The images below a folder as they are now; what vanishes meanwhile is not there."""
    found = {}
    for name in find_images(root)[0]:
        try:
            about = (root / name).stat()
        except OSError:
            continue
        found[name] = Stamp(about.st_size, about.st_mtime_ns)
    return found


def tell(classifier: Classifier, root: Path, images: Mapping[str, Stamp], place: Path, state: State) -> None:
    """Write down what some images are; those that cannot be read too."""
    tables = [table for table, _ in classifier.predictions(Listing.of([*images], root=root))]
    read = {name for table in tables for name in table["path"]}
    words = {"class": "", "number": 0, "kind": UNREADABLE, "guess": ""}
    tables.append(pd.DataFrame([{"path": name} | words for name in images if name not in read]))
    table = pd.concat([table for table in tables if len(table)], ignore_index=True)
    stamps = pd.DataFrame([images[name] for name in table["path"]])
    table = pd.concat([table, stamps], axis=1).assign(told=_time()).reindex(columns=LINE)
    append(place / IMAGES, table)
    state.told |= {name: (images[name], kind) for name, kind in zip(table["path"], table["kind"], strict=True)}
    kinds = table["kind"].value_counts()
    log.info(f"Told {counted(len(table), 'image')}: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}.")


def propose(
    classifier: Classifier,
    root: Path,
    images: Mapping[str, Stamp],
    place: Path,
    state: State,
    run: Run,
    progress: Progress,
) -> None:
    """Look for new classes in the pool. Those that hold together are proposed: the run that
    found them lies in the state folder, and its line in `tries.csv`, the last to be written, says so.
    """
    folder = place / f"proposal-{state.proposals + 1}"
    paths = [str((root / name).absolute()) for name in images]
    files.write(place / "pool.csv", format_csv(pd.DataFrame({"path": paths})))
    found = discover(
        unlabelled=place / "pool.csv", model=classifier.model, run=run, output=folder, overwrite=True, progress=progress
    )
    numbers = supported(found)
    line = {"told": _time(), "pool": len(images), "classes": len(numbers), "folder": folder.name if numbers else ""}
    if numbers:
        names = dict(zip(paths, images, strict=True))
        table = found.assignments()
        table = table[table["number"].isin(numbers)]
        own = [names[str(path)] for path in table["path"]]
        stamps = pd.DataFrame(
            {
                "path": own,
                "size": [images[name].size for name in own],
                "modified": [images[name].modified for name in own],
                "proposal": folder.name,
                "class": [*table["class"]],
                "number": [*table["number"]],
            }
        )
        append(place / PROPOSED, stamps)
        state.proposed |= {(name, images[name]) for name in own}
        state.proposals += 1
        said = [f"{found.classes.names[n]} ({counted(int((table['number'] == n).sum()), 'image')})" for n in numbers]
        log.info(f"Proposed: {shorten(said)}. Look at them: newfound review {folder}")
    else:
        shutil.rmtree(folder)
        log.info(f"{counted(len(images), 'image')} fit no class, and hold no new one yet.")
    append(place / TRIES, pd.DataFrame([line]))
    state.tried = len(images) - len(state.proposed & {*images.items()})


def supported(found: Discovery) -> list[int]:
    """The new classes of a discovery that are there: of as many as counting gave, those that half of the images show
    again.
    """
    now, table = found.classes, found.assignments()
    answers = torch.tensor(table["number"].tolist(), dtype=torch.long)
    doubtful = find_doubtful(now, answers)
    return [n for n in now.numbers if now.kind(n) == "new" and n not in doubtful and bool((answers == n).any())]


def read_state(place: Path) -> State:
    """What the tables of a state folder say; the end of a line that a kill cut off is taken away."""
    state = State()
    state.take(read_table(place / IMAGES))
    tries, proposed = read_table(place / TRIES), read_table(place / PROPOSED)
    folders = [line["folder"] for line in tries if line["folder"]]
    if folders != [f"proposal-{number}" for number in range(1, len(folders) + 1)]:  # the next might replace another
        found = DamagedError(f"the folders are {shorten(folders)}; needed: proposal-1, proposal-2, …")
        raise damaged(place / TRIES, found, MEND)
    state.proposed = {(restore(line["path"]), _stamp(line)) for line in proposed if line["proposal"] in folders}
    state.proposals = len(folders)
    if tries:
        last = tries[-1]
        inside = sum(1 for line in proposed if line["proposal"] == last["folder"])
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


@contextmanager
def _hold(place: Path, model: Path, root: Path) -> Iterator[None]:
    """Take a state folder for oneself; refused where it is another model's, another folder's, or somebody has it."""
    files.check_writable(place)
    path = place / ABOUT
    about = {"format": "newfound watch", "model": _digest(model), "folder": str(root.absolute())}
    if place.exists() and not path.is_file() and any(place.iterdir()):
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


def _digest(model: Path) -> str:
    """What tells a model from any other."""
    return hashlib.sha256(b"".join((model / name).read_bytes() for name in MODEL)).hexdigest()


def _stamp(line: Mapping[str, str]) -> Stamp:
    return Stamp(int(line["size"]), int(line["modified"]))


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + TOGETHER] for first in range(0, len(names), TOGETHER))


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
