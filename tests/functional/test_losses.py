import math

import pytest
import torch
from torch.autograd import gradcheck

from newfound.functional.losses import (
    consistency,
    cross_entropy,
    distillation,
    divergence,
    feature_distillation,
    info_nce,
    kcl,
    mean,
    mutual_information,
    pairwise_bce,
    pull,
    self_training,
    soft_cross_entropy,
    symmetric_kl,
)
from newfound.types import generator


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=generator("losses", *shape, seed), dtype=dtype)


def probabilities(n, c, seed=0):
    return numbers(n, c, seed=seed).softmax(1)


def pairs(n):
    return torch.rand(n, n, generator=generator("pairs", n)) < 0.3


def has_zero_gradient(loss, tensor):
    """0, and the optimiser may still call backward."""
    loss.backward()
    return loss.item() == 0 and tensor.grad is not None and tensor.grad.shape == tensor.shape


def test_mean_is_the_mean():
    values = numbers(4, 5)
    assert mean(values).item() == pytest.approx(sum(values.flatten().tolist()) / 20)
    assert gradcheck(mean, values.requires_grad_())


def test_the_mean_of_nothing_is_0_and_passes_gradient():
    nothing = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(mean(nothing), nothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_the_loop_over_images(smoothing):
    logits, labels = numbers(6, 4), torch.tensor([0, 3, 1, 1, 2, 0])
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        whole = sum(math.exp(value) for value in row)
        for c, value in enumerate(row):
            wanted = (1 - smoothing) * (c == label) + smoothing / 4
            total -= wanted * math.log(math.exp(value) / whole)
    assert cross_entropy(logits, labels, smoothing).item() == pytest.approx(total / 6)
    assert gradcheck(lambda x: cross_entropy(x, labels, smoothing), logits.requires_grad_())


def test_cross_entropy_of_a_head_that_knows_nothing_is_the_logarithm_of_the_number_of_classes():
    assert cross_entropy(torch.zeros(3, 7), torch.tensor([0, 4, 6])).item() == pytest.approx(math.log(7))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_no_images_is_0_and_passes_gradient(smoothing):
    logits = torch.zeros(0, 4, requires_grad=True)
    assert has_zero_gradient(cross_entropy(logits, torch.zeros(0, dtype=torch.long), smoothing), logits)


def test_pairwise_bce_equals_the_loop_over_ordered_pairs():
    p, q, alike = probabilities(5, 3), probabilities(5, 3, seed=1), pairs(5)
    total = 0.0
    for i in range(5):
        for j in range(5):
            together = sum(a * b for a, b in zip(p[i].tolist(), q[j].tolist(), strict=True))
            total -= math.log(together) if alike[i, j] else math.log(1 - together)
    assert pairwise_bce(p, q, alike).item() == pytest.approx(total / 25)


def test_pairwise_bce_is_that_of_the_published_code():
    def published(p, q, alike):  # MCL, learning to classify from pairs: s is 1 or −1
        n = len(p)
        first, second = p.repeat(n, 1), q.repeat_interleave(n, 0)
        s = alike.T.flatten().double() * 2 - 1
        return -(first.mul(second).sum(1).mul(s).add(s.eq(-1).double()).add(1e-7)).log().mean()

    p, q, alike = probabilities(9, 4), probabilities(9, 4, seed=1), pairs(9)
    assert pairwise_bce(p, q, alike).item() == pytest.approx(published(p, q, alike).item(), rel=1e-6)


def test_pairwise_bce_has_the_right_gradient():
    p, q = probabilities(4, 3).requires_grad_(), probabilities(4, 3, seed=1).requires_grad_()
    assert gradcheck(lambda p, q: pairwise_bce(p, q, pairs(4)), (p, q))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sure", [50.0, 200.0])
def test_pairwise_bce_stays_finite_where_probabilities_are_saturated(sure, dtype):
    logits = (sure * torch.eye(3, dtype=dtype)[[0, 0, 1, 2]]).requires_grad_()
    p = logits.softmax(1)
    right = p.argmax(1)[:, None] == p.argmax(1)
    wrong = pairwise_bce(p, p, ~right)
    wrong.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert wrong.item() == pytest.approx(-math.log(1e-7), rel=1e-4)
    assert pairwise_bce(p, p, right).item() == pytest.approx(0, abs=1e-6)


def test_a_pair_beyond_the_clamp_gives_no_gradient_and_one_before_it_does():
    p = torch.tensor([[1e-8, 0.4]], requires_grad=True)
    q = torch.tensor([[1.0, 0.0]])
    pairwise_bce(p, q, torch.tensor([[True]])).backward()
    assert p.grad is not None
    assert p.grad.tolist() == [[0.0, 0.0]]
    p = torch.tensor([[1e-6, 0.4]], requires_grad=True)
    pairwise_bce(p, q, torch.tensor([[True]])).backward()
    assert p.grad is not None
    assert p.grad[0].tolist() == pytest.approx([-1e6, 0.0])


def test_pairwise_bce_of_no_pairs_is_0_and_passes_gradient():
    p = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(pairwise_bce(p, p, torch.zeros(0, 0, dtype=torch.bool)), p)


def test_kcl_equals_the_loop_over_ordered_pairs():
    p, alike = numbers(6, 3).mul(3).softmax(1), pairs(6)
    total, beyond = 0.0, 0
    for i in range(6):
        for j in range(6):
            apart = sum(b * math.log(b / a) for a, b in zip(p[i].tolist(), p[j].tolist(), strict=True))
            beyond += apart > 2 and not alike[i, j].item()
            total += apart if alike[i, j] else max(0.0, 2 - apart)
    assert 0 < beyond < 36
    assert kcl(p, alike).item() == pytest.approx(total / 36, rel=1e-5)


def test_kcl_adds_its_epsilon_to_both_distributions():
    p = torch.eye(2, dtype=torch.float64)
    apart = (1 + 1e-7) * math.log((1 + 1e-7) / 1e-7) + 1e-7 * math.log(1e-7 / (1 + 1e-7))
    assert kcl(p, torch.ones(2, 2, dtype=torch.bool)).item() == pytest.approx(apart / 2, rel=1e-12)


def test_kcl_moves_the_first_of_a_pair_and_holds_the_second():
    p, alike = probabilities(5, 3).requires_grad_(), pairs(5)
    kcl(p, alike).backward()
    wanted = torch.zeros_like(p)
    for i in range(5):
        for j in range(5):
            first = p[i].detach().requires_grad_()
            apart = (p[j].detach() * (p[j].detach().log() - first.log())).sum()
            (apart if alike[i, j] else (2 - apart).relu()).backward()
            wanted[i] += first.grad / 25
    assert p.grad is not None
    assert torch.allclose(p.grad, wanted, rtol=1e-5)


def test_kcl_is_0_where_alike_images_agree_and_others_are_further_apart_than_the_margin():
    p = (30 * torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0]]).softmax(1)
    right = p.argmax(1)[:, None] == p.argmax(1)
    assert kcl(p, right).item() == pytest.approx(0, abs=1e-12)
    assert kcl(p, right, margin=20.0).item() > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kcl_stays_finite_where_probabilities_are_saturated(dtype):
    logits = (200.0 * torch.eye(3, dtype=dtype)[[0, 0, 1, 2]]).requires_grad_()
    p = logits.softmax(1)
    wrong = kcl(p, p.argmax(1)[:, None] != p.argmax(1))
    wrong.backward()
    assert wrong.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_kcl_leaves_the_probabilities_it_is_given_as_they_are():
    p = probabilities(4, 3)
    before = p.clone()
    kcl(p, pairs(4))
    assert torch.equal(p, before)


def test_kcl_of_no_pairs_is_0_and_passes_gradient():
    p = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(kcl(p, torch.zeros(0, 0, dtype=torch.bool)), p)


def test_consistency_equals_the_loop_over_images_and_classes():
    p, q = probabilities(5, 3), probabilities(5, 3, seed=1)
    total = sum((p[i, c] - q[i, c]).item() ** 2 for i in range(5) for c in range(3))
    assert consistency(p, q).item() == pytest.approx(total / 15)
    assert gradcheck(consistency, (p.requires_grad_(), q.requires_grad_()))


def test_consistency_of_a_view_with_itself_is_0():
    assert consistency(probabilities(5, 3), probabilities(5, 3)).item() == 0


def test_consistency_of_no_images_is_0_and_passes_gradient():
    p = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(consistency(p, p), p)


def test_pull_equals_the_loop_over_images():
    z, targets = numbers(5, 3), numbers(5, 3, seed=1)
    total = sum(sum((z[i, d] - targets[i, d]).item() ** 2 for d in range(3)) for i in range(5))
    assert pull(z, targets).item() == pytest.approx(total / 5)
    assert gradcheck(lambda z: pull(z, targets), z.requires_grad_())


def test_pull_does_not_depend_on_how_often_the_batch_is_repeated():
    z, targets = numbers(5, 3), numbers(5, 3, seed=1)
    assert pull(z.repeat(4, 1), targets.repeat(4, 1)).item() == pytest.approx(pull(z, targets).item())


def test_pull_moves_latents_and_never_targets():
    z, targets = numbers(5, 3).requires_grad_(), numbers(5, 3, seed=1).requires_grad_()
    pull(z, targets).backward()
    assert z.grad is not None
    assert torch.allclose(z.grad, 2 / 5 * (z - targets))
    assert targets.grad is None


def test_pull_of_no_images_is_0_and_passes_gradient():
    z = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(pull(z, torch.zeros(0, 3)), z)


def test_symmetric_kl_equals_the_loop_over_images_and_classes():
    a, b = numbers(5, 4), numbers(5, 4, seed=1)
    p, q, total = a.softmax(1).tolist(), b.softmax(1).tolist(), 0.0
    for i in range(5):
        there = sum(p[i][c] * math.log(p[i][c] / q[i][c]) for c in range(4))
        back = sum(q[i][c] * math.log(q[i][c] / p[i][c]) for c in range(4))
        total += (there + back) / 2
    assert symmetric_kl(a, b).item() == pytest.approx(total / 5)
    assert gradcheck(symmetric_kl, (a.requires_grad_(), b.requires_grad_()))


def test_symmetric_kl_has_no_sides_and_is_0_only_between_equal_judgements():
    a, b = numbers(5, 4), numbers(5, 4, seed=1)
    assert symmetric_kl(a, b).item() == pytest.approx(symmetric_kl(b, a).item())
    assert symmetric_kl(a, a + 3).item() == pytest.approx(0, abs=1e-12)  # a softmax does not see a shift
    assert symmetric_kl(a, b).item() > 0.01


def test_symmetric_kl_stays_finite_where_judgements_are_sure_and_opposite():
    a = torch.tensor([[500.0, 0.0]], requires_grad=True)
    loss = symmetric_kl(a, a.detach().flip(1))
    loss.backward()
    assert loss.item() == pytest.approx(500)
    assert a.grad is not None
    assert a.grad.isfinite().all()


def test_symmetric_kl_of_no_images_is_0_and_passes_gradient():
    logits = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(symmetric_kl(logits, logits), logits)


def test_self_training_equals_the_loop_over_images_and_is_0_where_there_is_no_novel_class():
    logits, novel = numbers(6, 7).requires_grad_(), numbers(6, 4, seed=1).requires_grad_()
    guesses = [3 + max(range(4), key=lambda k, i=i: novel[i, k].item()) for i in range(6)]
    total = sum(-math.log(row.softmax(0)[guess].item()) for row, guess in zip(logits, guesses, strict=True))
    loss = self_training(logits, novel, known=3)
    loss.backward()
    assert loss.item() == pytest.approx(total / 6)
    assert novel.grad is None
    logits = numbers(6, 3).requires_grad_()
    assert has_zero_gradient(self_training(logits, numbers(6, 0), known=3), logits)


def test_soft_cross_entropy_equals_the_loop_over_images():
    logits, target = numbers(6, 4), 0.9 * probabilities(6, 4, seed=1)
    total = 0.0
    for row, wanted in zip(logits.tolist(), target.tolist(), strict=True):
        whole = sum(math.exp(value) for value in row)
        total -= sum(t * math.log(math.exp(value) / whole) for t, value in zip(wanted, row, strict=True))
    assert soft_cross_entropy(logits, target).item() == pytest.approx(total / 6)
    assert gradcheck(lambda x: soft_cross_entropy(x, target), logits.requires_grad_())


def test_soft_cross_entropy_of_labels_is_cross_entropy():
    logits, labels = numbers(6, 4), torch.tensor([0, 3, 1, 1, 2, 0])
    target = torch.eye(4, dtype=torch.float64)[labels]
    assert soft_cross_entropy(logits, target).item() == pytest.approx(cross_entropy(logits, labels).item())


def test_soft_cross_entropy_moves_logits_and_never_the_target():
    logits, target = numbers(5, 3).requires_grad_(), probabilities(5, 3, seed=1).requires_grad_()
    soft_cross_entropy(logits, target).backward()
    assert logits.grad is not None
    assert target.grad is None


def test_soft_cross_entropy_of_no_images_is_0_and_passes_gradient():
    logits = torch.zeros(0, 4, requires_grad=True)
    assert has_zero_gradient(soft_cross_entropy(logits, torch.zeros(0, 4)), logits)


def naive_info_nce(a, b, alike, temperature):
    """View by view; the views of image i are i and i + n."""
    views = [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in a.tolist() + b.tolist()]
    n, total = len(a), 0.0
    for i, v in enumerate(views):
        powers = [math.exp(sum(x * y for x, y in zip(v, w, strict=True)) / temperature) for w in views]
        others = [j for j in range(2 * n) if j != i]
        positive = [j for j in others if j % n == i % n or alike[i % n, j % n]]
        whole = sum(powers[j] for j in others)
        total -= sum(math.log(powers[j] / whole) for j in positive) / len(positive)
    return total / (2 * n)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_info_nce_equals_the_loop_over_views(temperature):
    a, b, alike = numbers(6, 3), numbers(6, 3, seed=1), pairs(6) | pairs(6).T
    wanted = naive_info_nce(a, b, alike, temperature)
    assert info_nce(a, b, alike, temperature).item() == pytest.approx(wanted)
    assert gradcheck(lambda a, b: info_nce(a, b, alike, temperature), (a.requires_grad_(), b.requires_grad_()))


def test_info_nce_without_alike_images_tells_the_other_view_from_all_others():
    a, b = numbers(6, 3), numbers(6, 3, seed=1)
    v = torch.nn.functional.normalize(torch.cat([a, b]), dim=1)
    logits = (v @ v.T / 0.5).fill_diagonal_(-torch.inf)
    wanted = torch.nn.functional.cross_entropy(logits, (torch.arange(12) + 6) % 12)
    assert info_nce(a, b, torch.zeros(6, 6, dtype=torch.bool), 0.5).item() == pytest.approx(wanted.item())


def test_info_nce_of_views_that_say_nothing_is_the_logarithm_of_the_number_of_others():
    a = torch.ones(5, 3)
    assert info_nce(a, a, pairs(5), 0.1).item() == pytest.approx(math.log(9))


def test_info_nce_sees_neither_the_length_of_a_vector_nor_which_view_comes_first():
    a, b, alike = numbers(6, 3), numbers(6, 3, seed=1), pairs(6) | pairs(6).T
    loss = info_nce(a, b, alike, 0.1).item()
    assert info_nce(3 * a, b / 7, alike, 0.1).item() == pytest.approx(loss)
    assert info_nce(b, a, alike, 0.1).item() == pytest.approx(loss)


def test_info_nce_is_least_where_classes_lie_on_opposite_sides():
    a = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    alike = torch.tensor([[True, True, False, False]] * 2 + [[False, False, True, True]] * 2)
    assert info_nce(a, a, alike, 0.01).item() == pytest.approx(math.log(3))  # three positives, none better
    assert info_nce(a, a, ~alike, 0.01).item() > 50


@pytest.mark.parametrize("n", [0, 1])
def test_info_nce_of_no_images_or_one_is_0_and_passes_gradient(n):
    a = torch.ones(n, 3, requires_grad=True)
    assert has_zero_gradient(info_nce(a, 2 * a, torch.zeros(n, n, dtype=torch.bool), 0.1), a)


def test_divergence_equals_the_loop_over_images_and_classes():
    q, p = probabilities(5, 3), probabilities(5, 3, seed=1)
    total = sum(p[i, c].item() * math.log(p[i, c].item() / q[i, c].item()) for i in range(5) for c in range(3))
    assert divergence(q.log(), p).item() == pytest.approx(total / 15)
    assert gradcheck(lambda logits: divergence(logits.log_softmax(1), p), numbers(5, 3).requires_grad_())


def test_divergence_of_an_assignment_that_is_its_target_is_0_and_otherwise_positive():
    q, p = probabilities(5, 3), probabilities(5, 3, seed=1)
    assert divergence(q.log(), q).item() == pytest.approx(0, abs=1e-15)
    assert divergence(q.log(), p) > 0


def test_divergence_from_a_sure_target_is_cross_entropy_over_the_number_of_classes():
    logits, labels = numbers(6, 4), torch.tensor([0, 3, 1, 1, 2, 0])
    sure = torch.eye(4, dtype=torch.float64)[labels]
    loss = divergence(logits.log_softmax(1), sure)
    assert loss.item() == pytest.approx(cross_entropy(logits, labels).item() / 4)


def test_divergence_of_no_images_is_0_and_passes_gradient():
    log_q = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(divergence(log_q, torch.zeros(0, 3)), log_q)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_equals_the_loop_over_images(temperature):
    new, old, total = numbers(5, 3), numbers(5, 3, seed=1), 0.0
    for row, before in zip(new.tolist(), old.tolist(), strict=True):
        p, q = ([math.exp(x / temperature) for x in values] for values in (row, before))
        for mine, theirs in zip(p, q, strict=True):
            total += theirs / sum(q) * math.log((theirs / sum(q)) / (mine / sum(p)))
    assert distillation(new, old, temperature).item() == pytest.approx(temperature**2 * total / 5)


def test_distillation_is_0_where_nothing_changed_and_never_moves_the_old_scores():
    new, old = numbers(5, 3).requires_grad_(), numbers(5, 3, seed=1).requires_grad_()
    assert distillation(old, old.detach()).item() == pytest.approx(0, abs=1e-12)
    distillation(new, old).backward()
    assert old.grad is None
    assert new.grad.abs().sum() > 0
    nothing = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(distillation(nothing, nothing), nothing)


def test_feature_distillation_equals_the_loop_over_entries():
    z, old = numbers(4, 3), numbers(4, 3, seed=1)
    new_length, old_length = (math.sqrt(sum(x * x for x in t.flatten().tolist())) for t in (z, old))
    total = sum(
        (a / new_length - b / old_length) ** 2
        for a, b in zip(z.flatten().tolist(), old.flatten().tolist(), strict=True)
    )
    assert feature_distillation(z, old).item() == pytest.approx(math.sqrt(total))


def test_feature_distillation_sees_no_length_and_has_a_finite_gradient_where_nothing_moved():
    z = numbers(4, 3).requires_grad_()
    assert feature_distillation(3 * z, z.detach()).item() == pytest.approx(0, abs=1e-8)
    feature_distillation(z, z.detach()).backward()
    assert z.grad.isfinite().all()
    nothing = torch.zeros(0, 3, requires_grad=True)
    assert has_zero_gradient(feature_distillation(nothing, nothing), nothing)


def test_mutual_information_equals_the_loop_over_pairs_of_classes():
    p, q = probabilities(6, 3), probabilities(6, 4, seed=1)
    joint = [[sum(p[i, a] * q[i, b] for i in range(6)).item() / 6 for b in range(4)] for a in range(3)]
    total = 0.0
    for a in range(3):
        for b in range(4):
            alone = sum(joint[a]) * sum(row[b] for row in joint)
            total += joint[a][b] * math.log(joint[a][b] / alone)
    assert mutual_information(p, q).item() == pytest.approx(total)


def test_mutual_information_is_that_of_the_classes_where_judgements_agree_and_0_where_one_says_nothing():
    sure = torch.eye(4)
    assert mutual_information(sure, sure).item() == pytest.approx(math.log(4))
    assert mutual_information(sure, torch.full((4, 3), 1 / 3)).item() == pytest.approx(0, abs=1e-6)
    nothing = torch.zeros(0, 4, requires_grad=True)
    assert has_zero_gradient(mutual_information(nothing, nothing), nothing)
