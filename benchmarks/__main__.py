"""Ratios to a peer, repeated, with the median: machines are noisy, ratios are less so."""

import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.manifold import smacof

from newfound.functional.cluster import kmeans
from newfound.functional.geometry import equidistant
from newfound.methods.spacing import move
from newfound.types import generator

REPEATS = 5


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float, float]:
    """Median seconds of ours and of the peer, and the median of their ratios."""
    ours(), peer()
    pairs = [(seconds(ours), seconds(peer)) for _ in range(REPEATS)]
    return tuple(statistics.median(column) for column in zip(*((a, b, b / a) for a, b in pairs), strict=True))


def simplex_against_smacof() -> tuple[float, float, float]:
    prototypes = torch.randn(100, 512, generator=generator("bench"), dtype=torch.float64)
    delta = np.ones((100, 100)) - np.eye(100)
    start = np.random.default_rng(0).normal(size=(100, 512))

    def peer():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn announces coming changes of defaults
            smacof(delta, n_components=512, init=start, n_init=1, max_iter=800, eps=1e-9)

    return ratio(lambda: equidistant(prototypes, 1.0), peer)


def update_against_loop() -> tuple[float, float, float]:
    z, p, e = (torch.randn(n, 512, generator=generator("bench", n), dtype=torch.float64) for n in (128, 20, 20))
    counts = torch.ones(20, dtype=torch.float64)

    def peer():
        prototypes, anchors, latents, v = p.numpy().copy(), e.numpy(), z.numpy(), counts.numpy().copy()
        near = ((latents[:, None] - prototypes) ** 2).sum(2).argmin(1)
        for latent, k in zip(latents, near, strict=True):
            v[k] += 1
            prototypes[k] += (latent + anchors[k] - prototypes[k]) / v[k]

    return ratio(lambda: move(z, p, e, counts), peer)


def kmeans_against_sklearn() -> tuple[float, float, float]:
    x = torch.randn(50_000, 128, generator=generator("bench"))
    settings = {"n_clusters": 100, "n_init": 1, "max_iter": 10, "tol": 0, "random_state": 0}
    return ratio(
        lambda: kmeans(x, 100, generator("bench"), starts=1, iterations=10, tolerance=0),
        lambda: KMeans(**settings).fit(x.numpy()),
    )


CASES = {
    "100 anchors in 512 dimensions / sklearn.manifold.smacof": simplex_against_smacof,
    "prototype update, batch 128, 20 classes / numpy loop over samples": update_against_loop,
    "k-means 50 000 × 128, k = 100, 10 steps / sklearn.cluster.KMeans": kmeans_against_sklearn,
}

if __name__ == "__main__":
    table = Table("ours / peer", "ours, ms", "peer, ms", "times faster", title=f"median of {REPEATS}")
    for name, case in CASES.items():
        ours, peer, faster = case()
        table.add_row(name, f"{1000 * ours:.1f}", f"{1000 * peer:.1f}", f"{faster:.1f}")
    Console().print(table)
