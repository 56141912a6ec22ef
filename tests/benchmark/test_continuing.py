"""What answers are worth: on features that nobody extracted, and as tables."""

from dataclasses import replace

import pytest
import torch

from newfound.benchmark import continuing
from newfound.benchmark.continuing import (
    ROW,
    STOPS,
    Hurried,
    add_points,
    continue_reviews,
    curves,
    follow,
    name_kinds,
    table,
    tables,
    weigh,
)
from newfound.benchmark.results import read
from newfound.benchmark.reviewer import filled
from newfound.discovery.answers import answers
from newfound.discovery.find import find
from newfound.discovery.refine import ReviewLesson, encoder_for, read_anew, relearn
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run
from newfound.discovery.tables import number_truth
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.statistics import fit_statistics, refit_axes
from newfound.errors import InputError
from newfound.functional import metrics
from newfound.networks.pretrained import load_pretrained
from tests.encoders.features import embedded, in_one_store

KINDS, EACH = range(2, 8), 30


@pytest.fixture(scope="module")
def task():
    """Four known kinds, and a pile of two of these and four others, of which the run was told of two."""
    known, pile = in_one_store(
        embedded("known", range(4), 12, strong=2.0), embedded("pile", KINDS, EACH, labelled=False, strong=2.0)
    )
    model = refit_axes(fit_statistics(known, load_pretrained(size=64)), pile, known)
    found = find(model, pile, 2, labelled=known, run=Run(method="kmeans", read_by="k-means", device="cpu"))
    return replace(found, truth=tuple(f"kind {kind}" for kind in KINDS for _ in range(EACH))), pile


def lesson(task, edits):
    found, pile = task
    return ReviewLesson(found, answers(found, edits), found.run, encoder_for(found, found.run), pile, None)


def test_somebody_in_a_hurry_sees_a_row_of_each_order_and_splits_nothing(task):
    reviewer = Hurried(Discovery(task[0]))
    assert {step.action for step in reviewer.steps()} & {"split"} == set()
    fresh = Hurried(Discovery(task[0]))
    fresh._glance(scene := fresh.scene())
    assert ROW < len(fresh.kinds) <= 2 * ROW * len(filled(scene.now))
    seen = len(fresh.kinds)
    assert not fresh._scroll(scene, to_the_end=False)  # something is left to say of what was seen
    assert len(fresh.kinds) == seen
    assert fresh._scroll(scene, to_the_end=True)
    assert seen < len(fresh.kinds) <= seen + ROW * len(filled(scene.now))


def test_only_images_count_that_nobody_has_decided_on_or_looked_at(task):
    run = Discovery(task[0])
    run.accept(run.classes.numbers[-1], images=run.classes.rows(run.classes.numbers[-1])[:5].tolist())
    decided = set(run.edits[0].rows)
    looked = [row for row in range(60) if row not in decided][:20]
    row = weigh(lesson(task, run.edits), looked)
    assert (row["images"], row["vouched"]) == (len(KINDS) * EACH, 5)
    assert row["untouched"] == row["images"] - 5 - 20


def test_a_class_is_the_kind_that_it_is_called_by_though_it_may_hold_more_of_another(task):
    found, _ = task
    run, kinds = Discovery(found), [f"kind {kind}" for kind in KINDS]
    whole, other = (number for number in run.classes.numbers if run.classes.kind(number) == "new")
    told, *rest = (kind for kind in kinds if kind not in found.known)
    rows = [row for row, kind in enumerate(found.truth) if kind == told]
    others = [row for row, kind in enumerate(found.truth) if kind in rest]
    run.move([*rows[3:], *others[:5]], whole)  # a class that holds most of a kind
    run.move(others[5:], other)
    few = run.new_class(rows[:3], told)  # and the one that somebody calls so
    truth, _ = number_truth(run.classes, found.truth)
    said, matched = name_kinds(run.classes, found.truth), metrics.matching(truth, run.classes.assignment)
    assert said[few] == int(truth[rows[0]])
    assert said[whole] != said[few]
    assert said[whole] == naive_most(run.classes, found.truth, whole, said)
    known = {number: run.classes.names[number] for number in run.classes.known}
    assert {n: said.get(n) for n in known} == {
        n: found.known.index(k) if k in kinds else None for n, k in known.items()
    }
    assert len({*said.values()}) == len(said)
    assert matched[few] != said[few]  # what the best matching of all would call it


def naive_most(now, truth, number, said):
    """The kind that a class holds most of, but those that other classes are called by."""
    places, _ = number_truth(now, truth)
    taken = {kind for other, kind in said.items() if other != number}
    held = [int(places[row]) for row in now.rows(number).tolist() if int(places[row]) not in taken]
    return max(sorted({*held}), key=held.count)


def test_what_is_learnt_is_weighed_by_name_by_the_matching_of_all_and_by_one_made_anew(task):
    run = Discovery(task[0])
    run.merge([number for number in run.classes.numbers if run.classes.kind(number) == "new"])
    for kind in sorted({*task[0].truth} - {*task[0].known}):
        run.new_class([row for row, name in enumerate(task[0].truth) if name == kind][:6], kind)
    told = lesson(task, run.edits)
    row = weigh(told, ())
    assert row["changed"] > 0
    for measure in ("", "matched ", "rematched "):
        assert row[f"{measure}before"] != row[f"{measure}after"]
    assert len({row[f"{measure}after"] for measure in ("", "matched ", "rematched ")}) > 1
    numbers, clusters = read_anew(told, relearn(told))
    truth, _ = number_truth(run.classes, task[0].truth)
    said, matched = name_kinds(run.classes, task[0].truth), metrics.matching(truth, run.classes.assignment)
    then = [numbers[cluster] for cluster in clusters.assignment.tolist()]
    for kinds, some, key in (
        (said, run.classes.assignment.tolist(), "before"),
        (said, then, "after"),
        (matched, run.classes.assignment.tolist(), "matched before"),
        (matched, then, "matched after"),
        (matched, run.classes.assignment.tolist(), "rematched before"),
        (metrics.matching(truth, torch.tensor(then)), then, "rematched after"),
    ):
        free = told.answers.free.nonzero()[:, 0].tolist()
        assert row[key] == round(sum(kinds.get(some[i]) == int(truth[i]) for i in free) / len(free), 4)


def test_a_review_stops_now_and_then_until_its_last_stop(task, monkeypatch):
    found, pile = task
    monkeypatch.setattr(FeatureEncoder, "encode", lambda self, listing: pile)
    first, second = follow(Discovery(found), stops=(2, 4))
    assert 2 <= first["actions"] < second["actions"]
    assert first["looked"] <= second["looked"]
    assert first["vouched"] <= second["vouched"]
    assert all(0 <= row[when] <= 1 for row in (first, second) for when in ("before", "after"))


ROWS = [
    {"pile": "clip-art", "seed": seed, "actions": actions, "images": 500, "vouched": 100, "before": 0.5, "after": after}
    for seed in (0, 1)
    for actions, after in ((STOPS[0], 0.5), (STOPS[2] + 3, 0.5 + 0.1 * (1 + seed)))
]


def test_rows_are_told_by_stop_over_seeds():
    shown = table({"rows": ROWS})
    assert shown["actions"].tolist() == [STOPS[0], STOPS[2]]
    assert shown["gained"].tolist() == ["0.0 ± 0.0", "15.0 ± 7.1"]
    assert shown["images vouched for"].tolist() == ["100 of 500"] * 2


def test_every_seed_is_a_line_before_and_after(tmp_path, monkeypatch):
    assert curves(tmp_path / "continue.json") == []
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    add_points(tmp_path / "continue.json", ROWS)
    ((title, lines),) = curves(tmp_path / "continue.json")
    assert title == "Clip art"
    assert [line.accuracy for line in lines] == [[0.5, 0.6], [0.5, 0.7], [0.5, 0.5], [0.5, 0.5]]
    assert [line.spent for line in lines] == [[STOPS[0], STOPS[2] + 3]] * 4
    assert [line.name for line in lines[1:3]] == ["once the run has learnt from the answers", "before"]


def test_results_are_added_to_a_file_and_read_back(tmp_path, monkeypatch):
    assert tables(tmp_path / "continue.json") == "Not run yet."
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    add_points(tmp_path / "continue.json", ROWS[2:])
    add_points(tmp_path / "continue.json", ROWS[:2])
    assert read(tmp_path / "continue.json")["rows"] == ROWS
    lines = tables(tmp_path / "continue.json").splitlines()
    assert lines[0].startswith("| pile | actions |")
    assert len(lines) == 4


def test_a_pile_that_is_none_is_refused_and_a_finished_one_is_not_made_again(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no pile called 'clipart'"):
        continue_reviews(None, tmp_path, only=["clipart"])
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    add_points(tmp_path / "continue.json", ROWS)
    monkeypatch.setattr(continuing, "discover", lambda **given: pytest.fail("it was made again"))
    assert continue_reviews(None, tmp_path, only=["clip-art"], seeds=[0, 1]) == tmp_path / "continue.json"
