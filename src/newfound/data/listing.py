"""Images by name: those in a folder, or those that a manifest lists. No pixel is read here."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.data.decoding import Box
from newfound.data.manifests import MANIFESTS, is_manifest, pixel_key, read_manifest
from newfound.errors import InputError, check_name, counted, shorten

ENDINGS = (".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Files taken for images. Pillow needs a plugin for HEIC: without it such photos are skipped aloud, not overlooked."""

NEEDED = f"a folder of images, or a list of them ending in {' '.join(MANIFESTS)}"


@dataclass(frozen=True, eq=False)
class Listing:
    """Images by name: where each lies, what it is called, its label. Nothing is decoded.

    An absolute name says by itself where its image lies; the others start at `root`.
    """

    root: Path | None  # as it was given; None: the images came from memory
    names: tuple[str, ...]  # what a person recognises each by: the path below root, or as the manifest wrote it
    labels: Int[Tensor, " n"]  # −1 where unlabelled
    classes: tuple[str, ...]  # names of the labels
    boxes: tuple[Box | None, ...]  # the part of its file that each is; None: all of it
    groups: tuple[str, ...]  # dive, burst or camera: images of one belong together; "" where none was given
    skipped: tuple[str, ...] = ()  # what was left out, each with its reason

    def __post_init__(self) -> None:
        n = len(self.names)
        if not n == len(self.labels) == len(self.boxes) == len(self.groups):
            raise ValueError(
                f"Found {n} names, {len(self.labels)} labels, {len(self.boxes)} boxes and {len(self.groups)} groups. "
                "Needed: one of each for every image."
            )

    @staticmethod
    def of(
        names: Sequence[str],
        labels: Int[Tensor, " n"] | None = None,
        classes: Sequence[str] = (),
        *,
        root: Path | None = None,
        boxes: Sequence[Box | None] | None = None,
        groups: Sequence[str] | None = None,
        skipped: Sequence[str] = (),
    ) -> "Listing":
        """A listing from names alone; whatever else is left out is −1, all of the image, or nothing."""
        n = len(names)
        return Listing(
            root,
            tuple(names),
            torch.full((n,), -1) if labels is None else labels,
            tuple(classes),
            (None,) * n if boxes is None else tuple(boxes),
            ("",) * n if groups is None else tuple(groups),
            tuple(skipped),
        )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        there = "from memory" if self.root is None else f"in {str(self.root)!r}"
        kinds = f" of {counted(len(self.classes), 'class', 'classes')}" if self.classes else ""
        return f"Listing of {counted(len(self), 'image')}{kinds} {there}, {len(self.skipped)} left out"

    @property
    def listing(self) -> "Listing":
        """Itself: images have a listing, whether or not anybody has read them."""
        return self

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Where each image lies."""
        if self.root is None:
            raise InputError(
                f"These {len(self)} images came from memory; they lie in no folder. Needed: images that were listed "
                "from a folder or a manifest. Write them to files, and list those."
            )
        return tuple(self.root / name for name in self.names)

    def pick(self, rows: Int[Tensor, " rows"]) -> "Listing":
        """Some of the images, in the order of `rows`. The classes stay; what was skipped belongs to the whole."""
        chosen = rows.tolist()
        return Listing(
            self.root,
            tuple(self.names[row] for row in chosen),
            self.labels[rows],
            self.classes,
            tuple(self.boxes[row] for row in chosen),
            tuple(self.groups[row] for row in chosen),
        )

    def without(self, reasons: Mapping[int, str]) -> "Listing":
        """The images but those of some rows, which are skipped, each with its reason."""
        kept = self.pick(torch.tensor([row for row in range(len(self)) if row not in reasons], dtype=torch.long))
        unread = [f"{self.names[row]!r}{describe_box(self.boxes[row])}: {reason}" for row, reason in reasons.items()]
        return replace(kept, skipped=tuple(sorted((*self.skipped, *unread))))


def list_images(place: str | Path, *, labelled: bool) -> Listing:
    """The images in a folder, or those that a manifest lists: a table (.csv, .tsv, .jsonl) or a COCO file (.json); or
    one image, where no label is asked for.

    A labelled folder has a folder for each class. A manifest has a row for each image, or for each box in one; its
    paths start at its own folder. The labels of a manifest that is taken as unlabelled are not looked at.
    """
    place = Path(place).expanduser()
    if is_manifest(place):
        return list_manifest(place, labelled=labelled)
    if not labelled and place.suffix.lower() in ENDINGS and place.is_file():
        return Listing.of([place.name], root=place.parent)
    root = check_folder(place, NEEDED)
    return list_class_folders(root) if labelled else list_unlabelled(root)


def list_class_folders(root: Path) -> Listing:
    """Labelled images: each folder in `root` is a class, and its images lie anywhere below it."""
    found, reasons = find_images(root)
    names = [name for name in found if "/" in name]
    inside = [entry for entry in root.iterdir() if not is_hidden(entry.name)]
    folders = {entry.name for entry in inside if os.path.isdir(entry)}  # noqa: PTH112 (it raises in locked folders)
    if not folders:
        raise InputError(
            f"{root} holds {len(found)} images and no folders. Needed: a folder for each class, with its images in it. "
            "Sort the images into folders named after their classes."
        )
    if empty := sorted(folders - set(map(first_folder, names)) - set(map(first_folder, reasons))):
        raise InputError(
            f"Class folders without images in {root}: {shorten(map(repr, empty))}. "
            f"Needed: files ending in {' '.join(ENDINGS)}. Put some in, or take the folders away."
        )
    if not names:
        raise InputError(
            f"None of the class folders in {root} can be opened. Needed: the right to read them. "
            f"Change their permissions. Found: {shorten(describe_skipped(reasons))}."
        )
    labels, classes = encode_labels(map(first_folder, names))
    stray = {name: "lies beside the class folders, not in one" for name in found if "/" not in name}
    return Listing.of(names, labels, classes, root=root, skipped=describe_skipped(reasons | stray))


def list_unlabelled(root: Path) -> Listing:
    """Unlabelled images: all that lie in `root` or anywhere below it."""
    names, reasons = find_images(root)
    if not names:
        shut = f" Found: {shorten(describe_skipped(reasons))}." if reasons else ""
        raise InputError(
            f"{root} holds no images. Needed: files ending in {' '.join(ENDINGS)}, in it or anywhere below. "
            f"Check that it is the right folder.{shut}"
        )
    return Listing.of(names, root=root, skipped=describe_skipped(reasons))


def list_manifest(place: Path, *, labelled: bool) -> Listing:
    """The images or boxes that a file lists, in its order; those that cannot be used are skipped with their row."""
    rows, skipped = read_manifest(place, labelled=labelled)
    labels, classes = encode_labels(row.label for row in rows) if labelled else (None, ())
    return Listing.of(
        [row.name for row in rows],
        labels,
        classes,
        root=place.parent,
        boxes=[row.box for row in rows],
        groups=[row.group for row in rows],
        skipped=skipped,
    )


def read_truth(
    place: str | Path, names: Sequence[str], boxes: Sequence[Box | None]
) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The truth of unlabelled images that were listed from this place, and the classes' names. For metrics alone.

    In a folder it is the first folder on the way to an image, in a manifest its label.
    """
    place = Path(place).expanduser()
    if not is_manifest(place):
        check_folder(place, NEEDED)
        return label_by_folder(names)
    answers = list_manifest(place, labelled=True)
    label_of = {
        pixel_key(file, box): answers.classes[label]
        for file, box, label in zip(answers.files, answers.boxes, answers.labels.tolist(), strict=True)
    }
    found = [label_of.get(pixel_key(place.parent / name, box), "") for name, box in zip(names, boxes, strict=True)]
    if lacking := [repr(name) for name, label in zip(names, found, strict=True) if not label]:
        raise InputError(
            f"Images without a label in {place}: {shorten(lacking)}. Needed, to know the truth: a label for each. "
            "Fill in the labels, or do without the truth."
        )
    return encode_labels(found)


def label_by_folder(names: Sequence[str]) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The truth of images whose folders are named after the real classes, and those names."""
    if loose := [name for name in names if "/" not in name]:
        raise InputError(
            f"Images that lie in no folder: {shorten(map(repr, loose))}. Needed, to know the truth: each image in a "
            "folder named after its real class. Move them there, or do without the truth."
        )
    return encode_labels(map(first_folder, names))


def encode_labels(words: Iterable[str]) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """Labels that were written as words as numbers, and the classes that these count: the words, sorted."""
    words = list(words)
    classes = tuple(sorted(set(words)))
    number = {name: label for label, name in enumerate(classes)}
    return torch.tensor([number[word] for word in words], dtype=torch.long), classes


def find_images(root: Path) -> tuple[list[str], dict[str, str]]:
    """Paths, below the folder, of the image files in it, sorted as text, and why folders in it cannot be opened.

    Hidden ones do not count. Links are followed; a folder to which several lead is visited once, so a loop ends.
    """
    paths: list[Path] = []
    reasons: dict[str, str] = {}
    visited: set[str] = set()

    def note(error: OSError) -> None:
        folder = Path(error.filename)
        if folder == root:
            raise InputError(
                f"The folder {folder} cannot be opened: {error.strerror}. Needed: the right to read it. "
                "Change its permissions, or give another."
            ) from error
        reasons[folder.relative_to(root).as_posix()] = f"cannot be opened: {error.strerror}"

    for folder, below, files in os.walk(root, onerror=note, followlinks=True):
        if (real := os.path.realpath(folder)) in visited:
            below.clear()
            continue
        visited.add(real)
        below[:] = sorted(name for name in below if not is_hidden(name))
        paths += [Path(folder, file) for file in files if file.lower().endswith(ENDINGS) and not is_hidden(file)]
    return sorted(path.relative_to(root).as_posix() for path in paths), reasons


def is_hidden(name: str) -> bool:
    """Whether a file or folder is not meant to be seen, such as the ._IMG.jpg that macOS leaves beside IMG.jpg."""
    return name.startswith(".")


def check_folder(root: str | Path, needed: str = "a folder of images") -> Path:
    """The folder that a person named; what is none is refused."""
    root = Path(root).expanduser()
    check_name(root, "Rename the folder.")
    try:
        if stat.S_ISDIR(root.stat().st_mode):
            return root
        found = "is a file"
    except (FileNotFoundError, NotADirectoryError):
        found = "does not exist"
    except OSError as error:  # a folder above it is locked, or links go in a circle
        found = f"cannot be opened: {error.strerror}"
    raise InputError(f"{root} {found}. Needed: {needed}. Check the path.")


def first_folder(name: str) -> str:
    """The first folder on the way to an image."""
    return name.split("/", 1)[0]


def describe_box(box: Box | None) -> str:
    """Where in an image, to be said after its name."""
    return "" if box is None else f" at x={box.x:g}, y={box.y:g}"


def describe_skipped(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each file and its reason; quoted, since a file name may hold anything."""
    return tuple(f"{name!r}: {reason}" for name, reason in sorted(reasons.items()))
