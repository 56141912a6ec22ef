"""Models of features: known classes are measured, and an adapter is made that suits the images at hand."""

from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound.data.features import FeatureImages
from newfound.encoders.base import Lesson
from newfound.encoders.known import degrees_of_freedom, draw_normal, extend_statistics
from newfound.encoders.pretend import fit_calibration
from newfound.functional.axes import (
    FEW,
    SHRINK,
    Axes,
    Coordinates,
    Moments,
    axes,
    class_moments,
    coordinates,
    moments,
    power_normalised,
    together,
)
from newfound.functional.geometry import covariance, means
from newfound.networks.adapter import Adapter, adapter_along
from newfound.networks.model import Model, Pretrained, Statistics
from newfound.networks.pretrained import PretrainedBackbone

SHARPNESS = 10.0
"""What the cosine to a class's mean is multiplied by to be a score: the adapter's unit latents have no scale."""


def fit_statistics(labelled: FeatureImages, backbone: PretrainedBackbone, seed: int = 0) -> Model:
    """What is known of labelled images, in a form that holds none of them."""
    x, labels, classes = power_normalised(labelled.features()), labelled.listing.labels, labelled.listing.classes
    statistics = Statistics.of(x, labels, len(classes))
    adapter = new_adapter(moments(x), statistics.within_covariance, seed)
    model = Model(
        adapter,
        backbone.size,
        3,
        classes,
        pretrained=Pretrained(backbone, statistics),
        calibration=fit_calibration(x, labels, seed),
    )
    return add_head(model, adapter, statistics)


def unsupervised_model(unlabelled: FeatureImages, backbone: PretrainedBackbone, seed: int = 0) -> Model:
    """The model of those who know nothing: no class, and axes of the images at hand."""
    adapter = new_adapter(moments(power_normalised(unlabelled.features())), None, seed)
    return Model(adapter, backbone.size, 3, (), pretrained=Pretrained(backbone))


def refit_axes(
    model: Model,
    unlabelled: FeatureImages,
    labelled: FeatureImages | None = None,
    seed: int = 0,
    shrink: float = SHRINK,
) -> Model:
    """The same knowledge, seen along the axes of the images that are to be told apart.

    The known classes' own axes may not be those along which new ones differ. In two stages their means and covariance
    stand for their images, and have the same axes.
    """
    _, (backbone, statistics) = parts(model)
    if statistics is None:
        return unsupervised_model(unlabelled, backbone, seed)
    centres, within_covariance, counts = statistics
    seen = moments(power_normalised(unlabelled.features()))
    if labelled is not None:
        seen = together(seen, moments(power_normalised(labelled.features())))
    elif counts.any():
        seen = together(seen, class_moments(centres, counts.to(centres), within_covariance))
    adapter = new_adapter(seen, within_covariance, seed, shrink)
    return add_head(model, adapter, statistics) if model.classes else replace(model, backbone=adapter)


def pool_scatter(model: Model, images: FeatureImages, labels: Int[Tensor, " n"]) -> Model:
    """The model with the within-class covariance of its known classes and of images of others, or of the same.

        S ← ((n − c) S + Σ_i (x_i − μ_y(i)) (x_i − μ_y(i))ᵀ) / (n − c + m − d)

    n and c are the images and the classes that are known, m and d those at hand.
    """
    _, (backbone, statistics) = parts(model)
    x, labels = power_normalised(images.features()), labels.unique(return_inverse=True)[1]
    classes = int(labels.max()) + 1 if len(labels) else 0
    if (more := len(labels) - classes) < 1:
        return model
    theirs = covariance(x, labels, means(x, labels, classes)[0])
    if statistics is None:
        statistics = Statistics(x.new_zeros(0, x.shape[1]), theirs, torch.zeros(0, dtype=torch.long))
    else:
        before = degrees_of_freedom(statistics.counts)
        pooled = (before * statistics.within_covariance + more * theirs) / (before + more)
        statistics = statistics._replace(within_covariance=pooled)
    return replace(model, pretrained=Pretrained(backbone, statistics))


def new_adapter(
    seen: Moments, within_covariance: Float[Tensor, "features features"] | None, seed: int, shrink: float = SHRINK
) -> Adapter:
    """An adapter that looks along the axes of what was seen."""
    return adapter_along(axes(seen, FEW, within_covariance, shrink), seed)


@torch.no_grad()
def add_head(model: Model, adapter: Adapter, statistics: Statistics) -> Model:
    """The model with this adapter, and with head, means and covariance in its space, from the statistics alone.

    The head scores by the angle to a class's mean; one that has none scores 0.
    """
    known = project(adapter, statistics)
    head = nn.Linear(adapter.dim, len(model.classes))
    head.weight.copy_(SHARPNESS * F.normalize(known.means, dim=1))
    head.bias.zero_()
    return replace(model, backbone=adapter, head=head, known=known)


@torch.no_grad()
def extend_features(model: Model, lesson: Lesson, features: Float[Tensor, "n features"], seed: int = 0) -> Model:
    """The model with the classes of a lesson, whose images have these features: the one that `fit_statistics` makes of
    all images together, though the old ones are gone. Axes whiten by what is known now, new classes too.
    """
    adapter, (backbone, known) = parts(model)
    statistics = extend_statistics(known, lesson, power_normalised(features))
    centres, within_covariance, counts = statistics
    if counts.any():
        seen = class_moments(centres, counts.to(centres), within_covariance)
        adapter = new_adapter(seen, within_covariance, seed)
    model = replace(model, classes=lesson.classes, pretrained=Pretrained(backbone, statistics))
    return add_head(model, adapter, statistics)


@torch.no_grad()
def project(adapter: Adapter, statistics: Statistics) -> Statistics:
    """About where classes lie among an adapter's latents, by where they lie among features.

    Covariance and means are those of y = (x̂ − centre) · matrix over √mean ‖y‖² of their class: the adapter takes the
    length out, which pulls classes together about so much.
    """
    told = (statistics.counts > 0)[:, None]
    far = (statistics.means - adapter.centre) @ adapter.matrix
    within_covariance = adapter.matrix.T @ statistics.within_covariance @ adapter.matrix
    lengths = far.square().sum(1, keepdim=True) + within_covariance.trace()
    centres = adapter.place(statistics.means) * told * (far.square().sum(1, keepdim=True) / lengths).sqrt()
    scale = (lengths * told).sum() / told.sum().clamp(min=1)
    counts = statistics.counts.clone()  # memory that two tensors share cannot be saved
    return Statistics(centres, within_covariance / scale.clamp(min=1e-12), counts)


@torch.no_grad()
def place_features(model: Model, images: FeatureImages) -> Coordinates:
    """Where images lie along the adapter's axes and beside them, whatever it has learnt since."""
    adapter, (_, statistics) = parts(model)
    within = None if statistics is None else statistics.within_covariance
    return coordinates(power_normalised(images.features()), Axes(adapter.centre, adapter.matrix), within)


def place_means(model: Model) -> tuple[Float[Tensor, "known axes"], Int[Tensor, " known"]]:
    """The same of the known classes that have a mean."""
    adapter, (_, statistics) = parts(model)
    assert statistics is not None
    there = statistics.counts > 0
    return (statistics.means[there] - adapter.centre) @ adapter.matrix, statistics.counts[there]


@torch.no_grad()
def sample_features(
    model: Model, numbers: Int[Tensor, " known"], seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Latents that stand for so many images of each known class, drawn along the adapter's axes, and bent by it as it
    bends images. Labels count the classes of which there are any.
    """
    adapter, (_, statistics) = parts(model)
    assert statistics is not None
    wide = adapter.matrix.T @ statistics.within_covariance @ adapter.matrix
    y, labels = draw_normal((statistics.means - adapter.centre) @ adapter.matrix, wide, numbers, seed)
    return adapter.bent(y), labels


def parts(model: Model) -> tuple[Adapter, Pretrained]:
    """What a model of features has, and no other: `encoder_of` tells them apart."""
    return cast("Adapter", model.backbone), cast("Pretrained", model.pretrained)
