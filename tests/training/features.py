"""Features of pictures that nobody painted."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from newfound.data.embedded import Embedded
from newfound.data.pictures import Pictures
from newfound.types import generator


def embedded(
    name: str, classes: Sequence[int] = range(4), each: int = 12, labelled: bool = True, strong: float = 4.0
) -> Embedded:
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
    listed = Pictures(
        files=tuple(map(Path, names)),  # there are none
        names=names,
        labels=labels if labelled else torch.full_like(labels, -1),
        classes=tuple(f"kind {kind}" for kind in classes) if labelled else (),
        boxes=(None,) * len(names),
        groups=("",) * len(names),
    )
    keys = tuple(hashlib.sha256(text.encode()).digest() for text in names)
    records = x[:, None].expand(-1, 3, -1).half()  # the calm one and two views
    return Embedded(listed, records, torch.arange(len(names)), keys)
