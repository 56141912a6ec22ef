"""Image files, arrays, the embedded sample: all become `Images`."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped, UInt8
from PIL import Image
from torch import Tensor

from newfound.data.batches import Data
from newfound.data.decoding import Box, decode_all
from newfound.data.pictures import Pictures, without
from newfound.errors import InputError

COARSE = 16
"""Pixels of a side at which images are looked over for near-duplicates."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size in memory, what each is called, and its label."""

    pixels: UInt8[Tensor, "n channels height width"]  # channels 1 or 3
    names: tuple[str, ...]  # what a person recognises it by: the path below the folder, or "cat/17"
    labels: Int[Tensor, " n"]  # −1 where unlabelled
    classes: tuple[str, ...]  # names of the labels
    skipped: tuple[str, ...] = ()  # files that could not be read, each with its reason
    boxes: tuple[Box | None, ...] = ()  # the part of its file that each is; left out, or None: all of it
    groups: tuple[str, ...] = ()  # dive, burst or camera of each; left out, or "": none was given

    def __post_init__(self) -> None:
        if not self.boxes:
            object.__setattr__(self, "boxes", (None,) * len(self.names))
        if not self.groups:
            object.__setattr__(self, "groups", ("",) * len(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def pick(self, rows: Int[Tensor, " rows"]) -> "Images":
        """Some of the images, in the order of `rows`. The classes stay; what was skipped belongs to the whole."""
        names, boxes, groups = (
            tuple(all_[row] for row in rows.tolist()) for all_ in (self.names, self.boxes, self.groups)
        )
        return Images(self.pixels[rows], names, self.labels[rows], self.classes, boxes=boxes, groups=groups)

    def marks(self) -> list[bytes]:
        """A fingerprint of each image's pixels."""
        return [hashlib.sha256(pixels.tobytes()).digest() for pixels in self.pixels.numpy()]

    def beside(self, labelled: "Images | None") -> Data:
        """The discovery set: the labelled images, if they take part, then these with label −1."""
        hidden = torch.full_like(self.labels, -1)
        if labelled is None:
            return Data(self.pixels, hidden)
        channels = max(labelled.pixels.shape[1], self.pixels.shape[1])
        pixels = [images.pixels.expand(-1, channels, -1, -1) for images in (labelled, self)]
        return Data(torch.cat(pixels), torch.cat([labelled.labels, hidden]))

    def looks(self) -> Float[Tensor, "n look"]:
        """The pixels at a coarse size, about their mean; a 1 beside them makes blank images alike, and no others."""
        coarse = F.adaptive_avg_pool2d(self.pixels.float(), min(COARSE, self.pixels.shape[-1])).flatten(1)
        return F.pad(coarse - coarse.mean(1, keepdim=True), (0, 1), value=1.0)

    @property
    def alike(self) -> float:
        """Pixels that hardly differ."""
        return 0.97

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Copies of some, as they are."""
        return {row: self.pixels[row] for row in rows}


def load(pictures: Pictures, size: int) -> Images:
    """Listed images, or the boxes in them, in memory; those that cannot be read are left out and told."""
    pixels, reasons = decode_all(pictures.files, size, pictures.boxes)
    kept = without(pictures, reasons)
    return Images(pixels, kept.names, kept.labels, kept.classes, kept.skipped, kept.boxes, kept.groups)


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
    return Images(torch.from_numpy(memory), names, torch.tensor(numbers.tolist()), classes)


def doodles(group: Literal["known", "novel", "spare"]) -> Images:
    """The embedded sample: 100 drawings of each of 100 known, 10 novel or 10 spare categories of *Quick, Draw!*.

    28 × 28, one channel, ink 255 on 0 as the source has it. The spare categories are for tests and for choosing
    settings, so that the novel ones stay unseen. `scripts/embed_doodles.py` made the files and says how.
    """
    folder = resources.files("newfound.data") / "doodles"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    side, drawings, classes = index["side"], index["drawings"], index["groups"][group]
    with (folder / f"{group}.webp").open("rb") as file:
        mosaic = np.asarray(Image.open(file).getchannel(0))  # WebP has no grey: three equal channels
    tiles = mosaic.reshape(len(classes), side, drawings, side).swapaxes(1, 2)
    return arrays(
        tiles.reshape(-1, side, side),
        labels=np.arange(len(classes)).repeat(drawings),
        classes=classes,
        names=[f"{name}/{drawing}" for name in classes for drawing in range(drawings)],
    )
