"""Files of results: what is added, asked and refused; and those in the repository, whole and of one piece."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from newfound import methods
from newfound.benchmark import run
from newfound.benchmark.results import add, check_setting, has, read
from newfound.benchmark.stages import origin_of
from newfound.errors import InputError

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(RESULTS.rglob("*-stage-*-cpu.json"))
by_file = pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])

INDENTED = [*FILES, *sorted(RESULTS.glob("continual-*.json")), *sorted(RESULTS.glob("evidence-*.json"))]
IN_LINES = [*sorted(RESULTS.glob("review-*.json")), RESULTS / "continue.json"]
BY = ("method", "seed")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    return tmp_path


def row(method, seed=0, **more):
    return {"method": method, "seed": seed, **more}


def test_where_there_is_no_file_there_are_no_rows(tmp_path):
    assert read(tmp_path / "r.json") == {"setting": None, "rows": []}
    assert not has(tmp_path / "r.json", row("rs"))


def test_two_who_add_rows_lose_none_and_double_none(tmp_path):
    path = tmp_path / "new" / "r.json"
    for name in ("rs", "ncl", "uno", "rs"):
        add(path, {"budget": "smoke"}, [row(name, train={})], BY)
    assert [row["method"] for row in read(path)["rows"]] == ["rs", "ncl", "uno"]
    assert has(path, row("uno"))
    assert not has(path, row("uno", 1))


def test_rows_that_no_longer_count_are_not_there_and_go_when_others_are_added(tmp_path):
    path, current = tmp_path / "r.json", lambda row: row["rule"] == "new"
    add(path, {}, [row("rs", rule="old"), row("ncl", rule="new")], BY)
    assert has(path, row("rs"))
    assert not has(path, row("rs"), current)
    assert has(path, row("ncl"), current)
    add(path, {}, [row("rs", rule="new")], BY, current=current)
    assert read(path)["rows"] == [row("ncl", rule="new"), row("rs", rule="new")]


def test_rows_stand_as_they_came_or_each_in_a_line_by_what_tells_them_apart(tmp_path):
    rows = [row("rs", 1), row("ncl", 1), row("rs", 0)]
    for lines, expected in ((False, rows), (True, [rows[1], rows[2], rows[0]])):
        path = tmp_path / f"{lines}.json"
        for each in rows:
            add(path, {"λ": {"deep": 1}}, [each], BY, lines=lines)
        assert read(path) == {"setting": {"λ": {"deep": 1}}, "rows": expected}
        assert all((json.dumps(each) in path.read_text(encoding="utf-8")) == lines for each in rows)


def compare(row):
    return [f"training of {row['method']}"] if row["training"] else []


def test_results_of_another_setting_are_refused_and_each_difference_is_named_once(tmp_path):
    path = tmp_path / "r.json"
    check_setting(path, {"a": (1, 2)}, compare)
    add(path, {"a": (1, 2), "b": {"c": 1}}, [row("rs", 0, training=0), row("ncl", 0, training=0)], BY)
    check_setting(path, {"a": (1, 2), "b": {"c": 1}}, compare)
    add(path, {"a": (1, 2), "b": {"c": 1}}, [row("uno", 0, training=1), row("uno", 1, training=1)], BY)
    with pytest.raises(InputError, match=r"r\.json holds results of another setting \(b: c, training of uno differ\)"):
        check_setting(path, {"a": (1, 2), "b": {"c": 2}}, compare)


def test_a_row_that_cannot_be_compared_is_of_no_results(tmp_path):
    add(tmp_path / "r.json", {}, [row("rs")], BY)
    with pytest.raises(InputError, match=r"r\.json is no file of results .*KeyError: 'training'"):
        check_setting(tmp_path / "r.json", {}, compare)


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"rows": []}', '{"setting": {}, "rows": [1]}'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "r.json"
    path.write_text(content)
    for use in (lambda: read(path), lambda: has(path, row("rs")), lambda: add(path, {}, [row("rs")], BY)):
        with pytest.raises(InputError, match=r"r\.json is no file of results that this version can add to"):
            use()
    assert path.read_text() == content


@pytest.mark.parametrize("path", [*INDENTED, *IN_LINES], ids=lambda path: path.stem)
def test_results_in_the_repository_are_written_as_they_would_be_now(path, tmp_path):
    copied = tmp_path / path.name
    copied.write_bytes(path.read_bytes())
    lines = path in IN_LINES
    by = ("seed",) if path.stem.startswith("review") else ("pile", "seed", "actions") if lines else BY
    add(copied, read(path)["setting"], [], by, lines=lines)
    assert copied.read_bytes() == path.read_bytes()


def test_there_are_results_of_both_tables():
    assert {path.name.split("-stage-")[0] for path in FILES} == {"single", "two"}


@by_file
def test_more_rows_can_be_added_to_results(path):
    setting = read(path)["setting"]
    table = run.table(setting["stages"], setting["dataset"], setting["split"], setting["budget"])
    check_setting(path, table.setting(), table.compare)
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


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_file_can_be_read_by_strict_readers(path):
    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
