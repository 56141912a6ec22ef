"""Image files in folders and manifests, listed without reading a pixel."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.data.decoding import ENDINGS, Box, hidden, image_names
from newfound.data.manifests import MANIFESTS, entries, is_manifest, same
from newfound.errors import InputError, listing

NEEDED = f"a folder of images, or a list of them ending in {' '.join(MANIFESTS)}"


@dataclass(frozen=True, eq=False)
class Pictures:
    """Image files that nobody has read yet: where each lies, what it is called, and its label."""

    files: tuple[Path, ...]
    names: tuple[str, ...]  # what a person recognises it by: the path below the folder, or as the manifest wrote it
    labels: Int[Tensor, " n"]  # −1 where unlabelled
    classes: tuple[str, ...]  # names of the labels
    boxes: tuple[Box | None, ...]  # the part of the image that is meant; None: all of it
    groups: tuple[str, ...]  # dive, burst or camera: images of one belong together; "" where none was given
    skipped: tuple[str, ...] = ()  # what was left out, each with its reason

    def __len__(self) -> int:
        return len(self.names)

    def pick(self, rows: Int[Tensor, " rows"]) -> "Pictures":
        """Some of the images, in the order of `rows`. The classes stay; what was skipped belongs to the whole."""
        return Pictures(
            files=tuple(self.files[row] for row in rows.tolist()),
            names=tuple(self.names[row] for row in rows.tolist()),
            labels=self.labels[rows],
            classes=self.classes,
            boxes=tuple(self.boxes[row] for row in rows.tolist()),
            groups=tuple(self.groups[row] for row in rows.tolist()),
        )


def pictures(place: str | Path, *, labelled: bool) -> Pictures:
    """The images in a folder, or those that a manifest lists: a table (.csv, .tsv, .jsonl) or a COCO file (.json); or
    one image, where no label is asked for.

    A labelled folder has a folder for each class. A manifest has a row for each image, or for each box in one; its
    paths start at its own folder. The labels of a manifest that is taken as unlabelled are not looked at.
    """
    place = Path(place).expanduser()
    if is_manifest(place):
        return manifest(place, labelled=labelled)
    if not labelled and place.suffix.lower() in ENDINGS and place.is_file():
        return below(place.parent, [place.name], torch.tensor([-1]), (), ())
    root = existing(place, NEEDED)
    return class_pictures(root) if labelled else loose_pictures(root)


def truth(
    place: str | Path, names: Sequence[str], boxes: Sequence[Box | None]
) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The truth of unlabelled images that were listed from this place, and the classes' names. For metrics alone.

    In a folder it is the first folder on the way to an image, in a manifest its label.
    """
    place = Path(place).expanduser()
    if not is_manifest(place):
        existing(place, NEEDED)
        return first_folders(names)
    answers = manifest(place, labelled=True)
    known = {
        same(file, box): answers.classes[label]
        for file, box, label in zip(answers.files, answers.boxes, answers.labels.tolist(), strict=True)
    }
    words = [known.get(same(place.parent / name, box), "") for name, box in zip(names, boxes, strict=True)]
    if lacking := [repr(name) for name, word in zip(names, words, strict=True) if not word]:
        raise InputError(
            f"Images without a label in {place}: {listing(lacking)}. Needed, to know the truth: a label for each. "
            "Fill in the labels, or do without the truth."
        )
    classes = tuple(sorted(set(words)))
    return places(words, classes), classes


def without(pictures: Pictures, reasons: Mapping[int, str]) -> Pictures:
    """The pictures that could be read; the rows of the others are told, each with its reason."""
    kept = pictures.pick(torch.tensor([row for row in range(len(pictures)) if row not in reasons], dtype=torch.long))
    unread = [f"{pictures.names[row]!r}{at(pictures.boxes[row])}: {reason}" for row, reason in reasons.items()]
    return replace(kept, skipped=tuple(sorted((*pictures.skipped, *unread))))


def at(box: Box | None) -> str:
    """Where in an image, to be said after its name."""
    return "" if box is None else f" at x={box.x:g}, y={box.y:g}"


def first_folders(names: Sequence[str]) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The truth of images whose folders are named after the real classes, and those names."""
    if loose := [name for name in names if "/" not in name]:
        raise InputError(
            f"Images that lie in no folder: {listing(map(repr, loose))}. Needed, to know the truth: each image in a "
            "folder named after its real class. Move them there, or do without the truth."
        )
    classes = tuple(sorted(set(map(top, names))))
    return places(map(top, names), classes), classes


def class_pictures(root: Path) -> Pictures:
    """Labelled images: each folder in `root` is a class, and its images lie anywhere below it."""
    found, reasons = image_names(root)
    names = [name for name in found if "/" in name]
    inside = [entry for entry in root.iterdir() if not hidden(entry.name)]
    folders = {entry.name for entry in inside if os.path.isdir(entry)}  # noqa: PTH112 (it raises in locked folders)
    if not folders:
        raise InputError(
            f"{root} holds {len(found)} images and no folders. Needed: a folder for each class, with its images in it. "
            "Sort the images into folders named after their classes."
        )
    if empty := sorted(folders - set(map(top, names)) - set(map(top, reasons))):
        raise InputError(
            f"Class folders without images in {root}: {listing(map(repr, empty))}. "
            f"Needed: files ending in {' '.join(ENDINGS)}. Put some in, or take the folders away."
        )
    if not names:
        raise InputError(
            f"None of the class folders in {root} can be opened. Needed: the right to read them. "
            f"Change their permissions. Found: {listing(told(reasons))}."
        )
    classes = tuple(sorted(set(map(top, names))))
    stray = {name: "lies beside the class folders, not in one" for name in found if "/" not in name}
    return below(root, names, places(map(top, names), classes), classes, told(reasons | stray))


def loose_pictures(root: Path) -> Pictures:
    """Unlabelled images: all that lie in `root` or anywhere below it."""
    names, reasons = image_names(root)
    if not names:
        shut = f" Found: {listing(told(reasons))}." if reasons else ""
        raise InputError(
            f"{root} holds no images. Needed: files ending in {' '.join(ENDINGS)}, in it or anywhere below. "
            f"Check that it is the right folder.{shut}"
        )
    return below(root, names, torch.full((len(names),), -1), (), told(reasons))


def below(
    root: Path, names: Sequence[str], labels: Int[Tensor, " n"], classes: tuple[str, ...], skipped: tuple[str, ...]
) -> Pictures:
    """Whole images that lie below a folder, each called by its path there."""
    files, n = tuple(root / name for name in names), len(names)
    return Pictures(files, tuple(names), labels, classes, (None,) * n, ("",) * n, skipped)


def manifest(place: Path, *, labelled: bool) -> Pictures:
    """The images or boxes that a file lists, in its order; those that cannot be used are told with their row."""
    rows, skipped = entries(place, labelled=labelled)
    _, files, names, words, boxes, groups = zip(*rows, strict=True)
    classes = tuple(sorted(set(words))) if labelled else ()
    labels = places(words, classes) if labelled else torch.full((len(words),), -1)
    return Pictures(files, names, labels, classes, boxes, groups, skipped)


def existing(root: str | Path, needed: str = "a folder of images") -> Path:
    """The folder that a person named; it must be one."""
    root = Path(root).expanduser()
    try:
        if stat.S_ISDIR(root.stat().st_mode):
            return root
        found = "is a file"
    except (FileNotFoundError, NotADirectoryError):
        found = "does not exist"
    except OSError as error:  # a folder above it is locked, or links go in a circle
        found = f"cannot be opened: {error.strerror}"
    raise InputError(f"{root} {found}. Needed: {needed}. Check the path.")


def top(name: str) -> str:
    """The first folder on the way to an image."""
    return name.split("/", 1)[0]


def places(words: Iterable[str], classes: Sequence[str]) -> Int[Tensor, " n"]:
    """The place of each word among the classes."""
    place = {name: place for place, name in enumerate(classes)}
    return torch.tensor([place[word] for word in words])


def told(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each file and its reason; quoted, since a file name may hold anything."""
    return tuple(f"{name!r}: {reason}" for name, reason in sorted(reasons.items()))
