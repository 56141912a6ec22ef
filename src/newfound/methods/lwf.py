"""Zhizhong Li, Derek Hoiem: Learning without Forgetting, ECCV 2016; TPAMI 2018."""

from typing import final

from torch import nn

from newfound.functional.losses import distillation
from newfound.methods.base import Method, Recipe, note_old_latents, unlabelled_rows
from newfound.methods.widened import TRAINING, WidenedMethod
from newfound.networks.backbone import Backbone, Frozen
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem


@final
class Lwf(WidenedMethod):
    """Fine-tuning, while the head says of the new images what the old model says of them.

        L = L_Widened + λ T² · mean_i KL(softmax(g(x_i)/T) ‖ softmax(h(z_i)/T over known classes)),   T = 2, λ = 1

    g is the old model, backbone and head, which only looks; Li & Hoiem, Eq. 2–3. Unlabelled images speak: they are all
    that is there in two stages. A model without a head has nothing to say.
    """

    def __init__(self, problem: Problem, backbone: Backbone, head: nn.Linear | None, weight: float = 1.0):
        super().__init__(problem, head)
        self.weight = weight
        self.old_backbone = None if head is None else Frozen(backbone)
        self.old_head = None if head is None else Frozen(head)

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Ask the old backbone."""
        return note_old_latents(batch, self.old_backbone)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Those of `Widened`, and `distillation`."""
        u, z = unlabelled_rows(batch, self.problem), latents[0].z
        losses: Losses = self.heads(z, latents[1].z, batch.labels, u, now)
        if self.old_head is not None:
            old, new = self.old_head(batch.notes["old latents"][u]), self.heads.joint(z[u])[:, : self.problem.known]
            losses["distillation"] = self.weight * distillation(new, old)
        return losses


def build(problem: Problem, model: Model) -> Method:
    """Its head starts as stage one's, widened; the model as it comes is the one that is asked."""
    return Lwf(problem, model.backbone, model.head)


recipe = Recipe(
    "Li & Hoiem, ECCV 2016",
    build,
    "optional",
    TRAINING,
    "head",
    continual=True,
)
