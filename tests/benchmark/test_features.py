"""Images in memory as a pretrained network sees them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from newfound.benchmark import features
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.encoders.extraction import AUGMENTED
from newfound.networks.pretrained import PretrainedBackbone
from newfound.types import generator


class Unfoldable(nn.Module):
    """A network that lists its modules in another order than data flow, so that it is used as it is."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.norm.running_mean.fill_(0.5)

    def forward(self, x):
        return self.conv(self.norm(x).relu()).mean((2, 3))


@pytest.mark.parametrize("network", [nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()), Unfoldable()])
def test_who_looks_with_a_network_leaves_it_where_it_was(tmp_path, monkeypatch, network):
    backbone, eyes = PretrainedBackbone("small", network, 8, [0.5] * 3, [0.2] * 3), []

    def look(eye, pictures):
        eyes.append(next(eye.network.parameters()).dtype)
        return torch.zeros(len(pictures), 1 + AUGMENTED, backbone.dim)

    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "views", look)
    monkeypatch.setattr(features, "accelerator", lambda: SimpleNamespace(device=torch.float64))  # `to` takes both
    pixels = torch.randint(0, 256, (3, 3, 6, 6), generator=generator("pixels")).byte()
    assert len(features.look_at(Images(pixels, Listing.of(["a", "b", "c"])), backbone).keys) == 3
    assert eyes == [torch.float64]
    assert {values.dtype for values in (*backbone.parameters(), backbone.mean, backbone.std)} == {torch.float32}
