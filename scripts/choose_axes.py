"""Choose how a pretrained network's features are compared, on images that no result is reported on.

    python scripts/choose_axes.py CIFAR

Debian's stamps of Tux Paint (16 kinds, at most 50 images each) and CIFAR-100's classes 0–47 (50 images each, 16 classes
at a time), half of the classes known, half of their images labelled, four class splits each. Every arm is read by
semi-supervised k-means with the number of classes given; accuracy on all unlabelled images by one assignment. Writes
results/choice-axes.json.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from newfound import files
from newfound.data.datasets import load_dataset
from newfound.data.decoding import decode
from newfound.discovery.facts import versions
from newfound.encoders.extraction import key, views
from newfound.functional.axes import SHRINK, axes, moments, power_normalised
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.geometry import covariance, means
from newfound.functional.metrics import gcd_accuracy
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator

STAMPS = Path("/usr/share/tuxpaint/stamps")
KINDS = (
    *("symbols/alphabets", "animals/mammals", "food/fruit", "animals/birds", "symbols/money", "town/houses"),
    *("plants/flowers", "town/roadsigns", "symbols/math", "animals/insects", "seasonal/christmas", "food/vegetables"),
    *("seasonal/halloween", "household/tools", "symbols/music", "symbols/chess"),
)
MOST, SPLITS, CLASSES = 50, 4, 16
RESULTS = Path(__file__).parents[1] / "results/choice-axes.json"


class Arm(NamedTuple):
    """One way to compare features."""

    views: bool = True  # the mean over views, or the plain image alone
    temper: bool = True
    white: float | None = SHRINK
    axes: int | None = 48


ARMS = {
    "unit features of the plain image": Arm(views=False, temper=False, white=None, axes=None),
    "… of the mean over views": Arm(temper=False, white=None, axes=None),
    "48 axes": Arm(temper=False, white=None),
    "… power-normalised": Arm(white=None),
    "… whitened, shrunk by 1": Arm(white=1.0),
    "… whitened, shrunk by 3": Arm(),
    "… whitened, shrunk by 10": Arm(white=10.0),
    "24 axes": Arm(axes=24),
    "32 axes": Arm(axes=32),
    "64 axes": Arm(axes=64),
    "128 axes": Arm(axes=128),
    "48 axes of the plain image": Arm(views=False),
}


def stamps() -> tuple[list[np.ndarray], list[int]]:
    folders = [sorted((STAMPS / kind).rglob("*.png"))[:MOST] for kind in KINDS]
    found = [(path, label) for label, paths in enumerate(folders) for path in paths]
    return [decode(path.read_bytes(), 160) for path, _ in found], [label for _, label in found]


def photographs(root: Path) -> tuple[list[np.ndarray], list[int]]:
    images = load_dataset("cifar100", root)
    rows = torch.cat([(images.listing.labels == label).nonzero()[:MOST, 0] for label in range(48)])
    large = F.interpolate(images.pixels[rows].float(), (160, 160), mode="bicubic", antialias=True)
    return [*large.clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()], images.listing.labels[rows].tolist()


def seen(pixels: list[np.ndarray]) -> Tensor:
    """Calm records and those of the plain images."""
    eye, records = load_pretrained(), []
    for first in range(0, len(pixels), 32):
        chunk = enumerate(pixels[first : first + 32])
        some = {key(bytes([place]) + image.tobytes(), None): image for place, image in chunk}
        record = views(eye, some)
        plain = record.shape[1] * record[:, 0] - record[:, 1:].sum(1)  # the calm record is the mean over all
        records.append(torch.stack([record[:, 0], plain], 1))
    return torch.cat(records)


def read(arm: Arm, records: Tensor, truth: Tensor, split: int) -> float:
    random = generator("split", split)
    picked = torch.randperm(int(truth.max()) + 1, generator=random)[:CLASSES]
    place = torch.full((int(truth.max()) + 1,), -1).scatter_(0, picked, torch.arange(len(picked)))[truth]
    x, y, known = records[place >= 0, 0 if arm.views else 1], place[place >= 0], CLASSES // 2
    labels = torch.where((y < known) & (torch.rand(len(y), generator=random) < 0.5), y, -1)
    x = power_normalised(x) if arm.temper else F.normalize(x, dim=1)
    if arm.axes is not None:
        taught = labels >= 0
        centres, _ = means(x[taught], labels[taught], known)
        spread = None if arm.white is None else covariance(x[taught], labels[taught], centres)
        found = axes(moments(x), arm.axes, spread, arm.white or 0.0)
        x = F.normalize((x - found.centre).float() @ found.matrix.float(), dim=1)
    assignment = semi_supervised_kmeans(x, labels, CLASSES, generator("reading", split)).assignment
    return gcd_accuracy(y[labels < 0], assignment[labels < 0], known).all


def main() -> None:
    sets = {"stamps": stamps(), "cifar100": photographs(Path(sys.argv[1]))}
    records = {name: (seen(pixels), torch.tensor(labels)) for name, (pixels, labels) in sets.items()}
    rows = []
    for title, arm in ARMS.items():
        row: dict[str, object] = {"arm": title}
        for name, (features, truth) in records.items():
            found = [read(arm, features, truth, split) for split in range(SPLITS)]
            row[name] = [round(value, 4) for value in found]
        rows.append(row)
        print(title, *(f"{name} {np.mean(row[name]):.3f}" for name in records), flush=True)
    measure = "accuracy on all unlabelled images, a class split each"
    about = {"command": "python scripts/choose_axes.py CIFAR", "measure": measure, "versions": versions()}
    files.write(RESULTS, json.dumps(about | {"rows": rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
