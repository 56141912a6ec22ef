"""Images that were not discovered in, seen by a model bit by bit, and what they are."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import torch

from newfound.data.collection import Collection
from newfound.data.listing import Listing, list_images
from newfound.data.pixels import Images
from newfound.discovery.edits import Classes
from newfound.discovery.tables import tabulate_others
from newfound.encoders import encoder_of
from newfound.errors import counted
from newfound.networks.model import Model

log = logging.getLogger("newfound")

TOGETHER = 1024
"""Images that are seen at once."""


def look_through(model: Model, place: str | Path | Listing) -> Iterator[tuple[Collection, Listing, tuple[str, ...]]]:
    """Images at a place, any number of them: those that could be read, all that were listed, and the files that could
    not be read.
    """
    listed = place if isinstance(place, Listing) else list_images(place, labelled=False)
    encoder, skipped = encoder_of(model), listed.skipped
    for rows in torch.arange(len(listed)).split(TOGETHER):
        images = encoder.encode(listed.pick(rows))
        yield images, listed, skipped + images.listing.skipped
        skipped = ()


def predict(now: Classes, images: str | Path | Images) -> pd.DataFrame:
    """The class of images, as the table of assignments has it. A folder, a list of images or one image is read; files
    that cannot be are left out, and named in the log.
    """
    if not isinstance(images, str | Path):
        return tabulate_others(now, images, images.listing)
    tables, skipped = zip(*predict_in_parts(now, images), strict=True)
    tell_skipped([*itertools.chain.from_iterable(skipped)])
    return pd.concat(tables, ignore_index=True)


def predict_in_parts(now: Classes, place: str | Path | Listing) -> Iterator[tuple[pd.DataFrame, tuple[str, ...]]]:
    """The same bit by bit, for any number of images; with each table the files that could not be read."""
    for images, listed, skipped in look_through(now.found.model, place):
        yield tabulate_others(now, images, listed), skipped


def tell_skipped(files: Sequence[str]) -> None:
    """Name the files that were left out."""
    if files:
        log.warning(f"{counted(len(files), 'file')} left out as unreadable:\n  " + "\n  ".join(files))
