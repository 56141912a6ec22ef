"""Real image files for the tests."""

import os
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from newfound.data.datasets import load_doodles
from tests.needs import need


def picture(seed: int = 0, width: int = 12, height: int = 12) -> Image.Image:
    """A picture of coloured noise."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def save(path: Path, image: Image.Image | None = None, **options) -> Path:
    """Write a picture, and the folders on the way to it. Without one, a picture that depends on the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or picture(sum(str(path).encode(errors="surrogateescape")))).save(path, **options)
    return path


@contextmanager
def locked(root: Path, *names: str) -> Iterator[Path]:
    """Take away the right to open some folders; gives the root, as seen from within it.

    Root may open everything. Then somebody else looks, who may not enter the folders above `root` either.
    """
    root.chmod(0o755)
    for name in names:
        (root / name).chmod(0)
    person = os.geteuid()
    try:
        with chdir(root):
            try:
                if person == 0:
                    try:
                        os.seteuid(65534)
                    except OSError:
                        need(False, "root, who may open everything, cannot become somebody else here")
                yield Path()
            finally:
                os.seteuid(person)  # before we leave: somebody else may not enter the folder that we came from
    finally:
        for name in names:
            (root / name).chmod(0o755)


def write_doodles(folder: Path, classes: Iterable[int], each: int, first: int = 0, scale: int = 1) -> None:
    """Drawings of the spare categories as files, one folder per category, so many times as large as they are."""
    drawings = load_doodles("spare")
    for label in classes:
        for number in range(first, first + each):
            path = folder / drawings.listing.classes[label] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = drawings.pixels[100 * label + number, 0].numpy()
            Image.fromarray(pixels).resize((28 * scale, 28 * scale)).save(path)
