"""Care that labelled and unlabelled images share nothing."""

import hashlib
import logging
import os
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from pathlib import Path

from newfound.data.collection import Collection
from newfound.data.decoding import check_file
from newfound.data.duplicates import find_same
from newfound.data.listing import check_folder, find_images
from newfound.errors import InputError, counted, shorten

log = logging.getLogger("newfound")


def check_leaks(labelled: Collection, unlabelled: Collection) -> None:
    """Refuse labelled and unlabelled images of which two are the same; name those of which two are near-duplicates."""
    sides = [zip(images.content_hashes(), images.listing.names, strict=True) for images in (labelled, unlabelled)]
    refuse_shared(*sides)
    pairs = find_same(labelled, unlabelled)
    if len(pairs):
        named = [f"{labelled.listing.names[a]!r} = {unlabelled.listing.names[b]!r}" for a, b in pairs.tolist()]
        log.warning(
            f"{counted(len(pairs[:, 1].unique()), 'unlabelled image')} nearly equal to a labelled one: "
            f"{shorten(named)}. They say nothing of how well others are found; where that is to be measured, take them "
            "out of one of the two."
        )


def check_apart(known_root: str | Path, unlabelled_root: str | Path) -> None:
    """Refuse two folders that share an image file, or a copy of one, before anything is decoded.

    So one folder within the other is refused as well. Only files of equal size are compared by their bytes.
    """
    known, unlabelled = list_readable(known_root), list_readable(unlabelled_root)
    refuse_shared(key_files(known, os.path.realpath), key_files(unlabelled, os.path.realpath))
    sizes = {file_size(path) for path in known} & {file_size(path) for path in unlabelled} - {0}
    known, unlabelled = ([path for path in paths if file_size(path) in sizes] for paths in (known, unlabelled))
    refuse_shared(key_files(known, hash_file), key_files(unlabelled, hash_file))


def refuse_shared(labelled: Iterable[tuple[Hashable, str]], unlabelled: Iterable[tuple[Hashable, str]]) -> None:
    """Refuse two sets of (key, name) in which a key occurs on both sides."""
    owner = dict(labelled)
    pairs = [f"{owner[key]!r} = {name!r}" for key, name in unlabelled if key in owner]
    if pairs:
        raise InputError(
            f"Images that are both labelled and unlabelled ({len(pairs)}): {shorten(pairs)}. Needed: two sets that "
            "share no image, or what was taught would count as discovered. Take these out of one of the two."
        )


def key_files(paths: Iterable[Path], key: Callable[[Path], Hashable]) -> list[tuple[Hashable, str]]:
    """Each path with its key before it; files that cannot be read after all are skipped when images are read."""
    found: list[tuple[Hashable, str]] = []
    for path in paths:
        with suppress(OSError):
            found.append((key(path), str(path)))
    return found


def list_readable(root: str | Path) -> list[Path]:
    """The image files below a folder that can be opened; the others are skipped when images are read."""
    root = check_folder(root)
    names, _ = find_images(root)
    return [path for name in names if os.access(path := root / name, os.R_OK)]


def file_size(path: Path) -> int:
    """Bytes in a file; 0 where it has vanished meanwhile, or is none that would be read."""
    with suppress(OSError, ValueError):
        return check_file(path)
    return 0


def hash_file(path: Path) -> bytes:
    """A fingerprint of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
