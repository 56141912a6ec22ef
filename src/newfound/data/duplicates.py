"""Which images show the same picture, wherever they are: in memory, or on disk as features."""

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from newfound.data.collection import Collection
from newfound.functional.duplicates import ENOUGH, FINE, SIDE, confirm, find_pairs, share_shape

Copies = UInt8[Tensor, "_ _ _ _"]


def find_same(images: Collection, others: Collection | None = None) -> Int[Tensor, "pairs 2"]:
    """Rows of images that show the same picture: of one collection, the smaller row first, or of one and another of its
    kind. Either their content is equal, or they are near-duplicates by their pixels.
    """
    right = images if others is None else others
    mine, theirs = images.lookalikes(others)
    copies = images.small_copies(mine, SIDE)
    beside = None if others is None else others.small_copies(theirs, SIDE)
    pairs = find_pairs(copies, None) if beside is None else find_pairs(*_match(copies, beside))
    near = torch.stack([mine[pairs[:, 0]], (mine if others is None else theirs)[pairs[:, 1]]], 1)
    near = _confirm(near, images, right)
    return torch.cat([near, find_equal(images, others)]).unique(dim=0)


def _confirm(pairs: Int[Tensor, "pairs 2"], images: Collection, others: Collection) -> Int[Tensor, "left 2"]:
    """The pairs of one shape that are the same at a finer size too; what has no more pixels than were compared is taken
    as it is.
    """
    (rows, a), (there, b) = (column.unique(return_inverse=True) for column in pairs.T)
    mine, theirs = images.sides(rows)[a], others.sides(there)[b]
    shaped = share_shape(mine, theirs)
    pairs, a, b = pairs[shaped], a[shaped], b[shaped]
    fine = (torch.minimum(mine, theirs)[shaped] >= ENOUGH).all(1)
    if not fine.any():
        return pairs
    left, right = _match(images.small_copies(rows, FINE), others.small_copies(there, FINE))
    same = ~fine
    same[fine] = confirm(left[a[fine]], right[b[fine]])
    return pairs[same]


def _match(a: Copies, b: Copies) -> tuple[Copies, Copies]:
    """Grey copies and coloured ones alike: grey is three equal colours."""
    channels = max(a.shape[1], b.shape[1])
    return a.expand(-1, channels, -1, -1), b.expand(-1, channels, -1, -1)


def find_equal(images: Collection, others: Collection | None = None) -> Int[Tensor, "pairs 2"]:
    """Rows of images of equal content; of one collection the first of them, and each other."""
    first: dict[bytes, int] = {}
    for row, content in enumerate(images.content_hashes()):
        first.setdefault(content, row)
    hashes = (images if others is None else others).content_hashes()
    pairs = [(first[content], row) for row, content in enumerate(hashes) if content in first]
    pairs = [(a, b) for a, b in pairs if others is not None or a != b]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
