"""Piles of images as people bring them: some kinds known by labelled images, the rest of these and all others mixed."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from PIL import Image

from newfound.data.datasets import load_dataset
from newfound.errors import InputError
from newfound.types import generator

ART = Path("/usr/share/openclipart/png")
"""Debian's clip art (openclipart-png)."""

KINDS = (
    *("shapes/stars", "signs_and_symbols/flags", "animals/mammals", "shapes/arrows", "food/fruit", "recreation/music"),
    *("transportation/roadsigns", "recreation/sports", "food/desserts", "people/clothing", "transportation/vehicles"),
    *("food/beverages", "people/stickmen", "animals/birds", "animals/bugs", "shapes/jigsaw"),
)
"""Kinds of clip art, by folder."""

MOST = 50
"""Pictures of a kind of clip art."""

PHOTOGRAPHS, LABELLED = 600, 100
"""Images of a class of CIFAR-10, and those of them that are labelled where it is known."""


class Pile(NamedTuple):
    """Lists of images, as CSV files: labelled ones, and unlabelled ones, the truth of which stands beside them."""

    known: Path
    unlabelled: Path


def deal(files: Mapping[str, Sequence[Path]], labelled: Callable[[int], bool], seed: int, folder: Path) -> Pile:
    """Make half of the kinds known, drawn by the seed; of each of these the images whose places say so are labelled."""
    order = torch.randperm(len(files), generator=generator("pile", seed)).tolist()
    known = {[*files][place] for place in order[: len(files) // 2]}
    rows: dict[str, list[tuple[str, str]]] = {"known": [], "unlabelled": []}
    for kind, paths in files.items():
        for place, path in enumerate(paths):
            rows["known" if kind in known and labelled(place) else "unlabelled"].append((str(path), kind))
    pile = Pile(*(folder / f"{name}.csv" for name in rows))
    for path, listed in zip(pile, rows.values(), strict=True):
        pd.DataFrame(listed, columns=["path", "label"]).to_csv(path, index=False)
    return pile


def deal_photographs(data: Path | None, seed: int, folder: Path) -> Pile:
    """CIFAR-10: five classes known by 100 images each, 500 of every class unlabelled."""
    images = load_dataset("cifar10", data)
    pixels, labels = images.pixels.permute(0, 2, 3, 1).numpy(), images.listing.labels
    files: dict[str, list[Path]] = {}
    for label, name in enumerate(images.listing.classes):
        place = folder / name
        place.mkdir()
        for number, row in enumerate((labels == label).nonzero()[:PHOTOGRAPHS, 0].tolist()):
            files.setdefault(name, []).append(place / f"{number}.png")
            Image.fromarray(pixels[row]).save(files[name][-1])
    return deal(files, lambda place: place < LABELLED, seed, folder)


def deal_clip_art(data: Path | None, seed: int, folder: Path) -> Pile:
    """Debian's clip art: eight of 16 kinds known by half of their pictures, at most 50 of a kind. Of equal pictures,
    some in two kinds, the first is taken.
    """
    first: dict[bytes, tuple[str, Path]] = {}
    for kind in KINDS:
        for path in sorted((ART / kind).rglob("*.png")):
            first.setdefault(hashlib.sha256(path.read_bytes()).digest(), (kind, path))
    if not first:
        raise InputError(f"There is no clip art in {ART}. Install Debian's package openclipart-png.")
    files = {kind: [path for own, path in first.values() if own == kind][:MOST] for kind in KINDS}
    return deal(files, lambda place: place % 2 == 0, seed, folder)


PILES: dict[str, Callable[[Path | None, int, Path], Pile]] = {
    "cifar10": deal_photographs,
    "clip-art": deal_clip_art,
}
"""How each pile is made, given the folder with CIFAR, a seed, and a folder to put files into."""
