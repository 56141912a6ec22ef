"""A robot that learns by itself: 60 kinds of drawings from the factory, then four piles with ten unknown kinds in each.

    make robot

One model folder is all that travels. In each round the robot discovers in its pile, in which drawings of kinds that it
knows lie too, somebody names what it found, or nobody does, and it learns; the drawings of earlier rounds are gone. The
number of new kinds is estimated. Other drawings, of all kinds so far, say how well it tells them. Prints the table and
writes results/robot.json and docs/figures/robot.svg.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from newfound import Classifier, Discovery, Images, Run, StageOne, files, pretrain
from newfound.data.datasets import load_doodles
from newfound.data.splits import select_classes
from newfound.discovery.facts import versions

ROOT = Path(__file__).parents[1]
KNOWN, ROUNDS, MORE = 60, 4, 10
"""Kinds that the factory labelled; piles; kinds that are new in each."""

TAUGHT, FOUND, OTHERS, TESTED = 60, 60, 5, 20
"""Drawings of a kind: labelled ones, of a new kind in its pile, of each known kind in a pile, for the test."""

STAGE, RUN = StageOne(size=28), Run(method="kmeans")
"""Our own network learns in the factory; on the robot nothing is trained: what does not move forgets nothing."""

ARMS = {True: "somebody names what was found", False: "nobody looks at it"}


class Drawings:
    """People's drawings, of 100 kinds in an order of the seed's; of each kind every drawing is used once."""

    def __init__(self, seed: int):
        images = load_doodles("known")
        order = np.random.default_rng(seed).permutation(len(images.listing.classes)).tolist()
        self.images, self.used = select_classes(images, order), Counter[int]()
        self.names = self.images.listing.classes

    def take(self, kinds: Sequence[int], each: int) -> list[int]:
        """Rows of so many more drawings of some kinds."""
        rows = [row for kind in kinds for row in self._rows(kind)[self.used[kind] : self.used[kind] + each]]
        self.used.update(dict.fromkeys(kinds, each))
        return rows

    def _rows(self, kind: int) -> list[int]:
        return (self.images.listing.labels == kind).nonzero()[:, 0].tolist()

    def show(self, rows: Sequence[int]) -> Images:
        """Some drawings; the robot is not told what they are."""
        return self.images.pick(torch.tensor(rows)).unlabel()


def kind_of(name: str) -> str:
    """What a drawing shows."""
    return name.split("/")[0]


def look_at(run: Discovery, number: int) -> str | None:
    """What somebody who looks at a class would call it: the kind that most of its images show."""
    shown = Counter(kind_of(run.found.listing.names[row]) for row in run.classes.rows(number).tolist())
    return shown.most_common(1)[0][0] if shown else None


def review(run: Discovery, seen: dict[int, str | None]) -> None:
    """Every new class is named by what it shows; one of a kind that has a class joins that."""
    for number, kind in seen.items():
        if kind is not None and kind in run.classes.names.values():
            run.merge([run.classes.number(kind), number])
        elif kind is not None:
            run.rename(number, kind)


def score(classifier: Classifier, test: Images, first: Sequence[str], called: dict[str, str]) -> dict[str, float]:
    """Accuracy on drawings of the first kinds, of those met since, and of all, if none may be unsure; and of how many
    it is sure, and right then. `called` says of classes that nobody named what they are.
    """
    table = classifier.predict(test)
    truth = table["path"].map(kind_of)
    right, old, sure = table["guess"].replace(called) == truth, truth.isin(first), table["class"] != "unsure"
    new = float(right[~old].mean()) if (~old).any() else None
    scores = {"old": float(right[old].mean()), "new": new, "all": float(right.mean())}
    return scores | {"sure": float(sure.mean()), "right if sure": float(right[sure].mean())}


def measure(folder: Path) -> int:
    """Bytes of a model folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


def make(drawings: Drawings, folder: Path, seed: int) -> None:
    """The factory's model."""
    labelled = drawings.images.pick(torch.tensor(drawings.take(range(KNOWN), TAUGHT)))
    labelled = labelled.relabel(labelled.listing.labels, drawings.names[:KNOWN])
    pretrain(labelled, output=folder, stage=STAGE, seed=seed)


def live(drawings: Drawings, folder: Path, seed: int, *, reviewed: bool) -> list[dict[str, Any]]:
    """One robot's life, which begins with the factory's model: a row then, and after each round."""
    classifier, rows, called = Classifier.load(folder), [], dict[str, str]()
    tests = drawings.take(range(KNOWN), TESTED)
    for turn in range(ROUNDS + 1):
        seen, row = KNOWN + MORE * turn, {"seed": seed, "reviewed": reviewed, "round": turn}
        if turn:
            new = range(seen - MORE, seen)
            pile = drawings.show(drawings.take(range(seen - MORE), OTHERS) + drawings.take(new, FOUND))
            run = classifier.discover(pile, run=RUN)
            kinds = {n: look_at(run, n) for n in run.classes.numbers if run.classes.kind(n) == "new"}
            row["found"] = len(kinds)
            if reviewed:
                review(run, kinds)
            classifier = run.learn(folder, overwrite=True)
            if not reviewed:
                called |= {name: kinds[n] for n, name in run.classes.names.items() if kinds.get(n)}
            tests += drawings.take(new, TESTED)
        row |= {"kinds": seen, "classes": len(classifier.classes), "bytes": measure(folder)}
        rows.append(row | score(classifier, drawings.show(tests), drawings.names[:KNOWN], called))
        print(rows[-1], flush=True)
    return rows


def table(rows: pd.DataFrame) -> str:
    """A line a round, as the page has it."""
    lines = ["| | round | kinds so far | classes in the model | old | new | all | sure | right if sure | kB |"]
    lines.append("|---" * 10 + "|")
    for (arm, turn), some in rows.groupby(["reviewed", "round"], sort=False):
        mean = some.mean(numeric_only=True)
        cells = ["" if pd.isna(mean[name]) else f"{100 * mean[name]:.1f}" for name in SCORES]
        first = ARMS[bool(arm)] if turn == 0 else ""
        counts = [f"{turn}", f"{mean['kinds']:.0f}", f"{mean['classes']:.0f}"]
        lines.append(f"| {' | '.join([first, *counts, *cells, str(round(mean['bytes'] / 1000))])} |")
    return "\n".join(lines)


SCORES = ("old", "new", "all", "sure", "right if sure")


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Accuracy over rounds."""
    mpl.rcParams["svg.hashsalt"] = "robot"
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    for axes, (reviewed, title) in zip(figure.subplots(1, 2, sharey=True), ARMS.items(), strict=True):
        some = rows[rows["reviewed"] == reviewed].groupby("round").mean(numeric_only=True)
        for name, style in {"old": "o-", "new": "s-", "all": "k^--"}.items():
            axes.plot(some.index, 100 * some[name], style, label=name)
        axes.set(title=title, xlabel="round", ylim=(0, 100), xticks=some.index)
    figure.axes[0].set_ylabel("accuracy, %")
    figure.axes[0].legend(loc="lower left")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Live with and without somebody who names things, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    seeds, rows, began = parser.parse_args().seeds, list[dict[str, Any]](), time.process_time()
    with tempfile.TemporaryDirectory() as place:
        for seed in seeds:
            made = Path(place) / f"factory {seed}"
            make(Drawings(seed), made, seed)
            for reviewed in ARMS:
                drawings, folder = Drawings(seed), Path(place) / f"{reviewed} {seed}"
                drawings.take(range(KNOWN), TAUGHT)  # these are gone
                shutil.copytree(made, folder)
                rows += live(drawings, folder, seed, reviewed=reviewed)
    setting = {
        "dataset": "Quick, Draw! doodles, 28 × 28, embedded: its 100 known kinds in an order of the seed's",
        "drawings of a kind": f"{TAUGHT} labelled, or in the pile where it is new; {OTHERS} in later piles; "
        f"{TESTED} tests",
        "classes": "estimated",
        "seeds": seeds,
        "seconds of one core, a seed": round((time.process_time() - began) / len(seeds)),
        "command": "make robot",
        "versions": versions(),
    }
    found = json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False)
    files.write(ROOT / "results/robot.json", found + "\n")
    draw(pd.DataFrame(rows), ROOT / "docs/figures/robot.svg")
    print(table(pd.DataFrame(rows)), setting["seconds of one core, a seed"], sep="\n")


if __name__ == "__main__":
    main()
