"""Small datasets that a machine has or can get without an account: digits and clothes."""

import gzip
import math
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from newfound.data.pictures import existing
from newfound.data.sources import Images, arrays
from newfound.errors import InputError

CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts it."""


def digits() -> Images:
    """scikit-learn's 1797 handwritten digits (Alpaydin & Kaynak 1998), each of its 8 × 8 pixels four times as long and
    as wide: 32 × 32, one channel.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.images * (255 / 16)).round().astype(np.uint8)
    return arrays(pixels.repeat(4, 1).repeat(4, 2), found.target, [str(digit) for digit in range(10)])


def fashion_mnist(root: str | Path = FASHION_MNIST) -> Images:
    """Fashion-MNIST's 60 000 training images (Xiao et al. 2017), 28 × 28, one channel, from its two gzipped files."""
    folder = existing(root)
    pixels = _idx(folder / "train-images-idx3-ubyte.gz")
    labels = _idx(folder / "train-labels-idx1-ubyte.gz")
    if pixels.shape != (len(labels), 28, 28):
        raise InputError(
            f"{folder} has images of the shape {pixels.shape} and {len(labels)} labels. Needed: n × 28 × 28 and n. "
            "Get Fashion-MNIST's files again."
        )
    return arrays(pixels, labels.astype(np.int64), CLOTHES)


def _idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """An array of bytes as MNIST's files have it: two zeros, the type 8, the number of sides, their lengths, values."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read ({error}). Needed: one of Fashion-MNIST's files, gzipped.") from error
    sides = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    shape = [int.from_bytes(content[4 * side : 4 * side + 4], "big") for side in range(1, sides + 1)]
    values = np.frombuffer(content[4 + 4 * sides :], np.uint8)
    if sides == 0 or len(content) != 4 + 4 * sides + math.prod(shape):
        raise InputError(f"{path} is no array of bytes as MNIST's files have it. Get Fashion-MNIST's files again.")
    return values.reshape(shape)
