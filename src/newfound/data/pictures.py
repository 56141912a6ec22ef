"""Image files in folders and manifests, listed without reading a pixel."""

import csv
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.data.decoding import ENDINGS, Box, hidden, image_names, reason
from newfound.errors import InputError

MANIFESTS = (".csv", ".json", ".jsonl", ".tsv")
PATHS = ("path", "file_name", "image", "filename")
LABELS = ("label", "class", "concept")
GROUPS = ("group", "sequence", "seq_id")
"""Of each kind, the first name that exists counts. A table has no group but `group`: sequence may mean much there."""

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
    """The images in a folder, or those that a manifest lists: a table (.csv, .tsv, .jsonl) or a COCO file (.json).

    A labelled folder has a folder for each class. A manifest has a row for each image, or for each box in one; its
    paths start at its own folder. The labels of a manifest that is taken as unlabelled are not looked at.
    """
    place = Path(place).expanduser()
    if is_manifest(place):
        return manifest(place, labelled=labelled)
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
    folders = {entry.name for entry in root.iterdir() if entry.is_dir() and not hidden(entry.name)}
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


class Record(NamedTuple):
    """What a manifest says of one image or box, as it is written."""

    where: str  # "row 3", "line 3" or "annotations[3]": how a person finds it
    values: Mapping[str, object]  # by column
    fault: str = ""  # why it cannot be used, where that was seen already


class Row(NamedTuple):
    """A record that can be used."""

    where: str
    file: Path
    name: str
    word: str  # its label
    box: Box | None
    group: str


def manifest(place: Path, *, labelled: bool) -> Pictures:
    """The images or boxes that a file lists, in its order; those that cannot be used are told with their row."""
    records = read(place)
    path, label = columns(place, records, labelled=labelled)
    found: dict[tuple[str, Box | None], Row] = {}
    skipped = []
    for record in records:
        name = record.values.get(path)
        called = f"{name!r} in {record.where}" if name else record.where
        try:
            row = usable(record, place.parent, path, label)
        except (OSError, ValueError) as error:
            skipped.append(f"{called}: {reason(error)}")
            continue
        twin = found.setdefault(same(row.file, row.box), row)
        if twin.word != row.word:
            raise InputError(
                f"{place} has {name!r} twice: {twin.word!r} in {twin.where}, {row.word!r} in {row.where}. "
                "Needed: one label for each image, or for each box in it. Correct one of the two, or take both out."
            )
        if twin is not row:
            skipped.append(f"{called}: the same as {twin.where}")
    if not found:
        raise InputError(
            f"None of the {len(records)} entries of {place} can be used. Needed: one or more. "
            f"Correct them; paths start at {place.parent}. Found: {listing(skipped)}."
        )
    _, files, names, words, boxes, groups = zip(*found.values(), strict=True)
    classes = tuple(sorted(set(words))) if labelled else ()
    labels = places(words, classes) if labelled else torch.full((len(words),), -1)
    return Pictures(files, names, labels, classes, boxes, groups, tuple(skipped))


def columns(place: Path, records: Sequence[Record], *, labelled: bool) -> tuple[str, str]:
    """What the columns of the paths and of the labels are called; "" for labels that are not wanted."""
    found = list(dict.fromkeys(column for record in records for column in record.values))
    has = f"{place} has the columns {', '.join(map(repr, found))}."

    def first(names: Sequence[str], meaning: str) -> str:
        if there := [name for name in names if name in found]:
            return there[0]
        raise InputError(
            f"{has} Needed: one with the {meaning}, called {', '.join(names[:-1])} or {names[-1]}. "
            "Rename it so; columns are separated by commas in a .csv, by tabs in a .tsv."
        )

    if 0 < len(sides := [side for side in Box._fields if side in found]) < 4:
        raise InputError(
            f"{has} Needed: x, y, width and height of a box, or none of them. "
            f"Add the others, or rename {' and '.join(sides)}."
        )
    return first(PATHS, "paths of the images"), first(LABELS, "labels") if labelled else ""


def usable(record: Record, folder: Path, path: str, label: str) -> Row:
    """A record whose file exists, with its label and box; any other raises the reason why not."""
    if record.fault:
        raise ValueError(record.fault)
    name, group = text(record.values.get(path)), text(record.values.get("group"))
    word = text(record.values.get(label)) if label else ""
    f"{name}{word}{group}".encode()  # fails for what JSON can write and no file hold
    if not name.strip():
        raise ValueError("no path")
    if label and not word.strip():
        raise ValueError("no label")
    file = folder / name
    try:
        is_folder = stat.S_ISDIR(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError("does not exist") from None
    if is_folder:
        raise ValueError("is a folder, not an image")
    return Row(record.where, file, name, word.strip(), boxed(record.values), group.strip())


def boxed(values: Mapping[str, object]) -> Box | None:
    """The box that a record gives; None where it gives none."""
    words = [text(values.get(side)).strip() for side in Box._fields]
    if not any(words):
        return None
    try:
        box = Box(*map(float, words))
    except ValueError:
        box = Box(0, 0, 0, 0)
    if not all(map(math.isfinite, box)) or min(box.width, box.height) <= 0:
        raise ValueError(
            f"x, y, width, height are {', '.join(map(repr, words))}; needed: four numbers, the last two above 0"
        )
    return box


def text(value: object) -> str:
    """A word or a number as text; "" for nothing, and for NaN, as which tables write nothing into JSON."""
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"a {type(value).__name__} where text or a number is needed")
    return "" if value is None or value != value else str(value)


def read(place: Path) -> list[Record]:
    """The records of a manifest, by the ending of its name."""
    try:
        content = place.read_bytes()
    except OSError as error:
        raise InputError(
            f"{place} cannot be opened: {error.strerror}. Needed: the right to read it. Change its permissions."
        ) from error
    try:
        written = content.decode("utf-8-sig")  # Excel begins with a mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"Line {line} of {place} is not UTF-8. Needed: text in UTF-8. Save it so; Excel calls it CSV UTF-8."
        ) from error
    if not written.strip():
        raise InputError(f"{place} is empty. Needed: a list of images. Check that it is the right file.")
    match place.suffix.lower():
        case ".json":
            records = coco(place, written)
        case ".jsonl":
            records = lines(place, written)
        case ".tsv":
            records = table(place, written, "\t")
        case _:
            records = table(place, written, ",")
    if not records:
        raise InputError(f"{place} lists no images. Needed: one or more. Check that it is the right file.")
    return records


def table(place: Path, written: str, separator: str) -> list[Record]:
    """The rows of a table below its header, numbered as a spreadsheet does; empty ones do not count."""
    header: list[str] = []
    records: list[Record] = []
    row = 0
    try:
        for row, values in enumerate(csv.reader(StringIO(written, newline=""), delimiter=separator, strict=True), 1):
            if not any(map(str.strip, values)):
                continue
            if not header:
                header = [column.strip().lower() for column in values]
                continue
            more = any(map(str.strip, values[len(header) :]))
            fault = f"{len(values)} values for {len(header)} columns; put quotes around those with a separator in them"
            records.append(Record(f"row {row}", dict(zip(header, values, strict=False)), fault if more else ""))
    except csv.Error as error:
        raise InputError(
            f"Row {row + 1} of {place} cannot be read: {error}. Needed: a quote at both ends of a value, or at none. "
            'Write a quote within quotes twice: "a ""b"" c".'
        ) from error
    used = (*PATHS, *LABELS, *Box._fields, "group")
    if twice := [column for column in used if header.count(column) > 1]:
        raise InputError(
            f"{place} has several columns called {listing(map(repr, twice))}. Needed: each name once. Rename them."
        )
    return records


def lines(place: Path, written: str) -> list[Record]:
    """A JSON object a line; empty lines do not count."""
    records = []
    for number, line in enumerate(written.split("\n"), 1):  # splitlines would also split within strings
        if not line.strip():
            continue
        values = parsed(place, line, number)
        if not isinstance(values, dict):
            raise InputError(
                f"Line {number} of {place} holds a {type(values).__name__}. Needed: an object, such as "
                '{"path": "1.jpg"}. Write one a line; a COCO file ends in .json.'
            )
        records.append(Record(f"line {number}", {name.strip().lower(): value for name, value in values.items()}))
    return records


def coco(place: Path, written: str) -> list[Record]:
    """The annotations of a COCO file, then the images that have none."""
    content = parsed(place, written)
    images, annotations = objects(place, content, "images"), objects(place, content, "annotations")
    image_of = numbered(place, "images", images)
    category_of = numbered(place, "categories", objects(place, content, "categories"))
    records = []
    for number, annotation in enumerate(annotations):
        image = image_of.get(owner := str(annotation.get("image_id")))
        category = category_of.get(str(annotation.get("category_id")), {})
        box = annotation.get("bbox")
        four = box if isinstance(box, list) and len(box) == 4 else (box, None, None, None)
        values = about(image or {}) | {"label": category.get("name")} | dict(zip(Box._fields, four, strict=True))
        fault = "" if image else f"no image has the id {owner}"
        records.append(Record(f"annotations[{number}]", values, fault))
    seen = {str(annotation.get("image_id")) for annotation in annotations}
    records += [
        Record(f"images[{number}]", about(image)) for number, image in enumerate(images) if str(image["id"]) not in seen
    ]
    return records


def about(image: Mapping[str, Any]) -> dict[str, object]:
    """What a COCO file says of an image, by the columns of a table; its width and height are no box."""
    path, group = (next((image[name] for name in names if name in image), None) for names in (PATHS, GROUPS))
    return {"path": path, "label": None, "group": group}


def objects(place: Path, content: object, part: str) -> list[dict[str, Any]]:
    """One of the lists in a COCO file; only the images must be there."""
    items = content.get(part, None if part == "images" else []) if isinstance(content, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(
            f"{place} has no list of objects called {part}. Needed: a COCO file, with images, annotations and "
            "categories. Write other lists as .jsonl, an object a line, or as .csv."
        )
    return items


def numbered(place: Path, part: str, items: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The images or categories of a COCO file by their id."""
    known: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(items):
        if known.setdefault(str(item.get("id")), item) is not item or "id" not in item:
            raise InputError(
                f"{part}[{number}] of {place} has the id {item.get('id')!r}. Needed: an id, and no other's. "
                "Number them anew, and what refers to them."
            )
    return known


def parsed(place: Path, written: str, line: int = 1) -> Any:
    """What some JSON means; it begins in this line of the file."""
    try:
        return json.loads(written)
    except json.JSONDecodeError as error:
        fault, line = error.msg, line + error.lineno - 1
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        fault = str(error)
    raise InputError(f"Line {line} of {place} is not JSON: {fault}. Needed: JSON. Check that the file is whole.")


def is_manifest(place: Path) -> bool:
    """Whether this is a file that may list images, by its ending."""
    return place.suffix.lower() in MANIFESTS and place.is_file()


def same(file: Path, box: Box | None) -> tuple[str, Box | None]:
    """What two rows share that mean the same pixels, however their paths are written."""
    return os.path.normpath(file.absolute()), box


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


def places(words: Iterable[str], classes: Sequence[str]) -> Int[Tensor, " n"]:
    """The place of each word among the classes."""
    place = {name: place for place, name in enumerate(classes)}
    return torch.tensor([place[word] for word in words])


def told(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each file and its reason; quoted, since a file name may hold anything."""
    return tuple(f"{name!r}: {reason}" for name, reason in sorted(reasons.items()))


def listing(items: Iterable[str]) -> str:
    """The first three, and how many more there are."""
    items = list(items)
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
