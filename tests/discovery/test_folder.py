"""A folder belongs to one run: it is claimed, gone on with, overwritten, and holds nothing that is not its own."""

import subprocess
import sys
import tomllib

import pandas as pd
import pytest

from newfound import files, pretrain
from newfound.discovery.folder import CHECKPOINT, RESULTS, finished, refuse, working
from newfound.discovery.settings import StageOne
from newfound.errors import InputError
from tests.data.pictures import write_doodles

SETTINGS = {"known": "anns/photos", "weights": "anns/net.pt", "seed": 0, "size": None}


def config(folder):
    return tomllib.loads((folder / "config.toml").read_text())


def work(folder, *made, task="pretrain", overwrite=False, resume=False, **other):
    with working(folder, task, SETTINGS | other, overwrite=overwrite, resume=resume) as place:
        before = {path.name for path in place.iterdir()}
        (place / CHECKPOINT).touch()
        for name in made:
            files.write(place / name, name)
    return before


def test_while_a_model_is_made_its_settings_are_whole_and_when_it_is_done_they_name_no_place(tmp_path):
    with working(tmp_path, "pretrain", SETTINGS, overwrite=False, resume=False) as folder:
        assert config(folder) == {"pretrain": {"known": "anns/photos", "weights": "anns/net.pt", "seed": 0}}
        files.write(folder / "model.json", "{}")
    assert config(tmp_path) == {"pretrain": {"seed": 0}}
    assert not any(b"ann" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_run_keeps_the_places_it_came_from(tmp_path):
    work(tmp_path, "discovery.json", task="discover")
    assert config(tmp_path)["discover"]["known"] == "anns/photos"


def test_a_finished_model_is_resumed_from_any_place_and_with_no_other_setting(tmp_path):
    work(tmp_path, "model.json")
    refuse(tmp_path, "pretrain", SETTINGS | {"known": "elsewhere"}, overwrite=False, resume=True)
    with pytest.raises(InputError, match=r"other settings \(seed\)"):
        refuse(tmp_path, "pretrain", SETTINGS | {"seed": 1}, overwrite=False, resume=True)


def test_an_interrupted_model_is_resumed_with_its_own_images_only(tmp_path):
    work(tmp_path)
    with pytest.raises(InputError, match=r"other settings \(known\)"):
        refuse(tmp_path, "pretrain", SETTINGS | {"known": "elsewhere"}, overwrite=False, resume=True)


def test_to_begin_anew_and_to_go_on_at_once_is_refused_wherever_it_would_be(tmp_path):
    for folder in (tmp_path, tmp_path / "none", None):
        with pytest.raises(InputError, match="--overwrite begins anew, --resume goes on"):
            refuse(folder, "pretrain", SETTINGS, overwrite=True, resume=True)


def test_overwriting_leaves_nothing_that_could_be_taken_for_the_new_run_s(tmp_path):
    work(tmp_path, *RESULTS, task="discover")
    (tmp_path / f"stage-one-{CHECKPOINT}").touch()
    before = work(tmp_path, "discovery.json", task="discover", overwrite=True, seed=1)
    assert before == {"config.toml", "log.txt", "model"}
    assert not any((tmp_path / "model").iterdir())
    assert config(tmp_path)["discover"]["seed"] == 1


@pytest.mark.parametrize("how", ["overwrite", "resume"])
def test_what_was_being_written_when_a_run_was_killed_goes_when_it_goes_on_or_begins_anew(tmp_path, how):
    work(tmp_path)
    stale = [tmp_path / ".metrics.csv.0123456789abcdef.newfound", tmp_path / "model" / ".m.0123456789abcdef.newfound"]
    for place in stale:
        files.write(place, "half")
    with pytest.raises(InputError, match="already holds a run"):
        refuse(tmp_path, "pretrain", SETTINGS, overwrite=False, resume=False)
    assert all(place.exists() for place in stale), "nobody asked to write here"
    refuse(tmp_path, "pretrain", SETTINGS, overwrite=how == "overwrite", resume=how == "resume")
    assert not any(place.exists() for place in stale)


def test_a_folder_in_which_a_run_was_killed_at_its_first_file_is_as_empty(tmp_path):
    (tmp_path / ".config.toml.0123456789abcdef.newfound").touch()
    refuse(tmp_path, "discover", SETTINGS, overwrite=False, resume=True)
    assert not list(tmp_path.iterdir())


def test_finished_work_has_no_checkpoint_even_when_it_was_stopped_between_the_two(tmp_path):
    work(tmp_path, "discovery.json", task="discover")
    assert not list(tmp_path.glob(f"*{CHECKPOINT}"))
    (tmp_path / CHECKPOINT).touch()
    assert finished(tmp_path, "discover", SETTINGS, last="discovery.json", resume=True) == tmp_path
    assert not list(tmp_path.glob(f"*{CHECKPOINT}"))
    assert finished(tmp_path, "discover", SETTINGS, last="discovery.json", resume=False) is None


@pytest.mark.processes
def test_two_processes_write_one_run_folder(tmp_path):
    write_doodles(tmp_path / "known", range(2), each=4)
    write_doodles(tmp_path / "new", range(2, 4), each=8)
    pretrain(tmp_path / "known", output=tmp_path / "model", stage=StageOne(size=28, width=4, pretrain_epochs=1))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "newfound"]
    words = ["discover", "--model", "model", "--unlabelled", "new", "--classes", "2", "--epochs", "1", "-o", "run"]
    line = [*launch, *words, "--device", "cpu"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report:") == 1
    assert len(pd.read_csv(tmp_path / "run" / "assignments.csv")) == 16


def test_a_note_stands_above_the_settings_and_in_the_log(tmp_path, caplog):
    with working(
        tmp_path / "run", "discover", {"seed": 1}, overwrite=False, resume=False, note="Backbone: x, since y."
    ):
        pass
    assert (tmp_path / "run" / "config.toml").read_text().startswith("# Backbone: x, since y.\n[discover]")


def test_a_finished_model_keeps_the_note_and_forgets_the_places(tmp_path):
    with working(tmp_path / "model", "pretrain", SETTINGS, overwrite=False, resume=False, note="Backbone: x.") as place:
        files.write(place / "model.json", "{}")
    assert (tmp_path / "model" / "config.toml").read_text().startswith("# Backbone: x.\n[pretrain]")
    assert "known" not in config(tmp_path / "model")["pretrain"]
