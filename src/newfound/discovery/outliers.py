"""Which images fit no class, known or new: they are as far from the nearest as from the others."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.data.collection import Collection
from newfound.discovery.edits import NOBODY, Classes
from newfound.discovery.found import TOGETHER, Clusters, Fit
from newfound.encoders import Encoder
from newfound.functional.axes import Coordinates
from newfound.functional.calibration import outlier_score, probability, reach
from newfound.functional.geometry import distances, means
from newfound.networks.model import Model


def measure_fit(
    encoder: Encoder, model: Model, unlabelled: Collection, labelled: Collection | None, clusters: Clusters, known: int
) -> Fit | None:
    """Where images and clusters lie among features; None where latents are all there is. So many clusters are `known`
    classes', and of these labelled images, or what is remembered of them, count too.
    """
    seen = encoder.coordinates(model, unlabelled)
    if seen is None:
        return None
    centres, sizes = means(seen.along, clusters.assignment, len(clusters.centres))
    if known:
        places, counts = _place_known(encoder, model, labelled, known)
        total = centres[:known] * sizes[:known, None] + places * counts[:, None]
        centres[:known] = total / (sizes[:known] + counts).clamp(min=1)[:, None]
    return Fit(seen.along, seen.beside, centres)


def _place_known(
    encoder: Encoder, model: Model, labelled: Collection | None, known: int
) -> tuple[Float[Tensor, "known axes"], Int[Tensor, " known"]]:
    """Where known classes lie among features, and of how many images that is said."""
    if labelled is not None and (theirs := encoder.coordinates(model, labelled)) is not None:
        return means(theirs.along, labelled.listing.labels, known)
    remembered = encoder.known_places(model)
    assert remembered is not None  # who says where images lie says it of classes too
    return remembered


def fit_known(encoder: Encoder, model: Model) -> Fit | None:
    """The same of a model's known classes alone, among no images."""
    known = encoder.known_places(model)
    return None if known is None else Fit(known[0][:0], known[0].new_zeros(0), known[0])


def judge_outliers(now: Classes) -> Float[Tensor, " n"]:
    """The probability of every image that was discovered in to be of no class: of none that was found, and of none
    that people have made since. What a person decided on is none.
    """
    found = now.found
    if found.calibration.outlier is None:
        return torch.zeros(len(found))
    nearest, others = found.reach
    nearest = torch.minimum(nearest, _to_made(now, found.place))
    chance = probability(outlier_score(nearest, others), found.calibration.outlier)
    return chance.index_fill(0, torch.tensor([*now.decided], dtype=torch.long), 0.0)


def judge_other_outliers(
    now: Classes, features: Float[Tensor, "m dim"], seen: Coordinates | None
) -> Float[Tensor, " m"]:
    """The same of images that no centre knows yet, by their latents and by where they lie among features."""
    found, place = now.found, now.found.place
    if found.calibration.outlier is None or (seen is None and found.fit is not None):
        return torch.zeros(len(features))
    if seen is None:
        seen = Coordinates(found.compare(features), features.new_zeros(len(features)))
    away = torch.hypot(distances(seen.along, place.centres[found.clusters.sizes > 0]), seen.beside[:, None])
    nearest, others = reach(away)
    nearest = torch.minimum(nearest, _to_made(now, Fit(*seen, place.centres)))
    return probability(outlier_score(nearest, others), found.calibration.outlier)


def _to_made(now: Classes, place: Fit) -> Float[Tensor, " m"]:
    """From images to the nearest class that people made; ∞ where there is none."""
    first, own = len(now.found.clusters.centres), now.found.place.along
    rows = (now.own >= first).nonzero()[:, 0]
    centres, sizes = means(own[rows], now.own[rows] - first, len(now.more))
    centres = centres[(sizes > 0) & (now.owners[first:] != NOBODY)]
    if not len(centres):
        return torch.full((len(place.along),), torch.inf)
    parts = [distances(some, centres).amin(1) for some in place.along.split(TOGETHER)]
    return torch.hypot(torch.cat(parts), place.beside)
