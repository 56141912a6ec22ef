"""Features of pictures that nobody painted."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from newfound.data.features import FeatureImages
from newfound.data.listing import Listing
from newfound.types import generator


def embedded(
    name: str, classes: Sequence[int] = range(4), each: int = 12, labelled: bool = True, strong: float = 4.0
) -> FeatureImages:
    """So many pictures each of some of 60 kinds, which are strong in 20 of 1280 numbers of their own. All are noisy,
    above all in ten numbers that tell nothing.
    """
    labels = torch.arange(len(classes)).repeat_interleave(each)
    random = generator(name)
    x = torch.rand(len(labels), 1280, generator=random)
    for label, kind in enumerate(classes):
        x[labels == label, 20 * kind : 20 * kind + 20] += strong
    x[:, 1270:] += 12 * torch.rand(len(labels), 1, generator=random)  # what differs within a class
    names = tuple(f"{name}/{row}.png" for row in range(len(labels)))
    root = Path()  # there are no files
    kinds = [f"kind {kind}" for kind in classes]
    listed = Listing.of(names, labels, kinds, root=root) if labelled else Listing.of(names, root=root)
    keys = tuple(hashlib.sha256(text.encode()).digest() for text in names)
    records = x[:, None].expand(-1, 3, -1).half()  # the calm one and two views
    return FeatureImages(listed, records, torch.arange(len(names)), keys)


def in_one_store(*several: FeatureImages) -> list[FeatureImages]:
    """The same pictures, their features in one store, as those of one network always are."""
    records = torch.cat([images.records for images in several])
    firsts = [sum(len(images.records) for images in several[:number]) for number in range(len(several))]
    return [
        replace(images, records=records, places=images.places + first)
        for images, first in zip(several, firsts, strict=True)
    ]
