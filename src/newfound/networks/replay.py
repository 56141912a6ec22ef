"""Latents that stand for classes whose images are gone."""

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound.functional.geometry import covariance_root
from newfound.networks.model import Statistics


@final
class LatentReplay(nn.Module):
    """Known classes as normal distributions of latents, to draw from where their images are not at hand.

        z ~ N(μ_k, S),   S the covariance that all classes share

    A class that has no mean is not drawn; where there are no statistics, none is.
    """

    means: Float[Tensor, "known dim"]
    root: Float[Tensor, "dim dim"]
    there: Bool[Tensor, " known"]

    def __init__(self, statistics: Statistics | None, known: int, dim: int):
        super().__init__()
        if statistics is None:
            nothing = torch.zeros(known, dim), torch.zeros(dim, dim), torch.zeros(known, dtype=torch.long)
            statistics = Statistics(*nothing)
        self.register_buffer("means", statistics.means.clone())
        root = covariance_root(statistics.within_covariance).to(statistics.means)
        self.register_buffer("root", root.contiguous())  # LAPACK's columns cannot be saved as they lie
        self.register_buffer("there", statistics.counts > 0)

    @torch.no_grad()
    def draw(self, each: int, random: torch.Generator) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
        """So many latents of each class, and their labels."""
        labels = self.there.nonzero()[:, 0].repeat_interleave(each)
        noise = torch.randn(len(labels), len(self.root), generator=random).to(self.means)
        return self.means[labels] + noise @ self.root.T, labels


def diagonal(statistics: Statistics | None) -> Statistics | None:
    """The same classes, of whose covariance only the diagonal is kept."""
    if statistics is None:
        return None
    return statistics._replace(within_covariance=statistics.within_covariance.diag().diag())
