"""Images as a backbone saw them: what it said of each is computed once, and kept on disk by content."""

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import torch
import torch.nn.functional as F
from filelock import FileLock
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound import files
from newfound.data.batches import Dataset
from newfound.data.decoding import THUMBNAIL, Framing, decode_all, measure_sides
from newfound.data.listing import Listing
from newfound.errors import counted

log = logging.getLogger("newfound")

ALIKE = 0.8
"""The cosine of features that near-duplicates have at least (decision 12); many other images have it too."""

BLOCK = 1024
"""Images that are compared with all at once."""

KEY = 32
"""Bytes of a key: a sha256 of what decides the features."""

ENTRY = KEY + 8
"""Bytes of a key with its checksum."""


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

    def pick(self, rows: Int[Tensor, " rows"]) -> "FeatureImages":
        """Some of the images, in the order of `rows`."""
        keys = tuple(self.keys[row] for row in rows.tolist())
        return FeatureImages(self.listing.pick(rows), self.records, self.places[rows], keys)

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

    def lookalikes(self, others: "FeatureImages | None") -> tuple[Int[Tensor, " some"], Int[Tensor, " theirs"]]:
        """Those between which the backbone sees little difference, so that few files need be read again."""
        x = F.normalize(self.features(), dim=1)
        y = x if others is None else F.normalize(others.features(), dim=1)
        mine, theirs = torch.zeros(len(x), dtype=torch.bool), torch.zeros(len(y), dtype=torch.bool)
        for rows in torch.arange(len(x)).split(BLOCK):
            alike = x[rows] @ y.T >= ALIKE
            if others is None:
                alike[torch.arange(len(rows)), rows] = False
            mine[rows] = alike.any(1)
            theirs |= alike.any(0)
        return mine.nonzero()[:, 0], theirs.nonzero()[:, 0]

    def small_copies(self, rows: Int[Tensor, " some"], side: int) -> UInt8[Tensor, "some 3 {side} {side}"]:
        """Read anew, all of each; grey, which is nobody's duplicate, where a file has vanished meanwhile."""
        return self._read(rows, side, "squeezed")

    def sides(self, rows: Int[Tensor, " some"]) -> Int[Tensor, "some 2"]:
        """Those of their files, or of the boxes in them."""
        some = self.listing.pick(rows)
        sides = [
            sorted(box[2:]) if box else measure_sides(file) for file, box in zip(some.files, some.boxes, strict=True)
        ]
        return torch.tensor([[*map(int, each or (0, 0))] for each in sides], dtype=torch.long).reshape(-1, 2)

    def thumbnails(self, rows: Sequence[int]) -> dict[int, UInt8[Tensor, "channels height width"]]:
        """Small copies of some, read anew; grey where a file has vanished meanwhile."""
        return dict(zip(rows, self._read(torch.tensor(rows, dtype=torch.long), THUMBNAIL, "whole"), strict=True))

    def _read(self, rows: Int[Tensor, " some"], side: int, framing: Framing) -> UInt8[Tensor, "some 3 side side"]:
        some = self.listing.pick(rows)
        pixels, reasons = decode_all(some.files, side, some.boxes, framing)
        copies = torch.full((len(rows), 3, side, side), 128, dtype=torch.uint8)
        copies[[place for place in range(len(rows)) if place not in reasons]] = pixels
        return copies


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

    def relabel(self, labels: Int[Tensor, " n"]) -> "FeatureDataset":
        """The same images with other labels."""
        return replace(self, labels=labels)

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

    `records` holds them one after the other, `keys` the key of each with a checksum of both. A record is written
    before its key, so what has a key is whole, whatever interrupts; what has none is written over. Several processes
    may add at once. A store in which something else was written, or from which something was cut off, is made anew.
    """

    def __init__(self, folder: Path, views: int, dim: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.shape, self._bytes = (views, dim), 2 * views * dim
        self._records, self._keys = folder / "records", folder / "keys"
        self._lock = FileLock(folder / "lock")
        self._places: dict[bytes, int] = {}
        self._last = b""  # the last entry that was read
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
            kept = [record.tobytes() for record in records[list(new.values())].half().numpy(force=True)]
            with self._records.open("r+b") as file:
                file.seek(len(self._places) * self._bytes)
                file.write(b"".join(kept))
                file.truncate()
                file.flush()
                os.fsync(file.fileno())  # a key must not reach the disk before its record
            with self._keys.open("r+b") as file:
                file.seek(len(self._places) * ENTRY)
                file.write(b"".join(key + checksum(key, record) for key, record in zip(new, kept, strict=True)))
        self._refresh()

    def open(self) -> Float[Tensor, "all views dim"]:
        """All records, mapped into memory; those added later are not among them."""
        self._refresh()
        count = len(self._places)
        if count == 0:
            return torch.empty(0, *self.shape, dtype=torch.float16)
        return torch.from_numpy(np.memmap(self._records, np.float16, "c", shape=(count, *self.shape)))

    def _refresh(self) -> None:
        """Read what was added since; where that is damaged, begin anew."""
        if self._read() is None:
            return
        with self._lock:
            self._places, self._last = {}, b""
            if (why := self._read()) is not None:  # and nobody else has begun anew meanwhile
                log.warning(f"The cache of features in {self._keys.parent} is damaged ({why}): it is made anew.")
                for path in (self._keys, self._records):
                    files.write(path, b"")  # a new file, not one cut short: others may have the old one in memory
                self._places, self._last = {}, b""

    def _read(self) -> str | None:
        """Read the entries that were added since; says what is wrong with one, if anything is. Half an entry at the end
        is one that is being written.
        """
        first = len(self._places)
        with self._keys.open("rb") as file:
            file.seek(max(0, first - 1) * ENTRY)
            last, new = file.read(ENTRY if first else 0), file.read()
        if last != self._last:
            return "keys that were there are gone"
        with self._records.open("rb") as file:
            file.seek(first * self._bytes)
            for start in range(0, len(new) - ENTRY + 1, ENTRY):
                entry, record = new[start : start + ENTRY], file.read(self._bytes)
                if (key := entry[:KEY]) in self._places:
                    return "a key is there twice"
                if checksum(key, record) != entry[KEY:]:
                    return f"record {len(self._places) + 1} is not what was written"
                self._places[key], self._last = len(self._places), entry
        return None


def checksum(key: bytes, record: bytes) -> bytes:
    """What tells a record and its key from others."""
    return hashlib.blake2b(key + record, digest_size=ENTRY - KEY).digest()
