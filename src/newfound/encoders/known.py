"""What is known of classes among latents: by their images, or by statistics where these are not at hand."""

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound.encoders.base import Encoder, Lesson
from newfound.functional.cluster import ClassSums
from newfound.functional.geometry import covariance_root, drift, means
from newfound.networks.model import ENOUGH, Model, Statistics
from newfound.types import generator

STAND = 100
"""Points that stand for a known class whose images are not at hand."""


def compare(features: Float[Tensor, "n dim"], unit: bool) -> Float[Tensor, "n dim"]:
    """Latents as they are compared: by direction, or as they are."""
    return F.normalize(features, dim=1) if unit else features


class KnownPoints(NamedTuple):
    """Points that stand for known classes where latents are compared; each class counts as so many images."""

    points: Float[Tensor, "n dim"]
    labels: Int[Tensor, " n"]
    counts: Int[Tensor, " known"]

    def sums(self) -> ClassSums:
        """The classes as k-means is to hold them."""
        return weigh(means(self.points, self.labels, len(self.counts))[0], self.counts)


def known_points(
    encoder: Encoder[Any],
    model: Model,
    labelled: tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]] | None,
    *,
    unit: bool,
    seed: int,
) -> KnownPoints:
    """What stands for known classes: latents of their images with labels, or what is remembered of them."""
    if labelled is None:
        return points_from_statistics(encoder, model, unit=unit, seed=seed)
    latents, labels = labelled
    return KnownPoints(compare(latents, unit), labels, torch.bincount(labels, minlength=len(model.classes)))


def points_from_statistics(encoder: Encoder[Any], model: Model, *, unit: bool, seed: int) -> KnownPoints:
    """Points that stand for the classes of `model.recognisable`, drawn from what is remembered of them."""
    assert model.known is not None
    there = model.known.counts > 0
    latents, labels = encoder.sample_known(model, STAND * there.long(), seed)
    return KnownPoints(compare(latents, unit), labels, model.known.counts[there])


def weigh(centres: Float[Tensor, "known dim"], counts: Int[Tensor, " known"]) -> ClassSums:
    """Classes that so many images hold where they are."""
    return ClassSums(counts[:, None] * centres, counts.to(centres))


@torch.no_grad()
def remeasure_means(model: Model, latents: Float[Tensor, "n dim"], labels: Int[Tensor, " n"]) -> Model:
    """With the known classes' means and covariance where their images lie now."""
    return replace(model, known=Statistics.of(latents, labels, len(model.classes)))


@torch.no_grad()
def shift_means(model: Model, before: Float[Tensor, "n dim"], after: Float[Tensor, "n dim"]) -> Model:
    """With the known classes' means where they are guessed to lie now that the backbone has learnt: it took them along
    as it took unlabelled images.
    """
    assert model.known is not None
    there = (model.known.counts > 0)[:, None]
    shift = drift(model.known.means, before, after, model.known.within_covariance.trace().sqrt().item())
    return replace(model, known=model.known._replace(means=model.known.means + shift * there))


@torch.no_grad()
def turn_latents(model: Model, metric: Float[Tensor, "dim dim"]) -> Model:
    """The same with latents times an invertible matrix, and all that is known of them; its own backbone stays."""
    backbone, head = copy.deepcopy(model.backbone), copy.deepcopy(model.head)
    backbone.turn(metric)
    if head is not None:
        head.weight.copy_(torch.linalg.solve(metric.double(), head.weight.double().T).T)
    return replace(model, backbone=backbone, head=head, known=None if model.known is None else model.known.turn(metric))


@torch.no_grad()
def extend_statistics(known: Statistics | None, lesson: Lesson, x: Float[Tensor, "n dim"]) -> Statistics:
    """Statistics of a lesson's classes, by those of the classes that they are made of and by the rows that teach them.

        n_k = Σ_p n_p,   μ_k = Σ_p n_p μ_p / n_k        p: the known classes that k is made of, and its rows as one
        S = ((n − c) S_known + Σ_i (x_i − x̄)(x_i − x̄)ᵀ + Σ_k Σ_p n_p (μ_p − μ_k)(μ_p − μ_k)ᵀ) / (n′ − c′)

    That is what `Statistics.of` says of all images together, though the old ones are gone. Rows of a class that would
    have fewer than `ENOUGH` images teach nothing; a class that was known without a mean adds nothing to its own.
    """
    classes, dim = len(lesson.parts), x.shape[1]
    old = known or Statistics(torch.zeros(0, dim), torch.zeros(dim, dim), torch.zeros(0, dtype=torch.long))
    places = torch.tensor([place for some in lesson.parts for place in some if known], dtype=torch.long)
    owner = torch.tensor([k for k, some in enumerate(lesson.parts) for _ in some if known], dtype=torch.long)
    before = torch.zeros(classes, dtype=torch.long).index_add_(0, owner, old.counts[places])
    taught = lesson.labels >= 0
    enough = before + torch.bincount(lesson.labels[taught], minlength=classes) >= ENOUGH
    taught &= enough[lesson.labels]
    rows, labels = x[taught].double(), lesson.labels[taught]
    own, sizes = means(rows, labels, classes)
    centres = torch.cat([old.means[places].double(), own])
    counts, of = torch.cat([old.counts[places], sizes]), torch.cat([owner, torch.arange(classes)])
    total = before + sizes
    sums = torch.zeros(classes, dim, dtype=torch.float64).index_add_(0, of, centres * counts[:, None])
    found = sums / total.clamp(min=1)[:, None]
    within, between = rows - own[labels], centres - found[of]
    scatter = degrees_of_freedom(old.counts) * old.within_covariance.double()
    scatter = scatter + within.T @ within + between.T @ (between * counts[:, None])
    return Statistics(found.float(), (scatter / max(1, degrees_of_freedom(total))).float(), total)


def degrees_of_freedom(counts: Int[Tensor, " c"]) -> int:
    """Images less classes: what scatter within classes is divided by."""
    return int(counts.sum() - (counts > 0).sum())


def draw_normal(
    centres: Float[Tensor, "known dim"],
    within_covariance: Float[Tensor, "dim dim"],
    counts: Int[Tensor, " known"],
    seed: int,
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """So many points of normal distributions that share a covariance; their means are exact. Labels count those of
    which there are any.
    """
    centres, numbers = centres[counts > 0], counts[counts > 0]
    root = covariance_root(within_covariance).to(centres)
    labels = torch.arange(len(numbers)).repeat_interleave(numbers)
    noise = torch.randn(len(labels), len(within_covariance), generator=generator(seed, "drawn"))
    noise -= means(noise, labels, len(numbers))[0][labels]
    noise *= (numbers / (numbers - 1).clamp(min=1)).sqrt()[labels, None]
    return centres[labels] + noise @ root.T, labels
