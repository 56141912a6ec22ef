"""What a rehearsal chooses on CIFAR, what it lets expect, and what then comes out.

    python scripts/measure_rehearsal.py CIFAR

CIFAR-10 with 5 novel classes (200 images a class) and CIFAR-100 with 20 (60 a class), in two stages: `pretrain` sees
known classes alone, `discover` the model and images of novel ones (`--no-mixed`, their number given), at 128 pixels,
with three backbones. Class orders 11, 12 and 13, on which nothing was chosen. Beside it k-means on unit features.
The networks were taught on ImageNet, whose classes overlap CIFAR's. Writes results/rehearsal.json.
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
from newfound.networks.pretrained import trunk
from newfound.types import generator

SETS = {"cifar10": ("5-5", 200), "cifar100": ("80-20", 60)}
ORDERS, SIZE = (11, 12, 13), 128
BACKBONES = ("efficientnet-lite0", "efficientnet-lite2", "efficientnet-lite0+efficientnet-lite2")


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


def measure(known: Path, novel: Path, classes: int, backbone: str, seed: int) -> dict[str, object]:
    stage = StageOne(backbone=backbone, size=SIZE)
    model = pretrain(known, stage=stage, seed=seed, device="cpu")
    run = Run(mixed=False, seed=seed, device="cpu")
    found = discover(model=model, unlabelled=novel, classes=classes, run=run, truth=True)
    seen = extract_features(list_images(novel, labelled=True), trunk(backbone, size=SIZE), device="cpu")
    plain = kmeans(F.normalize(seen.features(), dim=1), classes, generator("plain", seed)).assignment
    assert found.scores is not None
    return {
        "accuracy": round(found.scores["accuracy"], 4),
        "unit k-means": round(accuracy(seen.listing.labels, plain), 4),
        "expected": found.facts.get("expected accuracy", ""),
        "method": found.facts["method"],
        "read by": found.facts["read by"],
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--output", type=Path, default=Path("results/rehearsal.json"))
    asked, rows = words.parse_args(), []
    with tempfile.TemporaryDirectory() as place:
        for name, (split, each) in SETS.items():
            folders = written(asked.cifar, name, each, Path(place))
            for order in ORDERS:
                known, novel = split_classes(name, f"{split}@{order}")
                sides = [
                    linked(folders, side, Path(place) / f"{name}-{order}-{part}")
                    for part, side in (("known", known), ("novel", novel))
                ]
                for backbone in BACKBONES:
                    row = {"set": name, "split": f"{split}@{order}", "backbone": backbone}
                    rows.append(row | measure(*sides, len(novel), backbone, order))
                    print(rows[-1], flush=True)
    setting = {"command": "python scripts/measure_rehearsal.py CIFAR", "size": SIZE, "versions": versions()}
    files.write(asked.output, json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    table = pd.DataFrame(rows).groupby(["set", "backbone"], sort=False)[["unit k-means", "accuracy"]].mean()
    print((100 * table).round(1).to_string())


if __name__ == "__main__":
    main()
