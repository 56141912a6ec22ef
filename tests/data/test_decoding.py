"""What becomes of a picture between the disk and memory, and of files that are none."""

import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from newfound.data.decoding import Box, decode, decode_all, measure_side
from newfound.errors import InputError
from tests.data.pictures import picture, save


def test_the_middle_square_of_a_wide_picture_is_kept(tmp_path):
    wide = Image.new("RGB", (40, 20), "red")
    wide.paste("green", (10, 0, 30, 20))
    seen = decode(save(tmp_path / "wide.png", wide).read_bytes(), 20)
    assert (seen == np.array(Image.new("RGB", (20, 20), "green"))).all()


def test_the_middle_square_of_a_tall_picture_is_kept_and_scaled(tmp_path):
    tall = Image.new("RGB", (20, 40), "red")
    tall.paste("green", (0, 10, 20, 30))
    seen = decode(save(tmp_path / "tall.png", tall).read_bytes(), 5)
    assert seen.shape == (5, 5, 3)
    assert (np.abs(seen[1:4].astype(int) - (0, 128, 0)) <= 2).all()  # scaling looks a little beyond the square


def test_a_picture_of_the_right_size_comes_back_pixel_for_pixel(tmp_path):
    image = picture(3, 16, 16)
    assert (decode(save(tmp_path / "same.png", image).read_bytes(), 16) == np.asarray(image)).all()


def test_a_large_jpeg_decoded_small_looks_as_if_decoded_whole(tmp_path):
    image = picture(4, 60, 80).resize((600, 800), Image.Resampling.BICUBIC)
    path = save(tmp_path / "large.jpg", image, quality=95)
    whole = Image.open(path).crop((0, 100, 600, 700)).resize((128, 128), Image.Resampling.BICUBIC)
    assert np.abs(decode(path.read_bytes(), 128) - np.asarray(whole, np.int64)).mean() < 5


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_upright(tmp_path, orientation):
    upright = picture(5, 8, 8)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's transposition that makes the stored picture
    stored = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert (decode(save(tmp_path / "photo.png", stored, exif=exif).read_bytes(), 8) == np.asarray(upright)).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_become_white(tmp_path, mode):
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 8, 4))
    seen = decode(save(tmp_path / "glass.png", image.convert(mode)).read_bytes(), 8)
    assert (seen[:4] == 0).all()
    assert (seen[4:] == 255).all()


def test_half_transparent_pixels_are_blended_with_white(tmp_path):
    seen = decode(save(tmp_path / "veil.png", Image.new("RGBA", (4, 4), (255, 0, 0, 51))).read_bytes(), 4)
    assert (np.abs(seen.astype(int) - (255, 204, 204)) <= 1).all()


def test_a_transparent_palette_colour_becomes_white(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.paste(0, (0, 0, 4, 2))
    seen = decode(save(tmp_path / "palette.gif", image, transparency=1).read_bytes(), 4)
    assert (seen[:2] == 0).all()
    assert (seen[2:] == 255).all()


@pytest.mark.parametrize(
    ("mode", "suffix"), [("1", "png"), ("L", "jpg"), ("L", "pgm"), ("P", "gif"), ("CMYK", "jpg"), ("YCbCr", "tif")]
)
def test_every_colour_mode_becomes_rgb(tmp_path, mode, suffix):
    seen = decode(save(tmp_path / f"image.{suffix}", Image.new("RGB", (8, 8), "white").convert(mode)).read_bytes(), 4)
    assert seen.shape == (4, 4, 3)
    assert (seen >= 253).all()


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_keep_their_upper_8(tmp_path, suffix):
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1024
    seen = decode(save(tmp_path / f"deep.{suffix}", Image.fromarray(deep)).read_bytes(), 8)
    assert (seen == (deep // 256)[:, :, None]).all()


WHOLE, OUTSIDE = Box(0, 0, 40, 30), "the box lies outside the image"


@pytest.mark.parametrize(
    ("box", "ends"),
    [
        (Box(3, 5, 8, 8), (3, 5, 11, 13)),
        (Box(32, 22, 8, 8), (32, 22, 40, 30)),
        (Box(3, 5, 12, 8), (5, 5, 13, 13)),
        (Box(3, 5, 8, 14), (3, 8, 11, 16)),
        (Box(-4, -6, 12, 14), (0, 0, 8, 8)),
        (Box(32, 22, 800, 900), (32, 22, 40, 30)),
        (Box(-1e300, 22, 2e300, 8), (16, 22, 24, 30)),
    ],
)
def test_a_box_is_the_naive_crop_of_the_picture_pixel_for_pixel(tmp_path, box, ends):
    image = picture(6, 40, 30)
    seen = decode(save(tmp_path / "image.png", image).read_bytes(), 8, box)
    assert (seen == np.asarray(image.crop(ends))).all()


@pytest.mark.parametrize("box", [Box(40, 0, 5, 5), Box(0, 30, 5, 5), Box(-5, 3, 5, 5), Box(3, -9, 5, 8)])
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_box_wholly_outside_is_told(tmp_path, suffix, box):
    path = save(tmp_path / f"image.{suffix}", picture(6, 40, 30))
    with pytest.raises(ValueError, match=OUTSIDE):
        decode(path.read_bytes(), 4, box)
    pixels, reasons = decode_all([path, path, path], 4, [None, box, WHOLE])
    assert reasons == {1: OUTSIDE}
    assert torch.equal(pixels[0], pixels[1])


def naive(path, size, box):
    """The box cut out of the whole picture, turned upright, and then scaled."""
    x, y, width, height = box
    whole = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    return np.asarray(ImageOps.fit(whole.crop((x, y, x + width, y + height)), (size, size)), np.int64)


def smooth(seed, width, height):
    return picture(seed, width // 40, height // 40).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_a_box_is_measured_in_the_upright_picture(tmp_path, suffix, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if suffix == "jpg" else {}
    path = save(tmp_path / f"photo.{suffix}", smooth(orientation, 805, 603), exif=exif, **options)
    for box in (Box(40, 90, 400, 480), Box(1, 2, 37, 33), Box(300, 250, 240, 200), Box(500, 500, 100, 100)):
        seen = decode(path.read_bytes(), 24, box)
        assert np.abs(seen - naive(path, 24, box)).mean() < 1, box


def test_a_box_at_the_far_end_of_an_upright_photo_is_inside_though_it_was_stored_lying(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "photo.jpg", smooth(1, 800, 400), exif=exif)
    assert (decode(path.read_bytes(), 8, Box(0, 700, 100, 100)) >= 0).all()
    with pytest.raises(ValueError, match=OUTSIDE):
        decode(path.read_bytes(), 8, Box(700, 0, 100, 100))


@pytest.mark.parametrize(
    ("size", "box", "scale"),
    [
        (16, None, 8),
        (16, Box(0, 0, 640, 640), 8),
        (16, Box(0, 0, 256, 999), 8),
        (16, Box(0, 0, 255, 255), 4),
        (16, Box(0, 0, 127, 500), 2),
        (16, Box(0, 0, 64, 64), 2),
        (16, Box(0, 0, 63, 63), 1),
        (16, Box(0, 0, 5, 5), 1),
        (16, Box(540, 380, 999, 999), 2),
    ],
)
def test_a_jpeg_is_decoded_no_smaller_than_twice_as_fine_as_the_box_needs(tmp_path, monkeypatch, size, box, scale):
    path = save(tmp_path / "large.jpg", smooth(2, 641, 481))
    loaded, load = [], JpegImageFile.load
    monkeypatch.setattr(JpegImageFile, "load", lambda file: [loaded.append(file.size), load(file)][1])
    decode(path.read_bytes(), size, box)
    assert loaded[0] == (-(-641 // scale), -(-481 // scale))


def test_a_fine_pattern_in_a_small_box_of_a_large_jpeg_is_still_seen(tmp_path):
    stripes = Image.fromarray(np.tile(np.array([0, 0, 255, 255], np.uint8), (2000, 500)))
    path = save(tmp_path / "stripes.jpg", stripes, quality=95)
    assert decode(path.read_bytes(), 16, Box(1000, 1000, 16, 16)).std() > 100
    assert decode(path.read_bytes(), 16, Box(0, 0, 2000, 2000)).std() < 20


def test_a_file_is_read_once_and_whole(tmp_path, monkeypatch):
    path = save(tmp_path / "image.png", picture(7, 4, 4))
    reads, read_bytes = [], type(path).read_bytes

    def spoil(file):
        content = read_bytes(file)
        reads.append(file)
        file.write_bytes(b"written anew")
        return content

    monkeypatch.setattr(type(path), "read_bytes", spoil)
    pixels, reasons = decode_all([path], 4)
    assert torch.equal(pixels[0], torch.from_numpy(np.array(picture(7, 4, 4))).permute(2, 0, 1))
    assert not reasons
    assert reads == [path]


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
        ("cut.webp", truncated, "damaged ("),
        ("cut.tif", truncated, "damaged ("),
        ("fractions.tif", fraction, "save it with 8 or 16 bits"),
        ("link.png", dangling, "No such file"),
        ("loop.png", circular, "Too many levels of symbolic links"),
        ("pipe.png", os.mkfifo, "neither a file nor a link to one"),
        ("bomb.png", lambda path: save(path, picture(0, 1, 101)), "more than 100 pixels; scale it down"),
        ("great bomb.png", lambda path: save(path, picture(0, 1, 1001)), "more than 100 pixels; scale it down"),
    ],
)
def test_a_file_that_cannot_be_read_is_skipped_with_its_reason(tmp_path, monkeypatch, capfd, name, make, reason):
    make(tmp_path / name)
    save(tmp_path / "good.png", picture(1, 4, 4))
    if "bomb" in name:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    pixels, reasons = decode_all([tmp_path / name, tmp_path / "good.png"], 4)
    assert reasons.keys() == {0}
    assert reason in reasons[0]
    assert str(tmp_path) not in reasons[0]
    assert torch.equal(pixels[0], torch.from_numpy(np.array(picture(1, 4, 4))).permute(2, 0, 1))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("make", [os.mkfifo, dangling, circular, truncated, lambda path: path.touch()])
def test_the_side_of_a_picture_is_its_shorter_one_and_nobody_waits_for_a_pipe(tmp_path, make):
    assert measure_side(save(tmp_path / "tall.png", picture(0, 3, 8))) == 3
    make(tmp_path / "odd.png")
    assert measure_side(tmp_path / "odd.png") in (None, 200)  # the header of a file that was cut is whole


def test_a_picture_too_large_to_be_read_has_no_side(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert measure_side(save(tmp_path / "bomb.png", picture(0, 11, 11))) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has file names that are no text")
def test_a_file_whose_name_is_no_text_is_skipped(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    save(tmp_path / name)
    _, reasons = decode_all([tmp_path / name], 4)
    assert reasons == {0: "its name is not valid text; rename it"}


def test_a_warning_about_metadata_does_not_cost_the_picture(tmp_path):
    path = save(tmp_path / "odd.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x09" + bytes(5))
    with pytest.warns(UserWarning, match="EXIF"):
        decode(path.read_bytes(), 4)
    pixels, reasons = decode_all([path], 4)
    assert len(pixels) == 1
    assert not reasons


def test_many_pictures_keep_the_order_of_their_files(tmp_path):
    files = [save(tmp_path / f"{place}.png", Image.new("L", (3, 3), place)) for place in range(100)]
    pixels, _ = decode_all(files, 2)
    assert pixels[:, 0, 0, 0].tolist() == list(range(100))


def test_a_size_below_one_is_refused():
    with pytest.raises(InputError, match="image size is 0"):
        decode_all([], 0)
