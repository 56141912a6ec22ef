"""Where prototypes start and how they move, against the paper's own loop."""

import warnings

import pytest
import torch

from newfound.spacing.loss import SpacingLoss
from newfound.spacing.prototypes import move
from newfound.types import generator
from tests.spacing.naive import naive_move, rand


@pytest.mark.parametrize("initial", [0.0, 1.0, 100.0])
def test_the_closed_form_equals_the_loop_over_samples(initial):
    z, p, e = rand(50, 8, key="z"), rand(6, 8, key="p"), rand(6, 8, key="e")
    v = torch.full((6,), initial, dtype=torch.float64)
    fast, slow = move(z, p, e, v), naive_move(z, p, e, v)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_prototype_that_nothing_goes_to_stays():
    p = torch.tensor([[0.0, 0.0], [100.0, 0.0]], dtype=torch.float64)
    moved = move(rand(5, 2, key="z"), p, torch.ones_like(p), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(moved.prototypes[1], p[1])
    assert moved.counts.tolist() == [5.0, 0.0]


def test_without_initial_counts_the_start_is_forgotten_at_once():
    z, e = rand(20, 4, key="z"), rand(1, 4, key="e")
    moved = move(z, rand(1, 4, key="p"), e, torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(moved.prototypes[0], z.mean(0) + e[0], rtol=1e-12, atol=1e-12)


def test_latents_that_follow_their_prototype_drift_like_the_harmonic_numbers():
    e, p, v = rand(1, 4, key="e"), torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for _ in range(1000):
        p, v, _ = move(p, p, e, v)
    torch.testing.assert_close(p, e * sum(1 / n for n in range(1, 1001)), rtol=1e-10, atol=0)


def test_classes_without_room_are_told_once_in_words_that_say_what_to_do():
    spacing = SpacingLoss(classes=6, dim=3, preset="aligned")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for seed in range(3):
            spacing.start(torch.randn(30, 3, generator=generator("crowd", seed)))
    (told,) = [str(warning.message) for warning in caught]
    assert "6 classes" in told
    assert "latents of more dimensions" in told
    assert "fewer classes" in told
    assert "--" not in told  # whose loop it is knows no flag of ours


@pytest.mark.parametrize(("classes", "preset"), [(4, "aligned"), (9, "swapped")])
def test_classes_that_have_room_or_need_none_are_not_told_of(classes, preset):
    spacing = SpacingLoss(classes=classes, dim=3, preset=preset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spacing.start(torch.randn(30, 3, generator=generator("crowd")))
