"""PixelEncoder: our own network learns from pixels."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound.console import Progress, silent
from newfound.data.listing import Listing
from newfound.data.pixels import Images, PixelDataset, load_images
from newfound.encoders.base import Choices, Lesson
from newfound.encoders.known import draw_normal, extend_statistics, remeasure_means, shift_means, turn_latents
from newfound.errors import InputError
from newfound.functional.calibration import Calibration, Logistic
from newfound.functional.geometry import whitening
from newfound.methods.similarity import SIMILARITY_TRAINING
from newfound.methods.stage_one import TRAINING
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import OWN
from newfound.networks.similarity import PairNet
from newfound.training.loop import tell_length
from newfound.training.pretrain import new_learner, pretrain, similarity

log = logging.getLogger("newfound")

PIXELS = 32
"""Pixels of a side that our own network is shown unless asked otherwise."""

COUNTING_SHRINK = 0.3
"""How much the covariance of latents that learnt the known classes is shrunk before classes are counted; decision 8."""

READING_SHRINK = 0.3
"""How much that covariance is shrunk before classes are read off: as much as Spacing shrinks it."""

HEAD_SHRINK = 0.3
"""How much it is shrunk before a head is made of it: as much as before classes are read off, which the head is to name
as they were."""


@final
@dataclass(frozen=True)
class PixelEncoder:
    """Our own network is given pixels: it learns the known classes from them, and moves while it discovers."""

    size: int = PIXELS
    device: str = "auto"

    name: ClassVar[str] = OWN
    default_method: ClassVar[str] = "spacing"
    # in a network that has learnt little every image fits no class, in a good one none: outliers are not called so
    calibration: ClassVar[Calibration] = Calibration(right=Logistic(6.0, -1.2), new=Logistic(3.5, 0.0))

    def describe(self) -> str:
        """Who taught it."""
        return f"{OWN}, learnt from the labelled images"

    def whitened(self, shrink: float) -> "PixelEncoder":
        """Itself: how much it whitens is not chosen."""
        return self

    def check_images(self, images: Sequence[Images]) -> None:
        """Refuse images in memory that it cannot see together: they are not resized."""
        sizes = sorted({tuple(some.pixels.shape[2:]) for some in images})
        shown = " and ".join(f"{height} × {width}" for height, width in sizes)
        if any(height != width for height, width in sizes):
            raise InputError(f"The images in memory are {shown} pixels. Needed: square ones. Pad or crop them.")
        if len(sizes) > 1:
            raise InputError(f"The images in memory are {shown} pixels. Needed: one size for all. Resize them.")
        if sizes and sizes[0] != (self.size, self.size):
            raise InputError(
                f"The images in memory are {shown} pixels, the model sees {self.size} × {self.size}. Resize them."
            )

    def check_method(self, name: str) -> None:
        """Pixels are enough for every method."""

    def check_similarity(self) -> None:
        """It is learnt from pixels."""

    def encode(self, listing: Listing, progress: Progress = silent) -> Images:
        """The images in memory."""
        return load_images(listing, self.size)

    def fit_known(
        self,
        labelled: Images,
        stage: Choices,
        seed: int,
        *,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> Model:
        """Teach a new network the known classes."""
        training = replace(TRAINING, epochs=stage.pretrain_epochs, rate=stage.pretrain_rate)
        learner = new_learner(labelled, seed, width=stage.width, stride=stage.stride)
        data = PixelDataset(labelled.pixels, labelled.listing.labels)
        length = tell_length(learner, data, training, device=self.device, checkpoint=checkpoint if resume else None)
        log.info(f"Learning {len(labelled.listing.classes)} known classes: {length}.")
        told = partial(progress, "pretrain", training.epochs)
        return pretrain(
            learner, labelled, training, seed, device=self.device, progress=told, checkpoint=checkpoint, resume=resume
        )

    def fit_similarity(
        self,
        labelled: Images,
        stage: Choices,
        seed: int,
        *,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> PairNet:
        """Teach another network which images share a class."""
        training = replace(SIMILARITY_TRAINING, epochs=stage.pretrain_epochs)
        log.info(f"Learning which images share a class: {training.epochs} epochs.")
        return similarity(
            labelled,
            training,
            seed,
            width=stage.width,
            stride=stage.stride,
            device=self.device,
            progress=partial(progress, "similarity", training.epochs),
            checkpoint=checkpoint,
            resume=resume,
        )

    def aim(self, model: Model | None, unlabelled: Images, labelled: Images | None, seed: int) -> Model:
        """The model as it is: training will turn it to the images at hand."""
        assert model is not None  # it has labelled images to learn from: `choose_encoder` refuses to go without
        return model

    def learn_scatter(self, model: Model, images: Images, labels: Int[Tensor, " n"]) -> Model:
        """The model as it is: it learns from such images while it trains."""
        return model

    def aim_for_counting(
        self, model: Model, unlabelled: Images, labelled: Images | None, seed: int
    ) -> tuple[Model, Float[Tensor, "dim dim"]]:
        """The model as it is; its latents are whitened by what it knows of classes."""
        if model.known is None:
            return model, torch.eye(model.backbone.dim)
        return model, whitening(model.known.within_covariance, COUNTING_SHRINK)

    def aim_for_reading(self, model: Model) -> tuple[Model, Float[Tensor, "dim dim"]]:
        """Its latents whitened by what it knows of classes, as Spacing whitens them to learn (decision 20)."""
        if model.known is None:
            return model, torch.eye(model.backbone.dim)
        metric = whitening(model.known.within_covariance, READING_SHRINK)
        return turn_latents(model, metric), metric

    def coordinates(self, model: Model, images: Images) -> None:
        """None: it has learnt, and there is nothing before."""

    def known_places(self, model: Model) -> None:
        """None likewise."""

    def sample_known(
        self, model: Model, numbers: Int[Tensor, " known"], seed: int
    ) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
        """Drawn about the means, as wide as the covariance."""
        assert model.known is not None
        return draw_normal(model.known.means, model.known.within_covariance, numbers, seed)

    def update_known(
        self,
        model: Model,
        before: Float[Tensor, "n dim"],
        after: Float[Tensor, "n dim"],
        labelled: tuple[Float[Tensor, "m dim"], Int[Tensor, " m"]] | None,
    ) -> Model:
        """Measured anew by labelled images, else guessed from where unlabelled ones went."""
        if labelled is not None:
            return remeasure_means(model, *labelled)
        return shift_means(model, before, after) if model.recognisable else model

    def extend_known(
        self, model: Model, lesson: Lesson, latents: Float[Tensor, "n dim"], look: Callable[[], Images], seed: int
    ) -> Model:
        """By latents alone: the network stays as the discovery left it."""
        known = extend_statistics(model.known, lesson, latents)
        return replace(model, classes=lesson.classes, known=known, head=discriminant_head(known))


@torch.no_grad()
def discriminant_head(known: Statistics) -> nn.Linear:
    """Fisher's linear discriminant, by statistics alone.

        f_k(z) = μ_kᵀ C z − ½ μ_kᵀ C μ_k,   C = (S + ρ s̄ I)⁻¹        (Fisher 1936)

    A class without a mean has the lowest offset of all, and no direction.
    """
    white = whitening(known.within_covariance, HEAD_SHRINK)
    weights = known.means @ white @ white
    offsets = -(weights * known.means).sum(1) / 2
    head = nn.Linear(known.means.shape[1], len(known.means))
    head.weight.copy_(weights)
    head.bias.copy_(torch.where(known.counts > 0, offsets, offsets.min()))
    return head
