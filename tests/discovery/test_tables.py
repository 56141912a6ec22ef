"""Tables of a discovery: what they say of images and classes."""

import csv
import io
import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from newfound.data.decoding import Box
from newfound.discovery.edits import Edit, classes
from newfound.discovery.export import tabulate
from newfound.discovery.found import Clusters
from newfound.discovery.tables import (
    TEXT,
    UNSURE,
    format_csv,
    judge,
    judge_others,
    measure,
    neutralise,
    read_csv,
    restore,
    tabulate_assignments,
    tabulate_classes,
    tabulate_history,
    tabulate_predictions,
)
from tests.discovery.made import CALIBRATION, CAT, FIRST, PLACES, SECOND, THIRD, make_found

COLUMNS = [
    "path",
    "class",
    "number",
    "kind",
    "confidence",
    "newness",
    "outlier",
    "distance",
    "guess",
    "identified_by",
    "duplicate_of",
]
NAMES = ("cat", "new-1", "new-2", "new-3", "new-4")


@pytest.fixture(scope="module")
def found():
    return make_found()


def sigmoid(line, score):
    return 1 / (1 + math.exp(-(line.slope * score + line.offset)))


def test_a_table_says_of_every_image_what_a_loop_over_centres_says(found):
    table = tabulate_assignments(classes(found))
    assert list(table) == COLUMNS
    for row, line in table.iterrows():
        d = [math.dist(found.features[row].tolist(), centre) for centre in PLACES.tolist()]
        own = min(range(5), key=d.__getitem__)
        right = sigmoid(CALIBRATION.right, math.log(min(d[k] for k in range(5) if k != own) / d[own]))
        new = sigmoid(CALIBRATION.new, math.log(min(d[:2]) / min(d[2:])))
        assert line["confidence"] == pytest.approx(right, abs=1e-4)
        new = max(new, right) if own >= 2 else min(new, 1 - right)  # a class is right only if its kind is
        assert line["newness"] == pytest.approx(new, abs=1e-4)
        assert line["outlier"] == 0  # nobody measured it
        assert line["distance"] == pytest.approx(d[own], abs=1e-4)
        assert line["guess"] == NAMES[own]
        kind = "known" if own < 2 else "new"
        said = (NAMES[own], own + 1, kind) if right >= 0.6 else ("unsure", -1, "unsure")
        assert (line["class"], line["number"], line["kind"]) == said
    assert set(table["kind"]) == {"known", "new", "unsure"}
    assert set(table["identified_by"]) == {"newfound"}


def test_confidence_is_that_of_the_centres_without_the_image_itself():
    x = torch.cat([make_found().features[:20], torch.tensor([[4.0, 4.0]])])
    assignment = torch.arange(21) // 10 % 2
    centres = torch.stack([x[assignment == k].mean(0) for k in range(2)])
    clusters = Clusters(assignment, centres, torch.bincount(assignment), unit=False)
    found = make_found(features=x, clusters=clusters, known=())
    judged = judge(classes(found))
    for row in range(21):
        others = assignment == assignment[row]
        others[row] = False
        own, other = (x[row] - x[others].mean(0)).norm(), (x[row] - centres[1 - assignment[row]]).norm()
        right = sigmoid(CALIBRATION.right, math.log(other / own))
        assert judged.confidence[row].item() == pytest.approx(right, abs=1e-4)
        assert judged.distance[row].item() == pytest.approx((x[row] - centres[assignment[row]]).norm().item(), abs=1e-5)


def test_the_summary_counts_sure_images_and_the_others_beside_them(found):
    now = classes(found)
    table, summary = tabulate_assignments(now), tabulate_classes(now).set_index("class")
    assert list(summary.index) == ["cat", "new-2", "new-3", "new-4"]  # of class 2 there is nothing
    assert list(summary["number"]) == [CAT, FIRST, SECOND, THIRD]
    for name, line in summary.iterrows():
        sure, guessed = table[table["class"] == name], table[table["guess"] == name]
        assert line["size"] == len(sure)
        assert line["share"] == pytest.approx(len(sure) / 44, abs=1e-4)
        assert line["unsure"] == len(guessed) - len(sure)
        assert line["kind"] == ("known" if name == "cat" else "new")
        assert line["coherence"] == pytest.approx(guessed["confidence"].mean(), abs=1e-4)
        assert line["newness"] == pytest.approx(guessed["newness"].mean(), abs=1e-4)
        assert line["exemplar"] == guessed.sort_values("distance")["path"].iloc[0]
    assert summary["size"].sum() + summary["unsure"].sum() == 44
    assert summary["unsure"].sum() >= 4
    assert summary["newness"].drop("cat").min() > 0.8
    assert summary["newness"]["cat"] < 0.2


def test_class_and_number_mean_the_same_in_every_table(found):
    now = classes(found, [Edit("rename", (FIRST,), names=("sea pen",))])
    images, summary = tabulate_assignments(now), tabulate_classes(now)
    others = tabulate_predictions(now, found.listing, found.features)
    for table in (images, summary, others):
        named = dict(zip(table["number"], table["class"], strict=True))
        assert {number: name for number, name in named.items() if number > 0}.items() <= now.names.items()


@pytest.mark.parametrize(("threshold", "unsure"), [(0.0, 0), (math.inf, 44)])
def test_all_images_or_none_may_be_unsure(threshold, unsure):
    now = classes(make_found(threshold=threshold))
    table = tabulate_assignments(now)
    assert (table["class"] == "unsure").sum() == unsure
    assert tabulate_classes(now)["unsure"].sum() == unsure
    assert (table["guess"] != "unsure").all()


def test_a_class_may_be_called_unsure_and_still_be_counted(found):
    now = classes(found, [Edit("rename", (SECOND,), names=("unsure",))])
    assert list(tabulate_classes(now)["size"]) == list(tabulate_classes(classes(found))["size"])


def test_the_nearest_class_is_that_of_the_nearest_centre_of_another_also_once_merged(found):
    places = torch.tensor([[9.0, 6.0], [30.0, 30.0], [0.0, 0.0], [9.5, 0.0], [0.0, 8.0]])
    apart = replace(found, clusters=found.clusters._replace(centres=places))
    nearest = tabulate_classes(classes(apart)).set_index("class")["nearest"]
    assert nearest.to_dict() == {"new-2": "new-4", "new-3": "cat", "new-4": "new-2", "cat": "new-3"}
    merged = classes(apart, [Edit("merge", (CAT, SECOND))])  # the nearest is near the second of its centres
    nearest = tabulate_classes(merged).set_index("class")["nearest"]
    assert nearest.to_dict() == {"new-2": "new-4", "cat": "new-4", "new-4": "new-2"}


def test_merging_makes_images_between_the_two_more_confident(found):
    before = judge(classes(found)).confidence
    after = judge(classes(found, [Edit("merge", (FIRST, SECOND))])).confidence
    assert (after >= before - 1e-6).all()
    assert (after > before).any()


def test_all_merged_into_one_class_is_certain(found):
    now = classes(found, [Edit("merge", (1, 2, 3, 4, 5))])
    assert (tabulate_assignments(now)["confidence"] == 1).all()
    assert list(tabulate_classes(now)["nearest"]) == [""]


def test_where_no_class_is_known_all_images_are_new():
    table = tabulate_assignments(classes(make_found(known=(), threshold=0.0)))
    assert (table["newness"] == 1).all()
    assert set(table["kind"]) == {"new"}


def test_what_a_person_decided_is_sure_and_says_who(found):
    now = classes(found, [Edit("move", (THIRD,), rows=(0,), by="Ada"), Edit("move", (CAT,), rows=(41,), by="Bo")])
    table = tabulate_assignments(now)
    assert table.loc[[0, 41], "identified_by"].tolist() == ["Ada", "Bo"]
    assert table.loc[[0, 41], "class"].tolist() == ["new-4", "cat"]
    assert table.loc[[0, 41], "confidence"].tolist() == [1, 1]
    assert table.loc[[0, 41], "newness"].tolist() == [1, 0]
    assert tabulate_classes(now).set_index("number")["reviewed"].to_dict() == {CAT: 1, FIRST: 0, SECOND: 0, THIRD: 1}


def test_what_was_set_aside_says_so_and_counts_nowhere(found):
    now = classes(found, [Edit("set aside", rows=(0, 1))])
    table, summary = tabulate_assignments(now), tabulate_classes(now)
    assert table.loc[[0, 1], ["class", "number", "kind"]].drop_duplicates().values.tolist() == [
        ["set aside", -2, "set aside"]
    ]
    assert summary["size"].sum() + summary["unsure"].sum() == 42


def test_new_images_go_to_the_nearest_class_that_is_left(found):
    rows = classes(found).rows(FIRST).tolist()
    first, second = rows[::2], rows[1::2]
    now = classes(found, [Edit("split", (FIRST,), parts=(tuple(first), tuple(second)), made=(6,), names=("half",))])
    judged = judge_others(now, found.features[second].mean(0, keepdim=True))
    assert judged.guess.tolist() == [6]
    assert judged.distance.item() == pytest.approx(0, abs=1e-5)
    assert judge_others(now, PLACES).guess[[0, 3, 4]].tolist() == [CAT, SECOND, THIRD]


def test_new_images_do_not_know_that_they_made_a_class():
    x, clusters = make_found().features, make_found().clusters
    found = make_found(clusters=clusters._replace(sizes=torch.full((5,), 12)))
    now = classes(found)
    assert (judge_others(now, x).confidence > judge(now).confidence).all()
    assert torch.equal(judge_others(now, x).guess, judge(now).guess)


def truth_of(found, word):
    return tuple(word(cluster) for cluster in found.clusters.assignment.tolist())


def test_scores_are_those_of_the_classes_as_a_person_left_them(found):
    """New clusters 2 and 3 hold one kind: merged they are right, and known classes keep their places."""
    told = replace(
        found, truth=truth_of(found, lambda c: "kind" if c in (2, 3) else NAMES[c] if c < 2 else f"kind {c}")
    )
    merged = [Edit("merge", (FIRST, SECOND))]
    assert measure(classes(told))["accuracy"] < 1
    assert measure(classes(told, merged))["accuracy"] == measure(classes(told, merged))["named accuracy"] == 1
    renamed = [*merged, Edit("rename", (CAT,), names=("another name",))]  # is still that class
    assert measure(classes(told, renamed))["named accuracy"] == 1
    mixed = [*renamed, Edit("merge", (CAT, FIRST))]  # a known class with a new one
    assert measure(classes(told, mixed))["named accuracy"] < 1
    assert measure(classes(found)) is None


def test_accuracy_on_sure_images_keeps_the_assignment_of_all_images(found):
    confidence = judge(classes(found)).confidence
    own = confidence[found.clusters.assignment == 2].sort(descending=True).values
    sure = confidence >= own[3]
    # Of the cluster the four sure images are crabs; the others, which are more, are eels and give it its class.
    kinds = truth_of(found, lambda c: f"kind {c}")
    truth = [("crab" if sure[row] else "eel") if kind == "kind 2" else kind for row, kind in enumerate(kinds)]
    told = replace(found, threshold=own[3].item(), truth=tuple(truth))
    assert measure(classes(told))["sure accuracy"] == pytest.approx(1 - 4 / sure.sum().item())
    assert measure(classes(replace(told, truth=kinds)))["sure accuracy"] == 1


def test_what_was_set_aside_is_not_measured(found):
    right = truth_of(found, lambda c: NAMES[c] if c < 2 else f"kind {c}")
    wrong = replace(found, truth=("kind 4", *right[1:]))
    assert measure(classes(wrong))["accuracy"] < 1
    assert measure(classes(wrong, [Edit("set aside", rows=(0,))]))["accuracy"] == 1


def test_what_a_person_decided_is_sure_also_where_no_confidence_is_enough(found):
    told = replace(found, threshold=math.inf, truth=truth_of(found, lambda c: NAMES[c] if c < 2 else f"kind {c}"))
    now = classes(told, [Edit("accept", (CAT,), rows=(0, 1))])
    assert measure(now)["unsure"] == pytest.approx((tabulate_assignments(now)["number"] == UNSURE).mean())
    assert measure(now)["sure accuracy"] == 1


def test_where_all_images_are_set_aside_the_summary_has_no_row_and_all_columns(found):
    now = classes(found, [Edit("set aside", rows=tuple(range(44)))])
    assert len(tabulate_classes(now)) == 0
    assert [*tabulate_classes(now)] == [*tabulate_classes(classes(found))]


def test_what_was_set_aside_before_its_class_was_split_has_a_distance(found):
    rows = classes(found).rows(FIRST).tolist()
    parts = (tuple(rows[1:6]), tuple(rows[6:]))
    now = classes(
        found, [Edit("set aside", rows=(rows[0],)), Edit("split", (FIRST,), parts=parts, made=(6,), names=("a",))]
    )
    line = tabulate_assignments(now).loc[rows[0]]
    centre = found.latents[[*parts[0]]].mean(0)
    assert line["distance"] == pytest.approx((found.latents[rows[0]] - centre).norm().item(), abs=1e-4)
    assert line["guess"] == now.names[FIRST]


def test_a_near_duplicate_is_told_by_the_image_that_it_nearly_equals():
    column = tabulate_assignments(classes(make_found(duplicates={3: 1, 7: 1})))["duplicate_of"]
    assert column[3] == column[7] == "1.png"
    assert (column.drop([3, 7]) == "").all()


def test_boxes_and_groups_are_told_wherever_an_image_is(found):
    boxes = tuple(Box(row, 2, 3, 4) if row % 2 else None for row in range(44))
    groups = tuple("dive" if row < 5 else "" for row in range(44))
    boxed = replace(found, listing=replace(found.listing, boxes=boxes, groups=groups), duplicates={4: 3})
    now = classes(boxed)
    table = tabulate_assignments(now)
    assert list(table)[:6] == ["path", "x", "y", "width", "height", "group"]
    assert table["group"].tolist() == list(groups)
    assert table["duplicate_of"][4] == "3.png at x=3, y=2"
    for text in tabulate_classes(now)["exemplar"]:
        row = int(text.split(".")[0])
        assert text == (f"{row}.png at x={row}, y=2" if row % 2 else f"{row}.png")


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-", "'=1+1", "''-", '=cmd|" /C calc"!A0')
"""Text that a spreadsheet would run, or once it has dropped an apostrophe."""

HARMLESS = ("", "a", "a=b", "'", "''", "'tis", " =1", "007", "NA", "nan", "1e5", "new-1", "ü+")


def test_no_cell_of_text_begins_as_a_formula_does_and_numbers_stay_numbers():
    table = pd.DataFrame({"path": FORMULAS, "class": FORMULAS[::-1], "number": -1, "distance": -0.5})
    head, *rows = csv.reader(io.StringIO(format_csv(table), newline=""))
    assert head == ["path", "class", "number", "distance"]
    for path, name, *numbers in rows:
        assert path[0] == name[0] == "'"
        assert numbers == ["-1", "-0.5"]
    harmless = format_csv(pd.DataFrame({"path": HARMLESS}))
    assert [*csv.reader(io.StringIO(harmless))][1:] == [[name] if name else [""] for name in HARMLESS]


def test_a_table_is_read_back_with_the_very_words(tmp_path):
    words = [*FORMULAS, *HARMLESS]
    table = pd.DataFrame({"path": words, "x": [math.nan, *range(1, len(words))], "class": words[::-1], "number": -2})
    path = tmp_path / "table.csv"
    path.write_bytes(format_csv(table).encode())
    back = read_csv(path)
    assert back["path"].tolist() == words
    assert back["class"].tolist() == words[::-1]
    pd.testing.assert_frame_equal(back[["x", "number"]], table[["x", "number"]])


@given(st.text())
def test_any_text_is_restored_and_none_begins_as_a_formula(word):
    assert restore(neutralise(word)) == word
    assert neutralise(word)[:1] not in tuple("=+-@\t\r")


def test_every_column_of_words_is_known_to_be_one(found):
    for table in (tabulate(classes(found)), tabulate_classes(classes(found))):
        words = {*table.select_dtypes(exclude="number")}
        assert words <= TEXT


def test_the_table_of_epochs_has_no_seconds_which_no_run_repeats(found):
    history = ({"epoch": 1.0, "pull": 0.5, "seconds": 3.2}, {"epoch": 2.0, "pull": 0.4, "seconds": 3.1})
    assert tabulate_history(replace(found, history=history)).to_dict("list") == {"epoch": [1, 2], "pull": [0.5, 0.4]}
    assert list(tabulate_history(replace(found, history=()))) == ["epoch"]


@pytest.mark.parametrize("header", [True, False])
def test_names_of_any_signs_are_read_back_from_a_table_with_and_without_its_header(header):
    names = ['a, "b"', "c\rd", "e\nf", "g\r\nh", "ü"]
    text = format_csv(pd.DataFrame({"path": names, "size": range(5)}), header=header)
    rows = [[name, str(size)] for size, name in enumerate(names)]
    assert [*csv.reader(io.StringIO(text, newline=""))] == [["path", "size"]] * header + rows
