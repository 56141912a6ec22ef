"""Stage one: methods like the others, that learn from labelled images."""

from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.losses import cross_entropy
from newfound.functional.schedules import one_cycle
from newfound.methods.base import Method
from newfound.types import Batch, Latents, Losses, Now, Problem, Training

TRAINING = Training(epochs=10, batch=128, rate=0.2, decay=5e-4, schedule=one_cycle, views=("affine",))
"""A short modern schedule; every stage learns."""


@final
class Supervised(Method):
    """Cross-entropy with smoothed labels on labelled images."""

    def __init__(self, problem: Problem, smoothing: float = 0.1):
        super().__init__()
        self.smoothing = smoothing
        self.head = nn.Linear(problem.dim, problem.known)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`cross-entropy`."""
        l = batch.labels >= 0  # noqa: E741
        return {"cross-entropy": cross_entropy(self.head(latents[0].z[l]), batch.labels[l], self.smoothing)}

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Scores of the known classes."""
        return self.head(features)
