"""watch: images are told as they arrive, and what fits nothing is gathered until it is a class that can be proposed.

The tables in the state folder are the state: a line is on the disk before anybody hears of it, and whoever is killed
goes on where they stopped (decision 18).
"""

import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from newfound import files
from newfound.console import Progress, hushed, silent
from newfound.data.listing import Listing, check_folder, find_images
from newfound.discovery.classifier import Classifier
from newfound.discovery.discover import discover
from newfound.discovery.found import Found
from newfound.discovery.learn import find_doubtful
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, needed
from newfound.discovery.tables import format_csv
from newfound.discovery.watched import IMAGES, PROPOSED, TRIES, UNREADABLE, Stamp, State, append, hold, read_state
from newfound.errors import counted, is_text, shorten
from newfound.functional.counting import distinct

log = logging.getLogger("newfound")


LINE = ["path", *Stamp._fields, "class", "number", "kind", "confidence", "newness", "distance", "guess", "told"]
"""The columns of `images.csv`: the same for all lines, whatever was told first."""

FROZEN = Run(method="kmeans")
"""How new classes are looked for: nothing is trained, so that what is learnt of them moves nothing either."""

TOGETHER = 64
"""Images that are told at once: as many at most are told again, to nobody's harm, after a kill."""

LONGEST = 365 * 24 * 60 * 60
"""Seconds that are waited at a time, at most: clocks end somewhere."""

LEAST, GROWN = 20, 1.25
"""Images in the pool below which no class is looked for, and how many times as large it must have become since."""


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
    needed("every", every, 0 < every <= LONGEST, "seconds above 0, and no more than a year")
    needed("settle", settle, 0 <= settle <= LONGEST, "0 seconds or more, and no more than a year")
    root, place, classifier = check_folder(folder), Path(output).expanduser(), Classifier.load(model)
    with hold(place, Path(model).expanduser(), root):
        nameless: set[str] = set()
        state, before = read_state(place), scan(root, nameless)
        log.info(f"Watching {root} with {classifier!r}: {counted(len(state.told), 'image')} told already.")
        while True:
            if any(state.told.get(name, (None, ""))[0] != stamp for name, stamp in before.items()):
                time.sleep(settle)
            now = scan(root, nameless)
            for names in _chunks(settled(before, now, state)):
                tell(classifier, root, {name: now[name] for name in names}, place, state)
            if due(len(gathered := pool(now, state)), state):
                propose(classifier, root, {name: now[name] for name in gathered}, place, state, run, progress)
            if once:
                return state
            time.sleep(max(0.0, every - settle))
            before = scan(root, nameless)


def scan(root: Path, nameless: set[str]) -> dict[str, Stamp]:
    """The images below a folder as they are now; what vanishes meanwhile is not there. Those whose names are no text,
    which no table can hold, are left out: each is told once, and is among the `nameless` from then on.
    """
    found = {}
    for name in find_images(root)[0]:
        if not is_text(name):
            if name not in nameless:
                nameless.add(name)
                log.warning(f"Left out: {name!r}: its name is not valid text; rename it.")
            continue
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
    log.info(f"Looking for new classes among {counted(len(images), 'image')} that fit none.")
    found, numbers = look_for_classes(classifier, place / "pool.csv", folder, run, progress)
    if numbers:
        Discovery(replace(found.found, proposed=tuple(numbers))).save(folder, overwrite=True)
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


def look_for_classes(
    classifier: Classifier, pool: Path, folder: Path, run: Run, progress: Progress
) -> tuple[Discovery, list[int]]:
    """What is found in the pool, a run folder, and which new classes of it are supported.

    As many are looked for as are counted, or fewer: where most are supported, and of these where they hold most images.
    Whoever looks for too many cuts a class in pieces, and no half of the images shows the same ones again.
    """

    def look(classes: int | None, output: Path | None) -> Discovery:
        given: dict[str, Any] = {"classes": classes, "output": output, "overwrite": output is not None}
        return discover(unlabelled=pool, model=classifier.model, run=run, progress=progress, **given)

    with hushed(log):
        found = look(None, folder)
        numbers, counted_new = supported(found), len(found.found.numbers) - len(found.found.known)
        best, chosen = _weight(found, numbers), None
        for fewer in range(counted_new - 1, 0, -1):
            other = look(fewer, None)
            if (weight := _weight(other, supported(other))) > best:
                best, chosen = weight, fewer
        if chosen is not None:
            found = look(chosen, folder)
            numbers = supported(found)
    return found, numbers


def _weight(found: Discovery, numbers: Sequence[int]) -> tuple[int, int]:
    """How many classes these are, and how many images they hold."""
    return len(numbers), int(found.assignments()["number"].isin(numbers).sum())


def supported(found: Discovery) -> list[int]:
    """The new classes of a discovery that are there: half of the images show them again, and counting agrees."""
    now, table = found.classes, found.assignments()
    answers = torch.tensor(table["number"].tolist(), dtype=torch.long)
    doubtful, counted_in = find_doubtful(now, answers), agreed(found.found)
    return [
        n
        for n in now.numbers
        if now.kind(n) == "new" and n in counted_in and n not in doubtful and bool((answers == n).any())
    ]


def agreed(found: Found) -> set[int]:
    """The new classes that counting agrees to: at the fineness of the known classes each is one more (`distinct`). The
    estimated number says nothing of that, for one class at least is always looked for.
    """
    (_, centres, sizes, _), known = found.clusters, len(found.known)
    counts = distinct(centres[known:], centres[:known][sizes[:known] > 0])
    return {number for number, new in zip(found.numbers[known:], counts.tolist(), strict=True) if new}


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + TOGETHER] for first in range(0, len(names), TOGETHER))


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
