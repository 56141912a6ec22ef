"""What is different once people's answers were learnt from: which images are of other classes now."""

from collections.abc import Mapping

import pandas as pd
from jaxtyping import Int
from torch import Tensor

from newfound.discovery.edits import Classes
from newfound.discovery.tables import WORDS, answer_images
from newfound.errors import counted

COLUMNS = ["from", "to", "images"]

SAID = 5
"""How many of the largest changes are named in a sentence; the table has all."""


def tabulate_changes(before: Classes, after: Classes) -> pd.DataFrame:
    """One row for each pair of classes that images went from and to, the most images first; unsure is one of them.

    Both are of the same images, and classes of the same number are the same class.
    """
    return tabulate_moves(answer_images(before), answer_images(after), before.names | after.names)


def tabulate_moves(was: Int[Tensor, " n"], now: Int[Tensor, " n"], called: Mapping[int, str]) -> pd.DataFrame:
    """The same by what each image's class was and is, as tables say it, and by what classes are called."""
    names = {**called, **WORDS}
    moved = [(names[old], names[new]) for old, new in zip(was.tolist(), now.tolist(), strict=True) if old != new]
    table = pd.DataFrame(moved, columns=COLUMNS[:2])
    counts = table.groupby(COLUMNS[:2], sort=True).size().reset_index(name="images")
    return counts.sort_values("images", ascending=False, kind="stable", ignore_index=True)[COLUMNS]


def explain_changes(table: pd.DataFrame) -> str:
    """The same as a sentence: how many images, and the largest changes."""
    moved = int(table["images"].sum())
    if not moved:
        return "no image changed class"
    rows = table.head(SAID).itertuples(index=False)
    named = [f"{images} from {old} to {new}" for old, new, images in rows]
    rest = moved - int(table["images"].head(SAID).sum())
    return f"{counted(moved, 'image')} changed class: {', '.join(named)}{f' and {rest} otherwise' if rest else ''}"
