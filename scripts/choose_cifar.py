"""Choose the rate and λ of the `cpu` budget on pretend-novel classes of CIFAR-100: known 0–59, pretend-novel 60–79.

    python scripts/choose_cifar.py CIFAR rate|weights|heads

All of them are known classes of the split 80-20, and neither the split nor the seed is a reported one. Every arm trains
the last stage on remembered maps, as the benchmark does. `heads` chooses nothing: it shows what the novel head is worth
by the rule of pairs and the rate. Writes results/choice-cifar.json.
"""

import copy
import json
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from newfound import files, methods
from newfound.benchmark.cached_maps import adapt_model, recall, remember
from newfound.data.datasets import load_dataset
from newfound.data.features import FeatureDataset
from newfound.data.splits import split_by_class
from newfound.discovery.facts import versions
from newfound.functional import pseudo
from newfound.functional.cluster import kmeans
from newfound.functional.metrics import scores
from newfound.methods.pairwise import Alike, Pairwise
from newfound.methods.stage_one import TRAINING
from newfound.networks.backbone import Tail
from newfound.networks.model import Model
from newfound.training.loop import Learner, fit, survey
from newfound.training.pretrain import new_learner, pretrain
from newfound.types import Problem, generator, seeded

SEED, EPOCHS, CLASSES = 100, 20, 20
RATES = (0.1, 0.03)
HOSTS = ("pairs", "pairs:teacher", "pairs+spacing:swapped", "pairs+spacing:aligned")
WEIGHTS = {
    "swapped": (3.0, 1.0, 0.3),
    "aligned": (1.0, 0.3, 0.1, 0.03),
    "dcn": (0.3, 0.1, 0.03),
    "paper": (1e-3, 1e-4, 1e-5),
}
ALIKE = {"rs": (5, 2), "pairs": (0.95, 0.8, 0.6)}  # features of ranking statistics, and the cosine; the published first
HEAD_RATES = (0.03, 0.1, 0.3)
RESULTS = Path(__file__).parents[1] / "results/choice-cifar.json"


def start(root: Path) -> tuple[Model, FeatureDataset, torch.Tensor]:
    """Stage one on the known classes, and the maps of the pretend-novel images; kept beside CIFAR's files."""
    split = split_by_class(load_dataset("cifar100", root), range(60), range(60, 80))
    kept = root / "choice"
    if not (kept / "maps.npy").is_file():
        budget = replace(TRAINING, epochs=12, views=("weak",))
        model = pretrain(new_learner(split.known, SEED), split.known, budget, SEED)
        model = adapt_model(model, split.novel.pixels, "weak", SEED)
        model.save_pretrained(kept)
        remember(model.backbone, split.novel.pixels, kept / "maps.npy", "weak", SEED)
    rows = torch.arange(len(split.novel))
    return (
        Model.from_pretrained(kept),
        FeatureDataset(recall(kept / "maps.npy"), torch.full_like(rows, -1), rows),
        split.truth,
    )


def arm(
    model: Model,
    data: FeatureDataset,
    truth: torch.Tensor,
    name: str,
    rate: float,
    weight: float | None = None,
    alike: float | None = None,
) -> dict:
    """One discovery; the weight replaces λ of its Spacing, `alike` what two images must share to be a pair."""
    began = time.perf_counter()
    model = copy.deepcopy(model)
    tail = replace(model, backbone=Tail(model.backbone))
    problem = Problem(model.backbone.dim, len(model.classes), CLASSES, labelled=False, rows=len(data))
    with seeded(SEED, "method"):
        method = methods.parse(name, weight=weight).build(problem, tail)
    for part in method.modules():
        if isinstance(part, Pairwise) and alike is not None:
            part.alike = rule(name, alike)
    training = replace(methods.parse(name).training, epochs=EPOCHS if name != "kmeans" else 0, rate=rate)
    learner = Learner(tail.backbone, method, training.trains)
    before = survey(learner.backbone, data).features
    fit(learner, data, training, SEED)
    features = survey(learner.backbone, data).features
    found = kmeans(F.normalize(features, dim=1), CLASSES, generator(SEED, "reading")).assignment
    raw = kmeans(features, CLASSES, generator(SEED, "reading")).assignment
    row = {"method": name, "rate": rate, "weight": weight, "seconds": round(time.perf_counter() - began)}
    row |= {"raw nmi": round(scores(truth, raw, CLASSES)["nmi"], 4)}
    row |= {key: round(scores(truth, found, CLASSES)[key], 4) for key in ("accuracy", "nmi")}
    if (logits := method.logits(features)) is not None:
        head = scores(truth, logits.argmax(1), CLASSES)
        row |= {f"head {key}": round(head[key], 4) for key in ("accuracy", "nmi")}
    if alike is not None:
        row |= {"alike": alike} | found_pairs(before, truth, rule(name, alike))
    print(row, flush=True)
    return row


def rule(name: str, alike: float) -> Alike:
    """When two images are a pair: so many strongest features are the same, or the cosine is so large."""
    if name == "rs":
        return partial(pseudo.ranking_statistics, k=int(alike))
    return partial(pseudo.cosine, threshold=alike)


def found_pairs(features: torch.Tensor, truth: torch.Tensor, alike: Alike) -> dict[str, float]:
    """How many of a class's pairs the rule finds in batches of 128 before training, and how many it finds are right."""
    found = right = same = 0
    for rows in torch.randperm(len(features), generator=generator(SEED, "pairs")).split(128)[:50]:
        other = ~torch.eye(len(rows), dtype=torch.bool)
        guess, truly = alike(features[rows]) & other, (truth[rows][:, None] == truth[rows]) & other
        found, right, same = found + guess.sum(), right + (guess & truly).sum(), same + truly.sum()
    return {"recall": round(float(right / same), 4), "precision": round(float(right / max(found, 1)), 4)}


def kept() -> dict[str, list[dict]]:
    """What is in the results; an arm that is there is not run again."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


if __name__ == "__main__":
    model, data, truth = start(Path(sys.argv[1]))
    arms = {
        "rate": [("kmeans", 0.0, None)] + [(name, rate, None) for rate in RATES for name in HOSTS],
        "weights": [
            (f"pairs+spacing:{preset}", rate, weight)
            for preset, many in WEIGHTS.items()
            for rate in RATES
            for weight in many
        ],
        "heads": [(name, rate, None, value) for name, many in ALIKE.items() for value in many for rate in HEAD_RATES],
    }
    rows = kept().get(sys.argv[2], [])
    for each in arms[sys.argv[2]]:
        if (*each, None)[:4] not in [(row["method"], row["rate"], row["weight"], row.get("alike")) for row in rows]:
            rows.append(arm(model, data, truth, *each))
            setting = {
                "dataset": "CIFAR-100, 60 known classes, 20 of the others held out as novel, their number given",
                "seed": SEED,
                "epochs": EPOCHS,
                "command": f"python scripts/choose_cifar.py CIFAR {'|'.join(arms)}",
                "versions": versions(),
            }
            files.write(RESULTS, json.dumps(kept() | {"setting": setting, sys.argv[2]: rows}, indent=1) + "\n")
