"""The similarity network of KCL and MCL: do two images share a class?"""

from typing import final

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.networks.backbone import Backbone
from newfound.networks.heads import BatchNorm


@final
class PairHead(nn.Module):
    """Scores of "different" and "same class" for all ordered pairs of latents, i = j among them.

        s_ij = W₂ ReLU(BatchNorm(h_ij)) + b₂,   h_ij = W₁ [z_i; z_j] + b₁ = W₁ˡ z_i + W₁ʳ z_j + b₁

    Each half of W₁ sees each latent once: n² concatenated rows are never formed. BatchNorm is over the n² rows h_ij.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.first = nn.Linear(2 * dim, 4 * dim)
        self.norm = BatchNorm(4 * dim)
        self.last = nn.Linear(4 * dim, 2)

    def forward(self, z: Float[Tensor, "n dim"]) -> Float[Tensor, "n n 2"]:
        """Scores of z_i with z_j at [i, j]."""
        left, right = self.first.weight.chunk(2, dim=1)
        h = (F.linear(z, left, self.first.bias)[:, None] + F.linear(z, right)).flatten(0, 1)
        return self.last(self.norm(h).relu()).view(len(z), len(z), 2)


@final
class PairNet(nn.Module):
    """A backbone and a pair head that were trained together."""

    def __init__(self, backbone: Backbone, pairs: PairHead):
        super().__init__()
        self.backbone, self.pairs = backbone, pairs

    def forward(self, images: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n n 2"]:
        """Scores of "different" and "same class" for all ordered pairs of images."""
        return self.pairs(self.backbone(images).z)
