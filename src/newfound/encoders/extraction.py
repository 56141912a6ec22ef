"""Images become features: read, seen by a pretrained network, and remembered by their content."""

import copy
import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound import cache, files
from newfound.data.decoding import Box, Framing, attempt, configure_pillow, count_cores, decode
from newfound.data.features import FeatureImages, Store
from newfound.data.listing import Listing
from newfound.data.views import VIEWS, draw_numbers
from newfound.errors import InputError
from newfound.networks.pretrained import PretrainedBackbone
from newfound.training.loop import accelerator
from newfound.types import generator

Item = TypeVar("Item")
Result = TypeVar("Result")

AUGMENTED = 2
"""Augmented views that are kept of each image: as few as methods of two views need, since each costs a look."""

CHUNK = 32
"""Images that a pretrained network looks at together, and at most so many are lost when it is interrupted."""

JOINED = 1024
"""Images whose features are joined at once, where several networks look side by side."""

VIEW = "cut"


def extract_features(
    listing: Listing,
    backbone: PretrainedBackbone,
    *,
    device: str = "auto",
    progress: Callable[[int], None] = lambda done: None,
) -> FeatureImages:
    """What a pretrained network says of every image, in a few views.

    Files are read and decoded by threads while the network looks at earlier ones; only some are in memory at a time. An
    image that was seen before, under whatever name, is not decoded again: an interrupted call loses one chunk.
    `progress` is told how many are done. What each of several networks side by side says is kept by itself.
    """
    if len(backbone.parts) > 1:
        return extract_beside(listing, backbone, device=device, progress=progress)
    store, eye = open_store(backbone), copy.deepcopy(backbone).to(accelerator(device).device).fold()
    keys, reasons = dict[int, bytes](), dict[int, str]()
    waiting: dict[bytes, UInt8[np.ndarray, "side side 3"]] = {}
    framing: Framing = "whole" if backbone.whole else "middle"

    def look(row: int) -> tuple[bytes, UInt8[np.ndarray, "side side 3"] | None] | str:
        box = listing.boxes[row]

        def known_or_decoded(content: bytes) -> tuple[bytes, UInt8[np.ndarray, "side side 3"] | None]:
            name = key(content, box)
            return name, None if name in store else decode(content, backbone.size, box, framing)

        return attempt(listing.files[row], known_or_decoded)

    def flush() -> None:
        if waiting:
            records = views(eye, waiting)
            with files.room_for(cache.root() / "features", 2 * records.numel()):
                store.add([*waiting], records)
            waiting.clear()

    with configure_pillow():
        for row, seen in enumerate(ahead(look, range(len(listing)), 3 * CHUNK)):
            if isinstance(seen, str):
                reasons[row] = seen
            else:
                keys[row] = seen[0]
                if seen[1] is not None:
                    waiting[seen[0]] = seen[1]
            if len(waiting) == CHUNK:
                flush()
            progress(row + 1 - len(waiting))
        flush()
        progress(len(listing))
    return FeatureImages(listing.without(reasons), store.open(), find_all(store, found := (*keys.values(),)), found)


def find_all(store: Store, keys: Sequence[bytes]) -> Int[Tensor, " n"]:
    """Where the record of each key is; all were there or were added."""
    places = store.places(keys)
    if (places < 0).any():
        raise InputError(
            "The cache of features was damaged or emptied while it was used. Run the same command again: what is "
            "missing is computed anew."
        )
    return places


def extract_beside(
    listing: Listing, backbone: PretrainedBackbone, *, device: str, progress: Callable[[int], None]
) -> FeatureImages:
    """What several networks say side by side: each looks by itself, and unit features are joined."""
    seen: list[FeatureImages] = []
    for number, part in enumerate(backbone.parts):

        def share(done: int, number: int = number) -> None:
            progress((number * len(listing) + done) // len(backbone.parts))

        seen.append(extract_features(seen[-1].listing if seen else listing, part, device=device, progress=share))
    keys = seen[-1].keys  # a file that vanished meanwhile is in the last alone not
    store = open_store(backbone)
    new = [key for key in dict.fromkeys(keys) if key not in store]
    for start in range(0, len(new), JOINED):
        some = new[start : start + JOINED]
        store.add(some, torch.cat([F.normalize(images.records_of(some), dim=2) for images in seen], 2))
    return FeatureImages(seen[-1].listing, store.open(), find_all(store, keys), keys)


def open_store(backbone: PretrainedBackbone) -> Store:
    """Where what a backbone says is kept."""
    return Store(cache.root() / "features" / f"{backbone.digest}-{VIEW}-{AUGMENTED}", 1 + AUGMENTED, backbone.dim)


def key(content: bytes, box: Box | None) -> bytes:
    """What a picture is known by: its file's bytes, and the part of it that is meant."""
    part = "" if box is None else " ".join(map(float.hex, map(float, box)))
    return hashlib.sha256(hashlib.sha256(content).digest() + part.encode()).digest()


def views(
    trunk: PretrainedBackbone, pictures: dict[bytes, UInt8[np.ndarray, "side side 3"]]
) -> Float[Tensor, "n views dim"]:
    """The calm record of each picture, then one of each augmented view, drawn by its key: the same at every call."""
    device = next(trunk.parameters()).device
    pixels = torch.from_numpy(np.stack([*pictures.values()])).permute(0, 3, 1, 2).to(device)

    def draw(view: int) -> Tensor:
        return torch.cat([draw_numbers(1, generator(name.hex(), view)) for name in pictures]).to(device)

    seen = [VIEWS["plain" if view == 0 else VIEW](pixels, draw(view)) for view in range(1 + AUGMENTED)]
    features = torch.stack([trunk(images) for images in seen], 1)
    if not features.isfinite().all():
        raise InputError(
            f"The backbone {trunk.name} gives NaN or infinite features. Its weights are likely damaged: get them anew, "
            "or take another (`newfound backbones`)."
        )
    return torch.cat([features.mean(1, keepdim=True), features[:, 1:]], 1).cpu()


def ahead(work: Callable[[Item], Result], items: Iterable[Item], most: int) -> Iterator[Result]:
    """Results in order, computed by threads that run at most so many items ahead."""
    pool, pending = ThreadPoolExecutor(count_cores()), deque[Future[Result]]()
    remaining = iter(items)
    try:
        for item in itertools.islice(remaining, most):
            pending.append(pool.submit(work, item))
        while pending:
            yield pending.popleft().result()
            for item in itertools.islice(remaining, 1):
                pending.append(pool.submit(work, item))
    finally:
        pool.shutdown(cancel_futures=True)
