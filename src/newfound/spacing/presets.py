"""How the paper is read: `paper` to the letter, `author` as its first author's code does, `aligned` with anchors turned
onto the prototypes, `dcn` the control without anchors; and `swapped`, ours, in which the views of an image learn from
one another, with `unanchored` as its control.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from newfound.errors import InputError, choices


@dataclass(frozen=True)
class Swap:
    """How the views of an image learn from one another; prototypes then lie on the unit sphere, as latents do."""

    temperature: float = 0.1
    """τ: what cosines are divided by to predict an assignment."""
    epsilon: float = 0.05
    """ε: what they are divided by to make one; smaller is surer."""
    balance: Literal["equal", "learnt", "none"] = "learnt"
    """How much each class gets of a batch: the same; half-way between that and what it had lately, and where any known
    class may be absent all the way; or what comes, and then all images soon go to one class."""
    pace: float = 0.01
    """How far learnt shares go towards those of a batch in a step."""
    memory: float = 0.8
    """How much of what an image is assigned by comes, at the end of the run, from how it was seen in earlier epochs."""
    restarts: tuple[float, ...] = (1 / 3, 2 / 3)
    """Shares of the run at which k-means places the prototypes anew: what it found in the latents that came is often
    wrong, and views that agree have made better ones since."""
    finer: int = 10
    """Prototypes for each novel class in a second set, whose loss counts as much as that of the first; 0: no such set.
    Over-clustering (Ji et al. 2019, as UNO has it): where k-means joins two classes, or cuts one, finer prototypes
    still tell their images apart. For the method `Spacing` alone: a loop of your own takes a second `SpacingLoss`."""
    large: int = 2
    """Views that give assignments, counted from the first; the others only learn."""


@dataclass(frozen=True)
class Preset:
    """One reading of the paper."""

    weight: float
    """λ in λ · mean_i ‖z_i − p‖² (sum over dims, mean over the batch), or of the cross-entropy that `swap` takes
    instead; chosen on pretend-novel classes (decisions 5 and 9)."""
    unit: bool = True
    """Whether latents are L2-normalised inside; the host sees them as they are."""
    whiten: float | None = 0.3
    """How far the known classes' within-class covariance, where it is known, is shrunk before latents are whitened
    by it (before they are normalised); None: never whitened."""
    alpha: float = 1.1
    """Anchors are α times the largest prototype distance apart,"""
    cap: float | None = math.sqrt(2)
    """but on the unit sphere no more than this: the distance of orthogonal latents, the largest of latents ≥ 0."""
    orientation: Literal["orthonormal", "aligned", "random", "none"] = "aligned"
    """Which anchors: orthonormal ones, a simplex turned onto the prototypes, one turned at random, or none."""
    initial: float | None = None
    """The count v₀ every prototype starts with; None: as many as k-means gave it."""
    known: Literal["means", "k-means"] = "means"
    """Where prototypes of known classes start, when labelled images take part."""
    update: Literal["before_loss", "after_step", "reembed"] = "after_step"
    """When prototypes move: before the loss; after the step with the latents seen; after the step with latents
    that the moved backbone computes again."""
    start: float = 0.0
    """Share of the run before it begins."""
    swap: Swap | None = None
    """How views learn from one another; None: the first is pulled to its nearest prototype, as the paper has it."""

    def __post_init__(self) -> None:
        if self.swap is not None and not (self.unit and self.update == "after_step"):
            raise InputError(
                f"A preset in which views learn from one another has unit={self.unit}, update={self.update!r}. Needed: "
                "unit latents, and prototypes that move after the step. Change these two, or leave `swap` out."
            )


def swapped() -> Preset:
    """Ours: each view is drawn to the prototypes that its other views are assigned to, with balance."""
    return Preset(weight=1.0, orientation="orthonormal", swap=Swap())


def unanchored() -> Preset:
    """The control of `swapped`: the same without anchors."""
    return replace(swapped(), orientation="none")


def aligned() -> Preset:
    """The paper's rule with the simplex turned onto the prototypes, and counts that remember k-means."""
    return Preset(weight=1.0)


def paper() -> Preset:
    """Algorithm 2 to the letter; α = 1.1 where the paper says only "> 1"."""
    return Preset(
        weight=0.001, unit=False, whiten=None, orientation="random", initial=0.0, known="k-means", update="reembed"
    )


def author() -> Preset:
    """As the first author's code: unit latents, v₀ = 100, α = 1, prototypes move before the loss.

    Its ½ β Σ_i mean_d (z − p)², β = 5, is λ = β B / 2 d: 0.625 in batches of 128 and 512 dimensions, 2.5 in 128. Our
    anchors are exact where its SMACOF stops early, and k-means sees images unaugmented.
    """
    return Preset(
        weight=0.625,
        whiten=None,
        alpha=1.0,
        cap=None,
        orientation="random",
        initial=100.0,
        known="k-means",
        update="before_loss",
        start=0.025,
    )


def author_two_stage() -> Preset:
    """As his script for two stages on ImageNet: β = 5 in batches of 512 is λ = 2.5, from epoch 5 of 50 on."""
    return replace(author(), weight=2.5, start=0.1)


def dcn(of: Preset | None = None) -> Preset:
    """The same self-training without anchors (Yang et al. 2017): the control of another preset, by default of
    `aligned` with the weight that is best for it (decision 5).
    """
    return replace(of or replace(aligned(), weight=0.3), orientation="none")


PRESETS = {
    "swapped": swapped,
    "unanchored": unanchored,
    "aligned": aligned,
    "paper": paper,
    "author": author,
    "author-two-stage": author_two_stage,
    "dcn": dcn,
}


def resolve(
    preset: Preset | str | None = None,
    *,
    weight: float | None = None,
    alpha: float | None = None,
    initial: float | None = None,
) -> Preset:
    """A preset as it is or by its name, by default `swapped`; λ, α and v₀ are its own where none is given."""
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise InputError(f"Spacing has no preset called {preset!r}. {choices(preset, PRESETS)}")
        preset = PRESETS[preset]()
    preset = preset or swapped()
    if alpha is not None and preset.orientation in ("orthonormal", "none"):
        raise InputError(
            f"alpha is {alpha}, and this preset has anchors of the orientation {preset.orientation!r}, which ask for "
            'none. Leave it out, or take a preset whose anchors are α times as far apart as prototypes, as "aligned".'
        )
    return replace(
        preset,
        weight=preset.weight if weight is None else weight,
        alpha=preset.alpha if alpha is None else alpha,
        initial=preset.initial if initial is None else initial,
    )
