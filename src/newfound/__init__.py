"""newfound finds the new categories among unlabelled images.

The public names load what they need when they are first used, so that importing the package is cheap.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "Classifier": "newfound.discovery.classifier",
    "Discovery": "newfound.discovery.result",
    "Images": "newfound.data.pixels",
    "InputError": "newfound.errors",
    "Listing": "newfound.data.listing",
    "METHODS": "newfound.methods",
    "Method": "newfound.methods.base",
    "Model": "newfound.networks.model",
    "NovelClassDiscovery": "newfound.estimators",
    "Problem": "newfound.types",
    "Recipe": "newfound.methods.base",
    "Run": "newfound.discovery.settings",
    "Spacing": "newfound.methods.spacing",
    "SpacingClustering": "newfound.estimators",
    "SpacingLoss": "newfound.spacing.loss",
    "StageOne": "newfound.discovery.settings",
    "Sum": "newfound.methods.base",
    "arrays": "newfound.data.pixels",
    "discover": "newfound.discovery.discover",
    "pretrain": "newfound.discovery.discover",
    "rediscover": "newfound.discovery.rediscover",
    "watch": "newfound.discovery.watch",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'newfound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
