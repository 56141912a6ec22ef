"""The frozen trunk, computed once: most published methods train the last stage alone."""

import copy
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from newfound.data.pixels import PixelDataset
from newfound.data.views import DRAWS, draw_numbers
from newfound.functional.geometry import affine_fit
from newfound.networks.backbone import Backbone
from newfound.networks.model import Model, Statistics
from newfound.training.loop import accelerator, survey
from newfound.types import Now, Training, generator

VIEWS = DRAWS
"""Augmented views of each image that are kept: the order of its draws says which is seen (`FeatureDataset`)."""


SHRINK = 0.01
"""Of the map that carries statistics along. In a split of CIFAR-10 that no table reports means left behind are off by
37 % of how far the classes lie apart, carried along by 6 % (1000 images) or 12 % (100). Ten times as much costs a point
or two with 1000, a tenth of it five with 100.
"""


@torch.no_grad()
def adapt_batch_norm(
    backbone: Backbone, pixels: UInt8[Tensor, "n channels height width"], view: str, seed: int
) -> None:
    """One pass in train mode, so that BatchNorm's running statistics are the mean over these images' batches.

    In the published code the frozen stages keep learning them; after stage one they would speak of other images.
    """
    norms = [module for module in backbone.modules() if isinstance(module, _BatchNorm)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # torch: the plain mean over batches
    device = next(backbone.parameters()).device
    training = Training(epochs=1, batch=min(256, len(pixels)), rate=0.0, views=(view,))
    data = PixelDataset(pixels, torch.full((len(pixels),), -1))
    backbone.train()
    for _, batch in data.batches(training, Now(seed, 0, 1), device):
        backbone(batch.views[0])
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum


def adapt_model(
    model: Model, pixels: UInt8[Tensor, "n channels height width"], view: str, seed: int, shrink: float = SHRINK
) -> Model:
    """The model with a settled backbone, and what it tells of the known classes carried along; the given one stays."""
    before, after = (copy.deepcopy(model.backbone).to(accelerator().device) for _ in range(2))
    adapt_batch_norm(after, pixels, view, seed)
    settled = replace(model, backbone=after)
    if model.known is None:
        return settled
    data = PixelDataset(pixels, torch.full((len(pixels),), -1))
    return carried(settled, survey(before, data).features.cpu(), survey(after, data).features.cpu(), shrink)


def carried(
    model: Model, before: Float[Tensor, "n dim"], after: Float[Tensor, "n dim"], shrink: float = SHRINK
) -> Model:
    """The model with its known classes where the map that took other latents from `before` to `after` takes them.

        μ_k ← μ_k A + b,   S ← Aᵀ S A        (`affine_fit`)

    Images of the known classes need not be at hand. A class whose mean is not told stays so. Where the map is affine
    indeed, and `shrink` 0, means and spread are what would be measured anew.
    """
    if model.known is None:
        return model
    means, within_covariance, counts = model.known
    A, b = (part.to(means) for part in affine_fit(before, after, shrink))
    there = (counts > 0)[:, None]
    return replace(model, known=Statistics((means @ A + b) * there, A.T @ within_covariance @ A, counts))


@torch.no_grad()
def remember(
    backbone: Backbone, pixels: UInt8[Tensor, "n channels height width"], path: Path, view: str, seed: int
) -> None:
    """Write what the last stage will be given: of each plain image, then of `VIEWS` augmented views of it.

    In eval mode and half precision, to a `.npy` file that is whole or not there at all.
    """
    device = next(backbone.parameters()).device
    data, rows = PixelDataset(pixels, torch.full((len(pixels),), -1)), torch.arange(len(pixels)).split(512)
    backbone.eval()
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    maps = None
    for number, kind in enumerate(("plain", *[view] * VIEWS)):
        random = generator(seed, number, "trunk")
        for some in rows:
            seen = backbone(data.look(some, (kind,), [draw_numbers(len(some), random)], device)[0]).map
            assert seen is not None
            if maps is None:
                shape = (len(pixels), 1 + VIEWS, *seen.shape[1:])
                maps = np.lib.format.open_memmap(beside, mode="w+", dtype=np.float16, shape=shape)
            maps[some.numpy(), number] = seen.cpu().numpy()
    assert maps is not None
    maps.flush()
    beside.replace(path)


def recall(path: Path) -> Float[Tensor, "n views channels height width"]:
    """The maps, read from the disk as they are needed."""
    return torch.from_numpy(np.load(path, mmap_mode="c"))
