"""Rings: of the latest rows as they are, and of the latest latents."""

from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


@final
class Ring(nn.Module):
    """The latest rows, as they are; begins with those given."""

    rows: Float[Tensor, "size dim"]
    pushed: Int[Tensor, ""]

    def __init__(self, rows: Float[Tensor, "size dim"]):
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("pushed", torch.tensor(0))

    @property
    def full(self) -> Bool[Tensor, ""]:
        """Whether nothing is left of what it began with."""
        return self.pushed >= len(self.rows)

    @torch.no_grad()
    def push(self, rows: Float[Tensor, "n dim"]) -> Int[Tensor, " kept"]:
        """Put these in the place of the oldest, and say where; of more than there is room for, the last are kept."""
        size = len(self.rows)
        kept = rows[-size:]
        at = (self.pushed + torch.arange(len(kept), device=rows.device)) % size
        self.rows[at] = kept
        self.pushed += len(kept)
        return at


@final
class Bank(nn.Module):
    """The latest latents of unit length, with their labels; begins with random directions of no label."""

    labels: Int[Tensor, " size"]

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.ring = Ring(F.normalize(torch.rand(size, dim), dim=1))
        self.register_buffer("labels", torch.full((size,), -1))

    @property
    def latents(self) -> Float[Tensor, "size dim"]:
        """All that are kept, in the order of their places."""
        return self.ring.rows

    @property
    def full(self) -> Bool[Tensor, ""]:
        """Whether no random direction is left."""
        return self.ring.full

    @torch.no_grad()
    def push(self, z: Float[Tensor, "n dim"], labels: Int[Tensor, " n"] | None = None) -> None:
        """Put these in the place of the oldest; of more than there is room for, the last are kept."""
        at = self.ring.push(F.normalize(z, dim=1))
        self.labels[at] = -1 if labels is None else labels[-len(self.labels) :]
