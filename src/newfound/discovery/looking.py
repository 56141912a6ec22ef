"""Images that were not discovered in, seen by a model bit by bit."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from newfound.data.collection import Collection
from newfound.data.listing import Listing, list_images
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


def tell_skipped(files: Sequence[str]) -> None:
    """Name the files that were left out."""
    if files:
        log.warning(f"{counted(len(files), 'file')} left out as unreadable:\n  " + "\n  ".join(files))
