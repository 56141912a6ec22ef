"""torchvision, whole and broken: a stand-in that behaves so on every machine."""

import subprocess
import sys

import pytest

from newfound.vision import vision

MADE_FOR_ANOTHER_TORCH = """
import torch

@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold): ...

@torch.library.register_fake("torchvision::qnms")
def qnms(dets, scores, iou_threshold): ...
"""

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    import torchvision
except RuntimeError as error:
    print(error)
from newfound.vision import vision
for _ in "ab":
    assert vision("torchvision.datasets").__file__.startswith(sys.argv[1])
"""


def stand_in(folder, content):
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(content)
    (package / "datasets.py").touch()
    return str(folder)


@pytest.mark.processes
def test_a_torchvision_made_for_another_torch_is_imported_all_the_same(tmp_path):
    place = stand_in(tmp_path, MADE_FOR_ANOTHER_TORCH)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "operator torchvision::nms does not exist\n", "the stand-in must fail as the real one does"


@pytest.fixture
def gone(monkeypatch):
    """As if torchvision had not been imported yet."""
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_whole_torchvision_is_imported_as_it_is(gone, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(stand_in(tmp_path, ""))
    monkeypatch.setattr("torch.library.Library", lambda *_: pytest.fail("nothing is missing"))
    assert vision("torchvision.datasets").__file__ == str(tmp_path / "torchvision" / "datasets.py")


def test_any_other_failure_is_told_as_it_is(gone, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(stand_in(tmp_path, 'raise RuntimeError("the driver is too old")'))
    monkeypatch.setattr("torch.library.Library", lambda *_: pytest.fail("no operator is missing"))
    with pytest.raises(RuntimeError, match="the driver is too old"):
        vision("torchvision.datasets")
