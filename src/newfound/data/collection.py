"""What discovery needs of images, wherever they are: in memory, or on disk as features."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Int, UInt8
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.listing import Listing
from newfound.errors import InputError, shorten


@runtime_checkable
class Collection(Protocol):
    """Images that were read, and their listing."""

    @property
    def listing(self) -> Listing:
        """What each is called, and its label."""

    def __len__(self) -> int: ...

    @property
    def coloured(self) -> bool:
        """Whether views may change their colours."""

    def pick(self, rows: Int[Tensor, " rows"]) -> "Collection":
        """Some of the images, in the order of `rows`."""

    def content_hashes(self) -> Sequence[bytes]:
        """For each something that is equal where the images are."""

    def discovery_set(self, labelled: Any) -> Dataset:  # Any: the checker of the tests knows no Self here
        """The discovery set: the labelled images, if they take part (of the same kind, or None), then these with
        label −1.
        """

    def lookalikes(self, others: Any) -> tuple[Int[Tensor, " some"], Int[Tensor, " theirs"]]:
        """Rows of these, and of others of the same kind (or None: of these again), that may show one picture: all that
        are worth a look at their pixels.
        """

    def small_copies(self, rows: Int[Tensor, " some"], side: int) -> UInt8[Tensor, "some channels height width"]:
        """Some at this size, or at their own where that is smaller: near-duplicates are compared by them."""

    def sides(self, rows: Int[Tensor, " some"]) -> Int[Tensor, "some 2"]:
        """How many pixels the shorter and the longer side of some have; 0 where nobody knows."""

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Small copies of some."""


def check_read(found: Collection, listed: int) -> None:
    """Refuse images, so many of which were listed, where none could be read at all, or none of a class."""
    if not len(found):
        raise InputError(
            f"None of the {listed} images can be read. Needed: one or more. Check that they are whole, or save them as "
            f"JPEG or PNG. Found: {shorten(found.listing.skipped)}."
        )
    read = set(found.listing.labels.tolist())
    if lost := [name for label, name in enumerate(found.listing.classes) if label not in read]:
        theirs = [line for line in found.listing.skipped if any(f"{name}/" in line for name in lost)]
        raise InputError(
            f"Classes without a readable image: {shorten(map(repr, lost))}. Needed: one or more of each. Replace the "
            f"files, or take the classes away. Found: {shorten(theirs or found.listing.skipped)}."
        )
