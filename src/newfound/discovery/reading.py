"""From latents to classes: what is known is held, the rest is found; and which images show a class best."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.cluster import Clustering, Held, held_kmeans, kmeans
from newfound.functional.geometry import drift
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.training.adapt import placed
from newfound.types import generator


def space(features: Float[Tensor, "n dim"], unit: bool) -> Float[Tensor, "n dim"]:
    """Latents as they are compared: by direction, or as they are."""
    return F.normalize(features, dim=1) if unit else features


def held(labelled: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], known: int) -> Held:
    """Known classes by their labelled images, in the space of comparison."""
    sums = torch.zeros(known, labelled.shape[1]).to(labelled).index_add_(0, labels, labelled)
    return Held(sums, torch.bincount(labels, minlength=known).to(labelled))


@torch.no_grad()
def remembered(
    model: Model, before: Float[Tensor, "n dim"], after: Float[Tensor, "n dim"], *, unit: bool
) -> Held | None:
    """Known classes by what stage one left of them; None where it left nothing.

    An adapter says itself where it puts their means now; of another backbone, which has moved since, it is guessed
    from how it moved the pile. A mean of unit latents is shorter than 1: it is divided by their usual length.
    """
    if isinstance(model.backbone, Adapter) and model.statistics is not None:
        model = placed(model)
    if model.means is None or model.spread is None or model.counts is None or not model.counts.any():
        return None
    centres, counts = model.means, model.counts.to(model.means)
    if not isinstance(model.backbone, Adapter):
        centres = centres + drift(centres, before, after, model.spread.trace().sqrt().item())
    length = after.norm(dim=1).mean() if unit else torch.tensor(1.0)
    return Held(counts[:, None] * centres / length, counts)


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
