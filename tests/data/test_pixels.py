"""Folders and arrays as `Images`; and what people give us instead."""

import numpy as np
import pytest
import torch

from newfound.data.collection import check_read
from newfound.data.decoding import Box
from newfound.data.listing import NEEDED, Listing, list_images
from newfound.data.pixels import Images, arrays, load_images
from newfound.errors import InputError
from tests.data.pictures import locked, picture, save

AWKWARD = (
    "two words.png",
    'it\'s "quoted".png',
    "new\nline.png",
    "海の写真.png",
    "Ünïcode-🐙.png",
    "-rf *.png",
    "a:b?.png",
)


def read(root, size, *, labelled):
    """Images in memory, or the refusal of what cannot be used, as a discovery reads them."""
    listed = list_images(root, labelled=labelled)
    images = load_images(listed, size)
    check_read(images, len(listed))
    return images


def test_each_folder_is_a_class_and_its_images_lie_anywhere_below(tmp_path):
    for name in ("whelk/2.png", "crab/b/deep/1.png", "crab/a.png", "whelk/10.png"):
        save(tmp_path / name)
    images = read(tmp_path, 8, labelled=True)
    assert images.listing.classes == ("crab", "whelk")
    assert images.listing.names == ("crab/a.png", "crab/b/deep/1.png", "whelk/10.png", "whelk/2.png")
    assert images.listing.labels.tolist() == [0, 0, 1, 1]
    assert images.pixels.shape == (4, 3, 8, 8)
    assert images.listing.skipped == ()
    assert len(images) == 4


def test_unlabelled_images_have_no_labels(tmp_path):
    for name in ("b.png", "a/c.jpg", "a/b/d.webp"):
        save(tmp_path / name)
    images = read(str(tmp_path), 8, labelled=False)
    assert images.listing.names == ("a/b/d.webp", "a/c.jpg", "b.png")
    assert images.listing.labels.tolist() == [-1, -1, -1]
    assert images.listing.classes == ()


def test_names_may_hold_anything(tmp_path):
    for name in AWKWARD:
        save(tmp_path / f"it's a\n{AWKWARD[3]}" / name)
    assert set(read(tmp_path / f"it's a\n{AWKWARD[3]}", 4, labelled=False).listing.names) == set(AWKWARD)
    assert read(tmp_path, 4, labelled=True).listing.classes == (f"it's a\n{AWKWARD[3]}",)


def test_each_row_is_the_picture_that_its_name_says(tmp_path):
    for seed, name in enumerate(("c/1.png", "a/1.png", "b/1.png")):
        save(tmp_path / name, picture(seed, 6, 6))
    images = read(tmp_path, 6, labelled=True)
    for name, seed in (("a/1.png", 1), ("b/1.png", 2), ("c/1.png", 0)):
        seen = images.pixels[images.listing.names.index(name)].permute(1, 2, 0).numpy()
        assert (seen == np.asarray(picture(seed, 6, 6))).all()


def test_files_that_cannot_be_read_are_told_and_left_out(tmp_path):
    for name in ("crab/1.png", "crab/3.png", "whelk/1.png", "stray.png"):
        save(tmp_path / name)
    (tmp_path / "crab/2\n.png").touch()
    images = read(tmp_path, 4, labelled=True)
    assert images.listing.names == ("crab/1.png", "crab/3.png", "whelk/1.png")
    assert images.listing.labels.tolist() == [0, 0, 1]
    assert images.listing.skipped == (
        r"'crab/2\n.png': the file is empty",
        "'stray.png': lies beside the class folders, not in one",
    )
    assert read(tmp_path, 4, labelled=False).listing.skipped == images.listing.skipped[:1]


def test_a_folder_that_cannot_be_opened_is_told_and_left_out(tmp_path):
    for name in ("crab/1.png", "crab/deep/2.png", "eel/3.png", "whelk/4.png"):
        save(tmp_path / name)
    (tmp_path / "whelk/5.png").touch()
    with locked(tmp_path, "crab/deep", "eel") as root:
        images, loose = read(root, 4, labelled=True), read(root, 4, labelled=False)
    assert images.listing.names == loose.listing.names == ("crab/1.png", "whelk/4.png")
    assert images.listing.classes == ("crab", "whelk")
    assert images.listing.skipped == loose.listing.skipped
    assert images.listing.skipped == (
        "'crab/deep': cannot be opened: Permission denied",
        "'eel': cannot be opened: Permission denied",
        "'whelk/5.png': the file is empty",
    )


def test_loading_tells_what_cannot_be_read_and_keeps_the_others_in_order(tmp_path):
    save(tmp_path / "good.png", picture(0, 6, 6))
    listed = Listing.of(
        ["good.png", "bad.png", "good.png", "good.png"],
        torch.tensor([2, 1, 0, 1]),
        "abc",
        root=tmp_path,
        boxes=(Box(1, 2, 3, 3), None, Box(6, 0, 1, 1), Box(3, 3, 3, 3)),
        skipped=["'earlier.png': does not exist"],
    )
    images = load_images(listed, 3)
    assert images.listing.names == ("good.png", "good.png")
    assert images.listing.labels.tolist() == [2, 1]
    assert images.listing.classes == ("a", "b", "c")
    assert images.listing.skipped == (
        "'bad.png': No such file or directory",
        "'earlier.png': does not exist",
        "'good.png' at x=6, y=0: the box lies outside the image",
    )
    for pixels, ends in zip(images.pixels, ((1, 2, 4, 5), (3, 3, 6, 6)), strict=True):
        assert (pixels.permute(1, 2, 0).numpy() == np.asarray(picture(0, 6, 6).crop(ends))).all()
    none = load_images(listed.pick(torch.tensor([1])), 3)
    assert none.pixels.shape == (0, 3, 3, 3)
    assert none.listing.skipped == ("'bad.png': No such file or directory",)


def nothing(root):
    pass


def file(root):
    root.write_text("a list of photos")


def empty(root):
    root.mkdir()


def notes(root):
    root.mkdir()
    (root / "notes.txt").write_text("no photo here")


def loose(root):
    save(root / "1.png")


def hollow(root):
    save(root / "crab/1.png")
    (root / "whelk").mkdir()


def broken(root):
    save(root / "crab/1.png")
    (root / "crab/2.png").touch()
    (root / "whelk").mkdir()
    for place in range(5):
        (root / f"whelk/{place}.jpg").touch()


def all_broken(root):
    root.mkdir()
    for place in range(5):
        (root / f"{place}.jpg").write_text("no image")


@pytest.mark.parametrize(
    ("labelled", "make", "found"),
    [
        (True, nothing, f"does not exist. Needed: {NEEDED}. Check"),
        (True, file, f"is a file. Needed: {NEEDED}. Check"),
        (True, empty, "holds 0 images and no folders. Needed: a folder for each class"),
        (True, loose, "holds 1 images and no folders. Needed: a folder for each class"),
        (True, hollow, "'whelk'. Needed: files ending in .avif"),
        (False, nothing, f"does not exist. Needed: {NEEDED}. Check"),
        (False, file, f"is a file. Needed: {NEEDED}. Check"),
        (False, empty, "holds no images. Needed: files ending in .avif"),
        (False, notes, "holds no images. Needed: files ending in .avif"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_with_what_was_found(tmp_path, labelled, make, found):
    make(tmp_path / "photos")
    with pytest.raises(InputError) as refusal:
        read(tmp_path / "photos", 8, labelled=labelled)
    assert found in str(refusal.value)
    assert str(tmp_path / "photos") in str(refusal.value)


@pytest.mark.parametrize(
    ("labelled", "make", "found"),
    [
        (True, broken, "Classes without a readable image: 'whelk'. Needed: one or more of each."),
        (True, broken, "Found: 'whelk/0.jpg': the file is empty, 'whelk/1.jpg': the file is empty, 'whelk/2.jpg"),
        (True, broken, "'whelk/2.jpg': the file is empty and 2 more."),
        (False, all_broken, "None of the 5 images"),
        (False, all_broken, "Found: '0.jpg': not an image of a kind that is read"),
        (False, all_broken, "and 2 more"),
    ],
)
def test_images_that_cannot_be_read_are_refused_with_what_was_found(tmp_path, labelled, make, found):
    make(tmp_path / "photos")
    with pytest.raises(InputError) as refusal:
        read(tmp_path / "photos", 8, labelled=labelled)
    assert found in str(refusal.value)


def test_a_tilde_means_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    save(tmp_path / "photos/1.png")
    assert read("~/photos", 4, labelled=False).listing.names == ("1.png",)


def test_picking_takes_rows_in_their_order():
    images = arrays(np.arange(4, dtype=np.uint8).reshape(4, 1, 1), labels=[0, 1, 1, -1], names="abcd")
    some = images.pick(torch.tensor([2, 0, 3]))
    assert some.listing.names == ("c", "a", "d")
    assert some.listing.labels.tolist() == [1, 0, -1]
    assert some.pixels.flatten().tolist() == [2, 0, 3]
    assert some.listing.classes == ("0", "1")
    assert len(images.pick(torch.tensor([], dtype=torch.long))) == 0


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_arrays_come_back_channel_first_and_are_copied(channels):
    shape = (5, 6, 4) if channels is None else (5, 6, 4, channels)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)[::-1]
    pixels.flags.writeable = False
    images = arrays(pixels)
    assert images.pixels.shape == (5, channels or 1, 6, 4)
    for place in np.ndindex(5, 6, 4):
        row, *point = place
        assert (images.pixels[row, :, *point].numpy() == pixels[place]).all()
    images.pixels[:] = 0
    assert pixels.any()


def test_arrays_count_classes_and_images_that_have_no_name():
    images = arrays(np.zeros((3, 2, 2), np.uint8), labels=np.array([2, -1, 0], np.int16))
    assert images.listing.classes == ("0", "1", "2")
    assert images.listing.names == ("0", "1", "2")
    assert images.listing.labels.dtype == torch.int64
    assert arrays(np.zeros((3, 2, 2), np.uint8)).listing.labels.tolist() == [-1, -1, -1]


PIXELS = np.zeros((3, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"pixels": PIXELS / 255}, r"pixels are float64\. Needed: uint8"),
        ({"pixels": PIXELS.astype(np.int64)}, r"pixels are int64\. Needed: uint8"),
        ({"pixels": PIXELS[0]}, r"shape \(4, 4\)\. Needed: n × height × width"),
        ({"pixels": PIXELS[:0]}, r"shape \(0, 4, 4\)\. Needed: n × height × width"),
        ({"pixels": np.zeros((2, 3, 8, 8), np.uint8)}, r"pixels\.transpose\(0, 2, 3, 1\)"),
        ({"pixels": np.zeros((2, 8, 8, 4), np.uint8)}, r"shape \(2, 8, 8, 4\)\. Needed"),
        ({"labels": [0, 1]}, r"shape \(2,\)\. Needed: whole numbers of shape \(3,\)"),
        ({"labels": []}, r"shape \(0,\)\. Needed: whole numbers of shape \(3,\)"),
        ({"labels": np.array([0.0, 1.0, np.nan])}, r"labels are float64"),
        ({"labels": np.array([True, False, True])}, r"labels are bool"),
        ({"labels": [0, 1, -2]}, r"from -2 to 1, with 2 class names\. Needed"),
        ({"labels": [0, 1, 2], "classes": ["a", "b"]}, r"from 0 to 2, with 2 class names\. Needed"),
        ({"names": ["a", "b"]}, r"3 images came with 2 names\. Needed"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused_with_what_was_found(given, found):
    with pytest.raises(InputError, match=found):
        arrays(**{"pixels": PIXELS} | given)


def test_images_of_unequal_count_are_not_images():
    with pytest.raises(ValueError, match=r"pixels of 2 images, and 3 in the listing\. Needed: the same"):
        Images(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), Listing.of("abc"))


def test_other_labels_change_nothing_else():
    images = arrays(np.arange(4, dtype=np.uint8).reshape(4, 1, 1), labels=[0, 1, 1, -1], names="abcd")
    other = images.relabel(torch.tensor([1, 0, 0, 0]), ["x", "y"])
    assert other.listing.labels.tolist() == [1, 0, 0, 0]
    assert other.listing.classes == ("x", "y")
    assert other.listing.names == images.listing.names
    assert torch.equal(other.pixels, images.pixels)
    assert images.unlabel().listing.labels.tolist() == [-1] * 4
    assert images.unlabel().listing.classes == ()
    assert images.listing.classes == ("0", "1")
