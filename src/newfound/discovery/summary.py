"""The table of classes as a person reads it: on one screen, whole where it matters."""

import itertools
from collections.abc import Iterable
from html import escape
from typing import final

import pandas as pd
from rich.cells import cell_len, set_cell_size

from newfound.console import printable
from newfound.discovery.edits import Classes
from newfound.errors import counted, shorten

BRIEF = ["number", "class", "kind", "size", "unsure", "coherence", "nearest"]
"""What a screen has room for."""

TEXT = ("class", "nearest")
"""Columns that may be shortened."""

WIDE, LINES = 80, 16
"""Letters of a line, and rows of classes, that every screen has."""


@final
class Summary(pd.DataFrame):
    """A table of classes. It is a DataFrame in all but how it prints: within 80 letters and a screen, with number, kind
    and size always there, and long names cut. Parts of it are plain tables.
    """

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        """The first rows, and how many more there are."""
        shown = self._brief()
        cells = [[head, *shown[head]] for head in shown]
        widths = _fit([max(map(cell_len, column)) for column in cells], [head in TEXT for head in shown])
        lines = [
            "  ".join(
                _cut(cell, width) if head in TEXT else cell.rjust(width)
                for head, cell, width in zip(shown, row, widths, strict=True)
            ).rstrip()
            for row in zip(*cells, strict=True)
        ]
        return "\n".join([*lines, *self._rest(len(shown))])

    def show_html(self) -> str:
        """The same as a table of a notebook."""
        shown = self._brief()
        return shown.to_html(index=False) + "".join(f"<p>{escape(line)}</p>" for line in self._rest(len(shown)))

    def _brief(self) -> pd.DataFrame:
        some = pd.DataFrame(self)[[column for column in BRIEF if column in self.columns]].head(LINES)
        return some.map(lambda value: f"{value:.2f}" if isinstance(value, float) else _printable(str(value)))

    def _rest(self, shown: int) -> list[str]:
        more = len(self) - shown
        return [f"and {counted(more, 'class', 'classes')} more; summary().to_string() has all"] if more else []


def explain_gaps(now: Classes) -> list[str]:
    """Why some numbers are not in the table: a sentence for each reason, in which no name steers a terminal."""
    found, model = now.found.numbers, now.found.model
    called = dict(zip(model.numbers, model.classes, strict=True)) if now.found.known else {}  # else numbers are its own
    last = max(found)
    reasons = {
        "No image is of": [_caption(number, name) for number, name in now.names.items() if not len(now.rows(number))],
        "Known, and not looked for:": [_caption(number, called[number]) for number in sorted(called.keys() - {*found})],
        "Of earlier runs, and no class now:": _gaps({*found, *called}, 1, last),
        "No class any more, merged or undone:": [
            *(str(number) for number in sorted({*found} - now.names.keys())),
            *_gaps(now.names, last + 1, now.used),
        ],
    }
    return [f"{why} {shorten(numbers)}." for why, numbers in reasons.items() if numbers]


def _caption(number: int, name: str) -> str:
    return f"{number} ({printable(name)})"


def _gaps(numbers: Iterable[int], first: int, last: int) -> list[str]:
    """The whole numbers from the first to the last that are not among these, those in a row as 4–7."""
    ends = [first - 1, *sorted(number for number in {*numbers} if first <= number <= last), last + 1]
    rows = ((before + 1, after - 1) for before, after in itertools.pairwise(ends) if after - before > 1)
    return [str(start) if start == end else f"{start}–{end}" for start, end in rows]


def _fit(widths: list[int], able: list[bool]) -> list[int]:
    """Widths that a line has room for: the widest of those that may be cut gives way first, to 8 letters at least."""
    room, widths = WIDE - 2 * (len(widths) - 1), [*widths]
    while sum(widths) > room and (wide := [i for i, may in enumerate(able) if may and widths[i] > 8]):
        widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _printable(text: str) -> str:
    """Text that stays on its line, and says nothing to a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _cut(text: str, width: int) -> str:
    """Text of just this width, cut or filled up."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
