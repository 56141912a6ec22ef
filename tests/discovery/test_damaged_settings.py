"""Damaged settings: `config.toml` of a run and of a model, given to the commands that read it."""

import copy
import math
import random
import tomllib
from dataclasses import fields

import pytest
import tomli_w

from newfound.discovery import discover, folder
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.storage import CONFIG, LOG
from newfound.errors import InputError
from tests.commands import newfound
from tests.discovery.test_damaged import change, damaged_bytes

WRONG = [True, "", "x", "\n", -1, 0, 2.5, -1e9, 1e308, math.nan, math.inf, 10**30, [], [[]], {}, {"a": 1}, ["a", 1]]
"""What may stand where something else should; TOML has no null."""

ASKED = {
    "unlabelled": "new",
    "classes": 3,
    "method": "kmeans",
    "epochs": 2,
    "rate": 0.1,
    "batch": 64,
    "read_by": "k-means",
    "count_by": "agreement",
    "mixed": True,
    "unsure": 0.1,
    "seed": 5,
    "device": "cpu",
    "pretrain_epochs": 3,
    "pretrain_rate": 0.2,
    "backbone": "small-resnet-18",
    "size": 32,
    "width": 16,
    "stride": 2,
    "rehearse": "auto",
    "truth": False,
}
"""What is written of a discovery."""


def damaged_settings(path):
    """Texts in place of a TOML file's."""
    value = tomllib.loads(path.read_text())
    (task,) = value
    places = [(task,), *((task, name) for name in value[task]), (task, "more"), ("more",)]
    for number, place in enumerate(places):
        for new in WRONG[number % 2 :: 2]:
            yield tomli_w.dumps(change(value, place, new)).encode(errors="replace")
    for name in value[task]:
        less = copy.deepcopy(value)
        del less[task][name]
        yield tomli_w.dumps(less).encode()
    text = path.read_text()
    yield from (b"a = " + b"[" * 100_000, text.encode() * 2, b"\xff" + text.encode(), text.encode("utf-16"))
    yield (text + "seed = 7\n").encode()
    yield from damaged_bytes(path, random.Random("settings"))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CONFIG).write_text("# Why so.\n" + tomli_w.dumps({"discover": ASKED}))
    return tmp_path


def test_damaged_settings_are_no_run_s_to_go_on_with(place):
    run = place / "run"
    (run / LOG).touch()
    mutations, refused = [*damaged_settings(run / CONFIG)], []
    for mutation in mutations:
        (run / CONFIG).write_bytes(mutation)
        try:
            folder.refuse(run, "discover", ASKED, overwrite=False, resume=True)
        except InputError as error:
            refused.append(str(error))
        else:
            assert tomllib.loads(mutation.decode()) == {"discover": ASKED}
    told = [said.startswith(f"{run / CONFIG} is damaged: ") and "-o" in said for said in refused]
    others = [f"in {run} had other settings" in said and "--overwrite" in said for said in refused]
    assert all(one != other for one, other in zip(told, others, strict=True))
    assert max(map(len, refused)) < 1000
    assert min(sum(told), sum(others)) > 20
    assert len(mutations) - 10 < len(refused)


def test_settings_of_somebody_else_are_no_damaged_run(place):
    (place / "run" / CONFIG).write_text("title = 'mine'\n")
    with pytest.raises(InputError, match="run holds other files"):
        folder.refuse(place / "run", "discover", ASKED, overwrite=False, resume=True)


def test_settings_that_a_command_takes_from_a_file_are_refused_or_can_be(place, monkeypatch):
    given = []

    def stop(**settings):
        given.append(settings)
        raise InputError("far enough")

    monkeypatch.setattr(discover, "discover", stop)
    path, refused = place / "run" / CONFIG, 0
    for mutation in [*damaged_settings(path)]:
        path.write_bytes(mutation)
        given.clear()
        done = newfound("discover", "--config", "run/config.toml", "-o", "next", cwd=place)
        assert done.returncode == 2, mutation
        assert "Traceback" not in done.stderr
        assert len(done.stderr) < 2000
        refused += not given
        for settings in given:
            check_values(settings)
    assert refused > 100


def check_values(settings):
    """What is true of all settings, said without what reads them."""
    for value in (settings["run"], settings["stage"]):
        for field in fields(Run if isinstance(value, Run) else StageOne):
            said = getattr(value, field.name)
            assert isinstance(said, field.type) or (said is None and "None" in str(field.type)), (field.name, said)
            assert not isinstance(said, float) or math.isfinite(said), (field.name, said)
    assert settings["classes"] is None or type(settings["classes"]) is int
