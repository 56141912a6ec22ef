"""Images that fit no class: what is said of them, and that real ones are told."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from newfound import discover, pretrain
from newfound.data.datasets import load_doodles
from newfound.data.listing import Listing
from newfound.discovery.classifier import Classifier
from newfound.discovery.edits import Edit, classes
from newfound.discovery.found import Fit
from newfound.discovery.pages import page
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.storage import DISCOVERY
from newfound.discovery.tables import (
    OUTLIER,
    UNSURE,
    judge,
    judge_others,
    tabulate_assignments,
    tabulate_classes,
    tabulate_predictions,
)
from newfound.errors import InputError
from newfound.functional.axes import Coordinates
from newfound.functional.calibration import FAR_OUT, Logistic, outlier_score, probability, reach
from tests.discovery.made import BETWEEN, CALIBRATION, CAT, make_found
from tests.needs import need

NEVER = Logistic(0.0, -1e9)
"""No image is of no class."""

LINE = Logistic(20.0, 15.0)
"""One half where the others are about eight times as far away as the nearest."""

SIXTY, WAY = (
    Listing.of([f"{row}.png" for row in range(60)]),
    torch.linspace(0, 1, 60)[:, None] * torch.tensor([[9.0, 9.0]]),
)
"""Images on the way from a new class to a known one."""

ROADS = ("shapes/stars", "signs_and_symbols/flags", "shapes/arrows", "transportation/roadsigns")
LIVING = ("animals/mammals", "food/fruit", "animals/birds", "recreation/music")


@pytest.fixture(scope="module")
def found():
    return make_found(calibration=CALIBRATION._replace(outlier=LINE))


def test_an_image_is_called_an_outlier_where_that_is_likelier_than_not(found):
    table = tabulate_assignments(classes(found))
    away = torch.cdist(found.features, found.clusters.centres)
    chance = probability(outlier_score(*reach(away)), LINE)
    assert np.allclose(table["outlier"], chance, atol=1e-3)
    assert (table["kind"].eq("outlier") == (chance > 0.5).numpy()).all()
    assert set(table.loc[table["kind"] == "outlier", "number"]) == {OUTLIER}
    assert 4 <= table["kind"].eq("outlier").sum() <= 10  # those between centres, above all
    summary = tabulate_classes(classes(found))
    assert summary["outliers"].sum() == (table["number"] == OUTLIER).sum()
    assert summary["unsure"].sum() == (table["number"] == UNSURE).sum()
    assert summary[["size", "unsure", "outliers"]].sum().sum() == len(found)


def test_an_outlier_is_not_in_the_right_class_either(found):
    plain, judged = judge(classes(make_found())), judge(classes(found))
    assert torch.allclose(judged.confidence, plain.confidence * (1 - judged.outlier), atol=1e-6)
    later = judge_others(classes(found), BETWEEN)
    plain = judge_others(classes(make_found()), BETWEEN)
    assert torch.allclose(later.confidence, plain.confidence * (1 - later.outlier), atol=1e-6)


def test_an_image_that_lies_far_out_is_unsure_however_sure_its_class_would_be(found):
    now = classes(replace(found, threshold=0.5), [Edit("accept", (CAT,), rows=(0, 1))])
    for table in (tabulate_assignments(now), tabulate_predictions(now, SIXTY, WAY)):
        far, likely = table["outlier"] > FAR_OUT, table["confidence"] >= 0.5
        assert (far & likely).any()
        assert (~far & likely).any()
        assert (table["kind"].isin(["known", "new"]) == (likely & ~far)).all()
        assert (table["kind"].eq("unsure") == ~(likely & ~far) & (table["outlier"] <= 0.5)).all()


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("new", [Logistic(2.0, 0.25), Logistic(6.0, 3.0), Logistic(6.0, -3.0)])
def test_no_row_contradicts_itself_whatever_was_asked_for(threshold, new):
    calibration = CALIBRATION._replace(new=new, outlier=LINE)
    now = classes(make_found(calibration=calibration, threshold=threshold), [Edit("accept", (CAT,), rows=(0, 1))])
    for table in (tabulate_assignments(now), tabulate_predictions(now, SIXTY, WAY)):
        assert {"known", "new"} <= set(table["kind"])
        assert (table.loc[table["kind"] == "known", "newness"] <= 0.5).all()
        assert (table.loc[table["kind"] == "new", "newness"] >= 0.5).all()
        assert (table.loc[table["kind"].isin(["known", "new"]), "outlier"] <= 0.5).all()
        known = table["guess"].isin(now.found.known)
        assert (table.loc[known, "confidence"] + table.loc[known, "newness"] <= 1.0001).all() or threshold < 0.5
        assert (table.loc[~known, "confidence"] <= table.loc[~known, "newness"] + 1e-4).all()


def test_what_a_person_decides_is_no_outlier_and_a_class_made_of_outliers_takes_in_what_is_like_them(found):
    before = tabulate_assignments(classes(found))
    lost = before.index[before["kind"] == "outlier"].tolist()
    near = found.features[lost[:1]] + 0.1
    now = classes(found, [Edit("move", rows=(lost[0],), made=(6,), names=("odd",))])
    after = tabulate_assignments(now)
    assert after.loc[lost[0], ["class", "outlier", "confidence"]].tolist() == ["odd", 0, 1]
    assert judge_others(classes(found), near).outlier.item() > 0.5
    told = judge_others(now, near)
    assert (told.outlier.item() < 0.1, told.guess.item()) == (True, 6)


def test_what_lies_beside_all_axes_is_an_outlier_wherever_its_latents_are(found):
    centres = torch.cat([found.clusters.centres, torch.zeros(5, 1)], 1)
    along = torch.cat([found.features, torch.zeros(44, 1)], 1)
    beside = torch.zeros(44).index_fill(0, torch.tensor([0]), 1000.0)
    now = classes(replace(found, fit=Fit(along, beside, centres)))
    assert judge(now).outlier[0] > 0.9
    assert judge(classes(found)).outlier[0] < 0.5
    seen = Coordinates(along[:2], torch.tensor([0.0, 1000.0]))
    assert (judge_others(now, found.features[:2], seen).outlier > 0.5).tolist() == [False, True]


def test_outliers_are_saved_with_a_run_and_a_run_from_before_has_none(found, tmp_path):
    fit = Fit(found.features.clone(), torch.rand(44), found.clusters.centres.clone())
    run = Discovery(replace(found, fit=fit))
    run.save(tmp_path / "run")
    loaded = Discovery.load(tmp_path / "run").found
    assert loaded.calibration == found.calibration
    assert all(torch.equal(*both) for both in zip(loaded.fit, fit, strict=True))
    path = tmp_path / "run" / DISCOVERY
    about = json.loads(path.read_text())
    del about["calibration"]["outlier"]
    path.write_text(json.dumps(about))
    assert set(Discovery.load(tmp_path / "run").assignments()["outlier"]) == {0}
    about["calibration"]["outlier"] = [1.0]
    path.write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"outlier"):
        Discovery.load(tmp_path / "run")


def test_the_report_counts_outliers_and_shows_none_as_typical(found):
    now = classes(replace(found, thumbnails={row: torch.zeros(1, 4, 4, dtype=torch.uint8) for row in range(44)}))
    shown, table = page(now), tabulate_assignments(now)
    outliers = {found.caption(row) for row in table.index[table["kind"] == "outlier"]}
    assert f"{len(outliers)} fit none of them." in shown.lead
    assert sum(one.outliers for one in shown.classes) == len(outliers)
    assert shown.images == 44
    assert not outliers & {exemplar.name for one in shown.classes for exemplar in one.exemplars}


def write_clip_art(place, kinds, each, largest, part_of):
    """So many of Debian's pictures of each kind, below the folder of the part that one of a kind and number is of."""
    source = Path("/usr/share/openclipart/png")
    need(source.is_dir(), "Debian's openclipart-png is not installed")
    for kind in kinds:
        files = [file for file in sorted((source / kind).rglob("*.png")) if file.stat().st_size < largest]
        for number, file in enumerate(files[:: max(1, len(files) // each)][:each]):
            copy = place / part_of(kind, number) / Path(kind).name / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())


def write_some_doodles(place, step):
    """One in so many of the spare drawings, as files."""
    drawn = load_doodles("spare")
    place.mkdir()
    for row in range(0, len(drawn), step):
        Image.fromarray(drawn.pixels[row, 0].numpy()).resize((112, 112)).save(place / f"{row}.png")


def test_doodles_fit_a_model_of_clip_art_less_than_clip_art_does_and_hardly_any_of_that_is_called_an_outlier(tmp_path):
    def part_of(kind, number):
        return "later" if number % 11 == 0 else "known" if kind in LIVING + ROADS[:2] and number % 2 else "pile"

    write_clip_art(tmp_path, ROADS + LIVING, 22, 100_000, part_of)
    write_some_doodles(tmp_path / "doodles", 20)
    stage = StageOne(backbone="efficientnet-lite0", size=96)
    run = discover(
        known=tmp_path / "known", unlabelled=tmp_path / "pile", classes=2, stage=stage, run=Run(method="kmeans")
    )
    assert run.found.fit is not None
    assert run.assignments()["kind"].eq("outlier").mean() <= 0.05
    assert run.predict(tmp_path / "later")["kind"].eq("outlier").mean() <= 0.15  # of sixteen, two
    told = run.predict(tmp_path / "doodles")
    assert len(told) == 50
    assert told["outlier"].median() > 1.2 * run.assignments()["outlier"].median()
    assert told["outlier"].median() > 1.2 * run.predict(tmp_path / "later")["outlier"].median()


KINDS = (*ROADS, *LIVING, "food/desserts", "people/clothing", "transportation/vehicles", "animals/bugs")


def test_a_classifier_of_clip_art_names_no_doodle_and_would_if_nothing_were_of_no_class(tmp_path):
    write_clip_art(tmp_path, KINDS, 24, 60_000, lambda kind, number: "later" if number % 6 == 0 else "known")
    write_some_doodles(tmp_path / "doodles", 10)
    model = pretrain(tmp_path / "known", stage=StageOne(backbone="efficientnet-lite0", size=96, rehearse="no"))
    never = replace(model, calibration=model.calibration._replace(outlier=NEVER))
    (doodles, later), (named, before) = (
        [Classifier(one).predict(tmp_path / part)["kind"].eq("known").mean() for part in ("doodles", "later")]
        for one in (model, never)
    )
    assert doodles <= 0.05
    assert named >= 2 * doodles
    assert later >= 0.7 * before > 0.3
