"""Every view against the obvious slow loop, and the promise that a row's draws alone decide what is seen."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from newfound.data.views import DRAWS, VIEWS, draw_numbers, equalise, halve_draws, jitter_colours

KINDS = sorted(VIEWS)


def batch(n=7, channels=3, height=32, width=32):
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randint(0, 256, (n, channels, height, width), generator=generator, dtype=torch.uint8)
    return pixels, draw_numbers(n, generator)


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


def naive_crop(image, size, numbers, low, high):
    """Pillow's resizing of a part of the image."""
    _, height, width = image.shape
    _, down, right, share, ratio = numbers[:5]
    area = (low + (high - low) * share) * height * width
    ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * ratio)
    tall, wide = min(math.sqrt(area / ratio), height), min(math.sqrt(area * ratio), width)
    top, left = (height - tall) * down, (width - wide) * right
    box = (left, top, min(left + wide, width), min(top + tall, height))
    resized = [Image.fromarray(channel).resize(size[::-1], Image.Resampling.BILINEAR, box) for channel in image]
    return np.stack([np.asarray(channel) for channel in resized]).astype(np.float64)


def naive_jitter(image, brightness, contrast, saturation, hue):
    """Pixel by pixel: (r, g, b) are turned about (1, 1, 1) by Rodrigues' formula."""
    seen = brightness * image
    mean, axis, angle = seen.mean(), np.ones(3) / math.sqrt(3), 2 * math.pi * hue
    seen = mean + contrast * (seen - mean)
    if len(seen) == 3:
        for y in range(seen.shape[1]):
            for x in range(seen.shape[2]):
                grey = seen[:, y, x].mean()
                v = saturation * (seen[:, y, x] - grey)
                turned = v * math.cos(angle) + np.cross(axis, v) * math.sin(angle)
                seen[:, y, x] = grey + turned + axis * (axis @ v) * (1 - math.cos(angle))
    return seen.clip(0, 1)


def naive_colours(seen, numbers, often, rarely):
    jitter, brightness, contrast, saturation, hue, solar, level, equal = numbers
    if jitter < often:
        factors = 0.6 + 0.8 * brightness, 0.6 + 0.8 * contrast, 0.8 + 0.4 * saturation, 0.2 * hue - 0.1
        seen = naive_jitter(seen, *factors)
    if solar < rarely:
        seen = np.where(seen >= level, 1 - seen, seen)
    return naive_equalised(seen) if equal < rarely else seen


def naive_equalised(image):
    seen = np.zeros(image.shape)
    for channel, out in zip(np.round(image * 255), seen, strict=True):
        for y, x in np.ndindex(channel.shape):
            darker, most = (channel < channel[y, x]).sum(), (channel < channel.max()).sum()
            out[y, x] = darker / most if most else channel[y, x] / 255
    return seen


def in_halves(row):
    """The first 12 bits of each draw, then the last 12."""
    bits = [round(draw * 2**24) for draw in row]
    return [whole // 4096 / 4096 for whole in bits] + [whole % 4096 / 4096 for whole in bits]


def naive_strong(image, row):
    _, height, width = image.shape
    numbers = in_halves(row)
    if numbers[0] < 0.5:
        y, x = height // 8, width // 8
        top, left = math.floor(numbers[1] * (2 * y + 1)), math.floor(numbers[2] * (2 * x + 1))
        black = np.pad(image, ((0, 0), (y, y), (x, x)))
        seen = black[:, top : top + height, left : left + width]
    else:
        seen = naive_crop(image.astype(np.float32), (height, width), numbers, 0.5, 1.0)
    seen = seen[:, :, ::-1] if numbers[5] < 0.5 else seen
    return naive_colours(seen / 255, numbers[6:14], 0.6, 0.1)


def naive_small(image, row):
    _, height, width = image.shape
    numbers = in_halves(row)
    size = round(height * 18 / 32), round(width * 18 / 32)
    seen = naive_crop(image.astype(np.float32), size, numbers, 0.3, 0.8)
    seen = seen[:, :, ::-1] if numbers[5] < 0.5 else seen
    return naive_colours(seen / 255, numbers[6:14], 0.8, 0.2)


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
    assert seen.shape == ((64, 3, 18, 18) if kind == "small" else pixels.shape)
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
    seen = VIEWS["weak"](pixels, draw_numbers(4000, torch.Generator().manual_seed(0))).mul(255).round().long()
    middle = seen[:, 0, 0, 16] - seen[:, 0, 0, 15]  # 1 as it was, −1 flipped
    assert set(middle.tolist()) == {1, -1}
    assert abs((middle == 1).float().mean() - 0.5) < 0.03
    assert set((seen[middle == 1, 0, 0, 16] - 16).tolist()) == set(range(-4, 5))


def test_draws_are_a_function_of_the_generator_alone():
    first, again, other = (draw_numbers(1000, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first.shape == (1000, DRAWS)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.min() >= 0
    assert first.max() < 1
    assert (first.mean(0) - 0.5).abs().max() < 0.05


def with_numbers(n, **numbers):
    """Draws whose halves are as usual, but for those given by place."""
    chosen = halve_draws(draw_numbers(n, torch.Generator().manual_seed(5)))
    for place, number in numbers.items():
        chosen[:, int(place.removeprefix("at"))] = number
    return chosen[:, :DRAWS] + chosen[:, DRAWS:] / 4096


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 28), (3, 16, 24), (1, 5, 1)])
@pytest.mark.parametrize("naive", [naive_strong, naive_small])
def test_a_recoloured_view_equals_the_loop_over_images(naive, channels, height, width):
    n, rare = 8, torch.arange(8) % 3 / 4  # a third is solarised; none is equalised, where a rounding would show
    pixels, _ = batch(n, channels, height, width)
    rows = with_numbers(n, at0=torch.arange(n) % 2 / 2, at11=rare, at13=0.5)
    seen = VIEWS[naive.__name__.removeprefix("naive_")](pixels, rows)
    slow = [naive(image, row) for image, row in zip(pixels.numpy(), rows.double().numpy(), strict=True)]
    np.testing.assert_allclose(seen.numpy(), np.stack(slow), atol=2e-5)


@pytest.mark.parametrize("kind", ["strong", "small"])
def test_an_equalised_view_is_the_view_equalised(kind):
    pixels, _ = batch(9)
    hit = torch.arange(9) % 2 == 0
    seen = VIEWS[kind](pixels, with_numbers(9, at13=hit.logical_not() / 2))
    without = VIEWS[kind](pixels, with_numbers(9, at13=0.5))
    assert torch.equal(seen[~hit], without[~hit])
    assert torch.equal(seen[hit], equalise(without[hit]))


@pytest.mark.parametrize("channels", [1, 3])
def test_equalising_equals_the_count_of_darker_pixels(channels):
    levels = torch.randint(0, 256, (4, channels, 9, 7), generator=torch.Generator().manual_seed(0)) ** 2 // 256
    levels[1] = 77  # one level stays
    levels[2] = (levels[2] > 50) * 100 + 30  # two levels become black and white
    images = levels / 255
    slow = np.stack([naive_equalised(image) for image in images.double().numpy()])
    np.testing.assert_allclose(equalise(images).numpy(), slow, atol=1e-6)
    assert torch.equal(equalise(images)[1], images[1])
    assert set(equalise(images)[2].flatten().tolist()) == {0.0, 1.0}


def test_jitter_that_changes_nothing_changes_nothing():
    images, one = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.ones(5)
    torch.testing.assert_close(jitter_colours(images, one, one, one, 0 * one), images)
    torch.testing.assert_close(jitter_colours(images, one, one, one, one), images)  # a whole turn


def test_a_third_of_a_turn_makes_red_green_and_keeps_grey_grey():
    red, grey = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.4, 0.4, 0.4])
    images = torch.stack((red, grey))[:, :, None, None].expand(2, 3, 4, 4)
    seen = jitter_colours(images, *torch.ones(3, 2), torch.full((2,), 1 / 3))
    torch.testing.assert_close(seen[0, :, 0, 0], torch.tensor([0.0, 1.0, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(seen[1], images[1])


def test_halves_are_uniform_and_know_nothing_of_one_another():
    numbers = halve_draws(draw_numbers(4000, torch.Generator().manual_seed(0)))
    assert numbers.shape == (4000, 2 * DRAWS)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert (numbers.mean(0) - 0.5).abs().max() < 0.02
    assert (numbers.T.corrcoef() - torch.eye(2 * DRAWS)).abs().max() < 0.06


@pytest.mark.parametrize(("kind", "often", "rarely"), [("strong", 0.6, 0.1), ("small", 0.8, 0.2)])
def test_views_are_recoloured_as_often_as_they_say(kind, often, rarely):
    n = 3000
    pixels = torch.tensor([200, 100, 50], dtype=torch.uint8)[:, None, None].expand(n, 3, 8, 8).contiguous()
    rows = with_numbers(n, at0=0.875, at12=0.0, at13=0.5)  # cut out, of one colour; solarising inverts everything
    seen = VIEWS[kind](pixels, rows)[:, :, 2, 2]
    plain = pixels[0, :, 0, 0] / 255
    kept = (seen - plain).abs().amax(1) < 1e-3
    solarised = (seen - (1 - plain)).abs().amax(1) < 1e-3
    assert abs(kept.float().mean() - (1 - often) * (1 - rarely)) < 0.03
    assert abs(solarised.float().mean() - (1 - often) * rarely) < 0.02
