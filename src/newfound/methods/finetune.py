"""Fine-tuning: novel classes are learnt, and nothing holds the known ones. The lower bound of continual discovery, as
Roy, Liu, Zhong, Sebe, Ricci: Class-incremental Novel Class Discovery, ECCV 2022, report it (there AutoNovel).
"""

from typing import final

from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.methods.widened import TRAINING, WidenedMethod
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem


@final
class Finetune(WidenedMethod):
    """The losses of `Widened` alone.

    Known classes are learnt where their images take part; in two stages they are forgotten. Published, CIFAR-10 5 + 5,
    known / novel / all in per cent: 27.5 / 3.5 / 15.5; CIFAR-100 80 + 20: 2.6 / 15.2 / 5.1.
    """

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Those of `Widened`."""
        u = unlabelled_rows(batch, self.problem)
        return self.heads(latents[0].z, latents[1].z, batch.labels, u, now)


def build(problem: Problem, model: Model) -> Method:
    """Its head starts as stage one's, widened."""
    return Finetune(problem, model.head)


recipe = Recipe(
    "fine-tuning, the lower bound",
    build,
    "optional",
    TRAINING,
    "head",
    continual=True,
)
