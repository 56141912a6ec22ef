"""From latents to the classes that people have looked at: what they vouch for is held, the rest is found anew."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.discovery.settings import DISCRIMINANT, SHIFT
from newfound.encoders.known import KnownPoints
from newfound.functional.cluster import ClassSums, Clustering
from newfound.functional.discriminant import discriminant_kmeans
from newfound.functional.geometry import means, nearest
from newfound.functional.shift import mean_shift
from newfound.functional.warm import warm_kmeans


class Present(NamedTuple):
    """The classes as they are before they are read anew, by place; images that were set aside are not among these."""

    assignment: Int[Tensor, " n"]
    vouched: Bool[Tensor, " n"]  # which images stay where they are
    apart: Bool[Tensor, "n classes"]  # which classes an image may not join
    known: KnownPoints | None  # what stands for the first classes, beside images here; None: nothing does


def reread(latents: Float[Tensor, "n dim"], present: Present) -> Clustering:
    """The present classes read anew: each begins where its images are, vouched ones and known classes are held.

    The assignment is that of all images, in the order of the present classes, whose numbers so keep their meaning. A
    class that goes where its answers do not follow (`find_astray`) stands still where it began, and all is read again.
    """
    free, held = ~present.vouched, hold(latents, present)
    sums, counts = hold(latents, present._replace(vouched=torch.ones_like(free)))
    start, still = sums / counts.clamp(min=1)[:, None], torch.zeros(len(counts), dtype=torch.bool)
    while True:
        found = warm_kmeans(latents[free], start, held, present.apart[free], still)
        astray = find_astray(latents, present, found.centres) & ~still
        if not astray.any():
            break
        still = still | astray
    return found._replace(assignment=present.assignment.masked_scatter(free, found.assignment))


def find_astray(
    latents: Float[Tensor, "n dim"], present: Present, centres: Float[Tensor, "classes dim"]
) -> Bool[Tensor, " classes"]:
    """The classes most of whose vouched images lie nearer to another centre. Such a centre has gone where k-means
    wanted one more, not where people said that the class is: a few images, often its least typical ones, hold it
    loosely. Known classes are held by more than answers, and do not count.
    """
    classes = len(centres)
    of, own = present.assignment[present.vouched], nearest(latents[present.vouched], centres)
    said, follow = (torch.bincount(some, minlength=classes) for some in (of, of[own == of]))
    astray = 2 * follow < said
    if present.known is not None:
        astray[: len(present.known.counts)] &= present.known.counts == 0
    return astray


def reread_shifted(latents: Float[Tensor, "n dim"], present: Present, seed: int) -> Clustering:
    """The same after mean shift over neighbours, which known classes' points take part in; centres are the means of
    what was assigned to each, as it lay before.
    """
    known = present.known
    points = latents[:0] if known is None else known.points
    moved = mean_shift(torch.cat([points, latents]), seed=seed)
    shifted = known and known._replace(points=moved[: len(points)])
    return _centre(reread(moved[len(points) :], present._replace(known=shifted)), latents, present)


def reread_discriminant(latents: Float[Tensor, "n dim"], present: Present, seed: int) -> Clustering:
    """The same along the discriminants of its own clusters, which those after mean shift begin (`read_discriminant`).

    Vouched images and points of known classes stay in theirs.
    """
    found, known, free = reread_shifted(latents, present, seed), present.known, ~present.vouched
    points, labels = (latents[:0], found.assignment[:0]) if known is None else (known.points, known.labels)
    held = torch.cat([points, latents[present.vouched]])
    of = torch.cat([labels, found.assignment[present.vouched]])
    moved = discriminant_kmeans(
        torch.cat([held, latents[free]]),
        torch.cat([of, found.assignment[free]]),
        len(found.centres),
        len(held),
        present.apart[free],
    )[len(held) :]
    return _centre(found._replace(assignment=found.assignment.masked_scatter(free, moved)), latents, present)


def reread_by(reading: str, latents: Float[Tensor, "n dim"], present: Present, seed: int) -> Clustering:
    """The present classes read anew as one of `READINGS` finds them."""
    if reading == SHIFT:
        return reread_shifted(latents, present, seed)
    if reading == DISCRIMINANT:
        return reread_discriminant(latents, present, seed)
    return reread(latents, present)


def _centre(found: Clustering, latents: Float[Tensor, "n dim"], present: Present) -> Clustering:
    """With centres at the means of what was assigned to each, as it lies in latents; an empty one's stays."""
    everything = present._replace(assignment=found.assignment, vouched=torch.ones_like(present.vouched))
    sums, counts = hold(latents, everything)
    return found._replace(centres=torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], found.centres))


def hold(latents: Float[Tensor, "n dim"], present: Present) -> ClassSums:
    """Sums and numbers of what is held: vouched images, and what stands for known classes."""
    classes = present.apart.shape[1]
    vouched = present.vouched
    centres, counts = means(latents[vouched], present.assignment[vouched], classes)
    held = ClassSums(centres * counts[:, None], counts.to(latents))
    if present.known is None:
        return held
    sums, numbers = present.known.sums()
    more = classes - len(numbers)
    return ClassSums(held.sums + F.pad(sums, (0, 0, 0, more)), held.counts + F.pad(numbers, (0, more)))
