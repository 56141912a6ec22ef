"""Near-duplicates: the same picture again, and no other."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from newfound.data.datasets import load_doodles
from newfound.functional import duplicates
from newfound.functional.duplicates import coarse, confirm, difference, find_pairs, group, share_shape, show_same
from newfound.types import generator

DRAWINGS = load_doodles("spare").pixels[::10]


def shift(pixels, across, down):
    wide = np.pad(pixels, ((2, 2), (2, 2)), mode="edge")
    return wide[2 + down : 2 + down + pixels.shape[0], 2 + across : 2 + across + pixels.shape[1]]


def recompress(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=quality)
    return np.asarray(Image.open(file))


def resize(pixels, side):
    there = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(there.resize(pixels.shape, Image.Resampling.BICUBIC))


CHANGES = {
    "shifted by one": lambda pixels: shift(pixels, -1, 1),
    "shifted by two": lambda pixels: shift(pixels, 2, 0),
    "recompressed": lambda pixels: recompress(pixels, 50),
    "smaller and back": lambda pixels: resize(pixels, 21),
    "larger and back": lambda pixels: resize(pixels, 42),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=[*CHANGES])
def test_a_drawing_that_was_changed_a_little_is_found_again_and_no_other_is(change):
    n = len(DRAWINGS)
    again = np.stack([change(drawing) for drawing in DRAWINGS[:, 0].numpy()])
    pairs = find_pairs(torch.cat([DRAWINGS, torch.from_numpy(again)[:, None]])).tolist()
    right = [(a, b) for a, b in pairs if b == a + n]
    assert len(right) >= 0.9 * n
    assert len(right) >= 0.99 * len(pairs)


def test_drawings_that_only_look_alike_from_afar_are_not_the_same():
    x = coarse(DRAWINGS)
    alike = ((x @ x.T) >= 0.8).triu(1).nonzero()
    assert len(alike) > 20
    assert show_same(DRAWINGS[alike[:, 0]], DRAWINGS[alike[:, 1]]).float().mean() < 0.1


def test_pairs_between_two_sets_name_the_row_of_each():
    assert find_pairs(DRAWINGS[:50], DRAWINGS[[7, 60, 3]]).tolist() == [[3, 2], [7, 0]]
    assert find_pairs(DRAWINGS[:0], DRAWINGS).shape == (0, 2)


def test_a_picture_of_a_series_that_differs_in_one_sign_is_another():
    sign = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    sign[:, :, 2:30, 2:30] = 30
    other = sign.clone()
    other[:, :, 14:17, 14:17] = 255
    assert show_same(sign, sign).tolist() == [True]
    assert show_same(sign, other).tolist() == [False]


def test_plain_pictures_and_those_that_differ_in_colour_alone_are_nobody_s_duplicates():
    plain = torch.full((2, 3, 32, 32), 200, dtype=torch.uint8)
    flags = torch.full((2, 3, 32, 32), 255, dtype=torch.uint8)
    flags[0, :2, :, :16], flags[1, 1:, :, :16] = 0, 0
    assert not len(find_pairs(torch.cat([plain, flags])))


def test_what_is_lost_at_32_pixels_is_seen_at_64():
    flag = torch.full((1, 3, 64, 64), 255, dtype=torch.uint8)
    flag[:, 1:, :32] = 0
    starred = flag.clone()
    starred[:, :, 9:14, 9:14] = 255
    assert confirm(flag, flag).tolist() == [True]
    assert confirm(flag, starred).tolist() == [False]


def test_the_same_pairs_are_found_in_blocks_of_any_size(monkeypatch):
    rows = torch.cat([DRAWINGS[:40], DRAWINGS[5:20]])
    whole = find_pairs(rows)
    monkeypatch.setattr(duplicates, "ROWS", 7)
    assert torch.equal(find_pairs(rows), whole)
    assert {(row, row + 35) for row in range(5, 20)} <= set(map(tuple, whole.tolist()))


def test_groups_equal_the_loop_that_joins_pair_by_pair():
    random = generator("groups")
    for _ in range(20):
        pairs = torch.randint(30, (18, 2), generator=random)
        order = torch.randperm(30, generator=random)
        sets = [{row} for row in range(30)]
        for a, b in pairs.tolist():
            joined = sets[a] | sets[b]
            for row in joined:
                sets[row] = joined
        rank = order.argsort().tolist()
        assert group(pairs, order).tolist() == [min(joined, key=rank.__getitem__) for joined in sets]


def test_where_none_looks_like_another_there_is_no_pair():
    halves = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    halves[0, :, :14], halves[1, :, 14:] = 255, 255
    assert find_pairs(halves).shape == (0, 2)
    assert find_pairs(halves[:1]).shape == (0, 2)


def test_thin_lines_that_lie_between_pixels_are_the_same_lines(monkeypatch):
    random = np.random.default_rng(3)
    pages = np.full((20, 50, 50), 255, np.uint8)
    for page in pages:
        for row, column in random.integers(6, 42, (4, 2)):
            page[row : row + 2, 6:44], page[6:44, column : column + 2] = 0, 0
    small = [
        torch.from_numpy(np.stack([np.asarray(Image.fromarray(page).resize((32, 32))) for page in some]))[:, None]
        for some in (pages, [shift(page, 1, 1) for page in pages])
    ]
    assert show_same(*small).all()
    assert not show_same(small[0][:-1], small[0][1:]).any()
    monkeypatch.setattr(duplicates, "NUDGE", 0.0)
    assert show_same(*small).float().mean() < 0.5


def test_what_differs_is_what_least_squares_leave_or_a_nudge_at_most():
    a, b = torch.rand(2, 5, 3, 9, 9, generator=generator("nudge")).unbind()
    b = a + 0.05 * b
    for row, left in enumerate(difference(a, b)):
        m = F.pad((a[row] + b[row]) / 2, (1, 1, 1, 1), mode="replicate")
        slopes = [(m[:, 1:-1, 2:] - m[:, 1:-1, :-2]) / 2, (m[:, 2:, 1:-1] - m[:, :-2, 1:-1]) / 2]
        design = torch.stack([slope.flatten() for slope in slopes], 1)
        moved = torch.linalg.lstsq(design, (a[row] - b[row]).flatten()[:, None]).solution
        assert moved.abs().max() < duplicates.NUDGE
        assert torch.allclose(left.flatten(), (a[row] - b[row]).flatten() - (design @ moved)[:, 0], atol=1e-4)
    far = torch.linspace(0, 90, 9).expand(1, 1, 9, 9)
    assert difference(far + 45, far)[0, 0, 4, 4].item() == pytest.approx(45 - duplicates.NUDGE * 90 / 8, abs=0.1)


def test_nothing_to_confirm_is_nothing_confirmed():
    nothing = torch.zeros(0, 3, 64, 64, dtype=torch.uint8)
    assert confirm(nothing, nothing).shape == (0,)


def test_a_picture_keeps_its_shape_at_every_size_to_a_pixel():
    random = generator("shapes")
    sides = torch.randint(20, 2000, (300, 2), generator=random).sort(1).values
    scaled = sides * (0.1 + 3 * torch.rand(300, 1, generator=random))
    rounded = (scaled + torch.rand(300, 2, generator=random) - 0.5).round().long().clamp(min=1)
    for one, other in ((sides, rounded), (rounded, sides)):
        assert share_shape(one, other).all()
    unknown = torch.zeros_like(sides)
    assert share_shape(sides, unknown).all()


def test_pictures_of_other_shapes_are_not_one_at_two_sizes():
    tall = torch.tensor([[47, 146], [31, 115], [300, 400], [100, 100]])
    other = torch.tensor([[54, 139], [32, 110], [300, 300], [90, 95]])
    assert not share_shape(tall, other).any()
    assert not share_shape(3 * tall, other).any()
