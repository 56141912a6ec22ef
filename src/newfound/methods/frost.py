"""Subhankar Roy, Mingxuan Liu, Zhun Zhong, Nicu Sebe, Elisa Ricci:
Class-incremental Novel Class Discovery, ECCV 2022 (FRoST).

Where paper and code differ, the code: consistency is asked of the novel head alone, and latents are distilled as one
direction of the whole batch. Their `test` reads the heads of both kinds concatenated, whatever was asked for (its
condition is always true); here the joint head is read, as the paper says. In a run shorter than the published one the
joint head learns novel classes with more weight (`catch_up`); in one of 300 epochs all is as published.
"""

from typing import final

from torch import nn

from newfound.functional.losses import cross_entropy, feature_distillation
from newfound.methods.base import Method, Recipe, note_old_latents, unlabelled_rows
from newfound.methods.widened import FEW, TRAINING, WidenedMethod
from newfound.networks.backbone import Backbone, Frozen
from newfound.networks.model import Model, Statistics
from newfound.networks.replay import LatentReplay, diagonal
from newfound.types import Batch, Latents, Losses, Now, Problem


@final
class Frost(WidenedMethod):
    """Novel classes by pairs, known ones held by replayed latents and by what the old backbone says.

        L = L_Widened + CE(h(z̃), ỹ) + 10 · ‖Z/‖Z‖ − Z_old/‖Z_old‖‖        (Eq. 2–7)

    z̃ are drawn from N(μ_ỹ, σ²), μ the means of known classes and σ² a diagonal that all share: the authors average the
    classes' standard deviations, here it is that of the shared covariance. 20 latents a class and step where known
    classes are few, else 2: the authors' numbers for CIFAR-10 and CIFAR-100. (Drawn latents may be negative, where no
    ReLU would let them be.) Where labelled images take part, they hold the known classes, and nothing is drawn.

    Published, known / novel / all / harmonic mean: CIFAR-10 5 + 5 77.5 / 49.5 / 63.4 / 60.4; CIFAR-100 80 + 20
    64.6 / 45.8 / 59.2 / 53.6.
    """

    def __init__(
        self,
        problem: Problem,
        backbone: Backbone,
        head: nn.Linear | None = None,
        known: Statistics | None = None,
        *,
        distilled: float = 10.0,
    ):
        super().__init__(problem, head)
        self.distilled, self.each = distilled, 20 if problem.known <= FEW else 2
        self.replay = LatentReplay(diagonal(known), problem.known, problem.dim)
        self.old = Frozen(backbone)

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Ask the old backbone."""
        return note_old_latents(batch, self.old)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Those of `Widened`, `distillation`, and in two stages `replay`."""
        u, z = unlabelled_rows(batch, self.problem), latents[0].z
        losses: Losses = self.heads(z, latents[1].z, batch.labels, u, now)
        losses["distillation"] = self.distilled * feature_distillation(z[u], batch.notes["old latents"][u])
        if not self.problem.labelled:
            drawn, labels = self.replay.draw(self.each, now.random("replay"))
            losses["replay"] = cross_entropy(self.heads.joint(drawn), labels)
        return losses


def build(problem: Problem, model: Model) -> Method:
    """FRoST with what the model remembers of known classes."""
    return Frost(problem, model.backbone, model.head, model.known)


recipe = Recipe(
    "Roy et al., ECCV 2022",
    build,
    "optional",
    TRAINING,
    "head",
    continual=True,
)
