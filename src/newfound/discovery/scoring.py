"""What a discovery is worth where the truth is known: its scores in every reading, as rows of a table.

The demonstration and the benchmark's small sets measure with it; nothing here is seen while learning.
"""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound.discovery.found import Found
from newfound.encoders.reading import read
from newfound.functional.geometry import nearest
from newfound.functional.metrics import scores

Scores = dict[str, float | str]
"""Every number we report of one clustering."""

PIXELS = "pixels"
"""The row of k-means on the pixels, which no method stands behind."""

TITLES = {
    PIXELS: "k-means on the pixels",
    "kmeans": "k-means on the start features",
    "spacing": "spacing (the default)",
    "spacing:unanchored": "spacing without anchors",
    "uno": "UNO",
    "uno+spacing": "UNO + spacing",
    "dtc": "DTC",
    "pairs": "pairs alone",
    "pairs+spacing": "pairs + spacing",
    "pairs+spacing:aligned": "pairs + spacing by the paper's rule, anchors aligned",
    "pairs+spacing:paper": "pairs + spacing to the letter (paper)",
    "pairs+spacing:author": "pairs + spacing as in its author's code (author)",
    "pairs+spacing:dcn": "pairs + spacing by the paper's rule, without anchors (dcn)",
}
"""What tables call the methods, in their order."""


def score_features(
    features: Float[Tensor, "n dim"], truth: Int[Tensor, " n"], classes: int, seed: int
) -> dict[str, Scores]:
    """The scores of so many clusters by k-means, on latents as they are and on unit ones."""
    spaces = {"k-means": features, "unit k-means": F.normalize(features, dim=1)}
    return {
        reading: scores(truth, read(space, classes, None, seed).assignment, classes)
        for reading, space in spaces.items()
    }


def score_discovery(found: Found, truth: Int[Tensor, " n"], classes: int, seed: int) -> dict[str, Scores]:
    """The same of a discovery, and by the nearest prototype where a method has any and all images were kept."""
    result = score_features(found.features, truth, classes, seed)
    last = found.moments[-1] if found.moments else None
    if last is None or last.spaced is None or last.prototypes is None or len(last.rows) < len(truth):
        return result
    return result | {"prototypes": scores(truth, nearest(last.spaced, last.prototypes), classes)}


def table_rows(method: str, seed: int, seconds: float, found: dict[str, Scores]) -> list[dict[str, Any]]:
    """A row for each reading."""
    return [
        {"method": method, "seed": seed, "reading": reading, "seconds": round(seconds, 1)}
        | {name: round(value, 4) for name, value in theirs.items() if isinstance(value, float)}
        for reading, theirs in found.items()
    ]
