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


@pytest.mark.parametrize("kind", TAKES)
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_a_kind_does_not_take_is_refused_and_one_that_it_takes_is_not(kind, name):
    if name in TAKES[kind]:
        check_flags(kind, [name])
        return
    with pytest.raises(InputError) as refused:
        check_flags(kind, [*TAKES[kind], name])
    takes = " ".join(f"--{each}" for each in (*TAKES[kind], "seeds", "data", "output"))
    assert str(refused.value) == f"newfound benchmark {kind} takes {takes}, and not --{name}: leave that out."


def test_every_flag_is_taken_by_some_kind_and_refused_by_another():
    for name in FLAGS:
        assert 0 < sum(name in takes for takes in TAKES.values()) < len(TAKES)
    assert {name for takes in TAKES.values() for name in takes} == FLAGS.keys()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, takes in TAKES.items() for name in FLAGS if name not in takes]
)
def test_the_command_refuses_it_before_any_work_though_it_is_the_default(kind, name, tmp_path):
    done = newfound("benchmark", kind, f"--{name}", FLAGS[name], "--seeds", 0, cwd=tmp_path)
    assert done.returncode == 2
    assert f"newfound benchmark {kind} takes --" in done.stderr
    assert f"and not --{name}: leave that out." in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_the_command_refuses_a_kind_that_there_is_not_with_all_that_there_are(tmp_path):
    done = newfound("benchmark", "evidences", cwd=tmp_path)
    assert done.returncode == 2
    assert f"There are: {', '.join(TAKES)}. Did you mean evidence?" in done.stderr
