"""How sure each image's class is: as `tables.judge` says it, without all distances to all centres at each edit."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.discovery.edits import NOBODY, Classes
from newfound.discovery.found import Found
from newfound.discovery.outliers import judge_outliers
from newfound.functional.calibration import FAR_OUT, probability, ratio, withhold_names
from newfound.functional.geometry import distances

NEAREST = 8
"""Centres remembered of each image, the nearest ones. Where all are its own class's, distances are taken anew."""

TOGETHER = 4096
"""Images whose distances to all centres are in memory at once."""


class Near(NamedTuple):
    """The centres nearest to every image, of those that were found."""

    centres: Int[Tensor, "n near"]
    distances: Float[Tensor, "n near"]


class Measures(NamedTuple):
    """What is thought of every image, and what it was made from, so that the next edit need not begin anew."""

    confidence: Float[Tensor, " n"]  # the probability that its class is right; 1 where a person decided
    distance: Float[Tensor, " n"]  # to the centre it goes by
    unsure: Bool[Tensor, " n"]  # of no class for sure; those that were set aside are of none
    outlier: Bool[Tensor, " n"]  # of no class, known or new
    far: Bool[Tensor, " n"]  # lies too far out to be named
    decided: Bool[Tensor, " n"]  # by a person
    own: Int[Tensor, " n"]  # the centre it goes by
    near: Near
    more: dict[bytes, Float[Tensor, " n"]]  # distances to centres that people made, by the centre


def begin_measures(now: Classes) -> Measures:
    """Measures from nothing."""
    n = len(now.found)
    nothing = torch.zeros(n, dtype=torch.bool)
    zeros, nobody = torch.zeros(n), torch.full((n,), -1)
    start = Measures(zeros, zeros, nothing, nothing, nothing, nothing, nobody, find_near(now.found), {})
    return measure_again(start, now)


def find_near(found: Found) -> Near:
    """The nearest centres of every image, some images at a time."""
    centres = found.clusters.centres
    parts = [
        distances(part, centres).topk(min(NEAREST, len(centres)), largest=False)
        for part in found.latents.split(TOGETHER)
    ]
    return Near(torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts]))


def measure_again(before: Measures, now: Classes) -> Measures:
    """The measures of other classes in the same images: what has not changed is kept.

    confidence = σ(a log(d′ / d) + b) · (1 − P(outlier)),   d to its own centre, d′ to the nearest of another class
    """
    latents, found = now.found.latents, now.found
    moved = (before.own != now.own).nonzero()[:, 0]
    own = before.distance.index_copy(0, moved, _to_own(now, moved))
    keys = [place.numpy().tobytes() for place in now.more]
    more = {
        key: before.more[key] if key in before.more else distances(latents, place[None])[:, 0]
        for key, place in zip(keys, now.more, strict=True)
    }
    other = _nearest_other(now, before.near, [more[key] for key in keys])
    m = now.sizes.to(own)[now.own]
    lone = torch.where(m > 1, own * m / (m - 1), torch.inf)  # as if it drew no centre to itself (`leave_one_out`)
    outlier = judge_outliers(now)
    confidence = probability(ratio(other, lone), found.calibration.right) * (1 - outlier)
    decided = torch.zeros(len(found), dtype=torch.bool)
    decided[[*now.decided]] = True
    confidence = confidence.masked_fill(decided, 1.0)
    unsure, none = (some & ~decided & ~now.aside for some in withhold_names(confidence, outlier, found.threshold))
    return Measures(confidence, own, unsure, none, outlier > FAR_OUT, decided, now.own, before.near, more)


def _to_own(now: Classes, rows: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """From images to the centres that they go by."""
    parts = [(now.found.latents[some] - now.centres[now.own[some]]).norm(dim=1) for some in rows.split(TOGETHER)]
    return torch.cat([*parts, torch.zeros(0)])


def _nearest_other(now: Classes, near: Near, more: list[Float[Tensor, " n"]]) -> Float[Tensor, " n"]:
    """From every image to the nearest centre of another class; ∞ where there is none."""
    mine = now.assignment
    theirs = now.owners[near.centres]
    other = near.distances.masked_fill((theirs == mine[:, None]) | (theirs == NOBODY), torch.inf).amin(1)
    if near.centres.shape[1] < len(now.found.clusters.centres):  # a farther one may be the nearest of another class
        rows = other.isinf().nonzero()[:, 0]
        found = now.owners[: len(now.found.clusters.centres)]
        for some in rows.split(TOGETHER):
            away = distances(now.found.latents[some], now.found.clusters.centres)
            away = away.masked_fill((found == mine[some, None]) | (found == NOBODY), torch.inf)
            other = other.index_copy(0, some, away.amin(1))
    for owner, away in zip(now.owners[len(now.owners) - len(more) :].tolist(), more, strict=True):
        if owner != NOBODY:
            other = torch.minimum(other, away.masked_fill(mine == owner, torch.inf))
    return other
