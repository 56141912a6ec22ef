"""The backbone of features."""

import torch
import torch.nn.functional as F

from newfound.functional.axes import axes, moments, power_normalised
from newfound.networks.adapter import Adapter, adapter_along
from newfound.types import generator


def features(n=20, dim=10):
    return torch.rand(n, dim, generator=generator("features"))


def aimed():
    adapter = Adapter(inputs=10, dim=4, hidden=8)
    adapter.aim(axes(moments(power_normalised(features())), 4))
    return adapter


def test_it_starts_as_coordinates_along_its_axes_of_unit_length():
    x = features()
    found = axes(moments(power_normalised(x)), 4)
    expected = torch.stack(
        [F.normalize((row - found.centre) @ found.matrix, dim=0) for row in power_normalised(x).double()]
    )
    torch.testing.assert_close(aimed()(x).z, expected.float())


def test_what_it_has_learnt_is_added_to_them():
    adapter, start = aimed(), aimed()(features()).z
    first, last = adapter.stages[0][0], adapter.stages[0][-1]
    torch.nn.init.normal_(last.weight, generator=generator("last"))
    hidden = [[max(0.0, a) for a in (first.weight @ u + first.bias).tolist()] for u in start]
    expected = start + torch.tensor(hidden) @ last.weight.T
    torch.testing.assert_close(adapter(features()).z, expected)


def test_one_along_axes_looks_along_them_and_its_weights_are_a_function_of_the_seed():
    found = axes(moments(power_normalised(features())), 4)
    once, again, other = (adapter_along(found, seed) for seed in (1, 1, 2))
    assert torch.equal(once(features()).z, aimed()(features()).z)
    first = [adapter.stages[0][0].weight for adapter in (once, again, other)]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_it_learns_from_its_start_on():
    adapter = aimed()
    target = torch.zeros(20, 4)
    loss = (adapter(features()).z - target).square().sum()
    loss.backward()
    last = adapter.stages[0][-1]
    assert last.weight.grad.abs().sum() > 0
    torch.optim.SGD(adapter.parameters(), 0.05).step()
    assert (adapter(features()).z - target).square().sum() < loss


def test_its_axes_are_not_learnt_but_saved():
    adapter = aimed()
    assert {name for name, _ in adapter.named_parameters()} == {
        "stages.0.0.weight",
        "stages.0.0.bias",
        "stages.0.2.weight",
    }
    again = Adapter(**adapter.settings())
    again.load_state_dict(adapter.state_dict())
    torch.testing.assert_close(again(features()).z, adapter(features()).z)


def test_a_fresh_one_has_learnt_nothing_but_looks_along_the_same_axes():
    adapter = aimed()
    expected = adapter(features()).z
    for layer in adapter.stages[0][0], adapter.stages[0][-1]:
        torch.nn.init.ones_(layer.weight)
    assert not torch.equal(adapter(features()).z, expected)
    fresh = adapter.fresh()
    torch.testing.assert_close(fresh(features()).z, expected)
    assert not (fresh.stages[0][0].weight == 1).any()
