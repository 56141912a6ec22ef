"""Pictures as a trunk saw them: whose features are whose, and small copies."""

import pytest
import torch
from PIL import Image

from newfound.data.decoding import Box
from newfound.data.embedded import Embedded
from newfound.data.pictures import Pictures
from newfound.types import generator
from tests.data.pictures import save

RECORDS = torch.randn(9, 3, 4, generator=generator("records")).half()
"""What a store holds: of nine pictures a calm record and two views."""


def embedded(places, labels=None, records=RECORDS):
    n = len(places)
    listed = Pictures(
        files=(),
        names=tuple(f"{place}.png" for place in places),
        labels=torch.full((n,), -1) if labels is None else torch.tensor(labels),
        classes=() if labels is None else tuple("ab"),
        boxes=(None,) * n,
        groups=("",) * n,
    )
    return Embedded(listed, records, torch.tensor(places), tuple(f"key {place}".encode() for place in places))


def test_features_are_the_calm_records_at_their_places():
    assert torch.equal(embedded([7, 2, 2, 0]).features(), RECORDS[[7, 2, 2, 0], 0].float())


def test_marks_are_equal_where_pictures_are():
    assert embedded([7, 2, 2]).marks() == (b"key 7", b"key 2", b"key 2")


def test_a_pile_alone_is_seen_at_its_places_and_unlabelled_whatever_is_known_of_it():
    data = embedded([7, 2, 5], labels=[0, 1, 1]).beside(None)
    assert data.labels.tolist() == [-1, -1, -1]
    assert torch.equal(torch.cat([*data.plain(torch.arange(3))]), RECORDS[[7, 2, 5], 0].float())


@pytest.mark.parametrize(("known", "new"), [(3, 9), (9, 3)])
def test_of_two_sets_the_one_that_was_seen_later_knows_the_records_of_both(known, new):
    """A store only grows: they differ in how many records it had."""
    labelled = embedded([known - 1, 0], [1, 0], RECORDS[:known])
    unlabelled = embedded([1, new - 1, 0], [0, 0, 1], RECORDS[:new])
    data = unlabelled.beside(labelled)
    assert data.labels.tolist() == [1, 0, -1, -1, -1]
    expected = RECORDS[[known - 1, 0, 1, new - 1, 0], 0].float()
    assert torch.equal(torch.cat([*data.plain(torch.arange(5))]), expected)


def test_small_copies_are_of_the_rows_and_boxes_asked_for_and_grey_where_a_file_has_vanished(tmp_path):
    colours, box = ("red", "green", "blue", "black"), Box(20, 10, 10, 10)
    for colour in colours:
        image = Image.new("RGB", (60, 40), "white")
        image.paste(colour, (15, 5, 35, 25))
        save(tmp_path / f"{colour}.png", image)
    files = tuple(tmp_path / f"{colour}.png" for colour in colours)
    listed = Pictures(files, colours, torch.full((4,), -1), (), (box,) * 4, ("",) * 4)
    seen = Embedded(listed, RECORDS, torch.arange(4), tuple(map(bytes, range(4))))
    (tmp_path / "blue.png").unlink()
    copies = seen.thumbnails([1, 2, 3])
    assert list(copies) == [1, 2, 3]
    for row, colour in ((1, (0, 128, 0)), (2, (128, 128, 128)), (3, (0, 0, 0))):
        assert torch.equal(copies[row], torch.tensor(colour, dtype=torch.uint8)[:, None, None].expand(3, 96, 96)), row
