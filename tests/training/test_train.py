"""Training a method: a survey, the loop, another survey, and no look too many."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from newfound.errors import InputError
from newfound.training import loop
from newfound.training import train as room
from newfound.training.loop import fit, survey
from newfound.training.train import train
from tests.training.runs import LABELLED, SEED, TRAINING, make_data, make_learner, state


def run(name="pairs+spacing", training=TRAINING, labelled=True, **more):
    learner = make_learner(name, labelled)
    return learner, train(learner, make_data(labelled), training, SEED, device="cpu", **more)


@pytest.fixture
def looks(monkeypatch):
    """The weights at every survey that is made."""
    seen = []

    def noting(backbone, data):
        seen.append(torch.cat([weights.detach().flatten().clone() for weights in backbone.parameters()]))
        return survey(backbone, data)

    monkeypatch.setattr(loop, "survey", noting)
    monkeypatch.setattr(room, "survey", noting)
    return seen


@pytest.mark.parametrize("name", ["pairs", "pairs+spacing", "spacing", "ncl+spacing:author", "uno"])
def test_it_is_the_loop_between_two_surveys(name):
    plain, data = make_learner(name), make_data()
    before = survey(plain.backbone, data)
    rows = fit(plain, data, TRAINING, SEED, device="cpu")
    after = survey(plain.backbone, data)
    learner, trained = run(name)
    for ours, theirs in ((trained.before, before), (trained.after, after)):
        assert torch.equal(ours.features, theirs.features)
        assert torch.equal(ours.labels, theirs.labels)
    assert all(torch.equal(value, state(plain)[key]) for key, value in state(learner).items())
    without_time = [[{**row, "seconds": 0} for row in some] for some in (trained.history, rows)]
    assert without_time[0] == without_time[1]
    assert trained.method is learner.method
    assert not learner.training


@pytest.mark.parametrize("name", ["pairs", "pairs+spacing", "pairs+spacing:author", "ncl+spacing"])
def test_no_survey_is_made_twice_of_the_same_weights(name, looks):
    _, trained = run(name)
    trained.moments()
    assert len(looks) >= 2
    assert not any(torch.equal(a, b) for place, a in enumerate(looks) for b in looks[:place])


@pytest.mark.parametrize("name", ["kmeans", "spacing"])
def test_where_nothing_is_trained_one_survey_is_enough(name, looks):
    _, trained = run(name, replace(TRAINING, epochs=0))
    first, last = trained.moments()
    assert len(looks) == 1
    assert trained.after is trained.before
    assert torch.equal(first.latents, last.latents)
    assert trained.history == []


@pytest.mark.parametrize("epochs", [1, 4])  # one epoch was there, or all
def test_stopped_and_resumed_equals_never_stopped(tmp_path, epochs):
    def interrupt(row):
        if row["epoch"] == epochs:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(progress=interrupt, checkpoint=checkpoint)
    whole, resumed = run()[1], run(checkpoint=checkpoint, resume=True)[1]
    assert torch.equal(whole.before.features, resumed.before.features)
    assert torch.equal(whole.after.features, resumed.after.features)
    for ours, theirs in zip(whole.moments(), resumed.moments(), strict=True):
        assert all(torch.equal(value, vars(theirs)[key]) for key, value in vars(ours).items())


def test_the_first_moment_is_of_the_untrained_method_and_the_last_of_the_trained():
    _, trained = run()
    first, last = trained.moments()
    assert torch.equal(first.latents, trained.before.features[LABELLED:])
    assert torch.equal(last.latents, trained.after.features[LABELLED:])
    assert not torch.equal(first.prototypes, last.prototypes)
    again, _ = trained.moments()
    assert torch.equal(again.prototypes, first.prototypes)


def test_a_damaged_network_is_refused_before_it_is_trained():
    learner = make_learner("pairs")
    with torch.no_grad():
        learner.backbone.stages[-1][0].conv1.weight.fill_(torch.nan)
    rows = []
    with pytest.raises(InputError, match=r"NaN or infinite features for 40 of 40 images .*row 0.* smaller rate"):
        train(learner, make_data(), TRAINING, SEED, device="cpu", progress=rows.append)
    assert rows == []


ELSEWHERE = """
from dataclasses import replace

import torch
import torch._lazy.ts_backend

torch._lazy.ts_backend.init()

from newfound.training import train as room
from tests.training.runs import SEED, TRAINING, make_data, make_learner

survey, places = room.survey, []

def noting(backbone, data):
    places.append(next(backbone.parameters()).device.type)
    return survey(backbone, data)

room.survey = noting
learner = make_learner("spacing")
trained = room.train(learner, make_data(), replace(TRAINING, epochs=0), SEED)
assert places == ["lazy"]
first, last = trained.moments()
moments = [value for moment in (first, last) for value in vars(moment).values() if value is not None]
methods = [*learner.state_dict().values(), *trained.untrained.state_dict().values()]
for tensor in (*methods, *trained.before, *trained.after, *moments):
    assert tensor.device.type == "cpu"
"""
"""For a process of its own: the second device that every wheel of torch has cannot be put away again. It can look, but
not learn."""


def test_looking_is_done_on_the_device_and_all_comes_back_to_the_cpu():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ELSEWHERE],
        env=os.environ | {"ACCELERATE_TORCH_DEVICE": "lazy"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
