"""Real image files for the tests."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int = 0, width: int = 12, height: int = 12) -> Image.Image:
    """A picture of coloured noise."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def save(path: Path, image: Image.Image | None = None, **options) -> Path:
    """Write a picture, and the folders on the way to it. Without one, a picture that depends on the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or picture(sum(str(path).encode(errors="surrogateescape")))).save(path, **options)
    return path
