"""Discovery: summary, rename, merge, predict, save, load."""

import json

import pandas as pd
import pytest
import torch

from newfound.data.sources import Images, doodles
from newfound.discovery.find import Run, find, read
from newfound.discovery.pages import page
from newfound.discovery.result import Discovery
from newfound.errors import InputError
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded


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
    return find(model, images, 4, run=Run(method="kmeans", device="cpu"))


def test_the_summary_has_a_row_a_class_the_largest_first(found):
    table = found.summary()
    assert list(table["name"]) == ["new-1", "new-2", "new-3", "new-4"]
    assert table["size"].sum() == 50
    assert table["size"].is_monotonic_decreasing
    assert table["share"].sum() == pytest.approx(1, abs=1e-3)


def test_distance_and_confidence_are_those_of_the_centres(found):
    table = found.assignments()
    for row in range(len(table)):
        d = (found.features[row] - found.centres).norm(dim=1)
        own = d[found.cluster[row]]
        other = min(v for k, v in enumerate(d) if k != found.cluster[row])
        assert table["distance"][row] == pytest.approx(own.item(), abs=1e-4)
        assert table["confidence"][row] == pytest.approx(max(0, 1 - (own / other).item()), abs=1e-3)


def test_the_exemplar_is_the_image_nearest_its_centre(found):
    table, summary = found.assignments(), found.summary()
    for name, exemplar in zip(summary["name"], summary["exemplar"], strict=True):
        members = table[table["class"] == name]
        assert members.set_index("path")["distance"][exemplar] == members["distance"].min()


def test_renaming_changes_the_name_everywhere(found):
    found.rename(2, "sea pen")
    assert "sea pen" in set(found.assignments()["class"])
    assert "new-2" not in set(found.assignments()["class"])
    with pytest.raises(InputError, match="another class's name"):
        found.rename(1, "sea pen")
    with pytest.raises(InputError, match=r"no class 9.*1, 2, 3, 4"):
        found.rename(9, "x")


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


def test_predicting_the_same_images_gives_the_same_table(found, images):
    pd.testing.assert_frame_equal(found.predict(images), found.assignments())


def test_saved_and_loaded_is_the_same(found, images, tmp_path):
    found.rename(1, 'a "name", with comma\nand newline')
    found.merge([3, 4])
    found.skipped = ("broken.png: the file is empty",)
    found.save(tmp_path)
    loaded = Discovery.load(tmp_path)
    pd.testing.assert_frame_equal(loaded.summary(), found.summary())
    pd.testing.assert_frame_equal(loaded.assignments(), found.assignments())
    pd.testing.assert_frame_equal(loaded.predict(images), found.predict(images))
    assert (loaded.names, loaded.group, loaded.skipped) == (found.names, found.group, found.skipped)
    read_back = pd.read_csv(tmp_path / "assignments.csv")
    assert list(read_back["class"]) == list(found.assignments()["class"])


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


def test_the_largest_cluster_is_read_first():
    x = torch.cat([torch.randn(n, 2, generator=generator(n)) * 0.1 + n for n in (5, 40, 20)])
    found = read(x, 3, seed=0)
    assert torch.bincount(found.assignment).tolist() == [40, 20, 5]
    torch.testing.assert_close(found.centres, torch.tensor([[40.0] * 2, [20.0] * 2, [5.0] * 2]), atol=0.2, rtol=0)


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
