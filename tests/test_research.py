"""The researcher's page: its code runs as it stands there, her own loss among the rest."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/research.md"
RUN = "import runpy, sys; [runpy.run_path(path, run_name='__main__') for path in sys.argv[1:]]"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.processes
def test_every_file_that_the_page_shows_runs_and_her_loss_finds_more_than_k_means(tmp_path):
    shown = blocks()
    assert len(shown) == 3
    paths = [tmp_path / f"{number}.py" for number in range(len(shown))]
    for path, text in zip(paths, shown, strict=True):
        path.write_text(text, encoding="utf-8")
    environment = os.environ | {"NEWFOUND_CACHE": str(tmp_path / "cache")}
    line = [sys.executable, "-c", RUN, *map(str, paths)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    found = {name: float(share) for name, share in re.findall(r"^(\S+) +([\d.]+)%$", done.stdout, re.MULTILINE)}
    assert [*found] == ["kmeans", "contrast", "contrast+spacing"]
    assert min(found["contrast"], found["contrast+spacing"]) > found["kmeans"] + 5
    assert [*found] == re.findall(r"^([\w+]+) +[\d.]+%$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_her_loss_is_one_file_that_changes_nothing_of_the_package():
    code = blocks()[0]
    assert code.count("class ") == 1
    assert "forward" in code
    assert not re.search(r"^\s*(?:sys\.path|setattr|newfound\.\w+\s*=)", code, re.MULTILINE)
