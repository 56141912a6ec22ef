"""What becomes of a picture between the disk and memory, and of files that are none."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from scripts import attack

from newfound.data import decoding
from newfound.data.decoding import Box, Budget, decode, decode_all, measure_side, measure_sides
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


@pytest.mark.parametrize(("across", "down"), [(40, 20), (20, 40), (33, 20), (60, 5), (24, 24)])
def test_a_picture_seen_whole_is_padded_with_white(tmp_path, across, down):
    image = picture(6, across, down)
    seen = decode(save(tmp_path / "whole.png", image).read_bytes(), 24, framing="whole")
    padded = ImageOps.pad(image, (24, 24), Image.Resampling.BICUBIC, color="white")
    assert (seen == np.asarray(padded)).all()


@pytest.mark.parametrize(("across", "down"), [(40, 20), (20, 40), (60, 5), (24, 24)])
def test_a_squeezed_picture_is_all_of_it_and_nothing_else(tmp_path, across, down):
    image = picture(6, across, down)
    seen = decode(save(tmp_path / "squeezed.png", image).read_bytes(), 24, framing="squeezed")
    assert (seen == np.asarray(image.resize((24, 24), Image.Resampling.BICUBIC))).all()


def test_a_box_seen_whole_is_all_of_it_that_lies_in_the_picture_and_no_more(tmp_path):
    image = Image.new("RGB", (40, 40), "red")
    image.paste("green", (20, 10, 40, 20))
    seen = decode(save(tmp_path / "box.png", image).read_bytes(), 20, Box(20, 10, 99, 10), framing="whole")
    assert (seen[5:15, 2:-2] == (0, 128, 0)).all()
    assert (seen[[*range(5), *range(15, 20)]] == 255).all()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_large_jpeg_seen_whole_is_turned_upright_and_complete(tmp_path, orientation):
    upright = picture(7, 60, 80).resize((600, 800), Image.Resampling.BICUBIC)
    undo = {3: 3, 6: 2, 8: 4}
    stored = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    seen = decode(save(tmp_path / "photo.jpg", stored, exif=exif, quality=95).read_bytes(), 64, framing="whole")
    padded = ImageOps.pad(upright, (64, 64), Image.Resampling.BICUBIC, color="white")
    assert np.abs(seen - np.asarray(padded, np.int64)).mean() < 5


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
        ("text.jpg", lambda path: path.write_text("a shopping list"), "not an image of a kind that is read"),
        ("photo.heic", lambda path: path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(99)), "save it as JPEG or PNG"),
        ("cut.jpg", truncated, "truncated"),
        ("cut.png", truncated, "truncated"),
        ("cut.webp", truncated, "damaged ("),
        ("cut.tif", truncated, "damaged ("),
        ("fractions.tif", fraction, "save it with 8 or 16 bits"),
        ("link.png", dangling, "No such file"),
        ("loop.png", circular, "Too many levels of symbolic links"),
        ("pipe.png", os.mkfifo, "neither a file nor a link to one"),
        (
            "bomb.png",
            lambda path: save(path, picture(0, 9, 12)),
            "9 × 12 pixels are more than can be read; scale it down",
        ),
        ("great bomb.png", lambda path: save(path, picture(0, 1, 1001)), "more pixels than can be read; scale it down"),
    ],
)
def test_a_file_that_cannot_be_read_is_skipped_with_its_reason(tmp_path, monkeypatch, capfd, name, make, reason):
    make(tmp_path / name)
    save(tmp_path / "good.png", picture(1, 4, 4))
    if "bomb" in name:
        monkeypatch.setattr(decoding, "MEMORY", Budget(100 * decoding.PIXEL))
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
    assert measure_sides(tmp_path / "tall.png") == (3, 8)
    make(tmp_path / "odd.png")
    assert measure_side(tmp_path / "odd.png") in (None, 200)  # the header of a file that was cut is whole


def test_a_picture_too_large_to_be_read_has_no_side(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MEMORY", Budget(100 * decoding.PIXEL))
    assert measure_side(save(tmp_path / "good.png", picture(0, 10, 10))) == 10
    assert measure_side(save(tmp_path / "bomb.png", picture(0, 11, 11))) is None
    assert measure_side(save(tmp_path / "drafted.jpg", picture(0, 16, 16))) == 16


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


def test_an_eps_called_png_starts_no_ghostscript(tmp_path, monkeypatch):
    stub, marker = tmp_path / "gs", tmp_path / "started"
    stub.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # it may have looked for one before
    path = tmp_path / "drawing.png"
    path.write_bytes(attack.EPS)
    with contextlib.suppress(OSError), Image.open(path) as file:  # what the stub writes is no picture
        file.load()
    assert marker.exists(), "Pillow would start it"
    marker.unlink()
    _, reasons = decode_all([path], 4)
    assert "not an image of a kind that is read" in reasons[0]
    assert measure_side(path) is None
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["tga", "dds", "pcx", "sgi", "msp", "qoi", "jp2"])
def test_pillow_s_other_formats_are_not_read_whatever_a_file_is_called(tmp_path, kind):
    image = picture(0, 16, 16).convert("1" if kind == "msp" else "RGB")
    path = save(tmp_path / f"image.{kind}", image).rename(tmp_path / "image.png")
    Image.open(path).load()
    assert "not an image of a kind that is read" in decode_all([path], 4)[1][0]


@pytest.mark.parametrize("kind", ["avif", "bmp", "gif", "jfif", "jpg", "pgm", "png", "ppm", "tiff", "webp"])
def test_every_format_of_ours_is_read_whatever_a_file_is_called(tmp_path, kind):
    image = Image.new("L" if kind == "pgm" else "RGB", (16, 16), "white")
    path = save(tmp_path / f"image.{kind}", image).rename(tmp_path / "image.heic")
    assert (decode(path.read_bytes(), 4) > 250).all()


def test_a_jpeg_that_holds_several_pictures_shows_its_first(tmp_path):
    path = save(
        tmp_path / "stereo.mpo", Image.new("RGB", (8, 8), "white"), save_all=True, append_images=[picture(0, 8, 8)]
    )
    assert (decode(path.read_bytes(), 4) > 250).all()


def test_a_file_of_5_gb_is_told_and_not_read(tmp_path, monkeypatch):
    path = save(tmp_path / "vast.png")
    os.truncate(path, 5 << 30)  # sparse: it takes no room
    monkeypatch.setattr(type(path), "read_bytes", lambda file: pytest.fail("it was read"))
    _, reasons = decode_all([path], 4)
    assert reasons == {0: "a file of 5120 MiB; 256 are read at most; scale it down"}
    assert measure_side(path) is None


def test_who_shares_a_budget_never_has_more_than_it_and_nobody_waits_for_ever():
    budget, lock, held, most = Budget(100), threading.Lock(), [0], []

    def work(amount):
        with budget.take(amount):
            with lock:
                held[0] += amount
                most.append(held[0])
            time.sleep(0.001)
            with lock:
                held[0] -= amount

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, [1, 100, 30, 60, 5, 99, 50, 50] * 10))
    assert len(most) == 80
    assert 60 < max(most) <= 100
    with contextlib.suppress(ValueError), budget.take(100):
        raise ValueError
    with budget.take(100):
        pass


def test_pictures_that_do_not_fit_together_are_decoded_one_after_the_other(tmp_path, monkeypatch):
    files = [save(tmp_path / f"{row}.png", picture(row, 40, 40)) for row in range(12)]
    inside, most, lock, flatten = [0], [], threading.Lock(), decoding.flatten

    def watched(image):
        with lock:
            inside[0] += 1
            most.append(inside[0])
        time.sleep(0.005)
        with lock:
            inside[0] -= 1
        return flatten(image)

    monkeypatch.setattr(decoding, "flatten", watched)
    monkeypatch.setattr(decoding, "count_cores", lambda: 8)
    monkeypatch.setattr(decoding, "MEMORY", Budget(2 * 40 * 40 * decoding.PIXEL))
    pixels, reasons = decode_all(files, 4)
    assert len(pixels) == 12
    assert not reasons
    assert max(most) == 2


def test_files_that_do_not_fit_together_are_read_one_after_the_other(tmp_path, monkeypatch):
    files = [save(tmp_path / f"{row}.bmp", picture(row, 40, 40)) for row in range(12)]
    inside, most, lock = [0], [], threading.Lock()

    def watched(content, size, *how):
        with lock:
            inside[0] += 1
            most.append(inside[0])
        time.sleep(0.005)
        with lock:
            inside[0] -= 1
        return np.zeros((size, size, 3), np.uint8)

    monkeypatch.setattr(decoding, "decode", watched)
    monkeypatch.setattr(decoding, "count_cores", lambda: 8)
    monkeypatch.setattr(decoding, "CONTENTS", Budget(3 * files[0].stat().st_size))
    assert not decode_all(files, 4)[1]
    assert max(most) == 3


CROWD = """
import sys
from pathlib import Path
from newfound.data import decoding

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10

files = sorted(Path(sys.argv[1]).iterdir())
decoding.decode_all(files[-1:], 8)
Path("/proc/self/clear_refs").write_text("5")
before = peak()
decoding.count_cores = lambda: 8
decoding.MEMORY = decoding.Budget(100 << 20)
pixels, _ = decoding.decode_all(files[:-1], 8)
print(len(pixels), peak() - before)
"""
"""The mebibytes that eight threads take to read pictures of which one fits at a time; the last file is a small one."""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say their peak memory so")
def test_many_threads_take_no_more_memory_than_they_share(tmp_path):
    for number in range(16):
        attack.large(2800)(tmp_path / f"{number:02}.png", np.random.default_rng(number))
    save(tmp_path / "99.png", picture(0, 8, 8).convert("RGBA"))
    done = subprocess.run([sys.executable, "-c", CROWD, tmp_path], capture_output=True, text=True, check=True)
    read, taken = map(int, done.stdout.split())
    assert read == 16
    assert taken < 200


def test_as_many_threads_read_as_cores_are_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 6})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    asked = []

    class Watched(ThreadPoolExecutor):
        def __init__(self, workers=None):
            asked.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(decoding, "ThreadPoolExecutor", Watched)
    decode_all([save(tmp_path / "image.png")], 4)
    assert asked == [3]


def test_a_jpeg_too_large_to_be_decoded_whole_is_decoded_small(tmp_path, monkeypatch):
    path = save(tmp_path / "large.jpg", smooth(2, 640, 480))
    plain = decode(path.read_bytes(), 16)
    monkeypatch.setattr(decoding, "MEMORY", Budget(4 * 640 * 480))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200_000)  # Pillow warns from here on
    pixels, reasons = decode_all([path, save(tmp_path / "large.png", smooth(2, 640, 480))], 16)
    assert (pixels[0].permute(1, 2, 0).numpy() == plain).all()
    assert reasons == {1: "640 × 480 pixels are more than can be read; scale it down"}


def test_a_progressive_jpeg_has_all_its_coefficients_in_memory_however_small_it_is_decoded(tmp_path):
    path = save(tmp_path / "large.jpg", smooth(2, 640, 480), progressive=True, subsampling="4:4:4")
    with decoding.open_image(path) as file:
        assert decoding.weigh(file, decoding.draft(file, 8)) == 2 * 3 * 640 * 480 + decoding.PIXEL * 80 * 60


def tiled(side, tile):
    """A white TIFF in one tile."""
    data = zlib.compress(b"\xff" * tile**2)
    tags = {256: side, 257: side, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile, 323: tile, 324: 8, 325: len(data)}
    return attack.tiff(tags, data)


def test_a_tile_larger_than_its_picture_counts(tmp_path, monkeypatch):
    path = tmp_path / "tile.tif"
    path.write_bytes(tiled(16, 16))
    assert not decode_all([path], 4)[1]
    path.write_bytes(tiled(16, 512))
    monkeypatch.setattr(decoding, "MEMORY", Budget(1 << 20))
    assert "16 × 16 pixels are more than can be read" in decode_all([path], 4)[1][0]


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("RGBA", "png"), ("LA", "png"), ("P", "png"), ("1", "png"), ("L", "png"), ("CMYK", "tif"), ("I;16", "png")],
)
def test_converted_strip_by_strip_a_picture_looks_as_if_converted_at_once(tmp_path, monkeypatch, mode, suffix):
    image = picture(8, 30, 50).convert("RGBA")
    image.putalpha(picture(9, 30, 50).convert("L"))
    deep = Image.fromarray(np.asarray(image)[..., 0].astype(np.uint16) * 257)
    options = {"transparency": 3} if mode == "P" else {}
    path = save(tmp_path / f"image.{suffix}", deep if mode == "I;16" else image.convert(mode), **options)
    whole = decode(path.read_bytes(), 20)
    monkeypatch.setattr(decoding, "STRIP", 7 * 30)
    assert (decode(path.read_bytes(), 20) == whole).all()


def test_many_pictures_keep_the_order_of_their_files(tmp_path):
    files = [save(tmp_path / f"{place}.png", Image.new("L", (3, 3), place)) for place in range(100)]
    pixels, _ = decode_all(files, 2)
    assert pixels[:, 0, 0, 0].tolist() == list(range(100))


def test_a_size_below_one_is_refused():
    with pytest.raises(InputError, match="image size is 0"):
        decode_all([], 0)
