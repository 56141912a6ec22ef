"""The stages before discovery: what each looks at, and what it leaves."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from newfound import cache, methods
from newfound.benchmark import entries
from newfound.benchmark import stages as room
from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.published import TWO_STAGE
from newfound.benchmark.stages import Stages, Task, fingerprint, origin_of
from newfound.data.datasets import DATASETS
from newfound.data.features import FeatureDataset
from newfound.data.listing import Listing
from newfound.data.pixels import Images, PixelDataset
from newfound.networks.backbone import Tail
from newfound.networks.model import Model
from newfound.types import generator
from tests.benchmark import small

ALONE = ("kmeans", "pairs", "rs+spacing", "ncl", "dtc", "uno")
"""A method of each way to start in two stages."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One cache for the whole file."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root))
        yield root


def stages(labelled, budget=small.TINY, **changes):
    return Stages(small.task(labelled, **changes), 0, budget, lambda stage, epochs, row: None)


def weights(folder):
    return load_file(folder / "model.safetensors")


def differing(a, b):
    return {name for name in a.keys() | b.keys() if name not in a or name not in b or not torch.equal(a[name], b[name])}


def made(root, kind):
    return list((root / "benchmark").glob(f"{kind}-*"))


def trunk(backbone, pixels):
    backbone.eval()
    with torch.no_grad():
        return backbone(pixels.float() / 255).map


def noise_for_novel(images: Images) -> Images:
    pixels = torch.randint(0, 256, images.pixels.shape, generator=generator("noise"), dtype=torch.uint8)
    return replace(images, pixels=torch.where((images.listing.labels >= 5)[:, None, None, None], pixels, images.pixels))


@pytest.mark.parametrize("stage", ["supervised", "similarity"])
def test_the_stages_of_labelled_images_do_not_look_at_unlabelled_ones(root, stage):
    usual = getattr(stages(False), stage)()
    noisy = getattr(stages(False, train=noise_for_novel(small.images(True))), stage)()
    assert noisy != usual, "other images are another entry"
    assert (noisy / "model.safetensors").read_bytes() == (usual / "model.safetensors").read_bytes()


def test_in_two_stages_nothing_is_learnt_by_rotation(root, tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))
    for name in {*TWO_STAGE, *ALONE}:
        stages(False).start(name)
    kinds = {folder.name.split("-")[0] for folder in (tmp_path / "benchmark").iterdir()}
    assert kinds == {"supervised", "settled", "similarity"}


def test_in_one_stage_rotation_comes_first_for_those_whose_papers_say_so(root):
    stages(True).start("rs")
    assert made(root, "rotation")
    assert made(root, "finished")


@pytest.mark.parametrize(("name", "labelled"), [("pairs", False), ("kmeans", False), ("rs", True), ("kmeans", True)])
def test_remembered_maps_belong_to_the_images_of_the_task_in_its_order(root, name, labelled):
    ours = stages(labelled)
    start = ours.start(name)
    assert isinstance(start.backbone, Tail)
    assert isinstance(start.data, FeatureDataset)
    seen = torch.cat(list(start.data.plain(torch.arange(len(start.data)))))
    torch.testing.assert_close(seen, trunk(start.model.backbone, ours.task.pixels), rtol=5e-3, atol=5e-3)
    assert torch.equal(start.data.labels, ours.task.labels)


def test_a_method_goes_on_from_what_its_recipe_says():
    for labelled, expected in (
        (True, {"new": {"joint"}, "supervised": {"uno", "spacing"}, "settled": {"pairs", "spacing:aligned", "simgcd"}}),
        (False, {"new": {"kcl", "mcl"}, "supervised": {"dtc", "uno"}, "settled": {"kmeans", "rs", "ncl", "pairs"}}),
    ):
        suitable = [name for name, recipe in methods.METHODS.items() if recipe.suits(labelled=labelled)]
        origins = {name: origin_of(name, labelled=labelled) for name in suitable}
        assert {name: origins[name] for names in expected.values() for name in names} == {
            name: origin for origin, names in expected.items() for name in names
        }
        by_rotation = {name for name in suitable if origins[name] == "finished"}
        assert by_rotation == {name for name in suitable if labelled and "rotation" in methods.METHODS[name].stage_one}
        assert origin_of("rs+spacing", labelled=labelled) == origins["rs"]


@pytest.mark.parametrize("labelled", [True, False])
def test_the_discovery_set_has_the_known_images_where_they_take_part_and_hides_novel_classes(labelled):
    task = small.task(labelled)
    known = [row for row, label in enumerate(task.train.listing.labels.tolist()) if label < 5]
    novel = [row for row, label in enumerate(task.train.listing.labels.tolist()) if label >= 5]
    assert task.rows.tolist() == (known if labelled else []) + novel
    assert torch.equal(task.pixels, task.train.pixels[task.rows])
    labels = [task.train.listing.labels[row].item() for row in known] if labelled else []
    assert task.labels.tolist() == labels + [-1] * len(novel)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("dataset", "split"), [(name, split) for name, of in DATASETS.items() for split in of.splits])
def test_rows_of_the_training_set_are_those_of_its_parts(dataset, split, labelled):
    classes = DATASETS[dataset].classes
    labels = torch.randint(0, classes, (20 * classes,), generator=generator("labels"))
    pixels = torch.randint(0, 256, (len(labels), 3, 2, 2), generator=generator("pixels"), dtype=torch.uint8)
    train = Images(pixels, Listing.of([""] * len(labels), labels, [*map(str, range(classes))]))
    task = Task(dataset, split, labelled, train, train)
    parts = task.parts
    assert torch.equal(pixels[task.known_rows], parts.known.pixels)
    assert torch.equal(pixels[task.novel_rows], parts.novel.pixels)
    assert len(task.labels) == len(task.rows) == len(parts.novel) + labelled * len(parts.known)
    assert torch.equal(task.labels[task.labels >= 0], parts.known.listing.labels[: len(parts.known) * labelled])
    assert torch.equal(task.rows[task.labels < 0], task.novel_rows)


@pytest.mark.parametrize(("name", "labelled"), [("openmix", True), ("uno", True), ("uno", False), ("dtc", False)])
def test_methods_that_need_pixels_or_train_every_stage_get_the_images_and_the_whole_network(root, name, labelled):
    ours = stages(labelled)
    start = ours.start(name)
    assert isinstance(start.data, PixelDataset)
    assert torch.equal(start.data.pixels, ours.task.pixels)
    assert torch.equal(start.data.labels, ours.task.labels)
    assert start.backbone is start.model.backbone


def test_a_budget_that_does_not_remember_gives_images_and_the_same_weights(root, tmp_path, monkeypatch):
    remembering = stages(False).start("pairs")
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))
    start = stages(False, replace(small.TINY, remembers=False)).start("pairs")
    assert isinstance(remembering.data, FeatureDataset)
    assert isinstance(start.data, PixelDataset)
    assert not differing(start.backbone.state_dict(), remembering.model.backbone.state_dict())


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"smoothing": 0.3}, {"rotation"}),
        ({"remembers": False}, {"supervised"}),
        ({"turns": 2}, {"supervised", "settled"}),
        ({"width": 5}, set()),
        ({"stride": 1}, set()),
    ],
)
def test_what_a_stage_depends_on_is_in_the_name_of_its_folder(monkeypatch, change, same):
    def folders(budget):
        ours = stages(True, budget)
        return {stage: getattr(ours, stage)() for stage in ("supervised", "settled", "rotation", "finished")}

    monkeypatch.setattr(entries, "entry", lambda kind, setting, make: Path(f"{kind}-{cache.key(setting)}"))
    first, second = folders(small.TINY), folders(replace(small.TINY, **change))
    assert {stage for stage in first if first[stage] == second[stage]} == same


def test_labels_are_smoothed_as_the_budget_says_and_at_the_papers_not_at_all(tmp_path, monkeypatch):
    smoothed = []

    def noting(train):
        def noted(learner, *others, **more):
            smoothed.append(getattr(learner.method, "smoothing", None))
            return train(learner, *others, **more)

        return noted

    for name in ("fit", "pretrain"):
        monkeypatch.setattr(room, name, noting(getattr(room, name)))
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))
    ours = stages(True, replace(small.TINY, smoothing=0.25))
    ours.finished(), ours.supervised()
    assert smoothed == [None, 0.25, 0.25]
    assert BUDGETS["paper"].smoothing == 0


def test_settling_changes_the_statistics_of_the_supervised_model_and_nothing_it_learnt(root):
    ours = stages(False)
    moved = differing(weights(ours.supervised()), weights(ours.settled()))
    assert {"means", "spread"} <= moved  # carried along with the latents
    assert all(
        name.endswith(("running_mean", "running_var", "num_batches_tracked")) for name in moved - {"means", "spread"}
    )


def test_finishing_keeps_the_trunk_that_rotation_left(root):
    ours = stages(True)
    before, after = weights(ours.rotation()), weights(ours.finished())
    backbone = {name for name in differing(before, after) if name.startswith("backbone.")}
    assert backbone
    assert all(name.startswith("backbone.stages.4.") for name in backbone)
    assert {"head.weight", "head.bias", "means", "spread"} <= after.keys()
    assert "head.weight" not in before


def test_rotation_serves_every_split_since_it_knows_no_labels(root):
    ours = stages(True)
    other = replace(ours, task=replace(ours.task, split="another"))
    assert other.rotation() == ours.rotation()
    assert cache.key(other._setting(split=True, stage=small.TINY.supervised)) != cache.key(
        ours._setting(split=True, stage=small.TINY.supervised)
    )


def test_a_new_network_starts_beside_the_similarity_network(root):
    ours = stages(False)
    start, stored = ours.start("kcl"), Model.from_pretrained(ours.similarity())
    assert start.model.similarity is not None
    assert not differing(start.model.similarity.state_dict(), stored.similarity.state_dict())
    fresh, learnt = start.backbone.state_dict(), stored.backbone.state_dict()
    assert "stages.0.0.weight" in differing(fresh, learnt)
    again, other = ours.start("mcl"), replace(ours, seed=1)._fresh(None)
    assert not differing(fresh, again.backbone.state_dict())
    assert "stages.0.0.weight" in differing(fresh, other.backbone.state_dict())


def test_every_start_has_a_model_of_its_own(root):
    first, second = (stages(False).start("pairs") for _ in "ab")
    with torch.no_grad():
        for parameter in first.backbone.parameters():
            parameter.add_(1)
    assert differing(first.backbone.state_dict(), second.backbone.state_dict())
    assert not differing(second.model.backbone.state_dict(), stages(False).start("pairs").model.backbone.state_dict())


def test_the_time_of_a_start_is_that_of_the_stages_it_needs(root):
    ours = stages(False)
    assert ours.start("pairs").seconds == entries.seconds(ours.supervised()) + entries.seconds(ours.settled())
    assert ours.start("kcl").seconds == entries.seconds(ours.similarity())
    both = stages(True)
    assert both.start("rs").seconds == entries.seconds(both.rotation()) + entries.seconds(both.finished())


def test_a_fingerprint_changes_with_a_pixel_and_with_a_label():
    images = small.images(True)
    pixels, labels = images.pixels.clone(), images.listing.labels.clone()
    pixels[3, 0, 0, 0] += 1
    labels[3] = (labels[3] + 1) % 10
    marks = {
        fingerprint(images),
        fingerprint(replace(images, pixels=pixels)),
        fingerprint(images.relabel(labels, images.listing.classes)),
    }
    assert len(marks) == 3
    assert fingerprint(small.images(True)) == fingerprint(images)


def test_a_fingerprint_is_that_of_all_bytes_however_they_lie():
    images = small.images(True)
    labels = images.listing.labels.repeat_interleave(2)[::2]
    strided = replace(images, pixels=images.pixels[..., ::2]).relabel(labels, images.listing.classes)
    for some in (images, strided, replace(images, pixels=images.pixels.transpose(2, 3))):
        content = some.pixels.numpy().tobytes() + some.listing.labels.numpy().tobytes()
        assert fingerprint(some) == hashlib.sha256(content).hexdigest()[:16]


def test_the_fingerprint_of_a_task_is_taken_once(monkeypatch):
    taken, take = [], room.fingerprint
    monkeypatch.setattr(room, "fingerprint", lambda images: taken.append(images) or take(images))
    monkeypatch.setattr(entries, "entry", lambda kind, setting, make: Path(f"{kind}-{cache.key(setting)}"))
    ours = stages(True)
    ours.finished(), ours.settled(), ours.similarity()
    assert taken == [ours.task.train]
    assert ours.task.fingerprint == take(ours.task.train)


@pytest.mark.parametrize("stage", ["supervised", "rotation", "finished", "similarity"])
def test_a_stage_that_was_interrupted_goes_on_where_it_stopped(stage, tmp_path, monkeypatch):
    two = {name: replace(getattr(small.TINY, name), epochs=2) for name in ("supervised", "rotation", "finishing")}
    budget = replace(small.TINY, **two, similarity=replace(small.TINY.similarity, epochs=2))
    titles = {"rotation": "rotation", "similarity": "similarity"}
    title, epochs = f"seed 0: {titles.get(stage, 'known classes')}", []

    def interrupt(name, total, row):
        if name == title and row["epoch"] == 1:
            raise KeyboardInterrupt

    def note(name, total, row):
        if name == title:
            epochs.append(row["seconds"])

    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "stopped"))
    with pytest.raises(KeyboardInterrupt):
        getattr(Stages(small.task(True), 0, budget, interrupt), stage)()
    (kept,) = (tmp_path / "stopped" / "benchmark").glob("*.checkpoint")
    with safe_open(kept, "pt") as file:
        (before,) = json.loads(file.metadata()["newfound"])["rows"]
    resumed = getattr(Stages(small.task(True), 0, budget, note), stage)()
    assert len(epochs) == 2
    assert epochs[0] == before["seconds"], "the first epoch was told, not trained, again"
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "whole"))
    whole = getattr(Stages(small.task(True), 0, budget, note), stage)()
    one, other = (load_file(folder / "model.safetensors") for folder in (resumed, whole))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
