"""Image files as a trunk sees them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound.data.decoding import Box, decode_all
from newfound.data.maps import Maps
from newfound.data.pictures import Pictures

THUMBNAIL = 96
"""Pixels of a side of the small copies that a run keeps."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """Pictures that could be read, and where among the features on disk each has its own.

    Of every picture there is a calm record, the mean over all its views, then one of each augmented view.
    """

    pictures: Pictures
    records: Float[Tensor, "all views dim"]  # mapped into memory
    places: Int[Tensor, " n"]
    keys: tuple[bytes, ...]  # equal where the pictures are

    @property
    def names(self) -> tuple[str, ...]:
        """Paths, as they were listed."""
        return self.pictures.names

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """−1 where unlabelled."""
        return self.pictures.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.pictures.classes

    @property
    def boxes(self) -> tuple[Box | None, ...]:
        """The part of its file that each picture is; None: all of it."""
        return self.pictures.boxes

    @property
    def groups(self) -> tuple[str, ...]:
        """Dive, burst or camera of each picture; "" where none was given."""
        return self.pictures.groups

    @property
    def skipped(self) -> tuple[str, ...]:
        """What could not be read, each with its reason."""
        return self.pictures.skipped

    def __len__(self) -> int:
        return len(self.places)

    def marks(self) -> tuple[bytes, ...]:
        """The keys."""
        return self.keys

    def features(self) -> Float[Tensor, "n dim"]:
        """The calm record of every picture, in memory."""
        return self.records[self.places, 0].float()

    def beside(self, labelled: "Embedded | None") -> Maps:
        """The discovery set: the labelled pictures, if they take part, then these with label −1."""
        hidden = torch.full((len(self),), -1)
        if labelled is None:
            return Maps(self.records, hidden, self.places)
        labels, places = torch.cat([labelled.labels, hidden]), torch.cat([labelled.places, self.places])
        return Maps(max(labelled.records, self.records, key=len), labels, places)  # a store only grows

    def looks(self) -> Float[Tensor, "n dim"]:
        """The features: a trunk sees hardly a difference between near-duplicates, and much between other images."""
        return self.features()

    @property
    def alike(self) -> float:
        """Frames of a burst, and copies at another size or quality, have a cosine of .9 or more; others seldom .85."""
        return 0.9

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Small copies of some, read anew; grey where a file has vanished meanwhile."""
        some = self.pictures.pick(torch.tensor(rows, dtype=torch.long))
        pixels, reasons = decode_all(some.files, THUMBNAIL, some.boxes)
        read = iter(pixels)
        grey = torch.full((3, THUMBNAIL, THUMBNAIL), 128, dtype=torch.uint8)
        return {row: grey if place in reasons else next(read) for place, row in enumerate(rows)}
