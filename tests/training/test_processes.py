"""One and two processes agree."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.methods.names import distinct, staged, with_spacing
from tests.training import plain, uneven

pytestmark = pytest.mark.processes

SUMS = ["pairs:teacher+spacing:aligned", "pairs+spacing:paper", "pairs+spacing:author"]
CASES = [f"{name}:{1 if labelled else 2}" for name, labelled in staged([*distinct(), *with_spacing(), *SUMS])]
CASES += ["rotation:1"]


def run(script, processes, folder, *words):
    launch = [] if processes == 1 else ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    done = subprocess.run(
        [sys.executable, "-m", *launch, script.__name__, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """Folders of what one process and what two learnt."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    return [run(plain, count, folder, folder, *CASES) for count, folder in enumerate(folders, 1)]


@pytest.mark.parametrize("case", CASES)
def test_in_double_precision_two_processes_learn_what_one_does(learnt, case):
    one, first, second = (load_file(learnt[n] / f"{case}.{rank}.safetensors") for n, rank in ((0, 0), (1, 0), (1, 1)))
    assert one.keys() == first.keys() == second.keys()
    for key, value in one.items():
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-9, msg=lambda said, key=key: f"{key}: {said}")
        assert torch.equal(first[key], second[key]), f"{key} differs between the processes"


def test_in_single_precision_one_step_agrees(learnt):
    one, first = (load_file(folder / "step.0.safetensors") for folder in learnt)
    for key, value in one.items():
        assert value.dtype != torch.float64
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-5, msg=lambda said, key=key: f"{key}: {said}")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """What each of two processes has after a run that was stopped: nothing in it divides by two."""
    folder = run(uneven, 2, out := tmp_path_factory.mktemp("uneven"), out)
    return [load_file(folder / f"{rank}.safetensors") for rank in (0, 1)]


def test_two_processes_end_with_the_same_running_statistics(resumed):
    first, second = resumed
    running = [name for name in first if name.endswith(("running_mean", "running_var"))]
    assert len(running) == 2 * 2 * 17  # of both runs: the stem and four stages of two blocks of two
    assert all(first[name].std() > 0 for name in running)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), f"{name} differs between the processes"


def test_two_processes_that_were_stopped_end_as_if_they_had_not_been(resumed):
    for mine in resumed:
        states = [
            {name.removeprefix(run): tensor for name, tensor in mine.items() if name.startswith(run)}
            for run in ("whole.", "resumed.")
        ]
        assert states[0].keys() == states[1].keys() == uneven.make_learner().state_dict().keys()
        for name, tensor in states[0].items():
            assert torch.equal(tensor, states[1][name]), f"{name} is not what it was"


def test_a_survey_by_two_processes_has_every_image_once_and_in_order(resumed):
    learner, data = uneven.make_learner().eval(), uneven.make_data()
    learner.load_state_dict(
        {name.removeprefix("resumed."): tensor for name, tensor in resumed[0].items() if name.startswith("resumed.")}
    )
    with torch.no_grad():
        one_by_one = torch.cat([learner.backbone(image[None].float() / 255).z for image in data.pixels])
    for mine in resumed:
        assert mine["features"].shape == (63, 16)
        torch.testing.assert_close(mine["features"], one_by_one, rtol=1e-3, atol=1e-3)
        assert torch.equal(mine["labels"], data.labels)
