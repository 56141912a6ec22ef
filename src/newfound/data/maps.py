"""What a frozen trunk says of every image, computed once: the images of methods that train the last stage alone."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.data.batches import Dataset
from newfound.data.views import DRAWS


@final
@dataclass(frozen=True)
class Maps(Dataset):
    """Maps before the last stage, in half precision: one of the plain image, then `DRAWS` of augmented ones.

    The kind of a view was chosen when the maps were made; here views of an image are different ones of its maps.
    """

    maps: Float[Tensor, "all views channels height width"]
    labels: Int[Tensor, " n"]
    rows: Int[Tensor, " n"]  # where in `maps` each image is

    def look(
        self, rows: Int[Tensor, " m"], kinds: tuple[str, ...], draws: list[Tensor], device: torch.device
    ) -> list[Tensor]:
        """Maps drawn among those kept."""
        places = self.rows[rows]
        if kinds == ("plain",):
            return [self.maps[places, 0].to(device).float()]
        order = draws[0].argsort(1)  # of as many uniform numbers as there are augmented maps
        return [self.maps[places, 1 + order[:, v % DRAWS]].to(device).float() for v in range(len(kinds))]
