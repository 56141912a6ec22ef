"""Latents → logits."""

from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


@final
class Cosine(nn.Module):
    """Cosines between latents and one direction a class: unit latents times unit rows.

    The optimiser takes rows off the sphere; `project`, called after every step, puts them back.
    """

    def __init__(self, dim: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(classes, dim), dim=1))

    @torch.no_grad()
    def project(self) -> None:
        """Rows of unit length again."""
        self.weight.copy_(F.normalize(self.weight, dim=1))

    def forward(self, z: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Cosines, from −1 to 1."""
        return F.normalize(z, dim=1) @ self.weight.T


@final
class BatchNorm(nn.BatchNorm1d):
    """BatchNorm that also takes a batch of one latent or of none: these have no variance of their own, and the running
    statistics, which they leave as they are, stand in.
    """

    def forward(self, input: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:  # noqa: A002  # the parent's name
        """Normalised."""
        if len(input) > 1:
            return super().forward(input)
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def projector(dim: int, hidden: int, out: int) -> nn.Sequential:
    """One hidden layer with BatchNorm, as contrastive and clustering methods put before their heads."""
    return nn.Sequential(nn.Linear(dim, hidden), BatchNorm(hidden), nn.ReLU(), nn.Linear(hidden, out))


def widen(head: nn.Linear, more: int) -> nn.Linear:
    """A head for more classes: old rows are kept, new ones random, biased to say nothing at first.

        b_new = min(b_old) − 1        (AutoNovel, Han et al. 2020)

    The head given is left as it is.
    """
    weight = head.weight
    wide = nn.Linear(head.in_features, head.out_features + more, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        wide.weight[: head.out_features] = weight
        wide.bias[: head.out_features] = head.bias
        wide.bias[head.out_features :] = head.bias.min() - 1
    return wide


@torch.no_grad()
def unbiased(weight: Float[Tensor, "classes dim"]) -> nn.Linear:
    """A head with these rows, copied, that favours no class."""
    head = nn.Linear(weight.shape[1], len(weight), device=weight.device, dtype=weight.dtype)
    head.weight.copy_(weight)
    head.bias.zero_()
    return head
