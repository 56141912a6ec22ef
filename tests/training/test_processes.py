"""One and two processes agree."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.processes

TWO_STAGE = (
    "pairs",
    "pairs+spacing",
    "pairs+spacing:paper",
    "pairs+spacing:author",
    "spacing",
    "ncl",
    "uno",
    "simgcd",
    "dtc",
    "dtc:te",
    "dtc:tep",
    "kcl+spacing",
    "mcl",
)
SINGLE_STAGE = (
    *("pairs+spacing", "rs+spacing", "rs-il", "ncl", "ncl:plain", "uno", "dual"),
    *("openmix", "joint", "simgcd", "rotation"),
)
CASES = [*(f"{name}:2" for name in TWO_STAGE), *(f"{name}:1" for name in SINGLE_STAGE)]


def run(processes, folder, *words):
    launch = [] if processes == 1 else ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    done = subprocess.run(
        [sys.executable, "-m", *launch, "tests.training.plain", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """Folders of what one process and what two learnt, in double precision."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    return [run(count, folder, "float64", 2, folder, *CASES) for count, folder in enumerate(folders, 1)]


@pytest.mark.parametrize("case", CASES)
def test_in_double_precision_two_processes_learn_what_one_does(learnt, case):
    one, first, second = (load_file(learnt[n] / f"{case}.{rank}.safetensors") for n, rank in ((0, 0), (1, 0), (1, 1)))
    assert one.keys() == first.keys() == second.keys()
    for key, value in one.items():
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-9, msg=lambda said, key=key: f"{key}: {said}")
        assert torch.equal(first[key], second[key]), f"{key} differs between the processes"


def test_in_single_precision_one_step_agrees(tmp_path):
    case = "pairs+spacing:2"
    one, two = (tmp_path / name for name in ("one", "two"))
    for count, folder in enumerate((one, two), 1):
        folder.mkdir()
        run(count, folder, "float32", 1, folder, case)
    first = load_file(two / f"{case}.0.safetensors")
    for key, value in load_file(one / f"{case}.0.safetensors").items():
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-5, msg=lambda said, key=key: f"{key}: {said}")
