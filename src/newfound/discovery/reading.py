"""From latents to classes: what is known is held, the rest is found; and which images show a class best."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.cluster import Clustering, Held, held_kmeans, kmeans
from newfound.functional.geometry import drift, means
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model, Statistics
from newfound.types import generator

STAND = 100
"""Points that stand for a known class whose images are not at hand."""


def space(features: Float[Tensor, "n dim"], unit: bool) -> Float[Tensor, "n dim"]:
    """Latents as they are compared: by direction, or as they are."""
    return F.normalize(features, dim=1) if unit else features


def held(labelled: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], known: int) -> Held:
    """Known classes by their labelled images, in the space of comparison."""
    return fixed(*means(labelled, labels, known))


def fixed(centres: Float[Tensor, "known dim"], counts: Int[Tensor, " known"]) -> Held:
    """Classes that so many images hold where they are."""
    return Held(counts[:, None] * centres, counts.to(centres))


@torch.no_grad()
def located(model: Model, latents: Float[Tensor, "n dim"], labels: Int[Tensor, " n"]) -> Model:
    """With the known classes' means and spread where their images lie now; an adapter's are told by its statistics."""
    if isinstance(model.backbone, Adapter):
        return model
    return replace(model, **Statistics.of(latents, labels, len(model.classes))._asdict())


@torch.no_grad()
def moved(model: Model, before: Float[Tensor, "n dim"], after: Float[Tensor, "n dim"]) -> Model:
    """With the known classes' means where they are guessed to lie now that the backbone has learnt: it took them along
    as it took images of the pile.
    """
    assert model.means is not None
    assert model.spread is not None
    assert model.counts is not None
    there = (model.counts > 0)[:, None]
    shift = drift(model.means, before, after, model.spread.trace().sqrt().item())
    return replace(model, means=model.means + shift * there)


@torch.no_grad()
def imagined(
    model: Model, numbers: Int[Tensor, " known"], seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Latents that stand for so many images of each known class, where these are not at hand.

    Drawn about the means, as wide as the spread. An adapter bends what is drawn along its axes, as it bends images.
    Labels count the classes of which there are any.
    """
    adapter = model.backbone
    if isinstance(adapter, Adapter) and model.statistics is not None:
        centres, within, _ = model.statistics
        wide = adapter.matrix.T @ within @ adapter.matrix
        y, labels = drawn((centres - adapter.centre) @ adapter.matrix, wide, numbers, seed)
        return adapter.bent(y), labels
    assert model.means is not None
    assert model.spread is not None
    return drawn(model.means, model.spread, numbers, seed)


def drawn(
    centres: Float[Tensor, "known dim"], spread: Float[Tensor, "dim dim"], counts: Int[Tensor, " known"], seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """So many points of normal distributions that share a covariance; their means are exact. Labels count those of
    which there are any.
    """
    centres, numbers = centres[counts > 0], counts[counts > 0]
    values, vectors = torch.linalg.eigh(spread.double())
    root = (vectors * values.clamp(min=0).sqrt()).to(centres)
    labels = torch.arange(len(numbers)).repeat_interleave(numbers)
    noise = torch.randn(len(labels), len(spread), generator=generator(seed, "drawn"))
    noise -= means(noise, labels, len(numbers))[0][labels]
    noise *= (numbers / (numbers - 1).clamp(min=1)).sqrt()[labels, None]
    return centres[labels] + noise @ root.T, labels


def remembered(model: Model, *, unit: bool, seed: int) -> Held:
    """The classes of `model.told` as they would be held, were their images at hand."""
    assert model.counts is not None
    there = model.counts > 0
    latents, labels = imagined(model, STAND * there.long(), seed)
    centres, _ = means(space(latents, unit), labels, len(model.told))
    return fixed(centres, model.counts[there])


def read(latents: Float[Tensor, "n dim"], new: int, known: Held | None, seed: int) -> Clustering:
    """Classes by k-means on latents, as the paper reads them: new ones first, the largest before, then known ones.

    Where known classes may be among them (`known`), these are held and images may join them.
    """
    if known is None:
        found = kmeans(latents, new, generator(seed, "reading"))
        first = 0
    else:
        found = held_kmeans(latents, known, len(known.counts) + new, generator(seed, "reading"))
        first = len(known.counts)
    sizes = torch.bincount(found.assignment, minlength=first + new)
    order = torch.cat([first + sizes[first:].argsort(descending=True, stable=True), torch.arange(first)])
    return found._replace(centres=found.centres[order], assignment=order.argsort()[found.assignment])


def twins(looks: Float[Tensor, "n look"], order: Int[Tensor, " n"], alike: float) -> Int[Tensor, " n"]:
    """For each image the first in `order` that it nearly equals: whose look has so high a cosine with its own. Its own
    row where there is none before it.

    One that nearly equals a twin is a twin of that one's first: a burst has one first.
    """
    x = F.normalize(looks[order], dim=1)
    first = torch.arange(len(x))
    for start in range(0, len(x), 1024):
        same = (x[start : start + 1024] @ x.T >= alike).tril(start - 1)
        earliest = same.int().argmax(1)
        mine = torch.arange(start, min(start + 1024, len(x)))
        first[mine] = torch.where(same.any(1), earliest, mine)
    settled: list[int] = []
    for row in first.tolist():  # earlier ones are settled before later ones ask
        settled.append(settled[row] if row < len(settled) else row)
    found = torch.empty_like(order)
    found[order] = order[torch.tensor(settled, dtype=torch.long)]
    return found


def examples(
    away: Float[Tensor, " n"], cluster: Int[Tensor, " n"], lone: Bool[Tensor, " n"], typical: int, doubtful: int
) -> list[int]:
    """The rows of each cluster's most and least typical images, near-duplicates once."""
    kept: set[int] = set()
    for number in cluster.unique():
        rows = ((cluster == number) & lone).nonzero()[:, 0]
        ordered = rows[away[rows].argsort(stable=True)].tolist()
        kept |= {*ordered[:typical], *ordered[-doubtful:]}
    return sorted(kept)
