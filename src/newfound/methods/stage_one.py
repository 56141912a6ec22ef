"""Stage one: methods like the others. `Supervised` learns from labels, `Rotation` from images alone."""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound import parallel
from newfound.functional.losses import cross_entropy, mean
from newfound.functional.schedules import one_cycle
from newfound.methods.base import Method
from newfound.types import Batch, Latents, Losses, Now, Problem, Training

TRAINING = Training(epochs=20, batch=128, rate=0.2, decay=5e-4, schedule=one_cycle, views=("affine",))
"""A short modern schedule; every stage learns (decision 10)."""


@final
class Supervised(Method):
    """Cross-entropy on labelled images.

    `smoothing` of a label goes to all classes alike. It costs what novel classes need of the latents (decision 10).
    """

    def __init__(self, problem: Problem, smoothing: float = 0.0):
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


@final
class Rotation(Method):
    """Spyros Gidaris, Praveer Singh, Nikos Komodakis: Unsupervised Representation Learning by Predicting Image
    Rotations, ICLR 2018. Guess by how many quarter turns an image was turned; labels are not looked at.

        L = mean_i mean_t CE(h(z_i^t), t),   z_i^t the latent of image i turned by t · 90°

    over `turns` different t of each image; the paper takes all four.
    """

    def __init__(self, problem: Problem, turns: int = 4):
        super().__init__()
        self.turns = turns
        self.head = nn.Linear(problem.dim, 4)

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Turn every image; the turns are drawn for the whole batch, and each process takes its own."""
        size = len(batch.labels) * parallel.world()[1]
        drawn = torch.rand(size, 4, generator=now.random("turns")).argsort(1)[parallel.part(size), : self.turns]
        drawn = drawn.to(batch.labels.device)
        turned = [turn(batch.views[0], own) for own in drawn.unbind(1)]
        return batch._replace(views=turned, notes=batch.notes | {"turns": drawn})

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`rotation`."""
        pairs = zip(latents, batch.notes["turns"].unbind(1), strict=True)
        return {"rotation": mean(torch.stack([cross_entropy(self.head(seen.z), turns) for seen, turns in pairs]))}


def turn(images: Float[Tensor, "n c s s"], turns: Int[Tensor, " n"]) -> Float[Tensor, "n c s s"]:
    """Each image turned by its own number of quarter turns."""
    turned = images.clone()
    for quarter in (1, 2, 3):
        these = turns == quarter
        turned[these] = images[these].rot90(quarter, (2, 3))
    return turned
