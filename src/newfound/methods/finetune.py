"""Fine-tuning: novel classes are learnt, and nothing holds the known ones. The lower bound of continual discovery, as
Roy, Liu, Zhong, Sebe, Ricci: Class-incremental Novel Class Discovery, ECCV 2022, report it (there AutoNovel).
"""

from functools import partial
from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.schedules import steps
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.methods.widened import Widened
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Training


@final
class Finetune(Method):
    """The losses of `Widened` alone.

    Known classes are learnt where their images take part; in two stages they are forgotten. Published, CIFAR-10 5 + 5,
    known / novel / all in per cent: 27.5 / 3.5 / 15.5; CIFAR-100 80 + 20: 2.6 / 15.2 / 5.1.
    """

    def __init__(self, problem: Problem, head: nn.Linear | None = None):
        super().__init__()
        self.problem, self.heads = problem, Widened(problem, head)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Those of `Widened`."""
        u = unlabelled_rows(batch, self.problem)
        return self.heads(latents[0].z, latents[1].z, batch.labels, u, now.progress)

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, then novel ones, from the head over all."""
        return self.heads.joint(features)

    def novel_logits(self, features: Float[Tensor, "n dim"], novel: int) -> Float[Tensor, "n {novel}"]:
        """Novel classes, from their own head."""
        return self.heads.novel.logits(features)[:, -novel:]

    def joint_head(self) -> nn.Linear:
        """The widened head."""
        return self.heads.joint


def build(problem: Problem, model: Model) -> Method:
    """Its head starts as stage one's, widened."""
    return Finetune(problem, model.head)


recipe = Recipe(
    "fine-tuning, the lower bound",
    build,
    "optional",
    Training(epochs=300, batch=128, rate=0.1, schedule=partial(steps, at=(170 / 300,)), trains=3),
    "head",
    continual=True,
)
