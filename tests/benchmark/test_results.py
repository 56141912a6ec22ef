"""The results in the repository: whole, and of one piece."""

from collections import defaultdict
from pathlib import Path

import pytest

from newfound import methods
from newfound.benchmark import run
from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.stages import origin_of
from newfound.benchmark.summary import read

FILES = sorted((Path(__file__).parents[2] / "results").glob("*-stage-*-cpu.json"))
by_file = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


def test_there_are_results_of_both_tables():
    assert {path.name.split("-stage-")[0] for path in FILES} == {"single", "two"}


@by_file
def test_more_rows_can_be_added_to_results(path):
    setting = read(path)["setting"]
    table = run.table(setting["stages"], setting["dataset"], setting["split"], setting["budget"])
    run.Results(path).claim(table.setting(), BUDGETS["cpu"])
    assert path.stem == table.name


@by_file
def test_rows_of_one_seed_that_share_a_start_began_with_the_same_latents(path):
    results = read(path)
    labelled = results["setting"]["stages"] == "single-stage"
    starts = defaultdict(dict)
    for row in results["rows"]:
        name = row["method"]
        seen = methods.parse(name).pixels  # who does not need images sees their maps, kept in half precision
        starts[row["seed"], origin_of(name, labelled=labelled), seen][name] = row["separation"]["before"]
    assert max(map(len, starts.values())) > 1
    for start, before in starts.items():
        assert len({tuple(values.items()) for values in before.values()}) == 1, (start, before)
