"""What a person sees: lines, tables that fit the screen, progress. Of several processes the first one talks."""

import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.progress import TaskID

STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control signs, ends of lines, marks that turn the direction of writing (with which a name may pretend to be another),
and bytes of names that are no text.
"""

WORD = 14
"""Letters of a word that is never broken in a table."""

WIDE = re.compile(
    r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
"""Signs of scripts that know no spaces, two columns wide each; a line may end behind any of them."""


Progress = Callable[[str, int, dict[str, float]], None]
"""Called after every epoch: which stage, how many epochs it has, what the epoch gave."""


def silent(stage: str, epochs: int, row: dict[str, float]) -> None:
    """The progress that says nothing."""


def retitle(progress: Progress, title: str) -> Progress:
    """The same progress, with every stage called by one title."""
    return lambda stage, epochs, row: progress(title, epochs, row)


def lasting(seconds: float | None) -> str:
    """How long something will take, at the end of a sentence; nothing where nobody knows, or there is nothing to do."""
    return f", {about(seconds)}" if seconds else ""


def about(seconds: float) -> str:
    """A rough time in words."""
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(1, round(seconds))} s"


def first() -> bool:
    """Whether this process talks; asked before torch is loaded."""
    return int(os.environ.get("RANK", "0")) == 0


def printable(text: str, *, lines: bool = False) -> str:
    """Text that steers no terminal, whatever names are in it: what moves, colours or turns what is written, ends a line
    or is no text at all, is written as Python would. Where `lines` are our own, these stay.
    """
    return STEERING.sub(lambda sign: sign[0] if lines and sign[0] == "\n" else ascii(sign[0])[1:-1], text)


class PrintableFormatter(logging.Formatter):
    """Lines of a log that steer no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """As always; where a message has several lines, names in it are quoted."""
        return printable(super().format(record), lines=True)


def say(text: str) -> None:
    """Print a line to a person."""
    if first():
        print(printable(text), flush=True)


def table(rows: "DataFrame", title: str, *, names: Collection[str] = (), spare: Sequence[str] = ()) -> None:
    """Print a table to a person. Words of the columns `names` are never broken: where they would have to be, columns of
    `spare` are left out, the first before the second.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not first():
        return
    console, table = Console(emoji=False), Table(title=escape(printable(title)))
    rows = _leave_out(rows, console.width, names, spare)
    text = _as_text(rows)
    columns = [[printable(str(column)), *text[column]] for column in text.columns]
    sides: list[Literal["left", "right"]] = [
        "right" if rows[column].dtype.kind in "if" else "left" for column in rows.columns
    ]
    for (head, *_), side, width in zip(columns, sides, _widths(columns, console.width, names), strict=True):
        table.add_column(head, justify=side, overflow="fold", min_width=width, max_width=width)
    for row in text.itertuples(index=False):
        table.add_row(*map(escape, row))
    console.print(table, crop=False)  # where it cannot fit, nothing is lost


def _as_text(rows: "DataFrame") -> "DataFrame":
    """What is shown of each value of a table."""
    return rows.map(lambda value: f"{value:.3f}" if isinstance(value, float) else printable(str(value)))


def _leave_out(rows: "DataFrame", room: int, names: Collection[str], spare: Sequence[str]) -> "DataFrame":
    """A table without as many of its spare columns as must go for it to fit."""
    for column in spare:
        text = _as_text(rows)
        columns = [[printable(str(head)), *text[head]] for head in text.columns]
        widths = _widths(columns, room, names, most=math.inf)
        if sum(widths) + 3 * len(widths) + 1 <= room:
            break
        rows = rows.drop(columns=column, errors="ignore")
    return rows


def _widths(columns: list[list[str]], room: int, names: Collection[str] = (), *, most: float = 24) -> list[int]:
    """How wide columns of a table may be that is to fit: the widest gives way first, as long as no word is broken.

    What stands in the first column is never broken, nor a word in one of `names`; elsewhere one as long as a path is.
    Scripts that put no spaces between words break anywhere. Where that is not enough, a name of more than `most` goes
    on in the next line of its cell.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in columns]
    words = [map(cell_len, WIDE.sub(" ", " ".join(cells)).split()) for cells in columns]
    longest = [math.inf if column[0] in names else WORD for column in columns]
    least = [
        max((size for size in sizes if size <= long), default=1) for sizes, long in zip(words, longest, strict=True)
    ]
    least[0] = widths[0]
    for bounds in (least, [widths[0], *(min(size, most) for size in least[1:])]):
        while sum(widths) + 3 * len(widths) + 1 > room and (able := [i for i, w in enumerate(widths) if w > bounds[i]]):
            widths[max(able, key=lambda i: widths[i])] -= 1
    return widths


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show what is going on: log lines, and a progress bar for every stage."""
    from rich.console import Console
    from rich.logging import RichHandler
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, quiet=not first(), emoji=False)
    handler = RichHandler(console=console, show_time=False, show_level=False, show_path=False)
    handler.setFormatter(PrintableFormatter())
    log = logging.getLogger("newfound")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=console, speed_estimate_period=math.inf)  # an epoch may take longer than rich waits
    try:
        with bars, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: log.warning(str(message))  # without a place in our code
            tasks: dict[str, TaskID] = {}

            def progress(stage: str, epochs: int, row: dict[str, float]) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=epochs)
                bars.update(tasks[stage], total=epochs, completed=int(row["epoch"]))  # a stage may come twice

            yield progress
    finally:
        log.removeHandler(handler)


@contextmanager
def hushed(log: logging.Logger) -> Iterator[None]:
    """Within it only warnings are told."""
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
