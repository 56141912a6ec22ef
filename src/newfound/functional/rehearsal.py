"""What known classes, hidden for a moment, tell of the ways to find new ones: plain values, and how one is chosen."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.functional.counting import Errors
from newfound.types import generator

NOISE = 2.0
"""Standard errors by which a way must be better than the default to be taken; decision 13."""

LEAST = 0.005
"""What it must be better by in any case: less is not worth another setting."""

WIDE = 1.3
"""Standard deviations to either side of an expected accuracy: four of five runs are to lie within; decision 13."""

NARROWEST = 0.03
"""An expected accuracy is never said to be known better than this."""

FALLS, WEIGHT = 0.1, 1.0
"""What accuracy loses with each e-fold of classes where nothing else says it, and how much that counts; decision 13."""

DOUBT = 0.05
"""By how much an interval grows, to either side, for each e-fold that an accuracy is carried on to."""

CLASSES, ROWS = 10, 1500
"""Classes that are hidden at a time, and images of either kind that take part, at most."""

FEWEST, ENOUGH = 4, 4
"""Known classes below which nothing can be rehearsed, and images that each of them must have to count."""

GLANCE, TAKEN = "A first look, at fewer images", "  ← taken"
"""What stands above the lines of backbones, and what marks the line that was taken."""


class Hiding(NamedTuple):
    """Known classes of which some are pretended to be new. Kept classes are numbered first, then hidden ones."""

    labelled: Int[Tensor, " m"]  # rows of images whose class is told
    labels: Int[Tensor, " m"]  # their classes
    pile: Int[Tensor, " n"]  # rows of images that are taken for unlabelled: hidden classes', and other kept ones
    truth: Int[Tensor, " n"]  # their classes, for the score alone
    known: int
    hidden: int


def hide(labels: Int[Tensor, " all"], *key: int | str) -> Hiding | None:
    """Hide some of the classes, a function of the key: at most half of them, and ten. None: there are too few classes.

    Half the images of as many kept classes lie among those of the hidden ones. A class of few images is always kept.
    """
    random, classes = generator(*key), int(labels.max()) + 1 if len(labels) else 0
    sizes = torch.bincount(labels, minlength=classes)
    order = torch.randperm(classes, generator=random)
    able = order[sizes[order] >= ENOUGH]
    if len(able) < FEWEST:
        return None
    hidden = able[: min(CLASSES, len(able) // 2)]
    kept = order[~torch.isin(order, hidden) & (sizes[order] > 0)]
    place = torch.full((classes,), -1).scatter_(0, torch.cat([kept, hidden]), torch.arange(len(kept) + len(hidden)))
    rows = torch.randperm(len(labels), generator=random)
    number = place[labels[rows]]
    shared = torch.isin(labels[rows], able[len(hidden) : 2 * len(hidden)])
    aside = shared & (torch.rand(len(rows), generator=random) < 0.5)
    seen = torch.isin(torch.arange(len(kept)), number[~aside])  # one image of each kept class is told at least
    aside &= seen[number.clamp(max=len(kept) - 1)]
    pile, told = rows[aside | (number >= len(kept))][:ROWS].sort().values, (~aside & (number < len(kept)))
    some = _some_of_each(number[told], ROWS)
    labelled = rows[told][some].sort().values
    return Hiding(labelled, place[labels[labelled]], pile, place[labels[pile]], len(kept), len(hidden))


def thin(hiding: Hiding, most: int, *key: int | str) -> Hiding:
    """The same with fewer images, a function of the key: at most about so many of either kind, one at least of each
    kept class. The same where there are no more.
    """
    random = generator(*key)
    told, pile = (torch.randperm(len(rows), generator=random) for rows in (hiding.labelled, hiding.pile))
    told, pile = told[_some_of_each(hiding.labels[told], most)].sort().values, pile[:most].sort().values
    return hiding._replace(
        labelled=hiding.labelled[told], labels=hiding.labels[told], pile=hiding.pile[pile], truth=hiding.truth[pile]
    )


def _some_of_each(numbers: Int[Tensor, " n"], most: int) -> Int[Tensor, " some"]:
    """Places of at most about so many, the first of every class among them."""
    order = numbers.argsort(stable=True)
    first = torch.searchsorted(numbers[order].contiguous(), numbers[order].unique())
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - first.repeat_interleave(numbers.unique(return_counts=True)[1])
    return (rank == 0).logical_or(torch.arange(len(numbers)) < most).nonzero()[:, 0]


class Way(NamedTuple):
    """One way to find new classes: all that a rehearsal may choose."""

    backbone: str  # what looks
    shrink: float  # how much the known classes' covariance is shrunk before it whitens; 0 where nothing is whitened
    method: str  # what is trained; kmeans: nothing
    reading: str  # how clusters are read off

    def describe(self) -> str:
        """Itself, in a few words."""
        return f"{self.backbone}, {self.manner}"

    @property
    def manner(self) -> str:
        """What is done with what the backbone says, in a few words."""
        trained = "" if self.method == "kmeans" else f"trained by {self.method}, "
        return f"{trained}{self.reading}{f', shrunk by {self.shrink:g}' if self.shrink else ''}"


class Trial(NamedTuple):
    """What a way did: a score a hiding, in their order. Dear ways were tried on the first hidings alone."""

    way: Way
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean score."""
        return statistics.fmean(self.scores)


class Expected(NamedTuple):
    """An accuracy that is to be expected among so many classes, and the interval that four of five runs are to lie in.

    Among more classes less is right: `falls` for each e-fold of them.
    """

    accuracy: float
    least: float
    most: float
    classes: int
    falls: float

    def at(self, classes: int) -> "Expected":
        """The same among another number of classes; the farther off, the less is known of it."""
        far = math.log(classes / self.classes)
        wide, shift = DOUBT * abs(far), self.falls * far
        values = (self.accuracy - shift, self.least - shift - wide, self.most - shift + wide)
        accuracy, least, most = (min(1.0, max(1 / classes, value)) for value in values)
        return Expected(accuracy, least, most, classes, self.falls)

    def __str__(self) -> str:
        return f"{100 * self.accuracy:.0f} % ({100 * self.least:.0f} to {100 * self.most:.0f})"


class Rehearsal(NamedTuple):
    """All that was seen while known classes were hidden."""

    known: int  # classes in all
    hidden: int  # of them at a time
    backbones: tuple[Trial, ...] = ()  # the backbones, on some of the images
    trials: tuple[Trial, ...] = ()  # the ways of the backbone that was taken
    mixed: Expected | None = None  # of the way that was taken, where known classes may be among unlabelled images
    alone: Expected | None = None  # where every unlabelled image is of a new class
    why: str = ""  # why there was none, or less of one
    counting: tuple[Errors, ...] = ()  # by how much each way of counting was off, a hiding each
    apart: tuple[Trial, ...] = ()  # the ways again, where every unlabelled image is of a new class
    mixed_counted: Expected | None = None  # as `mixed`, where the number of classes is an estimate
    alone_counted: Expected | None = None  # as `alone`

    def tried(self, *, mixed: bool) -> tuple[Trial, ...]:
        """The ways as they did where known classes may be among unlabelled images, or where they are not."""
        return self.trials if mixed or not self.apart else self.apart

    def expected(self, *, mixed: bool, counted: bool) -> Expected | None:
        """What the way that was taken lets expect; less where the number of classes is `counted`, if that was seen."""
        given, estimated = (self.mixed, self.mixed_counted) if mixed else (self.alone, self.alone_counted)
        return estimated if counted and estimated is not None else given

    def asdict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        trials = {
            name: [trial.way._asdict() | {"scores": list(trial.scores)} for trial in getattr(self, name)]
            for name in ("backbones", "trials", "apart")
        }
        return self._asdict() | trials | {"counting": [errors._asdict() for errors in self.counting]}

    @staticmethod
    def of(values: dict[str, Any]) -> "Rehearsal":
        """From such values; what is not one is refused."""

        def trials(rows: Iterable[dict[str, Any]]) -> tuple[Trial, ...]:
            rows = [*rows]
            ways = [Way(*(row[name] for name in Way._fields)) for row in rows]
            found = tuple(Trial(way, tuple(map(float, row["scores"]))) for way, row in zip(ways, rows, strict=True))
            if any(not trial.scores or not all(map(math.isfinite, trial.scores)) for trial in found):
                raise ValueError("a rehearsal without scores, or with some that are no numbers")
            return found

        def expected(name: str) -> Expected | None:
            found = values.get(name)
            if found is None:
                return None
            accuracy, least, most, classes, falls = map(float, found)
            return Expected(accuracy, least, most, int(classes), falls)

        counting = tuple(Errors(*(float(row[name]) for name in Errors._fields)) for row in values.get("counting", ()))
        if not all(map(math.isfinite, (error for errors in counting for error in errors))):
            raise ValueError("a rehearsal with errors of counting that are no numbers")
        return Rehearsal(
            int(values["known"]),
            int(values["hidden"]),
            trials(values.get("backbones", ())),
            trials(values.get("trials", ())),
            expected("mixed"),
            expected("alone"),
            str(values.get("why", "")),
            counting,
            trials(values.get("apart", ())),
            expected("mixed_counted"),
            expected("alone_counted"),
        )


def gain(trial: Trial, default: Trial) -> tuple[float, float]:
    """By how much a way is better than another on the hidings that both saw: mean and its standard error.

    The hidings differ far more from one another than two ways on the same do, so differences are taken first.
    """
    apart = [a - b for a, b in zip(trial.scores, default.scores, strict=False)]
    error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
    return statistics.fmean(apart), error


def choose(trials: Sequence[Trial], default: Way, allowed: Callable[[Way], bool] = lambda way: True) -> Way:
    """The best of the ways that are allowed; the default unless another is better by more than its noise.

        taken: argmax of mean(d),   among  mean(d) > max(2 · se(d), ½ point),   d = score − default's, by hiding

    Ways that were tried on more hidings come first; dearer ones, tried on fewer, must then beat the best of those in
    the same way. The order of trials does not matter. Where the default itself is not allowed, or was not tried, the
    best by its mean stands for it.
    """
    able = sorted((trial for trial in trials if allowed(trial.way)), key=lambda trial: (-trial.mean, trial.way))
    best: Trial | None = None
    for length in sorted({len(trial.scores) for trial in able}, reverse=True):
        group = [trial for trial in able if len(trial.scores) == length]
        start = best or next((trial for trial in group if trial.way == default), group[0])
        best = _beat(start, group)
    return default if best is None else best.way


def _beat(start: Trial, others: Sequence[Trial]) -> Trial:
    """Whichever is better than the first by most and by more than its noise; the first where none is."""
    best, most = start, 0.0
    for trial in others:
        better, error = gain(trial, start)
        if better > max(NOISE * error, LEAST, most):
            best, most = trial, better
    return best


def expect(scores: Sequence[float], classes: Sequence[int]) -> Expected | None:
    """What another run would score, from runs alike among some numbers of classes: a line, an interval for one more.

        score ≈ a − b log(classes),   b = (Σ −x y + λ b₀) / (Σ x² + λ),   x, y about their means
        a ± 1.3 s √(1 + 1/n),   s the standard deviation of what is left; 3 points at least

    It is said of the largest of the numbers.
    """
    if len(scores) < 2:
        return None
    logs, most = [math.log(number) for number in classes], max(classes)
    middle, mean = statistics.fmean(logs), statistics.fmean(scores)
    x, y = [value - middle for value in logs], [value - mean for value in scores]
    falls = (WEIGHT * FALLS - sum(a * b for a, b in zip(x, y, strict=True))) / (sum(a * a for a in x) + WEIGHT)
    falls = max(0.0, falls)
    rest = [b + falls * a for a, b in zip(x, y, strict=True)]
    half = max(WIDE * statistics.stdev(rest) * math.sqrt(1 + 1 / len(rest)), NARROWEST)
    there = mean - falls * (math.log(most) - middle)
    return Expected(there, there - half, there + half, most, falls).at(most)


def tell_nothing(trials: Sequence[Trial], lots: Trial) -> bool:
    """Whether no way does better than drawing lots (`lots`) by more than its noise."""
    return all(better <= NOISE * error for better, error in (gain(trial, lots) for trial in trials))


Rows = list[tuple[str, float, bool]]
"""Lines of a table: what was tried, its mean score, and whether it was taken."""


def tabulate(rehearsal: Rehearsal, taken: Way, *, mixed: bool = True) -> dict[str, Rows]:
    """The lines below each heading, the best before: the look through every backbone, where there was one, and the ways
    of the backbone that was taken, of which one was.
    """
    looked, tried = (
        sorted(trials, key=lambda trial: (-trial.mean, trial.way))
        for trials in (rehearsal.backbones, rehearsal.tried(mixed=mixed))
    )
    first = [(f"{name_family(trial.way.backbone)}, {trial.way.reading}", trial.mean, False) for trial in looked]
    ways = [(trial.way.manner, trial.mean, trial.way == taken) for trial in tried]
    return ({GLANCE: first} if first else {}) | {name_family(taken.backbone): ways}


def name_family(backbone: str) -> str:
    """The name of networks side by side, what they have in common said once: a-small+a-large is a-small+large."""
    first, *others = backbone.split("+")
    family = first[: first.rfind("-") + 1]
    return "+".join([first, *(other.removeprefix(family) for other in others)])


def introduce(found: Rehearsal) -> str:
    """On which known classes ways were tried."""
    return f"Rehearsal on {found.hidden} of {found.known} known classes at a time, hidden"


def describe(found: Rehearsal, taken: Way, *, mixed: bool = True) -> list[str]:
    """The table of a rehearsal, a line each, none wider than a terminal."""
    lines = [f"{introduce(found)} (mean accuracy, %)"]
    for heading, rows in tabulate(found, taken, mixed=mixed).items():
        lines += [f"{heading}:", *(f"{100 * mean:6.1f}  {way}{TAKEN if mine else ''}" for way, mean, mine in rows)]
    return lines
