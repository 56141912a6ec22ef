"""ResNet-18 for small images."""

import pytest
import torch
import torch.nn.functional as F

from newfound.networks.backbone import still
from newfound.networks.resnet import Block, Convolution, SmallResNet
from newfound.types import generator, seeded


def images(n, channels, size):
    return torch.rand(n, channels, size, size, generator=generator("images"))


def make(width=4, stride=1):
    with seeded("net"):
        return SmallResNet(width, stride)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [28, 32, 33])
def test_any_size_gives_latents_that_are_not_negative(size, stride):
    z, before = make(stride=stride)(images(2, 3, size))
    assert z.shape == (2, 32)
    assert before.shape[1] == 16
    assert (z >= 0).all()
    assert (z > 0).any()


def test_the_paper_s_width_has_512_dimensions_and_eleven_million_weights():
    net = SmallResNet()
    assert net.dim == 512
    # the shortcuts have none: 3×3 convolutions and BatchNorms alone
    widths = [(3, 64)] + [(64, 64)] * 4 + [(64, 128)] + [(128, 128)] * 3 + [(128, 256)] + [(256, 256)] * 3
    widths += [(256, 512)] + [(512, 512)] * 3
    assert sum(p.numel() for p in net.parameters()) == sum(9 * a * b + 2 * b for a, b in widths)


def test_grey_images_are_seen_as_three_equal_channels():
    net, grey = make().eval(), images(2, 1, 28)
    torch.testing.assert_close(net(grey).z, net(grey.repeat(1, 3, 1, 1)).z)


@pytest.mark.parametrize("size", [6, 7])
def test_the_shortcut_averages_windows_and_fills_with_zeros(size):
    x = images(1, 2, size)
    y = Block(2, 4, 2).shortcut(x)
    side = (size + 1) // 2
    for i in range(side):
        for j in range(side):
            window = x[0, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]  # smaller at the rim of an odd image
            torch.testing.assert_close(y[0, :2, i, j], window.mean(dim=(1, 2)))
    assert not y[0, 2:].any()


@pytest.mark.parametrize(("side", "stride"), [(2, 1), (2, 2), (4, 1), (1, 1), (3, 2)])
def test_a_convolution_is_torch_s_at_every_size_and_so_is_its_gradient(side, stride):
    random = generator("convolution", side, stride)
    layer = Convolution(3, 5, stride).double()
    x = torch.randn(4, 3, side, side, generator=random, dtype=torch.float64).requires_grad_()
    plain = torch.nn.functional.conv2d(x, layer.weight, None, stride, 1)
    torch.testing.assert_close(layer(x), plain, rtol=0, atol=1e-12)
    push = torch.randn(plain.shape, generator=random, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((y * push).sum(), (x, layer.weight)) for y in (layer(x), plain))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_a_block_is_the_textbook_s():
    with seeded("block"):
        block = Block(3, 6, 2).eval()
    x = images(2, 3, 8)
    y = F.conv2d(x, block.conv1.weight, stride=2, padding=1) / (1 + 1e-5) ** 0.5
    y = F.conv2d(y.relu(), block.conv2.weight, padding=1) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(block(x), (y + block.shortcut(x)).relu())


def test_colours_are_normalised_inside():
    net, x = make().eval(), images(2, 3, 28)
    before = net(x).z
    net.normalise(torch.tensor([0.2]), torch.tensor([0.1]))
    torch.testing.assert_close(net((x - 0.5) / 0.25 * 0.1 + 0.2).z, before, rtol=1e-4, atol=1e-5)


def test_convolutions_are_stored_channels_last():
    net = make()
    assert net.stages[1][0].conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_still_network_uses_the_batch_s_statistics_and_remembers_none():
    net, x = make().train(), images(4, 3, 28)
    with still(net):
        seen = net(x).z
    fresh = {name: b.clone() for name, b in make().named_buffers()}
    assert all(torch.equal(b, fresh[name]) for name, b in net.named_buffers())
    torch.testing.assert_close(seen, make().train()(x).z)
    net(x)
    assert not torch.equal(net.stages[0][1].running_mean, fresh["stages.0.1.running_mean"])
