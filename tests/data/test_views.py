"""Every view against the obvious slow loop, and the promise that a row's draws alone decide what is seen."""

import math

import numpy as np
import pytest
import torch

from newfound.data.views import DRAWS, VIEWS, draws

KINDS = sorted(VIEWS)


def batch(n=7, channels=3, height=32, width=32):
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randint(0, 256, (n, channels, height, width), generator=generator, dtype=torch.uint8)
    return pixels, draws(n, generator)


def naive_plain(image, row):
    return image / 255


def naive_weak(image, row):
    _, height, width = image.shape
    y, x = height // 8, width // 8
    padded = np.pad(image, ((0, 0), (y, y), (x, x)), mode="reflect")
    top, left = math.floor(row[0] * (2 * y + 1)), math.floor(row[1] * (2 * x + 1))
    seen = padded[:, top : top + height, left : left + width]
    return (seen[:, :, ::-1] if row[2] < 0.5 else seen) / 255


def naive_affine(image, row):
    channels, height, width = image.shape
    shift = np.array([(row[1] - 0.5) * 0.2 * width, (row[0] - 0.5) * 0.2 * height])
    angle, scale, shear = math.radians(30 * row[3] - 15), 0.85 + 0.3 * row[4], 0.3 * row[5] - 0.15
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    flip = np.diag([-1.0 if row[2] < 0.5 else 1.0, 1.0])
    matrix = turn @ np.array([[1, shear], [0, 1]]) @ flip / scale
    centre = np.array([(width - 1) / 2, (height - 1) / 2])

    def at(x, y):  # bilinear between pixels; the picture is mirrored at its edges, which lie half a pixel out
        total = np.zeros(channels)
        for j in (math.floor(y), math.floor(y) + 1):
            for i in (math.floor(x), math.floor(x) + 1):
                weight = (1 - abs(x - i)) * (1 - abs(y - j))
                total += weight * image[:, min(max(j, 0), height - 1), min(max(i, 0), width - 1)]
        return total

    def mirrored(value, size):
        value = (value + 0.5) % (2 * size)
        return min(value, 2 * size - value) - 0.5

    seen = np.zeros(image.shape)
    for y in range(height):
        for x in range(width):
            i, j = matrix @ (np.array([x, y]) - centre) + shift + centre
            seen[:, y, x] = at(mirrored(i, width), mirrored(j, height))
    return seen / 255


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 28), (3, 16, 24), (1, 5, 1)])
@pytest.mark.parametrize("naive", [naive_plain, naive_weak, naive_affine])
def test_a_view_equals_the_loop_over_images(naive, channels, height, width):
    pixels, rows = batch(7, channels, height, width)
    seen = VIEWS[naive.__name__.removeprefix("naive_")](pixels, rows)
    slow = [naive(image, row) for image, row in zip(pixels.numpy(), rows.double().numpy(), strict=True)]
    np.testing.assert_allclose(seen.numpy(), np.stack(slow), atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_the_batch_is_seen_as_it_is_in_the_whole(kind):
    pixels, rows = batch(64)
    whole = VIEWS[kind](pixels, rows)
    for part in (slice(0, 32), slice(32, 64), slice(5, 6), slice(3, 50)):
        assert torch.equal(VIEWS[kind](pixels[part], rows[part]), whole[part])


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_lies_between_0_and_1_and_leaves_the_pixels_alone(kind):
    pixels, rows = batch(64)
    pixels[:2], pixels[2:4] = 0, 255
    before = pixels.clone()
    seen = VIEWS[kind](pixels, rows)
    assert seen.dtype == torch.float32
    assert seen.shape == pixels.shape
    assert seen.min() >= 0
    assert seen.max() <= 1
    assert torch.equal(pixels, before)


@pytest.mark.parametrize("draw", [0.0, 1 - 2**-24])
@pytest.mark.parametrize("kind", KINDS)
def test_the_least_and_the_greatest_draw_are_seen_too(kind, draw):
    pixels, rows = batch(2)
    assert VIEWS[kind](pixels, torch.full_like(rows, draw)).isfinite().all()


def test_weak_shifts_by_every_whole_number_up_to_an_eighth_and_flips_half():
    pixels = torch.arange(32, dtype=torch.uint8).expand(4000, 1, 32, 32)
    seen = VIEWS["weak"](pixels, draws(4000, torch.Generator().manual_seed(0))).mul(255).round().long()
    middle = seen[:, 0, 0, 16] - seen[:, 0, 0, 15]  # 1 as it was, −1 flipped
    assert set(middle.tolist()) == {1, -1}
    assert abs((middle == 1).float().mean() - 0.5) < 0.03
    assert set((seen[middle == 1, 0, 0, 16] - 16).tolist()) == set(range(-4, 5))


def test_draws_are_a_function_of_the_generator_alone():
    first, again, other = (draws(1000, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first.shape == (1000, DRAWS)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.min() >= 0
    assert first.max() < 1
    assert (first.mean(0) - 0.5).abs().max() < 0.05
