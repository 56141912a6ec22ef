"""Leaks between what is labelled and what is not."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from newfound.data import leaks
from newfound.data.datasets import load_doodles
from newfound.data.leaks import check_apart, check_leaks
from newfound.data.pixels import arrays
from newfound.errors import InputError
from tests.data.pictures import picture, save


def some(labels, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 4, 4, 3), np.uint8)
    return arrays(pixels, labels)


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


def test_a_labelled_picture_that_was_recompressed_is_named_and_not_refused(caplog):
    drawings = load_doodles("spare").pixels[:12, 0].numpy()
    blurred = [np.asarray(Image.fromarray(drawing).resize((56, 56)).resize((28, 28))) for drawing in drawings[3:5]]
    with caplog.at_level("WARNING", "newfound"):
        check_leaks(arrays(drawings, [0] * 12), arrays(np.stack(blurred)))
    assert "2 unlabelled images nearly equal to a labelled one: '3' = '0', '4' = '1'." in caplog.text


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


def test_files_too_large_to_be_read_are_not_compared(folders, monkeypatch):
    for folder in folders:
        os.truncate(save(folder / "a" / "vast.png"), 5 << 30)  # sparse
    monkeypatch.setattr(leaks, "hash_file", lambda path: pytest.fail("it was read") if "vast" in path.name else path)
    check_apart(*folders)


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
    monkeypatch.setattr("newfound.data.leaks.hash_file", lambda path: pytest.fail("read a file"))
    with pytest.raises(InputError):
        check_apart(folders[0], folders[0])


@pytest.mark.parametrize("seam", ["file_size", "hash_file"])
def test_files_that_vanish_while_they_are_compared_are_no_shared_images(folders, monkeypatch, seam):
    known, unlabelled = folders
    shutil.copy(known / "crab/1.bmp", unlabelled / "a/copy.bmp")
    shutil.copy(known / "whelk/1.bmp", unlabelled / "a/other copy.bmp")
    looked = getattr(leaks, seam)

    def look(path):
        (unlabelled / "a/copy.bmp").unlink(missing_ok=True)
        return looked(path)

    monkeypatch.setattr(leaks, seam, look)
    with pytest.raises(InputError, match=r"unlabelled \(1\): .*other copy"):
        check_apart(known, unlabelled)


def test_a_missing_folder_is_refused(tmp_path, folders):
    with pytest.raises(InputError, match="does not exist"):
        check_apart(folders[0], tmp_path / "gone")
