"""torchvision and what is built on it, also where torchvision was made for another torch."""

import importlib
from types import ModuleType

import torch

_KEPT: list[torch.library.Library] = []
"""A library's operators live as long as it does."""


def vision(module: str) -> ModuleType:
    """Import a module that needs torchvision, such as `torchvision.datasets` or `timm`.

    Where torchvision's compiled part cannot be loaded, its import fails on two operators that nobody here uses, `nms`
    first. Declaring them is enough. Any other failure is not ours to mend.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
    return importlib.import_module(module)
