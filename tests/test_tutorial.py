"""The tutorial, done as it is told: its commands on two folders of drawings, from discovering to a table."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

from newfound.discovery.result import Discovery
from newfound.review.server import PAGE as SERVED
from tests.commands import hear_ctrl_c, newfound
from tests.data.pictures import write_doodles
from tests.test_docs import ROOT, commands

PAGE = ROOT / "docs/tutorial.md"


def review(words: list[str], folder: Path) -> None:
    """What a person does at step 4, by the requests that the page makes for it; then Ctrl-C."""
    line = [sys.executable, "-m", "newfound", *words, "--no-open"]
    ways = {"stdout": subprocess.PIPE, "text": True, "env": os.environ | {"RANK": "0"}, "preexec_fn": hear_ctrl_c}
    server = subprocess.Popen(line, cwd=folder, **ways)
    assert server.stdout is not None
    address, _, token = server.stdout.readline().split()[-1].partition("#token=")
    headers = {"X-Newfound-Token": token, "Content-Type": "application/json"}
    ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    number = Discovery.load(folder / "run").classes.number("new-1")
    for seen, said in enumerate(({"action": "rename", "name": "vehicle"}, {"action": "accept"})):
        body = json.dumps(said | {"number": number, "seen": seen}).encode()
        with ask(urllib.request.Request(f"{address}api/edits", body, headers), timeout=120) as answer:
            assert json.load(answer)["length"] == seen + 1
    server.send_signal(signal.SIGINT)
    rest = server.communicate()[0]
    assert server.returncode == 0
    assert "Tables and report" in rest


@pytest.mark.processes
def test_the_tutorial_leads_from_two_folders_to_named_classes(tmp_path, monkeypatch):
    write_doodles(tmp_path / "photos/known", range(3), 12)
    write_doodles(tmp_path / "photos/new", range(1, 6), 12, first=30)
    write_doodles(tmp_path / "photos/more", range(1, 6), 2, first=60)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    told = [shlex.split(line)[1:] for line in commands(text)]
    assert [words[0] for words in told] == ["discover", "review", "export", "export", "predict"]
    for words in told:
        if words[0] == "review":
            review(words, tmp_path)
        else:
            done = newfound(*words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    table = pd.read_csv("classes.csv")
    assert {*table[table["class"] == "vehicle"]["identified_by"]} == {"Ana"}
    assert len([*Path("sorted/vehicle").iterdir()]) == (table["class"] == "vehicle").sum() > 0
    assert len(pd.read_csv("more.csv")) == 10
    assert "vehicle" in Path("run/classes.csv").read_text()
    assert Path("run/report.html").is_file()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert len(names["table"]) == 60


@pytest.mark.parametrize("page", ["tutorial.md", "review.md"])
def test_every_key_that_a_page_names_is_one_that_the_review_page_takes(page):
    script = (SERVED / "main.js").read_text(encoding="utf-8")
    taken = {*re.findall(r'"?([\w?/+=-])"?: "\w+"', script[script.index("const KEYS") : script.index("const HELP")])}
    named = {*re.findall(r"`((?:Shift )?[A-Z?])`", (ROOT / "docs" / page).read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert {key.removeprefix("Shift ") if "Shift" in key else key.lower() for key in named} <= taken
