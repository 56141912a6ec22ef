"""Discovery: summary, rename, merge, predict, save, load."""

import csv
import io
import json
import logging
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from newfound.data.decoding import Box
from newfound.data.sources import Images, doodles
from newfound.discovery.find import Run, find
from newfound.discovery.pages import page
from newfound.discovery.result import TRUST_FEATURES, TRUST_LEARNT, Discovery, csv_text
from newfound.discovery.trace import Trace
from newfound.errors import InputError
from newfound.functional.calibration import Line, Trust
from newfound.functional.counting import Count, Tried
from newfound.networks.model import Model
from newfound.networks.pretrained import trunk
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded
from tests.data.pictures import save, write_doodles


@pytest.fixture(scope="module")
def model():
    with seeded("result"):
        return Model(SmallResNet(2, 2), 28, 1, ("a", "b"), torch.nn.Linear(16, 2))


@pytest.fixture(scope="module")
def images():
    drawings = doodles("spare")
    return drawings.pick(torch.arange(0, 1000, 20))  # 50 drawings


@pytest.fixture
def found(model, images):
    """Classes of a pile in which no image is unsure."""
    return find(model, images, 4, run=Run(method="kmeans", unsure=0.0, device="cpu"))


TRUST = Trust(right=Line(3.0, -0.5), new=Line(2.0, 0.25))


@pytest.fixture
def mixed(model):
    """Ten points each of three new classes and two known ones, and some between them; nothing is of class 5."""
    places = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    random = generator("mixed")
    between = torch.tensor([[4.4, 0.1], [0.2, 4.6], [4.5, 4.4], [8.8, 4.3]])
    features = torch.cat([(places[:, None] + torch.randn(4, 10, 2, generator=random)).flatten(0, 1), between])
    centres = torch.cat([places, torch.tensor([[30.0, 30.0]])])
    return Discovery(
        replace(model, trust=TRUST, classes=("cat", "new-1")),
        paths=tuple(f"{row}.png" for row in range(44)),
        boxes=(None,) * 44,
        features=features,
        centres=centres,
        cluster=torch.cdist(features, centres).argmin(1),
        sizes=torch.full((5,), 10**9),  # so many that no image moves its centre
        unit=False,
        known=("cat", "new-1"),
        thumbnails={0: torch.zeros(1, 4, 4, dtype=torch.uint8)},
        threshold=0.6,
    )


def sigmoid(line, score):
    return 1 / (1 + math.exp(-(line.slope * score + line.offset)))


def test_the_summary_has_a_row_a_class_the_largest_first(found):
    table = found.summary()
    assert list(table["name"]) == ["new-1", "new-2", "new-3", "new-4"]
    assert table["size"].sum() == 50
    assert table["size"].is_monotonic_decreasing
    assert table["share"].sum() == pytest.approx(1, abs=1e-3)


def test_distance_and_confidence_are_those_of_the_centres_without_the_image_itself(found):
    table = found.assignments()
    for row in range(len(table)):
        d = (found.features[row] - found.centres).norm(dim=1)
        assert table["distance"][row] == pytest.approx(d[found.cluster[row]].item(), abs=1e-4)
        others = found.cluster == found.cluster[row]
        others[row] = False
        own = (found.features[row] - found.features[others].mean(0)).norm()
        other = min(v for k, v in enumerate(d) if k != found.cluster[row])
        assert table["confidence"][row] == pytest.approx(sigmoid(TRUST_LEARNT.right, math.log(other / own)), abs=1e-3)


def test_the_exemplar_is_the_image_nearest_its_centre(found):
    table, summary = found.assignments(), found.summary()
    for name, exemplar in zip(summary["name"], summary["exemplar"], strict=True):
        members = table[table["class"] == name]
        assert members.set_index("path")["distance"][exemplar] == members["distance"].min()


def test_accuracy_on_sure_images_keeps_the_assignment_of_all_images(mixed):
    confidence = mixed.confidence()
    first = confidence[mixed.cluster == 0].sort(descending=True).values
    mixed.threshold = first[3].item()
    sure = confidence >= mixed.threshold
    # Of the first cluster the four sure images are crabs; the others, which are more, are eels and give it its class.
    kinds = [f"kind {cluster}" for cluster in mixed.cluster.tolist()]
    truth = [("crab" if sure[row] else "eel") if kind == "kind 0" else kind for row, kind in enumerate(kinds)]
    mixed.truth = tuple(truth)
    assert mixed.scores["sure accuracy"] == pytest.approx(1 - 4 / sure.sum().item())
    mixed.truth = tuple(kinds)
    assert mixed.scores["sure accuracy"] == 1


def test_scores_are_those_of_the_classes_as_a_person_left_them(mixed):
    """New clusters 0 and 1 hold one kind: merged they are right, and known classes keep their places."""
    new = len(mixed.centres) - len(mixed.known)
    truth = [
        "kind" if cluster < 2 else mixed.known[cluster - new] if cluster >= new else f"kind {cluster}"
        for cluster in mixed.cluster.tolist()
    ]
    mixed.truth = tuple(truth)
    apart = mixed.scores
    mixed.merge([1, 2])
    assert apart["accuracy"] < 1
    assert mixed.scores["accuracy"] == mixed.scores["named accuracy"] == 1
    mixed.rename(mixed.classes[-1], "another name")  # is still that class
    assert mixed.scores["named accuracy"] == 1
    mixed.merge([1, mixed.classes[-1]])  # a known class with a new one
    assert mixed.scores["named accuracy"] < 1


def test_renaming_changes_the_name_everywhere(found):
    found.rename(2, "sea pen")
    assert "sea pen" in set(found.assignments()["class"])
    assert "new-2" not in set(found.assignments()["class"])
    with pytest.raises(InputError, match="another class's name"):
        found.rename(1, "sea pen")
    with pytest.raises(InputError, match=r"no class 9.*1, 2, 3, 4"):
        found.rename(9, "x")


@pytest.mark.parametrize("name", ["", " \t"])
def test_a_class_is_not_left_without_a_name(mixed, name):
    with pytest.raises(InputError, match=r"is empty or another class's name; give class 2 a name"):
        mixed.rename(2, name)


def test_merged_classes_are_one_and_numbers_are_never_given_anew(found):
    sizes = found.summary().set_index("class")["size"]
    assert found.merge([4, 2]) == 2
    after = found.summary().set_index("class")["size"]
    assert list(after.index) == [1, 2, 3]
    assert after[2] == sizes[2] + sizes[4]
    found.rename(3, "third")
    assert found.classes == [1, 2, 3]
    with pytest.raises(InputError, match="two different classes"):
        found.merge([1, 1])


def test_merging_makes_images_between_the_two_more_confident(found):
    before = found.assignments()["confidence"]
    found.merge([1, 2])
    after = found.assignments()["confidence"]
    assert (after >= before - 1e-9).all()
    assert (after > before).any()


def test_all_merged_into_one_class_is_certain(found):
    found.merge([1, 2, 3, 4])
    assert (found.assignments()["confidence"] == 1).all()
    assert list(found.summary()["nearest"]) == [""]


def test_predicting_the_same_images_gives_the_same_classes_and_knows_not_that_they_made_them(found, images):
    said, table = found.predict(images), found.assignments()
    same = ["path", "distance", "guess"]
    pd.testing.assert_frame_equal(said[same], table[same])
    assert (said["confidence"] > table["confidence"]).all()


def test_saved_and_loaded_is_the_same(found, images, tmp_path):
    found.rename(1, 'a "name", with comma\nand newline')
    found.merge([3, 4])
    found.skipped = ("broken.png: the file is empty",)
    found.save(tmp_path)
    loaded = Discovery.load(tmp_path)
    pd.testing.assert_frame_equal(loaded.summary(), found.summary())
    pd.testing.assert_frame_equal(loaded.assignments(), found.assignments())
    pd.testing.assert_frame_equal(loaded.predict(images), found.predict(images))
    assert (loaded.names, loaded.numbers, loaded.skipped) == (found.names, found.numbers, found.skipped)
    read_back = pd.read_csv(tmp_path / "assignments.csv")
    assert list(read_back["class"]) == list(found.assignments()["class"])


def test_saved_elsewhere_under_new_names_figures_can_still_be_drawn(model, images, tmp_path):
    found = find(model, images, 2, run=Run(epochs=1, device="cpu"))
    found.save(tmp_path / "first")
    loaded = Discovery.load(tmp_path / "first")
    loaded.rename(1, "sea pen")
    loaded.save(tmp_path / "second")
    before, after = (Trace.load(tmp_path / name) for name in ("first", "second"))
    assert "sea pen" in after.classes
    assert "sea pen" not in before.classes
    assert torch.equal(before.after.latents, after.after.latents)


@pytest.mark.parametrize("kind", [np.array, pd.Series, tuple])
def test_classes_may_be_merged_and_named_by_numbers_of_any_kind(found, tmp_path, kind):
    clusters = torch.tensor(found.numbers)
    assert found.merge(kind([4, 3])) == 3
    assert found.numbers == torch.where(clusters == 4, 3, clusters).tolist()
    found.rename(np.int64(3), "both")
    found.save(tmp_path)
    assert Discovery.load(tmp_path).names == found.names


def test_a_folder_at_home_may_be_named_with_a_tilde(found, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found.save("~/run")
    assert (tmp_path / "run" / "discovery.json").is_file()
    assert Discovery.load("~/run").names == found.names
    assert Model.from_pretrained("~/run/model").classes == found.model.classes


def test_files_that_cannot_be_read_are_named_when_predicting(found, tmp_path, caplog):
    write_doodles(tmp_path, range(1), each=2)
    (tmp_path / "zero.png").touch()
    with caplog.at_level(logging.WARNING, "newfound"):
        assert len(found.predict(tmp_path)) == 2
    assert "zero.png" in caplog.text


def test_known_classes_come_last_under_their_names_and_new_ones_avoid_these(mixed):
    assert mixed.names == {1: "new-2", 2: "new-3", 3: "new-4", 4: "cat", 5: "new-1"}
    assert [mixed.kind(number) for number in mixed.classes] == ["new", "new", "new", "known", "known"]


def test_a_table_says_of_every_image_what_a_loop_over_centres_says(mixed):
    table = mixed.assignments()
    assert list(table) == ["path", "class", "number", "kind", "confidence", "newness", "distance", "guess", "twin"]
    for row, line in table.iterrows():
        d = [math.dist(mixed.features[row].tolist(), centre) for centre in mixed.centres.tolist()]
        own = min(range(5), key=d.__getitem__)
        right = sigmoid(TRUST.right, math.log(min(d[k] for k in range(5) if k != own) / d[own]))
        new = sigmoid(TRUST.new, math.log(min(d[3:]) / min(d[:3])))
        name = ("new-2", "new-3", "new-4", "cat", "new-1")[own]
        kind = "known" if own >= 3 else "new"
        assert line["confidence"] == pytest.approx(right, abs=1e-4)
        assert line["newness"] == pytest.approx(new, abs=1e-4)
        assert line["distance"] == pytest.approx(d[own], abs=1e-4)
        assert line["guess"] == name
        said = (name, own + 1, kind) if right >= 0.6 else ("unsure", -1, "unsure")
        assert (line["class"], line["number"], line["kind"]) == said
    assert set(table["kind"]) == {"known", "new", "unsure"}
    assert mixed.confidence().tolist() == pytest.approx(table["confidence"].tolist(), abs=1e-4)


def test_the_summary_counts_sure_images_and_the_others_beside_them(mixed):
    table, summary = mixed.assignments(), mixed.summary().set_index("name")
    assert list(summary.index) == ["new-2", "new-3", "new-4", "cat"]  # of class 5 there is nothing
    for name, line in summary.iterrows():
        sure, guessed = table[table["class"] == name], table[table["guess"] == name]
        assert line["size"] == len(sure)
        assert line["share"] == pytest.approx(len(sure) / 44, abs=1e-4)
        assert line["unsure"] == len(guessed) - len(sure)
        assert line["kind"] == ("known" if name == "cat" else "new")
        assert line["coherence"] == pytest.approx(guessed["confidence"].mean(), abs=1e-4)
        assert line["newness"] == pytest.approx(guessed["newness"].mean(), abs=1e-4)
    assert summary["size"].sum() + summary["unsure"].sum() == 44
    assert summary["unsure"].sum() >= 4
    assert summary["newness"].drop("cat").min() > 0.8
    assert summary["newness"]["cat"] < 0.2


@pytest.mark.parametrize(("threshold", "unsure"), [(0.0, 0), (math.inf, 44)])
def test_all_images_or_none_may_be_unsure(mixed, threshold, unsure):
    mixed.threshold = threshold
    table = mixed.assignments()
    assert (table["class"] == "unsure").sum() == unsure
    assert mixed.summary()["unsure"].sum() == unsure
    assert (table["guess"] != "unsure").all()


def test_a_class_may_be_called_unsure_and_still_be_counted(mixed):
    sizes = mixed.summary()["size"]
    mixed.rename(4, "unsure")
    assert list(mixed.summary()["size"]) == list(sizes)


@pytest.mark.parametrize("numbers", [(4, 2), (2, 4)])
def test_merging_a_new_class_into_a_known_one_keeps_the_known_name(mixed, numbers):
    sizes = mixed.summary().set_index("class")["size"]
    assert mixed.merge(numbers) == 2
    assert mixed.names == {1: "new-2", 2: "cat", 3: "new-4", 5: "new-1"}
    assert mixed.kind(2) == "known"
    summary = mixed.summary().set_index("class")
    assert summary["size"][2] >= sizes[2] + sizes[4]  # some between them are sure now
    assert summary["kind"][2] == "known"
    assert summary["newness"][2] < 0.2  # both clusters are known now


def test_two_known_classes_merged_have_the_first_one_s_name(mixed):
    assert mixed.merge([5, 4]) == 4
    assert mixed.names[4] == "cat"
    assert mixed.merge([1, 4, 2]) == 1
    assert mixed.names == {1: "cat", 3: "new-4"}


def test_the_nearest_class_is_that_of_the_nearest_centre_of_another_also_once_merged(mixed):
    mixed.centres = torch.tensor([[0.0, 0.0], [9.5, 0.0], [0.0, 8.0], [9.0, 6.0], [30.0, 30.0]])
    nearest = mixed.summary().set_index("name")["nearest"]
    assert nearest.to_dict() == {"new-2": "new-4", "new-3": "cat", "new-4": "new-2", "cat": "new-3"}
    mixed.merge([2, 4])  # the nearest of the others is near the second of its centres
    nearest = mixed.summary().set_index("name")["nearest"]
    assert nearest.to_dict() == {"new-2": "new-4", "cat": "new-4", "new-4": "new-2"}


def test_confidence_is_the_table_s_also_once_classes_are_merged(mixed):
    before = mixed.confidence()
    mixed.merge([1, 2])
    assert mixed.confidence().tolist() == pytest.approx(mixed.assignments()["confidence"].tolist(), abs=1e-4)
    assert not torch.equal(mixed.confidence(), before)


def test_new_classes_merged_stay_new(mixed):
    assert mixed.merge([3, 1]) == 1
    assert (mixed.names[1], mixed.kind(1)) == ("new-2", "new")


def test_distances_mean_what_the_model_says_and_else_what_others_said(mixed):
    own, other = torch.cdist(mixed.features[:1], mixed.centres)[0].sort().values[:2].tolist()
    eye = trunk()
    for trust, looks, line in ((TRUST, eye, TRUST), (None, None, TRUST_LEARNT), (None, eye, TRUST_FEATURES)):
        mixed.model = replace(mixed.model, trust=trust, trunk=looks)
        assert mixed.confidence()[0].item() == pytest.approx(sigmoid(line.right, math.log(other / own)), abs=1e-5)


def test_where_no_class_is_known_all_images_are_new(found):
    assert (found.assignments()["newness"] == 1).all()
    assert set(found.assignments()["kind"]) == {"new"}


def test_a_near_duplicate_is_told_by_the_image_that_it_nearly_equals(mixed):
    mixed.twins = {3: 1, 7: 1}
    column = mixed.assignments()["twin"]
    assert column[3] == column[7] == "1.png"
    assert (column.drop([3, 7]) == "").all()


def test_what_was_known_unsure_counted_and_double_is_loaded_again(mixed, tmp_path):
    mixed.twins = {3: 1}
    mixed.count = Count(
        7, 2, 5, 9, "pairs", {"pairs": 7, "silhouette": 8}, (Tried(2, 0.5, 0.25, 0.1), Tried(4, 0, 1, 0.2))
    )
    mixed.truth = tuple("ab"[row % 2] for row in range(len(mixed.paths)))
    mixed.merge([1, 4])
    mixed.save(tmp_path)
    loaded = Discovery.load(tmp_path)
    assert (loaded.known, loaded.threshold, loaded.twins) == (("cat", "new-1"), 0.6, {3: 1})
    assert loaded.count == mixed.count
    assert loaded.model.trust == TRUST
    pd.testing.assert_frame_equal(loaded.assignments(), mixed.assignments())
    pd.testing.assert_frame_equal(loaded.summary(), mixed.summary())
    read_back = pd.read_csv(tmp_path / "assignments.csv", keep_default_na=False)
    assert list(read_back["twin"]) == list(mixed.assignments()["twin"])


@pytest.mark.parametrize("header", [True, False])
def test_names_of_any_signs_are_read_back_from_a_table_with_and_without_its_header(header):
    names = ['a, "b"', "c\rd", "e\nf", "g\r\nh", "ü"]
    text = csv_text(pd.DataFrame({"path": names, "size": range(5)}), header=header)
    rows = [[name, str(size)] for size, name in enumerate(names)]
    assert [*csv.reader(io.StringIO(text, newline=""))] == [["path", "size"]] * header + rows


def test_nan_in_what_spoke_for_a_number_is_loaded_again(mixed, tmp_path):
    mixed.count = Count(7, 0, 5, 9, "silhouette", {"silhouette": 7}, (Tried(2, math.nan, math.nan, 0.1),))
    mixed.save(tmp_path)
    loaded = Discovery.load(tmp_path)
    assert [math.isnan(value) for value in loaded.count.curve[0]] == [False, True, True, False]
    assert "NaN" not in (tmp_path / "discovery.json").read_text()


def test_a_run_of_another_version_or_damaged_is_refused(found, tmp_path):
    found.save(tmp_path)
    about = tmp_path / "discovery.json"
    text = about.read_text()
    about.write_text(json.dumps(json.loads(text) | {"version": 99}))
    with pytest.raises(InputError, match="version 99"):
        Discovery.load(tmp_path)
    about.write_text(text[:100])
    with pytest.raises(InputError, match="damaged"):
        Discovery.load(tmp_path)
    about.unlink()
    with pytest.raises(InputError, match="no finished run"):
        Discovery.load(tmp_path)


def test_images_of_another_size_are_refused(found):
    big = Images(torch.zeros(3, 1, 32, 32, dtype=torch.uint8), ("a", "b", "c"), torch.full((3,), -1), ())
    with pytest.raises(InputError, match=r"32 pixels wide.*sees 28"):
        found.predict(big)


def test_finding_leaves_the_model_as_it_was(model, images):
    before = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    find(model, images, 3, run=Run(epochs=1, device="cpu"))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.backbone.state_dict().items())


def test_the_truth_of_unlabelled_images_does_not_reach_training(model, images):
    assert (images.labels >= 0).all()  # the drawings come with their truth, which find must not look at
    shuffled = Images(images.pixels, images.names, images.labels.flip(0), images.classes)
    runs = [find(model, some, 3, run=Run(epochs=2, device="cpu")) for some in (images, shuffled)]
    assert torch.equal(runs[0].features, runs[1].features)


def test_labelled_and_unlabelled_images_come_together_grey_or_coloured(images):
    colour = Images(images.pixels.repeat(1, 3, 1, 1), images.names, images.labels, images.classes)
    data = images.beside(colour)
    assert data.pixels.shape == (100, 3, 28, 28)
    assert data.labels[:50].equal(images.labels)
    assert (data.labels[50:] == -1).all()


def test_the_page_shows_every_class_with_typical_images_first(found):
    found.merge([1, 2])
    shown = page(found)
    assert [each.size for each in shown.classes] == list(found.summary()["size"])
    for each in shown.classes:
        confidences = {row["path"]: row["distance"] for row in found.assignments().to_dict("records")}
        distances = [confidences[exemplar.name] for exemplar in each.exemplars]
        assert distances == sorted(distances)
        assert not {e.name for e in each.exemplars} & {e.name for e in each.doubtful}
    assert len(shown.points) == 50
    assert shown.metrics is None


def test_features_that_are_not_finite_are_refused(images):
    with seeded("result"):
        model = Model(SmallResNet(2, 2), 28, 1, ("a", "b"))
    model.backbone.stages[0][0].weight.data.fill_(torch.inf)
    with pytest.raises(InputError, match=r"NaN or infinite features for 50 of 50 images"):
        find(model, images, 3, run=Run(method="kmeans", device="cpu"))


def test_a_class_that_is_called_unsure_keeps_its_images_in_tables_and_report(found):
    found.rename(1, "unsure")
    row = found.summary().iloc[0]
    assert (row["name"], row["unsure"]) == ("unsure", 0)
    shown = page(found).classes[0]
    assert (shown.name, shown.size, shown.unsure) == ("unsure", row["size"], 0)


def test_boxes_and_groups_are_told_wherever_an_image_is(mixed):
    mixed.boxes = tuple(Box(row, 2, 3, 4) if row % 2 else None for row in range(44))
    mixed.groups = tuple("dive" if row < 5 else "" for row in range(44))
    mixed.twins = {4: 3}
    table = mixed.assignments()
    assert list(table)[:6] == ["path", "x", "y", "width", "height", "group"]
    assert table["group"].tolist() == list(mixed.groups)
    assert table["twin"][4] == "3.png at x=3, y=2"
    for text in mixed.summary()["exemplar"]:
        row = int(text.split(".")[0])
        assert text == (f"{row}.png at x={row}, y=2" if row % 2 else f"{row}.png")


def test_of_a_list_whose_first_images_have_boxes_every_table_has_the_same_columns(model, found, tmp_path, monkeypatch):
    monkeypatch.setattr("newfound.discovery.result.TOGETHER", 2)
    for row in range(4):
        save(tmp_path / f"{row}.png")
    lines = ["path,x,y,width,height,group", "0.png,1,1,4,4,dive", "1.png,1,1,4,4,", "2.png,,,,,", "3.png,,,,,"]
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    grey = replace(found, model=replace(model, channels=1))
    first, second = (table for table, _ in grey.predictions(tmp_path / "list.csv"))
    assert list(first) == list(second)
    assert {"x", "group"} <= set(first)
