"""From latents to clusters: what is known is held, the rest is found; and which images show a cluster best."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.cluster import ClassSums, Clustering, constrained_kmeans, kmeans
from newfound.types import generator


def read(latents: Float[Tensor, "n dim"], new: int, known: ClassSums | None, seed: int) -> Clustering:
    """Clusters by k-means on latents, as the paper reads them: known classes first, then new ones, the largest before.

    Where known classes may be among them (`known`), these are held and images may join them.
    """
    random = generator(seed, "reading")
    first = 0 if known is None else len(known.counts)
    found = kmeans(latents, new, random) if known is None else constrained_kmeans(latents, known, first + new, random)
    sizes = torch.bincount(found.assignment, minlength=first + new)
    order = torch.cat([torch.arange(first), first + sizes[first:].argsort(descending=True, stable=True)])
    return found._replace(centres=found.centres[order], assignment=order.argsort()[found.assignment])


def pick_examples(
    away: Float[Tensor, " n"],
    cluster: Int[Tensor, " n"],
    lone: Bool[Tensor, " n"],
    sure: Bool[Tensor, " n"],
    typical: int,
    doubtful: int,
) -> list[int]:
    """The rows of each cluster's most typical images that are sure, and of its least typical ones; `lone` alone."""
    kept: set[int] = set()
    for number in cluster.unique():
        rows = ((cluster == number) & lone).nonzero()[:, 0]
        ordered = rows[away[rows].argsort(stable=True)]
        kept |= {*ordered[sure[ordered]][:typical].tolist(), *ordered[-doubtful:].tolist()}
    return sorted(kept)
