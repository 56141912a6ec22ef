"""What a rehearsal chooses on CIFAR, what it lets expect, and what then comes out.

    python scripts/measure_rehearsal.py CIFAR [--sets cifar10 …]

CIFAR-10 with 5 novel classes (1000 images a class) and CIFAR-100 with 20 (100 a class), in two stages: `pretrain` sees
known classes alone, `discover` the model and images of novel ones (`--no-mixed`, their number given), with
EfficientNet-lite0 and -lite2 side by side at 192 pixels, which a rehearsal prefers. Class orders 11, 12 and 13, on
which nothing was chosen. Beside it k-means on unit features. The networks were taught on ImageNet, whose classes
overlap CIFAR's. Writes results/rehearsal.json, where rows of sets that are not measured anew stay.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch.nn.functional as F
from PIL import Image

from newfound import discover, files, pretrain
from newfound.data.datasets import load_dataset, split_classes
from newfound.data.listing import list_images
from newfound.discovery.facts import versions
from newfound.discovery.settings import Run, StageOne
from newfound.encoders.extraction import extract_features
from newfound.functional.cluster import kmeans
from newfound.functional.metrics import accuracy
from newfound.functional.rehearsal import describe
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator

SETS = {"cifar10": ("5-5", 1000), "cifar100": ("80-20", 100)}
ORDERS, BACKBONE = (11, 12, 13), "efficientnet-lite0+efficientnet-lite2"


def written(root: Path, name: str, each: int, place: Path) -> dict[int, Path]:
    """The first images of every class as files, a folder each."""
    images = load_dataset(name, root)
    labels, folders = images.listing.labels.numpy(), {}
    for label in np.unique(labels).tolist():
        folders[label] = place / name / f"{label:03}"
        folders[label].mkdir(parents=True)
        for number, row in enumerate(np.flatnonzero(labels == label)[:each]):
            Image.fromarray(images.pixels[row].permute(1, 2, 0).numpy()).save(folders[label] / f"{number:04}.png")
    return folders


def linked(folders: dict[int, Path], classes: tuple[int, ...], place: Path) -> Path:
    """A folder of some of the classes."""
    place.mkdir(parents=True)
    for label in classes:
        (place / folders[label].name).symlink_to(folders[label])
    return place


def measure(known: Path, novel: Path, classes: int, seed: int) -> dict[str, object]:
    model = pretrain(known, stage=StageOne(backbone=BACKBONE), seed=seed, device="cpu")
    run = Run(mixed=False, seed=seed, device="cpu")
    found = discover(model=model, unlabelled=novel, classes=classes, run=run, truth=True)
    seen = extract_features(list_images(novel, labelled=True), load_pretrained(BACKBONE), device="cpu")
    plain = kmeans(F.normalize(seen.features(), dim=1), classes, generator("plain", seed)).assignment
    assert found.scores is not None
    tried, way = found.found.model.rehearsal, found.found.way
    told = "" if tried is None or way is None else "; ".join(describe(tried, way, mixed=False))
    return {
        "accuracy": round(found.scores["accuracy"], 4),
        "unit k-means": round(accuracy(seen.listing.labels, plain), 4),
        "expected": str(found.found.expected or ""),
        "method": found.facts["method"],
        "read by": found.facts["read by"],
        "rehearsal": told,
    }


def write(rows: list[dict[str, object]], place: Path, sets: list[str]) -> None:
    """These rows, and those of other sets that are there already."""
    there = json.loads(place.read_text(encoding="utf-8"))["rows"] if place.is_file() else []
    rows = sorted([*(row for row in there if row["set"] not in sets), *rows], key=lambda row: str(row["set"]))
    command = "python scripts/measure_rehearsal.py CIFAR"
    setting = {"command": command, "backbone": BACKBONE, "size": load_pretrained(BACKBONE).size, "versions": versions()}
    files.write(place, json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    words.add_argument("--output", type=Path, default=Path("results/rehearsal.json"))
    asked, rows = words.parse_args(), []
    with tempfile.TemporaryDirectory() as place:
        for name in asked.sets:
            split, each = SETS[name]
            folders = written(asked.cifar, name, each, Path(place))
            for order in ORDERS:
                known, novel = split_classes(name, f"{split}@{order}")
                sides = [
                    linked(folders, side, Path(place) / f"{name}-{order}-{part}")
                    for part, side in (("known", known), ("novel", novel))
                ]
                about = {"set": name, "split": f"{split}@{order}", "images a class": each}
                rows.append(about | measure(*sides, len(novel), order))
                print(rows[-1], flush=True)
    write(rows, asked.output, asked.sets)
    table = pd.DataFrame(rows).groupby("set", sort=False)[["unit k-means", "accuracy"]].mean()
    print((100 * table).round(1).to_string())


if __name__ == "__main__":
    main()
