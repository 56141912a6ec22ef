"""Losses: each is one number, and 0 with a gradient when there is nothing to look at."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.types import Scalar

EPSILON = 1e-7
"""Least probability whose logarithm is taken; the value of all repositories since MCL (Hsu et al. 2019)."""


def mean(values: Float[Tensor, "..."]) -> Scalar:
    """Mean that is 0, and passes gradient, when there are no values."""
    return values.sum() / max(values.numel(), 1)


def cross_entropy(logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"], smoothing: float = 0.0) -> Scalar:
    """How surprised the head is by the labels.

        −mean_i Σ_c t_ic log softmax(logits_i)_c,   t_ic = (1 − smoothing) 1[c = y_i] + smoothing / C

    Rows without a label are left out by the caller.
    """
    return mean(F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing))


def pairwise_bce(p: Float[Tensor, "n c"], q: Float[Tensor, "n c"], alike: Bool[Tensor, "n n"]) -> Scalar:
    """How surprised two views' class probabilities are by which images are alike.

        −mean_ij [ s_ij log ŝ_ij + (1 − s_ij) log(1 − ŝ_ij) ],   ŝ_ij = p_iᵀq_j        (Hsu et al. 2019, MCL)

    over all ordered pairs, i = j among them. The probability of what is the case, ŝ or 1 − ŝ, counts as at least 1e-7:
    a pair that is surely wrong costs 16.1 and gives no gradient. (The repositories add 1e-7 instead; behind a softmax
    their gradient fades there as ŝ/(ŝ + 1e-7).)
    """
    together = p @ q.T
    return -mean(torch.where(alike, together, 1 - together).clamp(min=EPSILON).log())


def consistency(p: Float[Tensor, "n c"], q: Float[Tensor, "n c"]) -> Scalar:
    """How differently two views of an image are judged: mean over images and classes of (p_ic − q_ic)²."""
    return mean((p - q).square())


def pull(z: Float[Tensor, "n d"], targets: Float[Tensor, "n d"]) -> Scalar:
    """How far latents are from where they should be; moves the latents, never the targets.

        mean_i ‖z_i − sg(t_i)‖²        (Spacing Loss, Algorithm 2)

    Summed over dimensions, averaged over images, so that a weight means the same at every batch size.
    """
    return mean((z - targets.detach()).square().sum(1))
