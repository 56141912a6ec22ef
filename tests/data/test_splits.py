"""Splits by class, the published splits of CIFAR, and leaks between what is labelled and what is not."""

import os
import shutil

import numpy as np
import pytest
import torch

from newfound.data import splits
from newfound.data.cifar import cifar
from newfound.data.sources import arrays
from newfound.data.splits import CIFAR_SPLITS, by_class, check_apart, check_leaks, cifar_split, split_classes
from newfound.errors import InputError
from tests.data.pictures import picture, save


def some(labels, classes=None, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 4, 4, 3), np.uint8)
    return arrays(pixels, labels, classes)


def test_labels_and_truth_count_from_0_in_the_order_of_the_classes_given():
    images = some([4, 0, 1, 2, 4, -1, 0, 3], ["a", "b", "c", "d", "e"])
    split = by_class(images, known=[2, 0], novel=[4, 1])
    assert split.known.names == ("1", "3", "6")
    assert split.known.labels.tolist() == [1, 0, 1]
    assert split.known.classes == ("c", "a")
    assert split.novel.names == ("0", "2", "4")
    assert split.truth.tolist() == [0, 1, 0]
    assert split.novel_classes == ("e", "b")
    assert torch.equal(split.novel.pixels, images.pixels[[0, 2, 4]])


def test_the_novel_images_know_nothing_of_their_classes():
    novel = by_class(some([0, 1, 2]), [0], [1, 2]).novel
    assert novel.labels.tolist() == [-1, -1]
    assert novel.classes == ()


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
        by_class(some([0, 1, 2, -1], ["a", "b", "c", "never seen"]), known, novel)


@pytest.mark.parametrize(
    ("name", "classes", "known", "novel"),
    [
        ("5-5", 10, (0, 4), (5, 9)),
        ("80-20", 100, (0, 79), (80, 99)),
        ("50-50", 100, (0, 49), (50, 99)),
        ("20-80", 100, (0, 19), (20, 99)),
        ("80-10", 100, (0, 79), (90, 99)),
    ],
)
def test_cifar_is_split_as_published(name, classes, known, novel):
    split = cifar_split(some(list(range(classes)) * 2), name)
    assert split.known.classes == tuple(str(label) for label in range(known[0], known[1] + 1))
    assert split.novel_classes == tuple(str(label) for label in range(novel[0], novel[1] + 1))
    assert len(split.known) == 2 * len(split.known.classes)
    assert len(split.novel) == len(split.truth) == 2 * len(split.novel_classes)


@pytest.mark.skipif("NEWFOUND_DATA" not in os.environ, reason="NEWFOUND_DATA does not point to CIFAR's real files")
@pytest.mark.parametrize(
    ("name", "known", "novel"),
    [("5-5", 25_000, 25_000), ("80-20", 40_000, 10_000), ("20-80", 10_000, 40_000), ("80-10", 40_000, 5_000)],
)
def test_the_real_cifar_gives_the_published_counts(name, known, novel):
    split = cifar_split(cifar(os.environ["NEWFOUND_DATA"], "cifar10" if name == "5-5" else "cifar100"), name)
    assert (len(split.known), len(split.novel)) == (known, novel)


def test_a_number_behind_a_split_orders_the_classes_anew():
    order = np.random.default_rng(11).permutation(10).tolist()
    assert split_classes("5-5@11") == ("cifar10", tuple(order[:5]), tuple(order[5:]))
    images = some(list(range(10)) * 2)
    split = cifar_split(images, "5-5@11")
    assert split.known.classes == tuple(map(str, order[:5]))
    assert split.novel_classes == tuple(map(str, order[5:]))
    hundred = split_classes("80-10@12")
    assert len({*hundred.known, *hundred.novel}) == 90
    assert split_classes("5-5@11") != split_classes("5-5@12")


@pytest.mark.parametrize("name", ["5-5@", "5-5@x", "5-5@-1", "@3"])
def test_an_order_that_is_no_number_is_refused(name):
    with pytest.raises(InputError, match="as in 5-5@11"):
        split_classes(name)


def test_an_unknown_split_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"no split '90-10'\. There are: 5-5, .*Did you mean 80-10"):
        cifar_split(some(range(10)), "90-10")


@pytest.mark.parametrize("name", CIFAR_SPLITS)
def test_a_split_of_the_other_cifar_is_refused(name):
    count = 100 if name == "5-5" else 10
    with pytest.raises(InputError, match=rf"have {count} classes\. Needed for the split {name}: {1000 // count}\."):
        cifar_split(some(list(range(count))), name)


def test_images_that_share_nothing_pass():
    check_leaks(some([0] * 9, seed=1), some([-1] * 9, seed=2))


def test_a_picture_on_both_sides_is_a_leak_with_its_names():
    labelled, unlabelled = some([0] * 9, seed=1), some([-1] * 9, seed=2)
    unlabelled.pixels[[2, 3, 5, 7]] = labelled.pixels[[4, 4, 0, 8]]
    with pytest.raises(InputError, match=r"unlabelled \(4\): '4' = '2', '4' = '3', '0' = '5' and 1 more\. Needed"):
        check_leaks(labelled, unlabelled)


def test_one_changed_pixel_makes_another_picture():
    labelled = some([0] * 3)
    unlabelled = some([-1] * 3)
    unlabelled.pixels[:, 0, 0, 0] += 1
    check_leaks(labelled, unlabelled)


@pytest.fixture
def folders(tmp_path):
    """A folder of known classes and one of unlabelled images, which share nothing; all pictures have one size."""
    known, unlabelled = tmp_path / "known", tmp_path / "unlabelled"
    for seed, path in enumerate(
        (known / "crab/1.bmp", known / "whelk/1.bmp", unlabelled / "1.bmp", unlabelled / "a/2.bmp")
    ):
        save(path, picture(seed))
    return known, unlabelled


def test_folders_that_share_nothing_pass(folders):
    known, unlabelled = folders
    assert (known / "crab/1.bmp").stat().st_size == (unlabelled / "1.bmp").stat().st_size
    check_apart(known, unlabelled)
    check_apart(str(known), str(unlabelled))


def test_empty_files_and_dangling_links_are_no_shared_images(folders):
    for folder in folders:
        (folder / "empty.png").touch()
        (folder / "dangling.png").symlink_to(folder.parent / "gone.png")
    check_apart(*folders)


def test_a_copy_under_another_name_is_found(folders):
    known, unlabelled = folders
    shutil.copy(known / "crab/1.bmp", unlabelled / "a/holiday.BMP")
    with pytest.raises(
        InputError, match=r"\(1\): '.*crab/1\.bmp' = '.*a/holiday\.BMP'\. Needed: two sets that share no"
    ):
        check_apart(known, unlabelled)


def test_a_link_to_a_known_image_is_found(folders):
    known, unlabelled = folders
    (unlabelled / "link.png").symlink_to(known / "crab/1.bmp")
    with pytest.raises(InputError, match=r"\(1\): '.*crab/1\.bmp' = '.*link\.png'\."):
        check_apart(known, unlabelled)


def test_a_folder_within_the_other_or_linked_to_it_is_found(folders):
    known, unlabelled = folders
    (known.parent / "same").symlink_to(known)
    for first, second in (
        (known, known.parent),
        (known.parent, unlabelled),
        (known, known),
        (known, known.parent / "same"),
    ):
        with pytest.raises(InputError, match=r"unlabelled \(2\)"):
            check_apart(first, second)


def test_the_first_three_of_many_are_named(folders):
    known, unlabelled = folders
    for place in range(5):
        shutil.copy(known / "crab/1.bmp", unlabelled / f"copy {place}.bmp")
    with pytest.raises(InputError, match=r"\(5\): .*copy 0.*copy 1.*copy 2\.bmp' and 2 more\."):
        check_apart(known, unlabelled)


def test_no_file_is_opened_when_folders_share_a_path(folders, monkeypatch):
    monkeypatch.setattr("newfound.data.splits.digest", lambda path: pytest.fail("read a file"))
    with pytest.raises(InputError):
        check_apart(folders[0], folders[0])


@pytest.mark.parametrize("seam", ["size", "digest"])
def test_files_that_vanish_while_they_are_compared_are_no_shared_images(folders, monkeypatch, seam):
    known, unlabelled = folders
    shutil.copy(known / "crab/1.bmp", unlabelled / "a/copy.bmp")
    shutil.copy(known / "whelk/1.bmp", unlabelled / "a/other copy.bmp")
    looked = getattr(splits, seam)

    def look(path):
        (unlabelled / "a/copy.bmp").unlink(missing_ok=True)
        return looked(path)

    monkeypatch.setattr(splits, seam, look)
    with pytest.raises(InputError, match=r"unlabelled \(1\): .*other copy"):
        check_apart(known, unlabelled)


def test_a_missing_folder_is_refused(tmp_path, folders):
    with pytest.raises(InputError, match="does not exist"):
        check_apart(folders[0], tmp_path / "gone")
