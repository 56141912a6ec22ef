"""The commands, as a person runs them: real words, real files; three of them in processes of their own."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from newfound.discovery.trace import Trace
from newfound.methods import METHODS
from newfound.networks.model import Model
from tests.commands import hear_ctrl_c, newfound
from tests.data.pictures import write_doodles

KNOWN, NOVEL, EACH = range(4), range(4, 7), 16
SAID = ["path", "class", "number", "kind", "confidence", "newness", "outlier", "distance", "guess"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders of drawings, a model made from the known ones, and a finished run."""
    root = tmp_path_factory.mktemp("place")
    write_doodles(root / "known", KNOWN, EACH)
    write_doodles(root / "new", NOVEL, EACH)
    write_doodles(root / "more", NOVEL, each=4, first=50)
    small = "--size", 28, "--width", 4
    done = newfound("pretrain", "--known", "known", "-o", "model", "--pretrain-epochs", 2, *small, cwd=root)
    assert done.returncode == 0, done.stderr
    shutil.move(root / "known", root / "elsewhere")  # the labelled images do not exist where discovery runs
    done = newfound(*two_stage("run"), "--truth", cwd=root)
    assert done.returncode == 0, done.stderr
    (root / "said.txt").write_text(done.stdout)
    return root


def start(place, *words, **pipes):
    """The command in a process of its own, as soon as there is a checkpoint in the folder that its last word names."""
    line = [sys.executable, "-m", "newfound", *map(str, words)]
    process = subprocess.Popen(line, cwd=place, stdout=subprocess.DEVNULL, text=True, **pipes)
    checkpoint, deadline = place / words[-1] / "checkpoint.safetensors", time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


def two_stage(output):
    return "discover", "--model", "model", "--unlabelled", "new", "--classes", 3, "--epochs", 2, "-o", output


def test_a_run_folder_is_enough_for_a_person_who_never_opens_python(place):
    files = {path.name for path in (place / "run").iterdir()}
    tables = {"assignments.csv", "classes.csv", "metrics.csv", "config.toml", "log.txt", "report.html"}
    measured = {"model", "discovery.json", "discovery.safetensors", "trace.safetensors"}
    assert files == tables | measured | {".edits.jsonl.lock"}  # which whoever edits holds
    assignments = pd.read_csv(place / "run" / "assignments.csv")
    assert list(assignments) == [*SAID, "identified_by", "duplicate_of"]
    assert len(assignments) == len(NOVEL) * EACH
    assert assignments[["confidence", "newness"]].stack().between(0, 1).all()
    classes = pd.read_csv(place / "run" / "classes.csv")
    sizes = classes["size"] + classes["unsure"]
    assert sizes.sum() == len(assignments)
    assert sizes[classes["kind"] == "new"].is_monotonic_decreasing
    assert classes["unsure"].sum() == (assignments["class"] == "unsure").sum()
    assert list(pd.read_csv(place / "run" / "metrics.csv")["epoch"]) == [1, 2]
    assert "about" in (place / "run" / "log.txt").read_text()
    assert "accuracy" in (place / "said.txt").read_text()


def test_the_same_settings_give_the_same_bytes(place):
    done = newfound("discover", "--config", "run/config.toml", "-o", "again", cwd=place)
    assert done.returncode == 0, done.stderr
    for name in ("assignments.csv", "classes.csv", "config.toml"):
        assert (place / "again" / name).read_bytes() == (place / "run" / name).read_bytes()


def test_flags_win_over_the_settings_file(place):
    done = newfound("discover", "--config", "run/config.toml", "--seed", 5, "--epochs", 0, "-o", "flags", cwd=place)
    assert done.returncode == 0, done.stderr
    settings = tomllib.loads((place / "flags" / "config.toml").read_text())["discover"]
    assert (settings["seed"], settings["epochs"], settings["classes"]) == (5, 0, 3)


def test_single_stage_sees_both_sets_at_once(place):
    words = "discover", "--known", "elsewhere", "--unlabelled", "new", "--classes", 3, "--epochs", 1, "-o", "single"
    words = *words, "--method", "pairs+spacing"
    done = newfound(*words, "--pretrain-epochs", 1, "--size", 28, "--width", 4, cwd=place)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(place / "single" / "assignments.csv")) == len(NOVEL) * EACH
    assert "cross-entropy" in pd.read_csv(place / "single" / "metrics.csv")
    assert "single-stage" in (place / "single" / "report.html").read_text()


def test_predict_writes_the_class_of_new_images(place):
    done = newfound("predict", "run", "more", "-o", "more.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(place / "more.csv")
    assert list(table) == SAID
    assert set(table["guess"]) <= {"new-1", "new-2", "new-3", *(path.name for path in (place / "elsewhere").iterdir())}
    assert len(table) == 12
    refused = newfound("predict", "run", "more", "-o", "more.csv", cwd=place)
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr


def test_predict_takes_a_single_image(place):
    image = next((place / "more").rglob("*.png"))
    done = newfound("predict", "run", image, "-o", "one.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(place / "one.csv")["path"].tolist() == [image.name]


def test_predicting_the_images_of_the_run_gives_their_classes(place):
    done = newfound("predict", "run", "new", "-o", "same.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    same, before = pd.read_csv(place / "same.csv"), pd.read_csv(place / "run" / "assignments.csv")
    columns = ["path", "distance", "guess"]  # confidence knows that these images made the classes
    pd.testing.assert_frame_equal(same[columns], before[columns])


def test_report_is_written_anew(place):
    before = (place / "run" / "report.html").read_text()
    (place / "run" / "report.html").unlink()
    done = newfound("report", "run", cwd=place)
    assert done.returncode == 0, done.stderr
    assert (place / "run" / "report.html").read_text() == before


@pytest.mark.processes
def test_a_killed_run_resumes_to_the_same_weights(place):
    words = "discover", "--model", "model", "--unlabelled", "new", "--classes", 3, "--epochs", 30
    whole = newfound(*words, "-o", "whole", cwd=place)
    assert whole.returncode == 0, whole.stderr
    process = start(place, *words, "-o", "killed", stderr=subprocess.DEVNULL)
    process.kill()
    process.wait()
    checkpoint = place / "killed" / "checkpoint.safetensors"
    assert checkpoint.exists()
    assert not (place / "killed" / "discovery.json").exists(), "it was to be killed before its end"
    refused = newfound(*words, "-o", "killed", cwd=place)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    resumed = newfound(*words, "-o", "killed", "--resume", cwd=place)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("model/model.safetensors", "assignments.csv", "classes.csv", "metrics.csv"):
        assert (place / "killed" / name).read_bytes() == (place / "whole" / name).read_bytes(), name
    assert len(pd.read_csv(place / "whole" / "metrics.csv")) == 30
    assert not checkpoint.exists()


def test_resuming_a_finished_run_changes_nothing(place):
    before = {path: path.read_bytes() for path in (place / "run").rglob("*") if path.suffix in {".csv", ".safetensors"}}
    done = newfound(*two_stage("run"), "--truth", "--resume", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "finished already" in done.stderr
    assert "Looking" not in done.stderr
    assert before == {path: path.read_bytes() for path in before}


def test_a_report_that_was_not_finished_is_written_when_the_run_is_resumed(place):
    shutil.copytree(place / "run", place / "unreported")
    (place / "unreported" / "report.html").unlink()
    done = newfound(*two_stage("unreported"), "--truth", "--resume", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "<html" in (place / "unreported" / "report.html").read_text()


def test_resuming_a_finished_model_learns_nothing_again(place):
    shutil.move(place / "elsewhere", place / "known")
    before = (place / "model" / "model.safetensors").stat().st_mtime_ns
    words = "pretrain", "--known", "known", "-o", "model", "--pretrain-epochs", 2, "--size", 28, "--width", 4
    done = newfound(*words, "--resume", cwd=place)
    shutil.move(place / "known", place / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert "finished already" in done.stderr
    assert (place / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_a_pile_of_one_class_is_a_run_like_any_other(place):
    words = "discover", "--model", "model", "--unlabelled", "more", "--classes", 1, "--no-mixed", "--epochs", 1
    done = newfound(*words, "-o", "lonely", cwd=place)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(place / "lonely" / "classes.csv")) == 1


def test_a_model_that_learnt_which_images_share_a_class_serves_kcl(place):
    words = "pretrain", "--known", "elsewhere", "-o", "alike", "--similarity", "--pretrain-epochs", 1, "--size", 28
    done = newfound(*words, "--width", 4, cwd=place)
    assert done.returncode == 0, done.stderr
    words = "discover", "--model", "alike", "--unlabelled", "new", "--classes", 3, "--epochs", 1, "--method", "kcl"
    done = newfound(*words, "-o", "kcl", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "pairs" in pd.read_csv(place / "kcl" / "metrics.csv")


def test_a_run_resumes_with_its_own_settings_only(place):
    shutil.copytree(place / "run", place / "other")
    done = newfound(*two_stage("other"), "--truth", "--resume", "--rate", 0.5, cwd=place)
    assert done.returncode == 2
    assert "rate" in done.stderr


@pytest.mark.processes
def test_ctrl_c_says_how_to_go_on(place):
    words = "discover", "--model", "model", "--unlabelled", "new", "--classes", 3, "--epochs", 5000, "-o", "stopped"
    process = start(place, *words, stderr=subprocess.PIPE, preexec_fn=hear_ctrl_c)
    try:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("kind", ["tsne", "spacing"])
def test_figures_are_drawn_from_a_run_folder(place, kind):
    done = newfound("figure", kind, "run", "-o", f"drawn/{kind}", cwd=place)
    assert done.returncode == 0, done.stderr
    assert (place / "drawn" / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (place / "drawn" / f"{kind}.svg").read_text()
    assert f"{kind}.png" in done.stdout


def test_a_run_folder_keeps_its_latents_by_true_class(place):
    trace = Trace.load(place / "run")
    assignments = pd.read_csv(place / "run" / "assignments.csv")
    assert [trace.classes[label] for label in trace.labels.tolist()] == [
        path.split("/")[0] for path in assignments["path"]
    ]
    features = load_file(place / "run" / "discovery.safetensors")["features"]
    metric = Model.from_pretrained(place / "run" / "model").backbone.metric  # classes are read off whitened latents
    torch.testing.assert_close(trace.after.latents @ metric, features)


def test_methods_lists_every_method_and_says_which_are_from_a_description(tmp_path):
    done = newfound("methods", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("│")}
    assert list(lines) == list(METHODS)
    described = {name for name, line in lines.items() if "from description" in line}
    assert described == {name for name, recipe in METHODS.items() if recipe.described} >= {"openmix", "joint"}


def refuse(place, *words, match):
    """Exit code 2, one clear message, nothing half-written."""
    before = sorted(place.rglob("*"))
    done = newfound(*words, cwd=place)
    assert done.returncode == 2, done.stdout + done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("newfound: ")]
    assert len(message) == 1
    assert match in done.stderr
    assert sorted(place.rglob("*")) == before
    return done.stderr


def test_a_settings_file_is_for_one_command_and_not_for_the_next(place):
    refuse(place, "discover", "--config", "run/config.toml", "--epochs", -1, "-o", "fresh", match="--epochs is -1")
    refuse(place, "discover", "-o", "fresh", match="--unlabelled requires an argument")


def test_a_word_that_nothing_takes_is_named_with_the_command_s_help(tmp_path):
    said = refuse(tmp_path, "pretrain", "photos", "-o", "model", match="--known requires an argument")
    assert "Nothing takes: photos. See newfound pretrain --help." in said


BAD = {
    "missing folder": (("--model", "model", "--unlabelled", "nowhere"), "does not exist"),
    "empty folder": (("--model", "model", "--unlabelled", "empty"), "holds no images"),
    "class folder without images": (("--known", "hollow", "--unlabelled", "new"), "'bare'"),
    "nothing readable": (("--model", "model", "--unlabelled", "broken", "--classes", 1), "can be read"),
    "more classes than images": (("--model", "model", "--unlabelled", "new", "--classes", 900), "900 classes in 48"),
    "nobody to learn from": (("--unlabelled", "new", "--backbone", "small-resnet-18"), "learns from labelled images"),
    "no such backbone": (("--unlabelled", "new", "--backbone", "resnet-7"), "There is no backbone 'resnet-7'"),
    "no model folder": (("--model", "new", "--unlabelled", "new"), "not a model folder"),
    "another version": (("--model", "version", "--unlabelled", "new"), "version 99"),
    "damaged model": (("--model", "damaged", "--unlabelled", "new"), "damaged"),
    "infinite features": (("--model", "nan", "--unlabelled", "new", "--epochs", 0), "NaN or infinite features"),
    "shared files": (("--known", "elsewhere", "--unlabelled", "leak"), "share"),
    "unknown method": (("--model", "model", "--unlabelled", "new", "--method", "magic"), "no method called 'magic'"),
    "missing settings file": (("--config", "nope.toml", "--unlabelled", "new"), "nope.toml cannot be read"),
    "broken settings file": (("--config", "said.txt", "--unlabelled", "new"), "said.txt cannot be read"),
    "unknown flag": (("--model", "model", "--unlabelled", "new", "--metod", "x"), "--metod"),
    "a run is there": (("--model", "model", "--unlabelled", "new", "-o", "run"), "--overwrite"),
    "other files are there": (("--model", "model", "--unlabelled", "new", "-o", "elsewhere"), "other files"),
    "another's settings are there": (("--model", "model", "--unlabelled", "new", "-o", "site"), "other files"),
    "output is a file": (("--model", "model", "--unlabelled", "new", "-o", "said.txt"), "is a file"),
    "output below a file": (
        ("--model", "model", "--unlabelled", "new", "-o", "said.txt/run"),
        "Nothing can be written",
    ),
    "a settings file without end": (("--config", "/dev/zero", "--unlabelled", "new"), "more than 1.0 MiB"),
    "brackets without end": (("--config", "deep.toml", "--unlabelled", "new"), "deep.toml cannot be read"),
    "a rate beyond numbers": (("--model", "model", "--unlabelled", "new", "--rate", "1e308"), "--rate is 1e+308"),
    "pixels beyond memory": (("--known", "elsewhere", "--unlabelled", "new", "--size", 10**6), "--size is 1000000"),
    "channels beyond memory": (("--known", "elsewhere", "--unlabelled", "new", "--width", 10**6), "--width is 1000000"),
    "an output that is no text": (("--model", "model", "--unlabelled", "new", "-o", "\udcff"), "is not valid text"),
    "images below what is no text": (("--model", "model", "--unlabelled", "\udcff"), "is not valid text"),
    "no images a step": (("--model", "model", "--unlabelled", "new", "--batch", 0), "--batch is 0"),
    "passes below zero": (("--model", "model", "--unlabelled", "new", "--epochs", -1), "--epochs is -1"),
    "no such device": (("--model", "model", "--unlabelled", "new", "--device", "CUPU"), "--device is CUPU"),
    "weights of nothing": (("--known", "elsewhere", "--unlabelled", "new", "--weights", "w.bin"), "Name the backbone"),
    "no truth": (("--model", "model", "--unlabelled", "flat", "--truth"), "lie in no folder"),
    "one known class": (("--known", "lone", "--unlabelled", "new"), "needs at least 2"),
    "nobody says what is alike": (
        ("--model", "model", "--unlabelled", "new", "--method", "kcl"),
        "newfound pretrain --similarity",
    ),
}


@pytest.fixture(scope="module")
def bad_place(place):
    (place / "empty").mkdir()
    shutil.copytree(place / "elsewhere", place / "hollow")
    (place / "hollow" / "bare").mkdir()
    (place / "broken").mkdir()
    (place / "broken" / "zero.png").touch()
    whole = next((place / "new").rglob("*.png")).read_bytes()
    (place / "broken" / "cut.png").write_bytes(whole[: len(whole) // 2])
    shutil.copytree(place / "model", place / "version")
    about = place / "version" / "model.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"version": 99}))
    shutil.copytree(place / "model", place / "damaged")
    (place / "damaged" / "model.safetensors").write_bytes(b"\0" * 100)
    shutil.copytree(place / "model", place / "nan")
    weights = load_file(place / "nan" / "model.safetensors")
    weights["backbone.stages.0.0.weight"] = torch.full_like(weights["backbone.stages.0.0.weight"], torch.nan)
    save_file(weights, place / "nan" / "model.safetensors")
    (place / "deep.toml").write_text("a = " + "[" * 99_999)
    (place / "\udcff").mkdir()
    shutil.copy(next((place / "new").rglob("*.png")), place / "\udcff" / "1.png")
    (place / "site").mkdir()
    (place / "site" / "config.toml").write_text("title = 'mine'\n")
    (place / "flat").mkdir()
    for file in list((place / "new").rglob("*.png"))[:5]:
        shutil.copy(file, place / "flat")
    first = next((place / "elsewhere").iterdir())
    shutil.copytree(first, place / "lone" / first.name)
    shutil.copytree(place / "new", place / "leak")
    shared = next((place / "elsewhere").rglob("*.png"))
    shutil.copy(shared, place / "leak" / "copy.png")
    return place


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_message_and_leaves_nothing_behind(bad_place, case):
    words, match = BAD[case]
    classes = () if "--classes" in words else ("--classes", 3)
    output = () if "-o" in words else ("-o", "fresh")
    refuse(bad_place, "discover", *words, *classes, *output, match=match)


BAD_ELSEWHERE = {
    "unknown dataset": (("benchmark", "two-stage", "--dataset", "cifar1000"), "Did you mean cifar100?"),
    "no data": (("benchmark", "two-stage", "--dataset", "cifar10"), "data_batch_1, data_batch_2"),
    "unfit method": (
        ("benchmark", "single-stage", "--dataset", "cifar10", "--data", "new", "--methods", "kcl"),
        "discovers in two stages only",
    ),
    "nothing to fetch": (("data", "mnist"), "cifar10, cifar100"),
    "a folder to predict into": (("predict", "run", "more", "-o", "model", "--overwrite"), "model is a folder"),
    "a demonstration over a run": (("demo", "-o", "run"), "run holds other files"),
    "no demonstration": (("demo", "--seeds", 0), "--seeds is 0"),
    "one class to learn": (("pretrain", "--known", "lone", "-o", "fresh"), "needs at least 2"),
    "a model below a file": (("pretrain", "--known", "elsewhere", "-o", "said.txt/m"), "Nothing can be written"),
    "no trace": (("figure", "tsne", "model"), "has no trace.safetensors"),
    "no spacing": (("figure", "spacing", "hosted"), "no Spacing in it"),
    "other images": (("figure", "tsne", "run", "hosted"), "different images"),
}


@pytest.fixture(scope="module")
def hosted(bad_place, place):
    """A run of other images with a method that has no Spacing."""
    words = "discover", "--model", "model", "--unlabelled", "more", "--classes", 3, "--epochs", 1, "--method", "pairs"
    done = newfound(*words, "-o", "hosted", "--truth", cwd=place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("case", BAD_ELSEWHERE)
def test_bad_words_of_other_commands_get_one_clear_message(hosted, monkeypatch, case):
    monkeypatch.delenv("NEWFOUND_DATA", raising=False)
    words, match = BAD_ELSEWHERE[case]
    refuse(hosted, *words, match=match)


@pytest.mark.parametrize("error", [MemoryError("1 TiB"), RuntimeError("can't allocate memory: 1 TiB")], ids=repr)
def test_where_memory_ends_that_is_said(place, monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr("newfound.discovery.discover.discover", full)
    done = newfound("discover", "--model", "model", "--unlabelled", "new", "-o", "fresh", cwd=place)
    assert done.returncode == 2
    assert "there is not enough memory" in done.stderr
    assert "1 TiB" in done.stderr


def test_unreadable_images_are_left_out_and_named(place):
    shutil.copytree(place / "new", place / "partly")
    (place / "partly" / "zero.png").touch()
    words = "discover", "--model", "model", "--unlabelled", "partly", "--classes", 3, "--epochs", 0, "-o", "part"
    done = newfound(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "1 file" in done.stderr
    assert "zero.png" in done.stderr
    assert len(pd.read_csv(place / "part" / "assignments.csv")) == len(NOVEL) * EACH


def test_a_finished_run_may_be_overwritten_when_asked(place):
    shutil.copytree(place / "run", place / "over")
    words = "discover", "--model", "model", "--unlabelled", "new", "--classes", 2, "--epochs", 0, "-o", "over"
    done = newfound(*words, "--no-mixed", "--overwrite", cwd=place)
    assert done.returncode == 0, done.stderr
    classes = pd.read_csv(place / "over" / "classes.csv")
    assert classes["class"].tolist() == ["new-1", "new-2"]


def test_without_a_number_of_classes_it_is_estimated_and_everything_says_so(place):
    words = "discover", "--model", "model", "--unlabelled", "new", "--epochs", 0, "--unsure", 0.25, "-o", "counted"
    done = newfound(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    for said in (done.stderr, (place / "counted" / "report.html").read_text()):
        assert re.search(r"\d+ new, estimated \(\d+ to \d+; \d+ to \d+ with the \d+ known\): ", said)
    assert "given" in (place / "run" / "report.html").read_text()
    table = pd.read_csv(place / "counted" / "assignments.csv")
    assert (table["class"] == "unsure").sum() == len(table) // 4
    assert (
        table.loc[table["class"] == "unsure", "confidence"].max()
        <= table.loc[table["class"] != "unsure", "confidence"].min()
    )


@pytest.mark.processes
def test_the_package_and_the_help_load_nothing_heavy():
    line = [sys.executable, "-X", "importtime", "-m", "newfound", "--help"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "discover" in done.stdout
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert loaded >= {"newfound", "cyclopts"}
    assert not loaded & {"torch", "numpy", "pandas", "scipy", "sklearn", "PIL", "timm", "plotly", "accelerate"}


COMMANDS = (
    *("demo", "pretrain", "discover", "predict", "report", "benchmark", "data", "methods", "figure"),
    *("backbones", "doctor", "cache"),
)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_every_help_fits_a_screen_and_has_an_example(command, tmp_path):
    done = newfound(*command, "--help", cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) <= 42
    assert not command or f"newfound {command[0]}" in done.stdout.split("Usage:")[1].split("\n", 1)[1]


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_every_method_is_named_whole_however_narrow_the_screen(columns, tmp_path):
    said = newfound("methods", cwd=tmp_path, COLUMNS=columns).stdout
    assert all(f" {name} " in said for name in METHODS)
