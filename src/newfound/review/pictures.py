"""Images of a run for the browser: thumbnails made when they are asked for, originals as they lie on the disk."""

import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor

from newfound.data.decoding import MEMORY, attempt, decode, flatten, open_image, weigh
from newfound.discovery.found import Found

SIDES = (96, 192, 320)
"""Sides of thumbnails in pixels: a few, so that the cache holds what many sizes on the page share."""

ROOM = 64 * 2**20
"""Bytes of thumbnails in memory."""

SHOWABLE = {
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",  # JPEGs of phones that hold another picture behind the first
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "AVIF": "image/avif",
    "BMP": "image/bmp",
}
"""Formats that browsers show, by what Pillow calls them. Others are converted."""


class Picture(NamedTuple):
    """Bytes, and what they are."""

    content: bytes
    kind: str


class UnshowableError(Exception):
    """Why an image cannot be shown, in words for people."""


class Pictures:
    """The images of a run by row: never by a path, and none that lies outside the folders that may be shown.

    Many threads may ask at once; whoever starts them sees to Pillow's settings (`configure_pillow`).
    """

    def __init__(self, found: Found, images: Path | None = None, room: int = ROOM):
        """`images` is where they are now, if they have moved, or where links in the run's folder of images lead."""
        self.found, self.room = found, room
        places = [place for place in (images, found.listing.root) if place is not None]
        self._roots = [(place, place.resolve()) for place in places]
        self._kept: OrderedDict[tuple[int, int], Picture] = OrderedDict()
        self._size, self._lock = 0, threading.Lock()

    def thumbnail(self, row: int, side: int) -> Picture:
        """All of an image, with white beside what is not square, at the smallest of `SIDES` that is enough."""
        key = row, next((each for each in SIDES if each >= side), SIDES[-1])
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        picture = self._draw(*key)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = picture
                self._size += len(picture.content)
            while self._size > self.room:
                _, dropped = self._kept.popitem(last=False)
                self._size -= len(dropped.content)
        return picture

    def _draw(self, row: int, side: int) -> Picture:
        box = self.found.listing.boxes[row]
        try:
            file = self.locate(row)
        except UnshowableError:
            if row not in self.found.thumbnails:
                raise
            return encode_copy(self.found.thumbnails[row])
        result = attempt(file, lambda content: decode(content, side, box, "whole"))
        if isinstance(result, str):
            raise UnshowableError(result)
        return encode(Image.fromarray(np.asarray(result)))

    def labelled(self, place: int, which: int) -> Picture:
        """A small copy of a labelled image, of the known class at this place in `Found.known`."""
        copies = self.found.references.get(place, ())
        if which >= len(copies):
            raise UnshowableError(f"there is no labelled image {place}/{which}")
        return encode_copy(copies[which])

    def original(self, row: int) -> Picture:
        """The whole image as it lies on the disk; one of a format that browsers do not know, as PNG."""
        result = attempt(self.locate(row), self._whole)
        if isinstance(result, str):
            raise UnshowableError(result)
        return result

    def _whole(self, content: bytes) -> Picture:
        with open_image(io.BytesIO(content)) as image, MEMORY.take(weigh(image)):
            if image.format in SHOWABLE:
                image.verify()
                return Picture(content, SHOWABLE[image.format])
            upright = ImageOps.exif_transpose(image)
            # others flattened as thumbnails are: Pillow alone would cut 16 bits at 255, and show black for transparent
            return encode(upright if upright.mode in ("L", "RGB", "RGBA") else flatten(upright), lossless=True)

    def locate(self, row: int) -> Path:
        """The file of an image, links followed; refused where it is outside the folders that may be shown."""
        name = self.found.listing.names[row]
        if not self._roots:
            raise UnshowableError("the images were in memory, and lie in no folder")
        there = [place / name for place, _ in self._roots if (place / name).is_file()]
        if not there:
            raise UnshowableError("the file is not there any more; say where it is now (--images)")
        real = there[0].resolve()
        if not any(real.is_relative_to(root) for _, root in self._roots):
            raise UnshowableError(
                "the file lies outside the run's folder of images; name the folder it is in (--images)"
            )
        return real


def encode_copy(copy: UInt8[Tensor, "channels height width"]) -> Picture:
    """A small copy that a run holds, as a file for the browser."""
    pixels = copy.permute(1, 2, 0).numpy()
    return encode(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def encode(image: Image.Image, *, lossless: bool = False) -> Picture:
    """An image as a file for the browser."""
    file = io.BytesIO()
    if lossless or max(image.size) <= 64:
        image.save(file, "png")
        return Picture(file.getvalue(), "image/png")
    image.convert("RGB").save(file, "jpeg", quality=82)
    return Picture(file.getvalue(), "image/jpeg")
