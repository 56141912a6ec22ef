"""Two sides timed in turn: what disturbs the machine disturbs both, and the ratio stays."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Work = Callable[[], object]


class Times(NamedTuple):
    """Medians: seconds of ours, seconds of the peer, and the peer's seconds over ours, pair by pair."""

    ours: float
    peer: float
    ratio: float


class Case(NamedTuple):
    """Two ways to the same result, and what is asked of their ratio: at least `least` times faster, or, where ours
    does more than the peer, at most `most` times its time.

    What takes less than a millisecond is done `calls` times in a row at each turn: a single call would be timed with
    the peer's work still in the processor's caches, and pay for its own.
    """

    name: str
    ours: Work
    peer: Work
    repeats: int
    least: float | None = None
    most: float | None = None
    calls: int = 1


def beside(case: Case) -> Times:
    """Each side once to warm up, then in turn, and in turn the one or the other first.

    Seconds are those of the processor, not of the wall: other programs do not count. Work is done by one thread.
    """
    calls = case.calls
    seconds(case.ours, calls), seconds(case.peer, calls)
    pairs = []
    for turn in range(case.repeats):
        if turn % 2:
            theirs, own = seconds(case.peer, calls), seconds(case.ours, calls)
        else:
            own, theirs = seconds(case.ours, calls), seconds(case.peer, calls)
        pairs.append((own, theirs, theirs / own))
    return Times(*(statistics.median(column) for column in zip(*pairs, strict=True)))


def seconds(work: Work, calls: int) -> float:
    """Of one call."""
    began = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - began) / calls
