"""The step that fine-tuning, LwF, iCaRL and FRoST share: a novel head that learns by pairs, and a head over known and
novel classes together that learns what the novel one says; and how it is trained.
"""

from functools import partial

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from newfound.functional.losses import cross_entropy, self_training
from newfound.functional.pseudo import ranking_statistics
from newfound.functional.schedules import catch_up, ramp, steps
from newfound.methods.base import Method
from newfound.methods.pairwise import Heads
from newfound.networks.heads import widen
from newfound.types import Losses, Now, Problem, Training

TRAINING = Training(epochs=300, batch=128, rate=0.1, schedule=partial(steps, at=(170 / 300,)), trains=3)
"""Roy et al.'s on CIFAR-10; on CIFAR-100 they take batches of 256, and the rate never falls within the 300 epochs."""

WEIGHT = 0.01
"""Of self-training, Roy et al.'s."""

FEW = 10
"""Known classes up to which the authors' values for CIFAR-10 are taken."""


class Widened(nn.Module):
    """AutoNovel's losses on unlabelled images, and self-training of a head that was widened.

        L = BCE(p_u(z)·p_u(z̄), alike) + w(t) MSE(p_u(z), p_u(z̄)) + β w(t)/w_max · CE(h(z), C_l + argmax h_u(z))
                                                                        (Han et al. 2021; Roy et al. 2022, Eq. 2–4)

    h_u is the novel head, h the head over all classes: the known rows are the old head's, the novel ones start as
    AutoNovel's do (`widen`). Images are alike where their five strongest features are the same. β is 0.01, Roy et
    al.'s, in a run of their length, and more in a shorter one (`catch_up`); w(t) ramps up over T to w_max, which are
    theirs for CIFAR-10 (few known classes) or CIFAR-100. Unlabelled images are taken to be of novel classes, as the
    protocol has it, also where some may not be.
    """

    def __init__(self, problem: Problem, head: nn.Linear | None):
        super().__init__()
        self.problem = problem
        self.novel = Heads(problem._replace(labelled=False, mixed=False))
        if problem.known:
            self.joint = widen(head or nn.Linear(problem.dim, problem.known), problem.novel)
        else:
            self.joint = nn.Linear(problem.dim, problem.novel)
        few = problem.known <= FEW
        self.ramp = (50 / 300, 5.0) if few else (1.0, 25.0)
        self.published = 300 * (25000 // 128 if few else 10000 // 256)  # steps that the authors train

    def forward(
        self,
        z: Float[Tensor, "n d"],
        other: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        unlabelled: Bool[Tensor, " n"],
        now: Now,
    ) -> Losses:
        """`pairs`, `consistency` and `self-training` on unlabelled images; on labelled ones, where they take part,
        `cross-entropy`.
        """
        u, (length, top) = unlabelled, self.ramp
        alike = ranking_statistics(z[u].detach())
        losses = self.novel(z[u], other[u], labels[u], alike, ramp(now.progress, length, top))
        weight = ramp(now.progress, length, catch_up(WEIGHT, self.published, now.epochs * now.steps))
        guessed = self_training(self.joint(z[u]), self.novel.logits(z[u]), self.problem.known)
        losses["self-training"] = weight * guessed
        if self.problem.labelled:
            losses["cross-entropy"] = cross_entropy(self.joint(z[~u]), labels[~u])
        return losses


class WidenedMethod(Method):
    """A method whose known and novel classes are told by one head that was widened; what it trains it says itself."""

    def __init__(self, problem: Problem, head: nn.Linear | None):
        super().__init__()
        self.problem, self.heads = problem, Widened(problem, head)

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, then novel ones, from the head over all."""
        return self.heads.joint(features)

    def novel_logits(self, features: Float[Tensor, "n dim"], novel: int) -> Float[Tensor, "n {novel}"]:
        """Novel classes, from their own head."""
        return self.heads.novel.logits(features)[:, -novel:]

    def joint_head(self) -> nn.Linear:
        """The widened head."""
        return self.heads.joint
