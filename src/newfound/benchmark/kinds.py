"""The kinds of tables that `newfound benchmark` makes, and which of its flags each takes."""

from collections.abc import Iterable

from newfound.errors import InputError, check_word

PAPER, PARTS = ("dataset", "split", "methods", "budget"), ("parts",)
TAKES = {
    "two-stage": (*PAPER, "keep"),
    "single-stage": (*PAPER, "keep"),
    "continual": (*PAPER, "backbone"),
    "evidence": PARTS,
    "review": PARTS,
    "continue": PARTS,
}
"""Beside seeds, data and output, which all take."""


def check_flags(kind: str, given: Iterable[str]) -> None:
    """Refuse flags that a kind of table does not take, one that lacks its dataset, and a kind that there is not."""
    check_word("kind of table", kind, TAKES)
    given = [*given]
    wrong = [f"--{name}" for name in given if name not in TAKES[kind]]
    if wrong:
        takes = " ".join(f"--{name}" for name in (*TAKES[kind], "seeds", "data", "output"))
        raise InputError(f"newfound benchmark {kind} takes {takes}, and not {' '.join(wrong)}: leave that out.")
    if "dataset" in TAKES[kind] and "dataset" not in given:
        raise InputError(
            f"newfound benchmark {kind} was given no dataset. Needed: --dataset cifar10 or --dataset cifar100."
        )
