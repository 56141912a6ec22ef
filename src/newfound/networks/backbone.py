"""What every backbone is, and a network that only looks."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from newfound.errors import InputError
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

    def turn(self, metric: Float[Tensor, "dim dim"]) -> None:
        """Give latents times this matrix from now on: a run's model gives them as classes were read."""
        raise InputError(
            f"{type(self).__name__} cannot turn its latents, and classes are read where they are whitened. Needed: a "
            "method turn(metric) that multiplies them, in a buffer that is saved with it."
        )

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


@final
class Frozen(nn.Module):
    """A copy of a network that only looks: no gradient, deaf to `train()`.

    Its BatchNorm uses the statistics it has learnt, or each batch's own, without remembering them.
    """

    def __init__(self, network: nn.Module, statistics: Literal["learnt", "batch"] = "learnt"):
        super().__init__()
        self.network, self.statistics = copy.deepcopy(network).requires_grad_(False), statistics
        self.eval()

    def train(self, mode: bool = True) -> "Frozen":
        """Stay in eval mode, whatever is asked."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, seen: Float[Tensor, " n *rest"]) -> Latents | Tensor:
        """What the network says, without gradient; one row alone has no statistics, and is given the learnt ones."""
        for module in self.network.modules():
            if isinstance(module, _BatchNorm):
                module.train(self.statistics == "batch" and len(seen) > 1)
        with still(self.network):
            return self.network(seen)
