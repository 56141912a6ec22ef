"""What leaves a discovery for other tools: tables, folders of images, annotations. What is there is not overwritten."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import ExifTags, Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from newfound import files
from newfound.data.decoding import MEMORY, Box, configure_pillow, explain, open_image, weigh
from newfound.data.listing import Listing
from newfound.discovery.edits import Classes
from newfound.discovery.storage import locate
from newfound.discovery.tables import ALGORITHM, WORDS, format_csv, tabulate_assignments
from newfound.errors import InputError, check_word

LONGEST, MOST = 200, 255
"""Bytes of a folder's name, to which something may be added, and of any name that a file system takes."""

PNG_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "P", "RGB", "RGBA")
"""What PNG can hold, by Pillow's names; it knows no such colours as printers have."""

Sizes = dict[str, tuple[int, int] | None]
"""Width and height of images, by their names."""


def export(now: Classes, to: str, place: Path, *, images: Path | None = None, link: bool = False) -> Path:
    """Write the present classes in a format (`FORMATS`) to a place where nothing is yet.

    `images` says where the images are now, if they have moved; `link` makes links instead of copies.
    """
    check_word("format", to, FORMATS)
    if place.is_file() or (place.is_dir() and (to != "folders" or any(place.iterdir()))):
        raise InputError(f"{place} is there already, and nothing is overwritten. Give another place with -o.")
    if link and to != "folders":
        raise InputError(f"--link makes links to images, and {to} is one file. Leave it out, or export to folders.")
    files.check_writable(place.parent)
    FORMATS[to](now, place, images, link)
    return place


def tabulate(now: Classes) -> pd.DataFrame:
    """One row per image: all that `assignments.csv` has, and whether a person has verified it."""
    table = tabulate_assignments(now)
    status = ["unverified" if who == ALGORITHM else "verified" for who in table["identified_by"]]
    return table.assign(verification=status)


def plan_folders(now: Classes) -> dict[str, list[int]]:
    """Which images would lie in which folder: one per class, and `unsure` and `set aside` where there are such."""
    folders: dict[str, list[int]] = {}
    place, used = dict(WORDS), {*WORDS.values()}  # a class may be called so too
    lines = tabulate_assignments(now)[["number", "class", "kind"]].itertuples(index=False)
    for row, (number, name, kind) in enumerate(lines):
        if number not in place:
            folder = _folder_name(name)
            if folder.casefold() in used:  # two names may differ in signs that folders cannot have
                folder = f"{folder} ({kind})"
            place[number] = _free(folder, "", used)
        folders.setdefault(place[number], []).append(row)
    return folders


def _export_csv(now: Classes, place: Path, images: Path | None, link: bool) -> None:
    files.write(place, format_csv(tabulate(now)))


def _export_folders(now: Classes, place: Path, images: Path | None, link: bool) -> None:
    """A folder for every class, with its images in it: copies or links, and of boxes what is in them. All of them are
    there or none: half of the images would look like all.
    """
    listing, folders = locate(now.found, images).listing, plan_folders(now)
    with files.building(place) as new:
        for folder, rows in folders.items():
            (new / folder).mkdir()
            used: set[str] = set()
            for row in rows:
                file, box = listing.files[row], listing.boxes[row]
                target = new / folder / _free(file.stem, ".png" if box else file.suffix, used)
                with files.room_for(target, file.stat().st_size):
                    if box is not None:
                        _cut(file, box, target)
                    elif link:
                        target.symlink_to(os.path.abspath(file))  # noqa: PTH100 (keeps symlinks)
                    else:
                        shutil.copy2(file, target)


def _export_coco(now: Classes, place: Path, images: Path | None, link: bool) -> None:
    """COCO's JSON: a category for every class; an annotation for every image that has one, with its box, or the whole
    frame where there is none and the image can be read.
    """
    listing = _listing(now, images)
    sizes = _sizes(listing, listing.names)
    frames = {name: i for i, name in enumerate(sizes, 1)}
    annotations = [
        {
            "id": row + 1,
            "image_id": frames[listing.names[row]],
            "category_id": line["number"],
            "bbox": [*box],
            "area": box.width * box.height,
            "iscrowd": 0,
            "score": line["confidence"],
            "identified_by": line["identified_by"],
            "verification": line["verification"],
        }
        | ({"group": listing.groups[row]} if listing.groups[row] else {})
        for row, line, box in _annotate(now, listing, sizes)
    ]
    content: dict[str, Any] = {
        "info": {"description": "Classes that newfound discovered"},
        "images": [
            {"id": i, "file_name": name} | (dict(zip(("width", "height"), size, strict=True)) if size else {})
            for i, (name, size) in enumerate(sizes.items(), 1)
        ],
        "categories": [
            {"id": number, "name": name, "supercategory": now.kind(number)} for number, name in now.names.items()
        ],
        "annotations": annotations,
    }
    files.write(place, json.dumps(content, indent=1, ensure_ascii=False))


def _export_parquet(now: Classes, place: Path, images: Path | None, link: bool) -> None:
    """The table of `csv` in a file that keeps types, for those who have many images."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            "Parquet is written by pyarrow, which is not installed. Run pip install pyarrow, or export to "
            "csv, which holds the same."
        ) from error
    with files.writing(place) as file:
        tabulate(now).to_parquet(file, engine="pyarrow", index=False)


def _export_fathomnet(now: Classes, place: Path, images: Path | None, link: bool) -> None:
    """FathomNet's table: a row for every image or box that has a class, with the whole frame where there is no box."""
    listing, lines = _listing(now, images), []
    whole = [name for name, box in zip(listing.names, listing.boxes, strict=True) if box is None]
    for row, line, (x, y, width, height) in _annotate(now, listing, _sizes(listing, whole)):
        lines.append(
            {
                "concept": line["class"],
                "image": line["path"],
                "x": round(x),
                "y": round(y),
                "width": round(width),
                "height": round(height),
                "observer": line["identified_by"],
                "confidence": line["confidence"],
                "verification": line["verification"],
                "group": listing.groups[row],
            }
        )
    columns = ["concept", "image", "x", "y", "width", "height", "observer", "confidence", "verification", "group"]
    files.write(place, format_csv(pd.DataFrame(lines, columns=columns)))


def _export_darwin_core(now: Classes, place: Path, images: Path | None, link: bool) -> None:
    """Darwin Core's terms: an occurrence for every image or box that has a class. Who identified it, and whether a
    person has verified that; the name as it was given stands in verbatimIdentification, for it need not be a taxon.
    """
    listing, lines = now.found.listing, []
    for row, line in _lines(now):
        box = listing.boxes[row]
        more = {"confidence": line["confidence"], "classNumber": line["number"], "classKind": line["kind"]}
        more |= {} if box is None else {"boundingBox": [*box]}
        lines.append(
            {
                "occurrenceID": f"{line['path']}#{row}",
                "basisOfRecord": "MachineObservation",
                "occurrenceStatus": "present",
                "verbatimIdentification": line["class"],
                "identifiedBy": line["identified_by"],
                "identificationVerificationStatus": line["verification"],
                "eventID": listing.groups[row],
                "associatedMedia": line["path"],
                "dynamicProperties": json.dumps(more, ensure_ascii=False),
            }
        )
    columns = [
        *("occurrenceID", "basisOfRecord", "occurrenceStatus", "verbatimIdentification", "identifiedBy"),
        *("identificationVerificationStatus", "eventID", "associatedMedia", "dynamicProperties"),
    ]
    files.write(place, format_csv(pd.DataFrame(lines, columns=columns)))


def _lines(now: Classes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The line of the table of every image that has a class, by row."""
    for row, line in enumerate(tabulate(now).to_dict("records")):
        if line["number"] > 0:
            yield row, {str(key): value for key, value in line.items()}


def _annotate(now: Classes, listing: Listing, sizes: Sizes) -> Iterator[tuple[int, dict[str, Any], Box]]:
    """The same with the image's box, or the whole frame where there is none; one of no size where that is not known."""
    for row, line in _lines(now):
        yield row, line, listing.boxes[row] or Box(0, 0, *(sizes[listing.names[row]] or (0, 0)))


def _listing(now: Classes, images: Path | None) -> Listing:
    """The images of a discovery, where they lie now."""
    return now.found.listing if images is None else locate(now.found, images).listing


def _sizes(listing: Listing, names: Iterable[str]) -> Sizes:
    """The size of each image that is named, once; None where it lies in no folder or cannot be read any more."""
    return {name: _size(listing.root / name) if listing.root else None for name in dict.fromkeys(names)}


FORMATS: dict[str, Callable[[Classes, Path, Path | None, bool], None]] = {
    "csv": _export_csv,
    "parquet": _export_parquet,
    "folders": _export_folders,
    "coco": _export_coco,
    "fathomnet": _export_fathomnet,
    "darwin-core": _export_darwin_core,
}

ENDINGS = {"csv": ".csv", "parquet": ".parquet", "coco": ".json", "fathomnet": ".csv", "darwin-core": ".csv"}
"""What the file of each is called, but folders."""


def _folder_name(name: str) -> str:
    """A name that every file system takes."""
    safe = re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", name).strip(" .")
    return _shortened(safe, LONGEST).strip(" .") or "_"


def _shortened(name: str, most: int) -> str:
    """As much of a name as has so many bytes."""
    return name.encode("utf-8", "ignore")[:most].decode("utf-8", "ignore")


def _free(stem: str, ending: str, used: set[str]) -> str:
    """A file name that is not taken yet: images of one name may come from several folders. A stem that leaves no room
    for what makes it another is cut.
    """
    name, number = f"{stem}{ending}", 2
    while name.casefold() in used:
        more = f"-{number}{ending}"
        name, number = f"{_shortened(stem, MOST - len(more.encode()))}{more}", number + 1
    used.add(name.casefold())
    return name


def _cut(file: Path, box: Box, target: Path) -> None:
    """What is in a box, as a picture of its own: a pixel at least. As in `decode`, the box is measured in the upright
    image, and cut off where that ends.
    """
    try:
        with configure_pillow(), open_image(file) as image, MEMORY.take(weigh(image)):
            upright = ImageOps.exif_transpose(image)
            left, right = _ends(box.x, box.width, upright.width)
            upper, lower = _ends(box.y, box.height, upright.height)
            cut = upright.crop((left, upper, right, lower))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{file} can be read no more: {explain(error)}. Needed: the image as it was. Put it back, or export to csv."
        ) from error
    (cut if cut.mode in PNG_MODES else cut.convert("RGB")).save(target)


def _ends(start: float, length: float, all_: int) -> tuple[int, int]:
    """The first pixel of a stretch, and the one behind its last."""
    first = min(max(round(start), 0), all_ - 1)
    return first, max(min(round(start + length), all_), first + 1)


def _size(file: Path) -> tuple[int, int] | None:
    """Width and height of an image, upright, where it is still there."""
    try:
        with configure_pillow(), open_image(file) as image:
            if image.getexif().get(ExifTags.Base.Orientation) not in (5, 6, 7, 8):
                return image.size
            if isinstance(image, JpegImageFile):
                return image.size[::-1]
            with MEMORY.take(weigh(image)):
                return ImageOps.exif_transpose(image).size
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
