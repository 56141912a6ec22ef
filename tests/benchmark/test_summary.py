"""Results as people read them."""

import json
import runpy
import statistics
from pathlib import Path

import pandas as pd
import pytest

from newfound.benchmark import summary
from newfound.benchmark.published import CONTROLS, SINGLE_STAGE, TWO_STAGE
from newfound.benchmark.results import read
from newfound.methods import METHODS

ROOT = Path(__file__).parents[2]


def row(method, seed, **accuracy):
    """A row whose NMI is half its accuracy, on test images a quarter."""
    train = {reading: {"accuracy": a, "nmi": a / 2} for reading, a in accuracy.items()}
    test = {reading: {"accuracy": a / 2, "nmi": a / 4} for reading, a in accuracy.items()}
    about = {"seconds": 60.0 * (seed + 1), "stage one seconds": 30.0, "epochs": 3, "memory": 100 + seed}
    apart = {"before": {"silhouette": 0.1, "scatter": 1.0}, "after": {"silhouette": 0.1 * seed, "scatter": 2.0}}
    return {"method": method, "seed": seed, "train": train, "test": test, "separation": apart} | about


RESULTS = {
    "setting": {"stages": "two-stage", "split": "5-5"},
    "rows": [
        row("pairs+spacing:aligned", 0, head=0.8, units=0.9),
        row("pairs", 0, head=0.7),
        row("pairs+spacing:aligned", 1, head=0.6, units=0.7),
        row("pairs+spacing:aligned", 2, head=0.7, units=0.5),
        row("pairs", 1, head=0.6),
        row("pairs", 2, head=0.4),
    ],
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(RESULTS))
    return path


def test_a_table_in_markdown_has_every_cell_as_it_is_written_and_without_rows_says_so():
    rows = [[1, None], [0.5, ""]]
    assert summary.markdown(("a", "b"), rows) == "| a | b |\n|---|---|\n| 1 | None |\n| 0.5 |  |"
    assert summary.markdown(["", "b"], rows).startswith("| | b |\n|---|---|\n")
    assert summary.markdown(pd.DataFrame({"a": [1]}), [[1]]) == "| a |\n|---|\n| 1 |"
    assert summary.markdown(("a", "b"), []) == "Not run yet."
    assert summary.markdown(("a", "b"), [], "None.") == "None."


def test_flat_is_one_row_a_method_seed_and_reading():
    table = summary.flat(RESULTS)
    assert len(table) == 9
    one = table[(table["method"] == "pairs+spacing:aligned") & (table["seed"] == 1) & (table["reading"] == "units")]
    assert one["accuracy"].item() == 0.7
    assert summary.flat(RESULTS, "test")["accuracy"].tolist() == pytest.approx((table["accuracy"] / 2).tolist())


def test_flat_of_nothing_has_its_columns():
    assert list(summary.flat({"rows": []})) == list(summary.flat(RESULTS))


def test_a_summary_is_mean_and_deviation_over_seeds_with_the_published_number_beside(path):
    table = summary.summary(path)
    assert list(zip(table["method"], table["reading"], strict=True)) == [
        ("pairs+spacing:aligned", "head"),
        ("pairs+spacing:aligned", "units"),
        ("pairs", "head"),
    ]
    head = table.iloc[0]
    values = [80, 60, 70]
    assert head["accuracy"] == f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
    assert head["NMI"] == "0.350 ± 0.050"
    assert head["seeds"] == 3
    given = TWO_STAGE["pairs+spacing:aligned"][1]["5-5"]
    assert head["published"] == f"{given.accuracy} / {given.nmi} (Spacing Loss)"
    assert table.iloc[2]["published"] == ""


def test_one_seed_has_no_deviation():
    assert summary.spread(pd.Series([0.51234]), 3) == "0.512"
    assert summary.spread(pd.Series([0.5, 0.7]), 2) == "0.60 ± 0.14"


def test_a_split_that_was_not_published_has_nothing_beside(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(RESULTS | {"setting": {"stages": "two-stage", "split": "80-10"}}))
    assert set(summary.summary(tmp_path / "r.json")["published"]) == {""}


def test_gains_are_paired_by_seed_within_one_reading():
    differences = [0.1, 0.0, 0.3]
    pairs = summary.paired(RESULTS, "pairs+spacing:aligned", "pairs", "head")
    assert pairs["accuracy"].tolist() == pytest.approx(differences)
    assert pairs["nmi"].tolist() == pytest.approx([d / 2 for d in differences])
    assert summary.paired(RESULTS, "pairs+spacing:aligned", "pairs", "units").empty


def test_an_interval_is_students_of_the_mean_difference():
    mean, half = 2.0, 4.302652729911275 * 1.0 / 3**0.5  # t with 2 degrees of freedom at 97.5 %, deviation 1
    expected = f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"
    assert summary.interval(pd.Series([1.0, 2.0, 3.0]), 2) == expected
    assert summary.interval(pd.Series([1.0, 2.0]), 1) == "+1.5"


def line(table, *cells):
    """The one line of a Markdown table that begins with these cells, as cells."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    (found,) = [line for line in lines if tuple(line[: len(cells)]) == cells]
    return found


def test_a_comparison_has_a_line_a_published_row_then_the_controls_and_says_what_was_not_run():
    table = summary.comparison(RESULTS)
    assert line(table, "Spacing Loss (`pairs+spacing:aligned`)")[1:] == [
        "90.5 / 0.787",
        "70.0 ± 10.0 / 0.350 ± 0.050",
        "",
        "",
        "3",
    ]
    assert line(table, "`pairs`")[1:] == ["", "56.7 ± 15.3 / 0.283 ± 0.076", "", "", "3"]
    assert line(table, "`pairs+spacing:dcn`")[1:] == ["", "", "", "", "not run"]
    assert line(table, "KCL (`kcl`)")[-1] == "not run"
    assert len(table.splitlines()) == 2 + len(TWO_STAGE) + len(CONTROLS["two-stage"])


def test_a_row_that_no_table_of_the_paper_has_comes_last():
    more = RESULTS | {"rows": [row("simgcd", 0, head=0.5), *RESULTS["rows"]]}
    assert summary.comparison(more).splitlines()[-1] == "| `simgcd` |  | 50.0 / 0.250 |  |  | 1 |"


def test_the_published_table_is_the_comparison_without_rows_that_no_table_has():
    more = RESULTS | {"rows": [row("simgcd", 0, head=0.5), *RESULTS["rows"]]}
    assert summary.published(more).splitlines() == summary.comparison(more).splitlines()[:-1]
    assert summary.published(RESULTS) == summary.comparison(RESULTS)


@pytest.mark.parametrize("part", ["comparison", "published", "gains", "separation", "costs"])
def test_a_page_asks_for_each_table_by_its_name(part):
    tables = runpy.run_path(str(ROOT / "scripts/tables.py"))
    name = "two-stage-cifar10-5-5-cpu"
    table = getattr(summary, part)(read(ROOT / f"results/{name}.json"))
    page = f"<!-- {part} {name} -->\n{{}}<!-- end -->\n"
    assert tables["filled"](page.format("stale\n")) == page.format(f"{table}\n")


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("pairs+spacing", "pairs"),
        ("ncl:plain+spacing:dcn", "ncl:plain"),
        ("spacing:author", None),
        ("spacing", None),
        ("pairs", None),
        ("kmeans", None),
    ],
)
def test_a_name_says_which_method_spacing_was_added_to(name, host):
    assert summary.host_of(name) == host


def test_gains_are_given_for_every_reading_that_both_have():
    assert line(summary.gains(RESULTS), "`pairs+spacing:aligned`", "`pairs`", "head")[3:] == [
        "+13.3 [-24.6, +51.3]",
        "+0.067 [-0.123, +0.256]",
        "3",
    ]
    assert len(summary.gains(RESULTS).splitlines()) == 3
    assert summary.gains({"rows": [row("pairs", 0, head=0.5)]}).startswith("No row")


def test_separation_and_costs_are_means_over_seeds():
    assert line(summary.separation(RESULTS), "`pairs`")[1:] == [
        "0.100 ± 0.000",
        "0.100 ± 0.100",
        "1.000 ± 0.000",
        "2.000 ± 0.000",
        "3",
    ]
    assert line(summary.costs(RESULTS), "`pairs+spacing:aligned`")[1:] == ["3", "2.0", "0.5", "102"]


def test_memory_that_was_not_measured_is_left_out():
    unmeasured = [row("pairs", 0, head=0.5), row("pairs", 1, head=0.5), row("rs", 0, head=0.5)]
    unmeasured[0]["memory"] = unmeasured[2]["memory"] = None
    costs = summary.costs({"rows": unmeasured})
    assert line(costs, "`pairs`")[-1] == "101"
    assert line(costs, "`rs`")[-1] == ""


def test_the_list_of_methods_has_every_one_and_says_which_are_from_a_description():
    table = summary.listing().set_index("method")
    assert list(table.index) == list(METHODS)
    described = {name for name, paper in table["paper"].items() if "from description" in paper}
    assert described == {"openmix", "joint", "frozen", "ncdwf"}
    assert table.loc["rs", "stages"] == "one or two"
    assert table.loc["kcl", "stages"] == "two"
    assert table.loc["rs-il", "stages"] == "one"
    assert table.loc["openmix", "needs"] == "labelled images, pixels"
    assert table.loc["pairs", "needs"] == "latents"
    assert table.loc["rs", "before"] == "rotation, supervised"
    assert table["reading"].tolist() == [recipe.reading for recipe in METHODS.values()]


def test_spacing_gains_in_every_published_column():
    """A slip of the pen in the tables would show: the paper's rows with Spacing are above their hosts."""
    for host in ("rs", "ncl"):
        for split, published in SINGLE_STAGE[host][1].items():
            with_spacing = SINGLE_STAGE[f"{host}+spacing:aligned"][1][split]
            assert with_spacing.accuracy > published.accuracy
            assert with_spacing.nmi > published.nmi
    for split in ("5-5", "80-20"):
        best = max(TWO_STAGE, key=lambda name: TWO_STAGE[name][1][split].accuracy)
        assert best == "pairs+spacing:aligned"
