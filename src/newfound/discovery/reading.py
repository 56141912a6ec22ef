"""From latents to clusters: what is known is held, the rest is found; and which images show a cluster best."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.encoders.known import KnownPoints
from newfound.functional.cluster import ClassSums, Clustering, constrained_kmeans, kmeans
from newfound.functional.geometry import means
from newfound.functional.shift import mean_shift
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


def read_shifted(latents: Float[Tensor, "n dim"], new: int, known: KnownPoints | None, seed: int) -> Clustering:
    """The same after mean shift over neighbours, which known classes' points take part in.

    Centres are the means of what was assigned to each, as it lay before: other images are compared with those.
    """
    points = latents[:0] if known is None else known.points
    moved = mean_shift(torch.cat([points, latents]), seed=seed)
    held = None if known is None else known._replace(points=moved[: len(points)]).sums()
    found = read(moved[len(points) :], new, held, seed)
    centres, sizes = means(latents, found.assignment, len(found.centres))
    if known is not None:
        theirs, first = known.sums(), len(known.counts)
        counts = sizes[:first] + theirs.counts
        total = centres[:first] * sizes[:first, None] + theirs.sums
        centres[:first] = torch.where(counts[:, None] > 0, total / counts.clamp(min=1)[:, None], centres[:first])
        sizes = torch.cat([counts, sizes[first:]])
    return found._replace(centres=torch.where(sizes[:, None] > 0, centres, found.centres))


def find_duplicates(
    features: Float[Tensor, "n look"], away: Float[Tensor, " n"], cluster: Int[Tensor, " n"], threshold: float
) -> dict[int, int]:
    """Rows of near-duplicates, each with that of the image it nearly equals: the most typical of its cluster."""
    found: dict[int, int] = {}
    for number in cluster.unique():
        rows = (cluster == number).nonzero()[:, 0]
        firsts = rows[first_alike(features[rows], away[rows].argsort(stable=True), threshold)]
        found |= {row: first for row, first in zip(rows.tolist(), firsts.tolist(), strict=True) if row != first}
    return found


def first_alike(features: Float[Tensor, "n look"], order: Int[Tensor, " n"], threshold: float) -> Int[Tensor, " n"]:
    """For each image the first in `order` that it nearly equals: whose features have so high a cosine with its own. Its
    own row where there is none before it.

    One that nearly equals a duplicate is a duplicate of that one's first: a burst has one first.
    """
    x = F.normalize(features[order], dim=1)
    first = torch.arange(len(x))
    for start in range(0, len(x), 1024):
        same = (x[start : start + 1024] @ x.T >= threshold).tril(start - 1)
        earliest = same.int().argmax(1)
        mine = torch.arange(start, min(start + 1024, len(x)))
        first[mine] = torch.where(same.any(1), earliest, mine)
    firsts: list[int] = []
    for row in first.tolist():  # earlier ones are decided before later ones ask
        firsts.append(firsts[row] if row < len(firsts) else row)
    found = torch.empty_like(order)
    found[order] = order[torch.tensor(firsts, dtype=torch.long)]
    return found


def pick_examples(
    away: Float[Tensor, " n"], cluster: Int[Tensor, " n"], lone: Bool[Tensor, " n"], typical: int, doubtful: int
) -> list[int]:
    """The rows of each cluster's most and least typical images, near-duplicates once."""
    kept: set[int] = set()
    for number in cluster.unique():
        rows = ((cluster == number) & lone).nonzero()[:, 0]
        ordered = rows[away[rows].argsort(stable=True)].tolist()
        kept |= {*ordered[:typical], *ordered[-doubtful:]}
    return sorted(kept)
