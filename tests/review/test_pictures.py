"""Images for the browser: by row, from the run's folder of images, and from nowhere else."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from newfound.data.decoding import Box
from newfound.data.listing import Listing
from newfound.review.pictures import SIDES, Pictures, UnshowableError
from tests.data.pictures import picture, save
from tests.discovery.made import make_found


def see(root, *names, boxes=None, images=None, **other):
    listing = Listing.of(names, root=root, boxes=boxes)
    return Pictures(replace(make_found(thumbnails={}), listing=listing), images, **other)


def opened(shown):
    with Image.open(io.BytesIO(shown.content)) as image:
        image.load()
        return image


def test_a_thumbnail_is_the_smallest_that_is_enough_and_says_what_it_is(tmp_path):
    save(tmp_path / "a.png", picture(0, 400, 300))
    pictures = see(tmp_path, "a.png")
    for asked, side in ((1, 96), (96, 96), (97, 192), (4000, SIDES[-1])):
        shown = pictures.thumbnail(0, asked)
        assert opened(shown).size == (side, side)
        assert shown.kind == f"image/{opened(shown).format.lower()}"


def test_of_a_box_the_thumbnail_shows_what_is_in_it(tmp_path):
    image = Image.new("RGB", (100, 100), "white")
    image.paste((200, 0, 0), (50, 50, 100, 100))
    save(tmp_path / "a.png", image)
    shown = opened(see(tmp_path, "a.png", boxes=[Box(50, 50, 50, 50)]).thumbnail(0, 96))
    red, green, blue = shown.convert("RGB").resize((1, 1)).getpixel((0, 0))
    assert red > 180
    assert max(green, blue) < 30


def test_thumbnails_are_made_once_and_the_oldest_go_where_there_is_no_room(tmp_path, monkeypatch):
    names = [save(tmp_path / f"{i}.png", picture(i, 300, 300)).name for i in range(6)]
    made = []
    draw = Pictures._draw
    monkeypatch.setattr(Pictures, "_draw", lambda self, *key: made.append(key) or draw(self, *key))
    size = len(see(tmp_path, *names).thumbnail(0, 96).content)
    made.clear()
    pictures = see(tmp_path, *names, room=3 * size + size // 2)
    for row in (0, 1, 0, 2, 0, 3, 4, 0, 1):
        pictures.thumbnail(row, 96)
    assert [row for row, _ in made] == [0, 1, 2, 3, 4, 1]  # 0 was asked for again and again, and stayed
    assert sum(len(each.content) for each in pictures._kept.values()) <= pictures.room


def test_an_original_is_shown_as_it_is_and_what_browsers_do_not_know_as_png(tmp_path):
    save(tmp_path / "a.jpg", picture(0, 90, 70))
    save(tmp_path / "b.ppm", picture(1, 90, 70))
    save(tmp_path / "c.tif", picture(2, 90, 70).convert("CMYK"))
    save(tmp_path / "lies.gif", picture(3, 90, 70), format="PNG")
    save(tmp_path / "phone.jpg", picture(4, 90, 70), format="MPO", save_all=True, append_images=[picture(5, 45, 35)])
    pictures = see(tmp_path, "a.jpg", "b.ppm", "c.tif", "lies.gif", "phone.jpg")
    assert pictures.original(0) == ((tmp_path / "a.jpg").read_bytes(), "image/jpeg")
    for row in (1, 2):
        assert pictures.original(row).kind == "image/png"
        assert opened(pictures.original(row)).size == (90, 70)
    assert pictures.original(3).kind == "image/png"  # by what is in it, not by its name
    assert pictures.original(4) == ((tmp_path / "phone.jpg").read_bytes(), "image/jpeg")


def test_an_original_of_16_bits_or_with_transparency_looks_as_its_thumbnail_does(tmp_path):
    Image.fromarray(np.full((80, 80), 100 << 8, np.uint16)).save(tmp_path / "deep.tif")
    Image.fromarray(np.full((80, 80), 100 << 8, np.int32)).save(tmp_path / "deeper.tif")
    Image.new("LA", (80, 80), (0, 0)).save(tmp_path / "clear.tif")
    pictures = see(tmp_path, "deep.tif", "deeper.tif", "clear.tif")
    for row, grey in enumerate((100, 100, 255)):
        for shown in (pictures.original(row), pictures.thumbnail(row, 96)):
            assert opened(shown).convert("RGB").getpixel((40, 40)) == (grey, grey, grey)


@pytest.mark.parametrize("content", [b"", b"<script>alert(1)</script>", b"<svg xmlns='http://www.w3.org/2000/svg'/>"])
def test_what_is_no_image_is_not_sent_whatever_it_is_called(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    for show in (lambda pictures: pictures.original(0), lambda pictures: pictures.thumbnail(0, 96)):
        with pytest.raises(UnshowableError):
            show(see(tmp_path, "a.png"))


def outside(tmp_path: Path, how: str) -> str:
    secret = save(tmp_path / "secret.png")
    if how == "dots":
        return "../secret.png"
    if how == "absolute":
        return str(secret)
    link = tmp_path / "images" / ("link.png" if how == "link" else "folder")
    link.symlink_to(secret if how == "link" else tmp_path)
    return "link.png" if how == "link" else "folder/secret.png"


@pytest.mark.parametrize("how", ["dots", "absolute", "link", "linked folder"])
def test_a_file_outside_the_folder_of_images_is_refused_unless_its_folder_was_named(tmp_path, how):
    (tmp_path / "images").mkdir()
    name = outside(tmp_path, how)
    pictures = see(tmp_path / "images", name)
    for show in (pictures.original, lambda row: pictures.thumbnail(row, 96)):
        with pytest.raises(UnshowableError, match="outside"):
            show(0)
    assert see(tmp_path / "images", name, images=tmp_path).original(0).kind == "image/png"


def test_a_link_within_the_folder_is_followed(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("a.png")
    assert see(tmp_path, "b.png").original(0).kind == "image/png"


def test_images_that_have_moved_are_found_where_they_are_now(tmp_path):
    save(tmp_path / "now/a.png")
    with pytest.raises(UnshowableError, match="not there any more"):
        see(tmp_path / "then", "a.png").thumbnail(0, 96)
    assert see(tmp_path / "then", "a.png", images=tmp_path / "now").thumbnail(0, 96)


def test_labelled_images_are_shown_by_the_copies_that_the_run_holds_and_no_others():
    copies = torch.stack([torch.full((3, 70, 70), value, dtype=torch.uint8) for value in (40, 90)])
    pictures = Pictures(make_found(thumbnails={}, references={1: copies}))
    assert opened(pictures.labelled(1, 1)).getpixel((3, 3)) == (90, 90, 90)
    for place, which in ((0, 0), (1, 2), (9, 0)):
        with pytest.raises(UnshowableError, match=f"no labelled image {place}/{which}"):
            pictures.labelled(place, which)


def test_of_images_from_memory_small_copies_are_shown_where_the_run_kept_them():
    pictures = Pictures(make_found(thumbnails={0: torch.full((1, 4, 4), 9, dtype=torch.uint8)}))
    assert opened(pictures.thumbnail(0, 96)).getpixel((0, 0)) == 9
    with pytest.raises(UnshowableError, match="in memory"):
        pictures.thumbnail(1, 96)
    with pytest.raises(UnshowableError, match="in memory"):
        pictures.original(0)
