"""Augmentation of whole batches: a row of uniform numbers decides how its image is seen, and nothing else does.

So a process that holds a part of the batch draws for the whole, takes its rows, and sees what one process would.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

DRAWS = 8
"""Numbers for each image. More than a view reads today: another count would change all draws of all runs."""

Pixels = UInt8[Tensor, "n channels height width"]
Draws = Float[Tensor, "n draws"]
Seen = Float[Tensor, "n channels height width"]


def draw_numbers(n: int, generator: torch.Generator) -> Draws:
    """Uniform numbers in [0, 1), a row for each image."""
    return torch.rand(n, DRAWS, generator=generator)


def plain(pixels: Pixels, draws: Draws) -> Seen:
    """The image as it is, from 0 to 1."""
    return pixels.float() / 255


def weak(pixels: Pixels, draws: Draws) -> Seen:
    """Shifted by whole pixels, up to an eighth of the size, filled by reflection; then flipped half of the time.

    On CIFAR this is the ±4 pixels and the horizontal flip of DTC, RS and NCL; some of their scripts fill with zeros.
    """
    height, width = pixels.shape[2:]
    down, right, flip = draws[:, :3].unbind(1)
    rows, columns = shift_places(height, down), shift_places(width, right)
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


def strong(pixels: Pixels, draws: Draws) -> Seen:
    """Framed anew, flipped half of the time, and often in other colours.

    Half of the images are shifted by whole pixels, up to an eighth of the size, black filling in; of the others a part
    of half to all of the area is cut out and resized. 60 % are jittered, 10 % solarised, 10 % equalised: the large
    view of UNO's code on CIFAR (Fini et al. 2021).
    """
    height, width = pixels.shape[2:]
    place, colour = halve_draws(draws).split((6, 2 * DRAWS - 6), 1)
    whether, down, right, area, ratio, flip = place.unbind(1)
    tall, wide = torch.full_like(down, height), torch.full_like(right, width)
    moved = torch.stack((offset(height, down), offset(width, right), tall, wide), 1)
    part = crop(height, width, down, right, between(0.5, 1, area), ratio)
    box = torch.where(whether[:, None] < 0.5, moved, part)
    return recolour(frame(plain(pixels, draws), box, (height, width), flip < 0.5), colour, often=0.6, rarely=0.1)


def cut(pixels: Pixels, draws: Draws) -> Seen:
    """A part of half to all of the area, cut out and resized, flipped half of the time; the colours stay.

    For photographs of any kind: what tells species apart may be their colour.
    """
    height, width = pixels.shape[2:]
    down, right, area, ratio, flip = draws[:, :5].unbind(1)
    box = crop(height, width, down, right, between(0.5, 1, area), ratio)
    return frame(plain(pixels, draws), box, (height, width), flip < 0.5)


def small(pixels: Pixels, draws: Draws) -> Float[Tensor, "n channels rows columns"]:
    """A part of 0.3 to 0.8 of the area, in 18/32 of the pixels along a side, flipped half of the time, recoloured.

    80 % are jittered, 20 % solarised, 20 % equalised: the small view of UNO's code on CIFAR (Fini et al. 2021).
    """
    height, width = pixels.shape[2:]
    place, colour = halve_draws(draws).split((6, 2 * DRAWS - 6), 1)
    _, down, right, area, ratio, flip = place.unbind(1)
    part = crop(height, width, down, right, between(0.3, 0.8, area), ratio)
    size = round(height * 18 / 32), round(width * 18 / 32)
    return recolour(frame(plain(pixels, draws), part, size, flip < 0.5), colour, often=0.8, rarely=0.2)


VIEWS: dict[str, Callable[[Pixels, Draws], Seen]] = {
    "plain": plain,
    "weak": weak,
    "affine": affine,
    "strong": strong,
    "small": small,
    "cut": cut,
}
"""The ways to see an image, by the name that a recipe gives."""


def shift_places(size: int, draw: Float[Tensor, " n"]) -> Int[Tensor, "n size"]:
    """Where each pixel along a side comes from when the image is shifted and reflected at its ends."""
    places = torch.arange(size, device=draw.device) + offset(size, draw)[:, None]
    return (size - 1) - ((size - 1) - places.abs()).abs()


def between(low: float, high: float, draw: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """A uniform number from low to high."""
    return low + (high - low) * draw


def offset(size: int, draw: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """A whole number of pixels, up to an eighth of the size either way."""
    most = size // 8
    return (draw * (2 * most + 1)).long() - most


def halve_draws(draws: Draws) -> Float[Tensor, "n numbers"]:
    """Twice as many uniform numbers, of 12 bits: the first halves of the 24 bits of all draws, then the last ones."""
    first = (draws * 4096).floor()
    return torch.cat((first / 4096, draws * 4096 - first), 1)


def crop(
    height: int,
    width: int,
    down: Float[Tensor, " n"],
    right: Float[Tensor, " n"],
    area: Float[Tensor, " n"],
    ratio: Float[Tensor, " n"],
) -> Float[Tensor, "n 4"]:
    """Where a part of the image lies, in pixels: top, left, height and width.

        h = √(area · HW / r),   w = √(area · HW · r),   log r uniform from log ¾ to log 4/3

    `area` is a share of the image, the other three are draws. A part longer than the image is cut to its length;
    torchvision, which UNO uses, would draw again.
    """
    r = between(math.log(3 / 4), math.log(4 / 3), ratio).exp()
    tall, wide = ((area * height * width * part).sqrt() for part in (1 / r, r))
    tall, wide = tall.clamp(max=height), wide.clamp(max=width)
    return torch.stack(((height - tall) * down, (width - wide) * right, tall, wide), 1)


def frame(
    images: Seen, box: Float[Tensor, "n 4"], size: tuple[int, int], flip: Bool[Tensor, " n"]
) -> Float[Tensor, "n channels rows columns"]:
    """What lies in the box (top, left, height, width in pixels), resized and where asked flipped; black if outside."""
    top, left, tall, wide = box.unbind(1)
    rows = taps(top, tall, images.shape[2], size[0])
    columns = taps(left, wide, images.shape[3], size[1])
    columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    return (rows[:, None] @ images @ columns[:, None].mT).clamp_(0, 1)


def taps(
    start: Float[Tensor, " n"], length: Float[Tensor, " n"], size: int, out: int
) -> Float[Tensor, "n {out} {size}"]:
    """How much of each pixel along a side goes into each of `out` pixels that divide a stretch of it.

        t_oi ∝ max(0, 1 − |i + ½ − start − (o + ½) s| / max(s, 1)),   s = length / out,   Σ_i t_oi = 1

    Bilinear, and wider where the stretch shrinks, so that every pixel counts, as in Pillow. 0 beyond the ends.
    """
    step = (length / out)[:, None, None]
    centre = start[:, None, None] + (torch.arange(out, device=start.device)[:, None] + 0.5) * step
    away = torch.arange(size, device=start.device) + 0.5 - centre
    t = (1 - away.abs() / step.clamp(min=1)).relu()
    return t / t.sum(2, keepdim=True).clamp(min=0.01)


def recolour(seen: Seen, numbers: Float[Tensor, "n numbers"], often: float, rarely: float) -> Seen:
    """In other colours: the share `often` is jittered, `rarely` solarised, and `rarely` equalised."""
    jitter, brightness, contrast, saturation, hue, solar, level, equal = numbers[:, :8].unbind(1)
    other = jitter_colours(
        seen,
        brightness=between(0.6, 1.4, brightness),
        contrast=between(0.6, 1.4, contrast),
        saturation=between(0.8, 1.2, saturation),
        hue=between(-0.1, 0.1, hue),
    )
    seen = torch.where((jitter < often)[:, None, None, None], other, seen)
    inverted = (solar < rarely)[:, None, None, None] & (seen >= level[:, None, None, None])
    seen = torch.where(inverted, 1 - seen, seen)
    seen[equal < rarely] = equalise(seen[equal < rarely])
    return seen


def jitter_colours(
    seen: Seen,
    brightness: Float[Tensor, " n"],
    contrast: Float[Tensor, " n"],
    saturation: Float[Tensor, " n"],
    hue: Float[Tensor, " n"],
) -> Seen:
    """Brightness, contrast and saturation multiplied, colours turned by the share `hue` of a circle.

        x ← b x,   x ← m + c (x − m),   x ← g + s R (x − g)

    with m the mean of the image, g the mean of a pixel's channels, R the turn about the axis of greys; cut to [0, 1].
    torchvision, which UNO uses, does the four in random order, and the last two in HSV. One channel has no colours.
    """
    b, c, s, angle = (number[:, None, None, None] for number in (brightness, contrast, saturation, 2 * math.pi * hue))
    x = b * seen
    x = torch.lerp(x.mean((1, 2, 3), keepdim=True), x, c)
    g = x.mean(1, keepdim=True)
    off = s * (x - g)
    across = (off.roll(1, 1) - off.roll(-1, 1)) / math.sqrt(3)  # the cross product with the axis
    return (g + angle.cos() * off + angle.sin() * across).clamp_(0, 1)


def equalise(seen: Seen) -> Seen:
    """Every brightness about as frequent as every other, channel by channel.

        x ← #{pixels darker than x} / #{pixels darker than the brightest}

    in 256 levels. A channel of one level stays.
    """
    levels = (seen * 255).round().long().flatten(2)
    counts = seen.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, torch.ones_like(levels, dtype=seen.dtype))
    darker = counts.cumsum(2) - counts
    most = darker.gather(2, levels.amax(2, keepdim=True))
    equal = darker.gather(2, levels) / most.clamp(min=1)
    return torch.where(most > 0, equal, seen.flatten(2)).view_as(seen)
