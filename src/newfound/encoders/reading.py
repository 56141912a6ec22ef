"""From latents to clusters: what is known is held, the rest is found."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from newfound.encoders.known import KnownPoints
from newfound.functional.cluster import ClassSums, Clustering, constrained_kmeans, kmeans
from newfound.functional.discriminant import discriminant_kmeans
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


class Shifted(NamedTuple):
    """Latents after mean shift, and known classes by their points after it."""

    latents: Float[Tensor, "n dim"]
    known: ClassSums | None


def shift(latents: Float[Tensor, "n dim"], known: KnownPoints | None, seed: int) -> Shifted:
    """Mean shift over neighbours, which known classes' points take part in."""
    points = latents[:0] if known is None else known.points
    moved = mean_shift(torch.cat([points, latents]), seed=seed)
    held = None if known is None else known._replace(points=moved[: len(points)]).sums()
    return Shifted(moved[len(points) :], held)


def read_shifted(
    latents: Float[Tensor, "n dim"], new: int, known: KnownPoints | None, seed: int, moved: Shifted | None = None
) -> Clustering:
    """The same after mean shift (`moved`, where that was done already).

    Centres are the means of what was assigned to each, as it lay before: other images are compared with those.
    """
    moved = moved or shift(latents, known, seed)
    return _centre(read(moved.latents, new, moved.known, seed), latents, known)


def read_discriminant(
    latents: Float[Tensor, "n dim"],
    new: int,
    known: KnownPoints | None,
    seed: int,
    start: Clustering | None = None,
) -> Clustering:
    """The same along the discriminants of its own clusters, which those after mean shift begin (`start`, where these
    were read already).

    Points of known classes stay in these. Centres are as in `read_shifted`, and new classes again the largest before.
    """
    found = start or read_shifted(latents, new, known, seed)
    k, first = len(found.centres), 0 if known is None else len(known.counts)
    points, labels = (latents[:0], found.assignment[:0]) if known is None else (known.points, known.labels)
    assignment = discriminant_kmeans(
        torch.cat([points, latents]), torch.cat([labels, found.assignment]), k, len(points)
    )[len(points) :]
    sizes = torch.bincount(assignment, minlength=k)
    order = torch.cat([torch.arange(first), first + sizes[first:].argsort(descending=True, stable=True)])
    found = found._replace(centres=found.centres[order], assignment=order.argsort()[assignment])
    return _centre(found, latents, known)


def _centre(found: Clustering, latents: Float[Tensor, "n dim"], known: KnownPoints | None) -> Clustering:
    """With centres at the means of what was assigned to each; an empty one's stays."""
    centres, sizes = means(latents, found.assignment, len(found.centres))
    if known is not None:
        theirs, first = known.sums(), len(known.counts)
        counts = sizes[:first] + theirs.counts
        total = centres[:first] * sizes[:first, None] + theirs.sums
        centres[:first] = torch.where(counts[:, None] > 0, total / counts.clamp(min=1)[:, None], centres[:first])
        sizes = torch.cat([counts, sizes[first:]])
    return found._replace(centres=torch.where(sizes[:, None] > 0, centres, found.centres))


def read_kmeans(latents: Float[Tensor, "n dim"], new: int, known: KnownPoints | None, seed: int) -> Clustering:
    """The same as they lie, of points that stand for known classes."""
    return read(latents, new, None if known is None else known.sums(), seed)


KMEANS, SHIFT, DISCRIMINANT = "k-means", "mean-shift", "discriminant"

READERS: dict[str, Callable[[Float[Tensor, "n dim"], int, KnownPoints | None, int], Clustering]] = {
    KMEANS: read_kmeans,
    SHIFT: read_shifted,
    DISCRIMINANT: read_discriminant,
}
"""How clusters may be read off, by the names that people give it (`READINGS` of the settings)."""


def read_by(
    reading: str, latents: Float[Tensor, "n dim"], new: int, known: KnownPoints | None, seed: int
) -> Clustering:
    """Clusters as one of `READERS` finds them; by k-means where nobody chose one."""
    return READERS.get(reading, read_kmeans)(latents, new, known, seed)


def read_numbers(
    reading: str, latents: Float[Tensor, "n dim"], numbers: Sequence[int], known: KnownPoints | None, seed: int
) -> list[Clustering]:
    """Clusters as one of `READERS` finds them, for some numbers of new classes; mean shift, the same for all, is done
    once.
    """
    if reading not in (SHIFT, DISCRIMINANT):
        return [read_by(reading, latents, new, known, seed) for new in numbers]
    moved = shift(latents, known, seed)
    found = [read_shifted(latents, new, known, seed, moved) for new in numbers]
    if reading == SHIFT:
        return found
    return [read_discriminant(latents, new, known, seed, start) for new, start in zip(numbers, found, strict=True)]


def read_every(
    latents: Float[Tensor, "n dim"], new: int, known: KnownPoints | None, seed: int
) -> dict[str, Clustering]:
    """Clusters as each of `READERS` finds them; what two have in common is done once."""
    shifted = read_shifted(latents, new, known, seed)
    along = read_discriminant(latents, new, known, seed, shifted)
    return {KMEANS: read_kmeans(latents, new, known, seed), SHIFT: shifted, DISCRIMINANT: along}
