"""Now, Problem, and draws."""

import torch

from newfound.types import Now, Problem, generator, seeded


def test_progress_runs_from_0_towards_1():
    assert Now(0, 0, 4).progress == 0
    assert Now(0, 3, 4, 1, 2).progress == 0.875


def test_a_draw_depends_on_seed_epoch_step_and_purpose_and_on_nothing_else():
    now = Now(1, 2, 9, 3, 5)
    same = torch.rand(3, generator=now.random("views"))
    assert torch.rand(3, generator=now._replace(epochs=7, steps=8).random("views")).equal(same)
    for other in (now._replace(seed=0), now._replace(epoch=0), now._replace(step=0)):
        assert not torch.rand(3, generator=other.random("views")).equal(same)
    assert not torch.rand(3, generator=now.random("order")).equal(same)


def test_a_generator_is_the_same_on_every_machine():
    assert generator(0, "a").initial_seed() == 58108980745104847


def test_a_start_happens_in_exactly_one_epoch_of_any_run():
    for epochs in (1, 3, 10, 200):
        for start in (0.0, 0.025, 0.5, 0.99):
            first = [epoch for epoch in range(epochs) if Now(0, epoch, epochs).first(start)]
            reached = [epoch for epoch in range(epochs) if epoch / epochs >= start]
            assert first == reached[:1]


def test_every_counts_in_shares_of_the_run():
    assert [e for e in range(20) if Now(0, e, 20).every(0.25, 0.1)] == [2, 7, 12, 17]


def test_seeded_weights_repeat_and_leave_the_global_draws_alone():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded("w"):
        first = torch.rand(2)
    assert torch.rand(2).equal(expected)
    with seeded("w"):
        assert torch.rand(2).equal(first)


def test_in_two_stages_the_known_classes_are_not_in_the_discovery_set():
    assert Problem(8, known=5, novel=3).classes == 8
    assert Problem(8, known=5, novel=3, labelled=False).classes == 3
