"""Ring of the latest latents."""

from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


@final
class Bank(nn.Module):
    """The latest latents of unit length, with their labels; begins with random directions of no label."""

    latents: Float[Tensor, "size dim"]
    labels: Int[Tensor, " size"]
    place: Int[Tensor, ""]

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.register_buffer("latents", F.normalize(torch.rand(size, dim), dim=1))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("place", torch.tensor(0))

    @torch.no_grad()
    def push(self, z: Float[Tensor, "n dim"], labels: Int[Tensor, " n"] | None = None) -> None:
        """Put these in the place of the oldest; of more than there is room for, the last are kept."""
        size = len(self.latents)
        kept = F.normalize(z[-size:], dim=1)
        at = (self.place + torch.arange(len(kept), device=z.device)) % size
        self.latents[at] = kept
        self.labels[at] = -1 if labels is None else labels[-size:]
        self.place.copy_((self.place + len(kept)) % size)
