"""What is measured of known classes, and adapters that look along the right axes."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound.data.features import FeatureImages
from newfound.data.listing import Listing
from newfound.encoders.base import Lesson
from newfound.encoders.pretend import fit_calibration
from newfound.encoders.statistics import (
    add_head,
    extend_features,
    fit_statistics,
    new_adapter,
    place_features,
    pool_scatter,
    refit_axes,
    unsupervised_model,
)
from newfound.functional.axes import FEW, moments, power_normalised
from newfound.functional.calibration import log_margin, novelty_score, probability
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.metrics import matching
from newfound.networks.model import ENOUGH, Model, Pretrained, Statistics, card
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator
from tests.encoders.features import embedded, in_one_store

CLASSES, EACH, OTHERS = 4, 12, range(10, 14)


@pytest.fixture(scope="module")
def lite():
    return load_pretrained()


@pytest.fixture(scope="module")
def measured(lite):
    """The model of four known classes, which no test changes."""
    return fit_statistics(embedded("known"), lite)


def labels(images):
    return images.listing.labels


def latents(model, images):
    return model.backbone(images.features()).z.detach()


def test_means_and_spread_are_those_of_the_power_normalised_features(measured):
    images, statistics = embedded("known"), measured.pretrained.statistics
    x = power_normalised(images.features()).double()
    rest = torch.zeros(1280, 1280, dtype=torch.float64)
    for label in range(CLASSES):
        members = x[images.listing.labels == label]
        torch.testing.assert_close(statistics.means[label].double(), members.mean(0), atol=1e-6, rtol=1e-5)
        for row in members - members.mean(0):
            rest += torch.outer(row, row)
    torch.testing.assert_close(statistics.within_covariance.double(), rest / (len(x) - CLASSES), atol=1e-8, rtol=1e-3)
    assert statistics.counts.tolist() == [EACH] * CLASSES


@pytest.mark.parametrize("known", [True, False])
def test_scatter_is_pooled_as_if_all_images_were_at_hand(measured, lite, known):
    theirs, others = embedded("known"), embedded("answered", (5, 6), 7)
    model = measured if known else unsupervised_model(others, lite)
    sets = [(theirs, theirs.listing.labels)] * known + [(others, 9 - others.listing.labels)]
    rest, freedom = torch.zeros(1280, 1280, dtype=torch.float64), 0
    for images, labels in sets:
        x = power_normalised(images.features()).double()
        for label in labels.unique():
            members = x[labels == label]
            freedom += len(members) - 1
            for row in members - members.mean(0):
                rest += torch.outer(row, row)
    pooled = pool_scatter(model, others, 9 - others.listing.labels).pretrained.statistics
    torch.testing.assert_close(pooled.within_covariance.double(), rest / freedom, atol=1e-8, rtol=1e-3)
    assert len(pooled.means) == len(pooled.counts) == len(model.classes)


def test_a_model_that_knows_no_class_is_whitened_by_what_answers_say(lite):
    others = embedded("answered", (5, 6), 7)
    taught = pool_scatter(unsupervised_model(others, lite), others, others.listing.labels)
    aimed = refit_axes(taught, others)
    assert (aimed.classes, aimed.head, aimed.known) == ((), None, None)
    assert not torch.equal(aimed.backbone.matrix, unsupervised_model(others, lite).backbone.matrix)


def test_images_of_which_no_two_share_a_class_say_nothing_of_scatter(measured):
    alone = embedded("known").pick(torch.tensor([0, 12, 24]))
    assert pool_scatter(measured, alone, torch.arange(3)) is measured
    assert pool_scatter(measured, alone.pick(torch.arange(0)), torch.arange(0)) is measured


def test_a_class_of_few_images_has_no_mean(lite):
    images = embedded("known", each=ENOUGH - 1)
    model = fit_statistics(images, lite)
    statistics = model.pretrained.statistics
    assert not statistics.means.any()
    assert not statistics.counts.any()
    assert not model.head(latents(model, images)).any(), "nothing speaks for a class of which nothing is told"
    assert (
        fit_statistics(embedded("known", each=ENOUGH), lite).pretrained.statistics.counts.tolist() == [ENOUGH] * CLASSES
    )


def test_the_head_knows_the_classes_it_was_measured_on(measured):
    images = embedded("known")
    assert torch.equal(measured.head(latents(measured, images)).argmax(1), images.listing.labels)


def test_what_differs_within_a_class_is_made_small(measured):
    images = embedded("known")
    z, raw = latents(measured, images), F.normalize(power_normalised(images.features()), dim=1)

    def within(x):
        means = torch.stack([x[images.listing.labels == label].mean(0) for label in range(CLASSES)])
        return (x - means[images.listing.labels]).square().sum() / (means - means.mean(0)).square().sum()

    assert within(z) < 0.7 * within(raw)


def test_axes_are_those_of_the_pile_also_where_known_classes_do_not_differ(measured):
    new = embedded("new", OTHERS, labelled=False)  # their classes differ in other features
    truth = torch.arange(CLASSES).repeat_interleave(EACH)

    def apart(model):
        z = latents(model, new)
        distances = torch.cdist(z, z)
        same = truth[:, None] == truth
        return (distances[~same].mean() / distances[same & ~torch.eye(len(z), dtype=torch.bool)].mean()).item()

    assert apart(refit_axes(measured, new)) > 1.05 * apart(measured)


@pytest.mark.parametrize("single", [True, False])
def test_known_classes_are_still_known_along_other_axes(measured, single):
    known, new = embedded("known"), embedded("new", OTHERS, labelled=False)
    model = refit_axes(measured, new, known if single else None)
    assert torch.equal(model.head(latents(model, known)).argmax(1), known.listing.labels)
    nearest = torch.cdist(latents(model, known), model.known.means).argmin(1)
    assert torch.equal(nearest, known.listing.labels)


def test_aiming_leaves_the_model_given_as_it_was(measured):
    before = {name: tensor.clone() for name, tensor in measured.backbone.state_dict().items()}
    refit_axes(measured, embedded("new", labelled=False))
    assert all(torch.equal(tensor, before[name]) for name, tensor in measured.backbone.state_dict().items())


def test_where_nothing_is_known_the_axes_are_the_pile_s(lite):
    model = unsupervised_model(embedded("new", labelled=False), lite)
    assert model.classes == ()
    assert model.head is None
    assert model.backbone.dim <= FEW


def test_a_model_folder_holds_the_trunk_and_no_trace_of_an_image(lite, tmp_path):
    images = embedded("secret")
    model = fit_statistics(images, lite)
    model.save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert torch.equal(latents(loaded, images), latents(model, images))
    assert loaded.pretrained.backbone.digest == lite.digest
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.pretrained.statistics, model.pretrained.statistics, strict=True)
    )
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"secret" not in content, "a file's name"
        rows = images.features()
        assert not any(row.numpy().tobytes() in content for row in rows), "an image's features"


def test_in_two_stages_the_axes_are_those_with_the_labelled_pictures(measured):
    known, new = embedded("known"), embedded("new", range(2, 8), labelled=False)
    single, two = refit_axes(measured, new, known).backbone, refit_axes(measured, new).backbone
    torch.testing.assert_close(two.centre, single.centre, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(two.matrix, single.matrix, atol=1e-3 * single.matrix.abs().max().item(), rtol=0)
    assert (two.centre - power_normalised(new.features()).mean(0)).norm() > 0.01, "the known ones are part of it"


def test_what_is_learnt_later_is_seen_as_if_all_had_been_taught_at_once(lite, measured):
    more, strange = embedded("more", OTHERS), embedded("strange", range(20, 24), labelled=False)
    lesson = Lesson(
        (*measured.classes, *more.listing.classes), ((0,), (1,), (2,), (3,), (), (), (), ()), 4 + labels(more)
    )
    later = extend_features(measured, lesson, more.features())
    known, more = in_one_store(embedded("known"), more)
    names, every = (*known.listing.names, *more.listing.names), torch.cat([labels(known), 4 + labels(more)])
    places, keys = torch.cat([known.places, more.places]), known.keys + more.keys
    at_once = fit_statistics(FeatureImages(Listing.of(names, every, lesson.classes), known.records, places, keys), lite)
    assert later.classes == at_once.classes
    torch.testing.assert_close(later.pretrained.statistics.means, at_once.pretrained.statistics.means)
    for images in (known, more, strange):
        here, there = place_features(later, images), place_features(at_once, images)
        torch.testing.assert_close(here.beside, there.beside, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(here.along.norm(dim=1), there.along.norm(dim=1), rtol=1e-3, atol=1e-3)


def test_classes_that_are_not_told_have_no_say_in_the_axes(lite, measured):
    new = embedded("new", OTHERS, labelled=False)
    means, within_covariance, counts = measured.pretrained.statistics
    more = Statistics(F.pad(means, (0, 0, 0, 1)), within_covariance, F.pad(counts, (0, 1)))
    told = replace(measured, classes=(*measured.classes, "of three images"), pretrained=Pretrained(lite, more))
    torch.testing.assert_close(refit_axes(told, new).backbone.matrix, refit_axes(measured, new).backbone.matrix)
    nobody = replace(measured, pretrained=Pretrained(lite, Statistics(0 * means, within_covariance, 0 * counts)))
    torch.testing.assert_close(refit_axes(nobody, new).backbone.centre, power_normalised(new.features()).mean(0))


def test_one_picture_a_class_says_nothing_of_what_differs_within_a_class(lite):
    known, new = embedded("known", each=1), embedded("new", OTHERS, labelled=False)
    model = fit_statistics(known, lite)
    assert not model.pretrained.statistics.within_covariance.any()
    one = refit_axes(model, new)
    assert latents(one, new).isfinite().all()
    torch.testing.assert_close(one.backbone.matrix, unsupervised_model(new, lite).backbone.matrix, atol=1e-5, rtol=1e-3)


def test_means_and_spread_are_about_those_of_the_latents(lite):
    known = embedded("known", range(8), each=20, strong=1.0)
    model = fit_statistics(known, lite)
    z = latents(model, known)
    rest = torch.zeros(len(z), z.shape[1])
    for label in range(8):
        members = z[known.listing.labels == label]
        torch.testing.assert_close(model.known.means[label], members.mean(0), atol=0.02, rtol=0)
        assert model.known.means[label].norm() == pytest.approx(members.mean(0).norm().item(), rel=0.05)
        rest[known.listing.labels == label] = members - members.mean(0)
    assert model.known.within_covariance.trace() == pytest.approx(rest.square().sum().item() / (160 - 8), rel=0.1)
    assert torch.equal(model.known.counts, model.pretrained.statistics.counts)


HARD = {"each": 20, "strong": 0.6}  # classes so faint that a tenth of the pictures are taken for others


@pytest.fixture(scope="module")
def doubtful(lite):
    return fit_statistics(embedded("known", range(20), **HARD), lite)


def test_chances_learnt_by_pretending_hold_for_fresh_pictures_of_known_and_new_classes(doubtful):
    known, pile = (embedded(name, some, **HARD) for name, some in (("known", range(20)), ("pile", range(10, 30))))
    truth = pile.listing.labels + 10
    model = refit_axes(doubtful, pile, known)
    z, labels = (
        torch.cat([latents(model, known), latents(model, pile)]),
        torch.cat([known.listing.labels, 0 * truth - 1]),
    )
    found = semi_supervised_kmeans(F.normalize(z, dim=1), labels, 30, generator(0))
    cluster, apart = found.assignment[400:], torch.cdist(F.normalize(z[400:], dim=1), found.centres)
    names = matching(truth, cluster)
    right = torch.tensor([names.get(a) == b for a, b in zip(cluster.tolist(), truth.tolist(), strict=True)]).double()
    assert 0.8 < right.mean() < 0.97
    sure = probability(log_margin(apart, cluster, torch.eye(30, dtype=torch.bool)), doubtful.calibration.right)
    new = probability(novelty_score(apart, torch.arange(30) >= 20), doubtful.calibration.new)
    for said, happened in ((sure, right), (new, (truth >= 20).double())):
        for some in (said >= 0, said > 0.9):
            assert some.sum() > 100
            assert said[some].mean().item() == pytest.approx(happened[some].mean().item(), abs=0.1)
    assert right[sure > 0.9].mean() > right[sure < 0.6].mean() + 0.2
    assert ((new > 0.5) == (truth >= 20)).double().mean() > 0.9


def test_the_head_says_ten_times_the_cosine_to_a_class_s_mean(doubtful):
    z = latents(doubtful, embedded("pile", range(2)))
    cosines = torch.stack([F.cosine_similarity(z, mean[None]) for mean in doubtful.known.means], 1)
    torch.testing.assert_close(doubtful.head(z).detach(), 10 * cosines)


def test_the_card_says_that_another_network_looks_first(doubtful):
    text = card(doubtful)
    name = doubtful.pretrained.backbone.name
    assert f"{name}, pretrained by others on other images, and a small adapter on its features" in text
    assert "learnt from labelled images" not in text
    assert "the means of 20 classes" in text


def test_a_class_that_is_not_told_moves_no_other_and_widens_none(doubtful):
    means, within_covariance, counts = doubtful.pretrained.statistics
    more = Statistics(F.pad(means, (0, 0, 0, 1)), within_covariance, F.pad(counts, (0, 1)))
    found = add_head(replace(doubtful, classes=(*doubtful.classes, "of three images")), doubtful.backbone, more)
    torch.testing.assert_close(found.known.means, F.pad(doubtful.known.means, (0, 0, 0, 1)))
    torch.testing.assert_close(found.known.within_covariance, doubtful.known.within_covariance)
    assert not found.head.weight[-1].any()


def test_an_adapter_begins_to_learn_by_the_seed():
    seen = moments(torch.rand(20, 6, generator=generator("seen")))
    first, again, other = (new_adapter(seen, None, seed).stages[0][0].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_is_learnt_by_pretending_is_the_model_s_and_stays_when_it_is_aimed(doubtful):
    x = power_normalised(embedded("known", range(20), **HARD).features())
    assert doubtful.calibration == fit_calibration(x, torch.arange(20).repeat_interleave(20))
    assert refit_axes(doubtful, embedded("new", OTHERS, labelled=False)).calibration == doubtful.calibration
