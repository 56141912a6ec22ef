"""What the pages claim is what the results say."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_commands_in_the_readme_exist():
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    words = set(re.findall(r"newfound (\w+)", " ".join(blocks)))
    assert {"demo", "pretrain", "discover", "predict"} <= words
    for word in words:
        source = (ROOT / "src/newfound/cli.py").read_text()
        assert re.search(rf"@app.command\ndef {word}\(", source), word


def test_no_page_or_source_names_an_absolute_path_of_a_machine():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, files):
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".json", ".yml"} and path.is_file() and path != Path(__file__):
            assert not re.search(r"(?<![\w/])/(?:home|root|work|Users)/", path.read_text(encoding="utf-8")), name


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
    assert re.search(r"\d+ new, estimated, of \d+ classes in all", done.stdout)
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
