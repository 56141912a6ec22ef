"""How a person calls classes and images: by number or row, or by name."""

from collections.abc import Iterable, Mapping
from operator import index
from typing import SupportsIndex

from newfound.discovery.found import Found
from newfound.errors import InputError

Which = SupportsIndex | str
"""A class by its number or its name; an image by its row or its name."""

Called = Mapping[str, Mapping[int, None]]
"""The rows that each name of an image means, in order."""


def several(which: Which | Iterable[Which]) -> Iterable[Which]:
    """Several classes or images, where one may be said alone: the letters of its name are no more."""
    return which if isinstance(which, Iterable) and not isinstance(which, str) else [which]


def name_images(found: Found) -> Called:
    """What the images of a run are called: the name of a file means all boxes in it, with its place it means one."""
    called: dict[str, dict[int, None]] = {}
    for row, name in enumerate(found.listing.names):
        for word in (name, found.caption(row)):
            called.setdefault(word, {})[row] = None
    return called


def find_rows(called: Called, images: Which | Iterable[Which]) -> tuple[int, ...]:
    """Rows of images that are told by row or by name, each once."""
    rows: dict[int, None] = {}
    for image in several(images):
        if not isinstance(image, str):
            rows[index(image)] = None
            continue
        if image not in called:
            raise InputError(f"There is no image called {image!r}. Give a path as `assignments` has it, or a row.")
        rows |= called[image]
    if not rows:
        raise InputError("No image was given. Give one at least, by its row or its path.")
    return tuple(rows)
