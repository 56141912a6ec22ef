"""Backbones, whole, cut and frozen."""

import pytest
import torch

from newfound.networks.backbone import Backbone, Frozen, Tail
from newfound.networks.resnet import SmallResNet
from newfound.types import Latents, generator, seeded


@pytest.fixture
def backbone():
    with seeded("backbone"):
        return SmallResNet(width=4, stride=2)


class Flat(Backbone):
    """Pixels as they are: nothing to cut."""

    def forward(self, images):
        return Latents(images.flatten(1))

    def settings(self):
        return {}


def test_a_backbone_that_cannot_be_cut_says_so():
    with pytest.raises(NotImplementedError, match="Flat cannot be cut before its last stage"):
        Flat().tail(torch.zeros(2, 3, 4, 4))


def test_a_tail_goes_on_where_the_trunk_ended_and_teaches_the_whole():
    whole = SmallResNet(width=4, stride=2).eval()
    images = torch.rand(5, 3, 32, 32, generator=generator("tail"))
    tail = Tail(whole)
    seen = whole(images)
    torch.testing.assert_close(tail(seen.map).z, seen.z)
    with torch.no_grad():
        for parameter in tail.parameters():
            parameter.zero_()
    assert not torch.equal(whole(images).z, seen.z)


def test_a_tail_owns_the_last_stage_alone():
    whole = SmallResNet(width=4)
    assert {id(p) for p in Tail(whole).parameters()} == {id(p) for p in whole.stages[-1].parameters()}


def test_a_frozen_backbone_is_a_copy_without_gradient_and_deaf_to_train(backbone):
    frozen = Frozen(backbone).train()
    x = torch.rand(2, 3, 28, 28, generator=generator("x"))
    before = frozen(x).z
    with torch.no_grad():
        backbone.stages[0][0].weight.zero_()
    assert torch.equal(frozen(x).z, before)
    assert not before.requires_grad
    assert not any(m.training for m in frozen.modules())
    assert not any(p.requires_grad for p in frozen.parameters())


def test_a_frozen_network_with_the_statistics_of_the_batch_says_what_train_mode_says_and_remembers_nothing(backbone):
    frozen = Frozen(backbone, "batch").train()
    before = {name: tensor.clone() for name, tensor in frozen.state_dict().items()}
    x = torch.rand(6, 3, 28, 28, generator=generator("x"))
    for mode in (True, False):  # deaf to both
        assert torch.equal(frozen.train(mode)(x).z, backbone.train()(x).z)
    assert not frozen(x).z.requires_grad
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen.state_dict().items())
    assert not any(p.requires_grad for p in frozen.parameters())


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_images_for_statistics_are_given_those_that_the_frozen_network_has_learnt(backbone, n):
    backbone.train()(torch.rand(6, 3, 8, 8, generator=generator("x")))
    frozen, learnt = Frozen(backbone, "batch"), Frozen(backbone)
    x = torch.rand(n, 3, 8, 8, generator=generator("few"))
    assert torch.equal(frozen(x).z, learnt(x).z)
