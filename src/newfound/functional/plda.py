"""Probabilistic linear discriminant analysis: what known classes tell of how classes lie, used to find others.

Classes are drawn from one distribution, images of a class from another that all share (Ioffe 2006; Prince and Elder
2007). Its mixture is that of speaker diarisation (Landini et al. 2022, VBx, without the order in time).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.functional.cluster import ClassSums
from newfound.functional.geometry import whitening

SHRINK = 0.1
"""How much of its mean eigenvalue is added to the within-class covariance before it is inverted."""

TRUST = 0.3
"""How much of what an image says is believed: the numbers of an image depend on one another (VBx's F_A)."""


class Plda(NamedTuple):
    """Axes y = (x − centre) · matrix along which images of a class have variance 1, and classes that of `between`."""

    centre: Float[Tensor, " d"]
    matrix: Float[Tensor, "d d"]
    between: Float[Tensor, " d"]


def plda(means: Float[Tensor, "c d"], counts: Float[Tensor, " c"], within_covariance: Float[Tensor, "d d"]) -> Plda:
    """Diagonalise how classes differ once what differs within a class is round.

        W = (S + ρ s̄ I)^−½,   W B W = V Φ Vᵀ,   B = Cov(μ_k) − S / n̄,   matrix = W V

    Means of few images differ by chance too: S / n̄ of it, n̄ the harmonic mean of the counts. What is left is not
    negative.
    """
    centre = means.double().mean(0)
    white = whitening(within_covariance.double(), SHRINK)
    rest = (means.double() - centre) @ white
    chance = (1 / counts.double().clamp(min=1)).mean()
    scatter = rest.T @ rest / max(1, len(means) - 1) - chance * white @ within_covariance.double() @ white
    values, vectors = torch.linalg.eigh(scatter)
    return Plda(*(some.to(means) for some in (centre, white @ vectors, values.clamp(min=0))))


class Mixture(NamedTuple):
    """What a mixture found: the probability of each class for each point, and how many points each class has."""

    shares: Float[Tensor, "n k"]
    sizes: Float[Tensor, " k"]

    @property
    def assignment(self) -> Int[Tensor, " n"]:
        """The likeliest class of each."""
        return self.shares.argmax(1)


@torch.no_grad()
def mix(
    x: Float[Tensor, "n d"],
    model: Plda,
    start: Int[Tensor, " n"],
    k: int,
    held: ClassSums | None = None,
    *,
    rounds: int = 40,
    trust: float = TRUST,
) -> Mixture:
    """Split points into at most k classes by variational Bayes; spare classes die out.

        q(u_k) = N(a_k, L_k),   L_k = 1 / (1 + f n_k Φ),   a_k = f L_k √Φ Σ_i γ_ik y_i,   n_k = Σ_i γ_ik
        γ_ik ∝ π_k exp(−f/2 Σ_d [(y_id − √Φ_d a_kd)² + Φ_d L_kd]),   π_k ∝ n_k

    with y along the axes of `model`, f = `trust`. Points that are `held` in the first classes count in every round and
    never move. Begins at the assignment `start`.
    """
    y = (x - model.centre) @ model.matrix
    root = model.between.sqrt()
    sums, counts = y.new_zeros(k, y.shape[1]), y.new_zeros(k)
    if held is not None:
        first = len(held.counts)
        sums[:first] = (held.sums - held.counts[:, None] * model.centre) @ model.matrix
        counts[:first] = held.counts
    shares = torch.nn.functional.one_hot(start, k).to(y)
    for _ in range(rounds):
        n = shares.sum(0) + counts
        narrow = 1 / (1 + trust * n[:, None] * model.between)
        middle = trust * narrow * root * (shares.T @ y + sums) * root
        far = y.square().sum(1, keepdim=True) - 2 * y @ middle.T + (middle.square() + model.between * narrow).sum(1)
        odds = (n / n.sum()).clamp(min=1e-30).log() - trust / 2 * far
        moved = odds.softmax(1)
        rest = (moved - shares).abs().sum(1).mean() < 1e-4
        shares = moved
        if rest:
            break
    return Mixture(shares, shares.sum(0) + counts)
