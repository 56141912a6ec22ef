"""Image files on disk become pixels in memory; what cannot be read is skipped with a reason, never fatal."""

import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from torch import Tensor

from newfound.errors import InputError

Result = TypeVar("Result")

THUMBNAIL = 96
"""Pixels of a side of the small copies that a run keeps."""


class Box(NamedTuple):
    """A rectangle in an image, in pixels from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


def decode_all(
    files: Sequence[Path], size: int, boxes: Sequence[Box | None] | None = None
) -> tuple[UInt8[Tensor, "readable 3 {size} {size}"], dict[int, str]]:
    """The images, or the boxes in them, that can be read, in the order given; and why each other row cannot."""
    if size < 1:
        raise InputError(f"The image size is {size}. Needed: the side of a square in pixels. Give 1 or more.")

    def look(file: Path, box: Box | None) -> UInt8[np.ndarray, "side side 3"] | str:
        return attempt(file, lambda content: decode(content, size, box))

    pixels = np.empty((len(files), 3, size, size), np.uint8)
    readable, reasons = 0, {}
    with configure_pillow(), ThreadPoolExecutor() as pool:
        for row, result in enumerate(pool.map(look, files, boxes or [None] * len(files))):
            if isinstance(result, str):
                reasons[row] = result
            else:
                pixels[readable] = result.transpose(2, 0, 1)
                readable += 1
    return torch.from_numpy(pixels[:readable]), reasons


@contextmanager
def configure_pillow() -> Iterator[None]:
    """Pillow as we want it: silent on odd metadata in images that it reads well, strict on those that would burst.

    To be entered before threads begin: filters of warnings are not per thread.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def attempt(file: Path, work: Callable[[bytes], Result]) -> Result | str:
    """What some work makes of a file's bytes, or the reason why it could not."""
    try:
        str(file).encode()  # fails for bytes that are no text, which could be neither printed nor saved later
        return work(read_file(file))
    except Exception as error:  # Pillow's readers raise almost anything at a broken file
        return explain(error)


def read_file(file: Path) -> bytes:
    """A file's bytes, read once: one that is written anew meanwhile is not seen half old, half new."""
    check_file(file)
    return file.read_bytes()


def check_file(file: Path) -> None:
    """Refuse folders, devices and pipes: reading a pipe would wait for ever."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("neither a file nor a link to one")


def decode(content: bytes, size: int, box: Box | None = None) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The image in a file, or in a box of it: upright, in colour, on white, its middle square scaled to size × size.

    The middle square, since squashing would change the proportions, and shape is what tells kinds apart; the field's
    networks are trained this way too. Of 16-bit pixels the upper 8 bits are kept. A box is measured in the upright
    image, and cut off where that ends.
    """
    if not content:
        raise ValueError("the file is empty")
    with Image.open(BytesIO(content)) as file:
        if not isinstance(file, JpegImageFile):
            file.load()  # TIFF is turned upright here, and must be before it is measured
        orientation = file.getexif().get(ExifTags.Base.Orientation)
        width, height = file.size[::-1] if orientation in (5, 6, 7, 8) else file.size
        left, upper, right, lower = middle_square(box, width, height)
        scale = draft(file, (right - left) / (2 * size))
        image = ImageOps.exif_transpose(file)
    if image.mode == "F":
        raise ValueError("its pixels are fractions of unknown range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # Pillow would clip 16 bits at 255
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    # a drafted image's last pixel may be part empty; turned round, it is the first
    x = image.width - width * scale if orientation in (2, 3, 6, 7) else 0.0
    y = image.height - height * scale if orientation in (3, 4, 7, 8) else 0.0
    square = (x + left * scale, y + upper * scale, x + right * scale, y + lower * scale)
    return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC, box=square))


def middle_square(box: Box | None, width: int, height: int) -> tuple[float, float, float, float]:
    """Left, upper, right and lower end of the middle square of an image, or of what a box shows of it."""
    x, y, across, down = box or (0, 0, width, height)
    left, right = max(x, 0), min(x + across, width)
    upper, lower = max(y, 0), min(y + down, height)
    side = min(right - left, lower - upper)
    if side <= 0:
        raise ValueError("the box lies outside the image")
    aside, above = (right - left - side) / 2, (lower - upper - side) / 2
    return left + aside, upper + above, right - aside, lower - above


def draft(file: ImageFile, finer: float) -> float:
    """Let a large JPEG be decoded small, if it is `finer` times as fine as needed; the scale it then has, 1 to ⅛."""
    width, height = file.size
    part = 1 << max(int(finer), 1).bit_length() - 1  # a power of two, as Pillow's are, so that it takes no larger one
    drafted = file.draft(None, (width // part, height // part))
    return drafted[1][2] / width if drafted else 1.0


def measure_side(file: Path) -> int | None:
    """The shorter side of an image in pixels, from its header; None where it has none that can be read."""
    try:
        check_file(file)
        with configure_pillow(), Image.open(file) as image:
            return min(image.size)
    except Exception:  # as in `attempt`: the reason is given when the image itself is read
        return None


def explain(error: Exception) -> str:
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
        case ValueError() if str(error):  # ours say it all
            return str(error)
        case _:
            return f"damaged ({str(error) or type(error).__name__})"
