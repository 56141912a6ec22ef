"""Where prototypes start, which anchors push them apart, and how they move: pure functions."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.errors import InputError
from newfound.functional.cluster import Clustering, kmeans, semi_supervised_kmeans
from newfound.functional.geometry import equidistant, means, nearest, orthonormal, target_distance
from newfound.spacing.presets import Preset


def place(
    z: Float[Tensor, "all d"], labels: Int[Tensor, " all"], classes: int, random: torch.Generator, *, mixed: bool
) -> Clustering:
    """Prototypes by k-means; those of known classes, which come first, at labelled means, or held near them where
    unlabelled images may be of known classes too (`mixed`).
    """
    labelled, known = labels >= 0, int(labels.max()) + 1
    if known == 0 or mixed:
        return semi_supervised_kmeans(z, labels, classes, random)
    rest = kmeans(z[~labelled], classes - known, random)
    centres = torch.cat([means(z[labelled], labels[labelled], known)[0], rest.centres])
    return rest._replace(centres=centres, assignment=labels.masked_scatter(~labelled, known + rest.assignment))


def place_anchors(prototypes: Float[Tensor, "c d"], preset: Preset, random: torch.Generator) -> Float[Tensor, "c d"]:
    """Anchors of the preset's orientation (Algorithm 1); zeros where it has none."""
    if preset.orientation == "none":
        return torch.zeros_like(prototypes)
    if preset.orientation == "orthonormal":
        return orthonormal(prototypes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="alpha = 1 ")  # the author's preset, not a slip
        warnings.filterwarnings("ignore", message=".*cannot be equidistant")  # `warn_of_room` says what to do, once
        distance = target_distance(prototypes, preset.alpha, preset.cap if preset.unit else None)
        return equidistant(prototypes, distance, preset.orientation, random)


def warn_of_room(classes: int, dim: int, preset: Preset) -> None:
    """Say, where classes are to lie equally far apart and cannot, what to do. To be called once a run."""
    if preset.orientation not in ("none", "orthonormal") and classes > dim + 1:
        warnings.warn(
            f"{classes} classes cannot all lie equally far apart in {dim} dimensions, which have room for {dim + 1}: "
            "they are spread as evenly as can be. For more room take a backbone with latents of more dimensions, or "
            "look for fewer classes.",
            stacklevel=3,
        )


@contextmanager
def silent_about_room() -> Iterator[None]:
    """Say nothing of it, where nobody chose the number of dimensions or could choose another."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* cannot all lie equally far apart")
        yield


def check_labels(labels: Int[Tensor, " all"], classes: int, *, mixed: bool) -> None:
    """Refuse labels of more known classes than there is a prototype for; where unlabelled latents are of other classes
    alone (not `mixed`), one prototype at least is left for these.
    """
    known = int(labels.max()) + 1
    if known > classes - (not mixed):
        raise InputError(
            f"Labels tell of {known} known classes, and SpacingLoss has {classes} prototypes. Needed: one for every "
            f"class, known and novel{'' if mixed else ', so one more at least'}. Give `classes` the number of both."
        )
    if not mixed and (free := int((labels < 0).sum())) < classes - known:
        raise InputError(
            f"SpacingLoss has {classes} prototypes, {classes - known} of them of novel classes, and starts with {free} "
            "unlabelled latents. Needed: one for each of these at least. Give `start` those of unlabelled images too."
        )


class Update(NamedTuple):
    """Prototypes and counts after some latents were seen, and which prototype each latent went to."""

    prototypes: Float[Tensor, "c d"]
    counts: Float[Tensor, " c"]
    assignment: Int[Tensor, " n"]


def move(
    z: Float[Tensor, "n d"],
    prototypes: Float[Tensor, "c d"],
    anchors: Float[Tensor, "c d"],
    counts: Float[Tensor, " c"],
    assignment: Int[Tensor, " n"] | None = None,
) -> Update:
    """Let each latent move its nearest prototype towards itself plus the anchor (Algorithm 2, lines 10–15).

        p_k ← (v_k p_k + Σ z_i + n_k e_k) / (v_k + n_k),   v_k ← v_k + n_k

    The paper's loop over samples in closed form: assignments are fixed before it, so order does not matter.
    Prototypes that no latent went to stay. Where an `assignment` is given, it takes the place of the nearest one.
    """
    assignment = nearest(z, prototypes) if assignment is None else assignment
    centres, n = means(z, assignment, len(prototypes))
    v = counts + n
    share = (n / v.clamp(min=1))[:, None]
    return Update(torch.lerp(prototypes, centres + anchors, share), v, assignment)
