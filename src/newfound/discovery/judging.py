"""From clusters to what is said of their images: how sure each is, which equal one another, which of them are shown."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from newfound.data.collection import Collection
from newfound.data.duplicates import find_same
from newfound.discovery.found import Clusters, Fit, fit_latents, reach_centres
from newfound.discovery.settings import KMEANS
from newfound.encoders import Encoder
from newfound.encoders.known import compare
from newfound.functional.calibration import (
    Calibration,
    Unnamed,
    carry_on,
    leave_one_out,
    log_margin,
    naming_score,
    outlier_score,
    probability,
    withhold_names,
)
from newfound.functional.duplicates import group
from newfound.functional.exemplars import pick_examples
from newfound.functional.geometry import distances
from newfound.networks.model import Model

EXEMPLARS, DOUBTFUL = 24, 6
"""How many of a cluster's most and least typical images a run keeps small copies of."""

REFERENCES = 4
"""How many labelled images of a known class stand beside what was found."""

NONE_UNSURE, ALL_UNSURE = -1.0, 2.0
"""A naming score that every image reaches, and one that none does."""


class Judgement(NamedTuple):
    """What is said of images by the clusters that they were read into."""

    confidence: Float[Tensor, " n"]  # the probability that an image is right there
    outlier: Float[Tensor, " n"]  # that it is of no cluster
    threshold: float  # below this naming score it is unsure
    duplicates: Mapping[int, int]  # row of a near-duplicate → row of what it nearly equals
    thumbnails: Mapping[int, UInt8[Tensor, "channels height width"]]  # of some rows

    @property
    def unnamed(self) -> Unnamed:
        """Which images have no name."""
        return withhold_names(self.confidence, self.outlier, self.threshold)


def judge_images(
    images: Collection,
    features: Float[Tensor, "n dim"],
    clusters: Clusters,
    calibration: Calibration,
    fit: Fit | None,
    share: float | None,
) -> Judgement:
    """What is said of images; a `share` of them is to be unsure, or those likelier wrong than right."""
    latents = compare(features, clusters.unit)
    away = distances(latents, clusters.centres)
    outlier = judge_no_cluster(fit or fit_latents(latents, clusters), clusters, calibration)
    confidence = judge_right(away, clusters, calibration) * (1 - outlier)
    threshold = choose_threshold(confidence, outlier, share)
    sure = ~torch.logical_or(*withhold_names(confidence, outlier, threshold))
    duplicates, thumbnails = illustrate(images, away, clusters, sure)
    return Judgement(confidence, outlier, threshold, duplicates, thumbnails)


def calibrate(
    model: Model, encoder: Encoder, classes: int, *, estimated: bool = False, reading: str = KMEANS
) -> Calibration:
    """What distances mean among so many classes that were read so: as the model's known ones say it, elsewhere as other
    images do.
    """
    own = others = encoder.calibration.resolve(estimated=estimated, reading=reading)
    if model.calibration is not None:
        told = model.calibration.resolve(estimated=estimated, reading=reading)
        own = carry_on(told, others, len(model.classes), classes)
    return own if own.outlier is not None else own._replace(outlier=others.outlier)


def judge_right(away: Float[Tensor, "n clusters"], clusters: Clusters, calibration: Calibration) -> Float[Tensor, " n"]:
    """The probability of every image to be right in its cluster, if it is of any, by its distances to all centres."""
    apart = leave_one_out(away, clusters.assignment, clusters.sizes)
    alone = torch.eye(len(clusters.centres), dtype=torch.bool)
    return probability(log_margin(apart, clusters.assignment, alone), calibration.right)


def judge_no_cluster(place: Fit, clusters: Clusters, calibration: Calibration) -> Float[Tensor, " n"]:
    """The probability of every image to be of no cluster."""
    if calibration.outlier is None:
        return torch.zeros(len(place.along))
    return probability(outlier_score(*reach_centres(place, clusters)), calibration.outlier)


def choose_threshold(confidence: Float[Tensor, " n"], outlier: Float[Tensor, " n"], share: float | None) -> float:
    """The naming score below which an image is unsure: that of one as likely wrong as right, or that of a share of all
    images. Outliers, which are called so whatever their score, are none of the share.
    """
    if share is None:
        return 0.5
    fewest = math.floor(share * len(confidence) + 1e-9)  # .29 · 100 is a little less than 29
    if fewest == 0:
        return NONE_UNSURE
    scores = naming_score(confidence, outlier)[~withhold_names(confidence, outlier, NONE_UNSURE).outlier]
    return scores.sort().values[fewest].item() if fewest < len(scores) else ALL_UNSURE


def illustrate(
    images: Collection, away: Float[Tensor, "n clusters"], clusters: Clusters, sure: Bool[Tensor, " n"]
) -> tuple[dict[int, int], dict[int, UInt8[Tensor, "channels height width"]]]:
    """The near-duplicates, each with the most typical of those that it equals; and small copies of each cluster's most
    typical images that are sure and of its least typical ones, near-duplicates once.
    """
    own = away.gather(1, clusters.assignment[:, None])[:, 0]
    first = group(find_same(images), own.argsort(stable=True))
    duplicates = {row: other for row, other in enumerate(first.tolist()) if row != other}
    lone = (first == torch.arange(len(own))) | (clusters.assignment[first] != clusters.assignment)
    return duplicates, images.thumbnails(pick_examples(own, clusters.assignment, lone, sure, EXEMPLARS, DOUBTFUL))


def pick_references(
    labelled: Collection | None, latents: Float[Tensor, "m dim"] | None, known: Sequence[str]
) -> dict[int, UInt8[Tensor, "some channels height width"]]:
    """Small copies of labelled images of each known class, those nearest its mean, by its place in `known`; none where
    labelled images took no part.
    """
    if labelled is None or latents is None:
        return {}
    chosen: dict[int, list[int]] = {}
    for place, name in enumerate(known):
        rows = (labelled.listing.labels == labelled.listing.classes.index(name)).nonzero()[:, 0]
        away = (latents[rows] - latents[rows].mean(0)).norm(dim=1)
        chosen[place] = rows[away.argsort(stable=True)[:REFERENCES]].tolist()
    copies = labelled.thumbnails([row for rows in chosen.values() for row in rows])
    return {place: torch.stack([copies[row] for row in rows]) for place, rows in chosen.items()}
