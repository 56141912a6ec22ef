"""Ratios to a peer in one process run, repeated, with the median: machines are noisy, ratios are less so."""

import itertools
import time

import torch
from threadpoolctl import threadpool_limits

from benchmarks import features, functions, review, steps
from benchmarks.clock import Case, Times, beside

SUITES = (
    functions.anchors,
    functions.pairs,
    functions.clusters,
    functions.convolution,
    steps.spacing,
    steps.training,
    steps.precision,
    features.looking,
)


def line(*columns: str) -> None:
    name, *numbers = columns
    print(f"{name:<84}", *(f"{number:>9}" for number in numbers), flush=True)


def verdict(case: Case, times: Times) -> tuple[str, str, str]:
    """The ratio, what was asked of it, and whether it holds."""
    if case.most is not None:
        share = 1 / times.ratio
        return f"{share:.3f}", f"≤ {case.most:g}", "ok" if share <= case.most else "short"
    if case.least is not None:
        return f"{times.ratio:.1f}", f"≥ {case.least:g}", "ok" if times.ratio >= case.least else "short"
    return f"{times.ratio:.1f}", "", ""


def main() -> None:
    """One line per case. That both sides give the same result is checked before: an AssertionError tells if not."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    line("ours / peer", "ours, ms", "peer, ms", "ratio", "asked", "")
    with threadpool_limits(1):
        for case in itertools.chain.from_iterable(suite() for suite in SUITES):
            times = beside(case)
            line(case.name, f"{1000 * times.ours:.2f}", f"{1000 * times.peer:.2f}", *verdict(case, times))
    features.discovering()
    review.reviewing()
    print("\nProcessor time of one thread, medians; ratio: the peer's time over ours, or where at most so much was")
    print(f"asked, ours over the peer's. {time.perf_counter() - began:.0f} s in all.")


if __name__ == "__main__":
    main()
