"""Choose how long stage one learns, and whether labels are smoothed, on pretend-novel classes; writes
results/choice-stage.json.

    python scripts/choose_stage.py CIFAR

The sets are those of choose_swapped.py. What is in the results already is not run again.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from choose_swapped import sets

from newfound import files
from newfound.benchmark.small import discover
from newfound.discovery.facts import versions
from newfound.discovery.scoring import score_discovery
from newfound.methods.stage_one import TRAINING
from newfound.training.pretrain import new_learner, pretrain

SEED = 100
RESULTS = Path(__file__).parents[1] / "results/choice-stage.json"
ARMS = {
    "10 epochs, smoothed": (10, 0.1),
    "10 epochs": (10, 0.0),
    "20 epochs, smoothed": (20, 0.1),
    "20 epochs": (20, 0.0),
}


def trial(small, epochs, smoothing):
    began = time.perf_counter()
    learner = new_learner(small.known, SEED, smoothing=smoothing)
    model = pretrain(learner, small.known, replace(TRAINING, epochs=epochs), SEED)
    row = {"seconds": round(time.perf_counter() - began)}
    for method in ("kmeans", "spacing", "uno"):
        found = discover(small, model, method, SEED)
        scores = score_discovery(found, small.truth, small.classes, SEED)["unit k-means"]
        row[method] = [round(scores["accuracy"], 4), round(scores["nmi"], 4)]
    return row


def kept():
    return json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.is_file() else []


if __name__ == "__main__":
    for name, small in sets(Path(sys.argv[1])):
        for arm, setting in ARMS.items():
            if any((row["set"], row["arm"]) == (name, arm) for row in kept()):
                continue
            row = {"set": name, "arm": arm} | trial(small, *setting)
            setting = {"command": "python scripts/choose_stage.py CIFAR", "seed": SEED, "versions": versions()}
            files.write(RESULTS, json.dumps({"setting": setting, "rows": [*kept(), row]}, indent=1) + "\n")
            print(row, flush=True)
