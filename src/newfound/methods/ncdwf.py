"""K J Joseph, Sujoy Paul, Gaurav Aggarwal, Soma Biswas, Piyush Rai, Kai Han, Vineeth N Balasubramanian:
Novel Class Discovery without Forgetting, ECCV 2022 (NCDwF).

Made from a description; no code is public, and of the paper's text only the abstract was at hand. Certain are the three
parts: pseudo-latents of known classes from the old head alone, a regulariser by mutual information, a classifier that
tells known classes from novel ones. Our own reading: how a latent is found (steps, rate and its start, and that it is
drawn to the size of real ones), between what the information is (the two heads' judgements of two views of an image),
the form of the classifier (linear), and all weights, which are 1.
"""

from typing import final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound.errors import InputError
from newfound.functional.losses import cross_entropy, mean, mutual_information
from newfound.functional.pseudo import ranking_statistics
from newfound.functional.schedules import ramp
from newfound.methods.base import Method, Recipe, unlabelled_rows
from newfound.methods.pairwise import TRAINING, Heads, default_ramp
from newfound.networks.model import Model
from newfound.types import Batch, Latents, Losses, Now, Problem

STEPS, RATE = 20, 0.3
"""Steps by which a latent is found, and η, their length as a share of the latent's."""


def invert(
    weight: Float[Tensor, "known dim"],
    bias: Float[Tensor, " known"],
    labels: Int[Tensor, " n"],
    start: Float[Tensor, "n dim"],
) -> Float[Tensor, "n dim"]:
    """Latents that a head takes for given classes: pseudo-latents, found by gradient descent from `start`.

        z ← s · unit(z − η s · unit(∂CE(W z + b, y)/∂z)),   ∂CE/∂z = Wᵀ(softmax(W z + b) − onehot(y))

    s is the mean length at the start, which they keep. The gradient is written out, so that none is recorded.
    """
    size, z = start.norm(dim=1).mean(), start
    wanted = F.one_hot(labels, len(weight)).to(weight)
    for _ in range(STEPS):
        gradient = ((z @ weight.T + bias).softmax(1) - wanted) @ weight
        z = size * F.normalize(z - RATE * size * F.normalize(gradient, dim=1), dim=1)
    return z


@final
class Ncdwf(Method):
    """Novel classes by pairs and by what the known head says of them; known ones held by latents that the old head is
    sure of; and a classifier that tells which of the two heads to ask.

        L = BCE(p_u(z)·p_u(z̄), alike) + w(t) MSE(p_u(z), p_u(z̄)) − I(p_l(z) ; p_u(z̄)) + CE(h_l(z̃), ỹ) + BCE(κ)
        p(k | z) = σ(κ(z)) p_l(z)_k  for known classes,   (1 − σ(κ(z))) p_u(z)_k  for novel ones

    z̃ are pseudo-latents (`invert`) of the old head, as many as there are images in the batch; κ learns to tell them
    from the batch's latents. Where labelled images take part, they take the place of pseudo-latents.
    """

    def __init__(self, problem: Problem, head: nn.Linear | None = None):
        super().__init__()
        self.problem = problem
        self.novel = Heads(problem._replace(labelled=False, mixed=False))
        self.known, self.identifier = nn.Linear(problem.dim, problem.known), nn.Linear(problem.dim, 1)
        if head is not None:
            self.known.load_state_dict(head.state_dict())
        self.register_buffer("old_weight", self.known.weight.detach().clone())
        self.register_buffer("old_bias", self.known.bias.detach().clone())
        self.ramp = default_ramp(problem.novel)

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """`pairs`, `consistency`, `information`, `replay` and `identifier`."""
        u = unlabelled_rows(batch, self.problem)
        z, other = latents[0].z[u], latents[1].z[u]
        alike = ranking_statistics(z.detach())
        losses: Losses = self.novel(z, other, batch.labels[u], alike, ramp(now.progress, *self.ramp))
        together = self.known(z).softmax(1), self.novel.logits(other).softmax(1)
        past, labels = self._past(latents[0].z, batch.labels, now)
        side = torch.cat([self.identifier(z.detach()), self.identifier(past.detach())])[:, 0]
        of_known = torch.cat([torch.zeros(len(z)), torch.ones(len(past))]).to(side)
        surprise = F.binary_cross_entropy_with_logits(side, of_known, reduction="none")
        return losses | {
            "information": -mutual_information(*together),
            "replay": cross_entropy(self.known(past), labels),
            "identifier": mean(surprise),
        }

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"]:
        """Logarithms of p(k | z): known classes, then novel ones."""
        side = self.identifier(features)
        known = F.logsigmoid(side) + self.known(features).log_softmax(1)
        return torch.cat([known, F.logsigmoid(-side) + self.novel.logits(features).log_softmax(1)], dim=1)

    def _past(
        self, z: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], now: Now
    ) -> tuple[Float[Tensor, "m dim"], Int[Tensor, " m"]]:
        """Latents of known classes with their labels: of labelled images, or found for the old head."""
        if self.problem.labelled:
            return z[labels >= 0], labels[labels >= 0]
        random = now.random("pseudo-latents")
        wanted = torch.randint(0, self.problem.known, (len(z),), generator=random).to(z.device)
        start = z.detach()[torch.randperm(len(z), generator=random).to(z.device)]
        return invert(self.get_buffer("old_weight"), self.get_buffer("old_bias"), wanted, start), wanted


def build(problem: Problem, model: Model) -> Method:
    """The known head starts as stage one's, which is also the one that pseudo-latents are found for."""
    if not problem.known:
        raise InputError("ncdwf learns novel classes beside known ones, and none is known. Take anchored, or frost.")
    return Ncdwf(problem, model.head)


recipe = Recipe(
    "Joseph et al., ECCV 2022",
    build,
    "optional",
    TRAINING,
    "head",
    described=True,
)
