"""Choose the settings of `spacing:swapped` on pretend-novel classes; writes results/choice-rule.json.

    python scripts/choose_swapped.py CIFAR [ARM …]

Three sets that no table reports: categories 0–9 and 10–19 of the known doodles, with 30–99 as known ones, and CIFAR-10
in the order of classes 21, 200 images of each novel class. One stage one, three seeds of discovery. What is in the
results already is not run again. results/choice-swapped.json holds what the rule before was chosen by: prototypes
placed once, no finer set, and the stage one before decision 10.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from newfound import files
from newfound.benchmark.small import SmallSet, discover, learn_known, thin
from newfound.data.datasets import load_dataset, load_doodles, split_classes
from newfound.data.splits import split_by_class
from newfound.discovery.facts import versions
from newfound.discovery.scoring import score_discovery, table_rows
from newfound.discovery.settings import StageOne
from newfound.methods import METHODS
from newfound.methods.base import Own
from newfound.methods.spacing import make_recipe
from newfound.spacing.presets import Swap, swapped

SEEDS = (100, 101, 102)
RESULTS = Path(__file__).parents[1] / "results/choice-rule.json"

OURS = swapped()
ARMS = {
    "swapped": OURS,
    "placed once": replace(OURS, swap=Swap(restarts=())),
    "no finer set": replace(OURS, swap=Swap(finer=0)),
    "placed once, no finer set": replace(OURS, swap=Swap(restarts=(), finer=0)),
    "equal shares": replace(OURS, swap=Swap(balance="equal")),
    "without memory": replace(OURS, swap=Swap(memory=0.0)),
    "without anchors": replace(OURS, orientation="none"),
    "without anchors and memory": replace(OURS, orientation="none", swap=Swap(memory=0.0)),
    "anchors of a simplex": replace(OURS, orientation="aligned"),
    "not whitened": replace(OURS, whiten=None),
    "temperature 0.2": replace(OURS, swap=Swap(temperature=0.2)),
    "epsilon 0.1": replace(OURS, swap=Swap(epsilon=0.1)),
}
SCHEDULES = {
    "60 epochs": Own(60, 0.05, METHODS["spacing"].own.schedule),
    "rate 0.02": Own(30, 0.02, METHODS["spacing"].own.schedule),
}


def sets(root):
    known = load_doodles("known")
    for name, held in (("doodles 0-9", range(10)), ("doodles 10-19", range(10, 20))):
        split = split_by_class(known, range(30, 100), held)
        yield name, SmallSet(split.known, split.novel, split.truth, StageOne(size=28))
    classes = split_classes("cifar10", "5-5@21")
    split = split_by_class(load_dataset("cifar10", root), classes.known, classes.novel)
    yield "cifar10 5-5@21, 200 a class", SmallSet(split.known, *thin(split.novel, split.truth, [200] * 5), StageOne())


def trial(small, model, arm, seed):
    preset, own = ARMS.get(arm, OURS), SCHEDULES.get(arm, METHODS["spacing"].own)
    METHODS["tried"] = replace(make_recipe(preset), own=own)
    method = "kmeans" if arm == "start features" else "tried"
    found = discover(small, model, method, seed)
    return table_rows(arm, seed, 0.0, score_discovery(found, small.truth, small.classes, seed))


def kept():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"rows": []}


if __name__ == "__main__":
    asked = sys.argv[2:] or ["start features", *ARMS, *SCHEDULES]
    for seed in SEEDS:
        for name, small in sets(Path(sys.argv[1])):
            model = learn_known(small, SEEDS[0])
            for arm in asked:
                if any((r["set"], r["method"], r["seed"]) == (name, arm, seed) for r in kept()["rows"]):
                    continue
                rows = [{"set": name} | row for row in trial(small, model, arm, seed)]
                setting = {"command": "python scripts/choose_swapped.py CIFAR", "versions": versions()}
                files.write(
                    RESULTS, json.dumps({"setting": setting, "rows": [*kept()["rows"], *rows]}, indent=1) + "\n"
                )
                print(name, arm, seed, [(r["reading"], r["accuracy"], r["nmi"]) for r in rows[1:]], flush=True)
