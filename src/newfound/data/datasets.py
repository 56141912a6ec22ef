"""Datasets that others have made, by name: how each is read and fetched, and which of its classes are called known.

Every dataset has a line in `DATASETS`; nothing about one is derived from its name or its number of classes.
"""

import gzip
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from newfound.data.cifar import CIFAR10, CIFAR100, check_cifar, fetch_cifar, read_cifar
from newfound.data.listing import check_folder
from newfound.data.pixels import Images, arrays
from newfound.data.splits import Split, SplitClasses, split_by_class
from newfound.errors import InputError, choices

CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts it."""


def load_doodles(group: str) -> Images:
    """The embedded sample: 100 drawings of each of 100 known, 10 novel or 10 spare categories of *Quick, Draw!*.

    28 × 28, one channel, ink 255 on 0 as the source has it. The spare categories are for tests and for choosing
    settings, so that the novel ones stay unseen. `scripts/embed_doodles.py` made the files and says how.
    """
    folder = resources.files("newfound.data") / "doodles"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    side, drawings, classes = index["side"], index["drawings"], index["groups"][group]
    with (folder / f"{group}.webp").open("rb") as file:
        mosaic = np.asarray(Image.open(file, formats=["WEBP"]).getchannel(0))  # WebP has no grey: three equal channels
    tiles = mosaic.reshape(len(classes), side, drawings, side).swapaxes(1, 2)
    return arrays(
        tiles.reshape(-1, side, side),
        labels=np.arange(len(classes)).repeat(drawings),
        classes=classes,
        names=[f"{name}/{drawing}" for name in classes for drawing in range(drawings)],
    )


def load_digits() -> Images:
    """scikit-learn's 1797 handwritten digits (Alpaydin & Kaynak 1998), each of its 8 × 8 pixels four times as long and
    as wide: 32 × 32, one channel.
    """
    from sklearn import datasets

    found = datasets.load_digits()
    pixels = (found.images * (255 / 16)).round().astype(np.uint8)
    return arrays(pixels.repeat(4, 1).repeat(4, 2), found.target, [str(digit) for digit in range(10)])


def load_fashion_mnist(root: str | Path | None = None) -> Images:
    """Fashion-MNIST's 60 000 training images (Xiao et al. 2017), 28 × 28, one channel, from its two gzipped files in
    `root`, or where Debian puts them.
    """
    folder = check_folder(FASHION_MNIST if root is None else root)
    pixels = read_idx(folder / "train-images-idx3-ubyte.gz")
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")
    if pixels.shape != (len(labels), 28, 28):
        raise InputError(
            f"{folder} has images of the shape {pixels.shape} and {len(labels)} labels. Needed: n × 28 × 28 and n. "
            "Get Fashion-MNIST's files again."
        )
    return arrays(pixels, labels.astype(np.int64), CLOTHES)


def read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
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


@dataclass(frozen=True)
class PublicDataset:
    """A dataset by its parts: how one is read, how the files are got, and how the field splits the classes."""

    classes: int  # in all parts together
    parts: tuple[str, ...]  # the first is the one that is meant where none is named
    load: Callable[[str | Path | None, str], Images]  # a folder, None where the machine has it; and a part
    splits: Mapping[str, SplitClasses]
    check: Callable[[str | Path | None], None] = lambda root: None  # refuse a folder before anything is read
    fetch: Callable[[str | Path], Path] | None = None  # into a folder; None: it cannot be fetched


DATASETS = {
    "cifar10": PublicDataset(
        classes=10,
        parts=("train", "test"),
        load=partial(read_cifar, CIFAR10),
        check=partial(check_cifar, CIFAR10),
        fetch=partial(fetch_cifar, CIFAR10),
        splits={"5-5": SplitClasses((*range(5),), (*range(5, 10),))},
    ),
    "cifar100": PublicDataset(
        classes=100,
        parts=("train", "test"),
        load=partial(read_cifar, CIFAR100),
        check=partial(check_cifar, CIFAR100),
        fetch=partial(fetch_cifar, CIFAR100),
        splits={
            "80-20": SplitClasses((*range(80),), (*range(80, 100),)),
            "50-50": SplitClasses((*range(50),), (*range(50, 100),)),
            "20-80": SplitClasses((*range(20),), (*range(20, 100),)),
            # DTC's: the ten between serve to estimate the number of classes
            "80-10": SplitClasses((*range(80),), (*range(90, 100),)),
        },
    ),
    "doodles": PublicDataset(
        classes=120,
        parts=("known", "novel", "spare"),
        load=lambda root, part: load_doodles(part),
        splits={},  # its parts are
    ),
    "digits": PublicDataset(
        classes=10,
        parts=("all",),
        load=lambda root, part: load_digits(),
        splits={
            "0-4": SplitClasses((*range(5),), (*range(5, 10),)),
            "5-9": SplitClasses((*range(5, 10),), (*range(5),)),
            "even": SplitClasses((*range(0, 10, 2),), (*range(1, 10, 2),)),
        },
    ),
    "fashion-mnist": PublicDataset(
        classes=10,
        parts=("train",),
        load=lambda root, part: load_fashion_mnist(root),
        splits={"5-5": SplitClasses((*range(5),), (*range(5, 10),))},
    ),
}
"""All there are. A split's name says nothing without its dataset."""


def load_dataset(name: str, root: str | Path | None = None, part: str | None = None) -> Images:
    """The labelled images of a dataset by its name: of its first part, or of the one named."""
    dataset = find_dataset(name)
    part = dataset.parts[0] if part is None else part
    if part not in dataset.parts:
        raise InputError(f"{name} has no part {part!r}. {choices(part, dataset.parts)}")
    return dataset.load(root, part)


def fetch_dataset(name: str, folder: str | Path) -> Path:
    """Get a dataset's files into a folder, and return the one they are in."""
    able = {name: dataset.fetch for name, dataset in DATASETS.items() if dataset.fetch is not None}
    if name not in able:
        raise InputError(f"There is no dataset {name!r} to get. {choices(name, able)}")
    return able[name](folder)


def split_classes(dataset: str, name: str) -> SplitClasses:
    """The classes of a split by its name: one of the field's, or the same with the classes in another order.

    `5-5@11` takes the order of `numpy.random.default_rng(11).permutation(10)`, and of it the first five as known.
    """
    of = find_dataset(dataset)
    base, permuted, seed = name.partition("@")
    if base not in of.splits or (permuted and not seed.isdecimal()):
        raise InputError(
            f"There is no split {name!r} of {dataset}. {choices(base, of.splits)} With @ and a number behind, as in "
            "5-5@11, the classes come in another order."
        )
    return of.splits[base].permute(of.classes, int(seed)) if permuted else of.splits[base]


def split_dataset(images: Images, dataset: str, name: str) -> Split:
    """Images of a dataset, split by a name as in `split_classes`."""
    known, novel = split_classes(dataset, name)
    if len(images.listing.classes) != (needed := DATASETS[dataset].classes):
        raise InputError(
            f"These images have {len(images.listing.classes)} classes. Needed for the split {name} of {dataset}: "
            f"{needed}. Take images of {dataset}, or another split."
        )
    return split_by_class(images, known, novel)


def find_dataset(name: str) -> PublicDataset:
    """The dataset of this name; an unknown one is refused with those that exist."""
    if name not in DATASETS:
        raise InputError(f"There is no dataset {name!r}. {choices(name, DATASETS)}")
    return DATASETS[name]
