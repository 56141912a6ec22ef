"""Manifests: files that list images, or boxes in them. What they say is checked here, row by row."""

import csv
import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from newfound.data.decoding import Box, explain
from newfound.errors import InputError, shorten, sized

MANIFESTS = (".csv", ".json", ".jsonl", ".tsv")
LARGEST = 1 << 29
"""Bytes of a manifest, at most: those of COCO's own annotations, the largest we know, are fewer."""

PATHS = ("path", "file_name", "image", "filename")
LABELS = ("label", "class", "concept")
GROUPS = ("group", "sequence", "seq_id")
"""Of each kind, the first name that exists counts. A table has no group but `group`: sequence may mean much there."""


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
    label: str
    box: Box | None
    group: str


def read_manifest(place: Path, *, labelled: bool) -> tuple[list[Row], tuple[str, ...]]:
    """The rows of a manifest that can be used, in its order; and what was left out, each with its place and reason."""
    records = read_records(place)
    path, label = find_columns(place, records, labelled=labelled)
    found: dict[tuple[str, Box | None], Row] = {}
    skipped = []
    for record in records:
        name = record.values.get(path)
        called = f"{name!r} in {record.where}" if name else record.where
        try:
            row = check_record(record, place.parent, path, label)
        except (OSError, ValueError) as error:
            skipped.append(f"{called}: {explain(error)}")
            continue
        twin = found.setdefault(pixel_key(row.file, row.box), row)
        if twin.label != row.label:
            raise InputError(
                f"{place} has {name!r} twice: {twin.label!r} in {twin.where}, {row.label!r} in {row.where}. "
                "Needed: one label for each image, or for each box in it. Correct one of the two, or take both out."
            )
        if twin is not row:
            skipped.append(f"{called}: the same as {twin.where}")
    if not found:
        raise InputError(
            f"None of the {len(records)} entries of {place} can be used. Needed: one or more. "
            f"Correct them; paths start at {place.parent}. Found: {shorten(skipped)}."
        )
    return [*found.values()], tuple(skipped)


def find_columns(place: Path, records: Sequence[Record], *, labelled: bool) -> tuple[str, str]:
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


def check_record(record: Record, folder: Path, path: str, label: str) -> Row:
    """A record whose file exists, with its label and box; any other raises the reason why not."""
    if record.fault:
        raise ValueError(record.fault)
    name, group = to_text(record.values.get(path)), to_text(record.values.get("group"))
    word = to_text(record.values.get(label)) if label else ""
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
    return Row(record.where, file, name, word.strip(), read_box(record.values), group.strip())


def read_box(values: Mapping[str, object]) -> Box | None:
    """The box that a record gives; None where it gives none."""
    words = [to_text(values.get(side)).strip() for side in Box._fields]
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


def to_text(value: object) -> str:
    """A word or a number as text; "" for nothing, and for NaN, as which tables write nothing into JSON."""
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"a {type(value).__name__} where text or a number is needed")
    return "" if value is None or value != value else str(value)


def read_records(place: Path) -> list[Record]:
    """The records of a manifest, by the ending of its name."""
    try:
        if (size := place.stat().st_size) > LARGEST:
            raise InputError(
                f"{place} has {sized(size)}. Needed: a list of {sized(LARGEST)} at most. Leave out columns that are "
                "not used, or split it."
            )
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
            records = parse_coco(place, written)
        case ".jsonl":
            records = parse_lines(place, written)
        case ".tsv":
            records = parse_table(place, written, "\t")
        case _:
            records = parse_table(place, written, ",")
    if not records:
        raise InputError(f"{place} lists no images. Needed: one or more. Check that it is the right file.")
    return records


def parse_table(place: Path, written: str, separator: str) -> list[Record]:
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
            f"{place} has several columns called {shorten(map(repr, twice))}. Needed: each name once. Rename them."
        )
    return records


def parse_lines(place: Path, written: str) -> list[Record]:
    """A JSON object a line; empty lines do not count."""
    records = []
    for number, line in enumerate(written.split("\n"), 1):  # splitlines would also split within strings
        if not line.strip():
            continue
        values = parse_json(place, line, number)
        if not isinstance(values, dict):
            raise InputError(
                f"Line {number} of {place} holds a {type(values).__name__}. Needed: an object, such as "
                '{"path": "1.jpg"}. Write one a line; a COCO file ends in .json.'
            )
        records.append(Record(f"line {number}", {name.strip().lower(): value for name, value in values.items()}))
    return records


def parse_coco(place: Path, written: str) -> list[Record]:
    """The annotations of a COCO file, then the images that have none."""
    content = parse_json(place, written)
    images, annotations = list_objects(place, content, "images"), list_objects(place, content, "annotations")
    image_of = index_by_id(place, "images", images)
    category_of = index_by_id(place, "categories", list_objects(place, content, "categories"))
    records = []
    for number, annotation in enumerate(annotations):
        image = image_of.get(owner := str(annotation.get("image_id")))
        category = category_of.get(str(annotation.get("category_id")), {})
        box = annotation.get("bbox")
        four = box if isinstance(box, list) and len(box) == 4 else (box, None, None, None)
        values = (
            describe_image(image or {}) | {"label": category.get("name")} | dict(zip(Box._fields, four, strict=True))
        )
        fault = "" if image else f"no image has the id {owner}"
        records.append(Record(f"annotations[{number}]", values, fault))
    seen = {str(annotation.get("image_id")) for annotation in annotations}
    records += [
        Record(f"images[{number}]", describe_image(image))
        for number, image in enumerate(images)
        if str(image["id"]) not in seen
    ]
    return records


def describe_image(image: Mapping[str, Any]) -> dict[str, object]:
    """What a COCO file says of an image, by the columns of a table; its width and height are no box."""
    path, group = (next((image[name] for name in names if name in image), None) for names in (PATHS, GROUPS))
    return {"path": path, "label": None, "group": group}


def list_objects(place: Path, content: object, part: str) -> list[dict[str, Any]]:
    """One of the lists in a COCO file; only the images must be there."""
    items = content.get(part, None if part == "images" else []) if isinstance(content, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(
            f"{place} has no list of objects called {part}. Needed: a COCO file, with images, annotations and "
            "categories. Write other lists as .jsonl, an object a line, or as .csv."
        )
    return items


def index_by_id(place: Path, part: str, items: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The images or categories of a COCO file by their id."""
    known: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(items):
        if known.setdefault(str(item.get("id")), item) is not item or "id" not in item:
            raise InputError(
                f"{part}[{number}] of {place} has the id {item.get('id')!r}. Needed: an id, and no other's. "
                "Number them anew, and what refers to them."
            )
    return known


def parse_json(place: Path, written: str, line: int = 1) -> Any:
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
    return place.suffix.lower() in MANIFESTS and os.path.isfile(place)  # noqa: PTH113 (it raises in locked folders)


def pixel_key(file: Path, box: Box | None) -> tuple[str, Box | None]:
    """What two rows share that mean the same pixels, however their paths are written."""
    return os.path.normpath(file.absolute()), box
