"""How images that nearly equal one another are known: copies, frames of a burst."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from newfound.data.collection import Collection
from newfound.data.datasets import load_doodles
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing, list_images
from newfound.data.pixels import Images, arrays
from newfound.encoders.extraction import extract_features
from newfound.networks.pretrained import trunk
from tests.data.pictures import save
from tests.encoders.features import embedded


def cosines(images):
    x = F.normalize(images.duplicate_features(), dim=1)
    return x @ x.T


def test_duplicate_features_are_coarse_pixels_about_their_mean_in_every_colour():
    pixels = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    images = Images(pixels, Listing.of("abc"))
    looks = images.duplicate_features()
    for row in range(3):
        squares = [
            pixels[row, colour, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].double().mean().item()
            for colour in range(3)
            for y in range(16)
            for x in range(16)
        ]
        mean = sum(squares) / 768
        torch.testing.assert_close(looks[row, :-1], torch.tensor([v - mean for v in squares]), atol=1e-3, rtol=0)


def test_flags_that_differ_in_colour_alone_are_not_alike_and_blank_images_are():
    flags = np.full((2, 12, 12, 3), 255, np.uint8)
    flags[0, :, :4], flags[1, :, :4], flags[:, :, 8:] = (0, 0, 255), (0, 128, 0), (255, 0, 0)
    images = arrays(np.concatenate([flags, np.full((2, 12, 12, 3), 7, np.uint8)]))
    alike = cosines(images) >= images.duplicate_threshold
    assert alike.tolist() == [[i == j or min(i, j) > 1 for j in range(4)] for i in range(4)]


def test_neither_brightness_nor_contrast_changes_how_an_image_looks():
    pixels = load_doodles("spare").pixels[:20]
    images = arrays(torch.cat([pixels, pixels // 2 + 50]).permute(0, 2, 3, 1).numpy())
    assert cosines(images)[:20, 20:].diagonal().min() > 0.999


def test_small_images_are_looked_at_whole():
    assert arrays(np.zeros((2, 8, 8), np.uint8)).duplicate_features().shape == (2, 65)


def blurred(drawing, quality):
    """The same drawing saved as JPEG and read again."""
    file = io.BytesIO()
    Image.fromarray(drawing).save(file, "jpeg", quality=quality)
    return np.array(Image.open(file))


def test_copies_in_memory_are_alike_and_other_drawings_are_not():
    drawings = load_doodles("spare").pixels[::20, 0].numpy()
    both = arrays(np.concatenate([drawings, np.stack([blurred(drawing, 40) for drawing in drawings])]))
    alike = cosines(both) >= both.duplicate_threshold
    n = len(drawings)
    assert alike[:n, n:].diagonal().all()
    others = alike[:n, :n].fill_diagonal_(False)
    assert others.double().mean() < 0.001


def test_copies_on_disk_are_alike_and_other_pictures_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    drawings = load_doodles("spare").pixels[::50, 0].numpy()
    for number, drawing in enumerate(drawings):
        large = Image.fromarray(drawing).resize((112, 112)).convert("RGB")
        save(tmp_path / "a" / f"{number:02}.png", large)
        save(tmp_path / "b" / f"{number:02}.jpg", large.resize((140, 140)), quality=85)
    listed = list_images(tmp_path, labelled=False)
    images = extract_features(listed, trunk(size=112), device="cpu")
    n = len(drawings)
    alike = cosines(images) >= images.duplicate_threshold
    assert alike[:n, n:].diagonal().double().mean() > 0.9
    assert alike[:n, :n].fill_diagonal_(False).double().mean() < 0.02


def test_duplicate_features_of_images_on_disk_are_those_of_their_backbone():
    images = embedded("some")
    assert torch.equal(images.duplicate_features(), images.features())


@pytest.mark.parametrize("images", [load_doodles("spare"), embedded("some")])
def test_images_in_memory_and_as_features_are_collections(images):
    assert isinstance(images, Collection)
    assert isinstance(images, Images | FeatureImages)
    assert 0.8 < images.duplicate_threshold < 1
