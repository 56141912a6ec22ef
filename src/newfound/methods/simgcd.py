"""Xin Wen, Bingchen Zhao, Xiaojuan Qi:
Parametric Classification for Generalized Category Discovery: A Baseline Study, ICCV 2023.

SimGCD, whose unlabelled images may be of known classes too. From the authors' code, with their settings. They begin
with DINO's ViT-B/16, which has seen no labels, draw labelled and unlabelled images equally often, and keep biases from
decaying; here stage one comes before, images come as they are, and all that learns decays.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from newfound.functional.losses import cross_entropy, info_nce, soft_cross_entropy
from newfound.functional.schedules import cosine, linear
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.networks.heads import Cosine
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem, Scalar, Training

TEMPERATURE = 0.1
"""What cosines are divided by before they are logits."""
TEACHER = (0.15, 0.07, 0.04)
"""What they are divided by where they are targets: share of the run (30 of 200 epochs), first and last value. Within
an epoch the authors hold it constant."""
CONTRAST, LABELLED_CONTRAST = 1.0, 0.07
"""Temperatures of InfoNCE on all images, and on the labelled ones."""


def distillation(a: Float[Tensor, "n classes"], b: Float[Tensor, "n classes"], temperature: float) -> Scalar:
    """How surprised each of two views is by what the other, surer of itself, says; both given as cosines.

        −½ mean_i Σ_c [ q̄_ic log p_ic + q_ic log p̄_ic ],   p = softmax(s/0.1),   q = sg softmax(s/τ)

    p, q are of the first view, p̄, q̄ of the second. Below τ = 0.1 a target is surer than the prediction beside it.
    """
    one = soft_cross_entropy(a / TEMPERATURE, (b / temperature).softmax(1))
    two = soft_cross_entropy(b / TEMPERATURE, (a / temperature).softmax(1))
    return (one + two) / 2


def unevenness(p: Float[Tensor, "n classes"]) -> Scalar:
    """How far from equally large the classes are, given class probabilities.

        log K − H(p̄),   H(p̄) = −Σ_k p̄_k log p̄_k,   p̄ = mean_i p_i

    0 where all K are equally large, log K where one has everything; 0, with a gradient, of no images.
    """
    if len(p) == 0:
        return p.sum()
    shares = p.mean(0).clamp(min=torch.finfo(p.dtype).tiny)  # 0 log 0 = 0 has no gradient
    return math.log(p.shape[1]) - torch.special.entr(shares).sum()


@final
class SimGcd(Method):
    """One head for known and novel classes learns from labels, and from what it says itself of the other view.

        L = (1 − λ) [L_cluster + L_con] + λ [L_sup + L_supcon],   λ = 0.35
        L_cluster = distillation(s, s̄) + ε · unevenness(p)        on all images and all K classes
        L_con = InfoNCE(g(z), g(z̄)), τ = 1;   L_supcon: on labelled images, alike by label, τ = 0.07
        L_sup = CE(s/0.1, y), of both views

    s are cosines of latents with K prototypes, p = softmax(s/0.1) of both views. ε is the authors' default; for
    CIFAR-10 they take 1, for CIFAR-100 4.

    K is `problem.classes`, the classes that come: ε wants all equally large, and a prototype whose class does not come
    takes its share from others. So in two stages known classes have prototypes only where they may come
    (`problem.mixed`). The supervised half is absent then, and the rest weighs what it did.

    Prototypes start anywhere, as the authors' do; labels will say whose each is. Where none will, those of known
    classes start at `known`, the classes' mean latents.

    The projector g, which no reading looks at, is DINO's: two hidden layers, GELU, no BatchNorm. `hidden` and `out`
    are 8/3 and 1/3 of the latents' size, as the authors' 2048 and 256 are of 768.
    """

    def __init__(
        self,
        problem: Problem,
        known: Float[Tensor, "known dim"] | None = None,
        *,
        epsilon: float = 2.0,
        labelled_weight: float = 0.35,
        hidden: int | None = None,
        out: int | None = None,
    ):
        super().__init__()
        self.problem, self.epsilon, self.labelled_weight = problem, epsilon, labelled_weight
        self.head = Cosine(problem.dim, problem.classes)  # authors: weight-normalised; here rows are projected
        if known is not None:
            told = known.any(1).nonzero()[:, 0]  # a class of too few images has no mean: it starts anywhere
            with torch.no_grad():
                self.head.weight[told] = F.normalize(known[told], dim=1).to(self.head.weight)
        hidden, out = hidden or max(1, 8 * problem.dim // 3), out or max(1, problem.dim // 3)
        self.projector = nn.Sequential(
            nn.Linear(problem.dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, out)
        )

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`distillation`, `unevenness` and `contrast` on all rows; where labelled images take part, `cross-entropy`
        and `labelled contrast` on theirs.
        """
        l, labels = ~unlabelled_rows(batch, self.problem), batch.labels  # noqa: E741
        (a, b), (v, w) = ([part(view.z) for view in latents[:2]] for part in (self.head, self.projector))
        logits = torch.cat([a, b]) / TEMPERATURE
        alone = torch.zeros(len(v), len(v), dtype=torch.bool, device=v.device)
        rest = 1 - self.labelled_weight
        losses = {
            "distillation": rest * distillation(a, b, linear(now.progress, *TEACHER)),
            "unevenness": rest * self.epsilon * unevenness(logits.softmax(1)),
            "contrast": rest * info_nce(v, w, alone, CONTRAST),
        }
        if self.problem.labelled:
            same = labels[l, None] == labels[l]
            losses["cross-entropy"] = self.labelled_weight * cross_entropy(logits[l.repeat(2)], labels[l].repeat(2))
            losses["labelled contrast"] = self.labelled_weight * info_nce(v[l], w[l], same, LABELLED_CONTRAST)
        return losses

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Prototypes of unit length again."""
        self.head.project()

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, where there are prototypes for them, then novel ones."""
        return self.head(features) / TEMPERATURE


def build(problem: Problem, model: Model) -> Method:
    """SimGCD as its paper has it; where known classes come and labels do not, their prototypes start at the means."""
    known = model.known if problem.mixed and not problem.labelled else None
    return SimGcd(problem, None if known is None else known.means)


recipe = Recipe(
    "Wen et al., ICCV 2023",
    build,
    "optional",
    Training(epochs=200, batch=128, rate=0.1, decay=5e-5, schedule=partial(cosine, end=1e-3), trains=1),
    "head",
)
