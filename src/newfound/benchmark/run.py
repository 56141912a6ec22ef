"""Row after row of a table, in the order of importance; what is done stays done."""

import json
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import Timeout

from newfound import cache, files, methods, parallel
from newfound.benchmark.budgets import BUDGETS, Budget
from newfound.benchmark.published import CONTROLS, DATASETS, TABLES
from newfound.benchmark.results import Row, add, check_setting, has
from newfound.benchmark.rows import run as run_row
from newfound.benchmark.stages import Task
from newfound.console import Progress, about, silent
from newfound.data import datasets
from newfound.data.datasets import load_dataset, split_classes
from newfound.data.pixels import Images
from newfound.errors import InputError, check_word

log = logging.getLogger("newfound")


@dataclass(frozen=True)
class Table:
    """Which table, at which budget."""

    stages: Literal["two-stage", "single-stage"]
    dataset: Literal["cifar10", "cifar100"]
    split: str
    budget: str

    @property
    def name(self) -> str:
        """The name of its results."""
        return f"{self.stages}-{self.dataset}-{self.split}-{self.budget}"

    def command(self, method: str, seed: int) -> str:
        """What makes one row of it."""
        where = f"--dataset {self.dataset} --split {self.split} --budget {self.budget}"
        return f"newfound benchmark {self.stages} {where} --methods {method} --seeds {seed}"

    def row(self, method: str, seed: int) -> dict[str, Any]:
        """Everything that one row depends on."""
        budget = BUDGETS[self.budget]
        spacing = methods.parse(method).settings()["spacing"]
        own = {"method": method, "seed": seed, "weight": budget.weight(method), "spacing": spacing}
        return self.setting() | own | {"training": budget.training(method).settings()}

    def compare(self, row: Row) -> list[str]:
        """What a row has otherwise than it would have now; one that no table can be made of fails."""
        _ = row["train"].items()
        now = self.row(row["method"], row["seed"])
        was = {"spacing": now["spacing"]} | row  # older rows do not say it
        names = {"weight": "λ", "training": "training", "spacing": "Spacing"}
        return [f"{name} of {row['method']}" for key, name in names.items() if was[key] != now[key]]

    def setting(self) -> dict[str, Any]:
        """Everything that all its rows share."""
        return asdict(self) | {
            "images": "unlabelled training images (train) and test images of the novel classes (test), unaugmented",
            "epoch": "the last",
            "novel classes": f"{len(split_classes(self.dataset, self.split).novel)}, given",
            "nmi normaliser": "arithmetic",
            "settings": json.loads(json.dumps(BUDGETS[self.budget].settings())),
        }


def table(stages: str, dataset: str | None, split: str | None, budget: str) -> Table:
    """A table by its words, by default the dataset's first split; unknown words are refused with those that exist."""
    splits = [name for name, of in DATASETS.items() if of == dataset]
    split = split or next(iter(splits), "")
    asked: tuple[tuple[str, str | None, Collection[str]], ...] = (
        ("kind of table", stages, TABLES),
        ("dataset", dataset, dict.fromkeys(DATASETS.values())),
        ("budget", budget, BUDGETS),
        (f"split of {dataset}", split.partition("@")[0], splits),
    )
    for what, given, possible in asked:
        check_word(what, given, possible)
    which = Table(stages, dataset, split, budget)  # type: ignore[arg-type]  # both were looked up above
    split_classes(which.dataset, which.split)
    return which


def locate_data(dataset: str, data: Path | None) -> Path:
    """The folder with CIFAR's files; a clear word when it is not known."""
    if data is None:
        datasets.DATASETS[dataset].check(None)  # says which files are needed
    assert data is not None
    return data


def names(stages: str, only: Sequence[str] = ()) -> list[list[str]]:
    """Methods in groups, the most important first: the paper's rows, then controls; or those asked for."""
    groups = [list(only)] if only else [list(TABLES[stages]), list(CONTROLS[stages])]
    for name in (name for group in groups for name in group):
        labelled = stages == "single-stage"
        if not methods.parse(name).suits(labelled=labelled):
            what = "discovers in two stages only" if labelled else "needs labelled images while it discovers"
            raise InputError(f"{name} {what}; {stages} methods are: {methods.suitable(labelled=labelled)}.")
    return groups


def benchmark(
    which: Table,
    data: Path,
    output: Path,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    keep: Path | None = None,
    progress: Progress = silent,
) -> Path:
    """Run the rows that the results do not have yet, and add each as it is finished.

    Several of these at once share the work: a row that another process is running is left to it. A row that was
    interrupted goes on where it stopped.
    """
    parallel.check_alone(
        "Rows share the work when the command is started several times, each process on its own, not under torchrun."
    )
    groups, path = names(which.stages, only), output / f"{which.name}.json"
    if not seeds:
        raise InputError("No seed was given; give one at least, as in --seeds 0 1 2.")
    for folder in (output, *([] if keep is None else [keep])):
        files.check_writable(folder)
    check_setting(path, which.setting(), which.compare)
    task = read_task(which, data, BUDGETS[which.budget])
    asked = [(name, seed) for group in groups for seed in seeds for name in group]
    todo = [(name, seed) for name, seed in asked if not has(path, {"method": name, "seed": seed})]
    if len(todo) < len(asked):
        none = "" if keep is None else " Nothing is kept of them; to draw them too, run them anew with another -o."
        log.info(f"{len(asked) - len(todo)} of {len(asked)} rows are finished already.{none}")
    progress("rows", len(todo), {"epoch": 0.0})
    began, made = time.perf_counter(), 0
    for number, (name, seed) in enumerate(todo):
        try:
            with cache.lock(f"{path.resolve()} {name} {seed}").acquire(timeout=0):
                if not has(path, {"method": name, "seed": seed}):
                    left = (time.perf_counter() - began) / max(made, 1) * (len(todo) - number)
                    time_left = f" {about(left).capitalize()} left." if made else ""
                    log.info(f"Row {number + 1} of {len(todo)}: {name}, seed {seed}.{time_left}")
                    make_row(which, task, path, name, seed, keep, progress)
                    made += 1
        except Timeout:
            log.info(f"{name}, seed {seed}: another process is at it.")
        progress("rows", len(todo), {"epoch": number + 1.0})
    return path


def make_row(which: Table, task: Task, path: Path, name: str, seed: int, keep: Path | None, progress: Progress) -> None:
    """Run one row, from where it was interrupted, and add it to the results."""
    own = which.row(name, seed) | {"pixels": task.fingerprint, "results": str(path.resolve())}
    checkpoint = cache.root() / "rows" / f"{cache.key(own)}.safetensors"
    latents = None if keep is None else keep / f"{which.name}-{name}-{seed}"
    budget = BUDGETS[which.budget]
    row = run_row(task, name, seed, budget, progress, keep=latents, checkpoint=checkpoint)
    row |= {"spacing": own["spacing"], "command": which.command(name, seed)}
    add(path, which.setting(), [row], by=("method", "seed"))
    checkpoint.unlink(missing_ok=True)


def read_task(which: Table, data: Path, budget: Budget) -> Task:
    """The images of a table, split; all files are looked for before any is read."""
    datasets.DATASETS[which.dataset].check(data)
    train, test = (thinned(load_dataset(which.dataset, data, part), budget.images) for part in ("train", "test"))
    return Task(which.dataset, which.split, which.stages == "single-stage", train, test)


def thinned(images: Images, most: int | None) -> Images:
    """At most so many images of each class, the first ones; None: all."""
    if most is None:
        return images
    labels, classes = images.listing.labels, images.listing.classes
    rows = [(labels == label).nonzero().squeeze(1)[:most] for label in range(len(classes))]
    return images.pick(torch.cat(rows).sort().values)
