"""Image files on disk become pixels in memory; what cannot be read is told, never fatal."""

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from newfound.errors import InputError

ENDINGS = (".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Files taken for images. Pillow needs a plugin for HEIC: without it such photos are skipped aloud, not overlooked."""


def image_names(root: Path) -> list[str]:
    """Paths, below the folder, of the image files in it, sorted as text. Hidden ones do not count.

    Links are followed; a folder to which several lead is visited once, so a loop ends.
    """

    def refuse(error: OSError) -> None:
        raise InputError(
            f"The folder {error.filename} cannot be opened: {error.strerror}. Needed: the right to read it. "
            "Change its permissions, or move it away."
        ) from error

    paths: list[Path] = []
    visited: set[str] = set()
    for folder, below, files in os.walk(root, onerror=refuse, followlinks=True):
        if (real := os.path.realpath(folder)) in visited:
            below.clear()
            continue
        visited.add(real)
        below[:] = sorted(name for name in below if not hidden(name))
        paths += [Path(folder, file) for file in files if file.lower().endswith(ENDINGS) and not hidden(file)]
    return sorted(path.relative_to(root).as_posix() for path in paths)


def hidden(name: str) -> bool:
    """Whether a file or folder is not meant to be seen, such as the ._IMG.jpg that macOS leaves beside IMG.jpg."""
    return name.startswith(".")


def decode_all(
    root: Path, names: Sequence[str], size: int
) -> tuple[UInt8[Tensor, "readable 3 {size} {size}"], dict[str, str]]:
    """The images that can be read, in the order of their names, and why each of the others cannot."""
    if size < 1:
        raise InputError(f"The image size is {size}. Needed: the side of a square in pixels. Give 1 or more.")

    def attempt(name: str) -> UInt8[np.ndarray, "side side 3"] | str:
        try:
            name.encode()  # fails for bytes that are no text, which could be neither printed nor saved later
            return decode(root / name, size)
        except Exception as error:  # Pillow's readers raise almost anything at a broken file
            return reason(error)

    pixels = np.empty((len(names), 3, size, size), np.uint8)
    readable, reasons = 0, {}
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:  # here, not in `attempt`: filters are not per thread
        warnings.simplefilter("ignore")  # odd metadata in pictures that Pillow reads well
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for name, result in zip(names, pool.map(attempt, names), strict=True):
            if isinstance(result, str):
                reasons[name] = result
            else:
                pixels[readable] = result.transpose(2, 0, 1)
                readable += 1
    return torch.from_numpy(pixels[:readable]), reasons


def decode(path: Path, size: int) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The picture in a file: upright, in colour, on white, its middle square scaled to size × size.

    The middle square, since squashing would change the proportions, and shape is what tells kinds apart; the field's
    networks are trained this way too. Of 16-bit pixels the upper 8 bits are kept.
    """
    if path.stat().st_size == 0:
        raise ValueError("the file is empty")
    with Image.open(path) as file:
        file.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded small, yet twice as fine as needed
        image = ImageOps.exif_transpose(file)
    if image.mode == "F":
        raise ValueError("its pixels are fractions of unknown range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # Pillow would clip 16 bits at 255
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(ImageOps.fit(image.convert("RGB"), (size, size)))


def reason(error: Exception) -> str:
    """Why a file could not be read, in words for the person who owns it."""
    match error:
        case UnidentifiedImageError():
            return "not an image that Pillow knows; save it as JPEG or PNG"
        case Image.DecompressionBombWarning() | Image.DecompressionBombError():
            return f"more than {Image.MAX_IMAGE_PIXELS} pixels; scale it down"
        case UnicodeEncodeError():
            return "its name is not valid text; rename it"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error) or type(error).__name__
