"""Stage one: labelled images → Model."""

from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.pixels import Images, PixelDataset
from newfound.methods.similarity import SIMILARITY_TRAINING, Similarity
from newfound.methods.stage_one import TRAINING, Supervised
from newfound.networks.backbone import Backbone
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import SmallResNet
from newfound.networks.similarity import PairNet
from newfound.training.loop import Learner, Row, fit, silent, survey
from newfound.types import Problem, Training, seeded


def pretrain(
    learner: Learner,
    labelled: Images,
    training: Training = TRAINING,
    seed: int = 0,
    *,
    device: str = "auto",
    progress: Callable[[Row], None] = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Model:
    """Teach a `new_learner` the known classes."""
    data = PixelDataset(labelled.pixels, labelled.listing.labels)
    fit(learner, data, training, seed, device=device, progress=progress, checkpoint=checkpoint, resume=resume)
    return to_model(learner, data, labelled, learner.backbone)


def to_model(learner: Learner, data: Dataset, labelled: Images, backbone: Backbone) -> Model:
    """What a learner of known classes leaves, on the CPU: its backbone and head, and where the classes lie.

    `data` are the labelled images as the learner sees them; `backbone` is the whole of which it may be a part.
    """
    assert isinstance(learner.method, Supervised)
    features, labels = (told.cpu() for told in survey(learner.backbone, data))
    _, channels, size, _ = labelled.pixels.shape
    return Model(
        backbone.cpu(),
        size=size,
        channels=channels,
        classes=labelled.listing.classes,
        head=learner.method.head.cpu(),
        known=Statistics.of(features, labels, len(labelled.listing.classes)),
    )


def similarity(
    labelled: Images,
    training: Training = SIMILARITY_TRAINING,
    seed: int = 0,
    *,
    width: int = 16,
    stride: int = 2,
    device: str = "auto",
    progress: Callable[[Row], None] = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> PairNet:
    """Teach a new network to say whether two images share a class: KCL's and MCL's."""
    with seeded(seed, "similarity"):
        backbone = SmallResNet(width, stride)
        method = Similarity(Problem(backbone.dim, known=len(labelled.listing.classes), novel=0))
    backbone.normalise(*colours(labelled.pixels))
    data = PixelDataset(labelled.pixels, labelled.listing.labels)
    learner = Learner(backbone, method)
    fit(learner, data, training, seed, device=device, progress=progress, checkpoint=checkpoint, resume=resume)
    return PairNet(backbone, method.pairs).cpu()


def new_learner(
    labelled: Images, seed: int = 0, *, width: int = 16, stride: int = 2, smoothing: float = 0.0
) -> Learner:
    """A new network for the known classes, its weights a function of the seed."""
    with seeded(seed, "beginner"):
        backbone = SmallResNet(width, stride)
        method = Supervised(Problem(backbone.dim, known=len(labelled.listing.classes), novel=0), smoothing)
    backbone.normalise(*colours(labelled.pixels))
    return Learner(backbone, method)


def colours(
    pixels: UInt8[Tensor, "n channels height width"],
) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
    """Mean and standard deviation of each channel, on the scale [0, 1], from its 256 counts."""
    counts = torch.stack([torch.bincount(c.flatten(), minlength=256) for c in pixels.unbind(1)]).double()
    share, level = counts / counts.sum(1, keepdim=True), torch.arange(256) / 255
    mean = share @ level.double()
    return mean.float(), (share @ level.double().square() - mean.square()).clamp(min=0).sqrt().float()
