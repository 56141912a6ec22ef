"""Image folders, arrays, the embedded sample: all become `Images`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, Shaped, UInt8
from PIL import Image
from torch import Tensor

from newfound.data.decoding import ENDINGS, decode_all, hidden, image_names
from newfound.errors import InputError


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size in memory, what each is called, and its label."""

    pixels: UInt8[Tensor, "n channels height width"]  # channels 1 or 3
    names: tuple[str, ...]  # what a person recognises it by: the path below the folder, or "cat/17"
    labels: Int[Tensor, " n"]  # −1 where unlabelled
    classes: tuple[str, ...]  # names of the labels
    skipped: tuple[str, ...] = ()  # files that could not be read, each with its reason

    def __len__(self) -> int:
        return len(self.names)

    def pick(self, rows: Int[Tensor, " rows"]) -> "Images":
        """Some of the images, in the order of `rows`. The classes stay; what was skipped belongs to the whole."""
        names = tuple(self.names[row] for row in rows.tolist())
        return Images(self.pixels[rows], names, self.labels[rows], self.classes)


def class_folders(root: str | Path, size: int) -> Images:
    """Labelled images: each folder in `root` is a class, and its images lie anywhere below it."""
    root = existing(root)
    found = image_names(root)
    names = [name for name in found if "/" in name]
    classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not hidden(entry.name)))
    if not classes:
        raise InputError(
            f"{root} holds {len(found)} images and no folders. Needed: a folder for each class, with its images in it. "
            "Sort the images into folders named after their classes."
        )
    if empty := sorted(set(classes) - set(map(top, names))):
        raise InputError(
            f"Class folders without images in {root}: {listing(map(repr, empty))}. "
            f"Needed: files ending in {' '.join(ENDINGS)}. Put some in, or take the folders away."
        )
    pixels, reasons = decode_all(root, names, size)
    kept = tuple(name for name in names if name not in reasons)
    if lost := sorted(set(classes) - set(map(top, kept))):
        theirs = {name: reason for name, reason in reasons.items() if top(name) in lost}
        raise InputError(
            f"Class folders without a readable image in {root}: {listing(map(repr, lost))}. "
            f"Needed: one or more in each. Replace the files, or take the folders away. Found: {listing(told(theirs))}."
        )
    stray = {name: "lies beside the class folders, not in one" for name in found if "/" not in name}
    return Images(pixels, kept, label(kept, classes), classes, told(reasons | stray))


def pile(root: str | Path, size: int) -> Images:
    """Unlabelled images: all that lie in `root` or anywhere below it."""
    root = existing(root)
    names = image_names(root)
    if not names:
        raise InputError(
            f"{root} holds no images. Needed: files ending in {' '.join(ENDINGS)}, in it or anywhere below. "
            "Check that it is the right folder."
        )
    pixels, reasons = decode_all(root, names, size)
    kept = tuple(name for name in names if name not in reasons)
    if not kept:
        raise InputError(
            f"None of the {len(names)} images in {root} can be read. Needed: one or more. Check that they are whole, "
            f"or save them as JPEG or PNG. Found: {listing(told(reasons))}."
        )
    return Images(pixels, kept, torch.full((len(kept),), -1), (), told(reasons))


def folder_truth(images: Images) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The truth of a pile whose folders are named after the real classes, and those names. For metrics alone."""
    if loose := [name for name in images.names if "/" not in name]:
        raise InputError(
            f"Images that lie in no folder: {listing(map(repr, loose))}. Needed, to know the truth: each image in a "
            "folder named after its real class. Move them there, or do without the truth."
        )
    classes = tuple(sorted(set(map(top, images.names))))
    return label(images.names, classes), classes


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


def existing(root: str | Path, needed: str = "a folder of images") -> Path:
    """The folder that a person named; it must be one."""
    root = Path(root).expanduser()
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise InputError(f"{root} {found}. Needed: {needed}. Check the path.")
    return root


def top(name: str) -> str:
    """The first folder on the way to an image."""
    return name.split("/", 1)[0]


def label(names: Sequence[str], classes: Sequence[str]) -> Int[Tensor, " n"]:
    """The place of each image's first folder among the classes."""
    place = {name: place for place, name in enumerate(classes)}
    return torch.tensor([place[top(name)] for name in names])


def told(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each file and its reason; quoted, since a file name may hold anything."""
    return tuple(f"{name!r}: {reason}" for name, reason in sorted(reasons.items()))


def listing(items: Iterable[str]) -> str:
    """The first three, and how many more there are."""
    items = list(items)
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
