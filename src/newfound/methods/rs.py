"""Kai Han, Sylvestre-Alvise Rebuffi, Sébastien Ehrhardt, Andrea Vedaldi, Andrew Zisserman:
Automatically Discovering and Learning New Visual Categories with Ranking Statistics, ICLR 2020;
AutoNovel: Automatically Discovering and Learning Novel Visual Categories, TPAMI 2021.

`recipe` discovers; without labelled images it is the two-stage RS*. `incremental` (RS+, or RS-IL) also learns one
head for known and novel classes together.
"""

from typing import final

from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional import pseudo
from newfound.functional.losses import self_training
from newfound.functional.schedules import catch_up, ramp
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.methods.pairwise import TRAINING, Pairwise
from newfound.networks.heads import widen
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem

PUBLISHED = 200 * (50000 // 128)
"""Steps that the authors train."""


@final
class Incremental(Method):
    """RS whose labelled head has room for the novel classes, and learns them from what the novel head guesses.

        L = L_RS + w(t) · CE(h_l(z), C_l + argmax h_u(z)) over unlabelled images

    w grows to 0.05 as fast as the weight of consistency does, in a run of the published length; in a shorter one it is
    more (`catch_up`). As the authors read it: where any class may be meant scores are those of h_l, the head that this
    variant is for; images known to be of novel classes are told by h_u, as in RS.
    """

    def __init__(self, problem: Problem, head: nn.Linear, weight: float = 0.05):
        super().__init__()
        self.problem, self.weight = problem, weight
        self.pairs = Pairwise(problem, pseudo.ranking_statistics, head=widen(head, problem.unlabelled_classes))

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Those of RS, and `self-training`."""
        u = unlabelled_rows(batch, self.problem)
        every, novel = self.scores(latents[0].z[u])
        top = catch_up(self.weight, PUBLISHED, now.epochs * now.steps)
        weight = ramp(now.progress, self.pairs.ramp[0], top)
        training = weight * self_training(every, novel, self.problem.known)
        return self.pairs(latents, batch, now) | {"self-training": training}

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, then novel ones, from the one head h_l."""
        return self.scores(features)[0]

    def novel_logits(self, features: Float[Tensor, "n dim"], novel: int) -> Float[Tensor, "n {novel}"]:
        """Novel classes, from h_u."""
        return self.scores(features)[1][:, -novel:]

    def joint_head(self) -> nn.Linear:
        """h_l, as far as images may be of known classes or of novel ones."""
        every = self.pairs.heads.labelled
        assert isinstance(every, nn.Linear)
        return every

    def scores(self, z: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n classes"], Float[Tensor, "n novel"]]:
        """Those of h_l, and those of h_u."""
        every, novel = self.pairs.logits(z).split(
            [self.problem.known + self.problem.unlabelled_classes, self.problem.unlabelled_classes], dim=1
        )
        return every, novel


def build(problem: Problem, model: Model) -> Method:
    """RS; its labelled head starts as a copy of stage one's."""
    return Pairwise(problem, pseudo.ranking_statistics, head=model.head)


def build_incremental(problem: Problem, model: Model) -> Method:
    """RS+; its head starts as stage one's, widened."""
    return Incremental(problem, model.head or nn.Linear(problem.dim, problem.known))


recipe = Recipe("Han et al., ICLR 2020", build, "optional", TRAINING, "head", stage_one=("rotation", "supervised"))
# RS's own values; for CIFAR-100 the authors train RS+ 400 epochs in batches of 256 and weigh consistency 25 (T = 300).
incremental = Recipe(
    "Han et al., TPAMI 2021",
    build_incremental,
    "needed",
    TRAINING,
    "head",
    stage_one=("rotation", "supervised"),
    continual=True,
)
