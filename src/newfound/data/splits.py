"""Known and novel classes, labelled and unlabelled images, and care that the two share nothing."""

import hashlib
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from newfound.data.collection import Collection
from newfound.data.decoding import image_names
from newfound.data.pictures import existing
from newfound.data.sources import Images
from newfound.errors import InputError, choices, listing


class Classes(NamedTuple):
    """Which classes of a dataset are known, and which are novel."""

    dataset: str
    known: tuple[int, ...]
    novel: tuple[int, ...]


CIFAR_SPLITS = {
    "5-5": Classes("cifar10", (*range(5),), (*range(5, 10),)),
    "80-20": Classes("cifar100", (*range(80),), (*range(80, 100),)),
    "50-50": Classes("cifar100", (*range(50),), (*range(50, 100),)),
    "20-80": Classes("cifar100", (*range(20),), (*range(20, 100),)),
    # DTC's: the ten between serve to estimate the number of classes
    "80-10": Classes("cifar100", (*range(80),), (*range(90, 100),)),
}
"""The field's splits."""

COUNTS = {"cifar10": 10, "cifar100": 100}
"""How many classes a dataset has."""


def split_classes(name: str) -> Classes:
    """The classes of a split by its name: one of the field's, or the same with the classes in another order.

    `5-5@11` takes the order of `numpy.random.default_rng(11).permutation(10)`, and of it the first five as known.
    """
    base, permuted, seed = name.partition("@")
    if base not in CIFAR_SPLITS or (permuted and not seed.isdecimal()):
        raise InputError(
            f"There is no split {name!r}. {choices(base, CIFAR_SPLITS)} With @ and a number behind, as in 5-5@11, the "
            "classes come in another order."
        )
    split = CIFAR_SPLITS[base]
    if not permuted:
        return split
    order = np.random.default_rng(int(seed)).permutation(COUNTS[split.dataset]).tolist()
    known, novel = (tuple(order[place] for place in part) for part in (split.known, split.novel))
    return Classes(split.dataset, known, novel)


@dataclass(frozen=True, eq=False)
class Split:
    """Images of known classes with their labels, images of novel classes without, and the truth kept apart."""

    known: Images
    novel: Images  # labels all −1, classes ()
    truth: Int[Tensor, " n"]  # of the novel images, for metrics alone
    novel_classes: tuple[str, ...]


def by_class(images: Images, known: Sequence[int], novel: Sequence[int]) -> Split:
    """Split labelled images by class; labels and truth count from 0 in the order in which the classes are given."""
    chosen = [*known, *novel]
    if not known or not novel or len(set(chosen)) < len(chosen):
        raise InputError(
            f"The known classes are {list(known)}, the novel ones {list(novel)}. "
            "Needed: one or more of each, and none twice. Give two lists that share no class."
        )
    if absent := sorted(set(chosen) - (set(images.labels.tolist()) - {-1})):
        raise InputError(
            f"Classes without an image: {listing(map(str, absent))}. Needed: labels that occur among the "
            f"{len(images.classes)} classes, counted from 0. Leave these out, or add images of them."
        )
    labelled, unlabelled = of_classes(images, known), of_classes(images, novel)
    unknown = torch.full_like(unlabelled.labels, -1)
    return Split(labelled, replace(unlabelled, labels=unknown, classes=()), unlabelled.labels, unlabelled.classes)


def of_classes(images: Images, classes: Sequence[int]) -> Images:
    """The images of some classes, which are numbered anew in the order given."""
    numbers = torch.full((len(images.classes) + 1,), -1)  # one more: the label −1 finds −1 in the last place
    numbers[list(classes)] = torch.arange(len(classes))
    labels = numbers[images.labels]
    rows = (labels >= 0).nonzero().squeeze(1)
    return replace(images.pick(rows), labels=labels[rows], classes=tuple(images.classes[label] for label in classes))


def cifar_split(images: Images, name: str) -> Split:
    """Images of CIFAR, split by a name as in `split_classes`."""
    dataset, known, novel = split_classes(name)
    if len(images.classes) != COUNTS[dataset]:
        raise InputError(
            f"These images have {len(images.classes)} classes. Needed for the split {name}: {COUNTS[dataset]}. "
            f"Take {dataset}, or another split."
        )
    return by_class(images, known, novel)


def check_leaks(labelled: Collection, unlabelled: Collection) -> None:
    """Refuse labelled and unlabelled images of which two are the same."""
    sides = [zip(images.marks(), images.names, strict=True) for images in (labelled, unlabelled)]
    refuse_shared(*sides)


def check_apart(known_root: str | Path, unlabelled_root: str | Path) -> None:
    """Refuse two folders that share an image file, or a copy of one, before anything is decoded.

    So one folder within the other is refused as well. Only files of equal size are compared by their bytes.
    """
    known, unlabelled = readable(known_root), readable(unlabelled_root)
    refuse_shared(marked(known, os.path.realpath), marked(unlabelled, os.path.realpath))
    sizes = {size(path) for path in known} & {size(path) for path in unlabelled} - {0}
    known, unlabelled = ([path for path in paths if size(path) in sizes] for paths in (known, unlabelled))
    refuse_shared(marked(known, digest), marked(unlabelled, digest))


def refuse_shared(labelled: Iterable[tuple[Hashable, str]], unlabelled: Iterable[tuple[Hashable, str]]) -> None:
    """Refuse two sets of (mark, name) in which a mark occurs on both sides."""
    owner = dict(labelled)
    pairs = [f"{owner[mark]!r} = {name!r}" for mark, name in unlabelled if mark in owner]
    if pairs:
        raise InputError(
            f"Images that are both labelled and unlabelled ({len(pairs)}): {listing(pairs)}. Needed: two sets that "
            "share no image, or what was taught would count as discovered. Take these out of one of the two."
        )


def marked(paths: Iterable[Path], mark: Callable[[Path], Hashable]) -> list[tuple[Hashable, str]]:
    """Each path with its mark before it; files that cannot be read after all are told when images are read."""
    found: list[tuple[Hashable, str]] = []
    for path in paths:
        with suppress(OSError):
            found.append((mark(path), str(path)))
    return found


def readable(root: str | Path) -> list[Path]:
    """The image files below a folder that can be opened; the others are told when images are read."""
    root = existing(root)
    names, _ = image_names(root)
    return [path for name in names if os.access(path := root / name, os.R_OK)]


def size(path: Path) -> int:
    """Bytes in a file; 0 where it has vanished meanwhile."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def digest(path: Path) -> bytes:
    """A fingerprint of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
