"""How far an answer can be trusted: distances to centres become chances that were measured on pretend-novel classes."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

FALLS, FEW = 0.5, 2
"""What the log odds of being right lose with each e-fold of classes, and how many pretended classes say as much as
other images do; decision 17.
"""


FAR_OUT = 0.02
"""The chance of being of no class above which an image lies too far out to be named; decision 15."""


class Logistic(NamedTuple):
    """A score's chance is σ(slope · score + offset)."""

    slope: float
    offset: float


class Calibration(NamedTuple):
    """What scores mean: that an image's class is right, that it is a new one, and that the image is of no class."""

    right: Logistic
    new: Logistic
    outlier: Logistic | None = None  # None: nobody measured it, and no image is called so
    counted: Logistic | None = None  # that it is right, where the number of classes is an estimate; None: as if given
    readings: Mapping[str, "Calibration"] = {}  # where clusters are read otherwise than by k-means

    def asdict(self) -> dict[str, Any]:
        """As a file has it, without what was not measured."""
        lines = {name: tuple(line) for name in LINES if (line := getattr(self, name)) is not None}
        others = {name: calibration.asdict() for name, calibration in self.readings.items()}
        return lines | ({"readings": others} if others else {})

    def resolve(self, *, estimated: bool, reading: str = "") -> "Calibration":
        """What scores mean where the number of classes was given, or estimated, in a reading; as by k-means where
        nobody measured it. How far out images lie is the same in all.
        """
        told = self.readings.get(reading, self)
        right = told.counted if estimated and told.counted is not None else told.right
        return Calibration(right, told.new, self.outlier)

    @staticmethod
    def of(lines: Mapping[str, Any]) -> "Calibration":
        """What `asdict` gave."""
        others = {name: Calibration.of(theirs) for name, theirs in lines.get("readings", {}).items()}
        return Calibration(**{name: Logistic(*lines[name]) for name in LINES if name in lines}, readings=others)


LINES = ("right", "new", "outlier", "counted")
"""What of a calibration is a line."""


def platt(score: Float[Tensor, " n"], happened: Bool[Tensor, " n"], steps: int = 50) -> Logistic:
    """The chance of something as a function of a score, by logistic regression.

        max over a, b of  Σ_i t_i log σ(a s_i + b) + (1 − t_i) log σ(−a s_i − b)        (Platt 1999)

    t_i is (n₁ + 1)/(n₁ + 2) where it happened and 1/(n₀ + 2) where not, so that scores that separate the two perfectly
    give a finite slope. Scores without end, whose chance no line says, are left out. Found by Newton's method.
    """
    happened = happened[score.isfinite()]
    s, yes = score[score.isfinite()].double(), happened.double()
    t = torch.where(happened, (yes.sum() + 1) / (yes.sum() + 2), 1 / ((1 - yes).sum() + 2))
    design = torch.stack([s, torch.ones_like(s)], 1)
    line = torch.zeros(2, dtype=torch.float64)

    def surprise(line: Tensor) -> Tensor:
        return (F.softplus(design @ line) - t * (design @ line)).sum()

    for _ in range(steps):
        p = torch.sigmoid(design @ line)
        bend = design.T @ (design * (p * (1 - p))[:, None]) + 1e-9 * torch.eye(2, dtype=torch.float64)
        step = torch.linalg.solve(bend, design.T @ (t - p))
        while surprise(line + step) > surprise(line) and step.norm() > 1e-9:
            step = step / 2  # a long step may leave the hill it is on
        line = line + step
        if step.norm() < 1e-9:
            break
    return Logistic(*line.tolist())


def carry_on(fitted: Calibration, others: Calibration, pretended: int, classes: int) -> Calibration:
    """What scores mean among more classes than were pretended with, drawn to what they mean on other images.

        w (fitted − [0, ½ log(classes / pretended)]) + (1 − w) others,   w = pretended / (pretended + 2)

    Among more classes an image is wrong more often at the same score; that it is new is as likely as before. Of few
    classes a line is known badly.
    """
    own = pretended / (pretended + FEW)
    harder = FALLS * math.log(max(classes / pretended, 1.0))

    def between(a: Logistic, b: Logistic) -> Logistic:
        return Logistic(*(own * x + (1 - own) * y for x, y in zip(a, b, strict=True)))

    right = fitted.right._replace(offset=fitted.right.offset - harder)
    return fitted._replace(right=between(right, others.right), new=between(fitted.new, others.new))


def probability(score: Float[Tensor, " n"], line: Logistic) -> Float[Tensor, " n"]:
    """The chance that goes with a score; sure where the score is without end."""
    finite = torch.sigmoid(line.slope * score.double() + line.offset).to(score)
    return torch.where(score.isinf(), (score > 0).to(score), finite)


def log_margin(
    distances: Float[Tensor, "n centres"], own: Int[Tensor, " n"], same: Bool[Tensor, "centres centres"]
) -> Float[Tensor, " n"]:
    """By how much an image's own centre is nearer than the nearest of another class.

        log(d′ / d),   d to its own centre, d′ to the nearest that is not of its class

    0 half-way between two; ∞ where there is no other class. Scaling all distances changes nothing.
    """
    other = distances.masked_fill(same[own], math.inf).amin(1)
    return ratio(other, distances.gather(1, own[:, None])[:, 0])


def novelty_score(distances: Float[Tensor, "n centres"], new: Bool[Tensor, " centres"]) -> Float[Tensor, " n"]:
    """By how much the nearest new class is nearer than the nearest known one: log(d_known / d_new).

    ∞ where no class is known, −∞ where none is new; 0, which says nothing, where the only class of a kind is that of
    an image alone in it, and gone with it (`leave_one_out`).
    """
    known, novel = (distances.masked_fill(mask, math.inf).amin(1) for mask in (new, ~new))
    if new.all() or not new.any():
        return ratio(known, novel)
    return ratio(known, novel).masked_fill(known.isinf() | novel.isinf(), 0.0)


def outlier_score(nearest: Float[Tensor, " n"], others: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """By how little an image is nearer to the nearest centre than to the others: −log log(d̄ / d).

    d is the distance to the nearest centre, d̄ the mean of those to all others (`reach`), so that it means the same
    among few classes and among many. What is equally far from all fits none: ∞. −∞ where nothing can be said: of two
    classes, what lies half-way between them may still be of either.
    """
    return -ratio(others, nearest).clamp(min=0).log().masked_fill(others.isinf(), math.inf)


def reach(distances: Float[Tensor, "n centres"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The distance to the nearest centre, and the mean of those to the others; centres at ∞ are none.

    The latter is ∞ where there are fewer than two others.
    """
    nearest, there = distances.amin(1), distances.isfinite()
    total = distances.masked_fill(~there, 0.0).sum(1) - nearest.masked_fill(nearest.isinf(), 0.0)
    count = there.sum(1) - 1
    return nearest, torch.where(count > 1, total / count.clamp(min=1), math.inf)


def outlier_line(near: float, far: float) -> Logistic:
    """The chance of being of no class that is `FAR_OUT` at a score `near`, and one half at `far`.

    σ(−logit FAR_OUT · (score − far) / (far − near))
    """
    slope = math.log((1 - FAR_OUT) / FAR_OUT) / max(far - near, 1e-2)
    return Logistic(slope, -slope * far)


def naming_score(confidence: Float[Tensor, " n"], outlier: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """What an image is named by: confidence − 1[P(outlier) > `FAR_OUT`].

    It is worse to name what has no name than to leave one without. So images far out come after all others, whatever
    share of them is to be unsure, though in their order.
    """
    return confidence - (outlier > FAR_OUT).to(confidence)


class Unnamed(NamedTuple):
    """Which images have no name."""

    unsure: Bool[Tensor, " n"]
    outlier: Bool[Tensor, " n"]


def withhold_names(confidence: Float[Tensor, " n"], outlier: Float[Tensor, " n"], threshold: float) -> Unnamed:
    """The rule of naming: an image likelier of no class than of one is an outlier; of the others those are unsure
    whose naming score is below a threshold.
    """
    none = outlier > 0.5
    return Unnamed((naming_score(confidence, outlier) < threshold) & ~none, none)


def leave_one_out(
    distances: Float[Tensor, "n centres"], own: Int[Tensor, " n"], sizes: Int[Tensor, " centres"]
) -> Float[Tensor, "n centres"]:
    """Distances as if no image had drawn its own centre towards itself.

        ‖x − (m c − x) / (m − 1)‖ = m / (m − 1) ‖x − c‖,   c the mean of m images, x among them

    `sizes` are these m. The centre of an image alone is gone with it: ∞. Else it would be the surest of all.
    """
    m = sizes.to(distances)[own]
    apart = distances.gather(1, own[:, None])[:, 0]
    longer = torch.where(m > 1, apart * m / (m - 1), math.inf)
    return distances.scatter(1, own[:, None], longer[:, None])


def ratio(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log(a / b); 0 where both are 0, and where both are without end."""
    least = torch.finfo(a.dtype).tiny
    return (a.clamp(min=least).log() - b.clamp(min=least).log()).nan_to_num(0.0, math.inf, -math.inf)
