"""Xuhui Jia, Kai Han, Yukun Zhu, Bradley Green:
Joint Representation Learning and Novel Category Discovery on Single- and Multi-Modal Data, ICCV 2021.

Made from a description: neither the paper's text nor its code was at hand. That contrast and pairs guessed by
winner-takes-all hashing are learnt together, from the start, is certain. Not confirmed are the number of draws (one
for each dimension), k = 4 and the threshold of 240 in 512; the temperature of 0.1, the projector (that of Khosla et
al. 2020), equal weights of all terms and the training are ours. Only images are read, no second modality.
"""

from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from newfound.functional import pseudo
from newfound.functional.losses import info_nce
from newfound.functional.schedules import cosine
from newfound.methods.base import Method, Recipe, Sum, unlabelled_rows
from newfound.methods.pairwise import Pairwise
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Training


@final
class WinnerTakesAll(nn.Module):
    """Guesses which images are alike by winner-takes-all codes; the features that compete are drawn once."""

    def __init__(self, dim: int, k: int = 4):
        super().__init__()
        self.register_buffer("drawn", torch.stack([torch.randperm(dim)[:k] for _ in range(dim)]))

    def forward(self, z: Float[Tensor, "n dim"]) -> Bool[Tensor, "n n"]:
        """Two images are alike when the same features win in 240 of 512 draws."""
        return pseudo.winner_takes_all(z, self.get_buffer("drawn"))


@final
class Contrast(Method):
    """Draw the views of an image together, and those of labelled images of one class; drive all others apart.

        L = InfoNCE(g(z), g(z̄)),   positives: the other view, and both views of images with the same label

    g is a projector, which no reading looks at.
    """

    def __init__(self, problem: Problem, *, out: int = 128, temperature: float = 0.1):
        super().__init__()
        self.problem, self.temperature = problem, temperature
        self.projector = nn.Sequential(nn.Linear(problem.dim, problem.dim), nn.ReLU(), nn.Linear(problem.dim, out))

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`contrast`, on all rows."""
        u = unlabelled_rows(batch, self.problem)
        same = (batch.labels[:, None] == batch.labels) & ~u
        a, b = self.projector(latents[0].z), self.projector(latents[1].z)
        return {"contrast": info_nce(a, b, same, self.temperature)}


def build(problem: Problem, model: Model) -> Method:
    """Everything is learnt anew: nothing is taken from the model."""
    return Sum(Pairwise(problem, WinnerTakesAll(problem.dim)), Contrast(problem))


recipe = Recipe(
    "Jia et al., ICCV 2021",
    build,
    "needed",
    Training(epochs=200, batch=256, rate=0.1, schedule=cosine),
    "head",
    stage_one=(),
    start="new",
    described=True,
)
