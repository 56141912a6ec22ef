"""One row: deterministic, deaf to the truth while it trains, and measured as it says."""

import itertools
import json
import sys
import time

import pytest
import torch

from newfound.benchmark import rows
from newfound.benchmark.stages import Stages
from newfound.data.pixels import Images
from newfound.discovery.trace import Trace
from newfound.functional.cluster import kmeans
from newfound.functional.geometry import whitening
from newfound.methods import METHODS
from newfound.training import loop
from newfound.types import generator
from tests.benchmark import small

MEASURED = ("seconds", "stage one seconds", "memory")
"""What no seed decides."""


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    """One cache for the whole file."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root))
        yield root


def run(name, labelled, keep=None, seed=0, progress=lambda stage, epochs, row: None, checkpoint=None, **changes):
    task = small.task(labelled, **changes)
    return rows.run(task, name, seed, small.TINY, progress, keep=keep, checkpoint=checkpoint)


def timeless(row):
    """A row without the times in it."""
    if not isinstance(row, dict):
        return row
    return {key: timeless(value) for key, value in row.items() if key not in MEASURED}


@pytest.fixture
def seen(monkeypatch):
    """What `evaluate` is given: the only place where the truth is known."""
    calls, evaluate = [], rows.evaluate

    def noting(task, start, method, before, after, seed):
        calls.append((method, before, after))
        return evaluate(task, start, method, before, after, seed)

    monkeypatch.setattr(rows, "evaluate", noting)
    return calls


@pytest.mark.parametrize(("name", "labelled"), [("pairs+spacing", False), ("ncl+spacing", True)])
def test_the_same_row_has_the_same_numbers_whether_the_caches_were_there_or_not(
    name, labelled, tmp_path, monkeypatch, seen
):
    first, again = run(name, labelled), run(name, labelled)
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "empty"))
    anew = run(name, labelled, keep=tmp_path / "kept")
    assert timeless(first) == timeless(again) == timeless(anew)
    for _, before, after in seen[1:]:
        assert torch.equal(before, seen[0][1])
        assert torch.equal(after, seen[0][2])
    assert (tmp_path / "empty" / "benchmark").is_dir()


def test_a_row_that_was_interrupted_goes_on_where_it_stopped(tmp_path, monkeypatch):
    def interrupt(stage, epochs, row):
        if stage == "seed 0: pairs+spacing":
            raise KeyboardInterrupt

    checkpoint, ticks = tmp_path / "row.safetensors", itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))  # every look at the clock is a second later
    with pytest.raises(KeyboardInterrupt):
        run("pairs+spacing", False, progress=interrupt, checkpoint=checkpoint)
    whole = run("pairs+spacing", False)
    monkeypatch.setattr(loop, "_step", lambda *words: pytest.fail("the only epoch was trained before"))
    resumed = run("pairs+spacing", False, checkpoint=checkpoint)
    assert timeless(resumed) == timeless(whole)
    assert resumed["seconds"] == whole["seconds"] == 1


def test_another_seed_gives_other_numbers(seen):
    run("pairs", False)
    run("pairs", False, seed=1)
    assert not torch.equal(seen[0][1], seen[1][1])
    assert not torch.equal(seen[0][2], seen[1][2])


def permuted(images: Images) -> Images:
    """The images of novel classes with one another's labels."""
    novel = (images.listing.labels >= 5).nonzero().squeeze(1)
    labels = images.listing.labels.clone()
    labels[novel] = labels[novel[torch.randperm(len(novel), generator=generator("permuted"))]]
    assert not torch.equal(labels, images.listing.labels)
    return images.relabel(labels, images.listing.classes)


@pytest.mark.parametrize(("name", "labelled"), [("pairs+spacing", False), ("kcl", False), ("rs+spacing", True)])
def test_permuting_the_truth_of_unlabelled_images_changes_scores_and_nothing_that_was_learnt(name, labelled, seen):
    true = run(name, labelled)
    false = run(name, labelled, train=permuted(small.images(True)))
    (method, before, after), (other, *features) = seen
    assert torch.equal(features[0], before)
    assert torch.equal(features[1], after)
    weights = other.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in method.state_dict().items())
    assert timeless(false["losses"]) == timeless(true["losses"])
    assert false["train"] != true["train"]


CHANCE = 0.1
"""NMI that no guess at the novel training images, 30 of each class, comes to."""

SINGLE = ("rs+spacing", "ncl", "uno", "dual", "openmix", "joint", "rs-il")


@pytest.mark.parametrize("name", SINGLE)
def test_every_single_stage_method_gives_a_whole_row(name):
    row = run(name, True)
    assert (row["method"], row["seed"], row["epochs"]) == (name, 0, 1)
    assert row["losses"]
    assert not row["losses"].keys() & {"epoch", "seconds"}
    readings = {"k-means", "unit k-means", "head"} | ({rows.WHITENED} if name != "joint" else set())
    for part, images in (("train", 5 * small.TRAIN), ("test", 5 * small.TEST)):
        assert row[part].keys() == readings
        right = [images * scores["accuracy"] for scores in row[part].values()]
        assert right == pytest.approx([round(count) for count in right], abs=0.01), "shares of the novel images"
    assert all(row["train"][reading]["nmi"] > CHANCE for reading in ("k-means", "unit k-means"))
    assert row["all classes"].keys() == {"task-agnostic", "task-aware"}
    assert row["separation"].keys() == {"before", "after"}
    assert json.loads(json.dumps(row)) == row


def best_accuracy(truth, guess, classes):
    """The most that any naming of the guesses gets right."""
    pairs = list(zip(truth.tolist(), guess.tolist(), strict=True))
    namings = itertools.permutations(range(classes))
    return max(sum(naming[g] == t for t, g in pairs) for naming in namings) / len(pairs)


def test_every_reading_is_its_best_naming_over_unlabelled_training_images(seen):
    row, task = run("rs", True), small.task(True)
    method, _, after = seen[0]
    unit = after / after.norm(dim=1, keepdim=True)
    learnt = Stages(task, 0, small.TINY, lambda stage, epochs, row: None).start("rs").model.known
    white = after @ whitening(learnt.within_covariance, 0.3)
    white = white / white.norm(dim=1, keepdim=True)
    guesses = {
        reading: kmeans(space, 5, generator(0, "reading")).assignment
        for reading, space in (("k-means", after), ("unit k-means", unit), (rows.WHITENED, white))
    }
    with torch.no_grad():
        guesses["head"] = method.logits(after)[:, 5:].argmax(1)
    truth = torch.tensor([label - 5 for label in task.train.listing.labels.tolist() if label >= 5])
    best = {reading: best_accuracy(truth, guess, 5) for reading, guess in guesses.items()}
    assert {reading: scores["accuracy"] for reading, scores in row["train"].items()} == pytest.approx(best, abs=1e-4)
    assert len(set(best.values())) >= 3


def test_in_two_stages_a_head_knows_novel_classes_alone():
    row = run("rs", False)
    assert "head" in row["train"]
    assert "all classes" not in row


def test_k_means_trains_nothing(seen):
    row = run("kmeans", False)
    assert row["epochs"] == 0
    assert row["losses"] == {}
    assert torch.equal(seen[0][1], seen[0][2])
    assert row["separation"]["before"] == row["separation"]["after"]
    assert row["train"].keys() == {"k-means", "unit k-means", rows.WHITENED}


@pytest.mark.parametrize("name", ["pairs+spacing", "pairs"])
def test_what_is_kept_is_the_unlabelled_images_before_and_after(name, tmp_path, seen):
    run(name, False, keep=tmp_path)
    trace = Trace.load(tmp_path)
    _, before, after = seen[0]
    torch.testing.assert_close(trace.before.latents, before)
    torch.testing.assert_close(trace.after.latents, after)
    assert trace.labels.tolist() == [label - 5 for label in small.images(True).listing.labels.tolist() if label >= 5]
    assert trace.classes == tuple(f"kind {label}" for label in range(5, 10))
    assert (trace.after.prototypes is not None) == ("spacing" in name)


def test_a_row_says_how_it_was_trained():
    row = run("pairs", False)
    assert row["training"] == small.TINY.training("pairs").settings()
    assert row["training"]["schedule"] == METHODS["pairs"].training.settings()["schedule"]
    assert "torch" in row["versions"]
    assert row["memory"] > 50


def test_numbers_are_rounded_through_dicts():
    assert rows.rounded({"a": {"b": 0.123456}, "c": 3, "d": "x"}) == {"a": {"b": 0.1235}, "c": 3, "d": "x"}


def test_where_memory_cannot_be_measured_none_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert rows.peak() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets its peak")
def test_memory_is_measured_anew_for_every_row():
    rows.measure_memory_anew()
    before = rows.peak()
    block = b"x" * 300_000_000
    with_it = rows.peak()
    del block
    rows.measure_memory_anew()
    assert with_it > before + 200
    assert rows.peak() < with_it - 200
