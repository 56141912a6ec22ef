"""A pretrained network looks, and an adapter learns."""

import logging
from dataclasses import replace

import pytest
import torch

from newfound.data.listing import list_images
from newfound.data.pixels import Images
from newfound.discovery.settings import StageOne
from newfound.encoders import features
from newfound.encoders.base import encode_source
from newfound.encoders.features import FeatureEncoder, shrink_for_counting
from newfound.encoders.statistics import fit_statistics, refit_axes, unsupervised_model
from newfound.errors import InputError
from newfound.functional.calibration import Calibration
from newfound.functional.counting import Errors
from newfound.functional.rehearsal import Rehearsal
from newfound.methods import METHODS
from newfound.networks.pretrained import LITE, load_pretrained, rebuild
from newfound.networks.resnet import OWN
from tests.data.pictures import picture, save
from tests.encoders.features import embedded


@pytest.fixture(scope="module")
def encoder():
    whole = load_pretrained()
    return FeatureEncoder(rebuild(whole.settings() | {"size": 64}, whole.network.state_dict()), "cpu")


@pytest.fixture(scope="module")
def measured(encoder):
    """The model of four known classes, which no test changes."""
    return fit_statistics(embedded("known"), encoder.backbone, 5)


def test_looking_is_told_as_it_goes_on_with_what_and_how_many(tmp_path, monkeypatch, caplog, encoder):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    for kind in ("a", "b"):
        save(tmp_path / "all" / kind / "0.png", picture(0, 70, 60))
    told, devices, extract = [], [], features.extract_features

    def look(*given, device, **how):
        devices.append(device)
        return extract(*given, device=device, **how)

    monkeypatch.setattr(features, "extract_features", look)
    with caplog.at_level(logging.INFO, "newfound"):
        for labelled in (True, False):
            source = list_images(tmp_path / "all", labelled=labelled)
            encode_source(encoder, source, lambda stage, total, row: told.append((stage, total, row["epoch"])))
    assert [stage for stage, *_ in told] == ["look: labelled"] * 3 + ["look: unlabelled"] * 3
    assert {total for _, total, _ in told} == {2}
    assert told[2][2] == told[5][2] == 2
    assert devices == ["cpu", "cpu"]
    assert [record.getMessage() for record in caplog.records] == [
        f"Looking at 2 {kind} images with {LITE}, at 64 pixels." for kind in ("labelled", "unlabelled")
    ]


def test_people_are_told_that_others_have_taught_it(encoder):
    assert encoder.describe() == f"{LITE}, pretrained on other images, seen at 64 pixels"


def test_methods_that_need_pixels_or_maps_are_refused_and_others_are_not(encoder):
    for name, recipe in METHODS.items():
        if recipe.pixels or recipe.maps:
            with pytest.raises(InputError, match=rf"{name} needs more of an image than .*--backbone {OWN}"):
                encoder.check_method(name)
        else:
            encoder.check_method(name)
    encoder.check_method(encoder.default_method)


def test_which_images_share_a_class_cannot_be_learnt_from_features(encoder):
    with pytest.raises(InputError, match=f"--similarity is learnt from pixels, and {LITE} gives features"):
        encoder.check_similarity()
    with pytest.raises(InputError, match="--similarity"):
        encoder.fit_similarity(embedded("known"), StageOne(), 0)


def test_images_in_memory_are_refused_and_features_are_not(encoder):
    encoder.check_images([embedded("known")])
    pixels = Images(torch.zeros(48, 3, 64, 64, dtype=torch.uint8), embedded("known").listing)
    with pytest.raises(InputError, match="in memory"):
        encoder.check_images([embedded("known"), pixels])


def test_known_classes_are_measured_whatever_was_chosen_for_training(encoder, measured):
    model = encoder.fit_known(embedded("known"), StageOne(pretrain_epochs=0, width=3), 5)
    assert torch.equal(model.backbone.matrix, measured.backbone.matrix)
    assert torch.equal(model.head.weight, measured.head.weight)
    assert model.pretrained.backbone is encoder.backbone
    assert isinstance(encoder.calibration, Calibration)


@pytest.mark.parametrize("single", [True, False])
def test_the_model_looks_along_the_axes_of_the_images_at_hand(encoder, measured, single):
    new, beside = embedded("new", range(10, 14), labelled=False), embedded("known") if single else None
    aimed, same = encoder.aim(measured, new, beside, 3), refit_axes(measured, new, beside, 3)
    assert torch.equal(aimed.backbone.matrix, same.backbone.matrix)
    counting, metric = encoder.aim_for_counting(measured, new, beside, 3)
    assert torch.equal(counting.backbone.matrix, refit_axes(measured, new, beside, 3, 10.0).backbone.matrix)
    assert torch.equal(metric, torch.eye(counting.backbone.dim))


def test_classes_are_counted_along_the_axes_on_which_they_were_rehearsed(encoder):
    known = embedded("known", range(16), each=6)
    model, new = fit_statistics(known, encoder.backbone, 0), embedded("new", range(20, 24), labelled=False)
    rehearsed = replace(model, rehearsal=Rehearsal(16, 8, counting=(Errors(0.1, 0.2, 0.3),)))
    for given, shrink in ((model, 10.0), (replace(model, rehearsal=Rehearsal(16, 8)), 10.0), (rehearsed, 5.0)):
        found, _ = encoder.aim_for_counting(given, new, known, 3)
        assert torch.equal(found.backbone.matrix, refit_axes(given, new, known, 3, shrink).backbone.matrix)
    assert [shrink_for_counting(number) for number in (0, 3, 8, 16, 80)] == [10, 10, 10, 5, 1]


def test_where_nothing_is_known_the_axes_are_those_of_the_images_alone(encoder):
    new = embedded("new", range(10, 14), labelled=False)
    alone = unsupervised_model(new, encoder.backbone, 3)
    assert torch.equal(encoder.aim(None, new, None, 3).backbone.matrix, alone.backbone.matrix)


def test_what_is_remembered_among_features_stays_where_it_is_though_the_adapter_moves(encoder, measured):
    known = embedded("known")
    z = measured.backbone(known.features()).z.detach()
    assert encoder.update_known(measured, z, z + 1, (z + 1, known.listing.labels)) is measured
    assert encoder.update_known(measured, z, z + 1, None) is measured
