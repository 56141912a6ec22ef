"""How images that nearly equal one another are known: copies, frames of a burst."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from newfound.data.collection import Collection
from newfound.data.datasets import load_doodles
from newfound.data.duplicates import find_same
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing, list_images
from newfound.data.pixels import Images, arrays
from newfound.encoders.extraction import extract_features
from newfound.networks.pretrained import load_pretrained
from tests.data.pictures import save
from tests.encoders.features import embedded


def blurred(drawing, quality):
    """The same drawing saved as JPEG and read again."""
    file = io.BytesIO()
    Image.fromarray(drawing).save(file, "jpeg", quality=quality)
    return np.array(Image.open(file))


def test_copies_in_memory_are_the_same_and_other_drawings_are_not():
    drawings = load_doodles("spare").pixels[::20, 0].numpy()
    both = arrays(np.concatenate([drawings, np.stack([blurred(drawing, 50) for drawing in drawings])]))
    n = len(drawings)
    pairs = set(map(tuple, find_same(both).tolist()))
    assert {(row, row + n) for row in range(n)} == pairs


def test_copies_on_disk_are_the_same_and_other_pictures_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    drawings = load_doodles("spare").pixels[::50, 0].numpy()
    for number, drawing in enumerate(drawings):
        large = Image.fromarray(drawing).resize((112, 112)).convert("RGB")
        save(tmp_path / "a" / f"{number:02}.png", large)
        save(tmp_path / "b" / f"{number:02}.jpg", large.resize((140, 140)), quality=85)
    images = extract_features(list_images(tmp_path, labelled=False), load_pretrained(size=112), device="cpu")
    n = len(drawings)
    pairs = set(map(tuple, find_same(images).tolist()))
    assert pairs <= {(row, row + n) for row in range(n)}
    assert len(pairs) >= 0.9 * n


def test_what_is_one_picture_only_when_squeezed_to_a_square_is_two(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    drawings = load_doodles("spare").pixels[::100, 0].numpy()
    for number, drawing in enumerate(drawings):
        for name, size in {"tall": (60, 120), "taller": (60, 135), "twice": (120, 240), "turned": (60, 120)}.items():
            shown = Image.fromarray(drawing).resize(size).convert("RGB")
            if name == "turned":  # as a camera writes it: the file lies on its side, and says so
                shown = shown.rotate(90, expand=True)
            save(tmp_path / name / f"{number:02}.png", shown, exif=turned(name))
    images = extract_features(list_images(tmp_path, labelled=False), load_pretrained(size=112), device="cpu")
    n = len(drawings)
    pairs = set(map(tuple, find_same(images).tolist()))
    assert not any({one // n, other // n} & {1} for one, other in pairs)  # the taller ones
    for a, b in ((0, 2), (0, 3), (2, 3)):
        assert sum((row + a * n, row + b * n) in pairs for row in range(n)) >= 0.9 * n


def turned(name):
    """What a camera says of a picture that lies on its side, or nothing."""
    said = Image.Exif()
    if name == "turned":
        said[0x0112] = 6
    return said.tobytes()


def test_equal_images_are_the_same_though_they_be_plain_and_grey_ones_are_compared_with_coloured():
    plain = arrays(np.full((3, 12, 12), 7, np.uint8))
    assert find_same(plain).tolist() == [[0, 1], [0, 2]]
    grey = load_doodles("spare").pick(torch.arange(9))
    coloured = Images(grey.pixels[[4]].expand(-1, 3, -1, -1).clone(), Listing.of("a"))
    assert find_same(grey, coloured).tolist() == [[4, 0]]


@pytest.mark.parametrize("images", [load_doodles("spare"), embedded("some")])
def test_images_in_memory_and_as_features_are_collections(images):
    assert isinstance(images, Collection)
    assert isinstance(images, Images | FeatureImages)
