"""What the pages claim is what the results say."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cyclopts import CycloptsError

import newfound
from newfound import Discovery, Listing, Model
from newfound.cli import app
from newfound.discovery.journal import EDITS
from newfound.discovery.storage import (
    ASSIGNMENTS,
    CLASSES,
    CONFIG,
    DISCOVERY,
    HISTORY,
    LOG,
    MODEL,
    REPORT,
    TENSORS,
)
from newfound.discovery.trace import TRACE
from newfound.networks.adapter import Adapter
from newfound.types import seeded
from tests.discovery.made import make_found
from tests.needs import need

ROOT = Path(__file__).parents[1]


def load_tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "scripts/tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_is_made_from_the_results():
    tables = load_tables()
    for page in tables.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "<!-- end -->" in text
        assert tables.filled(text) == text, f"{page} is stale: run python scripts/tables.py"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *sorted(map(str, (ROOT / "docs").rglob("*.md")))])
def test_every_relative_link_leads_somewhere(page):
    path = ROOT / page
    for link in re.findall(r"\]\(([^)#]+?)\)", path.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (path.parent / link).exists(), f"{page}: {link}"


def commands(text):
    """Every command of ours that a page shows whole: lines of blocks, and those in a sentence that have words after
    their name.
    """
    blocks = re.findall(r"^newfound .*$", "\n".join(re.findall(r"```\n(.*?)```", text, re.DOTALL)), re.MULTILINE)
    inline = re.findall(r"`(newfound \w+ [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [part for line in [*blocks, *inline] for part in re.split(r" && |\s+#.*", line) if part]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_every_command_on_a_page_is_understood(page):
    for line in commands((ROOT / page).read_text(encoding="utf-8")):
        words = shlex.split(line)[1:]
        app.meta.parse_args(words, exit_on_error=False, print_error=False)
        if "--config" in words:
            continue
        command, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
        assert command.__name__ == words[0], line


def test_what_the_robot_does_again_and_again_may_replace_what_it_wrote_before():
    shown = [line.split() for line in commands((ROOT / "docs/robot.md").read_text(encoding="utf-8"))]
    again = [words for words in shown if words[1] in ("discover", "learn", "predict")]
    assert len(again) == 3
    assert all("--overwrite" in words for words in again)


def test_the_readme_shows_the_commands_that_people_begin_with():
    shown = {line.split()[1] for line in commands((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {"pretrain", "discover", "predict", "benchmark"} <= shown


def examples(page, word):
    """The blocks of Python on a page in which a word stands."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if word in block]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The discovery that the pages speak of: crabs, no eels, three new classes; its run folder lies at hand."""
    with seeded("pages"):
        model = Model(Adapter(4, 2), 28, 1, ("crab", "eel"))
    names = [f"dive7/{row:04}.jpg" for row in range(44)]
    found = make_found(known=("crab", "eel"), model=model, listing=Listing.of(names, root=tmp_path))
    run = Discovery(found)
    run.save(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return run


def test_the_guide_s_example_of_edits_runs_and_does_what_it_says(made, tmp_path):
    (code,) = examples("docs/guide.md", "run.undo")
    names: dict[str, Any] = {}
    exec(code, names)
    run, table = names["run"], pd.read_csv(tmp_path / "classes.csv").set_index("path")
    assert [*run.summary()["class"]] == ["crab", "sea pen", "new-2", "squid"]
    assert [*table["class"][["dive7/0001.jpg", "dive7/0008.jpg", "dive7/0002.jpg"]]] == ["crab", "squid", "set aside"]
    assert {*table["identified_by"]} == {"newfound", "Ana"}
    assert len((tmp_path / "run/edits.jsonl").read_text().splitlines()) == len(run.edits) == 8
    assert [*Discovery.load("run").assignments()["class"]] == [*table["class"]]
    assert made.classes.names.keys() == {1, 2, 3, 4, 5}


def test_the_readme_s_example_runs(made, tmp_path, monkeypatch):
    (code,) = examples("README.md", "run.undo")
    shutil.rmtree(tmp_path / "run")
    asked = []
    monkeypatch.setattr(newfound, "discover", lambda **given: Discovery(made.found), raising=False)
    monkeypatch.setattr(Discovery, "predict", lambda run, images: asked.append(images))
    exec(code, {})
    assert [*Discovery.load("run3").summary()["class"]] == ["crab", "sea pen", "new-2"]
    assert asked == ["photos/more"]


def test_the_guide_names_every_file_of_a_run_and_every_column(made, tmp_path):
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    files = {CONFIG, LOG, DISCOVERY, TENSORS, f"{MODEL}/", ASSIGNMENTS, CLASSES, HISTORY, REPORT, TRACE, EDITS}
    columns = {*made.assignments(), *made.summary()}
    assert {name for name in files | columns if f"`{name}`" not in text} == set()


def test_a_command_that_is_misspelt_would_be_noticed():
    (line,) = commands("```\nnewfound discover --unlabeled x -o y  # so\n```")
    with pytest.raises(CycloptsError):
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_no_page_or_source_names_an_absolute_path_of_a_machine():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, files):
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".json", ".yml"} and path.is_file() and path != Path(__file__):
            assert not re.search(r"(?<![\w/])/(?:home|root|work|Users|tmp)/", path.read_text(encoding="utf-8")), name


@pytest.mark.processes
def test_the_notebook_is_its_script_executed_and_the_script_runs(tmp_path):
    script, notebook = ROOT / "docs/notebook.py", json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))
    cells = re.split(r"^# %%(?: \[markdown\])?\n", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(cells) == len(notebook["cells"])
    for text, cell in zip(cells, notebook["cells"], strict=True):
        lines = "".join(cell["source"])
        said = text.strip() if cell["cell_type"] == "code" else re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)
        assert lines == said, "docs/notebook.ipynb is stale: run make docs"
        assert all(output["output_type"] != "error" for output in cell.get("outputs", ()))
    assert sum(bool(cell.get("outputs")) for cell in notebook["cells"]) >= 4
    caches = {"NEWFOUND_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=os.environ | caches, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ new, estimated \(\d+ to \d+; ", done.stdout)
    assert len(list(tmp_path.rglob("assignments.csv"))) == 1


@pytest.mark.processes
def test_the_script_on_clip_art_goes_from_pictures_to_its_table(tmp_path):
    need(Path("/usr/share/openclipart/png").is_dir(), "Debian's openclipart-png is not installed")
    small = "--splits", "1", "--seeds", "1", "--most", "10", "--epochs", "1", "--output", str(tmp_path / "small.json")
    caches = {"NEWFOUND_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    line = [sys.executable, ROOT / "docs/clipart.py", *small]
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | caches, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "small.json").read_text())["rows"]
    assert {row["row"] for row in rows} >= {"k-means", "no training", "one stage", "two stages", "estimated"}
    for row in rows:
        assert 1 / 16 < row["all"] < 1
        assert (
            row["with labelled"] > row["all"] or row["row"] == "k-means"
        )  # labelled pictures are held in their classes
    assert "Two stages minus one: " in done.stdout
