"""Stage one on features: known classes are measured, and an adapter is made that suits the images at hand."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.data.embedded import Embedded
from newfound.functional.axes import axes, tempered
from newfound.functional.geometry import covariance, means
from newfound.networks.adapter import Adapter
from newfound.networks.model import ENOUGH, Model, Statistics
from newfound.networks.pretrained import Trunk
from newfound.types import seeded

FEW = 48
"""Axes that features are seen along; decision 7."""

SHARPNESS = 10.0
"""What the cosine to a class's mean is multiplied by to be a score: the adapter's unit latents have no scale."""


def measured(labelled: Embedded, trunk: Trunk, seed: int = 0) -> Model:
    """What is known of labelled pictures, in a form that holds none of them."""
    x, labels, classes = tempered(labelled.features()), labelled.labels, labelled.classes
    centres, counts = means(x, labels, len(classes))
    spread = covariance(x, labels, centres)
    enough = counts >= ENOUGH
    statistics = Statistics(centres * enough[:, None], spread, (counts * enough).long())
    model = Model(_adapter(x, spread, seed), trunk.size, 3, classes, trunk=trunk, statistics=statistics)
    return _placed(model)


def plain(unlabelled: Embedded, trunk: Trunk, seed: int = 0) -> Model:
    """The model of those who know nothing: no class, and axes of the pictures at hand."""
    return Model(_adapter(tempered(unlabelled.features()), None, seed), trunk.size, 3, (), trunk=trunk)


def aimed(model: Model, unlabelled: Embedded, labelled: Embedded | None = None, seed: int = 0) -> Model:
    """The same knowledge, seen along the axes of the pictures that are to be told apart.

    The known classes' own axes may not be those along which new ones differ. In two stages the means of the known
    classes stand for their pictures.
    """
    if model.statistics is None:
        return plain(unlabelled, _trunk(model), seed)
    known = model.statistics.means[model.statistics.counts > 0]
    if labelled is not None:
        known = tempered(labelled.features())
    x = torch.cat([tempered(unlabelled.features()), known])
    return _placed(replace(model, backbone=_adapter(x, model.statistics.spread, seed)))


def _adapter(x: Float[Tensor, "n features"], spread: Float[Tensor, "features features"] | None, seed: int) -> Adapter:
    found = axes(x, FEW, spread)
    with seeded(seed, "adapter"):
        adapter = Adapter(x.shape[1], found.matrix.shape[1])
    adapter.aim(found)
    return adapter


@torch.no_grad()
def _placed(model: Model) -> Model:
    """With head, means and spread in the adapter's space, from the statistics alone.

    The head scores by the angle to a class's mean; one that has none scores 0. The spread is that of
    y = (x̂ − centre) · matrix over the mean of ‖y‖²: the adapter takes the length out, which pulls classes together
    about so much.
    """
    adapter, statistics = model.backbone, model.statistics
    assert isinstance(adapter, Adapter)
    assert statistics is not None
    told = (statistics.counts > 0)[:, None]
    centres = adapter.place(statistics.means) * told
    far = (statistics.means - adapter.centre) @ adapter.matrix
    spread = adapter.matrix.T @ statistics.spread @ adapter.matrix
    head = nn.Linear(adapter.dim, len(model.classes))
    head.weight.copy_(SHARPNESS * F.normalize(centres, dim=1))
    head.bias.zero_()
    scale = (far * told).square().sum() / told.sum().clamp(min=1) + spread.trace()
    return replace(model, head=head, means=centres, spread=spread / scale)


def _trunk(model: Model) -> Trunk:
    assert model.trunk is not None
    return model.trunk
