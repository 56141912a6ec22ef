"""Image files on disk become pixels in memory; what cannot be read is skipped with a reason, never fatal."""

import ctypes
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from threading import Condition
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

from newfound.errors import InputError

Result = TypeVar("Result")

Framing = Literal["middle", "whole", "squeezed"]
"""What is shown of a picture that is not square: its middle square; all of it, with white beside, or squeezed."""

FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is read, by Pillow's names. It knows more, and would start Ghostscript for an EPS that is called .png."""

TILE_WIDTH, TILE_LENGTH = 322, 323
"""Tags of TIFF."""

THREADS = 32
"""Threads that read pictures, at most."""

LARGE = 1 << 24
"""Bytes that a picture takes whose memory is returned at once; of smaller ones each thread keeps what one took."""

STRIP = 1 << 20
"""Pixels of a large picture that are converted at a time."""

PIXEL = 12
"""Bytes that a pixel takes while it is decoded: three copies of four, as read, upright, and in colour on white."""

PIXEL_OF = {"AVIF": 20, "HEIF": 20, "WEBP": 20}
"""The same where a decoder keeps copies of its own: 13 and 18 were measured of AVIF and WebP (decision 11)."""


class Budget:
    """So much of something that threads share: each takes what it needs, waits until it is there, and gives it back."""

    def __init__(self, whole: int):
        self.whole, self._free, self._changed = whole, whole, Condition()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Have so much for a while. Who would need more than there is would wait for ever: check that first."""
        assert amount <= self.whole
        with self._changed:
            self._changed.wait_for(lambda: amount <= self._free)
            self._free -= amount
        try:
            yield
        finally:
            with self._changed:
                self._free += amount
                self._changed.notify_all()


CONTENTS = Budget(1 << 28)
"""Bytes of files that are held at a time, so the largest file that is read: 256 MiB."""

MEMORY = Budget(1 << 30)
"""Bytes for pictures that are decoded at a time, so the largest that is read: 89 million pixels, as Pillow advises.

Who decodes holds a file already, and takes nothing more: no two wait for each other.
"""

THUMBNAIL = 96
"""Pixels of a side of the small copies that a run keeps."""


class Box(NamedTuple):
    """A rectangle in an image, in pixels from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


def decode_all(
    files: Sequence[Path], size: int, boxes: Sequence[Box | None] | None = None, framing: Framing = "middle"
) -> tuple[UInt8[Tensor, "readable 3 {size} {size}"], dict[int, str]]:
    """The images, or the boxes in them, that can be read, in the order given; and why each other row cannot."""
    if size < 1:
        raise InputError(f"The image size is {size}. Needed: the side of a square in pixels. Give 1 or more.")

    def look(file: Path, box: Box | None) -> UInt8[np.ndarray, "side side 3"] | str:
        return attempt(file, lambda content: decode(content, size, box, framing))

    pixels = np.empty((len(files), 3, size, size), np.uint8)
    readable, reasons = 0, {}
    with configure_pillow(), ThreadPoolExecutor(count_cores()) as pool:
        for row, result in enumerate(pool.map(look, files, boxes or [None] * len(files))):
            if isinstance(result, str):
                reasons[row] = result
            else:
                pixels[readable] = result.transpose(2, 0, 1)
                readable += 1
    return torch.from_numpy(pixels[:readable]), reasons


def count_cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has; at most as many as are of use."""
    return min(THREADS, len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


@contextmanager
def configure_pillow() -> Iterator[None]:
    """Pillow as we want it: silent on odd metadata in images that it reads well, and on sizes, which `weigh` checks.

    To be entered before threads begin: filters of warnings are not per thread.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def attempt(file: Path, work: Callable[[bytes], Result]) -> Result | str:
    """What some work makes of a file's bytes, or the reason why it could not."""
    try:
        str(file).encode()  # fails for bytes that are no text, which could be neither printed nor saved later
        with CONTENTS.take(check_file(file)):
            return work(file.read_bytes())  # once: a file that is written anew is not seen half old, half new
    except Exception as error:  # Pillow's readers raise almost anything at a broken file
        return explain(error)


def check_file(file: Path) -> int:
    """The bytes in a file. Refuses folders, devices and pipes, for reading a pipe would wait for ever; and files too
    large to be held, before anything is read of them.
    """
    about = file.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("neither a file nor a link to one")
    if about.st_size > CONTENTS.whole:
        raise ValueError(f"a file of {about.st_size >> 20} MiB; {CONTENTS.whole >> 20} are read at most; scale it down")
    return about.st_size


def open_image(source: Path | BytesIO) -> ImageFile:
    """A picture of which only the header is read yet, if it is of one of our formats, whatever its name ends in."""
    if isinstance(source, Path):
        check_file(source)
    Image.init()  # then all that Pillow knows is in OPEN; what is not there it would stumble over
    return Image.open(source, formats=[name for name in FORMATS if name in Image.OPEN])


def decode(
    content: bytes, size: int, box: Box | None = None, framing: Framing = "middle"
) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The image in a file, or in a box of it: upright, in colour, on white, scaled to size × size.

    Networks look at the middle square or at the whole, since squeezing would change the proportions, and shape is what
    tells kinds apart; the field's are trained on middle squares. Of 16-bit pixels the upper 8 bits are kept. A box is
    measured in the upright image, and cut off where that ends. Waits until there is memory for the picture.
    """
    if not content:
        raise ValueError("the file is empty")
    with open_image(BytesIO(content)) as file:
        if file.mode == "F":
            raise ValueError("its pixels are fractions of unknown range; save it with 8 or 16 bits")
        view, scale = None, 1.0
        if isinstance(file, JpegImageFile):
            view = measure(file, box, framing)
            scale = draft(file, max(view.right - view.left, view.lower - view.upper) / (2 * size))
        with room_for_pixels(file, weigh(file, scale)):
            file.load()
            # TIFF was turned upright just now, and must be before it is measured
            view = view or measure(file, box, framing)
            return render(file, view, scale, size, squeezed=framing == "squeezed")


@contextmanager
def room_for_pixels(file: ImageFile, weight: int) -> Iterator[None]:
    """Have the memory to decode a picture; its pixels are gone afterwards. Waits until there is so much."""
    with MEMORY.take(weight):
        try:
            yield
        finally:
            file.close()
            if weight > LARGE:
                return_memory()


def return_memory() -> None:
    """Give the system what was freed: glibc keeps it for each thread that once asked, so that many threads would hold
    many large pictures that nobody needs any more.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # other C libraries need no such thing
            ctypes.CDLL(None).malloc_trim(0)


class View(NamedTuple):
    """How a picture is to be looked at."""

    orientation: int  # EXIF's
    width: int  # of the upright picture
    height: int
    left: float  # ends of what is meant of it
    upper: float
    right: float
    lower: float


def measure(file: ImageFile, box: Box | None, framing: Framing = "middle") -> View:
    """The size of a picture once it is upright, and the middle square of it, or of what a box shows of it; or all of
    either.
    """
    orientation = file.getexif().get(ExifTags.Base.Orientation, 1)
    width, height = file.size[::-1] if orientation in (5, 6, 7, 8) else file.size
    ends = clip_box(box, width, height)
    return View(orientation, width, height, *(middle_square(*ends) if framing == "middle" else ends))


def weigh(file: ImageFile, scale: float = 1.0) -> int:
    """Bytes that decoding a picture may take, by its header; what takes more than there are is refused.

    A JPEG that is decoded small has only its coefficients whole: two bytes for each sample of each component.
    """
    pixel = PIXEL_OF.get(file.format or "", PIXEL)
    pixels = file.width * file.height
    if isinstance(file, TiffImageFile):  # a tile may be larger than its picture
        pixels = max(pixels, file.tag_v2.get(TILE_WIDTH, 0) * file.tag_v2.get(TILE_LENGTH, 0))
    needed = pixel * pixels
    if isinstance(file, JpegImageFile):
        samples = [across * down for _, across, down, _ in file.layer]
        needed += round(2 * pixels / scale**2 * sum(samples) / max(samples))
    if needed > MEMORY.whole:
        raise ValueError(f"{file.width} × {file.height} pixels are more than can be read; scale it down")
    return needed


def render(
    file: ImageFile, view: View, scale: float, size: int, *, squeezed: bool = False
) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """Part of a picture that is loaded, at some scale, as an image of size × size; what is not square in the middle of
    white, or squeezed.
    """
    turned = view.orientation in range(2, 9)
    image = flatten(ImageOps.exif_transpose(file) if turned else file)
    # a drafted image's last pixel may be part empty; turned round, it is the first
    x = image.width - view.width * scale if view.orientation in (2, 3, 6, 7) else 0.0
    y = image.height - view.height * scale if view.orientation in (3, 4, 7, 8) else 0.0
    part = (x + view.left * scale, y + view.upper * scale, x + view.right * scale, y + view.lower * scale)
    sides = (1, 1) if squeezed else (view.right - view.left, view.lower - view.upper)
    across, down = (max(1, round(size * side / max(sides))) for side in sides)
    seen = image.resize((across, down), Image.Resampling.BICUBIC, box=part)
    if across == down:
        return np.asarray(seen)
    ground = Image.new("RGB", (size, size), "white")
    ground.paste(seen, ((size - across) // 2, (size - down) // 2))
    return np.asarray(ground)


def flatten(image: Image.Image) -> Image.Image:
    """A picture in colour, on white. Strip by strip: of a large one there is no room for several copies."""
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    flat, rows = Image.new("RGB", image.size), max(1, STRIP // image.width)
    for upper in range(0, image.height, rows):
        part = image.crop((0, upper, image.width, min(upper + rows, image.height)))
        if part.mode.startswith("I"):  # Pillow would clip 16 bits at 255
            part = Image.fromarray((np.asarray(part) >> 8).clip(0, 255).astype(np.uint8))
        if part.has_transparency_data:
            part = part.convert("RGBA")
            part = Image.alpha_composite(Image.new("RGBA", part.size, "white"), part)
        flat.paste(part.convert("RGB"), (0, upper))
    return flat


def clip_box(box: Box | None, width: int, height: int) -> tuple[float, float, float, float]:
    """Left, upper, right and lower end of an image, or of what a box shows of it."""
    x, y, across, down = box or (0, 0, width, height)
    left, right = max(x, 0), min(x + across, width)
    upper, lower = max(y, 0), min(y + down, height)
    if min(right - left, lower - upper) <= 0:
        raise ValueError("the box lies outside the image")
    return left, upper, right, lower


def middle_square(left: float, upper: float, right: float, lower: float) -> tuple[float, float, float, float]:
    """The same four ends of the middle square of a rectangle."""
    side = min(right - left, lower - upper)
    aside, above = (right - left - side) / 2, (lower - upper - side) / 2
    return left + aside, upper + above, right - aside, lower - above


def draft(file: ImageFile, finer: float) -> float:
    """Let a large JPEG be decoded small, if it is `finer` times as fine as needed; the scale it then has, 1 to ⅛."""
    width, height = file.size
    part = 1 << max(int(finer), 1).bit_length() - 1  # a power of two, as Pillow's are, so that it takes no larger one
    drafted = file.draft(None, (width // part, height // part))
    return drafted[1][2] / width if drafted else 1.0


def measure_sides(file: Path) -> tuple[int, int] | None:
    """The sides of an image in pixels, the shorter first, from its header; None where none can be read."""
    try:
        with configure_pillow(), open_image(file) as image:
            short, long = sorted(image.size)
            weigh(image, draft(image, 8))
            return short, long
    except Exception:  # as in `attempt`: the reason is given when the image itself is read
        return None


def measure_side(file: Path) -> int | None:
    """The shorter of them."""
    sides = measure_sides(file)
    return None if sides is None else sides[0]


def explain(error: Exception) -> str:
    """Why a file could not be read, in words for the person who owns it."""
    match error:
        case UnidentifiedImageError():
            return f"not an image of a kind that is read ({', '.join(FORMATS)}); save it as JPEG or PNG"
        case Image.DecompressionBombError():  # of the size, before `weigh` could see it
            return "more pixels than can be read; scale it down"
        case UnicodeEncodeError():
            return "its name is not valid text; rename it"
        case OSError(strerror=str(text)):
            return text
        case ValueError() if str(error):  # ours say it all
            return str(error)
        case _:
            return f"damaged ({str(error) or type(error).__name__})"
