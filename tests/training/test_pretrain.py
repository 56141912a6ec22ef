"""What a network that learnt the known classes leaves."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.encoders import embed
from newfound.methods.stage_one import TRAINING
from newfound.networks.model import ENOUGH
from newfound.training.pretrain import colours, new_learner, pretrain
from newfound.types import generator

SIZES = 9, ENOUGH, ENOUGH - 1


@pytest.fixture(scope="module")
def taught():
    labels = torch.arange(3).repeat_interleave(torch.tensor(SIZES))
    pixels = torch.randint(0, 256, (len(labels), 3, 8, 8), generator=generator("taught"), dtype=torch.uint8)
    pixels[:, 0] = pixels[:, 0] // 4 + 60 * labels[:, None, None].to(torch.uint8)
    images = Images(pixels, Listing.of([*map(str, range(len(labels)))], labels, "abc"))
    training = replace(TRAINING, epochs=2, batch=6)
    return pretrain(new_learner(images, width=2), images, training, device="cpu"), images


def test_means_are_those_of_the_latents_of_classes_that_have_enough_images(taught):
    model, images = taught
    z = embed(model, images)
    rest = torch.zeros(16, 16)
    for label in range(3):
        members = z[images.listing.labels == label]
        told = len(members) >= ENOUGH
        torch.testing.assert_close(model.known.means[label], members.mean(0) * told)
        for row in members - members.mean(0):  # small classes too say how far images of one lie apart
            rest += torch.outer(row, row)
    torch.testing.assert_close(model.known.within_covariance, rest / (sum(SIZES) - 3), atol=1e-6, rtol=1e-4)


def test_counts_are_of_the_images_behind_each_mean(taught):
    model, _ = taught
    assert model.known.counts.tolist() == [9, ENOUGH, 0]


def test_it_is_saved_whole(taught, tmp_path):
    model, _ = taught
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    for name in ("means", "within_covariance", "counts"):
        assert torch.equal(getattr(loaded.known, name), getattr(model.known, name))


def test_a_beginner_s_weights_are_a_function_of_the_seed_and_it_knows_the_colours(taught):
    first, again, other = (new_learner(taught[1], seed, width=2).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    assert not torch.equal(first["method.head.weight"], other["method.head.weight"])
    for name, expected in zip(("mean", "std"), colours(taught[1].pixels), strict=True):
        torch.testing.assert_close(first[f"backbone.{name}"], expected)


def test_another_seed_teaches_the_same_beginner_another_way(taught):
    training = replace(TRAINING, epochs=1, batch=6)
    first, again, other = (
        pretrain(new_learner(taught[1], width=2), taught[1], training, seed, device="cpu").known.means
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_colours_are_mean_and_standard_deviation_of_each_channel(taught):
    pixels = taught[1].pixels
    mean, deviation = colours(pixels)
    for channel in range(3):
        values = pixels[:, channel].double() / 255
        assert mean[channel].item() == pytest.approx(values.mean().item(), abs=1e-6)
        assert deviation[channel].item() == pytest.approx(values.std(correction=0).item(), abs=1e-6)


ELSEWHERE = """
import torch
import torch._lazy.ts_backend

torch._lazy.ts_backend.init()

from newfound.data.listing import Listing
from newfound.data.pixels import Images, PixelDataset
from newfound.discovery.howmany import how_many
from newfound.training.loop import fit
from newfound.training.pretrain import new_learner, to_model
from newfound.types import Training, generator

labels = torch.arange(30) % 3
pixels = torch.randint(0, 256, (30, 3, 8, 8), generator=generator("elsewhere"), dtype=torch.uint8)
images = Images(pixels, Listing.of([*map(str, range(30))], labels, "abc"))
learner, data = new_learner(images, width=2), PixelDataset(pixels, labels)
fit(learner, data, Training(epochs=0, batch=6, rate=0.1), seed=0)
assert {tensor.device.type for tensor in learner.state_dict().values()} == {"lazy"}
model = to_model(learner, data, images, learner.backbone)
parts = [*model.backbone.state_dict().values(), *model.head.state_dict().values()]
for tensor in (*parts, model.known.means, model.known.within_covariance, model.known.counts):
    assert tensor.device.type == "cpu"
for labelled in (images, None):
    assert how_many(model, images, labelled, seed=0).classes >= 3
"""
"""For a process of its own: the second device that every wheel of torch has cannot be put away again."""


def test_what_an_accelerator_taught_is_left_on_the_cpu_where_latents_are_read():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ELSEWHERE],
        env=os.environ | {"ACCELERATE_TORCH_DEVICE": "lazy"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
