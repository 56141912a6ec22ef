"""CIFAR from where torchvision gets it, for machines with a network."""

import importlib
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch

from newfound.data.cifar import LAYOUTS, locate
from newfound.errors import InputError, choices

NAMES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


def download(dataset: str, folder: str | Path) -> Path:
    """Get a dataset's Python files, checked by torchvision, and return the folder they are in."""
    if dataset not in NAMES:
        raise InputError(f"There is no dataset {dataset!r} to get. {choices(dataset, NAMES)}")
    try:
        getattr(_datasets(), NAMES[dataset])(str(folder), download=True)
    except (URLError, OSError, RuntimeError) as error:
        layout = LAYOUTS[dataset]
        raise InputError(
            f"{dataset} could not be fetched ({error}). Needed: a network, or the dataset's Python version from "
            f"another machine: put its folder {layout.folder} into {folder}."
        ) from error
    layout = LAYOUTS[dataset]
    return locate(folder, layout, (*layout.train, *layout.test, layout.meta))


def _datasets() -> Any:
    """`torchvision.datasets`, also where torchvision was built for another torch.

    Its compiled part then cannot be loaded, and its import fails on two operators that datasets do not use. Declaring
    them is enough; where they are there already, torch refuses, and nothing was needed.
    """
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in (
            "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        ):
            library.define(schema)
        _KEPT.append(library)
        return importlib.import_module("torchvision.datasets")


_KEPT: list[torch.library.Library] = []
"""A library's operators live as long as it does."""
