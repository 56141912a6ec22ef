"""Rings and banks against a list that forgets."""

from collections import deque

import pytest
import torch

from newfound.networks.bank import Bank, Ring
from newfound.types import generator, seeded


def make_bank(size=7, dim=3):
    with seeded("bank"):
        return Bank(size, dim)


def rand(n, key):
    return torch.randn(n, 3, generator=generator("bank", key))


def rows_of(bank):
    """Entries from the oldest to the newest, with their labels."""
    order = [(int(bank.ring.pushed) + i) % len(bank.latents) for i in range(len(bank.latents))]
    return bank.latents[order], bank.labels[order].tolist()


@pytest.mark.parametrize("pushes", [[1] * 20, [3, 3, 3, 3], [7, 7], [5, 0, 4], [2, 20, 3], [0]])
def test_a_bank_holds_what_a_list_that_forgets_its_oldest_holds(pushes):
    bank = make_bank()
    naive = deque([(row, -1) for row in bank.latents.clone()], maxlen=7)
    for step, n in enumerate(pushes):
        z, labels = rand(n, step), torch.arange(n) + 100 * step
        bank.push(z, labels)
        naive.extend((row / row.norm(), label) for row, label in zip(z, labels.tolist(), strict=True))
    latents, labels = rows_of(bank)
    torch.testing.assert_close(latents, torch.stack([row for row, _ in naive]))
    assert labels == [label for _, label in naive]


def test_a_ring_keeps_rows_as_they_are_and_says_where_it_put_them():
    ring = Ring(torch.zeros(5, 3))
    for step, n in enumerate([3, 4, 9]):
        rows = rand(n, step)
        assert torch.equal(ring.rows[ring.push(rows)], rows[-5:])
    assert int(ring.pushed) == 3 + 4 + 5


def test_a_bank_is_full_once_no_random_direction_is_left():
    bank, full = make_bank(), []
    for n in (3, 3, 1, 2):
        bank.push(rand(n, "z"))
        full.append(bool(bank.full))
    assert full == [False, False, True, True]


def test_entries_have_unit_length_from_the_first():
    bank = make_bank()
    torch.testing.assert_close(bank.latents.norm(dim=1), torch.ones(7))
    bank.push(100 * rand(4, "z"))
    torch.testing.assert_close(bank.latents.norm(dim=1), torch.ones(7))


def test_entries_pushed_without_labels_have_none():
    bank = make_bank()
    bank.push(rand(7, "a"), torch.arange(7))
    bank.push(rand(2, "b"))
    assert rows_of(bank)[1] == [2, 3, 4, 5, 6, -1, -1]


def test_a_bank_learns_nothing_by_gradient_and_remembers_none():
    bank, z = make_bank(), rand(4, "z").requires_grad_()
    bank.push(z)
    assert not list(bank.parameters())
    assert not bank.latents.requires_grad


def test_a_bank_goes_on_from_its_state():
    going, loaded = make_bank(), Bank(7, 3)
    going.push(rand(5, "a"), torch.arange(5))
    loaded.load_state_dict(going.state_dict())
    for bank in (going, loaded):
        bank.push(rand(4, "b"), torch.arange(4))
    assert all(torch.equal(a, b) for a, b in zip(going.buffers(), loaded.buffers(), strict=True))


def test_a_bank_of_double_precision_takes_doubles():
    bank, z = make_bank().double(), rand(4, "z").double()
    bank.push(z)
    torch.testing.assert_close(bank.latents[:4], z / z.norm(dim=1, keepdim=True), rtol=1e-14, atol=0)
