import math
from itertools import combinations

import pytest
import torch
from torch.autograd import gradcheck

from newfound.functional.pseudo import (
    cosine,
    hard_negatives,
    neighbourhood,
    part_codes,
    part_distances,
    ranking_statistics,
    sharpen,
    sinkhorn,
    soft_assignment,
    target_distribution,
    winner_codes,
    winner_takes_all,
)
from newfound.types import generator


def latents(n=30, d=8):
    """Groups of latents, near enough for pairs to be alike and far enough for pairs not to be."""
    random = generator("pseudo", n, d)
    groups = torch.randn(5, d, generator=random)
    return groups[torch.arange(n) % 5] + 0.2 * torch.randn(n, d, generator=random)


def naive_ranking_statistics(z, k):
    sets = [set(row.argsort(descending=True)[:k].tolist()) for row in z]
    return torch.tensor([[a == b for b in sets] for a in sets])


def naive_cosine(z, threshold):
    return torch.tensor([[(a @ b / a.norm() / b.norm()).item() > threshold for b in z] for a in z])


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_ranking_statistics_equal_the_comparison_of_sets(k):
    z = latents()
    alike = ranking_statistics(z, k)
    assert torch.equal(alike, naive_ranking_statistics(z, k))
    assert alike.all() if k == 8 else (alike.any() and not alike.all())


def test_ranking_statistics_compare_sets_and_not_orders():
    z = torch.tensor([[3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 0.0, 1.0], [3.0, 0.0, 2.0, 1.0]])
    assert ranking_statistics(z, k=2).tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_ranking_statistics_do_not_see_the_scale_of_a_latent():
    z = latents()
    assert torch.equal(ranking_statistics(z * torch.linspace(0.1, 9, len(z))[:, None], 3), ranking_statistics(z, 3))


def test_latents_that_are_equal_are_alike_even_where_features_tie():
    z = torch.zeros(1, 64).repeat(7, 1)
    z[:, :2] = 1.0  # two features above 0, five asked for
    assert ranking_statistics(z, k=5).all()


@pytest.mark.parametrize("threshold", [-0.5, 0.5, 0.95])
def test_cosine_equals_the_loop_over_pairs(threshold):
    z = latents()
    alike = cosine(z, threshold)
    assert torch.equal(alike, naive_cosine(z, threshold))
    assert not alike.all()
    assert alike.sum() > len(z)


def test_cosine_does_not_see_the_scale_of_a_latent():
    z = latents()
    assert torch.equal(cosine(z * torch.linspace(0.1, 9, len(z))[:, None]), cosine(z))


def test_a_latent_of_zeros_is_alike_to_none():
    z = torch.cat([latents(), torch.zeros(1, 8)])
    assert not cosine(z)[-1].any()
    assert not cosine(z)[:, -1].any()


@pytest.mark.parametrize("guess", [ranking_statistics, cosine])
def test_every_latent_is_alike_to_itself_and_being_alike_is_mutual(guess):
    alike = guess(latents())
    assert alike.diagonal().all()
    assert torch.equal(alike, alike.T)


@pytest.mark.parametrize("guess", [ranking_statistics, cosine])
def test_permuting_latents_permutes_guesses(guess):
    z = latents()
    order = torch.randperm(len(z), generator=generator("order"))
    assert torch.equal(guess(z[order]), guess(z)[order][:, order])


@pytest.mark.parametrize("guess", [ranking_statistics, cosine])
def test_no_latents_and_one_latent_are_welcome(guess):
    assert guess(torch.zeros(0, 8)).shape == (0, 0)
    assert guess(latents(n=1)).tolist() == [[True]]


@pytest.mark.parametrize("guess", [ranking_statistics, cosine])
def test_guesses_carry_no_gradient(guess):
    assert not guess(latents().requires_grad_()).requires_grad


def shown(n=6, locations=4, parts=9, d=5):
    """Descriptors at the locations of some images, and the parts of a dictionary."""
    random = generator("parts", n, locations)
    descriptors = torch.randn(n, locations, d, generator=random, dtype=torch.float64)
    return descriptors, torch.randn(parts, d, generator=random, dtype=torch.float64)


def naive_part_codes(descriptors, parts, sharpness):
    codes = []
    for image in descriptors:
        code = [0.0] * len(parts)
        for d in image:
            weights = [math.exp(-sharpness * ((d - v) ** 2).sum().item()) for v in parts]
            for m, weight in enumerate(weights):
                code[m] += weight / sum(weights) / len(image)
        codes.append(code)
    return torch.tensor(codes, dtype=descriptors.dtype)


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("n", [6, 20])  # cdist multiplies matrices where there are more than 25 rows
def test_part_codes_equal_the_loop_over_images_locations_and_parts(n, sharpness):
    descriptors, parts = shown(n)
    codes = part_codes(part_distances(descriptors, parts), torch.tensor(sharpness, dtype=torch.float64))
    torch.testing.assert_close(codes, naive_part_codes(descriptors, parts, sharpness), rtol=1e-9, atol=1e-12)


def test_part_distances_are_squared_and_exact():
    descriptors, parts = shown()
    for i, image in enumerate(descriptors):
        for l, d in enumerate(image):  # noqa: E741
            wanted = torch.stack([((d - v) ** 2).sum() for v in parts])
            torch.testing.assert_close(part_distances(descriptors, parts)[i, l], wanted)


def test_part_codes_are_shares_and_do_not_know_where_a_part_was_seen():
    descriptors, parts = shown()
    far = part_distances(descriptors, parts)
    codes = part_codes(far, torch.tensor(2.0, dtype=torch.float64))
    assert (codes >= 0).all()
    torch.testing.assert_close(codes.sum(1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(part_codes(far.flip(1), torch.tensor(2.0, dtype=torch.float64)), codes)


def test_the_sharpest_part_codes_count_nearest_parts():
    descriptors, parts = shown()
    far = part_distances(descriptors, parts)
    counts = torch.stack([torch.bincount(near, minlength=9) for near in far.argmin(2)]) / 4
    torch.testing.assert_close(part_codes(far, torch.tensor(1e6, dtype=torch.float64)), counts.double())


def test_no_images_have_no_part_codes():
    descriptors, parts = shown(n=0)
    assert part_codes(part_distances(descriptors, parts), torch.tensor(1.0)).shape == (0, 9)


def unit(n, key, d=6):
    z = torch.randn(n, d, generator=generator("unit", key), dtype=torch.float64)
    return z / z.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_a_neighbourhood_is_the_other_view_and_the_k_most_similar_entries(k):
    similarity = unit(60, "q") @ unit(10, "m").T
    target, inside = neighbourhood(similarity, k), 0
    for row, wanted in zip(similarity.tolist(), target.tolist(), strict=True):
        order = sorted(range(10), key=lambda j, row=row: -row[j])[:k]
        inside += 0 in order
        assert wanted == pytest.approx([0.2 if j == 0 else 0.8 / k if j in order else 0.0 for j in range(10)])
        assert sum(wanted) == pytest.approx(1 - 0.8 / k if 0 in order else 1)
    assert inside > 0


def test_a_neighbourhood_carries_no_gradient_and_may_have_no_rows():
    assert not neighbourhood(unit(3, "q").requires_grad_(), 2).requires_grad
    assert neighbourhood(torch.zeros(0, 5), 2).shape == (0, 5)


def naive_hard_negatives(q, unlabelled, labelled, drawn, kept):
    """Blends formed one by one."""
    rows = []
    for i, qi in enumerate(q):
        far = sorted(unlabelled, key=lambda u, qi=qi: (qi @ u).item())[: drawn.shape[2]]
        blends = []
        for draw in drawn[i]:
            for u, j in zip(far, draw.tolist(), strict=True):
                blends += [(u + 2 * labelled[j]) / 3, (2 * u + labelled[j]) / 3]
        similar = [(qi @ b / b.norm()).item() for b in blends]
        rows.append(sorted(similar, reverse=True)[:kept])
    return torch.tensor(rows, dtype=q.dtype)


@pytest.mark.parametrize(("far", "kept"), [(1, 1), (4, 7), (12, 120)])
def test_hard_negatives_equal_blends_formed_one_by_one(far, kept):
    q, unlabelled, labelled = unit(5, "q"), unit(12, "u"), unit(9, "l")
    drawn = torch.randint(9, (5, 5, far), generator=generator("drawn", far))
    similar = hard_negatives(q, unlabelled, labelled, drawn, kept)
    torch.testing.assert_close(similar, naive_hard_negatives(q, unlabelled, labelled, drawn, kept))
    assert torch.autograd.gradcheck(lambda q: hard_negatives(q, unlabelled, labelled, drawn, kept), q.requires_grad_())


def test_no_latents_have_no_hard_negatives():
    drawn = torch.zeros(0, 5, 2, dtype=torch.long)
    assert hard_negatives(unit(0, "q"), unit(12, "u"), unit(9, "l"), drawn, 3).shape == (0, 3)


def draws(d=16, hashes=60, k=4):
    random = generator("draws", d, hashes, k)
    return torch.stack([torch.randperm(d, generator=random)[:k] for _ in range(hashes)])


def naive_winner_codes(z, drawn):
    return [[max(range(len(theta)), key=lambda m, z=row, t=theta: z[t[m]]) for theta in drawn.tolist()] for row in z]


@pytest.mark.parametrize("k", [1, 2, 4, 16])
def test_winner_codes_equal_the_loop_over_draws(k):
    z, drawn = latents(d=16), draws(k=k)
    assert winner_codes(z, drawn).tolist() == naive_winner_codes(z.tolist(), drawn)


@pytest.mark.parametrize("least", [0.3, 0.5, 240 / 512, 1.0])
def test_winner_takes_all_equals_counting_codes_that_agree(least):
    z, drawn = latents(d=16), draws()
    codes = naive_winner_codes(z.tolist(), drawn)
    wanted = [[sum(a == b for a, b in zip(x, y, strict=True)) >= least * 60 for y in codes] for x in codes]
    alike = winner_takes_all(z, drawn, least)
    assert alike.tolist() == wanted
    assert not alike.all()


def test_winner_takes_all_finds_groups_that_are_there():
    group = torch.arange(30) % 5
    alike = winner_takes_all(latents(d=64), draws(d=64, hashes=512))
    assert alike[group[:, None] == group].float().mean() > 0.9
    assert alike[group[:, None] != group].float().mean() < 0.1


@pytest.mark.parametrize("grow", [torch.exp, torch.atan, lambda z: 7 * z + 3, lambda z: z**3])
def test_winner_takes_all_sees_only_the_order_of_features(grow):
    z, drawn = latents(d=16).double(), draws()
    assert torch.equal(winner_codes(grow(z), drawn), winner_codes(z, drawn))
    scaled = z * torch.linspace(0.1, 9, len(z))[:, None]
    assert torch.equal(winner_takes_all(scaled, drawn), winner_takes_all(z, drawn))


@pytest.mark.parametrize("k", [2, 4, 8])
def test_by_chance_one_code_in_k_agrees(k):
    z = torch.randn(60, 512, generator=generator("chance"))
    codes = winner_codes(z, draws(512, 512, k))
    agree = (codes[:, None] == codes).double().mean(2)[~torch.eye(60, dtype=torch.bool)]
    assert agree.mean().item() == pytest.approx(1 / k, abs=0.01)


def test_winner_takes_all_is_mutual_and_holds_of_every_latent_with_itself_and_of_none():
    alike = winner_takes_all(latents(d=16), draws())
    assert torch.equal(alike, alike.T)
    assert alike.diagonal().all()
    assert winner_takes_all(torch.zeros(0, 16), draws()).shape == (0, 0)
    assert not winner_takes_all(latents(d=16).requires_grad_(), draws()).requires_grad


def test_of_equal_features_the_first_drawn_wins():
    assert not winner_codes(torch.zeros(3, 16), draws()).any()
    assert winner_takes_all(torch.zeros(3, 16), draws(), 1.0).all()


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0, 2.0])
def test_sharpening_equals_powers_divided_by_their_sum(temperature):
    p = torch.randn(6, 4, generator=generator("sharpen"), dtype=torch.float64).softmax(1)
    for row, wanted in zip(p.tolist(), sharpen(p, temperature).tolist(), strict=True):
        powers = [value ** (1 / temperature) for value in row]
        assert wanted == pytest.approx([power / sum(powers) for power in powers])


def test_sharpening_keeps_the_order_of_classes_and_what_is_sure_or_undecided():
    p = torch.randn(6, 4, generator=generator("sharpen")).softmax(1)
    assert torch.equal(sharpen(p, 0.3).argsort(1), p.argsort(1))
    assert (sharpen(p).amax(1) > p.amax(1)).all()
    still = torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(sharpen(still, 0.1), still)


def test_sharpened_guesses_carry_no_gradient_and_may_have_no_rows():
    assert not sharpen(torch.ones(2, 2).requires_grad_()).requires_grad
    assert sharpen(torch.zeros(0, 5)).shape == (0, 5)


def exact_latents(n, d, seed=0):
    return torch.randn(n, d, generator=generator("exact", n, d, seed), dtype=torch.float64)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_soft_assignment_equals_the_loop_over_latents_and_centres(alpha):
    z, centres = exact_latents(9, 4), exact_latents(5, 4, seed=1)
    log_q = soft_assignment(z, centres, alpha)
    for i, zi in enumerate(z.tolist()):
        weights = []
        for c in centres.tolist():
            apart = sum((a - b) ** 2 for a, b in zip(zi, c, strict=True))
            weights.append((1 + apart / alpha) ** (-(alpha + 1) / 2))
        assert log_q[i].exp().tolist() == pytest.approx([w / sum(weights) for w in weights])


def test_soft_assignment_has_the_right_gradient_also_at_a_centre():
    z, centres = exact_latents(4, 3), exact_latents(3, 3, seed=1)
    assert gradcheck(soft_assignment, (z.requires_grad_(), centres.requires_grad_()))
    at, step = centres.detach()[:1].clone().requires_grad_(), 1e-6 * torch.eye(3, dtype=torch.float64)
    own, others = torch.autograd.grad(soft_assignment(at, centres)[0, 0], [at, centres])
    assert others.isfinite().all()
    with torch.no_grad():
        rise = soft_assignment(at + step, centres)[:, 0] - soft_assignment(at - step, centres)[:, 0]
    torch.testing.assert_close(own[0], rise / 2e-6, rtol=1e-6, atol=1e-8)


def test_a_latent_between_two_centres_belongs_to_both_and_one_far_away_to_all():
    centres = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    assert soft_assignment(torch.zeros(1, 2), centres).exp().tolist() == [[0.5, 0.5]]
    far = soft_assignment(torch.full((1, 2), 1e8), centres)
    assert far.exp().tolist()[0] == pytest.approx([0.5, 0.5])


def test_soft_assignment_does_not_see_where_the_origin_is():
    z, centres, origin = exact_latents(9, 4), exact_latents(5, 4, seed=1), exact_latents(1, 4, seed=2)
    torch.testing.assert_close(soft_assignment(z + origin, centres + origin), soft_assignment(z, centres))


def test_the_target_distribution_equals_the_loop_over_images_and_clusters():
    q = exact_latents(8, 4).softmax(1)
    sizes = [sum(q[i, k].item() for i in range(8)) for k in range(4)]
    p = target_distribution(q)
    for i in range(8):
        weights = [q[i, k].item() ** 2 / sizes[k] for k in range(4)]
        assert p[i].tolist() == pytest.approx([w / sum(weights) for w in weights])


def test_the_target_distribution_is_surer_where_clusters_are_equally_large():
    q = exact_latents(1, 4).softmax(1)[0]
    q = torch.stack([q.roll(shift) for shift in range(4)])  # every cluster has the same size
    p = target_distribution(q)
    assert torch.equal(p.argmax(1), q.argmax(1))
    assert (p.max(1).values > q.max(1).values).all()


def test_the_target_distribution_favours_the_smaller_of_two_clusters_an_image_is_torn_between():
    q = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.9, 0.1]])
    assert target_distribution(q)[0, 1] > 0.5 > target_distribution(q)[0, 0]


def test_the_target_distribution_leaves_a_sure_assignment_and_an_empty_cluster_as_they_are():
    q = torch.eye(3)[[0, 1, 0, 1]]
    assert torch.equal(target_distribution(q), q)
    assert not target_distribution(torch.zeros(2, 3)).any()


def test_permuting_centres_permutes_assignments_and_targets():
    z, centres, order = exact_latents(9, 4), exact_latents(5, 4, seed=1), torch.tensor([3, 1, 4, 0, 2])
    q = soft_assignment(z, centres).exp()
    torch.testing.assert_close(soft_assignment(z, centres[order]).exp(), q[:, order])
    torch.testing.assert_close(target_distribution(q[:, order]), target_distribution(q)[:, order])


def test_no_latents_have_no_assignment():
    q = soft_assignment(torch.zeros(0, 4), torch.zeros(5, 4))
    assert q.shape == target_distribution(q).shape == (0, 5)


def naive_sinkhorn(logits, epsilon, rounds):
    """On exponentials, cell by cell, as the published code: classes to 1/k, then images to 1/n."""
    n, k = logits.shape
    q = [[math.exp(value / epsilon) for value in row] for row in logits.tolist()]
    total = sum(map(sum, q))
    q = [[value / total for value in row] for row in q]
    for _ in range(rounds):
        sizes = [sum(row[c] for row in q) for c in range(k)]
        q = [[value / size / k for value, size in zip(row, sizes, strict=True)] for row in q]
        q = [[value / sum(row) / n for value in row] for row in q]
    return torch.tensor([[value * n for value in row] for row in q], dtype=logits.dtype)


def cosines(n, k, seed=0):
    return torch.rand(n, k, generator=generator("cosines", n, k, seed), dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 4), (12, 3), (5, 8)])
@pytest.mark.parametrize(("epsilon", "rounds"), [(0.05, 3), (0.05, 1), (0.5, 10)])
def test_sinkhorn_equals_the_loop_on_exponentials(n, k, epsilon, rounds):
    logits = cosines(n, k)
    torch.testing.assert_close(
        sinkhorn(logits, epsilon, rounds), naive_sinkhorn(logits, epsilon, rounds), rtol=1e-10, atol=1e-12
    )


def test_sinkhorn_of_several_heads_is_that_of_each():
    logits = torch.stack([cosines(9, 4, seed) for seed in range(6)]).unflatten(0, (2, 3))
    for view in range(2):
        for head in range(3):
            torch.testing.assert_close(sinkhorn(logits)[view, head], sinkhorn(logits[view, head]))


def test_sinkhorn_gives_every_image_one_and_in_the_end_every_class_the_same():
    logits = cosines(20, 4)
    torch.testing.assert_close(sinkhorn(logits).sum(1), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(sinkhorn(logits, 0.2, 200).sum(0), torch.full((4,), 5.0, dtype=torch.float64))


def test_sinkhorn_finds_the_best_of_all_equal_divisions_when_it_is_sharp():
    logits = cosines(6, 2)
    best = max(combinations(range(6), 3), key=lambda own: sum(logits[i, int(i not in own)].item() for i in range(6)))
    found = sinkhorn(logits, epsilon=0.002, rounds=2000).argmax(1)
    assert [i for i in range(6) if found[i] == 0] == list(best)


def test_sinkhorn_sees_no_favour_for_a_class_and_in_the_end_none_for_an_image():
    logits = cosines(10, 3)
    classes, images = torch.tensor([0.0, 2.0, -1.0], dtype=torch.float64), torch.arange(10)[:, None] / 10
    torch.testing.assert_close(sinkhorn(logits + classes), sinkhorn(logits))
    torch.testing.assert_close(sinkhorn(logits + images, 0.2, 200), sinkhorn(logits, 0.2, 200))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_sinkhorn_does_not_overflow(dtype):
    logits = (100 * cosines(8, 3)).to(dtype)
    shares = sinkhorn(logits)
    assert shares.dtype == torch.float32
    assert shares.isfinite().all()
    torch.testing.assert_close(shares.sum(1), torch.ones(8))


def test_sinkhorn_of_no_images_is_empty_and_it_passes_no_gradient():
    assert sinkhorn(torch.zeros(2, 0, 5)).shape == (2, 0, 5)
    assert not sinkhorn(cosines(4, 2).requires_grad_()).requires_grad
