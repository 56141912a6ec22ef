"""Guesses, from latents alone, which images share a class."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def ranking_statistics(z: Float[Tensor, "n d"], k: int = 5) -> Bool[Tensor, "n n"]:
    """Two images are alike when their k strongest features are the same set.

        s_ij = 1[top_k(z_i) = top_k(z_j)]        (Han et al. 2020, Eq. 2)

    Which of equal features is the stronger is up to `topk`: a latent with fewer than k features above 0, as dead ReLUs
    leave it, is alike to others by chance.
    """
    top = torch.zeros_like(z).scatter_(1, z.topk(k, dim=1).indices, 1.0)
    return top @ top.T == k


def cosine(z: Float[Tensor, "n d"], threshold: float = 0.95) -> Bool[Tensor, "n n"]:
    """Two images are alike when their latents point the same way.

        s_ij = 1[z_iᵀz_j / ‖z_i‖‖z_j‖ > threshold]        (Zhong et al. 2021, Neighborhood Contrastive Learning)

    A latent of zeros points nowhere and is alike to none, itself included.
    """
    unit = F.normalize(z)
    return unit @ unit.T > threshold
