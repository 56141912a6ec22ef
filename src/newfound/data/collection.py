"""What discovery needs of images, wherever they are: in memory, or on disk as features."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.decoding import Box
from newfound.errors import InputError, listing


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
    def groups(self) -> tuple[str, ...]:
        """Dive, burst or camera of each; "" where none was given."""

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

    def looks(self) -> Float[Tensor, "n look"]:
        """What each looks like, as numbers whose cosine is at least `alike` for near-duplicates alone."""

    @property
    def alike(self) -> float:
        """That cosine."""

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Small copies of some."""


def check_read(found: Collection, listed: int) -> None:
    """Refuse images, so many of which were listed, where none could be read at all, or none of a class."""
    if not len(found):
        raise InputError(
            f"None of the {listed} images can be read. Needed: one or more. Check that they are whole, or save them as "
            f"JPEG or PNG. Found: {listing(found.skipped)}."
        )
    read = set(found.labels.tolist())
    if lost := [name for label, name in enumerate(found.classes) if label not in read]:
        theirs = [line for line in found.skipped if any(f"{name}/" in line for name in lost)]
        raise InputError(
            f"Classes without a readable image: {listing(map(repr, lost))}. Needed: one or more of each. Replace the "
            f"files, or take the classes away. Found: {listing(theirs or found.skipped)}."
        )
