"""What is known of classes among latents, with their images and without."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound.encoders import encoder_of
from newfound.encoders.base import Lesson
from newfound.encoders.known import (
    KnownPoints,
    compare,
    draw_normal,
    extend_statistics,
    known_points,
    points_from_statistics,
    remeasure_means,
    shift_means,
)
from newfound.encoders.statistics import fit_statistics, refit_axes
from newfound.networks.model import Model, Statistics
from newfound.networks.pretrained import load_pretrained
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded
from tests.encoders.features import embedded


def remember(model, **more):
    return points_from_statistics(encoder_of(model), model, seed=0, **more).sums()


def sum_classes(latents, labels, known):
    """Known classes by their labelled images."""
    return KnownPoints(latents, labels, torch.bincount(labels, minlength=known)).sums()


def test_drawn_points_have_the_means_the_covariance_and_the_numbers_asked_for():
    means = 5 * torch.randn(3, 4, generator=generator("means"))
    half = torch.randn(4, 3, generator=generator("half"))  # flat in one direction
    counts = torch.tensor([60, 0, 30])
    many = torch.stack([torch.cat(draw_normal(means, half @ half.T, counts, seed)[:1]) for seed in range(200)])
    _, labels = draw_normal(means, half @ half.T, counts, 0)
    assert labels.tolist() == [0] * 60 + [1] * 30  # of the second class nothing is told, and there is no gap
    rest = []
    for label, mean in enumerate(means[[0, 2]]):
        members = many[:, labels == label].flatten(0, 1)
        torch.testing.assert_close(members.mean(0), mean, atol=0.1, rtol=0)
        rest.append(members - mean)
    torch.testing.assert_close(torch.cov(torch.cat(rest).T), half @ half.T, atol=0.15, rtol=0)
    assert not torch.equal(many[0], many[1])


def test_latents_are_compared_by_direction_or_as_they_are():
    x = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    assert compare(x, unit=False) is x
    torch.testing.assert_close(compare(x, unit=True), torch.tensor([[0.6, 0.8], [0.0, -1.0]]))


def test_known_classes_are_held_by_the_sums_of_their_images():
    x, labels = torch.randn(30, 2, generator=generator("heap")), torch.arange(30) % 4
    labels[labels == 2] = 3
    found = sum_classes(x, labels, 4)
    for label in range(4):
        total = torch.zeros(2)
        for row in range(30):
            if labels[row] == label:
                total += x[row]
        torch.testing.assert_close(found.sums[label], total)
        assert found.counts[label] == labels.tolist().count(label)


@pytest.fixture(scope="module")
def looking():
    """A model aimed at a pile that holds ten of its twenty known classes and ten new ones, and the images of both."""
    known = embedded("known", range(20), each=20, strong=1.0)
    pile = embedded("pile", range(10, 30), each=20, labelled=False, strong=1.0)
    return refit_axes(fit_statistics(known, load_pretrained()), pile, known), known, pile


def seen(model, images):
    return model.backbone(images.features()).z.detach()


def trained(model):
    """The same with a residual that moves every latent by a quarter of its length, and makes all of them longer."""
    with seeded("trained"):
        last = torch.randn(48, 256) / 256
    adapter = model.backbone.fresh()
    adapter.load_state_dict(model.backbone.state_dict())
    first = adapter.stages[0][0]
    with torch.no_grad():
        adapter.stages[0][2].weight.copy_(last[: adapter.dim] + 0.5 * torch.linalg.pinv(first.weight))
    return replace(model, backbone=adapter)


@pytest.mark.parametrize("learnt", [False, True])
def test_what_is_remembered_of_known_classes_is_nearly_what_their_images_say(looking, learnt):
    model, known, pile = looking
    model = trained(model) if learnt else model
    before, after = seen(looking[0], pile), seen(model, pile)
    assert torch.allclose(before, after) != learnt
    images = sum_classes(compare(seen(model, known), unit=True), known.listing.labels, 20)
    memory = remember(model, unit=True)
    assert torch.equal(memory.counts, images.counts)
    away = (memory.sums - images.sums).norm(dim=1) / images.sums.norm(dim=1)
    assert away.max() < 0.04
    shorter = 1 - torch.stack([memory.sums, images.sums]).norm(dim=2) / images.counts
    torch.testing.assert_close(shorter[0], shorter[1], atol=0.01, rtol=0)  # a mean of unit latents is shorter than 1


def test_known_classes_that_training_pulled_together_are_remembered_as_tight(looking):
    model, known, _ = looking
    adapter = model.backbone.fresh()
    centres = F.normalize(sum_classes(seen(model, known), known.listing.labels, 20).sums, dim=1)
    first, _, last = adapter.stages[0]
    with torch.no_grad():  # every latent is drawn towards the class it lies near
        first.weight[:20].copy_(8 * centres)
        first.weight[20:] = 0
        first.bias.fill_(-4.0)
        last.weight[:, :20].copy_(centres.T)
    model = replace(model, backbone=adapter)
    images = sum_classes(compare(seen(model, known), unit=True), known.listing.labels, 20)
    assert (images.sums.norm(dim=1) / images.counts).min() > 0.98
    memory = remember(model, unit=True)
    torch.testing.assert_close(memory.sums / 20, images.sums / 20, atol=0.03, rtol=0)


def own_network(counts=(6, 4, 0)):
    with seeded("own"):
        backbone, means, within_covariance = SmallResNet(2, 2), torch.rand(3, 16), torch.rand(16, 4)
    told = torch.tensor(counts)
    return Model(
        backbone,
        8,
        3,
        ("a", "b", "c"),
        known=Statistics(means, within_covariance @ within_covariance.T, told),
    )


def test_known_classes_of_a_network_that_moved_are_guessed_from_how_it_moved_the_pile():
    model = own_network()
    before = torch.rand(20, 16, generator=generator("before"))
    shift = torch.linspace(-1, 1, 16)
    there = shift_means(model, before, before + shift)
    assert torch.equal(there.known.means[2], model.known.means[2])
    found = remember(there, unit=False)
    told = torch.tensor([6.0, 4.0])  # of the third nothing is told: it is not held
    torch.testing.assert_close(found.sums, told[:, None] * (model.known.means[:2] + shift))
    assert torch.equal(found.counts, told)


def test_by_direction_a_class_is_remembered_as_the_mean_of_unit_latents():
    model = own_network()
    found = remember(model, unit=True)
    root = torch.linalg.cholesky(model.known.within_covariance + 1e-6 * torch.eye(16))
    for k in range(2):
        many = model.known.means[k] + torch.randn(5000, 16, generator=generator("many", k)) @ root.T
        expected = F.normalize(many, dim=1).mean(0)
        assert expected.norm() < 0.95
        torch.testing.assert_close(found.sums[k] / found.counts[k], expected, atol=0.06, rtol=0)


def test_images_near_a_class_say_more_of_its_move_than_others_by_the_width_of_classes():
    model = own_network()
    before = torch.cat([model.known.means[:1], model.known.means[:1] + 50])
    after = before + torch.tensor([[1.0], [-7.0]])
    torch.testing.assert_close(shift_means(model, before, after).known.means[0], model.known.means[0] + 1)
    wide = replace(model, known=model.known._replace(within_covariance=1e6 * model.known.within_covariance))
    torch.testing.assert_close(
        shift_means(wide, before, after).known.means[0], model.known.means[0] - 3, atol=0.05, rtol=0
    )


def test_where_nothing_was_left_of_known_classes_none_is_told():
    model = own_network()
    assert model.recognisable == ("a", "b")
    assert replace(model, known=None).recognisable == ()
    assert own_network(counts=(0, 0, 0)).recognisable == ()


def test_where_labelled_images_are_at_hand_means_are_found_where_these_lie_now():
    model, labels = own_network(), torch.tensor([0, 1, 2, 0, 1, 0, 1, 0, 1, 0, 1])
    latents = torch.rand(11, 16, generator=generator("latents"))
    found = remeasure_means(model, latents, labels)
    for label in (0, 1):
        torch.testing.assert_close(found.known.means[label], latents[labels == label].mean(0))
    assert found.known.counts.tolist() == [5, 5, 0]  # one image of a class tells too much of it
    assert not found.known.means[2].any()


@pytest.mark.parametrize("unit", [True, False])
def test_known_classes_are_held_by_their_images_where_these_are_at_hand_and_else_by_memory(unit):
    model = own_network()
    latents, labels = torch.rand(12, 16, generator=generator("latents")), torch.arange(12) % 3
    images = known_points(encoder_of(model), model, (latents, labels), unit=unit, seed=0).sums()
    assert torch.equal(images.sums, sum_classes(compare(latents, unit), labels, 3).sums)
    memory = known_points(encoder_of(model), model, None, unit=unit, seed=0).sums()
    assert torch.equal(memory.sums, remember(model, unit=unit).sums)
    assert memory.counts.tolist() == [6, 4]


def test_what_is_learnt_later_is_what_all_images_together_would_have_said():
    random = generator("lesson")
    x, labels = torch.randn(90, 3, generator=random) + 5, torch.arange(90) % 6
    x += 4 * labels[:, None] * torch.tensor([1.0, 0.0, -1.0])
    old = labels < 3
    known = Statistics.of(x[old], labels[old], 3)
    parts = ((0,), (1, 2), (), ())  # the second and third are one now; two are new, of which 5 joins the first
    place = torch.tensor([-1, -1, -1, 2, 3, 0])[labels]
    lesson = Lesson(("a", "b", "c", "d"), parts, place)
    found = extend_statistics(known, lesson, x)
    whole = Statistics.of(x, torch.tensor([0, 1, 1, 2, 3, 0])[labels], 4)
    assert found.counts.tolist() == whole.counts.tolist() == [30, 30, 15, 15]
    torch.testing.assert_close(found.means, whole.means)
    torch.testing.assert_close(found.within_covariance, whole.within_covariance)


def test_where_nothing_was_known_a_lesson_is_all_there_is():
    x, labels = torch.randn(20, 3, generator=generator("first")), torch.arange(20) % 2
    found = extend_statistics(None, Lesson(("a", "b"), ((), ()), labels), x)
    for one, other in zip(found, Statistics.of(x, labels, 2), strict=True):
        torch.testing.assert_close(one, other)


def test_a_class_of_too_few_images_gets_no_mean_and_adds_nothing():
    x, labels = torch.randn(24, 3, generator=generator("few")), torch.arange(24) % 2
    known = Statistics.of(x[:20], labels[:20], 2)
    known = known._replace(means=known.means * torch.tensor([[1.0], [0.0]]), counts=torch.tensor([10, 0]))
    few = torch.full((24,), -1)
    few[20:] = 2
    found = extend_statistics(known, Lesson(("a", "b", "c"), ((0,), (1,), ()), few), x)
    assert found.counts.tolist() == [10, 0, 0]
    assert not found.means[1:].any()
    torch.testing.assert_close(found.within_covariance, known.within_covariance)
    few[20:] = 0  # one that has a mean is taught by any
    found = extend_statistics(known, Lesson(("a", "b"), ((0,), (1,)), few), x)
    assert found.counts.tolist() == [14, 0]
