"""Tables, row by row: at the real command line, and with rows that cost nothing."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from newfound import cache, methods
from newfound.benchmark import run
from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.published import CONTROLS, SINGLE_STAGE, TWO_STAGE
from newfound.benchmark.stages import Task
from newfound.cli import app
from newfound.data.datasets import load_dataset
from newfound.discovery.trace import Trace
from newfound.errors import InputError
from tests.benchmark import small
from tests.commands import newfound

NAME = "two-stage-cifar10-5-5-smoke"
ROWS = [*TWO_STAGE, *CONTROLS["two-stage"]]
COMMAND = "benchmark", "two-stage", "--dataset", "cifar10", "--budget", "smoke"


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """CIFAR-10's folder, with few drawings in it."""
    return small.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def place(tmp_path_factory, data):
    """A folder where every default row was run with one seed by the real command."""
    root = tmp_path_factory.mktemp("place")
    words = *COMMAND, "--seeds", 0, "-o", "results", "--keep", "kept"
    done = newfound(*words, cwd=root, NEWFOUND_DATA=str(data), NEWFOUND_CACHE=str(root / "cache"))
    assert done.returncode == 0, done.stderr
    (root / "said.txt").write_text(done.stdout)
    return root


def read(path):
    return json.loads(path.read_text())


def test_the_command_makes_every_row_of_the_paper_and_every_control(place):
    results = read(place / "results" / f"{NAME}.json")
    assert [row["method"] for row in results["rows"]] == ROWS
    assert {row["seed"] for row in results["rows"]} == {0}
    for row in results["rows"]:
        assert {"k-means", "unit k-means"} <= row["train"].keys() == row["test"].keys()
        assert row["train"]["unit k-means"]["nmi"] > 0.1, "no guess at 150 images comes to that"
        assert row["command"] == smoke().command(row["method"], 0)
    said = (place / "said.txt").read_text()
    assert all(name in said for name in ROWS)
    assert "90.5 / 0.787 (Spacing Loss)" in said
    assert f"{NAME}.json" in said


def test_the_setting_of_the_results_is_the_tables(place):
    setting = read(place / "results" / f"{NAME}.json")["setting"]
    assert setting == run.table("two-stage", "cifar10", None, "smoke").setting()
    assert setting["novel classes"] == "5, given"
    assert setting["settings"]["width"] == BUDGETS["smoke"].width


def test_the_same_command_again_runs_nothing_and_the_caches_were_shared(place, data):
    path = place / "results" / f"{NAME}.json"
    before = path.read_bytes()
    kinds = sorted(folder.name.split("-")[0] for folder in (place / "cache" / "benchmark").iterdir())
    assert kinds == ["settled", "similarity", "supervised"]
    done = newfound(
        *(*COMMAND, "--seeds", 0, "-o", "results", "--data", data), cwd=place, NEWFOUND_CACHE=str(place / "unused")
    )
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == before
    assert not (place / "unused" / "benchmark").exists(), "nothing was trained"


def test_every_row_kept_what_a_figure_needs(place):
    for name in ROWS:
        trace = Trace.load(place / "kept" / f"{NAME}-{name}-0")
        assert len(trace.labels) == 5 * small.TRAIN
        assert (trace.after.anchors is not None) == ("spacing" in name)


@pytest.mark.parametrize(
    ("kind", "runs"), [("tsne", ("pairs+spacing", "pairs")), ("spacing", ("pairs+spacing:aligned",))]
)
def test_figures_are_drawn_from_kept_rows(place, tmp_path, kind, runs):
    folders = [place / "kept" / f"{NAME}-{name}-0" for name in runs]
    done = newfound("figure", kind, *folders, "-o", tmp_path / "drawn", cwd=place)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "drawn.svg").read_text()
    assert "drawn.png" in done.stdout


@pytest.mark.skipif("NEWFOUND_DATA" not in os.environ, reason="NEWFOUND_DATA does not point to CIFAR's real files")
def test_the_command_runs_on_the_real_cifar(tmp_path):
    done = newfound(*COMMAND, "--seeds", 0, cwd=tmp_path, NEWFOUND_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    results = read(tmp_path / "results" / f"{NAME}.json")
    assert [row["method"] for row in results["rows"]] == ROWS


@pytest.mark.processes
def test_a_row_that_another_process_is_running_is_left_to_it_and_the_person_is_told(data, tmp_path):
    path = (tmp_path / "results" / f"{NAME}.json").resolve()
    program = (
        "import sys; from newfound import cache\n"
        "with cache.lock(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    environment = {"NEWFOUND_CACHE": str(tmp_path / "cache")}
    line = [sys.executable, "-c", program, f"{path} kmeans 0"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(line, env=os.environ | environment, text=True, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        words = *COMMAND, "--seeds", 0, "--methods", "kmeans", "-o", "results", "--data", data
        done = newfound(*words, cwd=tmp_path, **environment)
        other.communicate("")
    assert done.returncode == 0, done.stderr
    assert not path.exists()
    assert "another process is at it" in done.stderr
    assert "No row is finished" in done.stdout


# --- rows that cost nothing


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Rows are only counted; some budgets are smaller than they say."""
    calls = []

    def row(task, name, seed, budget, progress, *, keep, checkpoint):
        calls.append((name, seed))
        scores = {"k-means": {"accuracy": 0.5, "nmi": 0.25}}
        common = {"seconds": 1.0, "weight": budget.weight(name), "training": budget.training(name).settings()}
        return {"method": name, "seed": seed, "train": scores, "test": scores} | common

    monkeypatch.setattr(run, "run_row", row)
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    return calls


def smoke():
    return run.table("two-stage", "cifar10", None, "smoke")


def test_rows_run_in_the_order_of_importance(counted, data, tmp_path):
    run.benchmark(smoke(), data, tmp_path, seeds=(0, 1))
    paper, controls = list(TWO_STAGE), CONTROLS["two-stage"]
    assert counted == [(name, seed) for group in (paper, controls) for seed in (0, 1) for name in group]


def test_finished_rows_stay_and_missing_ones_are_added(counted, data, tmp_path):
    path = run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0, 1))
    before, rows = path.read_bytes(), read(path)["rows"]
    counted.clear()
    run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0, 1))
    assert not counted
    assert path.read_bytes() == before
    run.benchmark(smoke(), data, tmp_path, only=("ncl", "kmeans"), seeds=(1, 2))
    assert counted == [("kmeans", 1), ("ncl", 2), ("kmeans", 2)]
    assert read(path)["rows"][: len(rows)] == rows


def test_rows_that_are_finished_are_counted_apart_and_the_time_left_is_told(counted, data, tmp_path, caplog):
    caplog.set_level("INFO", "newfound")
    run.benchmark(smoke(), data, tmp_path, only=("rs",), seeds=(0,))
    bars = []
    run.benchmark(
        *(smoke(), data, tmp_path),
        only=("rs", "ncl"),
        seeds=(0, 1),
        keep=tmp_path / "kept",
        progress=lambda stage, total, row: bars.append((stage, total, row["epoch"])),
    )
    assert bars == [("rows", 3, float(done)) for done in range(4)]
    assert "1 of 4 rows are finished already. Nothing is kept of them" in caplog.text
    assert "Row 1 of 3: ncl, seed 0.\n" in caplog.text
    assert "Row 3 of 3: ncl, seed 1. About 1 s left.\n" in caplog.text


@pytest.mark.parametrize("kind", ["output", "keep"])
def test_a_place_where_nothing_can_be_written_is_refused_before_any_row(counted, data, tmp_path, kind):
    (tmp_path / "file").touch()
    places = {"output": tmp_path, "keep": None} | {kind: tmp_path / "file"}
    with pytest.raises(InputError, match="Nothing can be written in"):
        run.benchmark(smoke(), data, places["output"], only=("rs",), seeds=(0,), keep=places["keep"])
    assert not counted


def test_processes_that_train_together_are_refused(counted, data, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    with pytest.raises(InputError, match=r"one of 2 processes.*started several times, each .* not under torchrun"):
        run.benchmark(smoke(), data, tmp_path / "results", only=("rs",), seeds=(0,))
    assert not counted
    assert not (tmp_path / "results").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    run.benchmark(smoke(), data, tmp_path / "results", only=("rs",), seeds=(0,))
    assert counted == [("rs", 0)]


def test_no_seed_is_no_benchmark(counted, data, tmp_path):
    with pytest.raises(InputError, match="No seed was given"):
        run.benchmark(smoke(), data, tmp_path, seeds=())


def test_the_checkpoint_of_a_row_is_its_own_and_goes_when_the_row_is_written(counted, data, tmp_path, monkeypatch):
    seen, row = [], run.run_row

    def noting(*words, checkpoint, **others):
        seen.append(checkpoint)
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.touch()
        return row(*words, checkpoint=checkpoint, **others)

    monkeypatch.setattr(run, "run_row", noting)
    run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0, 1))
    assert len(set(seen)) == 4
    assert not any(path.exists() for path in seen)
    monkeypatch.setattr(Task, "fingerprint", "other images")
    (tmp_path / f"{NAME}.json").unlink()
    run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0, 1))
    assert len(set(seen)) == 8


def test_the_same_row_of_two_files_of_results_has_two_checkpoints(counted, data, tmp_path, monkeypatch):
    seen = []

    def interrupted(*words, checkpoint, **others):
        seen.append(checkpoint)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_row", interrupted)
    monkeypatch.chdir(tmp_path)
    for output in (tmp_path / "here", tmp_path / "there", Path("here")):
        with pytest.raises(KeyboardInterrupt):
            run.benchmark(smoke(), data, output, only=("rs",), seeds=(0,))
    here, there, again = seen
    assert here != there
    assert here == again, "the same file, by another path"


def test_a_row_taken_out_by_hand_is_made_anew(counted, data, tmp_path):
    path = run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0,))
    results = read(path)
    results["rows"].pop(0)
    path.write_text(json.dumps(results))
    counted.clear()
    run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0,))
    assert counted == [("rs", 0)]


def test_what_was_finished_before_an_interruption_is_kept(counted, data, tmp_path, monkeypatch):
    row = run.run_row

    def interrupted(task, name, *others, **more):
        if name == "ncl":
            raise KeyboardInterrupt
        return row(task, name, *others, **more)

    monkeypatch.setattr(run, "run_row", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0,))
    monkeypatch.setattr(run, "run_row", row)
    counted.clear()
    path = run.benchmark(smoke(), data, tmp_path, only=("rs", "ncl"), seeds=(0,))
    assert counted == [("ncl", 0)]
    assert [row["method"] for row in read(path)["rows"]] == ["rs", "ncl"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"width": 5}, "settings: width"),
        ({"last": 9}, r"settings: last, training of pairs\+spacing"),
        ({"weights": {"spacing": 0.77}}, r"λ of pairs\+spacing"),
    ],
)
def test_results_of_another_setting_are_refused_and_nothing_is_lost(
    counted, data, tmp_path, monkeypatch, change, named
):
    path = run.benchmark(smoke(), data, tmp_path, only=("pairs+spacing",), seeds=(0, 1))
    before = path.read_bytes()
    counted.clear()
    monkeypatch.setitem(BUDGETS, "smoke", replace(BUDGETS["smoke"], **change))
    with pytest.raises(InputError, match=rf"another setting \({named} differ\).*-o"):
        run.benchmark(smoke(), data, tmp_path, only=("rs",), seeds=(0,))
    assert not counted
    assert path.read_bytes() == before


def test_looking_on_the_way_changes_nothing_of_a_row_but_adds_its_curve(data, tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    rows = []
    for points in (0, 2):
        monkeypatch.setitem(BUDGETS, "smoke", replace(BUDGETS["smoke"], whole=2, points=points))
        rows += read(run.benchmark(smoke(), data, tmp_path / f"{points}", only=("spacing",), seeds=(0,)))["rows"]
    plain, watched = rows
    curve = watched.pop("curve")
    assert [point["epoch"] for point in curve] == [0, 1]
    assert 0 < curve[0]["minutes"] < curve[1]["minutes"]
    assert all(0 < point["accuracy"] <= 1 for point in curve)
    clock = {"seconds", "memory"}
    assert {key: plain[key] for key in plain.keys() - clock} == {key: watched[key] for key in watched.keys() - clock}


def test_rows_of_a_method_that_trained_otherwise_are_not_mixed_with_others(counted, data, tmp_path, monkeypatch):
    run.benchmark(smoke(), data, tmp_path, only=("rs",), seeds=(0,))
    recipe = methods.METHODS["rs"]
    monkeypatch.setitem(methods.METHODS, "rs", replace(recipe, training=replace(recipe.training, decay=0.5)))
    with pytest.raises(InputError, match=r"another setting \(training of rs differ\)"):
        run.benchmark(smoke(), data, tmp_path, only=("rs",), seeds=(1,))


def test_rows_of_a_spacing_that_was_set_otherwise_are_not_mixed_with_others(counted, data, tmp_path, monkeypatch):
    run.benchmark(smoke(), data, tmp_path, only=("spacing",), seeds=(0,))
    recipe = methods.METHODS["spacing"]
    monkeypatch.setitem(methods.METHODS, "spacing", replace(recipe, spacing=replace(recipe.spacing, whiten=0.5)))
    with pytest.raises(InputError, match=r"another setting \(Spacing of spacing differ\)"):
        run.benchmark(smoke(), data, tmp_path, only=("spacing",), seeds=(1,))


@pytest.mark.parametrize(
    "content",
    [
        *(
            "",
            "[1]",
            "{}",
            '{"setting": null, "rows": []}',
            '{"setting": {}, "rows": 3}',
            '{"setting": {}, "rows": [1]}',
        ),
        '{"setting": {}, "rows": [{"method": "rs", "seed": 0}]}',
        '{"setting": {}, "rows": [{"method": "renamed", "seed": 0, "weight": null, "training": {}, "train": {}}]}',
        '{"setting": {}, "rows": [{"method": "rs", "seed": 0, "weight": null, "training": {}, "train": 3}]}',
    ],
)
def test_a_file_that_holds_no_results_is_refused_and_left_alone(counted, data, tmp_path, content):
    path = tmp_path / f"{NAME}.json"
    path.write_text(content)
    with pytest.raises(InputError, match="no file of results"):
        run.benchmark(smoke(), data, tmp_path, only=("rs",))
    assert path.read_text() == content


def test_a_locked_row_is_left_and_the_others_are_run(counted, data, tmp_path):
    path = (tmp_path / "here" / f"{NAME}.json").resolve()
    with cache.lock(f"{path} ncl 0"):
        run.benchmark(smoke(), data, tmp_path / "here", only=("rs", "ncl"), seeds=(0, 1))
        assert counted == [("rs", 0), ("rs", 1), ("ncl", 1)]
        counted.clear()
        run.benchmark(smoke(), data, tmp_path / "there", only=("ncl",), seeds=(0,))
        assert counted == [("ncl", 0)], "the same row of other results is another row"
    counted.clear()
    run.benchmark(smoke(), data, tmp_path / "here", only=("rs", "ncl"), seeds=(0, 1))
    assert counted == [("ncl", 0)]


def test_progress_counts_rows(counted, data, tmp_path):
    told = []
    run.benchmark(
        smoke(),
        data,
        tmp_path,
        only=("rs", "ncl"),
        seeds=(0,),
        progress=lambda stage, epochs, row: told.append((stage, epochs, row["epoch"])),
    )
    assert told == [("rows", 2, 0), ("rows", 2, 1), ("rows", 2, 2)]


def test_a_thinned_dataset_has_the_first_images_of_every_class_in_their_order(data):
    images = load_dataset("cifar10", data)
    few = run.thinned(images, 3)
    expected = []
    for row, label in enumerate(images.listing.labels.tolist()):
        if sum(images.listing.labels[kept] == label for kept in expected) < 3:
            expected.append(row)
    assert few.listing.names == tuple(images.listing.names[row] for row in expected)
    assert pd.Series(few.listing.labels.tolist()).value_counts().eq(3).all()
    assert run.thinned(images, None) is images


def test_the_command_of_a_row_is_one_that_the_command_line_takes():
    words = smoke().command("pairs+spacing:author", 2).split()
    _, bound, _ = app.parse_args(words[1:], exit_on_error=False, print_error=False)
    given = bound.arguments
    which = run.table(given["stages"], given["dataset"], given["split"], given["budget"])
    assert words[0] == app.name[0] == "newfound"
    assert (which, given["methods"], given["seeds"]) == (smoke(), ("pairs+spacing:author",), (2,))


# --- what is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("two-stages", "cifar10", None, "cpu"), r"'two-stages'.*two-stage, single-stage\. Did you mean two-stage\?"),
        (("two-stage", "cifar11", None, "cpu"), r"'cifar11'.*cifar10, cifar100\. Did you mean cifar10"),
        (("two-stage", "cifar10", None, "papers"), r"'papers'.*paper, cpu, hours, smoke\. Did you mean paper\?"),
        (("two-stage", "cifar100", "80-2", "cpu"), r"'80-2'.*80-20, 50-50, 20-80, 80-10\. Did you mean 80-20\?"),
        (("two-stage", "cifar100", "5-5", "cpu"), r"no split of cifar100 called '5-5'\. There are: 80-20"),
        (("two-stage", "cifar10", "80-20", "cpu"), r"no split of cifar10 called '80-20'\. There are: 5-5\."),
    ],
)
def test_an_unknown_word_is_refused_with_those_that_exist_and_the_nearest(words, said):
    with pytest.raises(InputError, match=said):
        run.table(*words)


def test_the_split_of_the_field_is_the_default():
    assert run.table("two-stage", "cifar10", None, "cpu").name == "two-stage-cifar10-5-5-cpu"
    assert run.table("single-stage", "cifar100", None, "paper").name == "single-stage-cifar100-80-20-paper"


def test_an_unknown_method_is_refused_with_those_that_exist_and_the_nearest():
    with pytest.raises(
        InputError, match=r"no method called 'spacin'.*kmeans, .*anchored:apart\. Did you mean spacing\?"
    ):
        run.names("two-stage", ["ncl+spacin"])


@pytest.mark.parametrize(
    ("stages", "name", "reason"),
    [
        ("single-stage", "kcl", "discovers in two stages only"),
        ("single-stage", "dtc+spacing", "discovers in two stages only"),
        ("two-stage", "rs-il", "needs labelled images while it discovers"),
        ("two-stage", "openmix+spacing", "needs labelled images while it discovers"),
    ],
)
def test_a_method_of_the_other_stages_is_refused_with_those_that_fit(stages, name, reason):
    with pytest.raises(InputError) as refused:
        run.names(stages, ["rs", name])
    said = str(refused.value)
    assert said.startswith(f"{name} {reason}; {stages} methods are: ")
    listed = said.removesuffix(".").split("methods are: ")[1].split(", ")
    unfit = "unused" if stages == "single-stage" else "needed"
    assert listed == [key for key, recipe in methods.METHODS.items() if recipe.labelled != unfit]


@pytest.mark.parametrize(("stages", "rows"), [("two-stage", TWO_STAGE), ("single-stage", SINGLE_STAGE)])
def test_the_default_rows_all_fit_their_table(stages, rows):
    assert run.names(stages) == [list(rows), list(CONTROLS[stages])]


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_without_a_folder_the_files_that_are_needed_are_named(dataset):
    with pytest.raises(InputError) as refused:
        run.locate_data(dataset, None)
    needed = {"cifar10": ("cifar-10-batches-py", "data_batch_5", "batches.meta"), "cifar100": ("cifar-100-python",)}
    for word in (*needed[dataset], "--data", "NEWFOUND_DATA", f"newfound data {dataset}"):
        assert word in str(refused.value)


def test_a_folder_without_cifar_is_told_which_files_it_lacks(tmp_path, counted):
    with pytest.raises(InputError, match=r"lacks data_batch_1, .*batches\.meta"):
        run.benchmark(smoke(), tmp_path, tmp_path / "results")
    assert not (tmp_path / "results").exists()
