"""Now, Problem, Training, and draws."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from functools import partial

import pytest
import torch

from newfound.errors import InputError
from newfound.functional.schedules import cosine, one_cycle, steps, warm_cosine
from newfound.methods import METHODS
from newfound.types import ALL, Now, Problem, Training, constant, generator, seeded


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
        for start in (0.0, 0.025, 0.07, 0.5, 0.99):
            first = [epoch for epoch in range(epochs) if Now(0, epoch, epochs).first(start)]
            reached = [epoch for epoch in range(epochs) if epoch / epochs >= start]
            assert first == (reached or [epochs - 1])[:1]


def test_every_counts_in_shares_of_the_run():
    assert [e for e in range(20) if Now(0, e, 20).every(0.25, 0.1)] == [2, 7, 12, 17]


def test_every_begins_where_first_does():
    for epochs in range(2, 131):
        for start in (0.0, 0.1, 10 / 110, 0.5):
            moments = [Now(0, epoch, epochs) for epoch in range(epochs)]
            first = next(now.epoch for now in moments if now.first(start))
            assert next(now.epoch for now in moments if now.every(0.25, start)) == first


def test_seeded_weights_repeat_and_leave_the_global_draws_alone():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded("w"):
        first = torch.rand(2)
    assert torch.rand(2).equal(expected)
    with seeded("w"):
        assert torch.rand(2).equal(first)


def test_seeded_weights_leave_the_draws_of_other_devices_alone(monkeypatch):
    seeds = []
    for place in ("cuda.manual_seed_all", "mps.manual_seed", "xpu.manual_seed_all"):
        monkeypatch.setattr(f"torch.{place}", seeds.append)
    torch.manual_seed(5)
    assert seeds  # so a seed comes to them
    seeds.clear()
    with seeded("w"):
        torch.rand(2)
    assert not seeds


def test_in_two_stages_the_known_classes_are_not_in_the_discovery_set():
    assert Problem(8, known=5, novel=3).classes == 8
    assert Problem(8, known=5, novel=3, labelled=False).classes == 3


def test_in_a_mixed_pile_unlabelled_images_may_be_of_known_classes_too():
    for labelled in (True, False):
        problem = Problem(8, known=5, novel=3, labelled=labelled)
        assert problem.unlabelled_classes == 3
        mixed = problem._replace(mixed=True)
        assert (mixed.unlabelled_classes, mixed.classes) == (8, 8)


def test_settings_are_the_training_as_values_that_json_can_hold():
    training = Training(
        3, 16, 0.1, schedule=partial(steps, at=(0.5, 0.75), factor=0.2), views=("weak", "small"), classes_per_batch=4
    )
    settings = training.settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["schedule"] == "steps(at=(0.5, 0.75), factor=0.2)"
    assert settings["views"] == ["weak", "small"]
    written = {field.name for field in fields(Training)} - {"classes_per_batch", "precision"} | {"few"}
    assert settings.keys() == written, "full precision goes without saying: files of results are older than the choice"
    assert replace(training, precision="bfloat16").settings() == settings | {"precision": "bfloat16"}
    plain = settings.keys() - {"schedule", "views", "few"}
    assert all(settings[name] == getattr(training, name) for name in plain)
    assert settings["few"] == training.classes_per_batch


SCHEDULES = (
    constant,
    cosine,
    one_cycle,
    partial(steps, at=(0.5,)),
    partial(steps, at=(0.6,)),
    partial(steps, at=(0.5,), factor=0.5),
    partial(warm_cosine, warm=0.1, start=0.25),
    partial(cosine, end=0.1),
)


def test_other_schedules_have_other_settings():
    texts = [Training(1, 1, 0.1, schedule=schedule).settings()["schedule"] for schedule in SCHEDULES]
    assert len(set(texts)) == len(SCHEDULES)


def test_a_schedule_made_with_a_value_by_place_says_so():
    by_place = [Training(1, 1, 0.1, schedule=partial(max, value)).settings()["schedule"] for value in (0.2, 0.3)]
    assert by_place == ["max(0.2)", "max(0.3)"]


class Falling:
    """A schedule that is an object."""

    def __call__(self, progress):
        return self.at(progress)

    def at(self, progress):
        return 1 - progress


def enclosed(end):
    def schedule(progress):
        return 1 - (1 - end) * progress

    return schedule


@pytest.mark.parametrize(
    "schedule",
    [lambda progress: 1 - progress, partial(lambda end, progress: end, 0.5), Falling(), Falling().at, enclosed(0.1)],
    ids=["lambda", "partial of a lambda", "object", "method", "closure"],
)
def test_a_schedule_that_no_text_tells_from_others_has_no_settings(schedule):
    with pytest.raises(InputError, match=r"schedule .*Needed: a function of a module, or a partial of one"):
        Training(1, 1, 0.1, schedule=schedule).settings()


@pytest.mark.processes
def test_another_process_gives_the_same_settings():
    program = (
        "import json; from newfound.methods import METHODS; "
        "print(json.dumps({name: recipe.training.settings() for name, recipe in METHODS.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout) == {name: recipe.training.settings() for name, recipe in METHODS.items()}
    assert "0x" not in done.stdout, "an address in memory is another one in every process"


def test_settings_change_with_every_value():
    training = Training(3, 16, 0.1)
    others = {
        "epochs": 4,
        "batch": 8,
        "rate": 0.2,
        "optimiser": "adam",
        "decay": 0.0,
        "schedule": cosine,
        "views": ("weak",),
        "trains": 1,
        "classes_per_batch": 2,
    }
    assert len(others) == len(training.settings())
    for name, value in others.items():
        settings, written = replace(training, **{name: value}).settings(), {"classes_per_batch": "few"}.get(name, name)
        assert {key for key in settings if settings[key] != training.settings()[key]} == {written}


def test_a_training_for_own_images_keeps_what_is_the_method_s_and_what_trains_nothing_trains_nothing():
    published = Training(
        200, 128, 0.1, "adam", 0.5, partial(steps, at=(0.85,)), ("weak",), trains=1, classes_per_batch=3
    )
    assert published.at(15, 0.02, 64) == Training(
        15, 64, 0.02, "adam", 0.5, constant, ("weak",), trains=ALL, classes_per_batch=3
    )
    assert replace(published, epochs=0).at(15, 0.02, 64).epochs == 0
    assert replace(published, trains=0).at(15, 0.02, 64).trains == 0
