"""Choose the rate and λ of the `cpu` budget on pretend-novel classes of CIFAR-100: known 0–59, pretend-novel 60–79.

    python scripts/choose_cifar.py CIFAR rate|aligned|others

All of them are known classes of the split 80-20, and neither the split nor the seed is a reported one. Every arm trains
the last stage on remembered maps, as the benchmark does. Writes results/choice-cifar.json.
"""

import copy
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from newfound import files, methods
from newfound.data.cifar import cifar
from newfound.data.maps import Maps
from newfound.data.splits import by_class
from newfound.functional.cluster import kmeans
from newfound.functional.metrics import scores
from newfound.methods.spacing import Spacing
from newfound.methods.stage_one import TRAINING
from newfound.networks.backbone import Tail
from newfound.networks.model import Model
from newfound.training.loop import Learner, fit, survey
from newfound.training.pretrain import beginner, pretrain
from newfound.training.trunk import recall, remember, settle
from newfound.types import Problem, generator, seeded

SEED, EPOCHS, CLASSES = 100, 20, 20
RATES = (0.1, 0.03)
HOSTS = ("pairs", "pairs+spacing")
WEIGHTS = (0.1, 0.03)
CHOSEN = 0.03
OTHERS = {"aligned": (0.3,), "dcn": (0.3, 0.1, 0.03, 0.01), "paper": (1e-3, 1e-4, 1e-5)}
RESULTS = Path(__file__).parents[1] / "results/choice-cifar.json"


def start(root: Path) -> tuple[Model, Maps, torch.Tensor]:
    """Stage one on the known classes, and the maps of the pretend-novel images; kept beside CIFAR's files."""
    split = by_class(cifar(root, "cifar100"), range(60), range(60, 80))
    kept = root / "choice"
    if not (kept / "maps.npy").is_file():
        budget = replace(TRAINING, epochs=12, views=("weak",))
        model = pretrain(beginner(split.known, SEED), split.known, budget, SEED)
        settle(model.backbone, split.novel.pixels, "weak", SEED)
        model.save_pretrained(kept)
        remember(model.backbone, split.novel.pixels, kept / "maps.npy", "weak", SEED)
    rows = torch.arange(len(split.novel))
    return Model.from_pretrained(kept), Maps(recall(kept / "maps.npy"), torch.full_like(rows, -1), rows), split.truth


def arm(model: Model, data: Maps, truth: torch.Tensor, name: str, rate: float, weight: float | None = None) -> dict:
    """One discovery; the weight replaces λ of its Spacing."""
    began = time.perf_counter()
    model = copy.deepcopy(model)
    tail = replace(model, backbone=Tail(model.backbone))
    problem = Problem(model.backbone.dim, len(model.classes), CLASSES, labelled=False, rows=len(data))
    with seeded(SEED, "method"):
        method = methods.build(name, problem, tail)
    for part in method.modules():
        if isinstance(part, Spacing) and weight is not None:
            part.loss.preset = replace(part.loss.preset, weight=weight)
    training = replace(methods.parse(name)[0].training, epochs=EPOCHS if name != "kmeans" else 0, rate=rate)
    learner = Learner(tail.backbone, method, training.trains)
    fit(learner, data, training, SEED)
    features = survey(learner, data).features
    found = kmeans(F.normalize(features, dim=1), CLASSES, generator(SEED, "reading")).assignment
    raw = kmeans(features, CLASSES, generator(SEED, "reading")).assignment
    row = {"method": name, "rate": rate, "weight": weight, "seconds": round(time.perf_counter() - began)}
    row |= {"raw nmi": round(scores(truth, raw, CLASSES)["nmi"], 4)}
    row |= {key: round(scores(truth, found, CLASSES)[key], 4) for key in ("accuracy", "nmi")}
    print(row, flush=True)
    return row


def kept() -> dict[str, list[dict]]:
    """What is in the results; an arm that is there is not run again."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


if __name__ == "__main__":
    model, data, truth = start(Path(sys.argv[1]))
    arms = {
        "rate": [("kmeans", 0.0, None)] + [(name, rate, None) for rate in RATES for name in HOSTS],
        "aligned": [("pairs+spacing:aligned", rate, weight) for weight in WEIGHTS for rate in RATES],
        "others": [(f"pairs+spacing:{p}", CHOSEN, w) for p, many in OTHERS.items() for w in many],
    }
    rows = kept().get(sys.argv[2], [])
    for each in arms[sys.argv[2]]:
        if each not in [(row["method"], row["rate"], row["weight"]) for row in rows]:
            rows.append(arm(model, data, truth, *each))
            files.write(RESULTS, json.dumps(kept() | {sys.argv[2]: rows}, indent=1) + "\n")
