"""From latents to classes: known ones held, new ones found."""

import pytest
import torch

from newfound.discovery.settings import READINGS
from newfound.encoders import embed, encoder_of
from newfound.encoders.known import KnownPoints, compare, known_points
from newfound.encoders.reading import READERS, read, read_by, read_discriminant, read_every, read_numbers, read_shifted
from newfound.encoders.statistics import fit_statistics, refit_axes
from newfound.functional.cluster import ClassSums
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator
from tests.encoders.features import embedded


def heap(places, sizes, wide=0.1):
    """So many points about each place."""
    centres = torch.tensor(places).float().repeat_interleave(torch.tensor(sizes), 0)
    return centres + wide * torch.randn(centres.shape, generator=generator("heap", *sizes))


def test_the_largest_cluster_is_read_first():
    x = heap([[5, 5], [40, 40], [20, 20]], [5, 40, 20])
    found = read(x, 3, None, seed=0)
    assert torch.bincount(found.assignment).tolist() == [40, 20, 5]
    torch.testing.assert_close(found.centres, torch.tensor([[40.0] * 2, [20.0] * 2, [5.0] * 2]), atol=0.2, rtol=0)


KNOWN = ClassSums(
    sums=torch.tensor([[100.0, 0.0], [0.0, 60.0]]), counts=torch.tensor([10.0, 6.0])
)  # at (10, 0), (0, 10)


def test_known_classes_come_first_in_their_order_then_new_ones_the_largest_before():
    x = heap([[-9, 0], [0, 10], [0, -9], [10, 0]], [7, 30, 12, 3])
    found = read(x, 2, KNOWN, seed=0)
    assert torch.bincount(found.assignment).tolist() == [3, 30, 12, 7]
    expected = torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, -9.0], [-9.0, 0.0]])
    torch.testing.assert_close(found.centres, expected, atol=0.2, rtol=0)
    assert torch.equal(torch.cdist(x, found.centres).argmin(1), found.assignment)


@pytest.mark.parametrize("known", [None, ClassSums(torch.zeros(1, 4), torch.ones(1))])
def test_the_same_seed_reads_the_same_and_another_seed_may_read_a_fog_otherwise(known):
    fog = torch.randn(80, 4, generator=generator("fog"))
    first, again, other = (read(fog, 14, known, seed).assignment for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_of_equal_images_every_class_that_was_asked_for_has_a_centre_though_one_has_them_all():
    for known, first in ((None, 0), (KNOWN, 2)):
        found = read(torch.full((6, 2), -9.0), 3, known, seed=0)
        assert torch.bincount(found.assignment, minlength=3 + first).tolist() == [0] * first + [6, 0, 0]
        assert found.centres.shape == (3 + first, 2)


def test_a_known_class_of_which_nothing_is_in_the_pile_stays_where_it_was():
    x = heap([[-9, 0], [0, 10]], [9, 9])
    found = read(x, 1, KNOWN, seed=0)
    assert torch.bincount(found.assignment, minlength=3).tolist() == [0, 9, 9]
    torch.testing.assert_close(found.centres[0], torch.tensor([10.0, 0.0]))


def test_images_that_join_a_known_class_move_it_by_their_share():
    x = heap([[-9, 0], [0, 8], [10, 0]], [5, 18, 4])
    found = read(x, 1, KNOWN, seed=0)
    mean = (6 * torch.tensor([0.0, 10.0]) + x[5:23].sum(0)) / 24
    torch.testing.assert_close(found.centres[1], mean)


def test_without_known_ones_images_near_a_known_class_are_a_new_one():
    x = heap([[-9, 0], [0, 10], [10, 0]], [5, 4, 3])
    assert torch.bincount(read(x, 3, None, seed=0).assignment).tolist() == [5, 4, 3]


def test_one_stage_and_two_find_known_classes_in_the_pile_and_the_same_new_ones():
    """Ten of twenty known classes lie among the unlabelled images, and ten new ones."""
    known = embedded("known", range(20), each=20, strong=1.0)
    pile = embedded("pile", range(10, 30), each=20, labelled=False, strong=1.0)
    model = refit_axes(fit_statistics(known, load_pretrained()), pile, known)
    for labelled in ((embed(model, known), known.listing.labels), None):
        held = known_points(encoder_of(model), model, labelled, unit=True, seed=0).sums()
        found = read(compare(embed(model, pile), unit=True), 10, held, seed=0).assignment
        assert torch.equal(found[:200], torch.arange(10, 20).repeat_interleave(20))  # kinds 0 to 19, then ten new ones
        assert set(found[200:].tolist()) == set(range(20, 30))
        assert torch.equal(found[200:], found[200::20].repeat_interleave(20))


def sphere(*places, each=20, wide=0.25):
    """Unit points about each place."""
    z = heap(places, [each] * len(places), wide)
    return z / z.norm(dim=1, keepdim=True)


PLACES = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [-1, -1, 0, 0]]


@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_finds_known_classes_by_name_and_new_ones_the_largest_before(reading):
    known = KnownPoints(sphere(*PLACES[:2]), torch.arange(2).repeat_interleave(20), torch.tensor([20, 20]))
    z = torch.cat([sphere(*PLACES[1:4], each=12), sphere(PLACES[4], each=30)])
    found = read_by(reading, z, 3, known, seed=0)
    assert torch.bincount(found.assignment, minlength=5).tolist() == [0, 12, 30, 12, 12]
    assert found.assignment[:12].eq(1).all()
    mean = (known.points[20:].sum(0) + z[:12].sum(0)) / 32
    torch.testing.assert_close(found.centres[1], mean)  # of what it holds, as it lay
    torch.testing.assert_close(found.centres[2], z[36:].mean(0))


def test_along_discriminants_points_move_that_mean_shift_alone_had_elsewhere():
    z = sphere(*PLACES, each=40, wide=0.9)
    shifted, found = (way(z, 5, None, 0) for way in (read_shifted, read_discriminant))
    assert not torch.equal(shifted.assignment, found.assignment)
    sizes = torch.bincount(found.assignment)
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    torch.testing.assert_close(found.centres, torch.stack([z[found.assignment == k].mean(0) for k in range(5)]))


def test_every_reading_has_a_reader_and_reading_all_at_once_reads_the_same():
    assert tuple(READERS) == READINGS
    known = KnownPoints(sphere(*PLACES[:2], wide=0.9), torch.arange(2).repeat_interleave(20), torch.tensor([20, 20]))
    z = sphere(*PLACES[1:], wide=0.9)
    every = read_every(z, 3, known, seed=1)
    assert tuple(every) == READINGS
    for reading, found in every.items():
        alone = read_by(reading, z, 3, known, seed=1)
        assert torch.equal(found.assignment, alone.assignment)
        assert torch.equal(found.centres, alone.centres)
    assert len({tuple(found.assignment.tolist()) for found in every.values()}) == 3  # each in its own way


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("held", [True, False])
def test_some_numbers_of_classes_are_read_at_once_as_each_alone_is(reading, held):
    points, labels = sphere(*PLACES[:2], wide=0.9), torch.arange(2).repeat_interleave(20)
    known = KnownPoints(points, labels, torch.tensor([20, 20])) if held else None
    z = sphere(*PLACES[1:], wide=0.9)
    for new, found in zip((1, 3, 5), read_numbers(reading, z, (1, 3, 5), known, seed=1), strict=True):
        alone = read_by(reading, z, new, known, seed=1)
        assert torch.equal(found.assignment, alone.assignment)
        assert torch.equal(found.centres, alone.centres)
