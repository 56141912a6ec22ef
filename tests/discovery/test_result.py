"""Discovery: people edit it, save it, read it again, and ask it of other images."""

import json
import logging
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from newfound.data.datasets import load_doodles
from newfound.data.decoding import Box
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.discovery.edits import Edit
from newfound.discovery.find import find
from newfound.discovery.found import Clusters, Found
from newfound.discovery.journal import EDITS, read_edits
from newfound.discovery.pages import page
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run
from newfound.errors import InputError
from newfound.functional.calibration import Logistic
from newfound.functional.rehearsal import Expected
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.moments import Moment
from newfound.types import seeded
from tests.data.pictures import save, write_doodles
from tests.discovery.made import ABSENT, CALIBRATION, CAT, FIRST, SECOND, THIRD, add_edits, make_found
from tests.discovery.version_3 import write_version_3


@pytest.fixture(scope="module")
def images():
    drawings = load_doodles("spare")
    return drawings.pick(torch.arange(0, 1000, 20))  # 50 drawings


@pytest.fixture(scope="module")
def found(images):
    """Clusters of drawings of which none is unsure."""
    with seeded("result"):
        model = Model(SmallResNet(2, 2), 28, 1, ("a", "b"), torch.nn.Linear(16, 2))
    return find(model, images, 4, run=Run(method="kmeans", unsure=0.0, device="cpu"))


@pytest.fixture
def drawn(found):
    return Discovery(found)


@pytest.fixture
def made():
    return Discovery(make_found(), by="Ada")


def names(run):
    return dict(run.classes.names)


def test_the_summary_has_a_row_a_class_the_largest_first(drawn):
    table = drawn.summary()
    assert list(table["class"]) == ["new-1", "new-2", "new-3", "new-4"]
    assert table["size"].sum() == 50
    assert table["size"].is_monotonic_decreasing
    assert table["share"].sum() == pytest.approx(1, abs=1e-3)


def test_renaming_changes_the_name_everywhere(made):
    made.rename(FIRST, "sea pen")
    made.rename("sea pen", "sea feather")
    assert "sea feather" in set(made.assignments()["class"])
    assert "new-2" not in set(made.assignments()["class"])
    with pytest.raises(InputError, match=rf"another class's name, of number {FIRST}\..*merge\(\[{FIRST}, {SECOND}\]\)"):
        made.rename(SECOND, "sea feather")
    with pytest.raises(InputError, match=r"no class 9.*1, 2, 3, 4, 5"):
        made.rename(9, "x")


def test_a_name_that_no_file_can_hold_is_refused_before_anything_is_said(made, tmp_path):
    made.save(tmp_path)
    with pytest.raises(InputError, match=r"'Ren\\udce9' is not valid text\. Needed: .*UTF-8"):
        Discovery.load(tmp_path, by="Ren\udce9")
    with pytest.raises(InputError, match="or not valid text"):
        made.rename(FIRST, "caf\udce9")
    made.save(tmp_path)
    assert not read_edits(tmp_path)


def test_every_edit_says_who_and_when(made):
    made.rename(FIRST, "sea pen")
    (edit,) = made.edits
    assert edit.by == "Ada"
    assert pd.Timestamp(edit.at).tz is not None


@pytest.mark.parametrize("order", [(CAT, SECOND), (SECOND, CAT), ("new-3", "cat")])
def test_a_known_class_keeps_number_and_name_whatever_is_merged_with_it(made, order):
    assert made.merge(order) == CAT
    assert names(made) == {CAT: "cat", ABSENT: "new-1", FIRST: "new-2", THIRD: "new-4"}
    assert made.classes.kind(CAT) == "known"


@pytest.mark.parametrize("order", [(FIRST, THIRD), (THIRD, FIRST)])
def test_a_class_that_somebody_named_keeps_number_and_name_when_it_is_merged_with_one_that_nobody_did(made, order):
    made.rename(THIRD, "sea pen")
    assert made.merge(order) == THIRD
    assert names(made) == {CAT: "cat", ABSENT: "new-1", SECOND: "new-3", THIRD: "sea pen"}
    made.rename(SECOND, "crab")
    assert made.merge([THIRD, SECOND]) == SECOND  # both are named: the first that was found


@pytest.mark.parametrize("kind", [np.array, pd.Series, tuple])
def test_classes_may_be_merged_and_named_by_numbers_of_any_kind(made, kind):
    assert made.merge(kind([THIRD, SECOND])) == SECOND
    made.rename(np.int64(SECOND), "both")
    assert names(made)[SECOND] == "both"


def test_a_class_is_split_by_k_means_as_was_proposed(made):
    made.merge([FIRST, SECOND])
    before = made.classes
    proposed = made.propose_split(FIRST, 2)
    assert made.classes is before
    numbers = made.split(FIRST, 2)
    assert [made.classes.rows(number).tolist() for number in numbers] == proposed
    halves = [made.found.clusters.assignment[rows].bincount(minlength=4)[2:].tolist() for rows in proposed]
    assert sorted(max(half) / sum(half) for half in halves)[0] > 0.8  # the two that were merged lie apart
    assert numbers == [FIRST, 6]
    assert names(made)[6] == "new-5"


def test_a_class_may_be_split_by_hand(made):
    rows = made.classes.rows(FIRST).tolist()
    assert made.split("new-2", [rows[:3], rows[3:]]) == [FIRST, 6]
    assert made.classes.rows(6).tolist() == rows[:3]  # the larger part keeps the number


@pytest.mark.parametrize("into", [0, 1, 13])
def test_a_class_is_not_split_in_more_parts_than_it_has_images(made, into):
    with pytest.raises(InputError, match=f"Asked for {into} parts of class {FIRST}, which has 12 images"):
        made.split(FIRST, into)
    assert not made.edits


def test_a_class_of_equal_images_is_not_split(made):
    features, clusters = made.found.features.clone(), made.found.clusters
    features[clusters.assignment == 2] = 0.0
    alike = Discovery(replace(made.found, features=features))
    with pytest.raises(InputError, match=f"2 parts of class {FIRST}, whose 12 images show no more than 1"):
        alike.split(FIRST)


def test_images_are_moved_by_row_or_by_name(made):
    made.move([0, "1.png"], "new-4")
    assert made.classes.assignment[:2].tolist() == [THIRD, THIRD]
    assert made.new_class(["2.png"], "crab") == 6
    assert made.assignments().loc[2, ["class", "identified_by"]].tolist() == ["crab", "Ada"]
    for images, why in ((["a.png"], "no image called 'a.png'"), ([], "No image was given"), ([44], "no image 44")):
        with pytest.raises(InputError, match=why):
            made.move(images, CAT)


def test_a_name_alone_is_one_image_or_one_class_and_not_its_letters(made):
    made.move("12.png", to="cat")
    made.set_aside("13.png")
    assert made.classes.assignment[12] == CAT
    assert made.classes.aside.nonzero()[:, 0].tolist() == [13]
    for one in ("cat", CAT, np.int64(CAT)):
        with pytest.raises(InputError, match="merging needs at least two different classes"):
            made.merge(one)
    made.move(np.int64(14), to="cat")
    assert made.classes.assignment[14] == CAT


def test_the_name_of_a_file_means_all_boxes_in_it_and_every_image_is_looked_at_once(monkeypatch):
    names, boxes = ("a.png", "a.png", *map(str, range(42))), (Box(0, 0, 5, 5), Box(5, 0, 5, 5), *[None] * 42)
    run, asked = Discovery(make_found(listing=Listing.of(names, boxes=boxes))), []
    caption = Found.caption
    monkeypatch.setattr(Found, "caption", lambda found, row: asked.append(row) or caption(found, row))
    run.move(["a.png", "7", "8", "9"], FIRST)
    run.set_aside(["a.png at x=5, y=0"])
    assert run.edits[0].rows == (0, 1, 9, 10, 11)
    assert run.edits[1].rows == (1,)
    assert asked == [*range(44)]


def test_images_are_set_aside_and_accepted(made):
    made.set_aside([0])
    sure = made.assignments()
    expected = ((sure["guess"] == "cat") & (sure["confidence"] >= 0.9) & (sure["kind"] != "set aside")).sum()
    assert made.accept("cat", above=0.9) == expected
    assert (made.assignments()["identified_by"] == "Ada").sum() == expected + 1
    assert made.summary().set_index("class").loc["cat", "reviewed"] == expected
    assert made.accept(ABSENT) == 0
    assert made.accept(FIRST, above=float("nan")) == 0  # the mean of nothing, say


@pytest.mark.parametrize("line", [Logistic(20.0, 15.0), Logistic(4.0, 0.0)])
def test_accepting_above_a_confidence_reaches_no_image_that_is_unsure_or_an_outlier(line):
    run = Discovery(make_found(calibration=CALIBRATION._replace(outlier=line), threshold=0.5))
    table = run.assignments()
    confident = table["confidence"] >= 0.3
    named = confident & (table["number"] > 0)
    assert 0 < named.sum() < confident.sum()
    assert run.accept(None, above=0.3) == named.sum()
    assert sorted(run.classes.decided) == table.index[named].tolist()


def test_undo_and_redo_go_back_and_forth_without_end(made):
    tables = [made.assignments()]
    for edit in (lambda: made.merge([FIRST, SECOND]), lambda: made.rename(FIRST, "x"), lambda: made.split(FIRST)):
        edit()
        tables.append(made.assignments())
    for table in reversed(tables[:-1]):
        assert made.undo()
        pd.testing.assert_frame_equal(made.assignments(), table)
    assert not made.undo()
    for table in tables[1:]:
        assert made.redo()
        pd.testing.assert_frame_equal(made.assignments(), table)
    assert not made.redo()


def test_saved_and_loaded_is_the_same(made, tmp_path):
    made.merge([FIRST, SECOND])
    made.rename(FIRST, "sea pen")
    made.undo()
    made.save(tmp_path)
    loaded = Discovery.load(tmp_path)
    assert loaded.edits == made.edits
    pd.testing.assert_frame_equal(loaded.assignments(), made.assignments())
    pd.testing.assert_frame_equal(loaded.summary(), made.summary())
    assert loaded.redo()
    assert names(loaded)[FIRST] == "sea pen"


def test_a_class_is_split_in_as_many_as_a_number_of_numpy_says(made):
    run = Discovery(made.found)
    assert len(run.split(FIRST, np.int64(2))) == 2
    assert len(run.propose_split(SECOND, np.int32(3))) == 3


def test_saving_after_edits_writes_them_down_and_refreshes_tables_and_report(made, tmp_path):
    made.save(tmp_path)
    written = (tmp_path / "discovery.json").stat().st_mtime_ns
    loaded = Discovery.load(tmp_path, by="Bo")
    loaded.rename(FIRST, "sea pen")
    assert not (tmp_path / EDITS).is_file()  # nothing is written before it is saved
    loaded.save(tmp_path)
    assert [edit.by for edit in read_edits(tmp_path)] == ["Bo"]
    assert "sea pen" in (tmp_path / "classes.csv").read_text()
    assert "sea pen" in (tmp_path / "assignments.csv").read_text()
    assert "sea pen" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "discovery.json").stat().st_mtime_ns == written  # what was found never changes


def test_edits_that_others_saved_meanwhile_are_not_lost(made, tmp_path):
    made.save(tmp_path)
    one, other = Discovery.load(tmp_path, by="one"), Discovery.load(tmp_path, by="other")
    one.rename(FIRST, "sea pen")
    other.rename(SECOND, "crab")
    one.save(tmp_path)
    other.save(tmp_path)
    assert names(other)[FIRST] == "sea pen"
    assert names(other)[SECOND] == "crab"
    assert names(Discovery.load(tmp_path)) == names(other)


def test_edits_that_contradict_what_others_saved_are_refused_and_theirs_stay(made, tmp_path):
    made.save(tmp_path)
    late = Discovery.load(tmp_path)
    late.rename(SECOND, "crab")
    made.merge([FIRST, SECOND])
    made.save(tmp_path)
    with pytest.raises(InputError, match=f"no class {SECOND}"):
        late.save(tmp_path)
    assert names(Discovery.load(tmp_path)) == names(made)


def test_a_folder_that_holds_another_run_is_not_overwritten_unasked(made, tmp_path):
    made.save(tmp_path)
    other = Discovery(make_found(threshold=0.0))
    with pytest.raises(InputError, match="holds another run"):
        other.save(tmp_path)
    made.rename(FIRST, "sea pen")
    made.save(tmp_path)
    other.save(tmp_path, overwrite=True)
    assert Discovery.load(tmp_path).edits == []
    assert Discovery.load(tmp_path).found.threshold == 0


def test_edits_go_to_the_folder_that_was_read_wherever_somebody_has_gone_since(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.save("run")
    run, elsewhere = Discovery.load("run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run.rename(FIRST, "ray")
    run.save(tmp_path / "run")
    made.rename(SECOND, "eel")
    with made.together():
        pass
    assert not [*elsewhere.iterdir()]
    assert names(Discovery.load(tmp_path / "run")).items() >= {FIRST: "ray", SECOND: "eel"}.items()


def test_edits_do_not_go_to_another_run_that_was_written_there_meanwhile(made, tmp_path):
    made.save(tmp_path)
    Discovery(make_found(threshold=0.0)).save(tmp_path, overwrite=True)
    made.rename(FIRST, "sea pen")
    with pytest.raises(InputError, match="holds another run"):
        made.save(tmp_path)
    assert Discovery.load(tmp_path).edits == []


def test_a_run_that_overwrites_another_has_nothing_of_it_also_where_it_is_interrupted(made, tmp_path, monkeypatch):
    before, after = (Moment(torch.arange(44), torch.zeros(44, 2)) for _ in range(2))
    Discovery(make_found(moments=(before, after))).save(tmp_path)
    assert Discovery.load(tmp_path).found.moments is not None
    made.rename(FIRST, "sea pen")
    with monkeypatch.context() as patch:
        patch.setattr(Model, "save_pretrained", lambda model, folder: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.save(tmp_path, overwrite=True)
    with pytest.raises(InputError, match="no finished run"):
        Discovery.load(tmp_path)
    made.save(tmp_path, overwrite=True)
    assert Discovery.load(tmp_path).found.moments is None
    assert names(Discovery.load(tmp_path)) == names(made)


def test_of_two_that_read_a_run_of_version_3_the_second_does_not_drop_what_the_first_said(tmp_path):
    write_version_3(tmp_path, make_found(), [1, 2, 3, 2, 5], {"1": "crab", "2": "cat", "3": "new-4", "5": "new-1"})
    one, other = Discovery.load(tmp_path), Discovery.load(tmp_path)
    one.rename(1, "sea pen")
    one.save(tmp_path)
    with pytest.raises(InputError, match="holds another run"):
        other.save(tmp_path)
    assert names(Discovery.load(tmp_path)) == names(one)


def test_a_folder_that_was_taken_away_meanwhile_is_written_whole_again(made, tmp_path):
    made.save(tmp_path / "run")
    made.rename(FIRST, "sea pen")
    shutil.rmtree(tmp_path / "run")
    made.save(tmp_path / "run")
    assert names(Discovery.load(tmp_path / "run")) == names(made)


def test_a_run_of_version_3_is_saved_to_its_own_folder_as_one_of_today(tmp_path):
    called = {"1": "crab", "2": "cat", "3": "new-4", "5": "new-1"}
    write_version_3(tmp_path, make_found(), [1, 2, 3, 2, 5], called)
    old = Discovery.load(tmp_path)
    table = old.assignments()
    old.save(tmp_path)
    again = Discovery.load(tmp_path)
    assert json.loads((tmp_path / "discovery.json").read_text())["version"] == 4
    pd.testing.assert_frame_equal(again.assignments(), table)
    assert again.edits == old.edits


def test_a_folder_at_home_may_be_named_with_a_tilde(made, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made.save("~/run")
    assert (tmp_path / "run" / "discovery.json").is_file()
    assert names(Discovery.load("~/run")) == names(made)
    assert Model.from_pretrained("~/run/model").classes == made.found.model.classes


def test_damaged_edits_are_named_when_a_run_is_read(made, tmp_path):
    made.save(tmp_path)
    add_edits(tmp_path, [Edit("rename", (99,), names=("x",))])
    with pytest.raises(InputError, match="no class 99"):
        Discovery.load(tmp_path)
    (tmp_path / EDITS).write_text("{\n")
    with pytest.raises(InputError, match=r"Line 1 of .*edits\.jsonl is damaged"):
        Discovery.load(tmp_path)


def test_printed_it_shows_its_classes_and_no_tensor(made):
    for text in (repr(made), made._repr_html_()):
        assert "4 classes in 44 images" in text
        assert "new-2" in text
        assert "tensor" not in text


def test_what_a_discovery_is_made_of_prints_on_a_line(made, tmp_path):
    images = Images(torch.zeros(44, 1, 4, 4, dtype=torch.uint8), made.found.listing)
    for value in (made.found, made.found.model, made.classes, made.found.listing, images):
        assert "tensor" not in repr(value)
        assert len(repr(value).splitlines()) == 1
        assert len(repr(value)) <= 120
    assert repr(made.found) == "Found: 5 clusters in 44 images"
    assert repr(made.found.model) == "Model of 2 classes: adapter at 28 pixels"
    assert repr(made.classes) == "Classes of 44 images: 1: 'cat', 2: 'new-1', 3: 'new-2' and 2 more"
    assert repr(made.found.listing) == "Listing of 44 images from memory, 0 left out"


def test_predicting_the_same_images_gives_the_same_classes_and_knows_not_that_they_made_them(drawn, images):
    said, table = drawn.predict(images), drawn.assignments()
    same = ["path", "distance", "guess"]
    pd.testing.assert_frame_equal(said[same], table[same])
    assert (said["confidence"] > table["confidence"]).all()


def test_predictions_are_of_the_classes_as_people_left_them(drawn, images):
    drawn.merge([1, 2])
    drawn.rename(1, "both")
    assert "both" in set(drawn.predict(images)["class"])
    assert not {"new-1", "new-2"} & set(drawn.predict(images)["class"])


def test_files_that_cannot_be_read_are_named_when_predicting(drawn, tmp_path, caplog):
    write_doodles(tmp_path, range(1), each=2)
    (tmp_path / "zero.png").touch()
    with caplog.at_level(logging.WARNING, "newfound"):
        assert len(drawn.predict(tmp_path)) == 2
    assert "zero.png" in caplog.text


def test_images_of_another_size_are_refused(drawn):
    big = Images(torch.zeros(3, 1, 32, 32, dtype=torch.uint8), Listing.of(["a", "b", "c"]))
    with pytest.raises(InputError, match=r"32 × 32 pixels, the model sees 28 × 28"):
        drawn.predict(big)


def test_of_a_list_whose_first_images_have_boxes_every_table_has_the_same_columns(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("newfound.discovery.looking.TOGETHER", 2)
    for row in range(4):
        save(tmp_path / f"{row}.png")
    lines = ["path,x,y,width,height,group", "0.png,1,1,4,4,dive", "1.png,1,1,4,4,", "2.png,,,,,", "3.png,,,,,"]
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    first, second = (table for table, _ in drawn.predictions(tmp_path / "list.csv"))
    assert list(first) == list(second)
    assert {"x", "group"} <= set(first)


def test_the_page_shows_every_class_with_typical_images_first(drawn):
    drawn.merge([1, 2])
    shown = page(drawn.classes)
    assert [each.size for each in shown.classes] == list(drawn.summary()["size"])
    away = {row["path"]: row["distance"] for row in drawn.assignments().to_dict("records")}
    for each in shown.classes:
        distances = [away[exemplar.name] for exemplar in each.exemplars]
        assert distances == sorted(distances)
        assert not {e.name for e in each.exemplars} & {e.name for e in each.doubtful}
    assert len(shown.points) == 50
    assert shown.metrics is None


def test_boxes_of_one_name_stand_on_the_page_each_for_itself(drawn):
    listing, rows = drawn.found.listing, drawn.classes.rows(drawn.classes.numbers[0]).tolist()
    assert len(rows) > 2
    frames = [Box(0, 0, 1 + row, 1 + row) for row in range(len(listing))]  # in one corner, as where a frame ends
    boxed = Listing.of(["frame.png"] * len(listing), root=listing.root, boxes=frames)
    thumbnails = {row: torch.full((1, 4, 4), row, dtype=torch.uint8) for row in range(len(listing))}
    shown = page(Discovery(replace(drawn.found, listing=boxed, thumbnails=thumbnails)).classes).classes[0]
    seen = [int(each.pixels[0, 0, 0]) for each in shown.exemplars + shown.doubtful]
    assert len({*seen}) == len(seen)
    assert {*seen} <= {*rows}
    assert {each.name for each in shown.exemplars + shown.doubtful} == {"frame.png at x=0, y=0"}


def test_the_page_shows_nothing_that_was_set_aside(drawn):
    drawn.set_aside([0, 1])
    shown = page(drawn.classes)
    assert len(shown.points) == 48
    assert "2 were set aside" in shown.lead
    assert sum(each.size for each in shown.classes) == 48


def test_a_discovery_whose_images_are_all_set_aside_is_printed_and_saved(made, tmp_path):
    made.set_aside(range(44))
    assert "0 classes in 44 images" in repr(made)
    made.save(tmp_path)
    assert Discovery.load(tmp_path).classes.aside.all()


def test_the_page_counts_the_images_that_were_measured(made):
    run = Discovery(replace(made.found, truth=("cat",) * 44))
    run.set_aside([0, 1])
    assert "all 42 unlabelled images" in page(run.classes).measured


def test_the_page_has_a_curve_of_what_was_not_written_down_in_every_epoch(made):
    rows = {"epoch": 1.0, "loss": 0.5}, {"epoch": 2.0, "loss": 0.25, "late": 0.125}, {"epoch": 3.0, "loss": 0.2}
    curves = page(Discovery(replace(made.found, history=rows)).classes).curves
    assert curves["loss"] == [0.5, 0.25, 0.2]
    assert [repr(value) for value in curves["late"]] == ["nan", "0.125", "nan"]


def test_a_class_that_is_called_unsure_keeps_its_images_in_tables_and_report(drawn):
    drawn.rename(1, "unsure")
    row = drawn.summary().iloc[0]
    assert (row["class"], row["unsure"]) == ("unsure", 0)
    shown = page(drawn.classes).classes[0]
    assert (shown.name, shown.size, shown.unsure) == ("unsure", row["size"], 0)


def test_other_methods_that_were_compared_stay_in_the_report(made, tmp_path):
    from newfound.discovery.found import Compared

    told = Discovery(replace(made.found, comparison=(Compared("k-means on pixels", 0.5, 0.25),)))
    told.save(tmp_path)
    assert "k-means on pixels" in (tmp_path / "report.html").read_text()
    again = Discovery.load(tmp_path)
    again.rename(FIRST, "sea pen")
    again.save(tmp_path)
    assert "k-means on pixels" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "discovery.json").read_text())["comparison"] == [["k-means on pixels", 0.5, 0.25]]


def test_two_known_classes_are_merged_only_where_that_is_said(made):
    with pytest.raises(InputError, match=r"'cat', 'new-1' are known classes.*force=True"):
        made.merge([CAT, ABSENT])
    assert not made.edits
    assert made.merge([CAT, ABSENT], force=True) == CAT


def test_numbers_that_no_table_has_are_explained(made):
    assert "No image is of 2 (new-1)." in repr(made)
    assert "No image is of 2 (new-1)." in made._repr_html_()
    made.merge([FIRST, SECOND])
    assert f"No class any more, merged or undone: {SECOND}." in repr(made)
    assert page(made.classes).notes == ["No image is of 2 (new-1).", "No class any more, merged or undone: 4."]
    made.rename(ABSENT, "\x1b[2Jgone\u202e")
    assert r"No image is of 2 (\x1b[2Jgone\u202e)." in repr(made)


def test_numbers_that_earlier_runs_gave_to_classes_which_were_not_learnt_are_explained():
    found = make_found()
    later = replace(found, numbers=(*found.numbers[:2], *(number + 2 for number in found.numbers[2:])))
    assert "Of earlier runs, and no class now: 3–4." in repr(Discovery(later))
    assert "earlier runs" not in repr(Discovery(found))


def test_a_known_class_that_was_not_looked_for_is_called_by_its_name_among_the_gaps():
    found = make_found()
    model = replace(found.model, classes=("cat", "rare", "new-1"), numbers=())
    later = replace(found, model=model, numbers=(1, 3, 4, 5, 6))
    assert "Known, and not looked for: 2 (rare)." in repr(Discovery(later))
    assert "earlier runs" not in repr(Discovery(later))


def test_gaps_take_no_longer_the_larger_numbers_are():
    found = make_found()
    later = replace(found, numbers=(1, 2, 10**12, 10**12 + 1, 10**12 + 2), used=10**12 + 2)
    assert f"Of earlier runs, and no class now: 3–{10**12 - 1}." in repr(Discovery(later))


def test_three_hundred_classes_of_long_names_fit_a_screen_with_kind_and_size():
    n = 300
    clusters = Clusters(torch.arange(n), 9 * torch.eye(n), torch.full((n,), 10**9), unit=False)
    found = make_found(features=9 * torch.eye(n) + 0.1, clusters=clusters, known=(), numbers=())
    run = Discovery(found)
    run.rename(1, "Strongylocentrotus droebachiensis of the deep sea \x1b[31m beside the northern reef")
    for text in (repr(run), repr(run.summary()), str(run.summary())):
        lines = text.splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
        assert "284 classes more" in text
        assert "\x1b" not in text
        head = next(line for line in lines if "kind" in line)
        assert all(word in head for word in ("number", "class", "kind", "size", "unsure", "nearest"))
        first = next(line for line in lines if "Strongylo" in line)
        assert " new " in first
        assert " 1 " in first
    assert type(run.summary()[["size"]]) is pd.DataFrame


def test_typical_images_of_the_report_are_sure_and_others_doubtful(made):
    some = [0, 10, 20, 30, 40, 41, 42, 43]  # one of each class, and those that lie between
    copies = {row: torch.zeros(1, 4, 4, dtype=torch.uint8) for row in some}
    shown = page(Discovery(replace(made.found, thumbnails=copies)).classes)
    kinds = dict(zip(made.assignments()["path"], made.assignments()["kind"], strict=True))
    assert {kinds[image.name] for each in shown.classes for image in each.exemplars} == {"known", "new"}
    assert "unsure" in {kinds[image.name] for each in shown.classes for image in each.doubtful}


def test_labelled_images_stand_beside_known_classes_and_the_nearest_known_beside_new_ones(made, tmp_path):
    copies = {place: torch.full((2, 1, 4, 4), place, dtype=torch.uint8) for place in range(2)}
    run = Discovery(replace(made.found, references=copies))
    run.save(tmp_path)
    shown = {each.name: each for each in page(Discovery.load(tmp_path).classes).classes}
    assert [image.pixels.max() for image in shown["cat"].references] == [0, 0]
    assert shown["cat"].nearest == ""
    assert {shown[f"new-{i}"].nearest for i in (2, 3, 4)} == {"cat"}
    assert len(shown["new-2"].references) == 2
    assert "labelled cat" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_known_class_of_which_no_image_is_sure_is_not_counted_and_a_poor_run_is_headed_by_a_warning(made):
    fine = page(made.classes)
    assert fine.title == "4 classes in 44 images"
    assert not fine.warnings
    poor = page(Discovery(replace(made.found, threshold=2.0)).classes)
    assert poor.title == "3 classes in 44 images"
    assert "of 0 known classes" in poor.lead
    assert "44 of 44 images (100%) are unsure" in poor.warnings[0]
    for expected, warned in ((Expected(0.41, 0.3, 0.9, 4, 0.1), True), (Expected(0.83, 0.4, 0.9, 4, 0.1), False)):
        told = page(Discovery(replace(made.found, expected=expected)).classes)
        assert bool(told.warnings) == warned
        assert told.expected == str(expected)
