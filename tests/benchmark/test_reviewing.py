"""The benchmark of reviews: what it counts, what it is compared with, what it writes."""

import json

import numpy as np
import pytest

from newfound.benchmark import reviewing
from newfound.benchmark.results import read
from newfound.benchmark.reviewing import count_labels, curves, label_singly, match_share, name_share, review
from newfound.discovery.tables import judge
from newfound.errors import InputError
from tests.benchmark.test_reviewer import make_run
from tests.commands import newfound


def make(seed=0):
    return make_run({"ant": 60, "bee": 40, "cow": 25 + seed}, [("ant", "bee"), "cow"], known=("ant",), spread=6.0)


@pytest.fixture
def piles(monkeypatch):
    """What would be found in a pile is made; returns the seeds that were asked for."""
    asked = []

    def find(name, data, seed, folder, progress):
        asked.append((name, seed))
        return make(seed)

    monkeypatch.setattr(reviewing, "find", find)
    return asked


def test_an_image_is_right_by_name_where_its_class_is_called_what_it_shows():
    run = make_run({"ant": 6, "bee": 4}, ["ant", "bee"])
    assert (name_share(run.classes, run.found.truth), match_share(run.classes, run.found.truth)) == (0, 1)
    run.rename(1, "ant")
    assert name_share(run.classes, run.found.truth) == 0.6
    run.rename(2, "cat")
    assert name_share(run.classes, run.found.truth) == 0.6
    run.set_aside([0])
    assert name_share(run.classes, run.found.truth) == 0.5


def test_single_labels_put_right_what_a_loop_says_they_do():
    run = make()
    truth, now = run.found.truth, run.classes
    best = max(sum(kind == name for kind, name in zip(truth, guess, strict=True)) for guess in namings(now))
    order = np.argsort(judge(now).confidence.numpy(), kind="stable").tolist()
    single = label_singly(now, truth)
    guess = next(each for each in namings(now) if sum(a == b for a, b in zip(each, truth, strict=True)) == best)
    for count in (0, 1, 17, len(truth)):
        labelled = {*order[:count]}
        right = sum(row in labelled or guess[row] == kind for row, kind in enumerate(truth))
        assert single["least sure first"][count] == pytest.approx(right / len(truth))
        assert single["one by one"][count] == count / len(truth)
    assert single["wrong ones alone"].tolist() == pytest.approx([(best + i) / 125 for i in range(125 - best + 1)])


def namings(now):
    """Every naming of two classes by different kinds."""
    kinds = ("ant", "bee", "cow")
    for one in kinds:
        for two in kinds:
            if one != two:
                yield [one if number == 1 else two for number in now.assignment.tolist()]


def test_the_goal_is_reached_by_the_first_label_that_reaches_it():
    assert count_labels(np.array([0.90, 0.94, 0.95, 1.0])) == 2
    assert count_labels(np.array([0.95])) == 0


def test_a_review_is_a_row_that_says_when_the_goal_was_reached_and_by_what():
    row = reviewing.review_run(make())
    curve, goal = row["curve"], row["goal"]
    assert curve["accuracy"][0] == name_share(make().classes, make().found.truth)
    assert row["start"] == match_share(make().classes, make().found.truth)
    assert curve["accuracy"][-1] >= 0.98
    assert goal["accuracy"] >= 0.95
    assert goal["classes"] <= 1.2 * 3
    assert sum(goal["spent"].values()) == goal["actions"]
    before = [point for point in zip(curve["actions"], curve["accuracy"], strict=True) if point[0] < goal["actions"]]
    assert all(accuracy < 0.95 for _, accuracy in before)
    assert goal["actions"] < row["alone"]["least sure first"] < row["alone"]["one by one"] == 119


def test_a_goal_with_too_many_classes_is_none(monkeypatch):
    monkeypatch.setattr(reviewing, "CLASSES", 0.9)  # fewer than there are kinds
    assert reviewing.review_run(make())["goal"] is None


def test_finished_seeds_stay_and_more_are_added_in_order(piles, tmp_path):
    (path,) = review(None, tmp_path, only=["clip-art"], seeds=[1])
    first = read(path)["rows"]
    assert review(None, tmp_path, only=["clip-art"], seeds=[0, 1]) == [path]
    assert piles == [("clip-art", 1), ("clip-art", 0)]
    results = json.loads(path.read_text(encoding="utf-8"))
    assert [row["seed"] for row in results["rows"]] == [0, 1]
    assert results["rows"][1] == first[0]
    assert results["setting"]["command"] == "newfound benchmark review --parts clip-art"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 30  # a line a seed


def test_pages_tell_what_was_run_and_that_the_rest_was_not(piles, tmp_path):
    parts = (reviewing.tables, reviewing.verdict, reviewing.milestones, reviewing.spending)
    assert {part(tmp_path) for part in parts} == {"Not run yet."}
    assert curves(tmp_path) == []
    (path,) = review(None, tmp_path, only=["clip-art"], seeds=[0])
    (row,) = read(path)["rows"]
    per = 1000 * row["goal"]["actions"] / row["images"]
    assert f"| 0 | 125 | 3 | 2 | {100 * row['start']:.1f} | {per:.0f} |" in reviewing.tables(tmp_path)
    assert f"| Clip art | **{per:.0f}** | 952 |" in reviewing.verdict(tmp_path)
    spent = [float(line.split(" | ")[1].strip(" |")) for line in reviewing.spending(tmp_path).splitlines()[2:]]
    assert sum(spent) == pytest.approx(per, abs=0.3)
    reached = next(i for i, accuracy in enumerate(row["curve"]["accuracy"]) if accuracy >= 0.9)
    assert f"| {8 * row['curve']['actions'][reached]} |" in reviewing.milestones(tmp_path).splitlines()[2]
    ((title, shown),) = curves(tmp_path)
    assert title == "Clip art"
    assert [curve.name for curve in shown] == ["simulated reviewer", *reviewing.ALONE]
    assert shown[0].spent[-1] == 1000 * row["curve"]["actions"][-1] / 125
    path.write_text(path.read_text(encoding="utf-8").replace(json.dumps(row["goal"]), "null"), encoding="utf-8")
    assert "not reached" in reviewing.tables(tmp_path)
    assert "| – |" in reviewing.verdict(tmp_path)
    assert "0 of 1" in reviewing.verdict(tmp_path)


def test_a_pile_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(InputError, match=r"There is no pile called 'clipart'.*clip-art"):
        review(None, tmp_path, only=["clipart"])


def test_the_command_shows_the_table_and_says_where_the_results_are(piles, tmp_path):
    done = newfound("benchmark", "review", "--parts", "clip-art", "--seeds", 0, 2, "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert piles == [("clip-art", 0), ("clip-art", 2)]
    assert "actions per 1000" in done.stdout
    assert "Results: out/review-clip-art.json" in done.stdout.replace("\n", " ")
    assert [row["seed"] for row in read(tmp_path / "out" / "review-clip-art.json")["rows"]] == [0, 2]


def test_the_command_refuses_a_pile_that_is_not_there(tmp_path):
    done = newfound("benchmark", "review", "--parts", "cifar", cwd=tmp_path)
    assert done.returncode == 2
    assert "There is no pile called 'cifar'" in done.stderr
