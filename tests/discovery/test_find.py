"""What `find` refuses, where methods begin, and what it finds in a pile that holds known classes too."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.discovery import judging
from newfound.discovery.edits import classes
from newfound.discovery.facts import About
from newfound.discovery.find import find
from newfound.discovery.found import Clusters, Found
from newfound.discovery.howmany import how_many
from newfound.discovery.judging import calibrate, choose_threshold, illustrate, judge_images, pick_references
from newfound.discovery.settings import READINGS, Run
from newfound.discovery.tables import judge, tabulate_assignments
from newfound.encoders import embed, encoder_of
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.statistics import fit_statistics, refit_axes
from newfound.errors import InputError
from newfound.functional.calibration import Calibration, Logistic, carry_on, withhold_names
from newfound.functional.counting import Count
from newfound.functional.metrics import accuracy
from newfound.networks.model import Model, Statistics
from newfound.networks.pretrained import load_pretrained
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded
from tests.discovery.made import counted_made
from tests.encoders.features import embedded, in_one_store


def some_images(n, classes):
    pixels = torch.randint(0, 256, (n, 3, 8, 8), generator=generator("find", n), dtype=torch.uint8)
    labels = torch.arange(n) % len(classes) if classes else torch.full((n,), -1)
    return Images(pixels, Listing.of([f"{len(classes)}-{row}" for row in range(n)], labels, classes))


def make_model(key):
    with seeded(key):
        return Model(SmallResNet(width=2, stride=2), 8, 3, ("a", "b"), head=torch.nn.Linear(16, 2))


UNLABELLED, LABELLED = some_images(24, ()), some_images(16, ("a", "b"))


def table_of(found):
    return tabulate_assignments(classes(found))


def run(method):
    return Run(method=method, epochs=1, batch=8, device="cpu")


def features(method, key, labelled=LABELLED):
    return find(make_model(key), UNLABELLED, 3, labelled=labelled, run=run(method)).features


def test_a_method_that_begins_anew_takes_no_weights_from_the_model():
    assert torch.equal(features("joint", "one"), features("joint", "another"))
    assert not torch.equal(features("rs", "one"), features("rs", "another"))


def test_a_method_whose_backbone_stays_as_it_is_leaves_latents_where_they_were():
    kept, moved = (features(name, "one", labelled=None) for name in ("frozen", "lwf"))
    before = features("kmeans", "one", labelled=None)
    assert torch.equal(kept, before)
    assert not torch.equal(moved, before)


def test_a_method_that_needs_labelled_images_names_those_that_do_not():
    with pytest.raises(InputError, match=r"rs-il needs labelled images.*pairs.*spacing"):
        features("rs-il", "one", labelled=None)


def test_a_two_stage_method_does_not_take_labelled_images():
    with pytest.raises(InputError, match=r"dtc discovers in two stages.*pretrain"):
        features("dtc", "one")


@pytest.mark.parametrize("labelled", [None, LABELLED])
def test_a_method_that_would_leave_the_model_as_it_was_is_refused(labelled):
    with pytest.raises(InputError, match=r"anchored:apart finds classes with a copy.*Take anchored; .* continual"):
        features("anchored:apart", "one", labelled=labelled)
    with pytest.raises(InputError, match="rs-il needs") as told:
        features("rs-il", "one", labelled=None)
    assert "anchored," in str(told.value) or str(told.value).endswith("anchored.")
    assert "anchored:apart" not in str(told.value)


def test_a_method_without_its_similarity_network_says_what_it_lacks():
    with pytest.raises(InputError, match="asks a network which images share a class"):
        features("kcl", "one", labelled=None)


@pytest.mark.parametrize("method", ["dtc", "uno", "ncl+spacing", "rs+spacing:paper"])
def test_published_methods_discover_in_a_pile_of_images(method):
    found = find(make_model("one"), UNLABELLED, 3, run=run(method))
    assert found.features.isfinite().all()
    assert found.clusters.assignment.unique().numel() == 3


KNOWN, KINDS, EACH = range(8), range(4, 12), 15
TRUTH = [f"kind {kind}" for kind in KINDS for _ in range(EACH)]


@pytest.fixture(scope="module")
def task():
    """Features of known classes, of a pile that holds half of them beside new ones, and a model aimed at both."""
    known, pile = in_one_store(embedded("known", KNOWN, EACH), embedded("pile", KINDS, EACH, labelled=False))
    return known, pile, refit_axes(fit_statistics(known, load_pretrained()), pile, known)


def found_in(task, single, **settings):
    known, pile, model = task
    run = Run(**({"method": "kmeans", "unsure": 0.0, "device": "cpu"} | settings))
    return find(model, pile, 4, labelled=known if single else None, run=run)


@pytest.mark.parametrize("method", ["kmeans", "pairs+spacing"])
@pytest.mark.parametrize("single", [True, False])
def test_known_classes_that_are_hidden_in_the_pile_are_found_under_their_names(task, single, method):
    found = found_in(task, single, method=method, epochs=2, batch=32)
    assert found.known == found.model.classes
    table = table_of(found)
    named = [guess == true for guess, true in zip(table["guess"], TRUTH, strict=True)]
    assert sum(named) / (4 * EACH) > 0.9  # half of the pile is of known classes
    new = table["kind"].eq("new").tolist()
    assert sum(a == (kind in TRUTH[4 * EACH :]) for a, kind in zip(new, TRUTH, strict=True)) > 0.9 * len(TRUTH)
    assert set(table["class"]) <= {*TRUTH[: 4 * EACH], "new-1", "new-2", "new-3", "new-4"}
    truth = torch.tensor([TRUTH.index(name) for name in TRUTH])
    assert accuracy(truth, found.clusters.assignment) > 0.9
    assert table.loc[new, "newness"].mean() > 0.5 > table.loc[[not n for n in new], "newness"].mean()


def test_one_stage_and_two_find_the_same(task):
    single, two = (table_of(found_in(task, single))["guess"].tolist() for single in (True, False))
    assert sum(a == b for a, b in zip(single, two, strict=True)) > 0.9 * len(TRUTH)


@pytest.mark.parametrize("single", [True, False])
def test_where_every_image_is_said_to_be_new_no_known_class_is_looked_for(task, single):
    found = found_in(task, single, mixed=False)
    assert found.known == ()
    assert set(found.names) == {"new-1", "new-2", "new-3", "new-4"}
    assert {"new"} <= set(table_of(found)["kind"]) <= {"new", "outlier"}
    assert len(found.clusters.centres) == 4


def test_where_nothing_is_left_of_known_classes_all_are_new():
    found = find(make_model("one"), UNLABELLED, 3, run=run("pairs+spacing"))
    assert (found.known, len(found.clusters.centres)) == ((), 3)


def test_a_network_of_our_own_holds_its_classes_by_their_means_or_by_their_images():
    model = make_model("one")
    z = embed(model, LABELLED)
    means = torch.stack([z[LABELLED.listing.labels == k].mean(0) for k in range(2)])
    model.known = Statistics(means, torch.cov(z.T), torch.tensor([8, 8]))
    single, two = (
        find(model, UNLABELLED, 3, labelled=labelled, run=Run(method="kmeans", device="cpu"))
        for labelled in (LABELLED, None)
    )
    assert (single.known, two.known) == (("a", "b"), ("a", "b"))
    torch.testing.assert_close(
        single.clusters.centres, two.clusters.centres
    )  # nothing moved: means and numbers say all
    assert torch.equal(single.clusters.assignment, two.clusters.assignment)


def test_a_head_made_for_latents_of_before_is_not_left_once_anything_was_trained(task):
    idle, trained = (
        find(make_model("one"), UNLABELLED, 3, run=Run(method=method, epochs=epochs, batch=8, device="cpu"))
        for method, epochs in (("kmeans", 0), ("pairs+spacing", 1))
    )
    assert (idle.model.head is None, trained.model.head is None) == (False, True)
    assert found_in(task, single=False, method="pairs+spacing", epochs=1, batch=32).model.head is None


@pytest.mark.parametrize("method", ["rs", "uno", "ncl", "rs-il", "simgcd"])
def test_what_a_discovery_leaves_begins_another(method):
    left = find(make_model("one"), UNLABELLED, 3, labelled=LABELLED, run=run("pairs+spacing")).model
    found = find(left, UNLABELLED, 3, labelled=LABELLED, run=run(method))
    assert found.features.isfinite().all()


def test_classes_are_compared_by_direction_where_the_method_says_so(task):
    found = found_in(task, single=True, method="spacing", epochs=1, batch=32)
    assert found.clusters.unit
    away = torch.cdist(F.normalize(found.features, dim=1), found.clusters.centres)
    assert torch.equal(away.argmin(1), found.clusters.assignment)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_a_share_of_the_images_is_unsure_the_least_confident(task, share):
    found = found_in(task, single=True, unsure=share)
    table = table_of(found)
    unsure = table["class"] == "unsure"
    assert unsure.sum() == math.floor(share * len(TRUTH))
    if unsure.any() and not unsure.all():
        assert table.loc[unsure, "confidence"].max() <= table.loc[~unsure, "confidence"].min()


def test_else_images_more_likely_wrong_than_right_are_unsure(task):
    found = found_in(task, single=True, unsure=None)
    assert found.threshold == 0.5
    assert torch.equal(
        judge(classes(found)).confidence < 0.5, torch.tensor(table_of(found)["class"].eq("unsure").tolist())
    )


def test_the_threshold_leaves_so_many_below_it():
    confidence, outlier = torch.tensor([0.9, 0.6, 0.5, 0.7, 0.0]), torch.tensor([0.0, 0.1, 0.01, 0.0, 0.3])
    for share, below in ((0.0, 0), (0.1, 0), (0.2, 1), (0.5, 2), (0.99, 4), (1.0, 5)):  # two lie far out
        threshold = choose_threshold(confidence, outlier, share)
        assert withhold_names(confidence, outlier, threshold).unsure.sum() == below
    assert choose_threshold(confidence, outlier, None) == 0.5


def test_outliers_are_none_of_the_share_that_is_to_be_unsure():
    confidence, outlier = torch.linspace(0.1, 0.9, 20), torch.zeros(20)
    outlier[10:16] = 0.9  # more than the share
    for share, unsure in ((0.0, 0), (0.1, 2), (0.5, 10), (0.8, 14), (1.0, 14)):
        named = withhold_names(confidence, outlier, choose_threshold(confidence, outlier, share))
        assert (named.unsure.sum(), named.outlier.sum()) == (unsure, 6)
        assert not (named.unsure & named.outlier).any()
    least = withhold_names(confidence, outlier, choose_threshold(confidence, outlier, 0.1)).unsure
    assert least.nonzero()[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match=rf"--unsure is {share}.*from 0 to 1"):
        find(make_model("one"), UNLABELLED, 3, run=Run(unsure=share))


def copied():
    """Images of which some are copies: 20 and 22 of 3."""
    pixels = UNLABELLED.pixels.clone()
    pixels[20], pixels[22] = pixels[3], pixels[3]
    return Images(pixels, UNLABELLED.listing)


def test_near_duplicates_are_told_by_the_most_typical_of_them_whatever_their_cluster():
    near = torch.linspace(2, 1, 24)  # the later, the nearer its centre
    for away, first in ((near, 22), (near.flip(0), 3)):
        away = torch.stack([away, away], 1)
        assignment = torch.zeros(24, dtype=torch.long)
        assignment[20] = 1
        clusters = Clusters(assignment, torch.zeros(2, 3), torch.tensor([23, 1]), unit=False)
        duplicates, shown = illustrate(copied(), away, clusters, torch.ones(24, dtype=torch.bool))
        assert duplicates == {row: first for row in (3, 20, 22) if row != first}
        assert {3, 20, 22} & shown.keys() == {first, 20}  # its cluster would show nothing else


def test_an_outlier_is_no_example_of_its_class_however_few_are_to_be_unsure(monkeypatch):
    centres, told = 10 * torch.eye(3), []
    z = centres.repeat(4, 1) + 0.1 * torch.randn(12, 3, generator=generator("z"))
    z[11] = 1000
    clusters = Clusters(torch.arange(12) % 3, centres, torch.tensor([4, 4, 4]), unit=False)
    calibration = Calibration(Logistic(1.0, 0.0), Logistic(1.0, 0.0), Logistic(5.0, 0.0))
    monkeypatch.setattr(judging, "illustrate", lambda images, away, clusters, sure: (told.append(sure), {}, {})[1:])
    judged = judge_images(UNLABELLED, z, clusters, calibration, None, 0.05)
    assert (judged.outlier > 0.5).nonzero()[:, 0].tolist() == [11]
    assert told[0].tolist() == [True] * 11 + [False]


def test_references_are_the_labelled_images_nearest_the_mean_of_their_class():
    labels = torch.arange(24) % 2
    labelled = UNLABELLED.relabel(labels, ["cat", "dog"])
    latents = torch.linspace(0, 1, 24)[:, None].square()
    found = pick_references(labelled, latents, ["dog"])
    mean = latents[labels == 1].mean()
    nearest = sorted(range(1, 24, 2), key=lambda row: abs(latents[row, 0] - mean).item())[:4]
    assert found.keys() == {0}
    assert torch.equal(found[0], labelled.pixels[nearest])
    assert pick_references(None, latents, ["dog"]) == {}


def test_what_is_found_is_made_once_and_whole():
    with counted_made(Found) as made:
        found = find(make_model("one"), UNLABELLED, 3, run=run("kmeans"))
    assert made == [Found]
    assert found.thumbnails
    assert found.facts["method"] == "kmeans"


def test_of_near_duplicates_one_is_shown():
    found = find(make_model("one"), copied(), 1, run=Run(method="kmeans", device="cpu"))
    assert found.duplicates.keys() | found.duplicates.values() >= {3, 20, 22}
    assert len({3, 20, 22} & found.thumbnails.keys()) == 1
    assert not found.duplicates.keys() & found.thumbnails.keys()
    twin = table_of(found)["duplicate_of"]
    first = ({3, 20, 22} - found.duplicates.keys()).pop()
    assert {twin[row] for row in {3, 20, 22} - {first}} == {UNLABELLED.listing.names[first]}


def test_a_known_class_of_too_few_images_names_no_cluster_and_is_told(task, caplog):
    _, pile, _ = task
    few = embedded("known", KNOWN, EACH)
    rows = torch.tensor([row for row in range(len(few)) if few.listing.labels[row] < 6 or row % EACH < 3])
    some = replace(few, listing=few.listing.pick(rows), places=few.places[rows], keys=few.keys)
    model = refit_axes(fit_statistics(some, load_pretrained()), pile)
    with caplog.at_level("WARNING", logger="newfound"):
        found = find(model, pile, 6, run=Run(method="kmeans", unsure=0.0, device="cpu"))
    assert "'kind 6', 'kind 7'" in caplog.text
    assert found.known == tuple(f"kind {kind}" for kind in range(6))
    assert not {"kind 6", "kind 7"} & set(table_of(found)["class"])
    truth = torch.tensor([TRUTH.index(name) for name in TRUTH])
    assert accuracy(truth, found.clusters.assignment) > 0.9
    assert how_many(model, pile, None, seed=0).known == 6


@pytest.mark.parametrize("method", ["pairs+spacing", "dtc", "kmeans"])
@pytest.mark.parametrize("images", [2, 5])
def test_a_pile_of_fewer_images_than_classes_is_sorted_too(task, method, images):
    _, pile, model = task
    rows = torch.arange(0, len(pile), len(pile) // images)[:images]
    few = replace(pile, listing=pile.listing.pick(rows), places=pile.places[rows])
    found = find(model, few, 2, run=Run(method=method, epochs=1, device="cpu"))
    assert len(table_of(found)) == images
    alone = [row for row, c in enumerate(found.clusters.assignment.tolist()) if found.clusters.sizes[c] == 1]
    assert table_of(found)["class"].iloc[alone].isin(["unsure", "outlier"]).all()


def test_an_image_of_a_known_class_is_alone_in_no_cluster_of_it(task):
    found = found_in(task, single=True)
    sizes = torch.bincount(found.clusters.assignment, minlength=12)
    assert torch.equal(found.clusters.sizes, sizes + torch.tensor([EACH] * 8 + [0] * 4))


def test_a_network_of_our_own_is_left_with_means_that_are_where_it_puts_its_classes():
    model = make_model("one")
    z = embed(model, LABELLED)
    means = torch.stack([z[LABELLED.listing.labels == k].mean(0) for k in range(2)])
    model.known = Statistics(means, torch.cov(z.T), torch.tensor([8, 8]))
    for labelled in (LABELLED, None):
        found = find(model, UNLABELLED, 3, labelled=labelled, run=Run(epochs=8, batch=8, rate=0.1, device="cpu"))
        now = embed(found.model, LABELLED)
        there = torch.stack([now[LABELLED.listing.labels == k].mean(0) for k in range(2)])
        assert (there - model.known.means).norm() > 0.1 * there.norm()
        assert (found.model.known.means - there).norm() < (1e-4 if labelled else 0.5) * (
            there - model.known.means
        ).norm()


def test_finding_leaves_the_model_as_it_was_and_its_own_has_no_head_that_fits_another_backbone():
    model = make_model("one")
    before = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    found = find(model, UNLABELLED, 3, run=run("spacing"))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.backbone.state_dict().items())
    assert model.head is not None
    assert found.model.head is None
    assert find(model, UNLABELLED, 3, run=run("kmeans")).model.head is not None  # nothing moved


def test_the_truth_of_unlabelled_images_does_not_reach_training():
    told = Images(UNLABELLED.pixels, replace(UNLABELLED.listing, labels=torch.arange(24) % 3, classes=("a", "b", "c")))
    shuffled = Images(told.pixels, replace(told.listing, labels=told.listing.labels.flip(0)))
    runs = [find(make_model("one"), images, 3, run=run("spacing")) for images in (told, shuffled)]
    assert torch.equal(runs[0].features, runs[1].features)


def test_features_that_are_not_finite_are_refused():
    model = make_model("one")
    model.backbone.stages[0][0].weight.data.fill_(torch.inf)
    with pytest.raises(InputError, match=r"NaN or infinite features for 24 of 24 images"):
        find(model, UNLABELLED, 3, run=run("kmeans"))


def test_scores_mean_what_known_classes_say_carried_on_to_the_clusters_of_the_run():
    encoder = FeatureEncoder(load_pretrained(size=64), "cpu")
    model = fit_statistics(embedded("known", range(6), each=20, strong=0.6), encoder.backbone)
    lines = model.calibration._replace(outlier=None, counted=Logistic(5.0, 0.1))  # too few images told
    model = replace(model, calibration=lines)
    carried = carry_on(lines.resolve(estimated=False), encoder.calibration, 6, 12)
    carried = carried._replace(outlier=encoder.calibration.outlier)
    assert calibrate(model, encoder, 12) == carried != calibrate(model, encoder, 24)
    assert calibrate(replace(model, calibration=None), encoder, 12) == encoder.calibration
    told = replace(model, calibration=lines._replace(right=Logistic(5.0, 0.1), counted=None))
    assert calibrate(model, encoder, 12, estimated=True) == calibrate(told, encoder, 12) != carried


def test_a_run_whose_classes_were_counted_is_judged_as_one(task):
    _, pile, model = task
    model = replace(model, calibration=model.calibration._replace(counted=Logistic(5.0, 0.1)))
    run, count = Run(method="kmeans", device="cpu"), Count(8, 4, 6, 10, "rehearsed", {"pairs": 8}, ())
    given, counted = (find(model, pile, 4, run=run, about=about) for about in (None, About(count=count)))
    there, encoder = len(given.clusters.centres), encoder_of(model)
    assert given.calibration == calibrate(model, encoder, there)
    assert counted.calibration == calibrate(model, encoder, there, estimated=True) != given.calibration


@pytest.mark.parametrize("reading", READINGS)
def test_a_run_is_judged_as_clusters_are_that_are_read_as_its_own(task, reading):
    _, pile, model = task
    lines = {by: Calibration(Logistic(1.0 + place, 0.1), Logistic(2.0, 0.3)) for place, by in enumerate(READINGS)}
    model = replace(model, calibration=lines["k-means"]._replace(readings=lines))
    run = Run(method="kmeans", device="cpu", read_by=reading)
    found, alone = find(model, pile, 4, run=run), replace(model, calibration=lines[reading])
    assert found.calibration == calibrate(alone, encoder_of(model), len(found.clusters.centres))
