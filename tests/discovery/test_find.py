"""What `find` refuses, and where methods begin."""

import pytest
import torch

from newfound.data.sources import Images
from newfound.discovery.find import find
from newfound.discovery.settings import Run
from newfound.errors import InputError
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded


def some_images(n, classes):
    pixels = torch.randint(0, 256, (n, 3, 8, 8), generator=generator("find", n), dtype=torch.uint8)
    labels = torch.arange(n) % len(classes) if classes else torch.full((n,), -1)
    return Images(pixels, tuple(f"{len(classes)}-{row}" for row in range(n)), labels, classes)


def make_model(key):
    with seeded(key):
        return Model(SmallResNet(width=2, stride=2), 8, 3, ("a", "b"), head=torch.nn.Linear(16, 2))


UNLABELLED, LABELLED = some_images(24, ()), some_images(16, ("a", "b"))


def run(method):
    return Run(method=method, epochs=1, batch=8, device="cpu")


def features(method, key, labelled=LABELLED):
    return find(make_model(key), UNLABELLED, 3, labelled=labelled, run=run(method)).features


def test_a_method_that_begins_anew_takes_no_weights_from_the_model():
    assert torch.equal(features("joint", "one"), features("joint", "another"))
    assert not torch.equal(features("rs", "one"), features("rs", "another"))


def test_a_method_that_needs_labelled_images_names_those_that_do_not():
    with pytest.raises(InputError, match=r"rs-il needs labelled images.*pairs.*spacing"):
        features("rs-il", "one", labelled=None)


def test_a_two_stage_method_does_not_take_labelled_images():
    with pytest.raises(InputError, match=r"dtc discovers in two stages.*pretrain"):
        features("dtc", "one")


def test_a_method_without_its_similarity_network_says_what_it_lacks():
    with pytest.raises(InputError, match="needs the similarity network"):
        features("kcl", "one", labelled=None)


@pytest.mark.parametrize("method", ["dtc", "uno", "ncl+spacing", "rs+spacing:paper"])
def test_published_methods_discover_in_a_pile_of_images(method):
    found = find(make_model("one"), UNLABELLED, 3, run=run(method))
    assert found.features.isfinite().all()
    assert found.cluster.unique().numel() == 3
