"""Heads against their formulas."""

import pytest
import torch
from torch import nn

from newfound.networks.heads import Cosine, projector, widen
from newfound.types import generator, seeded


def rand(*shape, key="z"):
    return torch.randn(*shape, generator=generator("heads", key), dtype=torch.float64)


def make_head(dim=4, classes=3):
    with seeded("head"):
        return nn.Linear(dim, classes).double()


def test_a_cosine_head_gives_the_cosine_of_every_latent_with_every_row():
    with seeded("cosine"):
        head = Cosine(4, 3).double()
    head.project()
    z, scores = rand(5, 4), head(rand(5, 4))
    for i in range(5):
        for c in range(3):
            w = head.weight[c]
            assert scores[i, c].item() == pytest.approx((z[i] @ w / z[i].norm() / w.norm()).item())


def test_rows_of_a_cosine_head_have_unit_length_at_first_and_again_after_project():
    with seeded("cosine"):
        head = Cosine(4, 3)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(3))
    direction = head.weight.detach().clone()
    with torch.no_grad():
        head.weight.mul_(torch.tensor([[0.1], [2.0], [7.0]]))
    head.project()
    torch.testing.assert_close(head.weight.detach(), direction)
    assert head.weight.requires_grad


def test_a_projector_is_linear_batchnorm_relu_linear():
    with seeded("projector"):
        network = projector(4, 6, 2).double()
    z = rand(10, 4)
    first, _, _, last = network
    hidden = z @ first.weight.T + first.bias
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(network(z), hidden.clamp(min=0) @ last.weight.T + last.bias)


def test_a_widened_head_says_of_old_classes_what_it_said():
    head, z = make_head(), rand(5, 4)
    wide = widen(head, 2)
    assert wide.weight.shape == (5, 4)
    torch.testing.assert_close(wide(z)[:, :3], head(z))


def test_new_classes_of_a_widened_head_start_one_below_the_least_bias_with_weights_of_their_own():
    head = make_head()
    with seeded("wide"):
        wide = widen(head, 2)
    assert wide.bias[3:].tolist() == [min(head.bias.tolist()) - 1] * 2
    assert wide.weight[3:].abs().min() > 0
    assert not torch.equal(wide.weight[3], wide.weight[4])


def test_widening_leaves_the_head_as_it_is_and_shares_nothing_with_it():
    head = make_head()
    before = [parameter.detach().clone() for parameter in head.parameters()]
    wide = widen(head, 2)
    wide(rand(5, 4)).sum().backward()
    with torch.no_grad():
        wide.weight.add_(1)
        wide.bias.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), before, strict=True))
    assert head.weight.grad is None
    assert wide.weight.requires_grad
    assert wide.bias.requires_grad


@pytest.mark.parametrize("n", [0, 1])
def test_a_projector_takes_one_latent_or_none_by_its_running_statistics_and_leaves_them(n):
    with seeded("projector"):
        network = projector(4, 6, 2).double()
    network(rand(10, 4))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    z = rand(n, 4, key="few").requires_grad_()
    seen = network(z)
    seen.sum().backward()
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    torch.testing.assert_close(seen, network.eval()(z))
    assert z.grad is not None
    assert seen.shape == (n, 2)
