"""Where the features of a pretrained network are compared: a few axes along which classes lie apart."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from newfound.functional.geometry import directions, whitening

FEW = 48
"""Axes that features are seen along; decision 7."""

SHRINK = 3.0
"""How much of its mean eigenvalue is added to a covariance before it is inverted; decision 7."""

MORE, TURNS = 32, 4
"""Columns beyond those that are wanted, and turns, by which main axes are found; with these they hold 0.999 of what the
exact ones do.
"""

TOGETHER = 1024
"""Features that are copied in double precision at once."""


class Axes(NamedTuple):
    """An affine map to few dimensions: x ↦ (x − centre) · matrix."""

    centre: Float[Tensor, " d"]
    matrix: Float[Tensor, "d few"]


class Coordinates(NamedTuple):
    """Where features lie along axes, and how far beside them."""

    along: Float[Tensor, "n few"]
    beside: Float[Tensor, " n"]


def power_normalised(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Features without their length, and none so strong that it drowns the others.

    x̂ = t / ‖t‖,   t = sign(x) √|x|        (Tukey 1977)
    """
    return F.normalize(x.sign() * x.abs().sqrt(), dim=1)


def squared(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """What power normalisation takes back to x, where x has unit length: for what needs none any more."""
    return x * x.abs()


class Moments(NamedTuple):
    """All that axes need of features: how many, their mean, and Σ (x − mean)(x − mean)ᵀ in double precision."""

    n: float
    mean: Float[Tensor, " d"]
    scatter: Float[Tensor, "d d"]


def moments(x: Float[Tensor, "n d"]) -> Moments:
    """Those of features that are at hand."""
    exact = x.double()
    mean = exact.mean(0)
    return Moments(float(len(x)), mean, (exact - mean).T @ (exact - mean))


def class_moments(
    means: Float[Tensor, "classes d"], counts: Float[Tensor, " classes"], within_covariance: Float[Tensor, "d d"]
) -> Moments:
    """Those of features of which only class means and the shared within-class covariance S are left.

        Σ_k n_k (μ_k − μ)(μ_k − μ)ᵀ + (n − c) S

    Equal to `moments` of the features themselves. Classes of which nothing is known (n_k = 0) do not count.
    """
    there = counts > 0
    centres, weights = means[there].double(), counts[there].double()[:, None]
    mean = (weights * centres).sum(0) / weights.sum()
    between = (centres - mean).T @ (weights * (centres - mean))
    return Moments(weights.sum().item(), mean, between + (weights.sum() - len(weights)) * within_covariance.double())


def together(a: Moments, b: Moments) -> Moments:
    """Those of two sets of features as one (Chan, Golub and LeVeque 1979)."""
    n, apart = a.n + b.n, b.mean - a.mean
    scatter = a.scatter + b.scatter + a.n * b.n / n * torch.outer(apart, apart)
    return Moments(n, a.mean + b.n / n * apart, scatter)


def coordinates(
    x: Float[Tensor, "n d"], along: Axes, within_covariance: Float[Tensor, "d d"] | None = None
) -> Coordinates:
    """Where features lie, in the metric in which the axes A are orthonormal.

        y = (x − centre) A,   r² = (x − centre)ᵀ (S + α I)⁻¹ (x − centre) − ‖y‖²

    `axes` made A so that Aᵀ (S + α I) A = I, with α = ρ s̄; so A itself says what α was. Latents have neither the length
    of y nor r: what is like nothing that the axes were made for shows in these alone.
    """
    A, d = along.matrix.double(), len(along.centre)
    S = (torch.zeros(d, d) if within_covariance is None else within_covariance).double()
    alpha = (A.shape[1] - (A * (S @ A)).sum()) / A.square().sum()
    metric = torch.linalg.inv(S + alpha * torch.eye(d, dtype=torch.float64))
    y, r = x.new_empty(len(x), A.shape[1]), x.new_empty(len(x))
    for start in range(0, len(x), TOGETHER):
        apart = x[start : start + TOGETHER].double() - along.centre
        here = apart @ A
        y[start : start + TOGETHER] = here
        r[start : start + TOGETHER] = ((apart @ metric * apart).sum(1) - here.square().sum(1)).clamp(min=0).sqrt()
    return Coordinates(y, r)


def axes(
    seen: Moments, few: int, within_covariance: Float[Tensor, "d d"] | None = None, shrink: float = SHRINK
) -> Axes:
    """The principal axes of features, once what differs within a class is made small.

        A = W V,   W = (S + ρ s̄ I)^−½,   V: the first eigenvectors of W Cov(x) W

    S is the shared within-class covariance of the known classes, s̄ its mean eigenvalue and ρ `shrink`; without it
    W = I. Fewer axes are given where the features do not fill as many.
    """
    if within_covariance is None:
        return Axes(seen.mean, directions(seen.scatter)[:, :few])
    white = whitening(within_covariance.double(), shrink)
    return Axes(seen.mean, white @ directions(white @ seen.scatter @ white)[:, :few])


def main_axes(x: Float[Tensor, "n d"], few: int, random: torch.Generator) -> Axes:
    """The first principal axes of many features, about, and far sooner than `axes` gives them.

        Q ← orthonormal(Xᵀ X Q), a few times,   A = Q V,   V: the first eigenvectors of Qᵀ Xᵀ X Q

    (Subspace iteration: Halko, Martinsson & Tropp 2011, algorithm 4.4.) X are features less their mean, Q begins at
    random with some columns more than are wanted. Where there are hardly more directions than that they are exact.
    """
    if min(x.shape) <= 2 * few:
        return axes(moments(x), few)
    centre = x.mean(0, dtype=torch.float64)
    apart = x - centre.to(x)
    Q = torch.randn(x.shape[1], few + MORE, generator=random).to(x)
    for _ in range(TURNS):
        Q = torch.linalg.qr(apart.T @ (apart @ Q)).Q
    seen = (apart @ Q).double()
    return Axes(centre, Q.double() @ directions(seen.T @ seen)[:, :few])
