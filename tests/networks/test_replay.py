import torch
from safetensors.torch import save

from newfound.networks.model import Statistics
from newfound.networks.replay import LatentReplay, diagonal
from newfound.types import generator


def statistics():
    root = torch.randn(4, 4, generator=generator("replay"))
    return Statistics(5 * torch.randn(3, 4, generator=generator("means")), root @ root.T, torch.tensor([9, 0, 7]))


def test_drawn_latents_have_the_classes_means_and_covariance():
    known = statistics()
    z, labels = LatentReplay(known, 3, 4).draw(20000, generator("draw"))
    for label in (0, 2):
        own = z[labels == label]
        torch.testing.assert_close(own.mean(0), known.means[label], atol=0.1, rtol=0)
        torch.testing.assert_close(own.T.cov(), known.within_covariance, atol=0.2, rtol=0.05)


def test_a_class_without_a_mean_is_not_drawn_and_without_statistics_none_is():
    assert LatentReplay(statistics(), 3, 4).draw(2, generator(1))[1].tolist() == [0, 0, 2, 2]
    z, labels = LatentReplay(None, 3, 4).draw(2, generator(1))
    assert (z.shape, len(labels)) == ((0, 4), 0)


def test_the_same_moment_draws_the_same_latents_and_another_one_others():
    replay = LatentReplay(statistics(), 3, 4)
    first, again, other = (replay.draw(5, generator(key))[0] for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_diagonal_covariance_keeps_variances_alone():
    known = statistics()
    kept = diagonal(known).within_covariance
    assert torch.equal(kept, torch.diag(known.within_covariance.diag()))
    assert diagonal(None) is None


def test_what_is_remembered_can_be_saved():
    for known in (statistics(), None):
        assert save(LatentReplay(known, 3, 4).state_dict())
