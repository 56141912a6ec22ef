"""How many classes there are, asked in three ways at once, of the same clusterings, and what they say together."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound import types
from newfound.functional.cluster import kmeans
from newfound.functional.geometry import distances
from newfound.functional.metrics import accuracy, silhouettes

Criterion = Literal["pairs", "accuracy", "silhouette", "dtc", "rehearsed"]
"""What may decide: one of three curves, DTC's rule between the last two, or all three by how they erred before."""

ROWS = 3000
"""Images among which classes are counted; of more a sample is taken."""

NEEDED = 3
"""Labelled classes below which they say too little of others."""

LEAST, WIDEST = 0.25, 0.5
"""How wide an interval is about its estimate, at least and at most, as a share of it; decision 8."""

BELIEVED, FLOOR = 0.5, 0.1
"""How much of a rehearsed error is believed, and the spread that errors have at least; decision 17."""

APART, WIDE = 0.17, 1.28
"""How far collections differ beyond what their known classes can tell, as a standard deviation of log K, and how many
standard deviations to either side four of five runs are to lie within; decision 17.
"""


class Candidate(NamedTuple):
    """One number of classes, and what was seen with it. NaN where nothing is labelled."""

    classes: int
    pairs: float  # log of labelled pairs that are joined over those that share a class
    accuracy: float  # of the labelled images
    silhouette: float


class Count(NamedTuple):
    """How many classes there are in all: the estimate, its interval, and all that spoke for and against it."""

    classes: int
    known: int  # how many of them are labelled
    least: int
    most: int
    criterion: Criterion  # which of the estimates it is
    estimates: dict[Criterion, int]
    curve: tuple[Candidate, ...]

    @property
    def novel(self) -> int:
        """How many of them are not labelled."""
        return self.classes - self.known


class Errors(NamedTuple):
    """log(estimate / truth) of each criterion, where known classes were hidden and counted."""

    pairs: float
    accuracy: float
    silhouette: float


class Sweep(NamedTuple):
    """What every number of classes gave, and the log K that each criterion would have."""

    known: int
    tops: dict[Criterion, float]
    criterion: Criterion  # the one to be believed where nothing was rehearsed
    error: float  # its standard error
    curve: tuple[Candidate, ...]


def distinct(novel: Float[Tensor, "m d"], known: Float[Tensor, "k d"]) -> Bool[Tensor, " m"]:
    """Which novel classes count beside the known ones: those whose centre lies in no known class's own ball.

        min_k ‖c − c_k‖ > ½ min_k≠l ‖c_k − c_l‖

    Within half of the distance that the two nearest known classes keep, everything is nearest to one known class. A
    cluster in there is a piece of it: whoever counts so finely cuts known classes in pieces, which is what counting by
    pairs is there to avoid. Fewer than two known classes keep no distance, and all count.
    """
    if len(known) < 2:
        return torch.ones(len(novel), dtype=torch.bool)
    radius = distances(known).fill_diagonal_(math.inf).min() / 2
    return distances(novel, known).amin(1) > radius


@torch.no_grad()
def count(
    unlabelled: Float[Tensor, "n d"],
    labelled: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    *,
    most: int = 100,
    starts: int = 3,
    rows: int = ROWS,
    seed: int = 0,
    errors: Sequence[Errors] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Count:
    """How many classes K labelled and unlabelled images have together; unlabelled ones may be of labelled classes too.

    By what `sweep` saw of every number. Where it is known how the criteria err (`errors`) all three decide (`combine`),
    and four of five intervals are to hold the truth. Else one does, and the interval is a standard error to either
    side: of `pairs` that of a jackknife over the labelled classes, of the silhouette the numbers that do nearly as
    well; a quarter of the estimate at least, half of it at most. No more than `most` are new, nor more than there are
    unlabelled images.
    """
    found = sweep(unlabelled, labelled, labels, most=most, starts=starts, rows=rows, seed=seed, progress=progress)
    return _bound(_conclude(found, errors), most, len(unlabelled))


@torch.no_grad()
def sweep(
    unlabelled: Float[Tensor, "n d"],
    labelled: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    *,
    most: int = 100,
    starts: int = 3,
    rows: int = ROWS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Sweep:
    """Cluster labelled and unlabelled images together into more and more classes, and ask in three ways how many suit.

        pairs:       the K at which k-means of all joins as many pairs of labelled images as share a class
        accuracy:    argmax_K of the labelled images' accuracy        (Vaze et al. 2022)
        silhouette:  argmax_K of how far apart the clusters lie

    `pairs` decides where three classes or more are labelled: the share of joined pairs falls steadily with K, so where
    it crosses is found with less noise than where a jagged curve has its top. Else the silhouette does. At most `most`
    classes are unlabelled alone; K grows by a quarter of these each time, and in between curves are smoothed.

    Labels count from 0, and each has an image. `progress` is told how many of how many numbers have been tried.
    """
    unlabelled, labelled, labels = _some(unlabelled, labelled, labels, rows, seed)
    known = int(labels.max()) + 1 if len(labels) else 0
    x = torch.cat([labelled, unlabelled])
    numbers = [known + m for m in _growing(min(most, max(1, len(unlabelled) // 2))) if known + m > 1]
    if not numbers:
        raise ValueError(f"found {len(unlabelled)} unlabelled images: counting classes needs at least 4")
    runs = [*_cluster_all(x, numbers, starts, seed, progress)]
    scale = np.log(numbers)
    heights = np.array(silhouettes(x, [first for first, *_ in runs], rows=rows // 2, seed=seed))
    tops: dict[Criterion, float] = {"silhouette": top(scale, heights)}
    pairs = right = np.full(len(numbers), math.nan)
    error = _plateau(scale, heights)
    if known:
        shared = torch.bincount(labels, minlength=known).double()
        shared = shared * (shared - 1)
        joined = torch.stack([torch.stack([_joined(a[: len(labels)], labels) for a in some]).mean(0) for some in runs])
        right = np.array([np.mean([accuracy(labels, a[: len(labels)]) for a in some]) for some in runs])
        pairs = _surplus(joined, shared, range(known))
        tops |= {"accuracy": top(scale, right), "pairs": crossing(scale, pairs)}
    criterion: Criterion = "pairs" if known >= NEEDED else "silhouette"
    if criterion == "pairs":
        others = [[k for k in range(known) if k != out] for out in range(known)]
        error = _jackknife([crossing(scale, _surplus(joined, shared, some)) for some in others])
    curve = tuple(map(Candidate, numbers, pairs.tolist(), right.tolist(), heights.tolist()))
    return Sweep(known, tops, criterion, error, curve)


def combine(tops: dict[Criterion, float], errors: Sequence[Errors]) -> tuple[float, float]:
    """log K by all criteria, each less half of what it was off by where the truth was known; and its standard error.

        log K = Σ_c w_c (t_c − ½ b_c) / Σ_c w_c,   w_c = 1 / (s_c² + 0.1²),   σ² = 0.17² + 1 / Σ_c w_c

    b_c and s_c are mean and standard deviation of a criterion's errors. Half, for classes were fewer there, and of
    fewer images; the steadiest criterion counts most.
    """
    seen = np.array(errors, dtype=float)
    bias = BELIEVED * seen.mean(0)
    spread = seen.std(0, ddof=1) if len(seen) > 1 else np.ones(len(Errors._fields))
    weights = 1 / (np.square(spread) + FLOOR**2)
    corrected = np.array([tops[cast("Criterion", name)] for name in Errors._fields]) - bias
    return float(weights @ corrected / weights.sum()), math.sqrt(APART**2 + 1 / weights.sum())


def _conclude(found: Sweep, errors: Sequence[Errors]) -> Count:
    """The estimate with its interval: of all criteria where their errors are known, else of the one to be believed."""
    known, criterion = found.known, found.criterion
    estimates = {name: max(round(math.exp(log)), known + 1) for name, log in found.tops.items()}
    if errors and criterion == "pairs":
        log, error = combine(found.tops, errors)
        log = max(log, math.log(known + 1))  # what is surely too few says nothing of how many more there may be
        classes, least, most = (max(round(math.exp(log + side * WIDE * error)), known + 1) for side in (0, -1, 1))
        return Count(classes, known, least, most, "rehearsed", estimates, found.curve)
    share = min(WIDEST, max(LEAST, math.expm1(found.error)))
    classes = estimates[criterion]
    least, most = max(math.floor(classes * (1 - share)), known + 1), math.ceil(classes * (1 + share))
    return Count(classes, known, least, most, criterion, estimates, found.curve)


def _bound(found: Count, most: int, images: int) -> Count:
    """The same with no more new classes than are looked for, and than there are unlabelled images: a correction knows
    of neither, and where many classes are known and few images are not, it is of more classes than these can have.
    """
    top = found.known + min(most, images)
    return found._replace(
        classes=min(found.classes, top), least=min(found.least, top), most=min(found.most, found.known + images)
    )


def crossing(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Where a falling curve first goes below 0, between its points; an end where it never does."""
    below = np.flatnonzero(y <= 0)
    if not len(below):
        return float(x[-1])
    last = int(below[0])
    if last == 0:
        return float(x[0])
    share = y[last - 1] / (y[last - 1] - y[last])
    return float(x[last - 1] + share * (x[last] - x[last - 1]))


def top(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], width: float = 0.15) -> float:
    """Where a jagged curve is highest once it is smoothed.

    argmax_t Σ_i w_i(t) y_i / Σ_i w_i(t),   w_i(t) = exp(−(t − x_i)² / 2 width²)        (Nadaraya 1964, Watson 1964)
    """
    fine = np.linspace(x[0], x[-1], 512)
    weights = np.exp(-np.square((fine[:, None] - x) / width) / 2)
    return float(fine[(weights @ y / weights.sum(1)).argmax()])


def _growing(most: int) -> list[int]:
    """From 0 to `most`, by a quarter each time."""
    numbers = [0]
    while numbers[-1] < most:
        numbers.append(min(most, max(numbers[-1] + 1, round(1.25 * numbers[-1]))))
    return numbers


def _cluster_all(
    x: Float[Tensor, "n d"], numbers: Sequence[int], starts: int, seed: int, progress: Callable[[int, int], None]
) -> Iterator[list[Int[Tensor, " n"]]]:
    """The clusterings of each number; `progress` is told after each."""
    for tried, k in enumerate(numbers, 1):
        yield _clustered(x, k, starts, types.generator(seed, "count", k))
        progress(tried, len(numbers))


def _clustered(x: Float[Tensor, "n d"], k: int, starts: int, random: torch.Generator) -> list[Int[Tensor, " n"]]:
    """Several clusterings, none chosen: their mean is smoother than the best."""
    return [kmeans(x, k, random, starts=1).assignment.cpu() for _ in range(starts)]


def _joined(cluster: Int[Tensor, " m"], labels: Int[Tensor, " m"]) -> Float[Tensor, "known known"]:
    """Ordered pairs of labelled images in one cluster, by the classes of the two; none is paired with itself."""
    table = torch.zeros(int(cluster.max()) + 1, int(labels.max()) + 1, dtype=torch.float64)
    table.index_put_((cluster, labels), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    return table.T @ table - torch.diag(table.sum(0))


def _surplus(
    joined: Float[Tensor, "numbers known known"], shared: Float[Tensor, " known"], some: Sequence[int]
) -> Float[np.ndarray, " numbers"]:
    """log(pairs joined / pairs that share a class) among some of the classes."""
    rows = torch.tensor([*some])
    pairs = joined[:, rows][:, :, rows].sum((1, 2))
    return ((pairs + 1) / (shared[rows].sum() + 1)).log().numpy()


def _jackknife(values: Sequence[float]) -> float:
    """Standard error of an estimate, from what it is with each class left out (Tukey 1958)."""
    return math.sqrt((len(values) - 1) * float(np.var(values)))


def _plateau(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """How far from the top a curve is within a tenth of its range of it, where x are logs."""
    near = x[y >= y.max() - 0.1 * (y.max() - y.min())]
    return float(np.abs(near - x[y.argmax()]).max())


def _some(
    unlabelled: Float[Tensor, "n d"],
    labelled: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    rows: int,
    seed: int,
) -> tuple[Float[Tensor, "some d"], Float[Tensor, "others d"], Int[Tensor, " others"]]:
    """At most about so many images, of either kind half at least where there are as many; of a class two at least."""
    random = types.generator(seed, "count")
    few = torch.randperm(len(unlabelled), generator=random)[: max(rows - len(labelled), rows // 2)]
    order = torch.randperm(len(labelled), generator=random)
    first = torch.cat([order[labels[order] == k][:2] for k in range(int(labels.max()) + 1)] if len(labels) else [order])
    rest = order[~torch.isin(order, first)][: max(0, rows - len(few) - len(first))]
    others = torch.cat([first, rest]).sort().values
    return unlabelled[few.sort().values], labelled[others], labels[others].long()
