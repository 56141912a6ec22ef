"""Killed at any write, every command goes on to the bytes of a run that nobody killed.

A write is a sync, a rename or a removal. Whoever is killed at one does nothing more: what lies on the disk stays there.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from newfound import Discovery, discover, files, pretrain, rediscover
from newfound.cli import predict
from newfound.discovery import result
from newfound.discovery.settings import Run, StageOne
from newfound.networks.resnet import OWN
from newfound.vision import vision
from tests.commands import newfound
from tests.data.pictures import write_doodles

OURS = StageOne(backbone=OWN, size=8, width=1, pretrain_epochs=1)
RUN = Run(method="pairs+spacing:aligned", epochs=1, batch=8, device="cpu")
EXCEPT = {"log.txt", ".edits.jsonl.lock"}
"""What says what was done, when and how often, and what is empty; all else is the same to the byte."""


@contextmanager
def witnessed(seen):
    """Calls `seen` before every write: what it finds on the disk is what a kill would leave there."""

    def watched(write):
        def then(*given, **how):
            seen()
            return write(*given, **how)

        return then

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", watched(os.fsync))
        for name in ("replace", "rename", "unlink"):
            patch.setattr(Path, name, watched(getattr(Path, name)))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders of drawings, a pretrained network in a file, and a model; clocks stand still, and pages are short."""
    root = tmp_path_factory.mktemp("killed")
    write_doodles(root / "known", range(3), each=6)
    write_doodles(root / "new", range(3, 5), each=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        patch.setattr(time, "perf_counter", lambda: 0.0)
        patch.setattr(result, "render_report", lambda now: str(now.names))
        patch.setattr("newfound.discovery.howmany.MOST", 4)
        torch.manual_seed(0)
        network = vision("timm").create_model("test_resnet")
        files.write_tensors(root / "net.safetensors", network.state_dict())
        pretrain(root / "known", output=root / "model", stage=OURS, device="cpu")
        discover(unlabelled=root / "new", model=root / "model", classes=2, run=RUN, output=root / "run")
        reviewed = Discovery.load(root / "run", by="Ana")
        reviewed.accept(
            reviewed.classes.numbers[-1], images=reviewed.classes.rows(reviewed.classes.numbers[-1])[:2].tolist()
        )
        reviewed.move([0, 1, 2], reviewed.classes.numbers[-2])
        reviewed.set_aside([5])
        reviewed.save(root / "reviewed")
        yield root


THEIRS = {"backbone": "test_resnet", "size": 32}
COMMANDS = {
    "pretrain": lambda at, how: pretrain(at / "known", stage=OURS, similarity=True, device="cpu", **how),
    "discover": lambda at, how: discover(
        unlabelled=at / "new", known=at / "known", classes=2, run=RUN, stage=OURS, **how
    ),
    "discover with a model": lambda at, how: discover(
        unlabelled=at / "new", model=at / "model", classes=2, run=RUN, **how
    ),
    "discover with a pretrained backbone": lambda at, how: discover(
        unlabelled=at / "new",
        known=at / "known",
        classes=2,
        run=RUN,
        stage=StageOne(weights=str(at / "net.safetensors"), **THEIRS),
        **how,
    ),
    "discover with answers": lambda at, how: rediscover(at / "reviewed", command="same", **how),
    "discover and count": lambda at, how: discover(unlabelled=at / "new", model=at / "model", run=RUN, **how),
}


def content(folder):
    """The bytes of every file, by name."""
    there = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in there.items() if name not in EXCEPT}


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_any_write_it_resumes_to_the_same_bytes(place, tmp_path, monkeypatch, command):
    lives = []

    def die():
        lives.append(tmp_path / str(len(lives)))
        shutil.copytree(tmp_path / "whole", lives[-1])

    (tmp_path / "whole").mkdir()
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "whole" / "cache"))
    with witnessed(die):
        COMMANDS[command](place, {"output": tmp_path / "whole" / "run"})
    expected = content(tmp_path / "whole" / "run")
    assert len(lives) >= 2 * len(expected)
    for life in lives:
        monkeypatch.setenv("NEWFOUND_CACHE", str(life / "cache"))
        COMMANDS[command](place, {"output": life / "run", "resume": True})
        assert content(life / "run") == expected, f"killed at write {life.name}"


def test_killed_at_any_write_a_prediction_is_made_again(place, tmp_path):
    left = []
    with witnessed(lambda: left.append(content(tmp_path))):
        predict(place / "run", place / "new", output=tmp_path / "new.csv")
    expected = content(tmp_path)
    assert list(expected) == ["new.csv"]
    assert len(left) >= 2
    for number, there in enumerate(left):
        folder = tmp_path / str(number)
        for name, found in there.items():
            files.write(folder / name, found)
        predict(place / "run", place / "new", output=folder / "new.csv", overwrite="new.csv" in there)
        assert content(folder)["new.csv"] == expected["new.csv"]


PROGRAM = """
import os, signal, sys
from newfound.cli import main
syncs, sync = [], os.fsync
def last(handle):
    syncs.append(handle)
    if os.path.exists("model/model.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    sync(handle)
os.fsync = last
main()
"""


@pytest.mark.processes
def test_a_model_that_was_really_killed_before_it_forgot_its_images_forgets_them_when_it_is_resumed(place, tmp_path):
    words = ["pretrain", "--known", place / "known", "-o", "model", "--pretrain-epochs", 1, "--size", 8, "--width", 1]
    killed = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, words)], cwd=tmp_path, check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert str(place) in (tmp_path / "model" / "config.toml").read_text()
    done = newfound(*words, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not any(str(place).encode() in found for found in content(tmp_path / "model").values())
    assert sorted(content(tmp_path / "model")) == sorted(content(place / "model"))
