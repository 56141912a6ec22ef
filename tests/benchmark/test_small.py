"""Small sets, and the evidence that is gathered on them."""

import itertools
import json
import time
from dataclasses import replace

import pandas as pd
import pytest
import torch

from newfound.benchmark import evidence, small
from newfound.benchmark.published import TABLES
from newfound.benchmark.results import read
from newfound.benchmark.rows import WHITENED
from newfound.benchmark.run import Table
from newfound.data.datasets import load_doodles
from newfound.data.splits import split_by_class
from newfound.discovery.scoring import PIXELS
from newfound.discovery.settings import StageOne
from newfound.errors import InputError
from newfound.methods import METHODS
from newfound.types import generator


def tiny(asked=None):
    """Three known and three novel kinds of doodles, twelve drawings each."""
    images = load_doodles("spare")
    kept, _ = small.thin(images, images.listing.labels, [12] * 6 + [0] * 4)
    split = split_by_class(kept, [0, 1, 2], [3, 4, 5])
    stage = StageOne(size=28, width=2, pretrain_epochs=1)
    return small.SmallSet(split.known, split.novel, split.truth, stage, asked)


def test_a_long_tail_falls_evenly_from_the_largest_class_to_the_smallest():
    sizes = small.long_tail(200, 5, 20.0, seed=1)
    assert sorted(sizes) == [10, 21, 45, 95, 200]
    assert sizes != small.long_tail(200, 5, 20.0, seed=2)
    assert sizes == small.long_tail(200, 5, 20.0, seed=1)


def test_thinning_keeps_the_first_images_of_each_class_and_their_truth():
    images = load_doodles("spare")
    kept, truth = small.thin(images, images.listing.labels, [3, 0, 1, *[0] * 7])
    assert truth.tolist() == [0, 0, 0, 2]
    assert kept.listing.names == (*images.listing.names[:3], images.listing.names[200])


@pytest.mark.parametrize("name", [name for name in small.SETS if "cifar" not in name and "fashion" not in name])
def test_a_set_shares_no_class_between_known_and_novel_and_hides_the_truth(name):
    made = small.SETS[name](None, 1)
    assert (made.novel.listing.labels == -1).all()
    assert made.novel.listing.classes == ()
    assert len(made.truth) == len(made.novel)
    assert len(made.known.listing.classes) + made.classes in (10, 110)
    assert set(made.known.content_hashes()).isdisjoint(made.novel.content_hashes())


def test_seeds_that_the_evidence_does_not_have_are_refused_with_those_there_are(tmp_path):
    told = r"--seeds is 7\. .*: doodles 1, 2, 3, 4, 5\. Give some of these"
    with pytest.raises(InputError, match=told):
        evidence.evidence(None, tmp_path / "out", only=["doodles"], seeds=[7])
    with pytest.raises(InputError, match=r"--seeds is 0.*doodles 1, 2, 3, 4, 5"):
        evidence.evidence(None, tmp_path / "out", only=["doodles"], seeds=[0, 1])
    orders = next(name for name, part in evidence.PARTS.items() if part.seeds == (0,))
    with pytest.raises(InputError, match=rf"--seeds is 1. .*: {orders} 0\. Give"):
        evidence.evidence(None, tmp_path / "out", only=["doodles", orders], seeds=[1])
    with pytest.raises(InputError, match="--seeds is 7"):
        evidence.evidence(None, tmp_path / "out", seeds=[1, 7])
    assert not (tmp_path / "out").exists()


def test_of_all_the_evidence_the_parts_that_have_a_seed_are_run_by_it():
    chosen = dict(evidence.choose_parts((), [5]))
    assert {part.name for part in chosen} == {name for name, part in evidence.PARTS.items() if 5 in part.seeds}
    assert {*chosen.values()} == {(5,)}
    assert evidence.choose_parts((), ()) == [(part, part.seeds) for part in evidence.PARTS.values()]


def test_a_set_of_cifar_asks_for_its_folder():
    with pytest.raises(InputError, match="--data or NEWFOUND_DATA"):
        small.SETS["cifar10-few"](None, 1)


def test_another_number_of_classes_may_be_asked_for():
    assert small.SETS["doodles-15"](None, 1).asked == 15
    assert small.SETS["doodles-15"](None, 1).classes == 10


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(folder / "cache"))
        ticks = itertools.count()
        patch.setattr(time, "perf_counter", lambda: next(ticks))  # every look at the clock is a second later
        patch.setitem(small.SETS, "tiny", lambda data, seed: tiny())
        part = evidence.Part("tiny", (PIXELS, "kmeans", "spacing"), (1, 2))
        patch.setitem(evidence.PARTS, "tiny", part)
        (path,) = evidence.evidence(None, folder, only=["tiny"], seeds=[1])
        before = path.read_bytes()
        evidence.evidence(None, folder, only=["tiny"], seeds=[1])
        assert path.read_bytes() == before  # what is there is not run again
        evidence.evidence(None, folder, only=["tiny"])
    return path


def test_every_row_is_measured_in_every_reading_it_has(ran):
    rows = pd.DataFrame(read(ran)["rows"])
    readings = rows.groupby(["method", "seed"])["reading"].apply(set)
    for seed in (1, 2):
        assert readings["kmeans", seed] == readings[PIXELS, seed] == {"k-means", "unit k-means"}
        assert readings["spacing", seed] == {"k-means", "unit k-means", "prototypes"}
    assert rows[["accuracy", "macro accuracy", "nmi"]].stack().between(0, 1).all()
    assert (rows[rows["method"] == "spacing"]["seconds"] > 0).all()


def test_a_row_of_a_rule_that_was_changed_since_is_run_again_and_takes_its_place(ran, tmp_path, monkeypatch):
    path = tmp_path / ran.name
    path.write_bytes(ran.read_bytes())
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(small.SETS, "tiny", lambda data, seed: tiny())
    monkeypatch.setitem(evidence.PARTS, "tiny", evidence.Part("tiny", ("kmeans", "spacing"), (1,)))
    monkeypatch.setattr(evidence, "learn_known", lambda *told: None)
    made = [{"method": "spacing", "seed": 1, "reading": "unit k-means", "accuracy": 0.5}]
    asked = []
    monkeypatch.setattr(evidence, "run_row", lambda small, model, method, *told: asked.append(method) or made)
    recipe = METHODS["spacing"]
    monkeypatch.setitem(METHODS, "spacing", replace(recipe, spacing=replace(recipe.spacing, weight=2.0)))
    evidence.evidence(None, tmp_path, only=["tiny"])
    assert asked == ["spacing"]
    rows = read(path)["rows"]
    assert [row for row in rows if row["method"] == "spacing"] == [made[0] | {"rule": evidence.rule("spacing")}]
    assert {row["method"] for row in rows} == {PIXELS, "kmeans", "spacing"}


def test_results_say_how_they_were_made(ran):
    setting = json.loads(ran.read_text())["setting"]
    needed = {"set", "images", "classes", "setting", "stage one", "discovery", "command", "versions"}
    assert needed <= setting.keys()
    assert setting["command"] == "newfound benchmark evidence --parts tiny"


def test_the_table_has_the_mean_the_worst_seed_and_ours_after_the_start_features(ran):
    table = evidence.table(read(ran)).set_index("method")
    assert list(table.index) == [evidence.TITLES[name] for name in (PIXELS, "kmeans", "spacing")]
    rows = pd.DataFrame(read(ran)["rows"])
    own = rows[(rows["method"] == "kmeans") & (rows["reading"] == "unit k-means")]["accuracy"]
    assert table.loc["k-means on the start features", "worst"] == f"{100 * own.min():.1f}"
    assert table["seeds"].tolist() == [2, 2, 2]


def test_differences_are_taken_seed_by_seed():
    rows = [
        {"method": method, "seed": seed, "reading": "unit k-means"}
        | {"accuracy": value, "macro accuracy": value, "nmi": value}
        for method, seed, value in (("a", 1, 0.5), ("a", 2, 0.7), ("b", 1, 0.4), ("b", 2, 0.5), ("b", 3, 0.9))
    ]
    found = evidence.differences({"rows": rows}, "a", "b")
    assert found["accuracy"].tolist() == pytest.approx([10, 20])
    assert found["nmi"].tolist() == pytest.approx([0.1, 0.2])


def test_tables_of_cifar_are_read_as_the_product_reads_and_a_row_without_that_reading_does_not_count(
    tmp_path, monkeypatch
):
    made = Table("two-stage", "cifar10", "5-5", "cpu")
    part = evidence.Part(made.name, ("kmeans", "spacing", "uno"), (0,), made)
    monkeypatch.setattr(evidence, "PARTS", {made.name: part})

    def row(method, **readings):
        return {"method": method, "seed": 0, "train": {name: {"accuracy": a, "nmi": a} for name, a in readings.items()}}

    rows = [
        row("kmeans", **{"unit k-means": 0.9, WHITENED: 0.5}),
        row("spacing", **{"unit k-means": 0.1, WHITENED: 0.75}),
        row("uno", **{"unit k-means": 0.8}),
    ]
    (tmp_path / f"{made.name}.json").write_text(json.dumps({"setting": {}, "rows": rows}))
    assert evidence.overview(tmp_path).endswith("|  | 50.0 / 0.500 | 75.0 / 0.750 |  |  |  | 1 |")
    shown = evidence.large_tables(tmp_path)
    assert "75.0 / 0.750 (1)" in shown
    assert "| UNO | not run |" in shown
    assert "| +25.0 | +0.250 | 1 |" in evidence.verdicts(tmp_path)
    assert "UNO" not in evidence.verdicts(tmp_path)


def test_the_truth_of_unlabelled_images_does_not_reach_training():
    made = tiny()
    model = small.fit_known(made.known, made.stage, 1)
    order = torch.randperm(len(made.truth), generator=generator("truth"))
    other = replace(made, truth=made.truth[order])
    one, two = (small.discover(each, model, "spacing", 1).features for each in (made, other))
    assert torch.equal(one, two)


def test_an_unknown_part_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(InputError, match=r"no part of the evidence called 'doodle'.*Did you mean doodles"):
        evidence.evidence(None, tmp_path, only=["doodle"])


def test_parts_of_one_collection_are_one_witness():
    collections = {name: part.collection for name, part in evidence.PARTS.items()}
    assert set(collections.values()) == {"doodles", "digits", "fashion-mnist", "cifar10", "cifar100"}
    assert collections["digits-even"] == "digits"
    assert collections["cifar10-tail"] == collections["two-stage-cifar10-5-5@11-cpu"] == "cifar10"


def test_sets_of_one_collection_count_once_in_the_means():
    gains = {"digits-0-4": 1.0, "digits-even": 3.0, "fashion-mnist": 8.0}
    every = {name: pd.DataFrame({"accuracy": [gain], "nmi": [0.0]}) for name, gain in gains.items()}
    assert evidence._means(every)["accuracy"].tolist() == [2.0, 8.0]


def test_means_are_told_where_there_are_several_sets(ran, tmp_path, monkeypatch):
    names = ("tiny", "again")
    monkeypatch.setattr(evidence, "PARTS", {name: evidence.Part(name, ("kmeans",), (1,)) for name in names})
    for name in names:
        assert evidence.means(tmp_path) == "Not run yet."
        (tmp_path / f"evidence-{name}.json").write_bytes(ran.read_bytes())
    (line,) = [line for line in evidence.means(tmp_path).splitlines() if " − k-means on the start features | " in line]
    assert line.startswith("| spacing (the default) − ")
    assert line.endswith(" | 2 | 2 |")


def test_pages_are_made_of_what_was_run(ran):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "PARTS", {"tiny": evidence.Part("tiny", ("kmeans",), (1,))})
        patch.setitem(evidence.ABOUT, "tiny", "Tiny")
        assert "**Tiny**" in evidence.small_tables(ran.parent)
        assert "| spacing (the default) − k-means on the start features | tiny | " in evidence.verdicts(ran.parent)
        assert evidence.large_tables(ran.parent) == evidence.means(ran.parent) == "Not run yet."
        assert evidence.small_tables(ran.parent / "cache") == evidence.verdicts(ran.parent / "cache") == "Not run yet."


def test_every_small_set_is_described():
    assert evidence.ABOUT.keys() == small.SETS.keys()


def test_every_part_has_the_start_features_and_every_control_of_spacing():
    for part in evidence.PARTS.values():
        assert {"kmeans", evidence.OURS, evidence.CONTROL} <= {*part.methods}
        assert part.table is None or part.table.stages in TABLES
    assert {f"pairs+spacing:{preset}" for preset in evidence.PRESETS} <= {*evidence.PARTS["doodles"].methods}
