"""Continual discovery: classes come in steps, and the images before are gone."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound import methods
from newfound.benchmark import claims, continual, continual_tables
from newfound.benchmark.cached_maps import carried
from newfound.benchmark.results import check_setting
from newfound.benchmark.sequences import COSTS, JOINT, ROWS, Sequence, sequence, sizes_of
from newfound.benchmark.sources import PixelSource, stage_split
from newfound.cli import app
from newfound.console import silent
from newfound.data.features import FeatureDataset
from newfound.errors import InputError
from newfound.functional.geometry import covariance, means
from newfound.networks.model import Statistics
from newfound.training.loop import survey
from newfound.types import ALL, generator
from tests.benchmark import small

FEATURES = "efficientnet-lite0"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with results: every default row from pixels, and two steps from features."""
    root = tmp_path_factory.mktemp("continual")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        words = ["benchmark", "continual", "--dataset", "cifar10", "--budget", "smoke", "--seeds", "0"]
        words += ["--data", str(small.write(root / "data")), "-o", str(root / "results")]
        app(words, result_action="return_value")
        more = ["--split", "4-3x2", "--backbone", FEATURES, "--methods", "anchored", "icarl", "rs-il"]
        app([*words, *more], result_action="return_value")
        yield root


def read(place, name):
    return json.loads((place / "results" / f"{name}.json").read_text())


def test_the_command_makes_a_row_of_every_method_and_of_the_upper_bound(place):
    rows = read(place, "continual-cifar10-5+5-smoke")["rows"]
    assert [row["method"] for row in rows] == [*ROWS]
    for row in rows:
        assert [len(groups) for groups in row["groups"]] == [1, 2]
        known, novel = row["groups"][-1]
        assert row["last"]["known"] == known
        assert row["all"][-1] == pytest.approx((known + novel) / 2, abs=1e-3)  # equally many images of each
        assert row["forgetting"]["known"] == pytest.approx(row["groups"][0][0] - known, abs=1e-3)
        assert row["command"].endswith(f"--split 5+5 --budget smoke --methods {row['method']} --seeds 0")
    assert all(("discovery" in row) == (row["method"] != JOINT) for row in rows)
    joint, ours = (next(row for row in rows if row["method"] == name) for name in (JOINT, "anchored"))
    assert joint["groups"][0] == ours["groups"][0], "all rows begin with one model"


def test_from_features_classes_come_in_several_steps_and_kept_images_take_part(place):
    results = read(place, f"continual-cifar10-4-3x2-smoke-{FEATURES}")
    assert results["setting"]["classes"] == [4, 3, 3]
    for row in results["rows"]:
        assert [len(groups) for groups in row["groups"]] == [1, 2, 3]
        assert len(row["discovery"]) == 2
        assert isinstance(row["forward transfer"], float)
    ours = results["rows"][0]
    assert ours["method"] == "anchored"
    assert ours["last"]["all"] > 0.3, "a tenth would be chance"


def test_the_same_command_again_runs_nothing_and_another_setting_is_refused(place, tmp_path, monkeypatch):
    which, folder = sequence("cifar10", None, "smoke", None), place / "results"
    before = (folder / f"{which.name}.json").read_bytes()
    monkeypatch.setattr(continual, "run", lambda *args: pytest.fail("a row was run"))
    continual.benchmark(which, place / "data", folder, seeds=[0])
    assert (folder / f"{which.name}.json").read_bytes() == before
    results, path = json.loads(before), tmp_path / "results.json"
    results["setting"]["cost"]["epochs"] = 77
    path.write_text(json.dumps(results))
    with pytest.raises(InputError, match=r"\(cost: epochs differ\)"):
        check_setting(path, which.setting(), which.compare)
    results = json.loads(before)
    results["rows"][0]["training"]["rate"] = 7
    path.write_text(json.dumps(results))
    with pytest.raises(InputError, match=r"\(training of anchored differ\)"):
        check_setting(path, which.setting(), which.compare)
    del results["rows"][0]["forgetting"]
    path.write_text(json.dumps(results))
    with pytest.raises(InputError, match=r"no file of results.*forgetting"):
        check_setting(path, which.setting(), which.compare)


def test_the_truth_of_unlabelled_images_changes_nothing_that_is_learnt(place, monkeypatch):
    which = sequence("cifar10", None, "smoke", None)
    images, tests = small.images(True), small.images(False)
    seen = []
    for turned in (False, True):
        source = PixelSource(which, images, tests)
        if turned:  # the novel classes' names change places among their images
            labels = source.labels
            novel = (labels >= 5).nonzero()[:, 0]
            labels[novel] = labels[novel[torch.randperm(len(novel), generator=generator("turned"))]]
        monkeypatch.setattr(continual, "accuracy", lambda truth, guess: seen.append(guess) or 0.0)
        continual.run(which, source, "anchored", 0)
    assert len(seen) == 2
    assert torch.equal(*seen)


@pytest.mark.parametrize(
    ("split", "sizes"),
    [("5+5", [5, 5]), ("80-10-10", [80, 10, 10]), ("50-10x5@21", [50, 10, 10, 10, 10, 10]), ("5-x", []), ("", [])],
)
def test_a_split_says_how_many_classes_come_at_each_step(split, sizes):
    assert sizes_of(split) == sizes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mnist", None, "cpu", None), "no dataset called 'mnist'"),
        (("cifar10", None, "huge", None), "no budget called 'huge'"),
        (("cifar10", "5+6", "cpu", None), "There is no sequence '5.6' of cifar10.*at most 10 together"),
        (("cifar10", "10", "cpu", None), "no sequence '10'"),
        (("cifar10", "5+5@x", "cpu", None), "no sequence '5"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused(words, said):
    with pytest.raises(InputError, match=said):
        sequence(*words)


def test_rows_that_cannot_be_are_refused_before_anything_is_read():
    for name, steps in (("uno", 1), ("ncdwf", 2), ("openmix", 1)):
        with pytest.raises(InputError, match=f"{name} has no head over known and novel classes that"):
            continual.names_of([name], steps)
    with pytest.raises(InputError, match="no method called 'nobody'"):
        continual.names_of(["nobody"], 1)
    assert continual.names_of(["ncdwf"], 1) == ["ncdwf"]
    with pytest.raises(InputError, match=r"begins with 4 known classes.*5"):
        stage_split(Sequence("cifar10", "4-6", "cpu"))


def test_classes_come_in_the_order_that_is_asked_for():
    assert sequence("cifar10", "5+5", "cpu", None).order == [*range(10)]
    other = sequence("cifar10", "5+5@12", "cpu", None)
    assert sorted(other.order) == [*range(10)]
    assert other.order != [*range(10)]
    assert stage_split(other) == "5-5@12"


def test_what_is_known_grows_by_the_novel_classes_and_shares_its_covariance():
    random = generator("grow")
    z, labels = torch.randn(60, 3, generator=random), torch.arange(60) % 2
    new, guess = torch.randn(40, 3, generator=random) + 4, torch.arange(40) % 3
    grown = continual.grow(Statistics.of(z, labels, 2), new, guess, 3)
    for k in range(2):
        torch.testing.assert_close(grown.means[k], z[labels == k].mean(0))
    for k in range(3):
        torch.testing.assert_close(grown.means[2 + k], new[guess == k].mean(0))
    assert grown.counts.tolist() == [30, 30, 14, 13, 13]
    old, more = (covariance(x, y, means(x, y, c)[0]) for x, y, c in ((z, labels, 2), (new, guess, 3)))
    torch.testing.assert_close(grown.within_covariance, 0.4 * old + 0.6 * more)  # each class weighs the same
    assert continual.grow(None, new, guess, 3) is None


def test_the_head_from_statistics_knows_every_mean_and_never_says_a_class_that_has_none():
    random = generator("centres")
    centres, root = torch.randn(4, 6, generator=random), torch.randn(6, 6, generator=random)
    centres[2] = 0
    covariance = root @ root.T / 60
    head = continual.head_of(Statistics(centres, covariance, torch.tensor([9, 9, 0, 9])))
    assert head(centres[[0, 1, 3]]).argmax(1).tolist() == [0, 1, 3]
    asked = torch.randn(200, 6, generator=random)
    values, vectors = torch.linalg.eigh(covariance + 0.05 * covariance.trace() / 6 * torch.eye(6))
    white = vectors @ torch.diag(values**-0.5) @ vectors.T
    for row, said in zip(asked, head(asked).argmax(1).tolist(), strict=True):
        angles = {k: F.cosine_similarity(row @ white, centres[k] @ white, dim=0).item() for k in (0, 1, 3)}
        assert said == max(angles, key=angles.__getitem__)


def step_of(name):
    """One step of a method from the first model, and that model."""
    which = sequence("cifar10", None, "smoke", None)
    source = PixelSource(which, small.images(True), small.images(False))
    first = source.first(0, silent)
    rows = (source.labels >= 5).nonzero()[:, 0]
    none = continual.StepImages(rows[:0], rows[:0])
    new = continual.StepImages(rows, torch.full_like(rows, -1))
    return first, continual.learn(which, source, first, new, none, 5, name, 0), source


def test_a_method_that_discovers_apart_leaves_backbone_and_known_classes_as_they_were(place, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(place / "cache"))
    first, done, source = step_of("anchored:apart")
    for name, value in first.backbone.state_dict().items():
        assert torch.equal(done.model.backbone.state_dict()[name], value), name
    assert torch.equal(done.model.known.means[:5], first.known.means)
    assert done.model.known.counts[5:].sum() == len(done.guess)
    test = source.test(done.model)
    assert torch.equal(continual.tell(done, test), continual.head_of(done.model.known)(test))


@pytest.mark.parametrize("name", continual.able(1))
@pytest.mark.parametrize("last", [True, False])
def test_every_row_can_be_made_from_remembered_maps_and_as_the_papers_train_from_pixels(place, monkeypatch, name, last):
    monkeypatch.setenv("NEWFOUND_CACHE", str(place / "cache"))
    monkeypatch.setitem(COSTS, "smoke", replace(COSTS["smoke"], last=last, epochs=1))
    which, seen = sequence("cifar10", None, "smoke", None), set[bool]()
    data, own = PixelSource.data, methods.METHODS[name].training.trains if name in methods.METHODS else ALL
    monkeypatch.setattr(PixelSource, "data", lambda *given: watched(seen, data(*given)))
    row = continual.run(which, PixelSource(which, small.images(True), small.images(False)), name, 0)
    assert seen == {last}
    assert row["training"]["trains"] == (min(1, own) if last else own)
    assert [len(groups) for groups in row["groups"]] == [1, 2]
    assert all(0 <= share <= 1 for groups in row["groups"] for share in groups)


def watched(seen, given):
    """What a step sees, and whether it is what was remembered."""
    seen.add(isinstance(given[1], FeatureDataset))
    return given


def test_what_is_known_goes_where_a_backbone_that_learnt_took_it(place, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(place / "cache"))
    first, done, source = step_of("finetune")
    assert any(
        not torch.equal(done.model.backbone.state_dict()[name], value)
        for name, value in first.backbone.state_dict().items()
    )
    rows = (source.labels >= 5).nonzero()[:, 0]
    before, after = (survey(*source.data(model, rows, rows * 0 - 1)).features for model in (first, done.model))
    torch.testing.assert_close(done.model.known.means[:5], carried(first, before, after).known.means)
    assert not torch.equal(done.model.known.means[:5], first.known.means)


def test_a_row_ends_with_known_and_novel_classes_their_harmonic_mean_and_what_was_forgotten():
    row = continual.summarise([[0.9, 0.9], [0.8, 0.5, 0.7], [0.6, 0.4, 0.2, 0.45]], (5, 2, 2))
    assert row["groups"] == [[0.9], [0.8, 0.5], [0.6, 0.4, 0.2]]
    assert row["all"] == [0.9, 0.7, 0.45]
    assert row["last"] == {
        "all": 0.45,
        "known": 0.6,
        "novel": pytest.approx(0.3),
        "harmonic": pytest.approx(2 / (1 / 0.6 + 1 / 0.3)),
    }
    assert row["forgetting"] == {
        "mean": pytest.approx(0.2),
        "known": pytest.approx(0.3),
        "groups": pytest.approx([0.3, 0.1]),
    }


def test_novel_classes_count_alike_whatever_the_size_of_their_step():
    row = continual.summarise([[0.7, 0.7], [0.7, 0.9, 0.75], [0.7, 0.9, 0.1, 0.48]], (50, 10, 40))
    assert row["last"]["novel"] == pytest.approx((10 * 0.9 + 40 * 0.1) / 50)


def made(methods, seeds=(0, 1, 2), forgotten=0.01, backbone=FEATURES):
    """Results of two steps in which every method has its accuracy of all classes."""
    rows = [
        {
            "method": name,
            "seed": seed,
            "groups": [[0.8], [0.7, share]],
            "all": [0.8, share + 0.001 * seed],
            "last": {"all": share + 0.001 * seed, "known": 0.7, "novel": share, "harmonic": 0.5},
            "forgetting": {"mean": forgotten, "known": 0.1, "groups": [0.1]},
            "command": f"newfound benchmark continual --methods {name} --seeds {seed}",
        }
        for name, share in methods.items()
        for seed in seeds
    ]
    setting = {"dataset": "cifar10", "split": "5+5", "classes": [5, 5], "backbone": backbone}
    return {"setting": setting, "rows": rows}


def test_tables_and_curve_hold_every_row_with_ours_first():
    results = made({"finetune": 0.2, "anchored": 0.6})
    table = continual_tables.table(results).splitlines()
    assert [("anchored" in line, "finetune" in line) for line in table[2:]] == [(True, False), (False, True)]
    assert "| 60.1 ± 0.1 |" in table[2]
    blocks = continual_tables.groups(results).splitlines()
    assert blocks[3] == "| `anchored` | 1 | 60.1 | 70.0 | 60.0 |"
    drawing = ElementTree.fromstring(continual_tables.draw(results))
    assert sum(part.tag.endswith("polyline") for part in drawing) == 2


def test_each_group_of_classes_is_a_line_from_the_step_that_brought_it():
    results = made({"finetune": 0.2, "anchored": 0.6, JOINT: 0.7})
    drawing = ElementTree.fromstring(continual_tables.draw_groups(results))
    lines = [part.get("points").split() for part in drawing if part.tag.endswith("polyline")]
    assert [len(line) for line in lines] == [2, 1] * 2, "ours and the upper bound, two groups each"
    texts = [part.text for part in drawing if part.tag.endswith("text")]
    assert {"anchored", JOINT, "classes 0–4", "classes 5–9"} <= {*texts}
    heights = [float(line[-1].split(",")[1]) for line in lines]
    scale = continual_tables.HEIGHT - 2 * continual_tables.EDGE
    shares = [1 - (height - continual_tables.EDGE) / scale for height in heights]
    assert shares == pytest.approx([0.7, 0.6, 0.7, 0.7], abs=1e-3)


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        (made({"anchored": 0.6, "finetune": 0.2, JOINT: 0.7}), "holds"),
        (made({"anchored": 0.3, "finetune": 0.2, JOINT: 0.7}), "fails"),  # who never learns has 0.4
        (made({"anchored": 0.6, "finetune": 0.65}), "fails"),
        (made({"anchored": 0.6, "finetune": 0.2}, forgotten=0.05), "fails"),
        (made({"anchored": 0.6, "finetune": 0.2}, seeds=(0, 1)), "not tested"),
        (made({"anchored": 0.6}), "holds"),
        (made({"anchored": 0.3}), "fails"),
        (made({"anchored": 0.3, "anchored:apart": 0.6}, backbone=None), "holds"),  # from pixels ours is the other
        (made({"anchored": 0.6, "anchored:apart": 0.3}, backbone=None), "fails"),
    ],
)
def test_the_claim_of_the_fifth_section_turns_with_what_was_measured(results, verdict):
    name = claims.SEQUENCES[0]
    found = claims.learns_on({name: results}, name)
    assert found.verdict == verdict
    assert claims.learns_on({}, name).verdict == "not tested"
    if JOINT in {row["method"] for row in results["rows"]}:
        assert "% of joint training" in found.figure
