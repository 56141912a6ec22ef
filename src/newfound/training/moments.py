"""What a figure needs of one moment of a run: latents of unlabelled images, and Spacing's prototypes and anchors."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.methods.base import Method
from newfound.methods.spacing import spacing_of
from newfound.types import Now, Survey

MOST = 5000
"""At most so many images, evenly chosen, are kept."""


@dataclass(frozen=True, eq=False)
class Moment:
    """Unlabelled images at one moment of a run."""

    rows: Int[Tensor, " n"]  # which of them

    latents: Float[Tensor, "n dim"]
    spaced: Float[Tensor, "n dim"] | None = None  # the same in the space where prototypes live
    prototypes: Float[Tensor, "c dim"] | None = None
    anchors: Float[Tensor, "c dim"] | None = None


@torch.no_grad()
def moment(method: Method, seen: Survey) -> Moment:
    """The unlabelled images as this method sees them."""
    latents = seen.unlabelled
    rows = torch.linspace(0, len(latents) - 1, min(len(latents), MOST), dtype=torch.float64).round().long()
    loss, kept = spacing_of(method), latents[rows]
    if loss is None or not loss.started:
        return Moment(rows, kept)
    # clones: latents may be their own space, and tensors that share memory cannot be saved
    return Moment(rows, kept, *(value.clone() for value in (loss.space(kept), loss.prototypes, loss.anchors)))


@torch.no_grad()
def start(method: Method, seen: Survey, seed: int, epochs: int) -> Method:
    """A copy of the method, started as so many epochs would start it; it shows where prototypes will first be."""
    trial = copy.deepcopy(method)
    for epoch in range(max(epochs, 1)):
        trial.before_epoch(lambda: seen, Now(seed, epoch, max(epochs, 1)))
        if (loss := spacing_of(trial)) is None or loss.started:
            break
    return trial
