import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from newfound.functional.schedules import catch_up, cosine, linear, one_cycle, ramp, steps, warm_cosine
from newfound.types import Now

shares = st.floats(0, 1)
unhurried = settings(deadline=None)  # on a busy machine
CONTINUOUS = (
    partial(ramp, length=0.3, top=1.0),
    partial(linear, length=0.3, start=0.2, end=-0.7),
    one_cycle,
    cosine,
    partial(warm_cosine, warm=0.2),
)


@pytest.mark.parametrize(("progress", "value"), [(0.0, 0.0067), (0.15, 0.2865), (0.3, 1.0), (0.9, 1.0)])
def test_ramp_has_the_textbook_values(progress, value):
    assert ramp(progress, length=0.3, top=1.0) == pytest.approx(value, abs=5e-5)
    assert ramp(progress, length=0.3, top=50.0) == pytest.approx(50 * value, abs=50 * 5e-5)


def test_ramp_is_that_of_the_published_code_at_every_epoch():
    def published(epoch, length):
        if length == 0:
            return 1.0
        phase = 1.0 - min(max(epoch, 0.0), length) / length
        return math.exp(-5.0 * phase * phase)

    for length in (0, 50, 150):
        for epoch in range(200):
            assert ramp(Now(0, epoch, 200).progress, length / 200, 5.0) == pytest.approx(5.0 * published(epoch, length))


def test_ramp_without_length_is_at_its_top_and_before_the_run_at_its_bottom():
    assert ramp(0.0, length=0.0, top=3.0) == 3.0
    assert ramp(-0.5, length=0.3, top=3.0) == ramp(0.0, length=0.3, top=3.0)


@unhurried
@given(shares, shares, st.floats(0.01, 1))
def test_ramp_never_falls(early, late, length):
    early, late = sorted((early, late))
    assert ramp(early, length, 2.0) <= ramp(late, length, 2.0) <= 2.0


@pytest.mark.parametrize(("epoch", "value"), [(0, 0.07), (10, 0.06), (15, 0.055), (30, 0.04), (31, 0.04), (199, 0.04)])
def test_linear_goes_on_a_line_and_stays(epoch, value):
    assert linear(Now(0, epoch, 200).progress, 0.15, 0.07, 0.04) == pytest.approx(value)


def test_linear_without_length_is_at_its_end():
    assert linear(0.0, 0.0, 0.07, 0.04) == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("steps", "weight"), [(300 * 195, 0.01), (600 * 195, 0.01), (300 * 39, 0.05), (20 * 100, 0.2925), (50, 1.0)]
)
def test_a_weight_catches_up_in_a_run_that_is_shorter_than_the_published_one_and_never_exceeds_that_of_labels(
    steps, weight
):
    assert catch_up(0.01, 300 * 195, steps) == pytest.approx(weight)


@pytest.mark.parametrize("total", [10, 200])
@pytest.mark.parametrize("warm", [0.25, 0.5])
def test_one_cycle_is_that_of_pytorch(total, warm):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    reference = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=1.0, total_steps=total + 1, pct_start=(warm * total + 1) / (total + 1),
        anneal_strategy="linear", cycle_momentum=False, div_factor=25, final_div_factor=0.04 / 1e-5,
    )  # fmt: skip
    for step in range(total):
        assert one_cycle(step / total, warm) == pytest.approx(reference.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        reference.step()
    assert one_cycle(1.0, warm) == pytest.approx(reference.get_last_lr()[0], abs=1e-12) == pytest.approx(1e-5)


@unhurried
@given(shares)
def test_one_cycle_is_a_positive_part_of_the_peak(progress):
    assert 0 < one_cycle(progress) <= one_cycle(0.25) == 1


@unhurried
@given(shares, shares)
def test_one_cycle_rises_then_falls(early, late):
    early, late = sorted((early, late))
    assert one_cycle(early / 4) <= one_cycle(late / 4)
    assert one_cycle(0.25 + 0.75 * early) >= one_cycle(0.25 + 0.75 * late)


def test_one_cycle_may_begin_at_its_peak():
    assert one_cycle(0.0, warm=0.0) == 1.0
    assert one_cycle(0.5, warm=0.0, end=0.0) == 0.5


def test_steps_multiply_a_counter_of_drops_passed():
    def naive(progress, at, factor):
        rate = 1.0
        for share in at:
            if progress >= share:
                rate = rate * factor
        return rate

    for progress in torch.linspace(0, 1, 101).tolist():
        assert steps(progress, (0.3, 0.6, 0.8), 0.2) == pytest.approx(naive(progress, (0.3, 0.6, 0.8), 0.2))
    assert steps(0.5, ()) == 1.0


def test_a_drop_at_170_of_200_comes_at_the_first_step_of_epoch_170():
    schedule = partial(steps, at=(0.85,))
    assert schedule(Now(0, 169, 200, 99, 100).progress) == 1.0
    assert schedule(Now(0, 170, 200, 0, 100).progress) == 0.1


@pytest.mark.parametrize("end", [0.0, 0.1])
def test_cosine_is_that_of_pytorch(end):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=50, eta_min=end)
    for step in range(51):
        assert cosine(step / 50, end) == pytest.approx(reference.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        reference.step()


@unhurried
@given(shares, shares)
def test_cosine_never_rises(early, late):
    early, late = sorted((early, late))
    assert 1 >= cosine(early) >= cosine(late) >= 0


def test_warm_cosine_is_that_of_pytorch():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    rise = torch.optim.lr_scheduler.LinearLR(optimiser, start_factor=0.1, total_iters=10)
    for step in range(10):
        assert warm_cosine(step / 50, 0.2, start=0.1, end=0.3) == pytest.approx(rise.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        rise.step()
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=40, eta_min=0.3)
    for step in range(10, 51):
        assert warm_cosine(step / 50, 0.2, start=0.1, end=0.3) == pytest.approx(fall.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        fall.step()


def test_warm_cosine_without_warmth_is_cosine():
    assert all(warm_cosine(t / 20, 0.0, end=0.1) == cosine(t / 20, 0.1) for t in range(21))


@unhurried
@given(shares, shares)
def test_warm_cosine_rises_then_falls(early, late):
    early, late = sorted((early, late))
    assert warm_cosine(early / 4, 0.25) <= warm_cosine(late / 4, 0.25) <= 1
    assert warm_cosine(0.25 + 0.75 * early, 0.25) >= warm_cosine(0.25 + 0.75 * late, 0.25) >= 0


@pytest.mark.parametrize("schedule", CONTINUOUS)
def test_schedules_have_no_jumps(schedule):
    values = [schedule(step / 10_000) for step in range(10_001)]
    assert max(abs(late - early) for early, late in pairwise(values)) < 1e-3


@pytest.mark.parametrize("schedule", CONTINUOUS)
def test_outside_the_run_schedules_stay_at_their_ends(schedule):
    assert schedule(-1.0) == schedule(0.0)
    assert schedule(2.0) == schedule(1.0)
