"""Mingxuan Liu, Subhankar Roy, Zhun Zhong, Nicu Sebe, Elisa Ricci:
Large-scale Pre-trained Models are Surprisingly Strong in Incremental Novel Class Discovery, 2023 (MSc-iNCD, their
Baseline++).

Made from a description. The rate and what Sinkhorn is given are SwAV's, not theirs.
"""

from collections.abc import Callable
from functools import partial
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.losses import cross_entropy, mean, self_training, swapped_cross_entropy
from newfound.functional.pseudo import sinkhorn
from newfound.functional.schedules import warm_cosine
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.networks.heads import Cosine, unbiased
from newfound.networks.model import Model, Statistics
from newfound.networks.replay import LatentReplay
from newfound.types import Batch, Latents, Losses, Now, Problem, Training

TEMPERATURE = 0.1
"""What cosines are divided by before they are logits."""

LARGE = 2
"""Views that give targets, counted from the first; all views predict."""

DRAWN = 256
"""Latents of known classes that are drawn in a step, about."""


@final
class FrozenBaseline(Method):
    """A backbone that stays as it is; novel classes are directions that its latents' views agree on.

        L = swapped(u·W_n / τ, sinkhorn(u·W_n)) + CE(ũ·[W_k ; W_n] / τ, ỹ) + CE(u·[W_k ; W_n] / τ, C_l + argmax u·W_n)

    u = z/‖z‖; rows of W_k, W_n are unit vectors. The first term finds novel classes (`swapped_cross_entropy`), alone.
    The others make one head of both: z̃ are drawn from what is remembered of known classes (feature replay), or are
    labelled images where these take part. W_k starts as the old head's rows. τ = 0.1. `Training.trains` is 0.
    """

    def __init__(self, problem: Problem, head: nn.Linear | None = None, known: Statistics | None = None):
        super().__init__()
        self.problem = problem
        self.known, self.novel = Cosine(problem.dim, problem.known), Cosine(problem.dim, problem.novel)
        if head is not None:
            self.known.load_state_dict({"weight": F.normalize(head.weight.detach(), dim=1)})
        self.replay, self.each = LatentReplay(known, problem.known, problem.dim), max(1, DRAWN // max(1, problem.known))

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`swapped` and `novel` on unlabelled images; `replay` of drawn latents, or `cross-entropy` on labelled."""
        u, labelled = unlabelled_rows(batch, self.problem), self.problem.labelled
        cosines = torch.stack([self.novel(view.z[u]) for view in latents])
        losses = {
            "swapped": mean(swapped_cross_entropy(cosines / TEMPERATURE, sinkhorn(cosines[:LARGE]))),
            "novel": self_training(self.logits(latents[0].z[u]), cosines[0], self.problem.known),
        }
        if labelled:
            return losses | {"cross-entropy": cross_entropy(self.logits(latents[0].z[~u]), batch.labels[~u])}
        drawn, labels = self.replay.draw(self.each, now.random("replay"))
        return losses | {"replay": cross_entropy(self.logits(drawn), labels)}

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Rows of unit length again."""
        for head in (self.known, self.novel):
            head.project()

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, then novel ones: one head beside the other."""
        return torch.cat([self.known(features), self.novel(features)], dim=1) / TEMPERATURE

    def joint_head(self) -> nn.Linear:
        """Both heads as one; a latent's length, which it does not take out, changes no order."""
        return unbiased(torch.cat([self.known.weight, self.novel.weight]) / TEMPERATURE)


def build(problem: Problem, model: Model) -> Method:
    """With what the model remembers of known classes."""
    return FrozenBaseline(problem, model.head, model.known)


recipe = Recipe(
    "Liu et al., 2023",
    build,
    "optional",
    Training(epochs=200, batch=256, rate=0.1, schedule=partial(warm_cosine, warm=0.05, start=0.01, end=0.01), trains=0),
    "head",
    described=True,
    continual=True,
)
