"""Features on disk, by content: what a trunk says of an image is computed once."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float, Int
from torch import Tensor

from newfound.errors import counted

KEY = 32
"""Bytes of a key: a sha256 of what decides the features."""


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
