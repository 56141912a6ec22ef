"""How many new classes there are in a pile, before anything is trained."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound.data.collection import Collection
from newfound.data.embedded import Embedded
from newfound.discovery.result import embed
from newfound.functional.counting import Count, count
from newfound.functional.geometry import whitening
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.training.adapt import aimed
from newfound.types import generator

FEATURES, LEARNT = 10.0, 0.3
"""How much a spread is shrunk before latents are whitened to be counted: a pretrained backbone's features, and latents
of a network that learnt the known classes; decision 8."""

MOST = 100
"""New classes that are looked for, at most."""

EACH = 100
"""Points that are drawn for a known class whose images are not at hand, at most."""


@torch.no_grad()
def how_many(model: Model, unlabelled: Collection, labelled: Collection | None, seed: int) -> Count:
    """Count the classes of known and unlabelled images together.

    In two stages points drawn about the known classes' means, as wide as their spread, stand for their images.
    """
    if isinstance(unlabelled, Embedded):
        assert isinstance(labelled, Embedded | None)
        model = aimed(model, unlabelled, labelled, seed, FEATURES)
    metric = torch.eye(model.backbone.dim)
    if model.trunk is None and model.spread is not None:
        metric = whitening(model.spread, LEARNT)

    def seen(latents: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        return F.normalize(latents @ metric, dim=1)

    points, labels = known_points(model, labelled, seed)
    return count(seen(embed(model, unlabelled)), seen(points), labels, most=MOST, seed=seed)


def known_points(
    model: Model, labelled: Collection | None, seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Latents of the known classes with their labels: of their images, or drawn where these are not at hand."""
    adapter = model.backbone
    if labelled is not None:
        return embed(model, labelled), labelled.labels
    if isinstance(adapter, Adapter) and model.statistics is not None:
        means, within, counts = model.statistics
        wide = adapter.matrix.T @ within @ adapter.matrix
        return drawn((means - adapter.centre) @ adapter.matrix, wide, counts, seed)
    if model.means is not None and model.spread is not None and model.counts is not None:
        return drawn(model.means, model.spread, model.counts, seed)
    return torch.zeros(0, adapter.dim), torch.zeros(0, dtype=torch.long)


def drawn(
    means: Float[Tensor, "known dim"], spread: Float[Tensor, "dim dim"], counts: Int[Tensor, " known"], seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Points of normal distributions that share a covariance, as many of each as there were images; none of a class
    whose mean is not told. Labels count from 0 without a gap.
    """
    there = counts > 0
    values, vectors = torch.linalg.eigh(spread.double())
    root = (vectors * values.clamp(min=0).sqrt()).to(means)
    labels = torch.arange(int(there.sum())).repeat_interleave(counts[there].clamp(max=EACH))
    noise = torch.randn(len(labels), len(spread), generator=generator(seed, "drawn"))
    return means[there][labels] + noise @ root.T, labels


def told(count: Count, known: int) -> str:
    """The estimate in a sentence, with its reason."""
    new, least, most = (max(1, number - known) for number in (count.classes, count.least, count.most))
    why = {
        "pairs": f"with {count.classes} clusters in all, as many pairs of labelled images share a cluster as a class",
        "silhouette": f"{count.classes} clusters lie farthest apart",
        "accuracy": f"with {count.classes} clusters in all, labelled images find their classes again best",
    }[count.voice]
    others = [f"{name} says {max(1, n - known)}" for name, n in count.estimates.items() if name != count.voice]
    beside = f"; {' and '.join(others)}" if others else ""
    return f"{new} new, estimated (between {least} and {most}): {why}{beside}"
