"""How many new classes a pile has, before anything is trained."""

import math
from dataclasses import replace

import pytest
import torch

from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.discovery.howmany import check_counting, explain, how_many, known_points
from newfound.discovery.settings import Run
from newfound.encoders import embed
from newfound.encoders.known import STAND
from newfound.encoders.statistics import fit_statistics
from newfound.errors import InputError
from newfound.functional.counting import Candidate, Count, Errors
from newfound.functional.rehearsal import Rehearsal
from newfound.networks.model import Model, Pretrained, Statistics
from newfound.networks.pretrained import load_pretrained
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded
from tests.encoders.features import embedded

KNOWN = embedded("known", range(15), each=20, strong=1.0)


@pytest.fixture(scope="module")
def model():
    return fit_statistics(KNOWN, load_pretrained())


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("kinds", [range(7, 20), range(15, 20)])  # eight known ones in the pile, or none
def test_the_number_is_found_in_one_stage_and_in_two(model, single, kinds):
    pile = embedded("pile", kinds, each=20, labelled=False, strong=1.0)
    found = how_many(model, pile, KNOWN if single else None, seed=0)
    assert abs(found.classes - 20) <= 3  # known and new ones together
    assert found.least <= 20 <= found.most
    assert found.criterion == "pairs"


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(("by", "criterion"), [("gcd", "accuracy"), ("dtc", "dtc")])
def test_the_published_ways_find_the_number_too(model, monkeypatch, single, by, criterion):
    monkeypatch.setattr("newfound.discovery.howmany.MOST", 12)
    pile = embedded("pile", range(15, 20), each=20, labelled=False, strong=2.0)
    found = how_many(model, pile, KNOWN if single else None, 0, by)
    assert (found.known, found.criterion) == (15, criterion)
    assert abs(found.novel - 5) <= 2
    assert 15 <= found.curve[0].classes < found.curve[-1].classes == 27


def test_where_gcd_finds_no_new_class_one_is_looked_for_and_that_is_said(model, monkeypatch):
    monkeypatch.setattr("newfound.discovery.howmany.MOST", 3)
    none = embedded("again", range(15), each=5, labelled=False, strong=2.0)
    found = how_many(model, none, KNOWN, 0, "gcd")
    assert found.estimates["accuracy"] == 15
    assert (found.novel, found.least, found.most) == (1, 16, 16)
    said = "labelled images find their classes again best with no new class, and one is looked for at least"
    assert explain(found).startswith(f"1 new, estimated: {said}; by silhouette ")


def test_a_published_way_is_refused_where_it_cannot_be_asked():
    with pytest.raises(InputError, match=r"gcd asks labelled images; found 1 known class, .* 2 or more.*--known"):
        check_counting("gcd", None, 1, mixed=True)
    with pytest.raises(InputError, match=r"found 0 known classes"):
        check_counting("dtc", None, 0, mixed=False)
    with pytest.raises(InputError, match=r"dtc takes every class.*--no-mixed"):
        check_counting("dtc", None, 5, mixed=True)
    with pytest.raises(InputError, match=r"--classes 4 says how many.*--count-by gcd would change nothing"):
        check_counting("gcd", 4, 5, mixed=True)
    check_counting("gcd", None, 2, mixed=True)
    check_counting("dtc", None, 2, mixed=False)
    for classes in (None, 4):
        check_counting("agreement", classes, 0, mixed=True)


def test_a_way_to_count_that_nobody_knows_is_refused():
    with pytest.raises(InputError, match=r"--count-by is elbow\. Needed: agreement, gcd or dtc"):
        Run(count_by="elbow")


def test_where_no_class_is_known_the_pile_speaks_alone(model):
    pile = embedded("pile", range(8), each=20, labelled=False)
    found = how_many(
        Model(model.backbone, 224, 3, (), pretrained=Pretrained(model.pretrained.backbone)), pile, None, seed=0
    )
    assert found.criterion == "silhouette"
    assert abs(found.classes - 8) <= 2
    assert math.isnan(found.curve[0].pairs)


def test_of_a_large_class_no_more_points_are_drawn_than_are_needed():
    counts = torch.tensor([10 * STAND, 0, 7])
    _, labels = known_points(own_network(Statistics(torch.zeros(3, 16), torch.eye(16), counts)), None, 0)
    assert torch.bincount(labels).tolist() == [STAND, 7]


def test_points_of_known_classes_are_their_latents_or_drawn_where_these_would_be(model):
    latents, labels = known_points(model, KNOWN, 0)
    torch.testing.assert_close(latents, embed(model, KNOWN))
    assert torch.equal(labels, KNOWN.listing.labels)
    points, guessed = known_points(model, None, 0)
    assert torch.equal(guessed, labels)  # as many of each
    points = torch.nn.functional.normalize(points, dim=1)
    for label in range(15):
        drawn_mean, true_mean = points[labels == label].mean(0), latents[labels == label].mean(0)
        assert torch.cosine_similarity(drawn_mean, true_mean, dim=0) > 0.97
    within = [
        torch.stack([x[labels == label].var(0).sum() for label in range(15)]).mean().item() for x in (points, latents)
    ]
    assert within[0] == pytest.approx(within[1], rel=0.25)


def own_network(known=None):
    with seeded("own"):
        return Model(SmallResNet(2, 2), 8, 3, ("a", "b", "c"), known=known)


def test_where_nothing_is_left_of_known_classes_there_are_no_points():
    points, labels = known_points(own_network(), None, 0)
    assert points.shape == (0, 16)
    assert labels.tolist() == []


def test_a_network_of_our_own_tells_means_and_spread_of_its_latents():
    means, counts = torch.rand(3, 16), torch.tensor([5, 6, 7])
    points, labels = known_points(own_network(Statistics(means, 1e-10 * torch.eye(16), counts)), None, 0)
    torch.testing.assert_close(points, means[labels], atol=1e-3, rtol=0)
    assert torch.bincount(labels).tolist() == [5, 6, 7]


@pytest.mark.parametrize("labelled", [KNOWN, None])
def test_features_are_aimed_at_what_is_to_be_counted_and_then_compared_by_direction(model, monkeypatch, labelled):
    asked = {}

    def refit_axes(*given):
        asked["aimed"] = given
        return model

    def count(*given, **more):
        asked.update(given=given, more=more)
        return Count(4, 3, 3, 5, "pairs", {}, ())

    monkeypatch.setattr("newfound.encoders.features.refit_axes", refit_axes)
    monkeypatch.setattr("newfound.discovery.howmany.count", count)
    pile = embedded("pile", range(12, 18), each=5, labelled=False, strong=1.0)
    how_many(model, pile, labelled, seed=3)
    assert asked["aimed"] == (model, pile, labelled, 3, 10.0)
    points, labels = known_points(model, labelled, 3)
    for got, latents in zip(asked["given"], (embed(model, pile), points), strict=False):
        torch.testing.assert_close(got, torch.nn.functional.normalize(latents, dim=1))
    assert torch.equal(asked["given"][2], labels)
    told = asked["more"].pop("progress")
    told(1, 2)
    assert asked["more"] == {"most": 100, "seed": 3, "errors": ()}


def test_latents_of_our_own_network_are_whitened_before_they_are_counted(monkeypatch):
    asked = {}

    def count(pile, known, labels, **more):
        asked.update(pile=pile, known=known)
        return Count(4, 3, 3, 5, "pairs", {}, ())

    monkeypatch.setattr("newfound.discovery.howmany.count", count)
    half = torch.randn(16, 16, generator=generator("half"))
    model = own_network(Statistics(torch.rand(3, 16), half @ half.T, torch.tensor([5, 6, 7])))
    pixels = torch.randint(0, 256, (9, 3, 8, 8), generator=generator("pixels"), dtype=torch.uint8)
    pile = Images(pixels, Listing.of("abcdefghi"))
    how_many(model, pile, None, 0)
    size = model.known.within_covariance.trace() / 16
    white = torch.linalg.inv(torch.linalg.cholesky(model.known.within_covariance + 0.3 * size * torch.eye(16)))
    for got, latents in ((asked["pile"], embed(model, pile)), (asked["known"], known_points(model, None, 0)[0])):
        expected = torch.nn.functional.normalize(latents @ white.T, dim=1)
        torch.testing.assert_close(got @ got.T, expected @ expected.T, atol=1e-4, rtol=0)  # but for a turn


def curve(*surplus):
    return tuple(Candidate(8 + number, value, 0.5, 0.5) for number, value in enumerate(surplus))


def test_the_estimate_is_told_in_a_sentence_with_its_reason():
    said = {"silhouette": 14, "accuracy": 11, "pairs": 12}
    assert explain(Count(12, 7, 9, 15, "pairs", said, curve(1.0, 0.2, -0.1))) == (
        "5 new, estimated (2 to 8; 9 to 15 with the 7 known): with 12 clusters in all, as many pairs of labelled "
        "images share a cluster as a class; by silhouette 7 and by accuracy 4"
    )
    halfway = Count(12, 7, 12, 12, "dtc", {"silhouette": 11, "accuracy": 14}, curve(math.nan))
    assert explain(halfway) == (
        "5 new, estimated: half way between two other estimates, without clusters of a few images; by silhouette 4 and "
        "by accuracy 7"
    )
    alone = Count(3, 0, 2, 5, "silhouette", {"silhouette": 3}, curve(math.nan, math.nan))
    assert explain(alone) == "3 new, estimated (2 to 5): 3 clusters lie farthest apart"


@pytest.mark.parametrize("single", [True, False])
def test_how_counting_erred_on_hidden_classes_corrects_it_in_one_stage_and_in_two(model, single):
    pile, known = embedded("pile", range(15, 20), each=20, labelled=False, strong=1.0), KNOWN if single else None
    right, low = (
        how_many(replace(model, rehearsal=Rehearsal(15, 7, counting=(Errors(*(off,) * 3),) * 2)), pile, known, seed=0)
        for off in (0.0, -0.5)
    )
    assert right.criterion == low.criterion == "rehearsed"
    assert low.classes == pytest.approx(math.exp(0.25) * right.classes, abs=1)
    assert low.estimates == right.estimates
    assert abs(right.classes - 20) <= 3
    assert how_many(replace(model, rehearsal=Rehearsal(15, 7)), pile, known, seed=0).criterion == "pairs"


def test_a_corrected_estimate_says_what_it_was_corrected_by():
    said = {"silhouette": 14, "accuracy": 11, "pairs": 12}
    assert explain(Count(13, 7, 10, 17, "rehearsed", said, curve(1.0, 0.2, -0.1))) == (
        "6 new, estimated (3 to 10; 10 to 17 with the 7 known): three ways of counting, each weighed and corrected by "
        "how it erred on known classes that were hidden; by silhouette 7 and by accuracy 4 and by pairs 5"
    )


def test_an_estimate_that_is_but_the_end_of_what_was_tried_says_so():
    assert "even with 10 clusters, the most that were tried" in explain(
        Count(10, 7, 8, 13, "pairs", {}, curve(2, 1, 0.1))
    )
    assert "even 8 clusters, the fewest that were tried" in explain(Count(8, 7, 8, 10, "pairs", {}, curve(0, -1, -2)))


def test_too_few_images_to_count_are_refused_with_what_to_do(model):
    pile = embedded("pile", range(3), each=1, labelled=False)
    with pytest.raises(InputError, match=r"Found 3 images.*at least 4.*--classes"):
        how_many(
            Model(model.backbone, 224, 3, (), pretrained=Pretrained(model.pretrained.backbone)), pile, None, seed=0
        )
    assert how_many(model, pile, None, seed=0).known == 15
