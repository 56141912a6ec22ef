"""Augmentation of whole batches: a row of uniform numbers decides how its image is seen, and nothing else does.

So a process that holds a part of the batch draws for the whole, takes its rows, and sees what one process would.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

DRAWS = 8
"""Numbers for each image. More than a view reads today: another count would change all draws of all runs."""

Pixels = UInt8[Tensor, "n channels height width"]
Draws = Float[Tensor, "n draws"]
Seen = Float[Tensor, "n channels height width"]


def draws(n: int, generator: torch.Generator) -> Draws:
    """Uniform numbers in [0, 1), a row for each image."""
    return torch.rand(n, DRAWS, generator=generator)


def plain(pixels: Pixels, draws: Draws) -> Seen:
    """The image as it is, from 0 to 1."""
    return pixels.float() / 255


def weak(pixels: Pixels, draws: Draws) -> Seen:
    """Shifted by whole pixels, up to an eighth of the size, filled by reflection; then flipped half of the time.

    On CIFAR this is the ±4 pixels and the horizontal flip of DTC, RS and NCL.
    """
    height, width = pixels.shape[2:]
    down, right, flip = draws[:, :3].unbind(1)
    rows, columns = shifted(height, down), shifted(width, right)
    columns = torch.where(flip[:, None] < 0.5, columns.flip(1), columns)
    places = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)
    seen = pixels.flatten(2).gather(2, places[:, None].expand(-1, pixels.shape[1], -1)).view_as(pixels)
    return plain(seen, draws)


def affine(pixels: Pixels, draws: Draws) -> Seen:
    """Turned up to 15°, scaled by 0.85 to 1.15, sheared, shifted up to a tenth of the size, flipped half of the time.

        seen(p) = image(A p + t),   A = R(angle) · (1 shear; 0 1) · diag(±1, 1) / scale

    with p in pixels from the centre, bilinear between pixels, and reflection beyond the edges.
    """
    height, width = pixels.shape[2:]
    down, right, flip, angle, scale, shear = draws[:, :6].unbind(1)
    angle, shear = between(-math.pi / 12, math.pi / 12, angle), between(-0.15, 0.15, shear)
    cos, sin = (part / between(0.85, 1.15, scale) for part in (angle.cos(), angle.sin()))
    side = torch.where(flip < 0.5, -1.0, 1.0)
    # affine_grid counts from −1 to 1 along both sides: a tenth is 0.2, and what turns rows to columns is stretched
    across = torch.stack((side * cos, (cos * shear - sin) * height / width, between(-0.2, 0.2, right)), 1)
    along = torch.stack((side * sin * width / height, sin * shear + cos, between(-0.2, 0.2, down)), 1)
    grid = affine_grid(torch.stack((across, along), 1), list(pixels.shape), align_corners=False)
    seen = grid_sample(plain(pixels, draws), grid, padding_mode="reflection", align_corners=False)
    return seen.clamp(0, 1)


VIEWS: dict[str, Callable[[Pixels, Draws], Seen]] = {"plain": plain, "weak": weak, "affine": affine}
"""The ways to see an image, by the name that a recipe gives."""


def shifted(size: int, draw: Float[Tensor, " n"]) -> Int[Tensor, "n size"]:
    """Where each pixel along a side comes from when the image is shifted and reflected at its ends."""
    most = size // 8
    shift = (draw * (2 * most + 1)).long() - most
    places = torch.arange(size, device=draw.device) + shift[:, None]
    return (size - 1) - ((size - 1) - places.abs()).abs()


def between(low: float, high: float, draw: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """A uniform number from low to high."""
    return low + (high - low) * draw
