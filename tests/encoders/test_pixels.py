"""Our own network learns from pixels."""

import logging
from dataclasses import replace

import pytest
import torch

from newfound.data.listing import Listing, list_images
from newfound.data.pixels import Images
from newfound.discovery.settings import StageOne
from newfound.encoders import embed
from newfound.encoders.base import encode_source
from newfound.encoders.known import remeasure_means, shift_means
from newfound.encoders.pixels import COUNTING_SHRINK, PixelEncoder, discriminant_head
from newfound.errors import InputError
from newfound.functional.geometry import whitening
from newfound.methods import METHODS
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import OWN
from newfound.types import generator
from tests.data.pictures import picture, save

STAGE = StageOne(pretrain_epochs=1, width=2)


def some_images(n, size=8, height=None):
    pixels = torch.randint(0, 256, (n, 3, height or size, size), generator=generator("some", n), dtype=torch.uint8)
    return Images(pixels, Listing.of([*map(str, range(n))], torch.arange(n) % 2, ("a", "b")))


@pytest.fixture(scope="module")
def model():
    return PixelEncoder(8, "cpu").fit_known(some_images(24), STAGE, 0)


def test_listed_images_are_read_at_its_size_and_those_in_memory_are_as_they_are(tmp_path, caplog):
    for row, (across, down) in enumerate(((70, 60), (50, 50))):
        save(tmp_path / f"{row}.png", picture(row, across, down))
    with caplog.at_level(logging.INFO, "newfound"):
        found = encode_source(PixelEncoder(24), list_images(tmp_path, labelled=False))
    assert isinstance(found, Images)
    assert found.pixels.shape == (2, 3, 24, 24)
    assert [record.getMessage() for record in caplog.records] == [
        f"Looking at 2 unlabelled images with {OWN}, at 24 pixels."
    ]
    assert encode_source(PixelEncoder(24), found) is found


def test_images_of_which_nothing_can_be_read_are_refused(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"nothing")
    listed = list_images(tmp_path, labelled=False)
    assert len(PixelEncoder().encode(listed)) == 0
    with pytest.raises(InputError, match="None of the 1 images can be read"):
        encode_source(PixelEncoder(), listed)


def test_people_are_told_who_taught_it():
    assert PixelEncoder().describe() == f"{OWN}, learnt from the labelled images"


def test_every_method_and_similarity_can_begin_at_pixels():
    for name in METHODS:
        PixelEncoder().check_method(name)
    PixelEncoder().check_similarity()


def test_images_in_memory_must_be_square_of_one_size_and_of_its_size():
    PixelEncoder(8).check_images([some_images(3), some_images(4)])
    for images, match in (
        ([some_images(3, 8, height=6)], "6 × 8 pixels. Needed: square"),
        ([some_images(3), some_images(3, 9)], "8 × 8 and 9 × 9 pixels. Needed: one size"),
        ([some_images(3, 9)], "9 × 9 pixels, the model sees 8 × 8. Resize"),
    ):
        with pytest.raises(InputError, match=match):
            PixelEncoder(8).check_images(images)


def test_known_classes_are_learnt_as_was_chosen(model):
    assert model.backbone.settings() == {"width": 2, "stride": 2}
    assert model.classes == ("a", "b")
    assert model.known.counts.tolist() == [12, 12]
    told = []
    longer = replace(STAGE, pretrain_epochs=2)
    other = PixelEncoder(8, "cpu").fit_known(some_images(24), longer, 0, progress=lambda *row: told.append(row[:2]))
    assert told == [("pretrain", 2)] * 2
    assert not torch.equal(other.known.means, model.known.means)


def test_the_model_stays_as_it_is_whatever_images_it_is_to_see(model):
    assert PixelEncoder(8).aim(model, some_images(6), None, 0) is model
    assert PixelEncoder(8).aim_for_counting(model, some_images(6), None, 0)[0] is model


def test_without_a_known_class_latents_are_counted_as_they_are(model):
    _, metric = PixelEncoder(8).aim_for_counting(replace(model, known=None), some_images(6), None, 0)
    assert torch.equal(metric, torch.eye(16))


def test_classes_are_read_off_latents_that_are_whitened_and_all_that_is_known_of_them_goes_along(model):
    images = some_images(24)
    turned, metric = PixelEncoder(8).aim_for_reading(model)
    z = embed(model, images)
    torch.testing.assert_close(metric, whitening(model.known.within_covariance, 0.3))
    torch.testing.assert_close(embed(turned, images), z @ metric)
    torch.testing.assert_close(turned.head(embed(turned, images)), model.head(z), rtol=1e-3, atol=1e-3)
    there = remeasure_means(turned, z @ metric, images.listing.labels).known
    here = remeasure_means(model, z, images.listing.labels)
    torch.testing.assert_close(here.known.turn(metric).means, there.means, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(here.known.turn(metric).within_covariance, there.within_covariance, rtol=1e-3, atol=1e-3)
    assert model.backbone.settings() == {"width": 2, "stride": 2}, "the model given stays as it is"


def test_a_turned_network_is_saved_and_turned_again(model, tmp_path):
    images = some_images(24)
    once, first = PixelEncoder(8).aim_for_reading(model)
    twice, second = PixelEncoder(8).aim_for_reading(once)
    torch.testing.assert_close(embed(twice, images), embed(model, images) @ first @ second)
    twice.save_pretrained(tmp_path)
    assert torch.equal(embed(Model.from_pretrained(tmp_path), images), embed(twice, images))
    assert twice.backbone.fresh().settings() == {"width": 2, "stride": 2}


def test_without_a_known_class_latents_are_read_as_they_are(model):
    bare = replace(model, known=None)
    same, metric = PixelEncoder(8).aim_for_reading(bare)
    assert same is bare
    assert torch.equal(metric, torch.eye(16))


def test_points_that_stand_for_images_lie_about_the_means(model):
    latents, labels = PixelEncoder(8).sample_known(model, torch.tensor([30, 20]), 0)
    assert torch.bincount(labels).tolist() == [30, 20]
    for label in range(2):
        torch.testing.assert_close(latents[labels == label].mean(0), model.known.means[label], atol=1e-4, rtol=1e-4)


def test_known_classes_are_where_labelled_images_say_and_else_where_others_went(model):
    encoder, images = PixelEncoder(8), some_images(24)
    before = embed(model, images)
    after, labels = before + 1, images.listing.labels
    single = encoder.update_known(model, before, after, (before + 3, labels))
    assert torch.equal(single.known.means, remeasure_means(model, before + 3, labels).known.means)
    two = encoder.update_known(model, before, after, None)
    assert torch.equal(two.known.means, shift_means(model, before, after).known.means)
    nobody = replace(model, known=None)
    assert encoder.update_known(nobody, before, after, None) is nobody


def test_a_head_made_of_statistics_prefers_the_class_that_a_latent_is_likeliest_of():
    random = generator("head")
    half, means = torch.randn(4, 4, generator=random), 3 * torch.randn(3, 4, generator=random)
    means[1], counts = 0, torch.tensor([9, 0, 9])
    head = discriminant_head(Statistics(means, half @ half.T, counts))
    shrunk = half @ half.T + COUNTING_SHRINK * (half @ half.T).trace() / 4 * torch.eye(4)
    z = torch.randn(20, 4, generator=random)
    with torch.no_grad():
        scores = head(z)
    likely = [torch.distributions.MultivariateNormal(means[k], shrunk).log_prob(z) for k in (0, 2)]
    torch.testing.assert_close(scores[:, 2] - scores[:, 0], likely[1] - likely[0], rtol=1e-3, atol=1e-3)
    assert (scores[:, 1] == head.bias.min()).all()  # it has no mean, and no direction
