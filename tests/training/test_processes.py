"""One and two processes agree."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.processes
NAMES = ["pairs", "pairs+spacing", "pairs+spacing:paper", "pairs+spacing:author"]


def run(processes, folder, *words):
    folder.mkdir()
    launch = [] if processes == 1 else ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    done = subprocess.run(
        [sys.executable, "-m", *launch, "tests.training.plain", *map(str, words), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [load_file(folder / f"{rank}.safetensors") for rank in range(processes)]


@pytest.mark.parametrize(("name", "labelled"), [(name, False) for name in NAMES] + [("pairs+spacing", True)])
def test_in_double_precision_two_processes_learn_what_one_does(tmp_path, name, labelled):
    (one,) = run(1, tmp_path / "one", name, labelled, "float64", 2)
    first, second = run(2, tmp_path / "two", name, labelled, "float64", 2)
    for key, value in one.items():
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-9, msg=key)
        assert torch.equal(first[key], second[key]), f"{key} differs between the processes"


def test_in_single_precision_one_step_agrees(tmp_path):
    (one,) = run(1, tmp_path / "one", "pairs+spacing", False, "float32", 1)
    first, _ = run(2, tmp_path / "two", "pairs+spacing", False, "float32", 1)
    for key, value in one.items():
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-5, msg=key)
