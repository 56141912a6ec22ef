"""What the page shows follows from found and edits alone, and is what the tables say."""

import json
import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from newfound.discovery.edits import Edit, classes
from newfound.discovery.result import Discovery
from newfound.discovery.tables import ASIDE, UNSURE, judge, tabulate_assignments, tabulate_classes
from newfound.errors import InputError
from newfound.functional.calibration import FAR_OUT, Logistic
from newfound.functional.geometry import distances
from newfound.review import measures as measuring
from newfound.review import views
from newfound.review.measures import begin_measures, measure_again
from tests.discovery.made import ABSENT, CALIBRATION, CAT, FIRST, SECOND, THIRD, make_found
from tests.discovery.test_replay import say_something
from tests.review.made import make_many


def see(found, edits=()):
    now = classes(found, edits)
    return views.view_scene(now, begin_measures(now), distances(found.clusters.centres))


@pytest.fixture(scope="module")
def found():
    return make_found()


@pytest.mark.parametrize("kind", ["few centres", "many centres", "outliers"])
@pytest.mark.parametrize("seed", range(3))
def test_measures_that_are_kept_up_edit_by_edit_are_those_of_the_tables(kind, seed, monkeypatch):
    found = make_many(44, 20) if kind == "many centres" else make_found()
    if kind == "outliers":
        found = make_found(calibration=CALIBRATION._replace(outlier=Logistic(4.0, 3.0)))
    monkeypatch.setattr(measuring, "NEAREST", 2)  # so that classes soon own all that an image remembers
    monkeypatch.setattr(measuring, "TOGETHER", 7)
    draw, run = random.Random(seed), Discovery(found)
    kept = begin_measures(run.classes)
    for _ in range(40):
        say_something(run, draw)
        kept = measure_again(kept, run.classes)
        truth = judge(run.classes)
        torch.testing.assert_close(kept.confidence, truth.confidence, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(kept.distance, truth.distance, atol=1e-5, rtol=1e-4)
        table = tabulate_assignments(run.classes)
        assert kept.unsure.tolist() == (table["kind"] == "unsure").tolist()
        assert kept.outlier.tolist() == (table["kind"] == "outlier").tolist()


def test_an_edit_measures_no_more_than_it_changes(monkeypatch):
    found = make_many(400, 12)
    run = Discovery(found)
    kept, measured = begin_measures(run.classes), []
    distance = measuring.distances
    monkeypatch.setattr(measuring, "distances", lambda a, b: measured.append(len(a) * len(b)) or distance(a, b))
    run.rename(4, "x")
    run.accept(5)
    kept = measure_again(kept, run.classes)
    assert not sum(measured)
    run.new_class([0, 1, 2])
    kept = measure_again(kept, run.classes)
    assert sum(measured) <= 400 + 50 * 12  # the new centre, and few images whose near centres are all their own
    run.rename(6, "y")
    measure_again(kept, run.classes)
    assert sum(measured) <= 400 + 50 * 12


@pytest.mark.parametrize("edits", [[], "some"])
def test_the_class_list_says_what_the_table_of_classes_says(found, edits):
    run = Discovery(found)
    if edits:
        run.merge([FIRST, SECOND])
        run.rename(THIRD, "sea pen")
        run.set_aside([0, 12])
        run.accept(THIRD)
    scene = see(found, run.edits)
    lines = {line["number"]: line for line in views.view_classes(scene)}
    for row in tabulate_classes(run.classes).to_dict("records"):
        line = lines[row["number"]]
        assert (line["name"], line["kind"], line["unsure"]) == (row["class"], row["kind"], row["unsure"])
        assert line["size"] == row["size"] + row["unsure"]
        assert line["confidence"] == pytest.approx(row["coherence"], abs=1e-3)
        assert line["reviewed"] == row["reviewed"]
        assert found.caption(line["medoid"]) == row["exemplar"]
    assert lines[ABSENT]["medoid"] is None
    assert [line["kind"] for line in lines.values()] == sorted(line["kind"] for line in lines.values())


def test_a_class_that_was_proposed_says_so(found):
    scene = see(replace(found, proposed=(SECOND,)))
    assert [line["number"] for line in views.view_classes(scene) if line["proposed"]] == [SECOND]
    assert not any(line["proposed"] for line in views.view_classes(see(found)))


def test_unsure_images_and_those_set_aside_wait_in_lists_of_their_own(found):
    found = replace(found, calibration=CALIBRATION._replace(outlier=Logistic(4.0, 0.0)))
    scene = see(found, [Edit("set aside", rows=(3, 5))])
    table = tabulate_assignments(scene.now)
    for line in views.view_lists(scene):
        rows = table.index[table["kind"] == line["kind"]].tolist()
        assert line["size"] == len(rows) > 0
        assert sorted(views.view_images(scene, line["number"], "typical")["rows"]) == rows
    assert {line["kind"] for line in views.view_lists(scene)} <= {*views.KINDS}


def test_images_come_most_typical_or_least_sure_first(found):
    scene = see(found)
    for number in (CAT, FIRST, UNSURE):
        typical, doubtful = (views.view_images(scene, number, order) for order in ("typical", "doubtful"))
        assert sorted(typical["rows"]) == sorted(doubtful["rows"])
        sure = scene.measures.confidence[doubtful["rows"]].tolist()
        assert sure == sorted(sure)
        away = [d for d, mark in zip(scene.measures.distance[typical["rows"]].tolist(), typical["marks"], strict=True)
                if mark != "u"]  # fmt: skip
        assert away == sorted(away)
    assert "u" not in views.view_images(scene, FIRST, "typical")["marks"].rstrip("u")


def test_a_list_of_images_of_several_classes_begins_with_the_surest_and_says_what_each_would_be(found):
    scene = see(found, [Edit("set aside", rows=(3,))])
    shown = views.view_images(scene, UNSURE, "typical")
    sure = scene.measures.confidence[shown["rows"]].tolist()
    assert len(sure) > 2
    assert sure == sorted(sure, reverse=True)
    assert shown["numbers"] == scene.now.assignment[shown["rows"]].tolist()
    assert views.pack_guesses(scene, torch.tensor([2, 3]))["numbers"] == [CAT, ASIDE]
    assert "numbers" not in views.view_images(scene, FIRST, "typical")


def test_labelled_images_stand_beside_the_class_they_are_of_now():
    copies = {place: torch.zeros(2, 1, 4, 4, dtype=torch.uint8) for place in (0, 1)}
    found = make_found(references=copies)
    state = views.view_state(see(found), [])
    assert state["labelled"] == {CAT: ["0/0", "0/1"], ABSENT: ["1/0", "1/1"]}
    run = Discovery(found)
    run.merge([CAT, ABSENT], force=True)
    run.merge([CAT, FIRST])
    merged = views.view_labelled(run.classes)
    assert merged == {CAT: ["0/0", "0/1", "1/0", "1/1"]}
    assert views.view_labelled(classes(make_found())) == {}


def test_every_image_has_its_confidence_and_its_mark(found):
    scene = see(found, [Edit("accept", (CAT,), rows=(0, 1))])
    shown = views.view_images(scene, CAT, "typical")
    letters = dict(zip(shown["rows"], shown["marks"], strict=True))
    assert letters[0] == letters[1] == "d"
    for row, per_cent in zip(shown["rows"], shown["confidence"], strict=True):
        assert per_cent == int(100 * scene.measures.confidence[row])
    with pytest.raises(InputError, match="no class 99"):
        views.view_images(scene, 99, "typical")


def test_the_nearest_known_class_is_the_nearest_by_centres(found):
    scene = see(found)
    known = views.nearest_known(scene)
    apart = distances(found.clusters.centres)
    for place, number in enumerate(found.numbers):
        others = [other for other in (0, 1) if other != place]
        assert known[number] == found.numbers[min(others, key=lambda other: apart[place, other])]
    assert views.nearest_known(see(make_found(known=()))) == {}


def test_similar_classes_have_images_and_the_nearest_comes_first(found):
    scene = see(found)
    apart = distances(found.clusters.centres)
    similar = views.similar_classes(scene, FIRST)
    assert similar == sorted(similar, key=lambda number: apart[2, number - 1].item())
    assert {*similar} == {CAT, SECOND, THIRD}  # the known class that nobody saw has none
    with pytest.raises(InputError, match="no class 99"):
        views.similar_classes(scene, 99)


def test_neighbours_are_the_nearest_images(found):
    scene = see(found)
    away = distances(found.latents)[7]
    away[7] = torch.inf
    assert views.neighbours(scene, 7, 5) == away.argsort()[:5].tolist()
    torch.testing.assert_close(views._squares(found.latents, 7), (found.latents - found.latents[7]).square().sum(1))


def test_more_like_some_are_unsure_images_the_nearest_first_and_not_themselves(found):
    scene = see(found)
    unsure = scene.measures.unsure.nonzero()[:, 0].tolist()
    rows = [unsure[0], *scene.now.rows(FIRST).tolist()[:2]]
    more = views.more_like(scene, rows)["rows"]
    away = (found.latents - found.latents[rows].mean(0)).norm(dim=1)
    assert more == sorted({*unsure} - {*rows}, key=lambda row: away[row].item())
    assert len(views.more_like(scene, rows, most=1)["rows"]) == 1
    for wrong in ([], [99], [-1]):
        with pytest.raises(InputError, match=r"No image was given|no image"):
            views.more_like(scene, wrong)


def test_an_image_is_told_with_who_decided_and_what_stands_for_its_class(found):
    scene = see(found, [Edit("move", (FIRST,), rows=(0,), by="Ada"), Edit("set aside", rows=(5,))])
    told = views.view_image(scene, 0)
    assert (told["number"], told["by"], told["decided"], told["caption"]) == (FIRST, "Ada", True, "0.png")
    assert told["references"][0] == 0  # a person called it right
    assert {*told["references"]} <= {*scene.now.rows(FIRST).tolist()}
    assert told["known"]["number"] == CAT
    assert views.view_image(scene, 5)["answer"] == ASIDE
    assert views.view_image(scene, 1)["by"] == "newfound"


def test_an_image_that_is_unsure_for_lying_far_out_says_so(found):
    found = replace(found, calibration=CALIBRATION._replace(outlier=Logistic(20.0, 15.0)), threshold=0.5)
    scene = see(found, [Edit("accept", (CAT,), rows=(0,)), Edit("set aside", rows=(1,))])
    table = tabulate_assignments(scene.now)
    shown = views.pack_images(scene, torch.arange(44))
    for row, (kind, outlier, mark) in enumerate(zip(table["kind"], table["outlier"], shown["marks"], strict=True)):
        unsure = "f" if outlier > FAR_OUT else "u"
        assert mark == ("d" if row < 2 else {"unsure": unsure, "outlier": "o"}.get(kind, "-"))
        assert views.view_image(scene, row)["far"] == (mark == "f")
    assert {"d", "o", "f", "-"} <= {*shown["marks"]}
    assert max(np.array(shown["confidence"])[np.array([*shown["marks"]]) == "f"]) >= 50


def test_names_are_suggested_that_are_known_or_were_given_before(found):
    edits = [Edit("rename", (FIRST,), names=("crab",)), Edit("rename", (FIRST,), names=("eel",)), Edit("undo")]
    assert views.suggest_names(classes(found, edits), edits) == ["eel", "crab", "cat", "new-1"]
    chosen = [Edit("rename", (FIRST,), names=("new-england aster",)), Edit("rename", (SECOND,), names=("new-9",))]
    assert views.suggest_names(classes(found, chosen), chosen) == ["new-england aster", "cat", "new-1"]


def test_a_split_is_shown_as_it_would_be_made(found):
    run = Discovery(found)
    parts = run.propose_split(FIRST, 2)
    shown = views.view_parts(see(found), parts)
    assert [sorted(part["rows"]) for part in shown] == parts


def test_the_state_is_small_and_plain(found):
    edits = [Edit("rename", (FIRST,), names=("<b>é</b>",), by="Ada"), Edit("undo")]
    state = views.view_state(see(found, edits), edits)
    assert json.loads(json.dumps(state)) == json.loads(json.dumps(state, allow_nan=False))
    assert (state["length"], state["undo"], state["redo"]) == (2, False, True)
    assert state["images"] == 44
    many = make_many(2000, 300)
    text = json.dumps(views.view_state(see(many), []))
    assert len(text) < 300 * 230


def test_the_map_knows_every_image_and_hides_those_set_aside(found):
    scene = see(found, [Edit("set aside", rows=(2,))])
    rows = torch.arange(44).numpy()
    numbers = views.view_map(scene, rows)
    assert numbers[2] == ASIDE
    assert pd.Series(numbers).drop(2).tolist() == pd.Series(scene.now.assignment.tolist()).drop(2).tolist()
