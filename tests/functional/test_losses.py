import math

import pytest
import torch
from torch.autograd import gradcheck

from newfound.functional.losses import consistency, cross_entropy, mean, pairwise_bce, pull
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
