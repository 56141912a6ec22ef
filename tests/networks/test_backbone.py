"""Backbones, whole and cut."""

import pytest
import torch

from newfound.networks.backbone import Backbone, Tail
from newfound.networks.resnet import SmallResNet
from newfound.types import Latents, generator


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
