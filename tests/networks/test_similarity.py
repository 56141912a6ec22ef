"""The pair head against the concatenation it avoids."""

import copy

import pytest
import torch

from newfound.networks.resnet import SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.types import generator, seeded


def make_head(dim=6):
    with seeded("pair head"):
        return PairHead(dim).double()


def latents(n, dim=6):
    return torch.randn(n, dim, generator=generator("latents", n), dtype=torch.float64)


def concatenated(head, z):
    """The paper's words: concatenate every pair, then linear, BatchNorm, ReLU, linear."""
    rows = torch.stack([torch.cat([first, second]) for first in z for second in z])
    h = head.last(head.norm(head.first(rows)).relu())
    return torch.stack([torch.stack([h[i * len(z) + j] for j in range(len(z))]) for i in range(len(z))])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("n", [2, 7])
def test_the_pair_head_equals_the_loop_over_concatenated_pairs(n, training):
    fast, z = make_head().train(training), latents(n)
    slow = copy.deepcopy(fast)
    for _ in range(3):  # BatchNorm remembers the same of both
        torch.testing.assert_close(fast(z), concatenated(slow, z), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fast.state_dict(), slow.state_dict(), rtol=1e-12, atol=1e-12)


def test_the_gradient_is_that_of_the_concatenation():
    fast, z = make_head(), latents(5)
    slow = copy.deepcopy(fast)
    fast(z)[..., 1].square().sum().backward()
    concatenated(slow, z)[..., 1].square().sum().backward()
    for a, b in zip(fast.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-10)


def test_the_order_of_images_is_the_order_of_pairs():
    head, z, order = make_head(), latents(5), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(head(z)[order][:, order], head(z[order]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_latents_for_statistics_are_given_the_learnt_ones(n):
    head = make_head()
    head(latents(7))
    before = copy.deepcopy(head.state_dict())
    assert torch.equal(head(latents(n)), copy.deepcopy(head).eval()(latents(n)))
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


def test_the_pair_network_is_its_backbone_and_then_its_head():
    with seeded("pair network"):
        network = PairNet(SmallResNet(2, 2), PairHead(16)).eval()
    images = torch.rand(4, 3, 8, 8, generator=generator("images"))
    assert torch.equal(network(images), network.pairs(network.backbone(images).z))
