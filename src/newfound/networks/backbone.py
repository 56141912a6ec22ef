"""What every backbone is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

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
    def forward(self, images: Float[Tensor, " batch *image"]) -> Latents:
        """Latents of images with values in [0, 1], or of features; `map` is what the last stage is given."""

    def tail(self, maps: Float[Tensor, "batch channels height width"]) -> Latents:
        """Latents from what the last stage is given, for those who remember it."""
        raise NotImplementedError(f"{type(self).__name__} cannot be cut before its last stage.")

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The plain values that build it anew, written into the model folder."""

    def fresh(self) -> "Backbone":
        """Another of its kind that has learnt nothing yet."""
        return type(self)(**self.settings())


@final
class Tail(Backbone):
    """The last stage of a backbone as a backbone of its own: its images are the maps that the trunk gave of them.

    The stage is shared, not copied: what it learns here the whole backbone has learnt.
    """

    def __init__(self, whole: Backbone):
        super().__init__()
        self.dim, self.stages = whole.dim, whole.stages[-1:]
        self._whole = (whole,)  # in a tuple: the trunk is no part of this module

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Latents:
        """Latents of maps."""
        return self._whole[0].tail(images)

    def settings(self) -> dict[str, Any]:
        """Those of the whole."""
        return self._whole[0].settings()


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
