"""How many new classes a pile has, before anything is trained."""

import math

import pytest
import torch

from newfound.data.sources import Images
from newfound.discovery.howmany import explained, how_many, known_points
from newfound.discovery.reading import STAND, drawn
from newfound.discovery.result import embed
from newfound.errors import InputError
from newfound.functional.counting import Count, Tried
from newfound.networks.model import Model
from newfound.networks.pretrained import trunk
from newfound.networks.resnet import SmallResNet
from newfound.training.adapt import measured
from newfound.types import generator, seeded
from tests.training.features import embedded

KNOWN = embedded("known", range(15), each=20, strong=1.0)


@pytest.fixture(scope="module")
def model():
    return measured(KNOWN, trunk())


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("kinds", [range(7, 20), range(15, 20)])  # eight known ones in the pile, or none
def test_the_number_is_found_in_one_stage_and_in_two(model, single, kinds):
    pile = embedded("pile", kinds, each=20, labelled=False, strong=1.0)
    found = how_many(model, pile, KNOWN if single else None, seed=0)
    assert abs(found.classes - 20) <= 3  # known and new ones together
    assert found.least <= 20 <= found.most
    assert found.voice == "pairs"


def test_where_no_class_is_known_the_pile_speaks_alone(model):
    pile = embedded("pile", range(8), each=20, labelled=False)
    found = how_many(Model(model.backbone, 224, 3, (), trunk=model.trunk), pile, None, seed=0)
    assert found.voice == "silhouette"
    assert abs(found.classes - 8) <= 2
    assert math.isnan(found.curve[0].pairs)


def test_drawn_points_have_the_means_the_covariance_and_the_numbers_asked_for():
    means = 5 * torch.randn(3, 4, generator=generator("means"))
    half = torch.randn(4, 3, generator=generator("half"))  # flat in one direction
    counts = torch.tensor([60, 0, 30])
    many = torch.stack([torch.cat(drawn(means, half @ half.T, counts, seed)[:1]) for seed in range(200)])
    _, labels = drawn(means, half @ half.T, counts, 0)
    assert labels.tolist() == [0] * 60 + [1] * 30  # of the second class nothing is told, and there is no gap
    rest = []
    for label, mean in enumerate(means[[0, 2]]):
        members = many[:, labels == label].flatten(0, 1)
        torch.testing.assert_close(members.mean(0), mean, atol=0.1, rtol=0)
        rest.append(members - mean)
    torch.testing.assert_close(torch.cov(torch.cat(rest).T), half @ half.T, atol=0.15, rtol=0)
    assert not torch.equal(many[0], many[1])


def test_of_a_large_class_no_more_points_are_drawn_than_are_needed():
    counts = torch.tensor([10 * STAND, 0, 7])
    _, labels = known_points(own_network(means=torch.zeros(3, 16), spread=torch.eye(16), counts=counts), None, 0)
    assert torch.bincount(labels).tolist() == [STAND, 7]


def test_points_of_known_classes_are_their_latents_or_drawn_where_these_would_be(model):
    latents, labels = known_points(model, KNOWN, 0)
    torch.testing.assert_close(latents, embed(model, KNOWN))
    assert torch.equal(labels, KNOWN.labels)
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


def own_network(**more):
    with seeded("own"):
        return Model(SmallResNet(2, 2), 8, 3, ("a", "b", "c"), **more)


def test_where_nothing_is_left_of_known_classes_there_are_no_points():
    points, labels = known_points(own_network(), None, 0)
    assert points.shape == (0, 16)
    assert labels.tolist() == []


def test_a_network_of_our_own_tells_means_and_spread_of_its_latents():
    means, counts = torch.rand(3, 16), torch.tensor([5, 6, 7])
    points, labels = known_points(own_network(means=means, spread=1e-10 * torch.eye(16), counts=counts), None, 0)
    torch.testing.assert_close(points, means[labels], atol=1e-3, rtol=0)
    assert torch.bincount(labels).tolist() == [5, 6, 7]


@pytest.mark.parametrize("labelled", [KNOWN, None])
def test_features_are_aimed_at_what_is_to_be_counted_and_then_compared_by_direction(model, monkeypatch, labelled):
    asked = {}

    def aimed(*given):
        asked["aimed"] = given
        return model

    def count(*given, **more):
        asked.update(given=given, more=more)
        return Count(4, 3, 3, 5, "pairs", {}, ())

    monkeypatch.setattr("newfound.discovery.howmany.aimed", aimed)
    monkeypatch.setattr("newfound.discovery.howmany.count", count)
    pile = embedded("pile", range(12, 18), each=5, labelled=False, strong=1.0)
    how_many(model, pile, labelled, seed=3)
    assert asked["aimed"] == (model, pile, labelled, 3, 10.0)
    points, labels = known_points(model, labelled, 3)
    for got, latents in zip(asked["given"], (embed(model, pile), points), strict=False):
        torch.testing.assert_close(got, torch.nn.functional.normalize(latents, dim=1))
    assert torch.equal(asked["given"][2], labels)
    assert asked["more"] == {"most": 100, "seed": 3}


def test_latents_of_our_own_network_are_whitened_before_they_are_counted(monkeypatch):
    asked = {}

    def count(pile, known, labels, **more):
        asked.update(pile=pile, known=known)
        return Count(4, 3, 3, 5, "pairs", {}, ())

    monkeypatch.setattr("newfound.discovery.howmany.count", count)
    half = torch.randn(16, 16, generator=generator("half"))
    model = own_network(means=torch.rand(3, 16), spread=half @ half.T, counts=torch.tensor([5, 6, 7]))
    pixels = torch.randint(0, 256, (9, 3, 8, 8), generator=generator("pixels"), dtype=torch.uint8)
    pile = Images(pixels, tuple("abcdefghi"), torch.full((9,), -1), ())
    how_many(model, pile, None, 0)
    size = model.spread.trace() / 16
    white = torch.linalg.inv(torch.linalg.cholesky(model.spread + 0.3 * size * torch.eye(16)))
    for got, latents in ((asked["pile"], embed(model, pile)), (asked["known"], known_points(model, None, 0)[0])):
        expected = torch.nn.functional.normalize(latents @ white.T, dim=1)
        torch.testing.assert_close(got @ got.T, expected @ expected.T, atol=1e-4, rtol=0)  # but for a turn


def curve(*surplus):
    return tuple(Tried(8 + number, value, 0.5, 0.5) for number, value in enumerate(surplus))


def test_the_estimate_is_told_in_a_sentence_with_its_reason():
    said = {"silhouette": 14, "accuracy": 11, "pairs": 12}
    assert explained(Count(12, 7, 9, 15, "pairs", said, curve(1.0, 0.2, -0.1))) == (
        "5 new, estimated (2 to 8; 9 to 15 with the 7 known): with 12 clusters in all, as many pairs of labelled "
        "images share a cluster as a class; by silhouette 7 and by accuracy 4"
    )
    alone = Count(3, 0, 2, 5, "silhouette", {"silhouette": 3}, curve(math.nan, math.nan))
    assert explained(alone) == "3 new, estimated (2 to 5): 3 clusters lie farthest apart"


def test_an_estimate_that_is_but_the_end_of_what_was_tried_says_so():
    assert "even with 10 clusters, the most that were tried" in explained(
        Count(10, 7, 8, 13, "pairs", {}, curve(2, 1, 0.1))
    )
    assert "even 8 clusters, the fewest that were tried" in explained(Count(8, 7, 8, 10, "pairs", {}, curve(0, -1, -2)))


def test_too_few_images_to_count_are_refused_with_what_to_do(model):
    pile = embedded("pile", range(3), each=1, labelled=False)
    with pytest.raises(InputError, match=r"Found 3 images.*at least 4.*--classes"):
        how_many(Model(model.backbone, 224, 3, (), trunk=model.trunk), pile, None, seed=0)
    assert how_many(model, pile, None, seed=0).known == 15
