"""What a frozen trunk says of every image, computed once: the images of backbones that learn what comes after it."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.data.batches import Dataset


@final
@dataclass(frozen=True, eq=False)
class Maps(Dataset):
    """Maps or features in half precision: one of the plain image, then some of augmented ones, at most `DRAWS`.

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
