"""Images as a backbone saw them: what it said of each is computed once, and kept on disk by content."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.decoding import decode_all
from newfound.data.listing import Listing
from newfound.errors import counted

THUMBNAIL = 96
"""Pixels of a side of the small copies that a run keeps."""

KEY = 32
"""Bytes of a key: a sha256 of what decides the features."""


@dataclass(frozen=True, eq=False)
class FeatureImages:
    """Images that could be read, and where among the features on disk each has its own.

    Of every image there is a calm record, the mean over all its views, then one of each augmented view.
    """

    listing: Listing
    records: Float[Tensor, "all views dim"]  # mapped into memory
    places: Int[Tensor, " n"]
    keys: tuple[bytes, ...]  # equal where the images are

    def __len__(self) -> int:
        return len(self.places)

    @property
    def coloured(self) -> bool:
        """No: views were drawn when the network looked."""
        return False

    def content_hashes(self) -> tuple[bytes, ...]:
        """The keys."""
        return self.keys

    def features(self) -> Float[Tensor, "n dim"]:
        """The calm record of every image, in memory."""
        return self.records[self.places, 0].float()

    def records_of(self, keys: Sequence[bytes]) -> Float[Tensor, "m views dim"]:
        """All that is kept of some of the images, by their keys."""
        row = dict(zip(self.keys, self.places.tolist(), strict=True))
        return self.records[[row[key] for key in keys]].float()

    def discovery_set(self, labelled: "FeatureImages | None") -> "FeatureDataset":
        """The discovery set: the labelled images, if they take part, then these with label −1."""
        hidden = torch.full((len(self),), -1)
        if labelled is None:
            return FeatureDataset(self.records, hidden, self.places)
        labels, places = torch.cat([labelled.listing.labels, hidden]), torch.cat([labelled.places, self.places])
        return FeatureDataset(max(labelled.records, self.records, key=len), labels, places)  # a store only grows

    def duplicate_features(self) -> Float[Tensor, "n dim"]:
        """The features: a backbone sees hardly a difference between near-duplicates, and much between other images."""
        return self.features()

    @property
    def duplicate_threshold(self) -> float:
        """Frames of a burst, and copies at another size or quality, have a cosine of .9 or more; others seldom .85."""
        return 0.9

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Small copies of some, read anew; grey where a file has vanished meanwhile."""
        some = self.listing.pick(torch.tensor(rows, dtype=torch.long))
        pixels, reasons = decode_all(some.files, THUMBNAIL, some.boxes)
        read = iter(pixels)
        grey = torch.full((3, THUMBNAIL, THUMBNAIL), 128, dtype=torch.uint8)
        return {row: grey if place in reasons else next(read) for place, row in enumerate(rows)}


@final
@dataclass(frozen=True, eq=False)
class FeatureDataset(Dataset):
    """Features, or maps, in half precision: one of the plain image, then some of augmented ones, at most `DRAWS`.

    The kind of a view was chosen when they were made; here views of an image are different ones of those kept. Where
    more are asked for, as many come as there are, else a view would learn from itself; but two at least.
    """

    maps: Float[Tensor, "all views *map"]
    labels: Int[Tensor, " n"]
    rows: Int[Tensor, " n"]  # where in `maps` each image is

    def look(
        self, rows: Int[Tensor, " m"], kinds: tuple[str, ...], draws: list[Tensor], device: torch.device
    ) -> list[Tensor]:
        """Those drawn among the ones kept."""
        places, augmented = self.rows[rows], self.maps.shape[1] - 1
        if kinds == ("plain",):
            return [self.maps[places, 0].to(device).float()]
        order = draws[0][:, :augmented].argsort(1)
        views = min(len(kinds), max(2, augmented))
        return [self.maps[places, 1 + order[:, v % augmented]].to(device).float() for v in range(views)]


class Store:
    """Records of views × dim numbers in half precision, each under a key; read from the disk as they are needed.

    `records` holds them one after the other, `keys` the key of each. A record is written before its key, so what has
    a key is whole, whatever interrupts; what has none is written over. Several processes may add at once.
    """

    def __init__(self, folder: Path, views: int, dim: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.shape, self._bytes = (views, dim), 2 * views * dim
        self._records, self._keys = folder / "records", folder / "keys"
        self._lock = FileLock(folder / "lock")
        self._places: dict[bytes, int] = {}
        for path in (self._records, self._keys):
            path.touch()
        self._refresh()

    def places(self, keys: Sequence[bytes]) -> Int[Tensor, " n"]:
        """Where the record of each key is; −1 where there is none."""
        self._refresh()
        return torch.tensor([self._places.get(key, -1) for key in keys], dtype=torch.long)

    def __contains__(self, key: bytes) -> bool:
        """Whether a record was there when the store was last asked for places, added to or opened."""
        return key in self._places

    def add(self, keys: Sequence[bytes], records: Float[Tensor, "n views dim"]) -> None:
        """Remember records; those whose key is there already are left as they are."""
        if records.shape != (len(keys), *self.shape):
            raise ValueError(
                f"Needed: {counted(len(keys), 'record')} of shape {self.shape}, one a key; found: a tensor of shape "
                f"{tuple(records.shape)}."
            )
        with self._lock:
            self._refresh()
            new = {key: row for row, key in enumerate(keys) if key not in self._places}
            kept = records[list(new.values())].half().numpy(force=True)
            with self._records.open("r+b") as file:
                file.seek(len(self._places) * self._bytes)
                file.write(kept.tobytes())
                file.truncate()
                file.flush()
                os.fsync(file.fileno())  # a key must not reach the disk before its record
            with self._keys.open("r+b") as file:
                file.seek(len(self._places) * KEY)
                file.write(b"".join(new))
        self._refresh()

    def open(self) -> Float[Tensor, "all views dim"]:
        """All records, mapped into memory; those added later are not among them."""
        self._refresh()
        count = len(self._places)
        if count == 0:
            return torch.empty(0, *self.shape, dtype=torch.float16)
        return torch.from_numpy(np.memmap(self._records, np.float16, "c", shape=(count, *self.shape)))

    def _refresh(self) -> None:
        """Read the keys that were added since; half a key at the end is one that is being written."""
        with self._keys.open("rb") as file:
            file.seek(len(self._places) * KEY)
            new = file.read()
        for start in range(0, len(new) - KEY + 1, KEY):
            self._places[new[start : start + KEY]] = len(self._places)
