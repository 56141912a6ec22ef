"""What is measured of known classes, and adapters that look along the right axes."""

import hashlib

import pytest
import torch
import torch.nn.functional as F

from newfound.data.embedded import Embedded
from newfound.data.pictures import Pictures
from newfound.functional.axes import tempered
from newfound.networks.model import ENOUGH, Model
from newfound.networks.pretrained import trunk
from newfound.training.adapt import FEW, aimed, measured, plain
from newfound.types import generator

CLASSES, EACH = 4, 12


@pytest.fixture(scope="module")
def lite():
    return trunk()


def embedded(name, labelled=True, each=EACH, classes=CLASSES, shift=0.0):
    """Features of so many classes, each strong in a few of 1280 numbers of its own, and noisy in ten that all share."""
    labels = torch.arange(classes).repeat_interleave(each)
    random = generator(name)
    x = torch.rand(len(labels), 1280, generator=random)
    for label in range(classes):
        x[labels == label, 20 * label + int(shift) : 20 * label + 20 + int(shift)] += 4
    x[:, 500:510] += 12 * torch.rand(len(labels), 1, generator=random)  # what differs within a class
    records = x[:, None].expand(-1, 3, -1).half()
    names = tuple(f"{name}/{row}.png" for row in range(len(labels)))
    listed = Pictures(
        files=(),
        names=names,
        labels=labels if labelled else torch.full_like(labels, -1),
        classes=tuple(f"class {label}" for label in range(classes)) if labelled else (),
        boxes=(None,) * len(names),
        groups=("",) * len(names),
    )
    keys = tuple(hashlib.sha256(text.encode()).digest() for text in names)
    return Embedded(listed, records, torch.arange(len(names)), keys)


def latents(model, images):
    return model.backbone(images.features()).z.detach()


def test_means_and_spread_are_those_of_the_tempered_features(lite):
    images = embedded("known")
    statistics = measured(images, lite).statistics
    x = tempered(images.features()).double()
    rest = torch.zeros(1280, 1280, dtype=torch.float64)
    for label in range(CLASSES):
        members = x[images.labels == label]
        torch.testing.assert_close(statistics.means[label].double(), members.mean(0), atol=1e-6, rtol=1e-5)
        for row in members - members.mean(0):
            rest += torch.outer(row, row)
    torch.testing.assert_close(statistics.spread.double(), rest / (len(x) - CLASSES), atol=1e-8, rtol=1e-3)
    assert statistics.counts.tolist() == [EACH] * CLASSES


def test_a_class_of_few_images_has_no_mean(lite):
    images = embedded("known", each=ENOUGH - 1)
    statistics = measured(images, lite).statistics
    assert not statistics.means.any()
    assert not statistics.counts.any()
    model = measured(images, lite)
    assert not model.head(latents(model, images)).any(), "nothing speaks for a class of which nothing is told"
    assert measured(embedded("known", each=ENOUGH), lite).statistics.counts.tolist() == [ENOUGH] * CLASSES


def test_the_head_knows_the_classes_it_was_measured_on(lite):
    images = embedded("known")
    model = measured(images, lite)
    assert torch.equal(model.head(latents(model, images)).argmax(1), images.labels)


def test_what_differs_within_a_class_is_made_small(lite):
    images = embedded("known")
    z, raw = latents(measured(images, lite), images), F.normalize(tempered(images.features()), dim=1)

    def within(x):
        means = torch.stack([x[images.labels == label].mean(0) for label in range(CLASSES)])
        return (x - means[images.labels]).square().sum() / (means - means.mean(0)).square().sum()

    assert within(z) < 0.7 * within(raw)


def test_axes_are_those_of_the_pile_also_where_known_classes_do_not_differ(lite):
    model = measured(embedded("known"), lite)
    new = embedded("new", labelled=False, shift=200)  # their classes differ in other features
    truth = torch.arange(CLASSES).repeat_interleave(EACH)

    def apart(model):
        z = latents(model, new)
        distances = torch.cdist(z, z)
        same = truth[:, None] == truth
        return (distances[~same].mean() / distances[same & ~torch.eye(len(z), dtype=torch.bool)].mean()).item()

    assert apart(aimed(model, new)) > 1.05 * apart(model)


@pytest.mark.parametrize("single", [True, False])
def test_known_classes_are_still_known_along_other_axes(lite, single):
    known, new = embedded("known"), embedded("new", labelled=False, shift=200)
    model = aimed(measured(known, lite), new, known if single else None)
    assert torch.equal(model.head(latents(model, known)).argmax(1), known.labels)
    nearest = torch.cdist(latents(model, known), model.means).argmin(1)
    assert torch.equal(nearest, known.labels)


def test_aiming_leaves_the_model_given_as_it_was(lite):
    model = measured(embedded("known"), lite)
    before = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    aimed(model, embedded("new", labelled=False))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.backbone.state_dict().items())


def test_where_nothing_is_known_the_axes_are_the_pile_s(lite):
    model = plain(embedded("new", labelled=False), lite)
    assert model.classes == ()
    assert model.head is None
    assert model.backbone.dim <= FEW


def test_a_model_folder_holds_the_trunk_and_no_trace_of_an_image(lite, tmp_path):
    images = embedded("secret")
    model = measured(images, lite)
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert torch.equal(latents(loaded, images), latents(model, images))
    assert loaded.trunk.digest == lite.digest
    assert all(torch.equal(a, b) for a, b in zip(loaded.statistics, model.statistics, strict=True))
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"secret" not in content, "a file's name"
        rows = images.features()
        assert not any(row.numpy().tobytes() in content for row in rows), "an image's features"
