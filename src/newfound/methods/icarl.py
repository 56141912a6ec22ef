"""Sylvestre-Alvise Rebuffi, Alexander Kolesnikov, Georg Sperl, Christoph H. Lampert:
iCaRL: Incremental Classifier and Representation Learning, CVPR 2017.

For those who may keep some images: the labelled images that take part are the exemplars, a few of each class, chosen by
`functional.exemplars.herding` when the class was learnt. New classes, which iCaRL is given labels of, are guessed.
"""

from collections.abc import Callable
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.geometry import means
from newfound.functional.losses import distillation
from newfound.methods.base import Method, Recipe, note_old_latents, unlabelled_rows
from newfound.methods.widened import TRAINING, WidenedMethod
from newfound.networks.backbone import Backbone, Frozen
from newfound.networks.heads import unbiased
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Survey

TEMPERATURE = 0.1
"""What cosines with class means are divided by to be scores; it changes no order."""


@final
class Icarl(WidenedMethod):
    """Cross-entropy on exemplars and on guesses, distillation of the old model on both; told by the nearest mean.

        L = L_Widened + T² · mean_i KL(softmax(g(x_i)/T) ‖ softmax(h(z_i)/T over known classes)),   T = 2
        y* = argmin_y ‖z/‖z‖ − μ_y‖,   μ_y the mean of the class's directions, of unit length        (Algorithms 1–3)

    g is the old model, which only looks. iCaRL distils sigmoids; here as in LwF. μ are those of exemplars, and for
    novel classes of the images that the novel head guesses to be of them, all as they lay when the last epoch began.
    """

    centres: Float[Tensor, "classes dim"]

    def __init__(self, problem: Problem, backbone: Backbone, head: nn.Linear | None):
        super().__init__(problem, head)
        self.old_backbone = None if head is None else Frozen(backbone)
        self.old_head = None if head is None else Frozen(head)
        self.register_buffer("centres", torch.zeros(problem.known + problem.novel, problem.dim))

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Ask the old backbone."""
        return note_old_latents(batch, self.old_backbone)

    @torch.no_grad()
    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Measure where classes lie."""
        seen = survey()
        centres, _ = means(F.normalize(seen.labelled, dim=1), seen.labels[seen.labels >= 0], self.problem.known)
        if self.problem.novel:
            guess = self.heads.novel.logits(seen.unlabelled).argmax(1)
            novel, _ = means(F.normalize(seen.unlabelled, dim=1), guess, self.problem.novel)
            centres = torch.cat([centres, novel])
        self.centres.copy_(F.normalize(centres, dim=1))

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Those of `Widened`, and `distillation`, on all rows."""
        u, z = unlabelled_rows(batch, self.problem), latents[0].z
        losses: Losses = self.heads(z, latents[1].z, batch.labels, u, now)
        if self.old_head is not None:
            old, new = self.old_head(batch.notes["old latents"]), self.heads.joint(z)[:, : self.problem.known]
            losses["distillation"] = distillation(new, old)
        return losses

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Cosines with the means of known classes, then of novel ones: the nearest mean has the largest."""
        return F.normalize(features, dim=1) @ self.centres.T / TEMPERATURE

    def joint_head(self) -> nn.Linear:
        """The means; a latent's length changes no order."""
        return unbiased(self.centres / TEMPERATURE)


def build(problem: Problem, model: Model) -> Method:
    """The model as it comes is the one that is asked."""
    return Icarl(problem, model.backbone, model.head)


recipe = Recipe(
    "Rebuffi et al., CVPR 2017",
    build,
    "needed",
    # iCaRL's 70 epochs, batches of 128, rate 2 that falls at 49 and 63 are of sigmoids; these are Roy et al.'s
    TRAINING,
    "head",
    continual=True,
)
