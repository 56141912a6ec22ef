"""CIFAR in small: the embedded drawings, in colour and 32 × 32, in the files that CIFAR-10 has."""

import functools
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.stages import Task
from newfound.data.cifar import CIFAR10
from newfound.data.datasets import load_doodles
from newfound.data.listing import Listing
from newfound.data.pixels import Images

CLASSES = 10
TRAIN, TEST = 30, 10
"""Drawings of each class."""

SMOKE = BUDGETS["smoke"]

TINY = replace(SMOKE, width=2, supervised=replace(SMOKE.supervised, epochs=1), last=1)
"""The least there is to run."""


@functools.cache
def drawings() -> tuple[Tensor, Tensor]:
    """All drawings of ten classes, each class in a colour of its own, and their labels; classes take turns."""
    images = load_doodles("spare")
    grey, labels = F.pad(images.pixels, (2, 2, 2, 2)).float(), images.listing.labels
    hue = torch.rand(CLASSES, 3, generator=torch.Generator().manual_seed(0))[labels, :, None, None]
    order = torch.arange(len(labels)).view(CLASSES, -1).T.flatten()
    return (grey * (0.3 + 0.7 * hue)).round().to(torch.uint8)[order], labels[order]


def images(train: bool, each: int | None = None) -> Images:
    """Some of the drawings as CIFAR's reader would give them."""
    pixels, labels = drawings()
    first = CLASSES * (0 if train else 100 - TEST)
    rows = slice(first, first + CLASSES * (each or (TRAIN if train else TEST)))
    names = tuple(f"{'train' if train else 'test'}/{row:05}" for row in range(len(labels[rows])))
    return Images(pixels[rows], Listing.of(names, labels[rows], [f"kind {label}" for label in range(CLASSES)]))


def task(labelled: bool, **changes: Any) -> Task:
    """The small dataset, split; `train` or `test` may be replaced."""
    return Task(
        **(
            {"dataset": "cifar10", "split": "5-5", "labelled": labelled, "train": images(True), "test": images(False)}
            | changes
        )
    )


def write(folder: Path) -> Path:
    """CIFAR-10's files with these images in them."""
    layout = CIFAR10
    place = folder / layout.folder
    place.mkdir(parents=True)
    train, test = images(True), images(False)
    parts = [
        *zip(train.pixels.chunk(5), train.listing.labels.chunk(5), strict=True),
        (test.pixels, test.listing.labels),
    ]
    for name, (pixels, labels) in zip((*layout.train, *layout.test), parts, strict=True):
        _dump({layout.labels: labels.tolist(), "data": np.ascontiguousarray(pixels.flatten(1))}, place / name)
    _dump({layout.classes: list(train.listing.classes)}, place / layout.meta)
    return folder


def _dump(content: dict[str, Any], path: Path) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))
