"""How many actions a review takes: the simulated reviewer on piles whose truth is known, beside single images."""

import logging
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from newfound import files, parallel
from newfound.benchmark.piles import PILES
from newfound.benchmark.results import add, has, read
from newfound.benchmark.reviewer import SCREEN, VERBS, Reviewer, filled
from newfound.benchmark.summary import NOT_RUN, markdown, spread
from newfound.console import Progress, silent
from newfound.discovery.discover import discover
from newfound.discovery.edits import Classes
from newfound.discovery.facts import versions
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.tables import judge, number_truth
from newfound.errors import check_word
from newfound.functional import metrics
from newfound.report.curves import Curve

log = logging.getLogger("newfound")

GOAL, CLASSES = 0.95, 1.2
"""Accuracy that is wanted, with at most so many classes for every kind there is."""

ENOUGH = 0.98
"""Accuracy at which a review ends."""

WAY = (0.6, 0.7, 0.8, 0.9)
"""Accuracies on the way there."""

STAGE = StageOne(backbone="efficientnet-lite0")
SEEDS = (0, 1, 2)

ABOUT = {
    "cifar10": "CIFAR-10: 600 images of each class, five classes known by 100 of theirs",
    "clip-art": "Clip art: 16 kinds, at most 50 pictures each, eight known by half of theirs",
}
"""What each pile is."""

ALONE = {
    "one by one": "labelling every image, one action each",
    "least sure first": "the same from the least sure on; the others keep the class found, which is named for nothing",
    "wrong ones alone": "one action for every wrong image, in classes named for nothing",
}
"""What it is compared with: nothing but single images."""


def review(
    data: Path | None,
    output: Path,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    progress: Progress = silent,
) -> list[Path]:
    """Review what is missing of some piles, or of all. Returns the files of results."""
    parallel.check_alone("Start the command several times, each with piles and seeds of its own.")
    for name in only:
        check_word("pile", name, PILES)
    files.check_writable(output)
    paths = []
    for name in only or PILES:
        paths.append(output / f"review-{name}.json")
        for seed in seeds or SEEDS:
            if not has(paths[-1], {"seed": seed}):
                log.info(f"{name}: seed {seed}.")
                with tempfile.TemporaryDirectory() as folder:
                    run = find(name, data, seed, Path(folder), progress)
                add(paths[-1], _setting(name), [{"seed": seed} | review_run(run)], by=("seed",), lines=True)
    return paths


def find(name: str, data: Path | None, seed: int, folder: Path, progress: Progress = silent) -> Discovery:
    """What newfound finds in a pile, by its defaults; the number of classes is estimated."""
    known, unlabelled = PILES[name](data, seed, folder)
    return discover(known=known, unlabelled=unlabelled, run=Run(seed=seed), stage=STAGE, truth=True, progress=progress)


def review_run(run: Discovery) -> dict[str, Any]:
    """Let the simulated reviewer put a run right, and write down how: the curve has a line wherever accuracy has risen
    by a third of a point.
    """
    truth = run.found.truth
    assert truth is not None
    n, kinds = len(truth), len({*truth})
    single = label_singly(run.classes, truth)
    reviewer = Reviewer(run)
    points = [_point(run.classes, truth, 0, 0)]
    row = {"images": n, "kinds": kinds, "found": points[0]["classes"], "known": [*run.found.known]}
    row |= {"start": match_share(run.classes, truth)}
    spent, goal = Counter[str](), None
    for step in reviewer.steps():
        point = _point(run.classes, truth, step.actions, step.looked)
        if goal is None:
            spent[step.action] += step.cost
            if point["accuracy"] >= GOAL and point["classes"] <= CLASSES * kinds:
                goal = point | {"spent": dict(spent)}
        last = point["accuracy"] >= ENOUGH
        if last or point["accuracy"] >= points[-1]["accuracy"] + 1 / 300:
            points.append(point)
        if last and goal is not None:
            break
    row |= {"goal": goal, "curve": {name: [point[name] for point in points] for name in points[0]}}
    return row | {"alone": {name: count_labels(after) for name, after in single.items()}, "single": thin(single)}


def _point(now: Classes, truth: Sequence[str], actions: int, looked: int) -> dict[str, Any]:
    right = round(name_share(now, truth), 4)
    return {"actions": actions, "looked": looked, "accuracy": right, "classes": len(filled(now))}


def name_share(now: Classes, truth: Sequence[str]) -> float:
    """The share of images whose class bears the name of what they show; those set aside have no class."""
    named = zip(now.assignment.tolist(), now.aside.tolist(), truth, strict=True)
    return sum(not aside and now.names[number] == kind for number, aside, kind in named) / len(truth)


def match_share(now: Classes, truth: Sequence[str]) -> float:
    """The same once classes have the names that fit best: Hungarian accuracy."""
    return metrics.accuracy(*number_truth(now, truth))


def label_singly(now: Classes, truth: Sequence[str]) -> dict[str, Float[ndarray, " labelled"]]:
    """Accuracy after 0, 1, 2, … labels of single images, in the ways of `ALONE`."""
    n = len(truth)
    labels, guess = number_truth(now, truth)
    right: Bool[ndarray, " n"] = metrics.right(labels, guess, metrics.matching(labels, guess)).numpy()
    order = judge(now).confidence.argsort(stable=True).numpy()
    gained = np.concatenate([[0], (~right[order]).cumsum()])
    return {
        "one by one": np.arange(n + 1) / n,
        "least sure first": (right.sum() + gained) / n,
        "wrong ones alone": (right.sum() + np.arange((~right).sum() + 1)) / n,
    }


def count_labels(after: Float[ndarray, " labelled"]) -> int:
    """The labels that the goal takes."""
    return int((after >= GOAL - 1e-9).argmax())


def thin(single: Mapping[str, Float[ndarray, " labelled"]], points: int = 60) -> dict[str, list[list[float]]]:
    """Some points of each curve, as pairs of labels and accuracy."""
    rows = {name: np.linspace(0, len(after) - 1, points).round().astype(int) for name, after in single.items()}
    return {name: [[int(row), round(float(single[name][row]), 4)] for row in some] for name, some in rows.items()}


def _setting(name: str) -> dict[str, Any]:
    return {
        "pile": ABOUT[name],
        "discovery": "the defaults, number of classes estimated, one stage, seen through efficientnet-lite0",
        "accuracy": "share of images whose class bears the name of what they show",
        "goal": f"{GOAL:.0%} with at most {CLASSES} classes for each kind",
        "screen": f"{SCREEN} images",
        "command": f"newfound benchmark review --parts {name}",
        "versions": versions(),
    }


def table(results: Mapping[str, Any]) -> pd.DataFrame:
    """A line for every seed: what was found, and actions per 1000 images to the goal."""
    return pd.DataFrame([_line(row) for row in results["rows"]])


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    goal, n = row["goal"], row["images"]
    line = {
        "seed": row["seed"],
        "images": n,
        "kinds": row["kinds"],
        "classes found": row["found"],
        "accuracy found": f"{100 * row['start']:.1f}",
        "actions per 1000": "not reached" if goal is None else f"{1000 * goal['actions'] / n:.0f}",
        "looked at per 1000": "" if goal is None else f"{1000 * goal['looked'] / n:.0f}",
        "classes then": "" if goal is None else goal["classes"],
    }
    return line | {name: f"{1000 * row['alone'][name] / n:.0f}" for name in ALONE}


def tables(folder: Path) -> str:
    """Every pile that was reviewed, in Markdown."""
    parts = []
    for name in PILES:
        if (results := read(folder / f"review-{name}.json"))["rows"]:
            shown = table(results)
            parts.append(f"**{ABOUT[name]}** (`newfound benchmark review --parts {name}`)\n")
            parts.append(markdown(shown, shown.itertuples(index=False)) + "\n")
    return "\n".join(parts) or NOT_RUN


def verdict(folder: Path) -> str:
    """What a review takes beside single images, over seeds, in Markdown."""
    lines = []
    for name in PILES:
        rows = read(folder / f"review-{name}.json")["rows"]
        if rows:
            there = [row for row in rows if row["goal"] is not None]
            ours = pd.Series([1000 * row["goal"]["actions"] / row["images"] for row in there], dtype=float)
            alone = [pd.Series([1000 * row["alone"][way] / row["images"] for row in rows]) for way in ALONE]
            cells = [f"**{spread(ours, 0)}**" if there else "–", *(spread(values, 0) for values in alone)]
            lines.append([ABOUT[name].partition(":")[0], *cells, f"{len(there)} of {len(rows)}"])
    return markdown(["pile", "the simulated reviewer", *ALONE, "reached"], lines)


def curves(folder: Path) -> list[tuple[str, list[Curve]]]:
    """What the figure shows of every pile: each seed's review, and single images by the first seed."""
    panels = []
    for name in PILES:
        if rows := read(folder / f"review-{name}.json")["rows"]:
            shown = [
                Curve("simulated reviewer", _per_thousand(row["curve"]["actions"], row), row["curve"]["accuracy"])
                for row in rows
            ]
            for way, points in rows[0]["single"].items():
                actions, accuracy = zip(*points, strict=True)
                shown.append(Curve(way, _per_thousand(actions, rows[0]), accuracy))
            panels.append((ABOUT[name].partition(":")[0], shown))
    return panels


def _per_thousand(actions: Sequence[int], row: Mapping[str, Any]) -> list[float]:
    return [1000 * count / row["images"] for count in actions]


def milestones(folder: Path) -> str:
    """What it took on the way, mean over seeds, in Markdown."""
    lines = []
    for name in PILES:
        if rows := read(folder / f"review-{name}.json")["rows"]:
            for what, title in (("actions", "actions"), ("looked", "images looked at")):
                cells = [spread(pd.Series([_reach(row, share, what) for row in rows]), 0) for share in WAY]
                lines.append([f"{ABOUT[name].partition(':')[0]}, {title}", *cells])
    return markdown(["accuracy", *(f"{share:.0%}" for share in WAY)], lines)


def _reach(row: Mapping[str, Any], share: float, what: str) -> float:
    """What was spent per 1000 images, of one kind or other, when this accuracy was reached."""
    first = next(place for place, accuracy in enumerate(row["curve"]["accuracy"]) if accuracy >= share)
    return 1000 * row["curve"][what][first] / row["images"]


def spending(folder: Path) -> str:
    """Actions per 1000 images to the goal by what they were, mean over seeds, in Markdown."""
    columns: dict[str, dict[str, float]] = {}
    for name in PILES:
        goals = [(row["goal"], row["images"]) for row in read(folder / f"review-{name}.json")["rows"] if row["goal"]]
        total = Counter[str]()
        for goal, n in goals:
            total.update({action: 1000 * spent / n / len(goals) for action, spent in goal["spent"].items()})
        if goals:
            columns[ABOUT[name].partition(":")[0]] = dict(total)
    actions = [action for action in VERBS if any(action in column for column in columns.values())]
    lines = [[action, *(f"{column.get(action, 0):.1f}" for column in columns.values())] for action in actions]
    return markdown(["", *columns], lines)
