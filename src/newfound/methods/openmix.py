"""Zhun Zhong, Linchao Zhu, Zhiming Luo, Shaozi Li, Yi Yang, Nicu Sebe:
OpenMix: Reviving Known Knowledge for Discovering Novel Visual Categories in an Open World, CVPR 2021.

Made from a description: neither the paper's text nor its code was at hand. That unlabelled images are blended with
labelled ones, and with unlabelled ones of high class probability (the paper's "reliable anchors"), is certain. Not
confirmed are how pairs are guessed (NCL's cosine, by the same authors), Beta(1, 1), that the surer side always has the
larger share, sharpening with T = 0.5, the probability of 0.9, cross-entropy where L2 is possible, and the ramp.
"""

from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound import parallel
from newfound.functional import pseudo
from newfound.functional.losses import soft_cross_entropy
from newfound.functional.schedules import ramp
from newfound.methods.base import APPENDED, Method, Recipe, unlabelled_rows
from newfound.methods.pairwise import TRAINING, Pairwise
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem


def partners(labels: Int[Tensor, " n"], random: torch.Generator) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """Whom each image is blended with, and the share of the blend that it keeps for itself.

        keep_i = λ where labelled, else 1 − λ,   λ = max(β, 1 − β),   β ~ Beta(1, 1)

    The partner is an unlabelled image, and another one while there are two; an image that finds none is its own.
    """
    labelled, places = labels >= 0, (labels < 0).nonzero().squeeze(1)
    partner, n = torch.arange(len(labels)), len(places)
    if n > 0:
        partner[labelled] = places[torch.randint(n, (len(labels) - n,), generator=random)]
        further = torch.randint(1, max(n, 2), (n,), generator=random)
        partner[places] = places[(torch.arange(n) + further) % n]
    beta = torch.rand(len(labels), generator=random)
    share = torch.maximum(beta, 1 - beta)
    return partner, torch.where(labelled, share, 1 - share)


def blend(
    own: Float[Tensor, " n *rest"], other: Float[Tensor, " n *rest"], keep: Float[Tensor, " n"]
) -> Float[Tensor, " n *rest"]:
    """Two images, or two labels, in one: keep_i own_i + (1 − keep_i) other_i."""
    keep = keep.view(-1, *[1] * (own.ndim - 1))
    return keep * own + (1 - keep) * other


def joint_labels(labels: Int[Tensor, " n"], guess: Float[Tensor, "n novel"], known: int) -> Float[Tensor, "n classes"]:
    """Labels over known and novel classes together: [y, 0] where labelled, [0, guess] where not."""
    u = (labels < 0)[:, None]
    certain = F.one_hot(labels.clamp(min=0), known).to(guess.dtype)
    return torch.cat([certain.masked_fill(u, 0), guess.masked_fill(~u, 0)], dim=1)


@final
class OpenMix(Method):
    """Blend each image with a surer one, so that at least half of the blend's label can be trusted.

        x̃ = λ x_s + (1 − λ) x_u,   t̃ = λ t_s + (1 − λ) t_u,   λ ≥ ½
        L = L_pairwise + w(t) · CE([h_l, h_u](z̃), t̃)

    A labelled image is the surer one of its blend, t_s = [y, 0]. An unlabelled image is blended with another one, and
    the blend counts where that one is sure: where one novel class has at least the probability `sure`. Labels of
    unlabelled images are guessed, [0, g], with g the mean of p_u over two views, sharpened. The one head over all
    classes is the two heads of `Pairwise`, side by side.
    """

    def __init__(self, problem: Problem, head: nn.Linear | None = None, *, sure: float = 0.9, temperature: float = 0.5):
        super().__init__()
        self.problem, self.sure, self.temperature = problem, sure, temperature
        self.pairs = Pairwise(problem, pseudo.cosine, head=head)

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Append each image blended with its partner, wherever that one is.

        Notes: `partner`, its place in the whole batch, and `keep`, the image's own share.
        """
        images, labels = parallel.gather(batch.views[0]), parallel.gather(batch.labels)
        own = parallel.part(len(labels))
        partner, keep = (drawn[own] for drawn in partners(labels.cpu(), now.random("openmix")))
        partner, keep = partner.to(labels.device), keep.to(images)
        blends = blend(batch.views[0], images[partner], keep)
        notes = {"partner": partner, "keep": keep, APPENDED: torch.ones_like(partner)}
        return batch._replace(views=[*batch.views, blends], notes=batch.notes | notes)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`blends`, and the losses of `Pairwise`."""
        u = unlabelled_rows(batch, self.problem)
        partner, keep = batch.notes["partner"], batch.notes["keep"]
        guess = torch.stack([self.pairs.heads.novel(view.z).softmax(1) for view in latents[:2]]).mean(0)
        # An unlabelled image meets any other; who is sure is asked only here. To know it in `prepare`, guesses of an
        # epoch ago would have to be kept for every image.
        counts = ~u | (guess.amax(1) >= self.sure)[partner]
        labels = joint_labels(batch.labels, pseudo.sharpen(guess, self.temperature), self.problem.known)
        target = blend(labels, labels[partner], keep)
        loss = soft_cross_entropy(self.logits(latents[-1].z[counts]), target[counts])
        length, _ = self.pairs.ramp
        return self.pairs(latents, batch, now) | {"blends": ramp(now.progress, length, 1.0) * loss}

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Known classes, then novel ones."""
        return self.pairs.logits(features)


def build(problem: Problem, model: Model) -> Method:
    """The head of the known classes starts as a copy of stage one's."""
    return OpenMix(problem, model.head)


recipe = Recipe(
    "Zhong et al., CVPR 2021",
    build,
    "needed",
    TRAINING,
    "head",
    pixels=True,
    stage_one=("rotation", "supervised"),
    described=True,
)
