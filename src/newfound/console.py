"""What a person sees: lines, tables that fit the screen, progress. Of several processes the first one talks."""

import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.progress import TaskID

WORD = 12
"""Letters of a word that is never broken in a table."""


Progress = Callable[[str, int, dict[str, float]], None]
"""Called after every epoch: which stage, how many epochs it has, what the epoch gave."""


def silent(stage: str, epochs: int, row: dict[str, float]) -> None:
    """The progress that says nothing."""


def lasting(seconds: float | None) -> str:
    """How long something will take, at the end of a sentence; nothing where nobody knows, or there is nothing to do."""
    return f", {about(seconds)}" if seconds else ""


def about(seconds: float) -> str:
    """A rough time in words."""
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(1, round(seconds))} s"


def first() -> bool:
    """Whether this process talks; asked before torch is loaded."""
    return int(os.environ.get("RANK", "0")) == 0


def say(text: str) -> None:
    """Print a line to a person."""
    if first():
        print(text, flush=True)


def table(rows: "DataFrame", title: str) -> None:
    """Print a table to a person."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not first():
        return
    console, table = Console(emoji=False), Table(title=title)
    text = rows.map(lambda value: f"{value:.3f}" if isinstance(value, float) else str(value))
    columns = [[str(column), *text[column]] for column in text.columns]
    sides: list[Literal["left", "right"]] = [
        "right" if rows[column].dtype.kind in "if" else "left" for column in rows.columns
    ]
    for (head, *_), side, width in zip(columns, sides, _widths(columns, console.width), strict=True):
        table.add_column(head, justify=side, overflow="fold", min_width=width, max_width=width)
    for row in text.itertuples(index=False):
        table.add_row(*map(escape, row))
    console.print(table, crop=False)  # where it cannot fit, nothing is lost


def _widths(columns: list[list[str]], room: int) -> list[int]:
    """How wide columns of a table may be that is to fit: the widest gives way first, as long as no word is broken.

    What stands in the first column is never broken; a word as long as a path may be.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in columns]
    words = [map(cell_len, " ".join(cells).split()) for cells in columns]
    least = [max((size for size in sizes if size <= WORD), default=1) for sizes in words]
    least[0] = widths[0]
    while sum(widths) + 3 * len(widths) + 1 > room and (able := [i for i, w in enumerate(widths) if w > least[i]]):
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
                bars.update(tasks[stage], completed=int(row["epoch"]))

            yield progress
    finally:
        log.removeHandler(handler)
