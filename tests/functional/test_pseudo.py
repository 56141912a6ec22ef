import pytest
import torch

from newfound.functional.pseudo import cosine, ranking_statistics
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
