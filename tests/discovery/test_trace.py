"""What is kept of a run for figures."""

import itertools

import pytest
import torch

from newfound.data.batches import Data
from newfound.discovery import trace
from newfound.discovery.trace import Moment, Trace, beginning, ending
from newfound.errors import InputError
from newfound.methods import build
from newfound.methods.spacing import spacing_of
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, fit, survey
from newfound.types import Now, Problem, Training, generator, seeded

ROWS, LABELLED, EPOCHS, SEED = 40, 16, 4, 5


def make_data(labelled=True):
    pixels = torch.randint(0, 256, (ROWS, 1, 8, 8), generator=generator("pixels"), dtype=torch.uint8)
    labels = torch.full((ROWS,), -1)
    if labelled:
        labels[:LABELLED] = torch.arange(LABELLED) % 2
    return Data(pixels, labels)


def make_learner(name, labelled=True):
    with seeded("trace"):
        model = Model(SmallResNet(2, 2), 8, 1, ("a", "b"), torch.nn.Linear(16, 2))
        method = build(name, Problem(16, 2, 3, labelled, ROWS), model)
    return Learner(model.backbone, method)


def state(learner):
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}


PRESETS = ["pairs+spacing", "pairs+spacing:paper", "pairs+spacing:author", "pairs+spacing:dcn"]


@pytest.mark.parametrize("name", PRESETS)
def test_the_beginning_shows_prototypes_where_the_run_will_start_them(name):
    learner, data = make_learner(name), make_data()
    first = beginning(learner, data, SEED, EPOCHS)
    seen, loss = survey(learner.backbone, data), spacing_of(learner.method)
    for epoch in range(EPOCHS):
        learner.method.before_epoch(lambda: seen, Now(SEED, epoch, EPOCHS))
        if loss.started:
            break
    assert torch.equal(first.prototypes, loss.prototypes)
    assert torch.equal(first.anchors, loss.anchors)
    assert torch.equal(first.spaced, loss.space(first.latents))


@pytest.mark.parametrize("name", ["pairs", "pairs+spacing", "ncl+spacing:author"])
def test_looking_changes_nothing_of_the_run(name):
    learner, data = make_learner(name), make_data()
    before = state(learner)
    beginning(learner, data, SEED, EPOCHS)
    ending(learner, data)
    assert all(torch.equal(value, before[key]) for key, value in state(learner).items())
    assert learner.training


def test_only_unlabelled_images_are_kept_in_their_order():
    learner, data = make_learner("pairs"), make_data()
    moment = ending(learner, data)
    assert torch.equal(moment.latents, survey(learner.backbone, data).features[LABELLED:])
    assert moment.rows.tolist() == list(range(ROWS - LABELLED))
    assert moment.spaced is moment.prototypes is moment.anchors is None


def test_of_many_images_some_are_kept_evenly_with_the_first_and_the_last(monkeypatch):
    monkeypatch.setattr(trace, "MOST", 9)
    learner, data = make_learner("spacing", labelled=False), make_data(labelled=False)
    moment = beginning(learner, data, SEED, EPOCHS)
    rows = moment.rows.tolist()
    assert len(rows) == len(moment.latents) == len(moment.spaced) == 9
    assert (rows[0], rows[-1]) == (0, ROWS - 1)
    assert {b - a for a, b in itertools.pairwise(rows)} <= {4, 5}
    assert torch.equal(moment.latents, survey(learner.backbone, data).features[moment.rows])


@pytest.mark.parametrize("name", [*PRESETS, "pairs"])
def test_saved_and_loaded_is_the_same(name, tmp_path):
    learner, data = make_learner(name), make_data()
    first = beginning(learner, data, SEED, EPOCHS)
    fit(learner, data, Training(EPOCHS, 20, 0.05), SEED, device="cpu")
    last = ending(learner, data)
    assert not torch.equal(first.latents, last.latents)
    kept = Trace("a run, größer", ("x", "y"), last.rows % 2, first, last)
    kept.save(tmp_path)
    loaded = Trace.load(tmp_path)
    assert (loaded.title, loaded.classes) == (kept.title, kept.classes)
    assert torch.equal(loaded.labels, kept.labels)
    for ours, theirs in ((first, loaded.before), (last, loaded.after)):
        assert vars(ours).keys() == vars(theirs).keys()
        for key, value in vars(ours).items():
            other = getattr(theirs, key)
            assert other is None if value is None else torch.equal(value, other)


def test_what_was_kept_does_not_move_with_the_run():
    learner, data = make_learner("spacing"), make_data()
    first = beginning(learner, data, SEED, EPOCHS)
    moment = {key: value.clone() for key, value in vars(first).items()}
    fit(learner, data, Training(EPOCHS, 20, 0.05), SEED, device="cpu")
    assert all(torch.equal(value, moment[key]) for key, value in vars(first).items())


def test_a_run_of_no_epochs_has_a_beginning_too():
    learner = make_learner("kmeans")
    assert len(beginning(learner, make_data(), SEED, 0).latents) == ROWS - LABELLED


def test_a_folder_without_a_trace_is_told_what_is_needed(tmp_path):
    with pytest.raises(InputError, match=r"has no trace\.safetensors\. Needed: .*newfound discover.*benchmark --keep"):
        Trace.load(tmp_path)


def damage(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [damage, empty])
def test_a_damaged_trace_is_refused(tmp_path, harm):
    moment = Moment(torch.arange(3), torch.rand(3, 2))
    Trace("t", ("a",), torch.zeros(3, dtype=torch.long), moment, Moment(moment.rows.clone(), torch.rand(3, 2))).save(
        tmp_path
    )
    harm(tmp_path / trace.NAME)
    with pytest.raises(InputError, match=r"cannot be read .* make the run anew"):
        Trace.load(tmp_path)
