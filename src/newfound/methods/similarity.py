"""Yen-Chang Hsu, Zhaoyang Lv, Zsolt Kira:
Learning to Cluster in Order to Transfer Across Domains and Tasks, ICLR 2018 (KCL).

Yen-Chang Hsu, Zhaoyang Lv, Joel Schlosser, Phillip Odom, Zsolt Kira:
Multi-class Classification without Multi-class Labels, ICLR 2019 (MCL).

Two papers, one method: a similarity network learns from labelled images whether two of them share a class
(`Similarity`), then guesses it of unlabelled ones, and a new network learns classes that agree (`FromSimilarity`).
They differ in the loss of a pair. Settings are those of the authors' Omniglot runs; none for CIFAR were published.
"""

from collections.abc import Callable
from functools import partial
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor, nn

from newfound.errors import InputError
from newfound.functional import losses
from newfound.functional.schedules import steps
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.networks.backbone import Frozen
from newfound.networks.model import Model
from newfound.networks.similarity import PairHead, PairNet
from newfound.types import Batch, Latents, Losses, Now, Problem, Scalar, Training

PairLoss = Callable[[Float[Tensor, "n c"], Bool[Tensor, "n n"]], Scalar]

NEEDED = (
    "asks a network which images share a class, and the model has none. Make one that has, from the labelled images: "
    "`newfound pretrain --similarity`."
)

SIMILARITY_TRAINING = Training(
    epochs=50,
    batch=100,
    rate=1e-3,
    optimiser="adam",
    decay=0.0,
    schedule=partial(steps, at=(30 / 50, 40 / 50)),
    views=("weak",),
    classes_per_batch=20,  # five images of each: of all pairs one in twenty is alike
)
"""For `Similarity`."""


@final
class Similarity(Method):
    """Stage one: learn on labelled images whether two of them share a class.

        L = −mean_ij log softmax(s_ij)_c,   c = 1[y_i = y_j]

    over all ordered pairs, i = j among them. With the backbone that was trained, `pairs` makes a `PairNet`.
    """

    def __init__(self, problem: Problem):
        super().__init__()
        self.pairs = PairHead(problem.dim)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`similarity`, of the first view."""
        l = batch.labels >= 0  # noqa: E741
        same = batch.labels[l][:, None] == batch.labels[l]
        scores = self.pairs(latents[0].z[l])
        return {"similarity": losses.cross_entropy(scores.flatten(0, 1), same.flatten().long())}


@final
class FromSimilarity(Method):
    """Make the head agree with a frozen similarity network about which images are alike.

        L = loss(p, alike),   alike_ij = 1[s_ij says "same class"],   p = softmax(h(z))

    over all ordered pairs of the first view. The similarity network keeps its weights, but its BatchNorm uses each
    batch's statistics, to suit the new images. In several processes its backbone normalises each process's own
    images, as the backbone that learns does; its pair head sees the latents of all.
    """

    def __init__(self, problem: Problem, similarity: PairNet, loss: PairLoss):
        super().__init__()
        self.problem, self.loss = problem, loss
        self.backbone = Frozen(similarity.backbone, "batch")
        self.pairs = Frozen(similarity.pairs, "batch")
        self.novel = nn.Linear(problem.dim, problem.unlabelled_classes)

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Let the similarity network look; its latents are the note."""
        batch.notes["similarity"] = self.backbone(batch.views[0]).z
        return batch

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`pairs`."""
        u = unlabelled_rows(batch, self.problem)
        alike = self.pairs(batch.notes["similarity"][u]).argmax(2) == 1
        return {"pairs": self.loss(self.novel(latents[0].z[u]).softmax(1), alike)}

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Novel classes alone."""
        return self.novel(features)


def likelihood(p: Float[Tensor, "n c"], alike: Bool[Tensor, "n n"]) -> Scalar:
    """MCL's loss: pairwise binary cross-entropy of one view with itself."""
    return losses.pairwise_bce(p, p, alike)


def build(problem: Problem, model: Model, *, name: str, loss: PairLoss) -> Method:
    """Either of the two; a model without a similarity network is refused."""
    if model.similarity is None:
        raise InputError(f"{name} {NEEDED}")
    return FromSimilarity(problem, model.similarity, loss)


_TRAINING = Training(
    epochs=150,
    batch=100,
    rate=1e-3,
    optimiser="adam",
    decay=0.0,
    schedule=partial(steps, at=(2 / 3,)),
    views=("weak",),
)


def _recipe(paper: str, name: str, loss: PairLoss) -> Recipe:
    return Recipe(
        paper,
        partial(build, name=name, loss=loss),
        "unused",
        _TRAINING,
        "head",
        pixels=True,
        stage_one=("similarity",),
        start="new",
    )


kcl = _recipe("Hsu et al., ICLR 2018", "kcl", losses.kcl)
mcl = _recipe("Hsu et al., ICLR 2019", "mcl", likelihood)
