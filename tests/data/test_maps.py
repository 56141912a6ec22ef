"""Maps as a dataset: each number says which image and which of its maps it is."""

import pytest
import torch

from newfound.data.maps import Maps
from newfound.data.views import DRAWS, draws
from newfound.types import Now, Training, generator

CPU = torch.device("cpu")
IMAGES = 12


def make_maps(rows=None):
    """Every number of map v of image i is 10 i + v."""
    numbers = 10 * torch.arange(IMAGES)[:, None] + torch.arange(1 + DRAWS)
    maps = numbers[:, :, None, None, None].expand(-1, -1, 3, 2, 2).half()
    rows = torch.arange(IMAGES) if rows is None else torch.tensor(rows)
    return Maps(maps, torch.full((len(rows),), -1), rows)


def read(seen):
    """Which image and which map each row is, after checking that it is whole."""
    assert seen.dtype == torch.float32
    assert (seen == seen[:, :1, :1, :1]).all()
    number = seen[:, 0, 0, 0].long()
    return number // 10, number % 10


@pytest.mark.parametrize("views", [2, 4, DRAWS])
def test_views_of_one_image_in_one_look_are_different_maps_of_it(views):
    data, rows = make_maps(), torch.tensor([3, 0, 3, 7])
    numbers = [draws(len(rows), generator("draws", view)) for view in range(views)]
    seen = [read(view) for view in data.look(rows, ("weak",) * views, numbers, CPU)]
    for place, row in enumerate(rows.tolist()):
        assert all(image[place] == row for image, _ in seen)
        chosen = [view[place].item() for _, view in seen]
        assert len(set(chosen)) == views
        assert 0 not in chosen, "the plain map is no augmented view"


@pytest.mark.parametrize(("kept", "asked", "given"), [(2, 4, 2), (3, 4, 3), (1, 2, 2), (1, 4, 2), (2, 1, 1)])
def test_of_views_that_are_not_kept_none_comes_twice_but_two_come_at_least(kept, asked, given):
    maps = torch.arange(1.0 + kept).expand(5, -1)[:, :, None].half()
    data, rows = Maps(maps, torch.full((5,), -1), torch.arange(5)), torch.arange(5)
    seen = data.look(rows, ("weak",) * asked, [draws(5, generator("d", v)) for v in range(asked)], CPU)
    assert len(seen) == given
    for chosen in torch.cat(seen, dim=1).tolist():
        assert len(set(chosen)) == min(given, kept)


def test_every_augmented_map_is_drawn_about_equally_often():
    data, rows = make_maps(), torch.zeros(4000, dtype=torch.long)
    _, view = read(data.look(rows, ("weak",), [draws(len(rows), generator("often"))], CPU)[0])
    counts = view.bincount(minlength=1 + DRAWS)
    assert counts[0] == 0
    assert (counts[1:] - 4000 / DRAWS).abs().max() < 100


def test_the_same_draws_give_the_same_maps():
    data, rows = make_maps(), torch.arange(IMAGES)
    looks = [data.look(rows, ("weak", "weak"), [draws(IMAGES, generator("d", v)) for v in (0, 1)], CPU) for _ in "ab"]
    assert all(torch.equal(a, b) for a, b in zip(*looks, strict=True))


def test_surveys_see_the_plain_image_of_the_rows_that_take_part():
    data = make_maps(rows=[8, 2, 11])
    image, view = read(torch.cat(list(data.plain(torch.arange(3), chunk=2))))
    assert image.tolist() == [8, 2, 11]
    assert not view.any()


def test_batches_hold_the_maps_of_their_own_rows():
    data, training = make_maps(rows=[5, 6, 1, 9]), Training(1, 2, 0.1)
    seen = set()
    for _, batch in data.batches(training, Now(0, 0, 1), CPU):
        first, second = (read(view) for view in batch.views)
        assert torch.equal(first[0], data.rows[batch.rows])
        assert torch.equal(second[0], first[0])
        assert (first[1] != second[1]).all()
        seen |= set(first[0].tolist())
    assert seen == {5, 6, 1, 9}


def test_maps_equal_themselves_alone():
    first, second = make_maps(), make_maps()
    assert first == first
    assert first != second
