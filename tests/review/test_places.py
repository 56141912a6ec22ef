"""The map is made once, when somebody asks for it, and kept beside the run."""

import threading

import numpy as np
import pytest
import torch

from newfound import files
from newfound.review import places
from newfound.review.places import PLACES, Places, read_places, write_places
from tests.discovery.made import make_found


@pytest.fixture
def made(monkeypatch):
    """How often places were made, slow ones in their stead; the threads that make them can be waited for."""
    calls = []

    def flatten_apart(features, seed):
        calls.append(len(features))
        return np.stack([np.arange(len(features)), np.full(len(features), len(calls))], 1).astype(float)

    monkeypatch.setattr(places, "flatten_apart", flatten_apart)
    return calls


def finish():
    for thread in [thread for thread in threading.enumerate() if thread.name == "map"]:
        thread.join()


def test_nothing_is_made_before_somebody_asks_and_then_a_sketch_comes_first(made, tmp_path, monkeypatch):
    found, wait = make_found(), threading.Event()
    flatten = places.flatten_apart
    monkeypatch.setattr(places, "flatten_apart", lambda *given, **how: wait.wait(30) and flatten(*given, **how))
    map_ = Places(found, tmp_path)
    assert made == []
    ready, sketch = map_.look()
    assert not ready
    np.testing.assert_allclose(sketch, places.principal(found.features.numpy(), 2))
    assert not map_.look()[0]
    wait.set()
    finish()
    ready, better = map_.look()
    assert ready
    assert better[:, 0].tolist() == [*range(44)]
    assert made == [44]


def test_what_was_made_is_kept_and_read_again(made, tmp_path):
    found = make_found()
    Places(found, tmp_path).look()
    finish()
    ready, again = Places(found, tmp_path).look()
    assert ready
    assert made == [44]
    assert again[:, 0].tolist() == [*range(44)]


def test_places_of_other_features_are_not_taken(made, tmp_path):
    Places(make_found(), tmp_path).look()
    finish()
    other = Places(make_found(features=make_found().features + 1), tmp_path)
    other.look()
    finish()
    assert other.look()[1][:, 1].tolist() == [2.0] * 44
    assert made == [44, 44]


@pytest.mark.parametrize("how", ["cut off", "empty", "NaN", "of other images", "of no plane", "nothing in it"])
def test_a_damaged_file_is_made_anew(made, tmp_path, how):
    features = make_found().features.numpy()
    path = tmp_path / PLACES
    write_places(path, features, np.zeros((44, 2)))
    assert read_places(path, features) is not None
    about = {places.ABOUT: places.identify_features(features)}
    bad = {
        "NaN": {"places": torch.full((44, 2), torch.nan)},
        "of other images": {"places": torch.zeros(43, 2)},
        "of no plane": {"places": torch.zeros(44, 3)},
        "nothing in it": {},
    }
    if how in bad:
        files.write_tensors(path, bad[how], about)
    else:
        path.write_bytes(path.read_bytes()[:-9] if how == "cut off" else b"")
    assert read_places(path, features) is None
    Places(make_found(), tmp_path).look()
    finish()
    assert read_places(path, features) is not None


def test_a_map_that_cannot_be_kept_is_shown_all_the_same(made, tmp_path, monkeypatch):
    def full(*given):
        raise OSError("no room")

    monkeypatch.setattr(files, "write_tensors", full)
    map_ = Places(make_found(), tmp_path)
    map_.look()
    finish()
    assert map_.look()[0]
    assert not (tmp_path / PLACES).exists()
