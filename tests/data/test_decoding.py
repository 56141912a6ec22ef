"""What becomes of a picture between the disk and memory, and of files that are none."""

import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from newfound.data.decoding import decode, decode_all, image_names
from newfound.errors import InputError
from tests.data.pictures import picture, save


def test_the_middle_square_of_a_wide_picture_is_kept(tmp_path):
    wide = Image.new("RGB", (40, 20), "red")
    wide.paste("green", (10, 0, 30, 20))
    seen = decode(save(tmp_path / "wide.png", wide), 20)
    assert (seen == np.array(Image.new("RGB", (20, 20), "green"))).all()


def test_the_middle_square_of_a_tall_picture_is_kept_and_scaled(tmp_path):
    tall = Image.new("RGB", (20, 40), "red")
    tall.paste("green", (0, 10, 20, 30))
    seen = decode(save(tmp_path / "tall.png", tall), 5)
    assert seen.shape == (5, 5, 3)
    assert (np.abs(seen[1:4].astype(int) - (0, 128, 0)) <= 2).all()  # scaling looks a little beyond the square


def test_a_picture_of_the_right_size_comes_back_pixel_for_pixel(tmp_path):
    image = picture(3, 16, 16)
    assert (decode(save(tmp_path / "same.png", image), 16) == np.asarray(image)).all()


def test_a_large_jpeg_decoded_small_looks_as_if_decoded_whole(tmp_path):
    image = picture(4, 60, 80).resize((600, 800), Image.Resampling.BICUBIC)
    path = save(tmp_path / "large.jpg", image, quality=95)
    whole = Image.open(path).crop((0, 100, 600, 700)).resize((128, 128), Image.Resampling.BICUBIC)
    assert np.abs(decode(path, 128) - np.asarray(whole, np.int64)).mean() < 5


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_upright(tmp_path, orientation):
    upright = picture(5, 8, 8)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's transposition that makes the stored picture
    stored = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert (decode(save(tmp_path / "photo.png", stored, exif=exif), 8) == np.asarray(upright)).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_become_white(tmp_path, mode):
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 8, 4))
    seen = decode(save(tmp_path / "glass.png", image.convert(mode)), 8)
    assert (seen[:4] == 0).all()
    assert (seen[4:] == 255).all()


def test_half_transparent_pixels_are_blended_with_white(tmp_path):
    seen = decode(save(tmp_path / "veil.png", Image.new("RGBA", (4, 4), (255, 0, 0, 51))), 4)
    assert (np.abs(seen.astype(int) - (255, 204, 204)) <= 1).all()


def test_a_transparent_palette_colour_becomes_white(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.paste(0, (0, 0, 4, 2))
    seen = decode(save(tmp_path / "palette.gif", image, transparency=1), 4)
    assert (seen[:2] == 0).all()
    assert (seen[2:] == 255).all()


@pytest.mark.parametrize(
    ("mode", "suffix"), [("1", "png"), ("L", "jpg"), ("L", "pgm"), ("P", "gif"), ("CMYK", "jpg"), ("YCbCr", "tif")]
)
def test_every_colour_mode_becomes_rgb(tmp_path, mode, suffix):
    seen = decode(save(tmp_path / f"image.{suffix}", Image.new("RGB", (8, 8), "white").convert(mode)), 4)
    assert seen.shape == (4, 4, 3)
    assert (seen >= 253).all()


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_keep_their_upper_8(tmp_path, suffix):
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1024
    seen = decode(save(tmp_path / f"deep.{suffix}", Image.fromarray(deep)), 8)
    assert (seen == (deep // 256)[:, :, None]).all()


def fraction(path):
    save(path, Image.new("F", (4, 4), 0.5))


def truncated(path):
    save(path, picture(0, 200, 200))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def dangling(path):
    path.symlink_to(path.parent / "gone.png")


def circular(path):
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("empty.jpg", lambda path: path.touch(), "the file is empty"),
        ("text.jpg", lambda path: path.write_text("a shopping list"), "not an image that Pillow knows"),
        ("photo.heic", lambda path: path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(99)), "save it as JPEG or PNG"),
        ("cut.jpg", truncated, "truncated"),
        ("cut.png", truncated, "truncated"),
        ("cut.webp", truncated, ""),
        ("cut.tif", truncated, ""),
        ("fractions.tif", fraction, "save it with 8 or 16 bits"),
        ("link.png", dangling, "No such file"),
        ("loop.png", circular, "Too many levels of symbolic links"),
        ("bomb.png", lambda path: save(path, picture(0, 1, 101)), "more than 100 pixels; scale it down"),
        ("great bomb.png", lambda path: save(path, picture(0, 1, 1001)), "more than 100 pixels; scale it down"),
    ],
)
def test_a_file_that_cannot_be_read_is_skipped_with_its_reason(tmp_path, monkeypatch, capfd, name, make, reason):
    make(tmp_path / name)
    save(tmp_path / "good.png", picture(1, 4, 4))
    if "bomb" in name:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    pixels, reasons = decode_all(tmp_path, [name, "good.png"], 4)
    assert reasons.keys() == {name}
    assert reason in reasons[name]
    assert str(tmp_path) not in reasons[name]
    assert torch.equal(pixels[0], torch.from_numpy(np.array(picture(1, 4, 4))).permute(2, 0, 1))
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has file names that are no text")
def test_a_file_whose_name_is_no_text_is_skipped(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    save(tmp_path / name)
    _, reasons = decode_all(tmp_path, [name], 4)
    assert reasons == {name: "its name is not valid text; rename it"}


def test_a_warning_about_metadata_does_not_cost_the_picture(tmp_path):
    path = save(tmp_path / "odd.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x09" + bytes(5))
    with pytest.warns(UserWarning, match="EXIF"):
        decode(path, 4)
    pixels, reasons = decode_all(tmp_path, ["odd.jpg"], 4)
    assert len(pixels) == 1
    assert not reasons


def test_many_pictures_keep_the_order_of_their_names(tmp_path):
    names = [f"{place}.png" for place in range(100)]
    for place, name in enumerate(names):
        save(tmp_path / name, Image.new("L", (3, 3), place))
    pixels, _ = decode_all(tmp_path, names, 2)
    assert pixels[:, 0, 0, 0].tolist() == list(range(100))


def test_a_size_below_one_is_refused(tmp_path):
    with pytest.raises(InputError, match="image size is 0"):
        decode_all(tmp_path, [], 0)


def test_image_files_are_found_by_their_ending_in_any_case_and_sorted(tmp_path):
    for name in ("b.PNG", "a/z.Jpg", "a-b.webp", "a/deep/er/1.tiff", "notes.txt", "jpg", "png.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert image_names(tmp_path) == ["a-b.webp", "a/deep/er/1.tiff", "a/z.Jpg", "b.PNG"]


def test_hidden_files_and_folders_do_not_count(tmp_path):
    for name in (".hidden/1.png", "._IMG.jpg", "IMG.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert image_names(tmp_path) == ["IMG.jpg"]


def test_links_are_followed_and_loops_end(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for path in (root / "a/1.png", elsewhere / "2.png"):
        path.parent.mkdir(parents=True)
        path.touch()
    (root / "a/up").symlink_to(root)
    (root / "a/self").symlink_to(root / "a/self")
    (root / "b").symlink_to(elsewhere)
    (root / "c").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root / "a")
    (root / "3.png").symlink_to(elsewhere / "2.png")
    assert image_names(root) == ["3.png", "a/1.png", "b/2.png"]


def test_a_folder_that_may_not_be_opened_is_named(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def guarded(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(InputError, match="locked cannot be opened: Permission denied"):
        image_names(tmp_path)
