"""How many classes there are, by the two published rules.

- `estimate_gcd` needs labelled images of the known classes, learnt or not: for one stage, where they are at hand.
- `estimate_dtc` needs labelled images of probe classes that the backbone has not learnt, for only they lie as novel
  ones do: for two stages, where a few known classes can be set aside. It tries every number, so it is the slower one.

Neither paper gives an interval: `least` and `most` are the estimate itself.
"""

import functools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound import types
from newfound.functional.cluster import kmeans, semi_supervised_kmeans
from newfound.functional.counting import Candidate, Count, Criterion
from newfound.functional.metrics import accuracy, silhouette

ROWS = 10_000
"""Images among which classes are counted: a hundred each of a hundred classes."""


@torch.no_grad()
def estimate_dtc(
    probe: Float[Tensor, "probes d"],
    labels: Int[Tensor, " probes"],
    unlabelled: Float[Tensor, "n d"],
    *,
    most: int = 100,
    anchors: float = 0.6,
    small: float = 0.01,
    starts: int = 3,
    rows: int = ROWS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Count:
    """How many classes the unlabelled images have, asked with the help of labelled probe classes set aside for it.

        m* = ⌈(argmax_m silhouette + argmax_m accuracy) / 2⌉,   m = 0 … most,   k = C_probe + m
        novel = |{clusters of m* that hold more than `small` times the unlabelled images of the largest}|

    (Han et al. 2019.) A share of the probe classes, the anchors, is held in semi-supervised k-means of all images. The
    other probe classes validate: their images must find their classes again, as the unlabelled ones must. `accuracy` is
    that of the validating classes, `silhouette` that of all that was not held.

    Probe classes (two at least, better ten) must be strangers to the backbone: classes it was trained on lie apart as
    novel ones never do, and say little of them. `labels` are names. Every m is one clustering, so time grows with
    most²: it is begun `starts` times (the authors: 10), and of more than `rows` images a sample is taken.
    """
    probe, labels, unlabelled = _sample(probe, labels, unlabelled, rows, seed)
    names, labels = labels.unique(return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"found {len(names)} probe classes: give at least two, one to hold and one to validate")
    held = min(max(round(anchors * len(names)), 1), len(names) - 1)
    order = torch.randperm(len(names), generator=types.generator(seed, "anchors"))
    labels = order.to(labels.device)[labels]  # those below `held` are anchors, at random
    anchor = labels < held
    x = torch.cat([probe, unlabelled])
    clamped = torch.cat([labels.where(anchor, -1), labels.new_full((len(unlabelled),), -1)])
    free = clamped < 0

    def tried(m: int) -> tuple[Candidate, Int[Tensor, " n"]]:
        random = types.generator(seed, "classes", m)
        found = semi_supervised_kmeans(x, clamped, len(names) + m, random, starts=starts).assignment
        right = accuracy(labels[~anchor], found[: len(probe)][~anchor])
        apart = silhouette(x[free], found[free], seed=seed)
        progress(m + 1, most + 1)
        return Candidate(len(names) + m, math.nan, right, apart), found[len(probe) :]

    most = min(most, int(free.sum()) + held - len(names))
    curve, clusters = zip(*map(tried, range(most + 1)), strict=True)
    return _halfway(curve, clusters, len(names), small)


def _halfway(curve: tuple[Candidate, ...], clusters: tuple[Int[Tensor, " n"], ...], probes: int, small: float) -> Count:
    """DTC's estimate: half-way between the best two, without clusters that hold little of what the largest does.

    Of two that tie in accuracy it is the one with the better silhouette, then, as in DTC's code, the larger: with too
    few clusters a novel class may share that of an anchor far away, which this silhouette does not see.
    """
    apart = max(curve, key=lambda candidate: (candidate.silhouette, candidate.classes)).classes
    right = max(curve, key=lambda candidate: (_merit(candidate), candidate.classes)).classes
    sizes = torch.bincount(clusters[math.ceil((apart + right) / 2) - probes])
    novel = int((sizes > small * sizes.max()).sum())
    return _exactly(probes + novel, probes, "dtc", {"silhouette": apart, "accuracy": right}, curve)


@torch.no_grad()
def estimate_gcd(
    labelled: Float[Tensor, "known d"],
    labels: Int[Tensor, " known"],
    unlabelled: Float[Tensor, "n d"],
    *,
    most: int = 100,
    starts: int = 3,
    rows: int = ROWS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Count:
    """How many novel classes the unlabelled images have beside the labelled ones: those that suit the labelled best.

        K* = argmax_K accuracy of the labelled images in k-means of all,   C_l ≤ K ≤ C_l + most,   novel = K* − C_l

    (Vaze et al. 2022; no more are novel than there are unlabelled images.) With too few clusters classes are merged,
    with too many they are split, and the labelled images show both. Unlabelled images may be of known classes, of novel
    ones or of both. `labels` are names.

    Numbers that grow by half each time are tried first, then all about the best three of them. The paper seeks K by
    Brent's method, which needs fewer, but accuracy is a jagged curve and that often stops on a side hill. Of more than
    `rows` images a sample is taken. The paper's features have unit rows: give those that you will cluster in the end.
    """
    labelled, labels, unlabelled = _sample(labelled, labels, unlabelled, rows, seed)
    known, x = len(labels.unique()), torch.cat([labelled, unlabelled])
    most = min(most, len(unlabelled))

    @functools.cache
    def tried(m: int) -> Candidate:
        found = kmeans(x, known + m, types.generator(seed, "classes", m), starts=starts).assignment
        right = accuracy(labels, found[: len(labels)])
        return Candidate(known + m, math.nan, right, silhouette(x, found, seed=seed))

    coarse = [0]
    while coarse[-1] < most:
        coarse.append(min(most, max(coarse[-1] + 1, round(1.5 * coarse[-1]))))
    numbers = set(coarse)
    for place in sorted(range(len(coarse)), key=lambda place: _merit(tried(coarse[place])))[-3:]:
        numbers.update(range(coarse[max(place - 1, 0)], coarse[min(place + 1, len(coarse) - 1)]))
    curve = []
    for m in sorted(numbers):
        curve.append(tried(m))
        progress(len(curve), len(numbers))
    right = max(curve, key=_merit).classes
    apart = max(curve, key=lambda candidate: candidate.silhouette).classes
    return _exactly(right, known, "accuracy", {"accuracy": right, "silhouette": apart}, tuple(curve))


def _exactly(
    classes: int, known: int, criterion: Criterion, estimates: dict[Criterion, int], curve: tuple[Candidate, ...]
) -> Count:
    """An estimate without an interval."""
    return Count(classes, known, classes, classes, criterion, estimates, curve)


def _merit(candidate: Candidate) -> tuple[float, float]:
    """By which candidates are compared: accuracy, and of equal ones how far apart clusters lie.

    Images that are easy to tell apart are so by many numbers equally well. DTC's code takes the largest of these, and
    so counts too many; the silhouette knows better. Where images are many and hard, ties hardly ever happen.
    """
    return candidate.accuracy, candidate.silhouette


def _sample(
    labelled: Float[Tensor, "known d"],
    labels: Int[Tensor, " known"],
    unlabelled: Float[Tensor, "n d"],
    rows: int,
    seed: int,
) -> tuple[Float[Tensor, "some d"], Int[Tensor, " some"], Float[Tensor, "others d"]]:
    """At most about so many images, labelled and unlabelled in proportion, though a tenth at least of either."""
    if not len(labelled) or not len(unlabelled):
        raise ValueError(f"found {len(labelled)} labelled and {len(unlabelled)} unlabelled images: give some of each")
    random, everything = types.generator(seed, "sample"), len(labelled) + len(unlabelled)

    def some(n: int) -> Int[Tensor, " some"]:
        return torch.randperm(n, generator=random)[: max(rows * n // everything, rows // 10, 1)].sort().values

    if everything <= rows:
        return labelled, labels, unlabelled
    few, others = some(len(labelled)), some(len(unlabelled))
    return (
        labelled[few.to(labelled.device)],
        labels[few.to(labels.device)],
        unlabelled[others.to(unlabelled.device)],
    )
