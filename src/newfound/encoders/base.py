"""Encoder: all that differs between a network that learns from pixels and one that others have taught."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from newfound.console import Progress, silent
from newfound.data.collection import Collection, check_read
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.errors import counted
from newfound.functional.axes import Coordinates
from newfound.functional.calibration import Calibration
from newfound.networks.model import Model
from newfound.networks.similarity import PairNet

log = logging.getLogger("newfound")

Seen = TypeVar("Seen", bound=Collection)
"""Images as an encoder gives them to the backbone."""


class Lesson(NamedTuple):
    """Classes as a model is to know them from now on, and the images that teach some of them."""

    classes: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...]  # places of the classes that the model knew which each is made of; (): it is new
    labels: Int[Tensor, " n"]  # the place of each image's class; −1: it teaches nothing


@runtime_checkable
class Choices(Protocol):
    """What a person may choose of how images are looked at and known classes learnt: discovery's `StageOne`."""

    @property
    def backbone(self) -> str:
        """What looks: `auto`, our own network, or a pretrained one by name."""

    @property
    def weights(self) -> str | None:
        """A file with a pretrained network's weights; None: where these are found by its name."""

    @property
    def size(self) -> int | None:
        """Pixels of a side that images are brought to; None: what the network prefers."""

    @property
    def framing(self) -> str:
        """What is seen of a picture that is not square: `auto`, its `middle` or the `whole` of it."""

    @property
    def width(self) -> int:
        """Of our own network."""

    @property
    def stride(self) -> int:
        """Of our own network's first layer."""

    @property
    def pretrain_epochs(self) -> int:
        """Our own network's passes over labelled images."""

    @property
    def pretrain_rate(self) -> float:
        """Its peak learning rate."""


@runtime_checkable
class Encoder(Protocol[Seen]):
    """How images become latents, and what is remembered of known classes there."""

    @property
    def name(self) -> str:
        """What looks at images."""

    @property
    def size(self) -> int:
        """Pixels of a side that they are brought to."""

    @property
    def default_method(self) -> str:
        """The method that suits such latents."""

    @property
    def calibration(self) -> Calibration:
        """What distances mean where too few classes are known to tell (decision 8)."""

    def describe(self) -> str:
        """Itself, for people; what others have taught it must be said."""

    def whitened(self, shrink: float) -> "Encoder[Seen]":
        """The same, its whitening by the known classes shrunk by so much; itself where it whitens nothing."""

    def check_images(self, images: Sequence[Seen]) -> None:
        """Refuse images that were read, by somebody else, otherwise than it reads them."""

    def check_method(self, name: str) -> None:
        """Refuse a method that needs more of an image than the backbone is given."""

    def check_similarity(self) -> None:
        """Refuse to learn which images share a class where that cannot be."""

    def encode(self, listing: Listing, progress: Progress = silent) -> Seen:
        """Listed images as the backbone will be given them; those that cannot be read are skipped."""

    def fit_known(
        self,
        labelled: Seen,
        stage: Choices,
        seed: int,
        *,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> Model:
        """Learn the known classes, or measure them. `checkpoint` and `resume` are those of `fit`."""

    def fit_similarity(
        self,
        labelled: Seen,
        stage: Choices,
        seed: int,
        *,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> PairNet:
        """Learn which images share a class, which KCL and MCL must be told."""

    def aim(self, model: Model | None, unlabelled: Seen, labelled: Seen | None, seed: int) -> Model:
        """The model made ready for the images at hand; None: of one that knows nothing."""

    def learn_scatter(self, model: Model, images: Seen, labels: Int[Tensor, " n"]) -> Model:
        """The model with what images of these classes say of how far images of one class lie apart."""

    def aim_for_counting(
        self, model: Model, unlabelled: Seen, labelled: Seen | None, seed: int
    ) -> tuple[Model, Float[Tensor, "dim dim"]]:
        """The model, and the map of its latents, by which classes are counted."""

    def aim_for_reading(self, model: Model) -> tuple[Model, Float[Tensor, "dim dim"]]:
        """The model, and the map of its latents so far, by whose latents classes are read off."""

    def coordinates(self, model: Model, images: Seen) -> Coordinates | None:
        """Where images lie among features before anything is learnt from them; None where latents are all there is."""

    def known_places(self, model: Model) -> tuple[Float[Tensor, "known axes"], Int[Tensor, " known"]] | None:
        """Where the means of `model.recognisable` lie among these, and of how many images each is; or None likewise."""

    def sample_known(
        self, model: Model, numbers: Int[Tensor, " known"], seed: int
    ) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
        """Latents that stand for so many images of each known class, where these are not at hand. Labels count the
        classes of which there are any.
        """

    def update_known(
        self,
        model: Model,
        before: Float[Tensor, "n dim"],
        after: Float[Tensor, "n dim"],
        labelled: tuple[Float[Tensor, "m dim"], Int[Tensor, " m"]] | None,
    ) -> Model:
        """The model with its known classes where they lie once the backbone has moved.

        It took unlabelled images from `before` to `after`; labelled ones, where they took part, are where `labelled`
        says, with their labels.
        """

    def extend_known(
        self, model: Model, lesson: Lesson, latents: Float[Tensor, "n dim"], look: Callable[[], Seen], seed: int
    ) -> Model:
        """The model with the classes of a lesson: its backbone stays, statistics, head and what distances mean are
        those of all classes. `latents` are of the images that teach; `look` reads these again, where latents are not
        enough.
        """


def encode_source(encoder: Encoder[Any], source: Images | Listing, progress: Progress = silent) -> Any:
    """Images as the backbone will be given them: listed ones are encoded, those in memory are so already.

    Classes, or unlabelled images, of which nothing can be read are refused.
    """
    if isinstance(source, Images):
        return source
    kind = "labelled" if source.classes else "unlabelled"
    log.info(f"Looking at {counted(len(source), f'{kind} image')} with {encoder.name}, at {encoder.size} pixels.")
    found = encoder.encode(source, progress)
    check_read(found, len(source))
    return found
