"""Images in memory: decoded from files, or given as arrays."""

import hashlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int, Shaped, UInt8
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.decoding import THUMBNAIL, decode_all, measure_side
from newfound.data.listing import Listing
from newfound.data.views import VIEWS
from newfound.errors import InputError


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size in memory, and their listing. `arrays` makes them of numpy arrays, and checks what it gets."""

    pixels: UInt8[Tensor, "n channels height width"]  # channels 1 or 3
    listing: Listing

    def __post_init__(self) -> None:
        if len(self.pixels) != len(self.listing):
            raise ValueError(
                f"Found pixels of {len(self.pixels)} images, and {len(self.listing)} in the listing. Needed: the same "
                "images in both."
            )

    def __len__(self) -> int:
        return len(self.listing)

    def __repr__(self) -> str:
        return f"Images of {' × '.join(map(str, self.pixels.shape[1:]))}: {self.listing!r}"

    @property
    def coloured(self) -> bool:
        """Those with three channels."""
        return self.pixels.shape[1] == 3

    def pick(self, rows: Int[Tensor, " rows"]) -> "Images":
        """Some of the images, in the order of `rows`. The classes stay; what was skipped belongs to the whole."""
        return Images(self.pixels[rows], self.listing.pick(rows))

    def relabel(self, labels: Int[Tensor, " n"], classes: Sequence[str]) -> "Images":
        """The same images with other labels."""
        return replace(self, listing=replace(self.listing, labels=labels, classes=tuple(classes)))

    def unlabel(self) -> "Images":
        """The same images as if nobody had labelled them."""
        return self.relabel(torch.full_like(self.listing.labels, -1), ())

    def content_hashes(self) -> list[bytes]:
        """A fingerprint of each image's pixels."""
        return [hashlib.sha256(pixels.tobytes()).digest() for pixels in self.pixels.numpy()]

    def discovery_set(self, labelled: "Images | None") -> "PixelDataset":
        """The discovery set: the labelled images, if they take part, then these with label −1."""
        hidden = torch.full_like(self.listing.labels, -1)
        if labelled is None:
            return PixelDataset(self.pixels, hidden)
        channels = max(labelled.pixels.shape[1], self.pixels.shape[1])
        pixels = [images.pixels.expand(-1, channels, -1, -1) for images in (labelled, self)]
        return PixelDataset(torch.cat(pixels), torch.cat([labelled.listing.labels, hidden]))

    def lookalikes(self, others: "Images | None") -> tuple[Int[Tensor, " n"], Int[Tensor, " m"]]:
        """All: their pixels are at hand."""
        return torch.arange(len(self)), torch.arange(len(self if others is None else others))

    def small_copies(self, rows: Int[Tensor, " some"], side: int) -> UInt8[Tensor, "some channels height width"]:
        """Their pixels, averaged where there are more than are asked for."""
        if self.pixels.shape[-1] <= side:
            return self.pixels[rows]
        some = [F.adaptive_avg_pool2d(self.pixels[part].float(), side).round().byte() for part in rows.split(1024)]
        return torch.cat(some) if some else self.pixels[rows]

    def sides(self, rows: Int[Tensor, " some"]) -> Int[Tensor, "some 2"]:
        """Those of the pixels in memory."""
        return torch.tensor(sorted(self.pixels.shape[-2:])).expand(len(rows), 2)

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Copies of some: of their files, where there are any, no larger than these typically are; else as they are."""
        some = self.listing.pick(torch.tensor(rows, dtype=torch.long))
        if some.root is None or not len(some):
            return {row: self.pixels[row] for row in rows}
        sides = [min(box[2:]) if box else measure_side(file) for file, box in zip(some.files, some.boxes, strict=True)]
        known = [side for side in sides if side]
        side = max(self.pixels.shape[-1], min(THUMBNAIL, round(statistics.median(known)))) if known else THUMBNAIL
        if side == self.pixels.shape[-1]:
            return {row: self.pixels[row] for row in rows}
        pixels, reasons = decode_all(some.files, side, some.boxes, "whole")
        read = iter(pixels)
        ours = F.interpolate(self.pixels[list(reasons)].float(), side).byte() if reasons else ()
        lost = dict(zip(reasons, ours, strict=True))  # files that have vanished meanwhile
        return {row: lost[place] if place in reasons else next(read) for place, row in enumerate(rows)}


@final
@dataclass(frozen=True, eq=False)
class PixelDataset(Dataset):
    """Images in memory, seen in views that are drawn anew each time."""

    pixels: UInt8[Tensor, "n channels height width"]
    labels: Int[Tensor, " n"]

    def relabel(self, labels: Int[Tensor, " n"]) -> "PixelDataset":
        """The same images with other labels."""
        return replace(self, labels=labels)

    def look(
        self, rows: Int[Tensor, " m"], kinds: tuple[str, ...], draws: list[Tensor], device: torch.device
    ) -> list[Tensor]:
        """Some images in one view a kind."""
        pixels = self.pixels[rows].to(device)
        return [VIEWS[kind](pixels, draw.to(device)) for kind, draw in zip(kinds, draws, strict=True)]


def load_images(listing: Listing, size: int) -> Images:
    """Listed images, or the boxes in them, in memory; those that cannot be read are skipped."""
    pixels, reasons = decode_all(listing.files, size, listing.boxes)
    return Images(pixels, listing.without(reasons))


def arrays(
    pixels: Shaped[np.ndarray, "..."],
    labels: Shaped[np.ndarray, "..."] | Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> Images:
    """Images from numpy: uint8, n × height × width (× channels, 1 or 3); labels from 0, or −1 where unlabelled.

    Classes and images without a name are called "0", "1", …
    """
    if pixels.dtype != np.uint8:
        raise InputError(
            f"The pixels are {pixels.dtype}. Needed: uint8, from 0 to 255. "
            "If they lie between 0 and 1, give (255 * pixels).round().astype('uint8')."
        )
    planes = pixels[..., None] if pixels.ndim == 3 else pixels
    if planes.ndim != 4 or planes.shape[3] not in (1, 3) or planes.size == 0:
        raise InputError(
            f"The pixels have the shape {pixels.shape}. Needed: n × height × width, or n × height × width × channels "
            "with 1 or 3 channels, and one image or more. If channels come second, give pixels.transpose(0, 2, 3, 1)."
        )
    n = len(pixels)
    numbers = np.full(n, -1) if labels is None else np.asarray(labels)
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"The labels are {numbers.dtype} of shape {numbers.shape}. Needed: whole numbers of shape ({n},). "
            "Give one for each image, −1 where unlabelled."
        )
    least, count = int(numbers.min()), int(numbers.max()) + 1
    classes = tuple(map(str, range(count))) if classes is None else tuple(classes)
    if least < -1 or count > len(classes):
        raise InputError(
            f"The labels go from {least} to {count - 1}, with {len(classes)} class names. Needed: −1 where unlabelled, "
            "else the place of a class name, counted from 0. Renumber the labels, or name more classes."
        )
    names = tuple(map(str, range(n))) if names is None else tuple(names)
    if len(names) != n:
        raise InputError(f"{n} images came with {len(names)} names. Needed: one for each image. Give {n}, or none.")
    memory = np.array(planes.transpose(0, 3, 1, 2), order="C")  # a copy: the caller's array may change, or be read-only
    return Images(torch.from_numpy(memory), Listing.of(names, torch.tensor(numbers.tolist()), classes))
