"""From latents to classes: known ones held, new ones found; and which images show a class."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound.discovery.reading import examples, held, located, moved, read, remembered, space, twins
from newfound.functional.cluster import Held
from newfound.networks.model import Model
from newfound.networks.pretrained import trunk
from newfound.networks.resnet import SmallResNet
from newfound.training.adapt import aimed, measured
from newfound.types import generator, seeded
from tests.training.features import embedded


def heap(places, sizes, wide=0.1):
    """So many points about each place."""
    centres = torch.tensor(places).float().repeat_interleave(torch.tensor(sizes), 0)
    return centres + wide * torch.randn(centres.shape, generator=generator("heap", *sizes))


def test_the_largest_cluster_is_read_first():
    x = heap([[5, 5], [40, 40], [20, 20]], [5, 40, 20])
    found = read(x, 3, None, seed=0)
    assert torch.bincount(found.assignment).tolist() == [40, 20, 5]
    torch.testing.assert_close(found.centres, torch.tensor([[40.0] * 2, [20.0] * 2, [5.0] * 2]), atol=0.2, rtol=0)


KNOWN = Held(sums=torch.tensor([[100.0, 0.0], [0.0, 60.0]]), counts=torch.tensor([10.0, 6.0]))  # at (10, 0), (0, 10)


def test_new_classes_come_first_the_largest_before_then_known_ones_in_their_order():
    x = heap([[-9, 0], [0, 10], [0, -9], [10, 0]], [7, 30, 12, 3])
    found = read(x, 2, KNOWN, seed=0)
    assert torch.bincount(found.assignment).tolist() == [12, 7, 3, 30]
    expected = torch.tensor([[0.0, -9.0], [-9.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    torch.testing.assert_close(found.centres, expected, atol=0.2, rtol=0)
    assert torch.equal(torch.cdist(x, found.centres).argmin(1), found.assignment)


@pytest.mark.parametrize("known", [None, Held(torch.zeros(1, 4), torch.ones(1))])
def test_the_same_seed_reads_the_same_and_another_seed_may_read_a_fog_otherwise(known):
    fog = torch.randn(80, 4, generator=generator("fog"))
    first, again, other = (read(fog, 14, known, seed).assignment for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_of_equal_images_every_class_that_was_asked_for_has_a_centre_though_one_has_them_all():
    for known, first in ((None, 0), (KNOWN, 2)):
        found = read(torch.full((6, 2), -9.0), 3, known, seed=0)
        assert torch.bincount(found.assignment, minlength=3 + first).tolist() == [6, 0, 0] + [0] * first
        assert found.centres.shape == (3 + first, 2)


def test_a_known_class_of_which_nothing_is_in_the_pile_stays_where_it_was():
    x = heap([[-9, 0], [0, 10]], [9, 9])
    found = read(x, 1, KNOWN, seed=0)
    assert torch.bincount(found.assignment, minlength=3).tolist() == [9, 0, 9]
    torch.testing.assert_close(found.centres[1], torch.tensor([10.0, 0.0]))


def test_images_that_join_a_known_class_move_it_by_their_share():
    x = heap([[-9, 0], [0, 8], [10, 0]], [5, 18, 4])
    found = read(x, 1, KNOWN, seed=0)
    mean = (6 * torch.tensor([0.0, 10.0]) + x[5:23].sum(0)) / 24
    torch.testing.assert_close(found.centres[2], mean)


def test_without_known_ones_images_near_a_known_class_are_a_new_one():
    x = heap([[-9, 0], [0, 10], [10, 0]], [5, 4, 3])
    assert torch.bincount(read(x, 3, None, seed=0).assignment).tolist() == [5, 4, 3]


def test_latents_are_compared_by_direction_or_as_they_are():
    x = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    assert space(x, unit=False) is x
    torch.testing.assert_close(space(x, unit=True), torch.tensor([[0.6, 0.8], [0.0, -1.0]]))


def test_known_classes_are_held_by_the_sums_of_their_images():
    x, labels = heap([[1, 2]], [30]), torch.arange(30) % 4
    labels[labels == 2] = 3
    found = held(x, labels, 4)
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
    return aimed(measured(known, trunk()), pile, known), known, pile


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
    images = held(space(seen(model, known), unit=True), known.labels, 20)
    memory = remembered(model, unit=True, seed=0)
    assert torch.equal(memory.counts, images.counts)
    away = (memory.sums - images.sums).norm(dim=1) / images.sums.norm(dim=1)
    assert away.max() < 0.04
    shorter = 1 - torch.stack([memory.sums, images.sums]).norm(dim=2) / images.counts
    torch.testing.assert_close(shorter[0], shorter[1], atol=0.01, rtol=0)  # a mean of unit latents is shorter than 1


def test_known_classes_that_training_pulled_together_are_remembered_as_tight(looking):
    model, known, _ = looking
    adapter = model.backbone.fresh()
    centres = F.normalize(held(seen(model, known), known.labels, 20).sums, dim=1)
    first, _, last = adapter.stages[0]
    with torch.no_grad():  # every latent is drawn towards the class it lies near
        first.weight[:20].copy_(8 * centres)
        first.weight[20:] = 0
        first.bias.fill_(-4.0)
        last.weight[:, :20].copy_(centres.T)
    model = replace(model, backbone=adapter)
    images = held(space(seen(model, known), unit=True), known.labels, 20)
    assert (images.sums.norm(dim=1) / images.counts).min() > 0.98
    memory = remembered(model, unit=True, seed=0)
    torch.testing.assert_close(memory.sums / 20, images.sums / 20, atol=0.03, rtol=0)


def test_one_stage_and_two_find_known_classes_in_the_pile_and_the_same_new_ones(looking):
    model, known, pile = looking
    z = space(seen(model, pile), unit=True)
    for held_by in (held(space(seen(model, known), unit=True), known.labels, 20), remembered(model, unit=True, seed=0)):
        found = read(z, 10, held_by, seed=0).assignment
        assert torch.equal(found[:200], torch.arange(20, 30).repeat_interleave(20))  # ten new ones, then kinds 0 to 19
        assert set(found[200:].tolist()) == set(range(10))
        assert torch.equal(found[200:], found[200::20].repeat_interleave(20))


def own_network(counts=(6, 4, 0)):
    with seeded("own"):
        backbone, means, spread = SmallResNet(2, 2), torch.rand(3, 16), torch.rand(16, 4)
    told = torch.tensor(counts)
    return Model(backbone, 8, 3, ("a", "b", "c"), means=means, spread=spread @ spread.T, counts=told)


def test_known_classes_of_a_network_that_moved_are_guessed_from_how_it_moved_the_pile():
    model = own_network()
    before = torch.rand(20, 16, generator=generator("before"))
    shift = torch.linspace(-1, 1, 16)
    there = moved(model, before, before + shift)
    assert torch.equal(there.means[2], model.means[2])
    found = remembered(there, unit=False, seed=0)
    told = torch.tensor([6.0, 4.0])  # of the third nothing is told: it is not held
    torch.testing.assert_close(found.sums, told[:, None] * (model.means[:2] + shift))
    assert torch.equal(found.counts, told)


def test_by_direction_a_class_is_remembered_as_the_mean_of_unit_latents():
    model = own_network()
    found = remembered(model, unit=True, seed=0)
    root = torch.linalg.cholesky(model.spread + 1e-6 * torch.eye(16))
    for k in range(2):
        many = model.means[k] + torch.randn(5000, 16, generator=generator("many", k)) @ root.T
        expected = F.normalize(many, dim=1).mean(0)
        assert expected.norm() < 0.95
        torch.testing.assert_close(found.sums[k] / found.counts[k], expected, atol=0.06, rtol=0)


def test_images_near_a_class_say_more_of_its_move_than_others_by_the_width_of_classes():
    model = own_network()
    before = torch.cat([model.means[:1], model.means[:1] + 50])
    after = before + torch.tensor([[1.0], [-7.0]])
    torch.testing.assert_close(moved(model, before, after).means[0], model.means[0] + 1)
    wide = replace(model, spread=1e6 * model.spread)
    torch.testing.assert_close(moved(wide, before, after).means[0], model.means[0] - 3, atol=0.05, rtol=0)


@pytest.mark.parametrize(
    "gone", [{"means": None}, {"spread": None}, {"counts": None}, {"counts": torch.zeros(3).long()}]
)
def test_where_nothing_was_left_of_known_classes_none_is_told(gone):
    assert own_network().told == ("a", "b")
    assert replace(own_network(), **gone).told == ()


def test_where_labelled_images_are_at_hand_means_are_found_where_these_lie_now():
    model, labels = own_network(), torch.tensor([0, 1, 2, 0, 1, 0, 1, 0, 1, 0, 1])
    latents = torch.rand(11, 16, generator=generator("latents"))
    found = located(model, latents, labels)
    for label in (0, 1):
        torch.testing.assert_close(found.means[label], latents[labels == label].mean(0))
    assert found.counts.tolist() == [5, 5, 0]  # one image of a class tells too much of it
    assert not found.means[2].any()


def naive_twins(looks, order, alike):
    first = {}
    for place, row in enumerate(order.tolist()):
        first[row] = row
        for other in order[:place].tolist():
            if torch.cosine_similarity(looks[row], looks[other], dim=0) >= alike:
                first[row] = first[other]
                break
    return [first[row] for row in range(len(looks))]


def test_twins_equal_the_loop_over_pairs():
    random = generator("twins")
    looks = torch.rand(9, 6, generator=random)[torch.randint(9, (60,), generator=random)]
    looks = looks * (1 + torch.rand(60, 1, generator=random)) + 0.1 * torch.randn(60, 6, generator=random)
    order = torch.randperm(60, generator=random)
    for alike in (0.97, 0.98):
        found = twins(looks, order, alike).tolist()
        assert found == naive_twins(looks, order, alike)
        assert 5 < len(set(found)) < 55


def at(*degrees):
    angle = torch.tensor(degrees).deg2rad()
    return torch.stack([angle.cos(), angle.sin()], 1)


def test_a_burst_has_one_first_though_its_ends_are_not_alike():
    looks = at(0.0, 10.0, 20.0, 30.0, 90.0)  # the cosine of 10° is 0.985, that of 20° 0.940
    assert twins(looks, torch.arange(5), 0.97).tolist() == [0, 0, 0, 0, 4]
    assert twins(looks, torch.tensor([4, 3, 2, 1, 0]), 0.97).tolist() == [3, 3, 3, 3, 4]
    assert twins(looks, torch.tensor([0, 2, 1, 3, 4]), 0.97).tolist() == [
        0,
        0,
        2,
        2,
        4,
    ]  # 1 is 0's, though 2 is near it too


def test_no_image_is_a_twin_where_none_is_alike():
    looks = at(0.0, 20.0, 40.0, 60.0)
    assert twins(looks, torch.tensor([2, 0, 3, 1]), 0.97).tolist() == [0, 1, 2, 3]
    assert twins(looks[:0], torch.zeros(0, dtype=torch.long), 0.97).tolist() == []


def test_twins_are_found_among_thousands():
    looks = F.normalize(torch.randn(2500, 40, generator=generator("many")))
    looks[2400], looks[1100], looks[1030] = 2 * looks[3], looks[1029], looks[2450]
    expected = torch.arange(2500)
    expected[2400], expected[1100], expected[2450] = 3, 1029, 1030
    assert torch.equal(twins(looks, torch.arange(2500), 0.97), expected)


def test_examples_are_each_cluster_s_most_and_least_typical_images_without_twins():
    random = generator("examples")
    away, cluster, lone = torch.rand(80, generator=random), torch.arange(80) % 3, torch.rand(80, generator=random) < 0.7
    expected = []
    for number in range(3):
        members = [row for row in range(80) if cluster[row] == number and lone[row]]
        members.sort(key=lambda row: away[row].item())
        expected += members[:4] + members[-2:]
    assert examples(away, cluster, lone, 4, 2) == sorted(expected)


def test_of_few_images_each_is_an_example_once():
    away, lone = torch.tensor([0.3, 0.1, 0.2, 0.4]), torch.tensor([True, True, False, True])
    assert examples(away, torch.tensor([0, 0, 0, 2]), lone, 24, 6) == [0, 1, 3]
