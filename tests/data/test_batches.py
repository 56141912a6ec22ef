"""Batches of few classes."""

import pytest
import torch

from newfound.data.batches import draw_class_batches
from newfound.data.pixels import PixelDataset
from newfound.types import Now, Training, generator

LABELS = torch.tensor([2, -1, 0, 5, 0, 1, 2, -1, 5, 5, 1, 7, 7, -1, 0, 2])
"""Five classes of unequal sizes, with gaps between their numbers, and unlabelled images."""


@pytest.mark.parametrize(("few", "size"), [(2, 8), (3, 12), (5, 20), (1, 4)])
def test_every_batch_has_exactly_few_classes_in_equal_numbers(few, size):
    rows = draw_class_batches(LABELS, few, size, 30, generator("few"))
    assert len(rows) == 30 * size
    drawn = set()
    for batch in rows.split(size):
        classes, counts = LABELS[batch].unique(return_counts=True)
        assert len(classes) == few
        assert set(counts.tolist()) == {size // few}
        drawn |= set(classes.tolist())
    assert drawn == {0, 1, 2, 5, 7}


@pytest.mark.parametrize(("few", "size"), [(5, 32), (3, 16), (4, 7), (5, 9)])
def test_where_a_batch_cannot_be_divided_all_classes_are_there_and_differ_by_one_image(few, size):
    for batch in draw_class_batches(LABELS, few, size, 20, generator("few")).split(size):
        counts = LABELS[batch].unique(return_counts=True)[1].tolist()
        assert len(counts) == few
        assert max(counts) - min(counts) == 1


def test_unlabelled_images_are_never_drawn_and_every_labelled_one_is():
    rows = draw_class_batches(LABELS, 2, 8, 200, generator("few"))
    assert set(rows.tolist()) == set((LABELS >= 0).nonzero().squeeze(1).tolist())


def test_more_classes_than_there_are_is_all_of_them():
    for batch in draw_class_batches(LABELS, 20, 10, 5, generator("few")).split(10):
        assert LABELS[batch].bincount()[[0, 1, 2, 5, 7]].tolist() == [2] * 5


def test_rows_are_a_function_of_the_generator():
    first, again, other = (draw_class_batches(LABELS, 2, 8, 10, generator(key)) for key in ("a", "a", "b"))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_epoch_of_few_classes_is_as_long_as_any_other_and_repeats():
    pixels = torch.arange(len(LABELS), dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    data, training = PixelDataset(pixels, LABELS), Training(1, 4, 0.1, views=("plain",), classes_per_batch=2)
    epochs = [list(data.batches(training, Now(1, epoch, 2), torch.device("cpu"))) for epoch in (0, 0, 1)]
    assert [len(epoch) for epoch in epochs] == [len(LABELS) // 4] * 3
    orders = [torch.cat([batch.rows for _, batch in epoch]) for epoch in epochs]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    for _, batch in epochs[0]:
        assert batch.labels.unique(return_counts=True)[1].tolist() == [2, 2]
        assert torch.equal(batch.labels, LABELS[batch.rows])
        assert torch.equal((batch.views[0][:, 0, 0, 0] * 255).round().long(), batch.rows)


def test_data_equal_themselves_alone():
    first, second = (PixelDataset(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.arange(2)) for _ in "ab")
    assert first == first
    assert first != second
