"""What discovery needs of images, wherever they are: in memory, or on disk as features."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Int, UInt8
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.decoding import Box


@runtime_checkable
class Collection(Protocol):
    """Images, what each is called, and its label."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a person recognises each by."""

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """−1 where unlabelled."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels."""

    @property
    def boxes(self) -> tuple[Box | None, ...]:
        """The part of its file that each is; None: all of it."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """What could not be read, each with its reason."""

    def __len__(self) -> int: ...

    def marks(self) -> Sequence[bytes]:
        """For each something that is equal where the images are."""

    def beside(self, labelled: Any) -> Dataset:  # Any: the checker of the tests knows no Self here
        """The discovery set: the labelled images, if they take part (of the same kind, or None), then these with
        label −1.
        """

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Small copies of some."""
