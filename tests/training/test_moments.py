"""What a figure needs of one moment of a run."""

import itertools

import pytest
import torch

from newfound.methods.spacing import spacing_of
from newfound.training import moments
from newfound.training.moments import moment, start
from newfound.types import Now, Survey, generator
from tests.training.runs import EPOCHS, LABELLED, ROWS, SEED, make_data, make_learner, state

PRESETS = ["pairs+spacing", "pairs+spacing:paper", "pairs+spacing:author", "pairs+spacing:dcn"]


def make_survey(labelled=True):
    return Survey(torch.rand(ROWS, 16, generator=generator("latents")), make_data(labelled).labels)


@pytest.mark.parametrize("name", PRESETS)
def test_the_copy_shows_prototypes_where_the_run_will_start_them(name):
    method, seen = make_learner(name).method, make_survey()
    first = moment(start(method, seen, SEED, EPOCHS), seen)
    loss = spacing_of(method)
    for epoch in range(EPOCHS):
        method.before_epoch(lambda: seen, Now(SEED, epoch, EPOCHS))
        if loss.started:
            break
    assert torch.equal(first.prototypes, loss.prototypes)
    assert torch.equal(first.anchors, loss.anchors)
    assert torch.equal(first.spaced, loss.space(first.latents))


@pytest.mark.parametrize("name", ["pairs", "pairs+spacing", "ncl+spacing:author"])
def test_starting_a_copy_changes_nothing_of_the_method(name):
    method, seen = make_learner(name).method, make_survey()
    before, latents = state(method), seen.features.clone()
    moment(start(method, seen, SEED, EPOCHS), seen)
    moment(method, seen)
    assert all(torch.equal(value, before[key]) for key, value in state(method).items())
    assert torch.equal(seen.features, latents)
    assert method.training


def test_only_unlabelled_images_are_kept_in_their_order():
    seen = make_survey()
    kept = moment(make_learner("pairs").method, seen)
    assert torch.equal(kept.latents, seen.features[LABELLED:])
    assert kept.rows.tolist() == list(range(ROWS - LABELLED))
    assert kept.spaced is kept.prototypes is kept.anchors is None


def test_of_many_images_some_are_kept_evenly_with_the_first_and_the_last(monkeypatch):
    monkeypatch.setattr(moments, "MOST", 9)
    method, seen = make_learner("spacing", labelled=False).method, make_survey(labelled=False)
    kept = moment(start(method, seen, SEED, EPOCHS), seen)
    rows = kept.rows.tolist()
    assert len(rows) == len(kept.latents) == len(kept.spaced) == 9
    assert (rows[0], rows[-1]) == (0, ROWS - 1)
    assert {b - a for a, b in itertools.pairwise(rows)} <= {4, 5}
    assert torch.equal(kept.latents, seen.features[kept.rows])


def test_what_is_kept_does_not_move_with_the_method():
    method, seen = make_learner("spacing:dcn").method, make_survey()
    started = start(method, seen, SEED, EPOCHS)
    kept = moment(started, seen)
    before = {key: value.clone() for key, value in vars(kept).items()}
    for values in (seen.features, *started.buffers()):
        values.fill_(0)
    assert all(torch.equal(value, before[key]) for key, value in vars(kept).items())


def test_a_run_of_no_epochs_has_a_beginning_too():
    seen = make_survey()
    assert len(moment(start(make_learner("kmeans").method, seen, SEED, 0), seen).latents) == ROWS - LABELLED
    assert moment(start(make_learner("spacing").method, seen, SEED, 0), seen).prototypes is not None
