"""Which images show the same picture, wherever they are: in memory, or on disk as features."""

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.data.collection import Collection
from newfound.functional.duplicates import find_pairs


def find_same(images: Collection, others: Collection | None = None) -> Int[Tensor, "pairs 2"]:
    """Rows of images that show the same picture: of one collection, the smaller row first, or of one and another of its
    kind. Either their content is equal, or they are near-duplicates by their pixels.
    """
    mine, theirs = images.lookalikes(others)
    copies = images.small_copies(mine)
    beside = None if others is None else others.small_copies(theirs)
    if beside is not None and len(copies) and len(beside):
        channels = max(copies.shape[1], beside.shape[1])
        copies, beside = (some.expand(-1, channels, -1, -1) for some in (copies, beside))
    pairs = find_pairs(copies, beside)
    near = torch.stack([mine[pairs[:, 0]], (mine if others is None else theirs)[pairs[:, 1]]], 1)
    return torch.cat([near, find_equal(images, others)]).unique(dim=0)


def find_equal(images: Collection, others: Collection | None = None) -> Int[Tensor, "pairs 2"]:
    """Rows of images of equal content; of one collection the first of them, and each other."""
    first: dict[bytes, int] = {}
    for row, content in enumerate(images.content_hashes()):
        first.setdefault(content, row)
    hashes = (images if others is None else others).content_hashes()
    pairs = [(first[content], row) for row, content in enumerate(hashes) if content in first]
    pairs = [(a, b) for a, b in pairs if others is not None or a != b]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
