"""What every backbone is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from newfound.types import Latents


class Backbone(nn.Module, ABC):
    """Turns images into latents.

    `stages` run one after the other; the last n of them are what `Training(trains=n)` trains.
    """

    dim: int
    stages: nn.ModuleList

    @abstractmethod
    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Latents:
        """Latents of images with values in [0, 1]."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The plain values that build it anew, written into the model folder."""


@contextmanager
def still(network: nn.Module) -> Iterator[None]:
    """Within it, BatchNorm in train mode uses the batch's statistics without remembering them."""
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
