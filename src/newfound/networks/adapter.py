"""The backbone of features: what is left to learn where a pretrained trunk has been used."""

from typing import Any, final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.axes import Axes, power_normalised
from newfound.networks.backbone import Backbone
from newfound.types import Latents, seeded


@final
class Adapter(Backbone):
    """A small residual network behind a fixed linear map; it starts as that map.

        u = unit((x̂ − centre) · matrix),   z = u + B relu(C u),   B = 0 at first

    x̂ are the power-normalised features x. Latents are few and of either sign.
    """

    centre: Tensor
    matrix: Tensor

    def __init__(self, inputs: int, dim: int, hidden: int = 256):
        super().__init__()
        self.inputs, self.dim, self.hidden = inputs, dim, hidden
        self.register_buffer("centre", torch.zeros(inputs))
        matrix = torch.zeros(inputs, dim).fill_diagonal_(1)  # not `eye`: on the meta device that imports sympy, 65 MB
        self.register_buffer("matrix", matrix)
        last = nn.Linear(hidden, dim, bias=False)
        nn.init.zeros_(last.weight)
        self.stages = nn.ModuleList([nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), last)])

    def aim(self, axes: Axes) -> None:
        """Look along these axes from now on."""
        self.centre.copy_(axes.centre)
        self.matrix.copy_(axes.matrix)

    def forward(self, images: Float[Tensor, "batch inputs"]) -> Latents:
        """Latents of features."""
        return Latents(self.place(power_normalised(images)))

    def place(self, power_normalised: Float[Tensor, "n inputs"]) -> Float[Tensor, "n dim"]:
        """Latents of what is power-normalised already, such as class means."""
        return self.bent((power_normalised - self.centre) @ self.matrix)

    def bent(self, y: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        """Latents of what lies along the axes already."""
        u = F.normalize(y, dim=1)
        return u + self.stages[0](u)

    def settings(self) -> dict[str, Any]:
        """How many numbers come in, go out, and lie between."""
        return {"inputs": self.inputs, "dim": self.dim, "hidden": self.hidden}

    def fresh(self) -> "Adapter":
        """Another one that has learnt nothing yet, but looks along the same axes."""
        new = Adapter(**self.settings())
        new.aim(Axes(self.centre, self.matrix))
        return new


def adapter_along(axes: Axes, seed: int) -> Adapter:
    """An adapter that looks along these axes; its weights are a function of the seed."""
    with seeded(seed, "adapter"):
        adapter = Adapter(*axes.matrix.shape)
    adapter.aim(axes)
    return adapter
