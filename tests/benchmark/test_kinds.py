"""Every kind of table takes its own flags, and says so of the others before any work."""

import pytest

from newfound.benchmark.kinds import TAKES, check_flags
from newfound.errors import InputError
from tests.commands import newfound

FLAGS = {
    "dataset": "cifar10",
    "split": "5-5",
    "methods": "rs",
    "parts": "doodles",
    "budget": "cpu",
    "keep": "kept",
    "backbone": "efficientnet-lite0",
}
"""Each flag of `newfound benchmark` that not all kinds take, with a word that it may have."""


OF_PAPER = ("dataset", "split", "methods", "budget", "keep", "backbone")
REFUSED = {
    "two-stage": ("parts", "backbone"),
    "single-stage": ("parts", "backbone"),
    "continual": ("parts", "keep"),
    "evidence": OF_PAPER,
    "review": OF_PAPER,
    "continue": OF_PAPER,
}
"""What would do nothing."""


def test_a_kind_takes_all_flags_but_those_that_would_do_nothing():
    assert {kind: {*takes} for kind, takes in TAKES.items()} == {
        kind: FLAGS.keys() - {*refused} for kind, refused in REFUSED.items()
    }
    for kind, takes in TAKES.items():
        check_flags(kind, takes)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(InputError, match=r"review takes --parts .* and not --dataset --keep: leave that out\."):
        check_flags("review", ["dataset", "parts", "keep"])


@pytest.mark.parametrize("kind", [kind for kind, takes in TAKES.items() if "dataset" in takes])
def test_a_table_without_a_dataset_is_refused_with_those_that_there_are(kind):
    with pytest.raises(InputError, match=f"{kind} was given no dataset.*--dataset cifar10 or --dataset cifar100"):
        check_flags(kind, ["budget"])


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, refused in REFUSED.items() for name in refused])
def test_the_command_refuses_it_before_any_work_though_it_is_the_default(kind, name, tmp_path):
    done = newfound("benchmark", kind, f"--{name}", FLAGS[name], "--seeds", 0, cwd=tmp_path)
    assert done.returncode == 2
    takes = " ".join(f"--{each}" for each in (*TAKES[kind], "seeds", "data", "output"))
    assert f"newfound benchmark {kind} takes {takes}, and not --{name}: leave that out." in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_the_command_refuses_a_kind_that_there_is_not_with_all_that_there_are(tmp_path):
    done = newfound("benchmark", "evidences", cwd=tmp_path)
    assert done.returncode == 2
    assert f"There are: {', '.join(TAKES)}. Did you mean evidence?" in done.stderr
