"""torchvision and what is built on it, also where torchvision was made for another torch."""

import importlib
from types import ModuleType

import torch

_KEPT: list[torch.library.Library] = []
"""A library's operators live as long as it does."""


def vision(module: str) -> ModuleType:
    """Import a module that needs torchvision, such as `torchvision.datasets` or `timm`.

    Where torchvision's compiled part cannot be loaded, its import fails on two operators that nobody here uses.
    Declaring them is enough; where they are there already, torch refuses, and nothing was needed.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
    return importlib.import_module(module)
