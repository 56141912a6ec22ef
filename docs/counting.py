"""How well the number of classes is estimated, on six sets.

    apt install openclipart-png tuxpaint-stamps-default dataset-fashion-mnist
    python docs/counting.py CIFAR

Half of the classes are known, by half of their images; the others of these and the other classes are unlabelled. Three
choices of the known classes each. Of CIFAR-100 the classes that nothing was chosen on. The drawings are those of the
demonstration: 100 known kinds that a network learns, 10 others unlabelled, three seeds. Prints the table and writes
results/counting.json. The way of counting was chosen on the stamps, with other classes known, and on known kinds of the
drawings; the clip art had been counted before; the other sets are new to it. EfficientNet-lite0, which looks at all but
the drawings, was taught on ImageNet.
"""

import argparse
import gzip
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from clipart import ART, KINDS
from PIL import Image

from newfound import discover, files
from newfound.data.datasets import load_dataset, load_doodles
from newfound.discovery.facts import versions
from newfound.discovery.settings import Run, StageOne
from newfound.types import generator

STAMPS, FASHION = Path("/usr/share/tuxpaint/stamps"), Path("/usr/share/datasets/fashion-mnist")
STAMP = (
    *("symbols/alphabets", "animals/mammals", "food/fruit", "animals/birds", "symbols/money", "town/houses"),
    *("plants/flowers", "town/roadsigns", "symbols/math", "animals/insects", "seasonal/christmas", "food/vegetables"),
    *("seasonal/halloween", "household/tools", "symbols/music", "symbols/chess"),
)
CHOICES, MOST = 3, 50
"""Choices of known classes, and images of a class."""

Kinds = dict[str, list[Path]]


def folders(root: Path, kinds: tuple[str, ...]) -> Kinds:
    """Image files by their kind. Of equal ones, some in two kinds, the first is taken."""
    first: dict[bytes, tuple[str, Path]] = {}
    for kind in kinds:
        for path in sorted((root / kind).rglob("*.png")):
            first.setdefault(hashlib.sha256(path.read_bytes()).digest(), (kind, path))
    return {kind: [path for own, path in first.values() if own == kind][:MOST] for kind in kinds}


def written(name: str, pixels: np.ndarray, labels: np.ndarray, place: Path) -> Kinds:
    """Images in memory as files."""
    found: Kinds = {}
    for label in np.unique(labels):
        found[f"{label}"] = []
        for number, image in enumerate(pixels[labels == label][:MOST]):
            path = place / name / f"{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
            found[f"{label}"].append(path)
    return found


def fashion() -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST's test images and labels."""
    with gzip.open(FASHION / "t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(FASHION / "t10k-labels-idx1-ubyte.gz") as file:
        return pixels, np.frombuffer(file.read(), np.uint8, offset=8)


def photographs(root: Path, name: str, first: int) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR's training images of the classes from one on."""
    images = load_dataset(name, root)
    rows = images.listing.labels >= first
    return images.pixels[rows].permute(0, 2, 3, 1).numpy(), images.listing.labels[rows].numpy()


def counted(name: str, kinds: Kinds, choice: int, place: Path) -> dict[str, object]:
    """Estimate how many classes there are, half of them known."""
    random = generator(name, choice)
    order = torch.randperm(len(kinds), generator=random).tolist()
    rows: dict[str, list[tuple[str, str]]] = {"known": [], "unlabelled": []}
    for number, kind in enumerate([*kinds][i] for i in order):
        for path, half in zip(kinds[kind], torch.rand(len(kinds[kind]), generator=random).tolist(), strict=True):
            known = number < len(kinds) // 2 and half < 0.5
            rows["known" if known else "unlabelled"].append((str(path), kind))
    for part, listed in rows.items():
        pd.DataFrame(listed, columns=["path", "label"]).to_csv(place / f"{part}.csv", index=False)
    found = discover(
        known=place / "known.csv",
        unlabelled=place / "unlabelled.csv",
        run=Run(method="kmeans", seed=choice),
        stage=StageOne(backbone="efficientnet-lite0"),
    ).found
    assert found.count is not None
    return {"set": name, "choice": choice, "truth": len(kinds)} | found.count._asdict()


def drawn(seed: int) -> dict[str, object]:
    """The same of drawings, which a network of our own learns."""
    run = Run(method="kmeans", seed=seed)
    found = discover(known=load_doodles("known"), unlabelled=load_doodles("novel"), run=run).found
    assert found.count is not None
    return {"set": "drawings", "choice": seed, "truth": 110} | found.count._asdict()


def rows(root: Path, place: Path) -> Iterator[dict[str, object]]:
    """Every set, every choice."""
    sets = {
        "clip art": folders(ART, KINDS),
        "stamps": folders(STAMPS, STAMP),
        "Fashion-MNIST": written("fashion", *fashion(), place),
        "CIFAR-10": written("cifar10", *photographs(root, "cifar10", 0), place),
        "CIFAR-100, classes 48–99": written("cifar100", *photographs(root, "cifar100", 48), place),
    }
    for name, kinds in sets.items():
        for choice in range(CHOICES):
            yield counted(name, kinds, choice, place)
    for seed in range(CHOICES):
        yield drawn(seed)


def main() -> None:
    """Count everything, write the results, print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--output", type=Path, default=Path("results/counting.json"))
    asked = words.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as place:
        for row in rows(asked.cifar, Path(place)):
            found.append({key: value for key, value in row.items() if key != "curve"})
            print(found[-1], flush=True)
    setting = {
        "measure": "classes in all, known and new",
        "images": f"at most {MOST} of a class, half of the known classes' labelled; drawings: the demonstration's",
        "choices": CHOICES,
        "command": "python docs/counting.py CIFAR",
        "versions": versions(),
    }
    files.write(asked.output, json.dumps({"setting": setting, "rows": found}, indent=1, ensure_ascii=False) + "\n")
    print(table(pd.DataFrame(found)))


def table(found: pd.DataFrame) -> str:
    """What the results say, in Markdown."""
    lines = ["| set | truth | estimates | intervals | within 25 % | intervals hold it |", "|---|---|---|---|---|---|"]
    good = held = 0
    for name, own in found.groupby("set", sort=False):
        near = (own["classes"] / own["truth"]).sub(1).abs() <= 0.25
        hold = (own["least"] <= own["truth"]) & (own["truth"] <= own["most"])
        good, held = good + (near.mean() > 0.5), held + (hold.mean() > 0.5)
        spans = ", ".join(f"{a}–{b}" for a, b in zip(own["least"], own["most"], strict=True))
        lines.append(
            f"| {name} | {own['truth'].iloc[0]} | {', '.join(map(str, own['classes']))} | {spans} "
            f"| {near.sum()} of {len(own)} | {hold.sum()} of {len(own)} |"
        )
    sets = found["set"].nunique()
    off = math.exp(np.sqrt(np.mean(np.square(np.log(found["classes"] / found["truth"]))))) - 1
    lines += [
        "",
        f"In {good} of {sets} sets most estimates are within 25 % of the truth, in {held} most intervals hold it. "
        f"The typical error is {100 * off:.0f} % (root mean square of log ratios).",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
