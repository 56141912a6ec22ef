"""Spacing in a method's name, and in the method."""

import pytest

from newfound.benchmark.spaced import build, host_of, preset_of
from newfound.errors import InputError
from newfound.methods.spacing import spacing_of
from newfound.methods.spacing_loss import PRESETS
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Problem


@pytest.mark.parametrize(
    ("name", "preset", "host"),
    [
        ("pairs+spacing", "swapped", "pairs"),
        ("rs+spacing:aligned", "aligned", "rs"),
        ("ncl:plain+spacing:dcn", "dcn", "ncl:plain"),
        ("spacing:author", "author", None),
        ("spacing", "swapped", None),
        ("pairs", None, None),
        ("kmeans", None, None),
    ],
)
def test_a_name_says_which_preset_of_spacing_is_on_which_host(name, preset, host):
    assert (preset_of(name), host_of(name)) == (preset, host)


def test_every_preset_is_found_in_its_name():
    assert [preset_of(f"rs+spacing:{preset}") for preset in PRESETS] == list(PRESETS)


def test_a_name_that_is_none_is_refused():
    with pytest.raises(InputError, match="no method called"):
        preset_of("pairs+spacings")


@pytest.mark.parametrize("name", ["pairs+spacing:paper", "spacing:paper"])
def test_a_method_is_built_with_the_weight_that_was_given_and_is_otherwise_its_preset(name):
    model = Model(SmallResNet(2, 2), 32, 3, tuple("ab"))
    loss = spacing_of(build(name, 0.125, Problem(model.backbone.dim, 2, 3), model))
    assert loss.preset.weight == 0.125
    assert vars(loss.preset) == vars(PRESETS["paper"]()) | {"weight": 0.125}


def test_a_method_without_spacing_needs_no_weight():
    model = Model(SmallResNet(2, 2), 32, 3, tuple("ab"))
    assert spacing_of(build("rs", None, Problem(model.backbone.dim, 2, 3), model)) is None
