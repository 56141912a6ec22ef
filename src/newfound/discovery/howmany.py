"""How many new classes there are in a pile, before anything is trained."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound.data.collection import Collection
from newfound.data.embedded import Embedded
from newfound.discovery.reading import STAND, imagined
from newfound.discovery.result import embed
from newfound.errors import InputError
from newfound.functional.counting import Count, count
from newfound.functional.geometry import whitening
from newfound.networks.model import Model
from newfound.training.adapt import aimed

SHRINK_FEATURES, SHRINK_LEARNT = 10.0, 0.3
"""How much a spread is shrunk before latents are whitened to be counted: a pretrained backbone's features, and latents
of a network that learnt the known classes; decision 8."""

FEWEST = 4
"""Images among which classes can be counted, where none is known."""

MOST = 100
"""New classes that are looked for, at most."""


@torch.no_grad()
def how_many(model: Model, unlabelled: Collection, labelled: Collection | None, seed: int) -> Count:
    """Count the classes of known and unlabelled images together.

    In two stages points drawn about the known classes' means, as wide as their spread, stand for their images.
    """
    if labelled is None and not model.told and len(unlabelled) < FEWEST:
        raise InputError(
            f"Found {len(unlabelled)} images, and no known class beside them; counting classes needs at least {FEWEST} "
            "images. Give more, or say how many classes there are (--classes)."
        )
    if isinstance(unlabelled, Embedded):
        assert isinstance(labelled, Embedded | None)
        model = aimed(model, unlabelled, labelled, seed, SHRINK_FEATURES)
    metric = torch.eye(model.backbone.dim)
    if model.trunk is None and model.spread is not None:
        metric = whitening(model.spread, SHRINK_LEARNT)

    def seen(latents: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        return F.normalize(latents @ metric, dim=1)

    points, labels = known_points(model, labelled, seed)
    return count(seen(embed(model, unlabelled)), seen(points), labels, most=MOST, seed=seed)


def known_points(
    model: Model, labelled: Collection | None, seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Latents of the known classes with their labels: of their images, or what stands for these where they are not at
    hand.
    """
    if labelled is not None:
        return embed(model, labelled), labelled.labels
    if model.counts is None or not model.told:
        return torch.zeros(0, model.backbone.dim), torch.zeros(0, dtype=torch.long)
    return imagined(model, model.counts.clamp(max=STAND), seed)


def explained(count: Count) -> str:
    """The estimate in a sentence, with its reason."""
    found, tried = count.classes, [tried.classes for tried in count.curve]
    clusters = f"{found} clusters" + (" in all" if count.known else "")
    reason = {
        "pairs": f"with {clusters}, as many pairs of labelled images share a cluster as a class",
        "silhouette": f"{clusters} lie farthest apart",
        "accuracy": f"with {clusters}, labelled images find their classes again best",
    }[count.voice]
    if count.voice == "pairs" and min(one.pairs for one in count.curve) > 0:
        reason = f"even with {tried[-1]} clusters, the most that were tried, labelled classes share some"
    elif count.voice == "pairs" and count.curve[0].pairs <= 0:
        reason = f"even {tried[0]} clusters, the fewest that were tried, cut labelled classes in pieces"
    others = [f"by {name} {n - count.known}" for name, n in count.estimates.items() if name != count.voice]
    beside = f"; {' and '.join(others)}" if others else ""
    bounds = f"{count.least - count.known} to {count.most - count.known}"
    if count.known:
        bounds += f"; {count.least} to {count.most} with the {count.known} known"
    return f"{found - count.known} new, estimated ({bounds}): {reason}{beside}"
