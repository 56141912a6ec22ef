"""From latents to the classes that people have looked at: what they vouch for is held, the rest is found anew."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.encoders.known import KnownPoints
from newfound.functional.cluster import ClassSums, Clustering
from newfound.functional.geometry import means
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

    The assignment is that of all images, in the order of the present classes, whose numbers so keep their meaning.
    """
    free, held = ~present.vouched, hold(latents, present)
    sums, counts = hold(latents, present._replace(vouched=torch.ones_like(free)))
    found = warm_kmeans(latents[free], sums / counts.clamp(min=1)[:, None], held, present.apart[free])
    return found._replace(assignment=present.assignment.masked_scatter(free, found.assignment))


def reread_shifted(latents: Float[Tensor, "n dim"], present: Present, seed: int) -> Clustering:
    """The same after mean shift over neighbours, which known classes' points take part in; centres are the means of
    what was assigned to each, as it lay before.
    """
    known = present.known
    points = latents[:0] if known is None else known.points
    moved = mean_shift(torch.cat([points, latents]), seed=seed)
    shifted = known and known._replace(points=moved[: len(points)])
    found = reread(moved[len(points) :], present._replace(known=shifted))
    everything = present._replace(assignment=found.assignment, vouched=torch.ones_like(present.vouched))
    sums, counts = hold(latents, everything)
    centres = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], found.centres)
    return found._replace(centres=centres)


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
