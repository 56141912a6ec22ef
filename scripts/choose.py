"""Choose stage one and Spacing's weights on pretend-novel classes; writes results/choice.json.

    python scripts/choose.py stage      stage one's rate, by k-means on the classes held out
    python scripts/choose.py whiten     how far Spacing's whitening is shrunk, by k-means on whitened start features
    python scripts/choose.py weights    λ of every preset

Ten of the 100 known categories of the embedded doodles are held out and treated as novel; for whitening the ten spare
categories too. The ten novel categories of the demonstration, and its seeds (0 to 4), are never looked at. Two
processes of one thread each.
"""

import itertools
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from newfound.benchmark.small import fit_known
from newfound.data.datasets import load_doodles
from newfound.data.splits import split_by_class
from newfound.demo import STAGE
from newfound.discovery.facts import versions
from newfound.discovery.find import find
from newfound.discovery.settings import Run
from newfound.encoders.reading import read
from newfound.functional import metrics
from newfound.functional.geometry import whitening
from newfound.methods import METHODS, parse

RESULTS = Path("results/choice.json")
HELD = (range(10), range(10, 20))
SEED = 100
RATES = (0.1, 0.2, 0.4)
SHRINKS = (None, 0.03, 0.1, 0.3, 1.0, 3.0)
WEIGHTS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
RULES = ("aligned", "paper", "author", "dcn")


def pretend(held):
    split = split_by_class(load_doodles("known"), [c for c in range(100) if c not in held], list(held))
    return split.known, split.novel, split.truth


def keep(part, rows):
    """Replace one part of the results; a later call goes on where an earlier one stopped."""
    whole = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    whole["setting"] = {
        "dataset": "Quick, Draw! doodles, 28 × 28, embedded; known categories alone",
        "split": "categories 0 to 9, then 10 to 19, of the known ones held out as novel; the other 90 known",
        "classes": "10, given",
        "seed": SEED,
        "reading": "unit k-means, mean over 5 seeds of k-means",
        "stage one": vars(STAGE),
        "discovery": "the product's defaults for each method",
        "command": "python scripts/choose.py stage, then whiten, then weights",
        "versions": versions(),
    }
    whole[part] = rows
    RESULTS.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    print(rows[-1], flush=True)


def scores(features, truth):
    """Accuracy and NMI by unit k-means, the mean over five seeds of it: one k-means alone varies by a point or two."""
    classes, unit = len(truth.unique()), F.normalize(features, dim=1)
    rows = [metrics.scores(truth, read(unit, classes, None, seed).assignment, classes) for seed in range(5)]
    return {name: round(sum(row[name] for row in rows) / 5, 4) for name in ("accuracy", "nmi")}


def learn(held, rate=STAGE.pretrain_rate):
    torch.set_num_threads(1)
    return fit_known(pretend(held)[0], replace(STAGE, pretrain_rate=rate), SEED)


def trial(model, held, method):
    """Scores of a method on the classes held out; `pairs+aligned@3` is the preset aligned with λ = 3."""
    torch.set_num_threads(1)
    _, novel, truth = pretend(held)
    if "@" in method:
        name, weight = method.removeprefix("pairs+").split("@")
        METHODS[f"{name}@{weight}"] = parse(f"spacing:{name}", weight=float(weight))
    found = find(model, novel, 10, run=Run(method=method, mixed=False, seed=SEED))
    return {"method": method, "held out": [held.start, held.stop]} | scores(found.features, truth)


def choose_stage(pool):
    cases = list(itertools.product(RATES, HELD))
    models = pool.map(learn, [held for _, held in cases], [rate for rate, _ in cases])
    rows = []
    for (rate, held), model in zip(cases, models, strict=True):
        rows.append({"rate": rate} | trial(model, held, "kmeans"))
        keep("stage", rows)


def choose_whiten(pool):
    spare = load_doodles("spare")
    rows = []
    for held, model in zip(HELD, pool.map(learn, HELD), strict=True):
        _, novel, truth = pretend(held)
        for shrink, (name, pile, answers) in itertools.product(
            SHRINKS, (("held out", novel, truth), ("spare", spare.unlabel(), spare.listing.labels))
        ):
            features = find(model, pile, 10, run=Run(method="kmeans")).features
            seen = features if shrink is None else features @ whitening(model.known.within_covariance, shrink)
            rows.append({"shrink": shrink, "model without": held.start, "classes": name} | scores(seen, answers))
            keep("whiten", rows)


def choose_weights(pool):
    presets = [f"pairs+{name}@{weight}" for weight, name in itertools.product(WEIGHTS, RULES)]
    models = dict(zip(HELD, pool.map(learn, HELD), strict=True))
    rows = json.loads(RESULTS.read_text()).get("weights", []) if RESULTS.exists() else []
    done = [(row["method"], row["held out"][0]) for row in rows]
    cases = [(method, held) for method in ("kmeans", "pairs", *presets) for held in HELD]
    left = [(models[held], held, method) for method, held in cases if (method, held.start) not in done]
    for row in pool.map(trial, *zip(*left, strict=True)):
        rows.append(row)
        keep("weights", rows)


if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as workers:
        {"stage": choose_stage, "whiten": choose_whiten, "weights": choose_weights}[sys.argv[1]](workers)
