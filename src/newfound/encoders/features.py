"""FeatureEncoder: a pretrained network looks, and an adapter learns from its features."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NoReturn, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.console import Progress, silent
from newfound.data.collection import Collection
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.encoders.base import Choices, Lesson
from newfound.encoders.extraction import extract_features
from newfound.encoders.statistics import (
    extend_features,
    fit_statistics,
    place_features,
    place_means,
    pool_scatter,
    refit_axes,
    sample_features,
    unsupervised_model,
)
from newfound.errors import InputError
from newfound.functional.axes import SHRINK, Coordinates
from newfound.functional.calibration import Calibration, Logistic
from newfound.networks.model import Model
from newfound.networks.pretrained import PretrainedBackbone
from newfound.networks.resnet import OWN

WHOLLY = " on whole pictures"
"""What is said after the name of a network that sees all of a picture, square or not."""

COUNTING_SHRINK, SHRUNK = 10.0, 80.0
"""How much the features' covariance is shrunk before classes are counted, at most, and that times the known classes;
decisions 8 and 17.
"""


def shrink_for_counting(known: int) -> float:
    """How much the covariance of so many known classes is shrunk: the more there are, the better it is known."""
    return min(COUNTING_SHRINK, SHRUNK / max(known, 1))


@final
@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """A pretrained network looks at every image once; known classes are measured among its features, and an adapter
    learns.
    """

    backbone: PretrainedBackbone
    device: str = "auto"
    shrink: float = SHRINK  # of the known classes' covariance, which whitens

    default_method: ClassVar[str] = "pairs+spacing:aligned"  # such features hardly differ between views
    calibration: ClassVar[Calibration] = Calibration(
        right=Logistic(6.7, -0.7), new=Logistic(6.2, 0.9), outlier=Logistic(7.65, -19.56)
    )

    @property
    def name(self) -> str:
        """The pretrained network's, and what it is shown, where that is not the middle square of each picture."""
        return f"{self.backbone.name}{WHOLLY if self.backbone.whole else ''}"

    @property
    def size(self) -> int:
        """Pixels of a side that it is shown."""
        return self.backbone.size

    def describe(self) -> str:
        """Who taught it, and what it sees."""
        return f"{self.name}, pretrained on other images, seen at {self.size} pixels"

    def whitened(self, shrink: float) -> "FeatureEncoder":
        """With another shrinkage; 0 stands for none that was chosen."""
        return replace(self, shrink=shrink) if shrink else self

    def check_images(self, images: Sequence[Collection]) -> None:
        """Refuse images in memory: it looks at files, as large as they are."""
        if any(isinstance(some, Images) for some in images):
            raise InputError(in_memory(self.name))

    def check_method(self, name: str) -> None:
        """Refuse a method that needs pixels, or what comes before the last stage."""
        if not methods.parse(name).suits(features=True):
            raise InputError(
                f"{name} needs more of an image than a pretrained backbone's features. Take a method that begins at "
                f"latents ({methods.suitable(features=True, apart=False)}), or let a network learn from the images "
                f"themselves (--backbone {OWN})."
            )

    def check_similarity(self) -> NoReturn:
        """Refuse: it is learnt from pixels."""
        raise InputError(f"--similarity is learnt from pixels, and {self.name} gives features. Take --backbone {OWN}.")

    def encode(self, listing: Listing, progress: Progress = silent) -> FeatureImages:
        """What the network says of the images, from the cache where it has seen them."""
        stage = f"look: {'labelled' if listing.classes else 'unlabelled'}"
        return extract_features(
            listing,
            self.backbone,
            device=self.device,
            progress=lambda done: progress(stage, len(listing), {"epoch": float(done)}),
        )

    def fit_known(
        self,
        labelled: FeatureImages,
        stage: Choices,
        seed: int,
        *,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> Model:
        """Measure the known classes: nothing is trained, whatever was chosen for it."""
        return fit_statistics(labelled, self.backbone, seed)

    def fit_similarity(
        self,
        labelled: FeatureImages,
        stage: Choices,
        seed: int,
        *,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> NoReturn:
        """Refuse: see `check_similarity`."""
        self.check_similarity()

    def aim(self, model: Model | None, unlabelled: FeatureImages, labelled: FeatureImages | None, seed: int) -> Model:
        """With axes of the images at hand."""
        if model is None:
            return unsupervised_model(unlabelled, self.backbone, seed)
        return refit_axes(model, unlabelled, labelled, seed, self.shrink)

    def learn_scatter(self, model: Model, images: FeatureImages, labels: Int[Tensor, " n"]) -> Model:
        """With the within-class covariance, which whitens, of known classes and of these together."""
        return pool_scatter(model, images, labels)

    def aim_for_counting(
        self, model: Model, unlabelled: FeatureImages, labelled: FeatureImages | None, seed: int
    ) -> tuple[Model, Float[Tensor, "dim dim"]]:
        """With axes that suit counting, those of a rehearsal where classes were counted in one; they whiten already."""
        rehearsed = model.rehearsal is not None and model.rehearsal.counting
        shrink = shrink_for_counting(len(model.classes)) if rehearsed else COUNTING_SHRINK
        model = refit_axes(model, unlabelled, labelled, seed, shrink)
        return model, torch.eye(model.backbone.dim)

    def aim_for_reading(self, model: Model) -> tuple[Model, Float[Tensor, "dim dim"]]:
        """The model as it is: its axes whiten already."""
        return model, torch.eye(model.backbone.dim)

    def coordinates(self, model: Model, images: FeatureImages) -> Coordinates:
        """Along the adapter's axes, and beside them."""
        return place_features(model, images)

    def known_places(self, model: Model) -> tuple[Float[Tensor, "known axes"], Int[Tensor, " known"]]:
        """By what is remembered among features."""
        return place_means(model)

    def sample_known(
        self, model: Model, numbers: Int[Tensor, " known"], seed: int
    ) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
        """Drawn among the features, and bent by the adapter as it bends images."""
        return sample_features(model, numbers, seed)

    def update_known(
        self,
        model: Model,
        before: Float[Tensor, "n dim"],
        after: Float[Tensor, "n dim"],
        labelled: tuple[Float[Tensor, "m dim"], Int[Tensor, " m"]] | None,
    ) -> Model:
        """The model as it is: its classes are remembered among features, which do not move."""
        return model

    def extend_known(
        self,
        model: Model,
        lesson: Lesson,
        latents: Float[Tensor, "n dim"],
        look: Callable[[], FeatureImages],
        seed: int,
    ) -> Model:
        """By features: what the adapter bends, another one will bend otherwise."""
        taught = (lesson.labels >= 0).any()  # names alone need no image
        features = look().features() if taught else torch.zeros(len(latents), self.backbone.dim)
        return extend_features(model, lesson, features, seed)


def in_memory(name: str) -> str:
    """Why a pretrained network cannot look at pixels that somebody else has read."""
    return f"These images are in memory, and {name} looks at files. Write them to a folder, and give that."
