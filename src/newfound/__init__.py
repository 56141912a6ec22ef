"""newfound finds the new categories among unlabelled images.

The public names load what they need when they are first used, so that importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what is loaded late below, for type checkers and editors
    from newfound.data.listing import Listing as Listing
    from newfound.data.pixels import Images as Images
    from newfound.data.pixels import arrays as arrays
    from newfound.discovery.classifier import Classifier as Classifier
    from newfound.discovery.discover import discover as discover
    from newfound.discovery.discover import pretrain as pretrain
    from newfound.discovery.rediscover import rediscover as rediscover
    from newfound.discovery.result import Discovery as Discovery
    from newfound.discovery.settings import Run as Run
    from newfound.discovery.settings import StageOne as StageOne
    from newfound.discovery.watch import watch as watch
    from newfound.errors import InputError as InputError
    from newfound.estimators import NovelClassDiscovery as NovelClassDiscovery
    from newfound.estimators import SpacingClustering as SpacingClustering
    from newfound.methods import METHODS as METHODS
    from newfound.methods.base import Method as Method
    from newfound.methods.base import Recipe as Recipe
    from newfound.methods.base import Sum as Sum
    from newfound.methods.spacing import Spacing as Spacing
    from newfound.networks.model import Model as Model
    from newfound.spacing.loss import SpacingLoss as SpacingLoss
    from newfound.types import Problem as Problem

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
