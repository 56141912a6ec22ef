"""Weights and learning rates as functions of progress, the share of the run that is over.

A schedule with its settings is a `functools.partial`: `partial(steps, at=(0.85,))`.
"""

import math


def ramp(progress: float, length: float, top: float) -> float:
    """A weight that grows from next to nothing to `top` over the first `length` of the run, and stays.

        w(t) = top · exp(−5 (1 − min(t, T)/T)²)        (Laine & Aila 2017)

    It begins at 0.0067 top; with no length it is `top` at once. The repositories hold it through an epoch, here it
    moves with every step.
    """
    return top * math.exp(-5 * (1 - _share(progress, length)) ** 2)


def linear(progress: float, length: float, start: float, end: float) -> float:
    """Go on a line from `start` to `end` over the first `length` of the run, and stay.

        start + (end − start) min(t, T)/T

    With no length it is `end` at once.
    """
    return start + (end - start) * _share(progress, length)


def catch_up(weight: float, published: int, steps: int) -> float:
    """The weight that adds up to as much over a run of so many steps as the one given does over the published ones.

        min(1, weight · max(1, published / steps))

    A term that is weighed lightly because its authors train for long, such as self-training at 0.01, never begins in a
    short run (decision 19). 1 is the weight of labelled images; a run that is longer keeps the published weight.
    """
    return min(1.0, weight * max(1.0, published / steps))


def one_cycle(progress: float, warm: float = 0.25, start: float = 0.04, end: float = 1e-5) -> float:
    """Rise on a line from `start` to 1 over the first `warm` of the run, then fall on a line to `end`.

        start + (1 − start) t/warm   while t < warm,   then   1 − (1 − end) (t − warm)/(1 − warm)

    A multiplier of the peak rate (Smith & Topin 2018). `start` is PyTorch's 1/25; `end` is next to nothing, but not 0.
    """
    if progress < warm:
        return start + (1 - start) * _share(progress, warm)
    return 1 - (1 - end) * _share(progress - warm, 1 - warm)


def steps(progress: float, at: tuple[float, ...], factor: float = 0.1) -> float:
    """Fall by `factor` at each of the given shares of the run.

        factor ^ #{a ∈ at : a ≤ t}

    A drop at 170/200 acts from epoch 170 on; the repositories, which step the scheduler first, drop an epoch earlier.
    """
    return factor ** sum(progress >= share for share in at)


def cosine(progress: float, end: float = 0.0) -> float:
    """Fall from 1 to `end` along half a cosine.

        end + (1 − end) (1 + cos πt)/2        (Loshchilov & Hutter 2017, Eq. 5, without restarts)

    A multiplier of the peak rate.
    """
    return end + (1 - end) * (1 + math.cos(math.pi * _share(progress, 1.0))) / 2


def warm_cosine(progress: float, warm: float, start: float = 0.0, end: float = 0.0) -> float:
    """Rise on a line from `start` to 1 over the first `warm` of the run, then fall along half a cosine to `end`.

        start + (1 − start) t/warm   while t < warm,   then   `cosine` of (t − warm)/(1 − warm)

    A multiplier of the peak rate (Goyal et al. 2017 warm up, Loshchilov & Hutter 2017 fall).
    """
    if progress < warm:
        return start + (1 - start) * _share(progress, warm)
    return cosine(_share(progress - warm, 1 - warm), end)


def _share(progress: float, length: float) -> float:
    """How much of `length` is over, from 0 to 1; all of it when there is no length."""
    return min(max(progress / length, 0.0), 1.0) if length > 0 else 1.0
