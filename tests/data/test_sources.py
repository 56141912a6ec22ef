"""Folders, arrays and the embedded sample as `Images`; and what people give us instead."""

import hashlib
from importlib import resources

import numpy as np
import pytest
import torch

from newfound.data.collection import check_read
from newfound.data.decoding import Box
from newfound.data.pictures import NEEDED, Pictures, first_folders, pictures
from newfound.data.sources import Images, arrays, doodles, load
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
    listed = pictures(root, labelled=labelled)
    images = load(listed, size)
    check_read(images, len(listed))
    return images


def test_each_folder_is_a_class_and_its_images_lie_anywhere_below(tmp_path):
    for name in ("whelk/2.png", "crab/b/deep/1.png", "crab/a.png", "whelk/10.png"):
        save(tmp_path / name)
    images = read(tmp_path, 8, labelled=True)
    assert images.classes == ("crab", "whelk")
    assert images.names == ("crab/a.png", "crab/b/deep/1.png", "whelk/10.png", "whelk/2.png")
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert images.pixels.shape == (4, 3, 8, 8)
    assert images.skipped == ()
    assert len(images) == 4


def test_a_pile_has_no_labels(tmp_path):
    for name in ("b.png", "a/c.jpg", "a/b/d.webp"):
        save(tmp_path / name)
    images = read(str(tmp_path), 8, labelled=False)
    assert images.names == ("a/b/d.webp", "a/c.jpg", "b.png")
    assert images.labels.tolist() == [-1, -1, -1]
    assert images.classes == ()


def test_names_may_hold_anything(tmp_path):
    for name in AWKWARD:
        save(tmp_path / f"it's a\n{AWKWARD[3]}" / name)
    assert set(read(tmp_path / f"it's a\n{AWKWARD[3]}", 4, labelled=False).names) == set(AWKWARD)
    assert read(tmp_path, 4, labelled=True).classes == (f"it's a\n{AWKWARD[3]}",)


def test_each_row_is_the_picture_that_its_name_says(tmp_path):
    for seed, name in enumerate(("c/1.png", "a/1.png", "b/1.png")):
        save(tmp_path / name, picture(seed, 6, 6))
    images = read(tmp_path, 6, labelled=True)
    for name, seed in (("a/1.png", 1), ("b/1.png", 2), ("c/1.png", 0)):
        seen = images.pixels[images.names.index(name)].permute(1, 2, 0).numpy()
        assert (seen == np.asarray(picture(seed, 6, 6))).all()


def test_files_that_cannot_be_read_are_told_and_left_out(tmp_path):
    for name in ("crab/1.png", "crab/3.png", "whelk/1.png", "stray.png"):
        save(tmp_path / name)
    (tmp_path / "crab/2\n.png").touch()
    images = read(tmp_path, 4, labelled=True)
    assert images.names == ("crab/1.png", "crab/3.png", "whelk/1.png")
    assert images.labels.tolist() == [0, 0, 1]
    assert images.skipped == (
        r"'crab/2\n.png': the file is empty",
        "'stray.png': lies beside the class folders, not in one",
    )
    assert read(tmp_path, 4, labelled=False).skipped == images.skipped[:1]


def test_a_folder_that_cannot_be_opened_is_told_and_left_out(tmp_path):
    for name in ("crab/1.png", "crab/deep/2.png", "eel/3.png", "whelk/4.png"):
        save(tmp_path / name)
    (tmp_path / "whelk/5.png").touch()
    with locked(tmp_path, "crab/deep", "eel") as root:
        images, loose = read(root, 4, labelled=True), read(root, 4, labelled=False)
    assert images.names == loose.names == ("crab/1.png", "whelk/4.png")
    assert images.classes == ("crab", "whelk")
    assert images.skipped == loose.skipped
    assert images.skipped == (
        "'crab/deep': cannot be opened: Permission denied",
        "'eel': cannot be opened: Permission denied",
        "'whelk/5.png': the file is empty",
    )


def test_loading_tells_what_cannot_be_read_and_keeps_the_others_in_order(tmp_path):
    good, bad = save(tmp_path / "good.png", picture(0, 6, 6)), tmp_path / "bad.png"
    listed = Pictures(
        files=(good, bad, good, good),
        names=("good.png", "bad.png", "good.png", "good.png"),
        labels=torch.tensor([2, 1, 0, 1]),
        classes=("a", "b", "c"),
        boxes=(Box(1, 2, 3, 3), None, Box(6, 0, 1, 1), Box(3, 3, 3, 3)),
        groups=("",) * 4,
        skipped=("'earlier.png': does not exist",),
    )
    images = load(listed, 3)
    assert images.names == ("good.png", "good.png")
    assert images.labels.tolist() == [2, 1]
    assert images.classes == ("a", "b", "c")
    assert images.skipped == (
        "'bad.png': No such file or directory",
        "'earlier.png': does not exist",
        "'good.png' at x=6, y=0: the box lies outside the image",
    )
    for pixels, ends in zip(images.pixels, ((1, 2, 4, 5), (3, 3, 6, 6)), strict=True):
        assert (pixels.permute(1, 2, 0).numpy() == np.asarray(picture(0, 6, 6).crop(ends))).all()
    none = load(listed.pick(torch.tensor([1])), 3)
    assert none.pixels.shape == (0, 3, 3, 3)
    assert none.skipped == ("'bad.png': No such file or directory",)


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
        (False, all_broken, "Found: '0.jpg': not an image that Pillow knows"),
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
    assert read("~/photos", 4, labelled=False).names == ("1.png",)


def test_the_truth_of_a_pile_is_its_first_folder(tmp_path):
    for name in ("whelk/1.png", "crab/deep/whelk/2.png", "crab/3.png"):
        save(tmp_path / name)
    truth, classes = first_folders(read(tmp_path, 4, labelled=False).names)
    assert classes == ("crab", "whelk")
    assert truth.tolist() == [0, 0, 1]


def test_there_is_no_truth_where_images_lie_in_no_folder(tmp_path):
    for name in ("whelk/1.png", "2.png"):
        save(tmp_path / name)
    with pytest.raises(InputError, match=r"'2\.png'\. Needed, to know the truth"):
        first_folders(read(tmp_path, 4, labelled=False).names)


def test_picking_takes_rows_in_their_order():
    images = arrays(np.arange(4, dtype=np.uint8).reshape(4, 1, 1), labels=[0, 1, 1, -1], names="abcd")
    some = images.pick(torch.tensor([2, 0, 3]))
    assert some.names == ("c", "a", "d")
    assert some.labels.tolist() == [1, 0, -1]
    assert some.pixels.flatten().tolist() == [2, 0, 3]
    assert some.classes == ("0", "1")
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
    assert images.classes == ("0", "1", "2")
    assert images.names == ("0", "1", "2")
    assert images.labels.dtype == torch.int64
    assert arrays(np.zeros((3, 2, 2), np.uint8)).labels.tolist() == [-1, -1, -1]


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


@pytest.mark.parametrize(
    ("group", "classes", "first", "pixels"),
    [
        ("known", 100, "tornado", "b3e4c686eef3945e60b6c2b4f9c9a9127c4e40d70cb6afc4ebccba5d573c4564"),
        ("novel", 10, "lion", "70c59f4fe9c96bdaf67f9f70dc30c8a06c858d764f364dae2943306cff165777"),
        ("spare", 10, "television", "4d6fb5d056a1a16e3715a6fd3d547392c82d7eeb6e312b6a0569c630760fd0f1"),
    ],
)
def test_the_doodles_are_those_of_the_source(group, classes, first, pixels):
    images = doodles(group)
    assert images.pixels.shape == (100 * classes, 1, 28, 28)
    assert len(images.classes) == classes
    assert images.classes[0] == first
    assert images.names[:2] == (f"{first}/0", f"{first}/1")
    assert all(
        name.split("/")[0] == images.classes[label] for name, label in zip(images.names, images.labels, strict=True)
    )
    assert images.labels.bincount().tolist() == [100] * classes
    # the drawings as the npm package has them, each value v as round(255 · v), hashed without a mosaic in between
    assert hashlib.sha256(images.pixels.numpy().tobytes()).hexdigest() == pixels


def test_doodles_are_bright_ink_on_black():
    pixels = doodles("spare").pixels
    assert (pixels == 0).float().mean() > 0.6
    assert (pixels.flatten(1).amax(1) == 255).all()


def test_no_category_is_in_two_groups():
    classes = [name for group in ("known", "novel", "spare") for name in doodles(group).classes]
    assert len(set(classes)) == 120


def test_the_sample_travels_with_its_licence():
    text = (resources.files("newfound.data") / "doodles/LICENSE.txt").read_text()
    assert "This data made available by Google, Inc." in text
    assert "https://creativecommons.org/licenses/by/4.0/" in text
    assert "Copyright (c) 2017 Thomas Wagenaar" in text


def test_images_of_unequal_count_are_not_images():
    with pytest.raises(TypeError):
        Images(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), ("a", "b"), torch.zeros(3, dtype=torch.long), ())
