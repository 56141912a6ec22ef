"""Splits by class."""

import numpy as np
import pytest
import torch

from newfound.data.pixels import arrays
from newfound.data.splits import split_by_class
from newfound.errors import InputError


def some(labels, classes=None, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 4, 4, 3), np.uint8)
    return arrays(pixels, labels, classes)


def test_labels_and_truth_count_from_0_in_the_order_of_the_classes_given():
    images = some([4, 0, 1, 2, 4, -1, 0, 3], ["a", "b", "c", "d", "e"])
    split = split_by_class(images, known=[2, 0], novel=[4, 1])
    assert split.known.listing.names == ("1", "3", "6")
    assert split.known.listing.labels.tolist() == [1, 0, 1]
    assert split.known.listing.classes == ("c", "a")
    assert split.novel.listing.names == ("0", "2", "4")
    assert split.truth.tolist() == [0, 1, 0]
    assert split.novel_classes == ("e", "b")
    assert torch.equal(split.novel.pixels, images.pixels[[0, 2, 4]])


def test_the_novel_images_know_nothing_of_their_classes():
    novel = split_by_class(some([0, 1, 2]), [0], [1, 2]).novel
    assert novel.listing.labels.tolist() == [-1, -1]
    assert novel.listing.classes == ()


@pytest.mark.parametrize(
    ("known", "novel", "found"),
    [
        ([], [1], r"known classes are \[\], the novel ones \[1\]\. Needed: one or more of each"),
        ([1], [], r"known classes are \[1\], the novel ones \[\]\. Needed"),
        ([0, 1], [1, 2], r"none twice"),
        ([0, 0], [1], r"none twice"),
        ([0, 3], [1, 5], r"Classes without an image: 3, 5\. Needed"),
        ([0], [-1], r"Classes without an image: -1\. Needed"),
    ],
)
def test_classes_that_cannot_be_split_are_refused(known, novel, found):
    with pytest.raises(InputError, match=found):
        split_by_class(some([0, 1, 2, -1], ["a", "b", "c", "never seen"]), known, novel)
