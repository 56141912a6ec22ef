"""Pure functions beside the way others compute the same."""

import functools
import warnings
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.manifold import smacof

from benchmarks.clock import Case
from newfound.functional.cluster import kmeans
from newfound.functional.geometry import distances, equidistant
from newfound.functional.losses import EPSILON, pairwise_bce
from newfound.functional.pseudo import ranking_statistics
from newfound.networks.resnet import Convolution
from newfound.types import generator

ERROR = 1e-5
"""How far from the distance asked for scikit-learn's anchors may be; ours are at 1e-14."""


def error(points: torch.Tensor) -> float:
    """The largest |d_ij − 1|."""
    return distances(points).fill_diagonal_(1.0).sub(1).abs().max().item()


def anchors() -> Iterator[Case]:
    """scikit-learn is given as many iterations as `ERROR` needs, found beforehand, and not one more."""
    c, dim = 100, 512
    prototypes = torch.randn(c, dim, generator=generator("anchors"), dtype=torch.float64)
    start, delta = np.random.default_rng(0).uniform(size=(c, dim)), np.ones((c, c)) - np.eye(c)
    settings = {"n_components": dim, "n_init": 1, "eps": 0.0, "normalized_stress": False}

    def majorised(begin: np.ndarray, iterations: int) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn announces coming changes of defaults
            return smacof(delta, init=begin, max_iter=iterations, **settings)[0]

    step, needed, points = 25, 0, start
    while error(torch.from_numpy(points)) > ERROR and needed < 2000:
        points, needed = majorised(points, step), needed + step
    assert error(equidistant(prototypes, 1.0)) < 1e-12
    assert error(equidistant(prototypes, 1.0, "random", generator("turn"))) < 1e-12
    assert error(torch.from_numpy(majorised(start, needed))) <= ERROR
    peer = functools.partial(majorised, start, needed)
    name = f"100 anchors in 512 dimensions, {{}} / sklearn smacof to {ERROR:g} ({needed} iterations)"
    aligned = functools.partial(equidistant, prototypes, 1.0)
    yield Case(name.format("aligned"), aligned, peer, repeats=5, least=100)
    yield Case(name.format("random"), lambda: equidistant(prototypes, 1.0, "random", generator("turn")), peer, 5, 100)


def enumerated_ranking(z: torch.Tensor, k: int) -> torch.Tensor:
    """Ranking statistics as the published repositories compute them: two lists of k features for each of n² pairs."""
    n = len(z)
    top = z.argsort(1, descending=True)[:, :k]
    one, other = top.repeat(n, 1), top.repeat_interleave(n, 0)
    return (one.sort(1).values - other.sort(1).values).abs().sum(1) == 0


def enumerated_bce(p: torch.Tensor, q: torch.Tensor, alike: torch.Tensor) -> torch.Tensor:
    """Pairwise BCE as they compute it: the probabilities of both images for each of n² pairs."""
    n = len(p)
    together = (p.repeat_interleave(n, 0) * q.repeat(n, 1)).sum(1)
    sign = torch.where(alike, 1.0, -1.0)
    return -((together * sign + (sign == -1)) + EPSILON).log().mean()


def pairs() -> Iterator[Case]:
    """Guess alike pairs, and the gradient of the loss on them; 20 classes."""
    n, dim, classes, k = 256, 512, 20, 5
    random = generator("pairs")
    z = torch.randn(n, dim, generator=random).relu()
    logits = torch.randn(2, n, classes, generator=random).requires_grad_()
    # every latent has one that is alike: else only the diagonal would be
    z[1::2] = z[::2] * 1.5

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, logits)[0]

    def ours() -> torch.Tensor:
        p, q = logits.softmax(2)
        return gradient(pairwise_bce(p, q, ranking_statistics(z, k)))

    def peer() -> torch.Tensor:
        p, q = logits.softmax(2)
        return gradient(enumerated_bce(p, q, enumerated_ranking(z, k)))

    assert torch.equal(ranking_statistics(z, k).flatten(), enumerated_ranking(z, k))
    torch.testing.assert_close(ours(), peer(), rtol=1e-3, atol=1e-7)  # they add 1e-7 where we clamp
    yield Case("ranking statistics and pairwise BCE, n = 256, d = 512 / n² pairs", ours, peer, repeats=15, least=5)
    matrix, enumerated = functools.partial(ranking_statistics, z, k), functools.partial(enumerated_ranking, z, k)
    yield Case("· ranking statistics alone", matrix, enumerated, repeats=15, least=5)


def clusters() -> Iterator[Case]:
    x = torch.randn(20_000, 128, generator=generator("clusters"))
    settings = {"n_clusters": 100, "n_init": 1, "max_iter": 10, "tol": 0, "random_state": 0}
    yield Case(
        "k-means 20 000 × 128, k = 100, 10 steps / sklearn.cluster.KMeans",
        lambda: kmeans(x, 100, generator("clusters"), starts=1, iterations=10, tolerance=0),
        lambda: KMeans(**settings).fit(x.numpy()),
        repeats=5,
    )


def convolution() -> Iterator[Case]:
    """The last stage of the cpu net: forth and back, 128 channels on 2×2 maps."""
    layer, x = Convolution(128, 128), torch.randn(256, 128, 2, 2, generator=generator("convolution"))
    x.requires_grad_()

    def gradient(y: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(y.square().mean(), layer.weight)[0]

    def ours() -> torch.Tensor:
        return gradient(layer(x))

    def peer() -> torch.Tensor:
        return gradient(F.conv2d(x, layer.weight, padding=1))

    torch.testing.assert_close(ours(), peer(), rtol=1e-3, atol=1e-6)
    yield Case("3×3 convolution of 2×2 maps as a matrix product / torch's", ours, peer, repeats=25)
