"""Enrico Fini, Enver Sangineto, Stéphane Lathuilière, Zhun Zhong, Moin Nabi, Elisa Ricci:
A Unified Objective for Novel Class Discovery, ICCV 2021.

As the second version of the authors' code has it, which the higher published numbers belong to: small views that only
predict, more over-clustering, a longer run. (The first took its softmax across the batch instead of the classes.)
"""

from collections.abc import Callable
from functools import partial
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound.functional.losses import mean, swapped_cross_entropy
from newfound.functional.pseudo import sinkhorn
from newfound.functional.schedules import warm_cosine
from newfound.methods.base import Method, Own, Recipe, unlabelled_rows
from newfound.networks.heads import Cosine, projector
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Survey, Training

LARGE = 2
"""Views that give targets, counted from the first; all views predict."""

TEMPERATURE = 0.1
"""What cosines are divided by before they are logits."""


def targets(
    novel: Float[Tensor, "*heads n novel"], labels: Int[Tensor, " n"], known: int
) -> Float[Tensor, "*heads n classes"]:
    """What each image should be judged as: a labelled one as its label says, an unlabelled one as Sinkhorn guesses.

        t_i = [onehot(y_i) ; 0]  where labelled,   [0 ; sinkhorn(cosines of the unlabelled rows)_i]  where not

    `novel` are the cosines of a head for novel classes; known classes come first in the target. No gradient.
    """
    u = labels < 0
    guess = sinkhorn(novel[..., u, :])
    target = guess.new_zeros(*novel.shape[:-1], known + novel.shape[-1])
    target[..., :known] = labels[:, None] == torch.arange(known, device=labels.device)
    target[..., u, known:] = guess
    return target


def over_clustering(novel: int) -> int:
    """How many times more classes the over-clustering heads have: the authors' numbers for 5, 20 and 50 novel ones."""
    return 10 if novel <= 5 else 5 if novel <= 20 else 3


@final
class Uno(Method):
    """One cross-entropy over known and novel classes together; targets are labels, or what another view's head says.

        L = ½ · mean_h [ mean_i ℓ_ih(novel heads) + mean_i ℓ_ih(over-clustering heads) ]

    with ℓ as in `swapped_cross_entropy`, its logits the cosines of [labelled head ; novel head h], divided by 0.1. Each
    novel head is a projector and unit prototypes; an over-clustering head has `over` prototypes for each novel class.
    The head whose ℓ was smallest over the epoch is the one read. In two stages novel heads stand alone (UNO*).

    `hidden` and `out` of the projectors are 4 and ½ times the latents' size, as the authors' 2048 and 256 are of 512.
    The labelled head starts at the rows of `head`, made unit vectors, where it has a row for each known class.
    """

    head_loss: Float[Tensor, " heads"]

    def __init__(
        self,
        problem: Problem,
        head: nn.Linear | None = None,
        *,
        heads: int = 4,
        over: int | None = None,
        hidden: int | None = None,
        out: int | None = None,
    ):
        super().__init__()
        self.problem = problem
        self.labelled = Cosine(problem.dim, problem.known) if problem.labelled else None
        if self.labelled is not None and head is not None and head.weight.shape == self.labelled.weight.shape:
            self.labelled.load_state_dict({"weight": head.weight})
            self.labelled.project()
        sizes = problem.dim, hidden or 4 * problem.dim, out or max(1, problem.dim // 2)
        more = problem.unlabelled_classes * (over or over_clustering(problem.unlabelled_classes))
        self.novel = nn.ModuleList(_head(sizes, problem.unlabelled_classes) for _ in range(heads))
        self.over = nn.ModuleList(_head(sizes, more) for _ in range(heads))
        self.register_buffer("head_loss", torch.zeros(heads))  # of this epoch so far; the least is the best

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Forget how the heads fared."""
        self.head_loss.zero_()

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`swapped` and `over-clustered`, on all rows of all views."""
        unlabelled_rows(batch, self.problem)
        swap, over = (self._surprise(heads, latents, batch.labels) for heads in (self.novel, self.over))
        batch.notes["loss of heads"] = swap.detach()
        return {"swapped": mean(swap) / 2, "over-clustered": mean(over) / 2}

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Prototypes of unit length again; add up the heads' losses."""
        for module in self.modules():
            if isinstance(module, Cosine):
                module.project()
        note = batch.notes["loss of heads"]
        self.head_loss += note.sum(0) / max(len(note), 1)

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, where there is a head for them, then the novel ones of the best head."""
        best = int(self.head_loss.argmin())
        return self._cosines(self.novel[best : best + 1], features)[0] / TEMPERATURE

    def log(self) -> dict[str, float]:
        """Which head is the best, counted from 0."""
        return {"best head": float(self.head_loss.argmin())}

    def _surprise(
        self, heads: nn.ModuleList, latents: list[Latents], labels: Int[Tensor, " n"]
    ) -> Float[Tensor, "n heads"]:
        known = self.problem.known if self.problem.labelled else 0
        # view by view, so that each view has its own statistics in the projectors' BatchNorm, as with the authors
        cosines = torch.stack([self._cosines(heads, view.z) for view in latents])
        return swapped_cross_entropy(cosines / TEMPERATURE, targets(cosines[:LARGE, ..., known:], labels, known)).T

    def _cosines(self, heads: nn.ModuleList, z: Float[Tensor, "n dim"]) -> Float[Tensor, "heads n classes"]:
        novel = torch.stack([head(z) for head in heads])
        known = z[:, :0] if self.labelled is None else self.labelled(z)
        return torch.cat([known.expand(len(heads), -1, -1), novel], dim=2)


def _head(sizes: tuple[int, int, int], classes: int) -> nn.Sequential:
    return nn.Sequential(projector(*sizes), Cosine(sizes[-1], classes))


def build(problem: Problem, model: Model) -> Method:
    """UNO with the heads of its second version."""
    return Uno(problem, model.head)


_RATE, _LEAST = 0.4, 0.001

recipe = Recipe(
    "Fini et al., ICCV 2021",
    build,
    "optional",
    Training(
        epochs=500,
        batch=512,
        rate=_RATE,
        decay=1.5e-4,
        schedule=partial(warm_cosine, warm=10 / 500, start=_LEAST / _RATE, end=_LEAST / _RATE),
        views=("strong", "strong", "small", "small"),
    ),
    "head",
    own=Own(30, 0.05, partial(warm_cosine, warm=0.1, start=0.01, end=0.01)),
)
