"""What is kept of a run for figures."""

import pytest
import torch

from newfound.discovery import trace
from newfound.discovery.trace import Trace
from newfound.errors import InputError
from newfound.training.moments import Moment
from newfound.training.train import train
from tests.training.runs import SEED, TRAINING, make_data, make_learner

PRESETS = ["pairs+spacing", "pairs+spacing:paper", "pairs+spacing:author", "pairs+spacing:dcn"]


@pytest.mark.parametrize("name", [*PRESETS, "pairs"])
def test_saved_and_loaded_is_the_same(name, tmp_path):
    first, last = train(make_learner(name), make_data(), TRAINING, SEED, device="cpu").moments()
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
    harm(tmp_path / trace.TRACE)
    with pytest.raises(InputError, match=r"is damaged: .* make the run anew"):
        Trace.load(tmp_path)
