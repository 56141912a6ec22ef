"""Present classes read anew: what is vouched for stays, what must not join is apart, centres are what they say."""

from functools import partial

import pytest
import torch

from newfound.discovery import settings
from newfound.discovery.rereading import Present, find_astray, hold, reread, reread_by
from newfound.encoders.known import KnownPoints
from newfound.encoders.reading import read_by
from newfound.functional.geometry import means
from newfound.types import generator
from tests.functional.test_discriminant import stretched

PLACES = torch.nn.functional.normalize(torch.eye(4)[:, :4] + 0.2, dim=1)


def heaps(each=12, wide=0.25):
    """Unit points about four places, each heap a class."""
    labels = torch.arange(4).repeat_interleave(each)
    noise = wide * torch.randn(len(labels), 4, generator=generator("heaps"))
    return torch.nn.functional.normalize(PLACES[labels] + noise, dim=1), labels


KNOWN = KnownPoints(PLACES[:2].repeat(3, 1), torch.arange(2).repeat(3), torch.tensor([30, 20]))


def present(assignment, vouched=(), apart=(), known=None):
    held, barred = torch.zeros(len(assignment), dtype=torch.bool), torch.zeros(len(assignment), 4, dtype=torch.bool)
    held[[*vouched]] = True
    for row, number in apart:
        barred[row, number] = True
    return Present(assignment, held, barred, known)


READINGS = {by: partial(lambda by, z, now: reread_by(by, z, now, 0), by) for by in settings.READINGS}


@pytest.mark.parametrize("by", READINGS)
@pytest.mark.parametrize("known", [None, KNOWN])
def test_what_is_vouched_for_stays_and_what_must_not_join_is_apart(by, known):
    z, labels = heaps()
    wrong = labels.clone()
    wrong[[0, 13, 26]] = torch.tensor([3, 2, 0])
    now = present(wrong, vouched=(0, 13, 26), apart=((1, 0), (14, 1), (40, 3)), known=known)
    found = READINGS[by](z, now).assignment
    assert found[[0, 13, 26]].tolist() == [3, 2, 0]
    assert (found[1] != 0, found[14] != 1, found[40] != 3) == (True, True, True)


@pytest.mark.parametrize("by", READINGS)
def test_classes_that_nobody_touched_are_found_again_under_their_places(by):
    z, labels = heaps()
    order = torch.tensor([2, 0, 3, 1])
    found = READINGS[by](z, present(order[labels]))
    assert (found.assignment == order[labels]).float().mean() > 0.9
    torch.testing.assert_close(found.centres, means(z, found.assignment, 4)[0])


def test_what_was_read_along_discriminants_and_nobody_touched_is_read_so_again_and_not_by_k_means():
    z, _ = stretched(strong=5.0, apart=1.6)
    first = read_by(settings.DISCRIMINANT, z, 5, None, 0).assignment
    now = Present(first, torch.zeros(len(z), dtype=torch.bool), torch.zeros(len(z), 5, dtype=torch.bool), None)
    again, plain = (reread_by(by, z, now, 0).assignment for by in (settings.DISCRIMINANT, settings.KMEANS))
    assert (again == first).float().mean() > 0.98
    assert (plain == first).float().mean() < 0.95


def test_a_few_vouched_images_take_those_like_them_out_of_a_class_that_held_both():
    z, labels = heaps(wide=0.12)
    mixed = labels.masked_fill(labels == 3, 2)
    few = (labels == 3).nonzero()[:3, 0]
    mixed[few] = 3
    found = reread(z, present(mixed, vouched=few.tolist())).assignment
    assert (found[labels == 3] == 3).float().mean() > 0.9
    assert (found[labels == 2] == 2).float().mean() > 0.9


def made_beside_a_bar():
    """A long class, a small one, and one that somebody made of three images which are not like one another: k-means
    would rather have the third centre in the middle of half of the bar, where only one of the three is.
    """
    bar = torch.stack([torch.linspace(0, 10, 101), torch.zeros(101)], 1)
    small = torch.tensor([10.0, 12.0]) + 0.1 * torch.randn(20, 2, generator=generator("small"))
    answers = torch.tensor([[10.0, 7.0], [10.0, 7.2], [11.5, -2.2]])
    z, labels = torch.cat([bar, small, answers]), torch.tensor([1] * 101 + [2] * 20 + [0] * 3)
    vouched, apart = torch.arange(124) >= 121, torch.zeros(124, 3, dtype=torch.bool)
    return z, Present(labels, vouched, apart, None)


def test_a_class_that_its_answers_do_not_follow_stands_still_and_leaves_others_their_images():
    z, now = made_beside_a_bar()
    found = reread(z, now)
    torch.testing.assert_close(found.centres[0], z[121:].mean(0))
    assert (found.assignment[:101] == 1).float().mean() > 0.8
    assert found.assignment[101:].tolist() == [2] * 20 + [0] * 3


def test_a_class_that_labelled_images_hold_too_may_go_where_answers_do_not_follow():
    z, now = made_beside_a_bar()
    known = KnownPoints(z[121:].mean(0, keepdim=True), torch.tensor([0]), torch.tensor([1]))
    found = reread(z, now._replace(known=known))
    assert (found.assignment[:101] == 1).float().mean() < 0.6
    assert find_astray(z, now, found.centres).tolist() == [True, False, False]
    assert not find_astray(z, now._replace(known=known), found.centres).any()


def test_half_of_its_answers_are_enough_for_a_class_to_go_where_it_likes():
    z, labels = heaps()
    for wrong, astray in ((0, False), (2, False), (3, True)):
        told = labels.clone()
        told[12 : 12 + wrong] = 0
        now = present(told, vouched=[0, 1, 12, 13, 14][: 2 + wrong])
        assert find_astray(z, now, PLACES).tolist() == [astray, False, False, False]


def test_what_is_held_counts_known_images_and_vouched_ones():
    z, labels = heaps()
    sums, counts = hold(z, present(labels, vouched=(0, 1, 30), known=KNOWN))
    assert counts.tolist() == [32, 20, 1, 0]
    torch.testing.assert_close(sums[0], 30 * PLACES[0] + z[0] + z[1])
    torch.testing.assert_close(sums[1], 20 * PLACES[1])
    torch.testing.assert_close(sums[2], z[30])


def test_a_known_class_without_images_here_stays_where_its_images_were():
    z, labels = heaps(wide=0.12)
    there = labels > 0
    now = present(labels[there], known=KNOWN)
    for read in READINGS.values():
        torch.testing.assert_close(read(z[there], now).centres[0], PLACES[0])


def test_after_mean_shift_centres_are_means_of_what_lay_there_before():
    z, labels = heaps()
    found = READINGS[settings.SHIFT](z, present(labels, known=KNOWN))
    ours, numbers = means(z, found.assignment, 4)
    torch.testing.assert_close(found.centres[2:], ours[2:])
    torch.testing.assert_close(found.centres[0], (30 * PLACES[0] + numbers[0] * ours[0]) / (30 + numbers[0]))
