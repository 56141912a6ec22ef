"""Does the default win? On class splits, seeds and sets that nothing was chosen on, beside every control."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from filelock import Timeout

from newfound import cache, files, methods, parallel
from newfound.benchmark.curve import against_minutes
from newfound.benchmark.results import add, has, read
from newfound.benchmark.rows import WHITENED
from newfound.benchmark.run import Table, benchmark, locate_data
from newfound.benchmark.small import SETS, learn_known, run_row
from newfound.benchmark.summary import NOT_RUN, cell, flat, gains, interval, markdown, paired, spread
from newfound.console import Progress, retitle, silent
from newfound.discovery.facts import versions
from newfound.discovery.scoring import PIXELS, TITLES
from newfound.encoders.pixels import READING_SHRINK
from newfound.errors import InputError, check_word
from newfound.report.curves import Curve

log = logging.getLogger("newfound")

READING = "unit k-means"
"""Of small sets, whose latents the product has whitened."""
OURS, CONTROL = "spacing", "spacing:unanchored"
COMPARED = ((OURS, "kmeans"), (OURS, CONTROL), (OURS, "uno"), ("uno+spacing", "uno"))
"""What is subtracted from what."""
LARGE = ("kmeans", "pairs+spacing", OURS, CONTROL, "uno", "uno+spacing", "dtc")
"""Rows of the tables on CIFAR."""
FEW = (PIXELS, "kmeans", OURS, CONTROL, "uno", "uno+spacing", "pairs", "pairs+spacing")
PRESETS = ("aligned", "paper", "author", "dcn")
SMALL = (*FEW, *(f"pairs+spacing:{preset}" for preset in PRESETS))
"""Rows of small sets."""
ABOUT = {
    "doodles": "Doodles: the ten kinds of the demonstration, 1000 drawings, 100 other kinds known",
    "digits-0-4": "Digits, 0 to 4 known",
    "digits-5-9": "Digits, 5 to 9 known",
    "digits-even": "Digits, even ones known",
    "fashion-mnist": "Fashion-MNIST: five kinds known, five novel, 600 images each",
    "cifar10-few": "CIFAR-10: five classes known, 200 images of each of the others",
    "doodles-tail": "Doodles, a long tail: the novel kinds have 100 to 5 drawings",
    "cifar10-tail": "CIFAR-10, a long tail: the novel classes have 2000 to 100 images",
    "doodles-15": "Doodles, 15 classes asked for where there are ten",
    "doodles-7": "Doodles, 7 classes asked for where there are ten",
}
"""What each small set is."""


COLLECTIONS = ("doodles", "digits", "fashion-mnist", "cifar10")
"""Of whose images small sets are made, as their names begin."""


class Part(NamedTuple):
    """One file of evidence: a table of CIFAR on an order of its classes, or a small set; its rows and its seeds."""

    name: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    table: Table | None = None

    @property
    def collection(self) -> str:
        """Whose images these are: parts that share a collection do not speak independently."""
        own = (name for name in COLLECTIONS if self.name.startswith(name))
        return next(own, self.name) if self.table is None else self.table.dataset


def _large(dataset: str, split: str, seeds: tuple[int, ...]) -> Part:
    table = Table("two-stage", dataset, split, "cpu")  # type: ignore[arg-type]
    return Part(table.name, LARGE, seeds, table)


HOURS = Table("two-stage", "cifar10", "5-5", "hours")
"""The table of what a laptop can do in an evening."""

ADDED = Table("single-stage", "cifar10", "5-5", "cpu")
"""The table of methods that ours is added to; in a folder of its own, where each begins with its host's latents."""

FRESH = (1, 2, 3, 4, 5)
"""Seeds of small sets: 0 is that of the demonstration, from 100 on they serve for choosing."""

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        *(Part(name, SMALL, FRESH) for name in SETS if name in ("doodles", "cifar10-few", "fashion-mnist")),
        *(Part(name, FEW, FRESH) for name in SETS if name.startswith("digits")),
        *(Part(name, FEW, FRESH) for name in SETS if name.endswith("tail")),
        *(Part(name, ("kmeans", OURS, CONTROL), FRESH) for name in ("doodles-15", "doodles-7")),
        _large("cifar10", "5-5", (0, 1, 2)),
        *(_large("cifar10", f"5-5@{order}", (0,)) for order in (11, 12, 13)),
        _large("cifar100", "80-20", (0, 1, 2)),
        *(_large("cifar100", f"80-20@{order}", (0,)) for order in (11, 12, 13)),
    )
}
"""In the order of worth: small sets, where people are, then CIFAR."""


def evidence(
    data: Path | None,
    output: Path,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    progress: Progress = silent,
) -> list[Path]:
    """Run what is missing of some parts, or of all; several processes share the work. Returns the files of results."""
    parallel.check_alone("Rows share the work when the command is started several times, each process on its own.")
    for name in only:
        check_word("part of the evidence", name, PARTS)
    parts = choose_parts(only, seeds)
    files.check_writable(output)
    paths = []
    for part, wanted in parts:
        if part.table is None:
            paths.append(_run_small(part, data, output, wanted, progress))
        else:
            place = locate_data(part.table.dataset, data)
            paths.append(benchmark(part.table, place, output, only=part.methods, seeds=wanted, progress=progress))
    return paths


def choose_parts(only: Sequence[str], seeds: Sequence[int]) -> list[tuple[Part, tuple[int, ...]]]:
    """Some parts, or all, each with those of its seeds that are asked for, or all. A seed that none of them has is
    refused, and so is a part asked for that has none of the seeds; of all parts those without are left out.
    """
    asked = [PARTS[name] for name in only or PARTS]
    parts = [(part, tuple(seed for seed in part.seeds if not seeds or seed in seeds)) for part in asked]
    absent = [seed for seed in seeds if not any(seed in part.seeds for part in asked)]
    without = [part for part, wanted in parts if not wanted]
    if absent or (only and without):
        there = (f"{part.name} {', '.join(map(str, part.seeds))}" for part in (asked if absent else without))
        raise InputError(
            f"--seeds is {' '.join(map(str, absent or seeds))}. Needed: seeds that the evidence has: "
            f"{'; '.join(there)}. Give some of these, or leave --seeds out."
        )
    return [(part, wanted) for part, wanted in parts if wanted]


def _run_small(part: Part, data: Path | None, output: Path, seeds: Sequence[int], progress: Progress) -> Path:
    path = output / f"evidence-{part.name}.json"
    for seed in seeds:
        small = SETS[part.name](data, seed)
        for method in part.methods:
            try:
                with cache.lock(f"{path.resolve()} {method} {seed}").acquire(timeout=0):
                    if not has(path, {"method": method, "seed": seed}, current):
                        log.info(f"{part.name}: {method}, seed {seed}.")
                        model = learn_known(small, seed, progress)
                        told = retitle(progress, f"{part.name} {seed}: {method}")
                        rows = [row | {"rule": rule(method)} for row in run_row(small, model, method, seed, told)]
                        setting, by = _setting(part, small.stage, small.asked), ("method", "seed", "reading")
                        add(path, setting, rows, by, current=current)
            except Timeout:
                log.info(f"{part.name}: {method}, seed {seed}: another process is at it.")
    return path


def table(results: dict[str, Any], reading: str = READING) -> pd.DataFrame:
    """Mean ± standard deviation and the worst seed of every method of a small set."""
    rows = pd.DataFrame(results["rows"])
    rows = rows[rows["reading"] == reading]
    lines = []
    for method in [name for name in TITLES if name in set(rows["method"])]:
        own = rows[rows["method"] == method]
        lines.append(
            {
                "method": TITLES[method],
                "accuracy": spread(100 * own["accuracy"], 1),
                "macro": spread(100 * own["macro accuracy"], 1),
                "NMI": spread(own["nmi"], 3),
                "worst": f"{100 * own['accuracy'].min():.1f}",
                "minutes": f"{own['seconds'].mean() / 60:.1f}",
                "seeds": len(own),
            }
        )
    return pd.DataFrame(lines)


def overview(folder: Path) -> str:
    """One line for every set that was run, in Markdown: ours beside what matters most."""
    shown = (PIXELS, "kmeans", OURS, CONTROL, "uno", "uno+spacing")
    names = ("pixels", "start features", "**spacing**", "without anchors", "UNO", "UNO + spacing")
    lines = []
    for part in PARTS.values():
        path = folder / (f"evidence-{part.name}.json" if part.table is None else f"{part.name}.json")
        results = read(path)
        rows = flat(results) if part.table is not None else pd.DataFrame(results["rows"])
        if not len(rows) or not (rows["method"] == OURS).any():
            continue
        rows = rows[rows["reading"] == reading_of(part)]
        cells = [brief(rows[rows["method"] == name]) for name in shown]
        title = ABOUT[part.name] if part.table is None else f"{part.table.dataset} {part.table.split}, from scratch"
        lines.append([title, *cells, (rows["method"] == OURS).sum()])
    return markdown(("accuracy / NMI", *names, "seeds"), lines)


def reading_of(part: Part) -> str:
    """How a part's rows are read: as the product reads. In a table that is one of several readings."""
    return READING if part.table is None else WHITENED


def brief(rows: pd.DataFrame) -> str:
    """Mean accuracy in per cent and mean NMI."""
    return f"{100 * rows['accuracy'].mean():.1f} / {rows['nmi'].mean():.3f}" if len(rows) else ""


def small_tables(folder: Path) -> str:
    """Every small set that was run, in Markdown."""
    parts = []
    for part in (part for part in PARTS.values() if part.table is None):
        if (results := read(folder / f"evidence-{part.name}.json"))["rows"]:
            parts.append(f"**{ABOUT[part.name]}** (`newfound benchmark evidence --parts {part.name}`)\n")
            shown = table(results)
            parts.append(markdown(shown, shown.itertuples(index=False)) + "\n")
    return "\n".join(parts) or NOT_RUN


def large_tables(folder: Path) -> str:
    """Accuracy / NMI on CIFAR's own tables and on other orders of its classes, in Markdown: a column each."""
    columns: dict[str, dict[str, str]] = {}
    for part in (part for part in PARTS.values() if part.table is not None):
        if (path := folder / f"{part.name}.json").is_file():
            assert part.table is not None
            scores = flat(read(path))
            scores = scores[scores["reading"] == reading_of(part)]
            own = {name: scores[scores["method"] == name] for name in part.methods}
            cells = {TITLES[name]: f"{cell(rows)} ({len(rows)})" for name, rows in own.items() if len(rows)}
            columns |= {f"{part.table.dataset} {part.table.split}": cells} if cells else {}
    if not columns:
        return NOT_RUN
    shown = pd.DataFrame(columns).reindex([TITLES[name] for name in LARGE]).fillna("not run")
    return markdown(["method", *shown], shown.itertuples())


def verdicts(folder: Path) -> str:
    """One method minus another, seed by seed, over each set and over all together, in Markdown."""
    lines = []
    for one, other in COMPARED:
        what, every = f"{TITLES[one]} − {TITLES[other]}", _every(folder, one, other)
        lines += [[what, name, *_verdict(found)] for name, found in every.items()]
        if len(every) > 1:
            lines.append([what, "**means of the collections**", *_verdict(_means(every))])
    return markdown(("difference", "set", "accuracy, points", "NMI", "seeds"), lines)


def means(folder: Path) -> str:
    """One method minus another over the means of all collections, in Markdown."""
    found = {(one, other): _every(folder, one, other) for one, other in COMPARED}
    lines = [
        [f"{TITLES[one]} − {TITLES[other]}", *_verdict(_means(every)), len(every)]
        for (one, other), every in found.items()
        if len(every) > 1
    ]
    return markdown(("difference", "accuracy, points", "NMI", "collections", "sets of these"), lines)


def _every(folder: Path, one: str, other: str) -> dict[str, pd.DataFrame]:
    """The differences on each set where both were run."""
    found = {part.name: _differences(folder, part, one, other) for part in PARTS.values()}
    return {name: rows for name, rows in found.items() if len(rows)}


def _means(every: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The mean difference on each collection, its sets weighed alike: sets of the same images are one witness."""
    sets = pd.DataFrame([found.mean() for found in every.values()])
    return sets.groupby([PARTS[name].collection for name in every], sort=False).mean()


def differences(results: dict[str, Any], one: str, other: str, reading: str = READING) -> pd.DataFrame:
    """Accuracy (in points) and NMI of one method minus another's, seed by seed."""
    rows = pd.DataFrame(results["rows"], columns=["method", "seed", "reading", "accuracy", "nmi"])
    rows = rows[rows["reading"] == reading].set_index("seed")[["method", "accuracy", "nmi"]]
    sides = (rows[rows["method"] == method].drop(columns="method").astype(float) for method in (one, other))
    first, second = sides
    return (first - second).dropna() * [100, 1]


def hours_table(folder: Path) -> str:
    """What the budget of hours buys on the paper's first split, beside what the paper's does, in Markdown."""
    rows = [
        [
            TITLES.get(row["method"], row["method"]),
            *(_score(row["train"].get(reading)) for reading in ("head", "unit k-means", WHITENED)),
            *(f"{seconds / 60:.0f}" for seconds in (row["stage one seconds"], row["seconds"])),
            row["seed"],
        ]
        for row in read(folder / f"{HOURS.name}.json")["rows"]
    ]
    heads = ("method", "head or prototypes", "unit k-means", "whitened k-means", "minutes of stage one", "of discovery")
    return markdown((*heads, "seed"), rows)


def hours_curves(folder: Path) -> list[tuple[str, list[Curve]]]:
    """Accuracy against minutes, at the budget of hours."""
    found = against_minutes(read(folder / f"{HOURS.name}.json")["rows"], TITLES)
    return [("CIFAR-10, five classes known", found)] if found else []


def added_gains(folder: Path) -> str:
    """What ours gives to methods that it is added to in one stage, in Markdown."""
    return gains(read(folder / "added" / f"{ADDED.name}.json"))


def _score(scores: dict[str, Any] | None) -> str:
    return "" if scores is None else f"{100 * scores['accuracy']:.1f} / {scores['nmi']:.3f}"


def _differences(folder: Path, part: Part, one: str, other: str) -> pd.DataFrame:
    """The same, whether the part is a small set or a table of CIFAR."""
    if part.table is None:
        return differences(read(folder / f"evidence-{part.name}.json"), one, other)
    if not (path := folder / f"{part.name}.json").is_file():
        return pd.DataFrame()
    return paired(read(path), one, other, reading_of(part)) * [100, 1]


def _verdict(found: pd.DataFrame) -> list[Any]:
    return [interval(found["accuracy"], 1), interval(found["nmi"], 3), len(found)]


def rule(method: str) -> str:
    """A short name of all that can be chosen of a method on small sets: another choice, another name."""
    if method == PIXELS:
        return PIXELS
    settings = methods.parse(method).settings()
    chosen = {name: settings[name] for name in ("own", "reading", "spacing")}
    return cache.key(chosen | {"whitened": READING_SHRINK})


def current(row: dict[str, Any]) -> bool:
    """Whether a row is of the method as it is now."""
    return row.get("rule") == rule(row["method"])


def _setting(part: Part, stage: Any, asked: int | None) -> dict[str, Any]:
    return {
        "set": part.name,
        "images": "all unlabelled images, unaugmented, last epoch",
        "classes": "their number is given" if asked is None else f"{asked} are asked for",
        "setting": "two-stage: the labelled images are not seen again",
        "stage one": vars(stage),
        "discovery": "the product's defaults for each method, no known class among the images",
        "nmi normaliser": "arithmetic",
        "command": f"newfound benchmark evidence --parts {part.name}",
        "versions": versions(),
    }
