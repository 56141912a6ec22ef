"""Curves for print: how right classes become with what is spent on them, actions of people or minutes."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from newfound.report.drawings import FRAME, INK, PENCIL, look
from newfound.report.figures import PETROFF

DASHES = ("-", "--", ":", "-.")
"""Lines are told apart in grey too."""


class Curve(NamedTuple):
    """One way to go about it; several of one name are drawn alike, and named once."""

    name: str
    spent: Sequence[float]
    accuracy: Sequence[float]


def draw_curves(panels: Sequence[tuple[str, Sequence[Curve]]], across: str, goal: float | None = None) -> Figure:
    """Accuracy in per cent against what was spent, one panel per (title, curves), with a line at the goal, where there
    is one. `across` says what is counted.
    """
    names = [*dict.fromkeys(curve.name for _, curves in panels for curve in curves)]
    with look():
        figure = Figure(figsize=(3.5 * len(panels), 3.0), layout="constrained")
        for place, (title, curves) in enumerate(panels):
            axis = figure.add_subplot(1, len(panels), place + 1)
            if goal is not None:
                axis.axhline(100 * goal, color=FRAME, linewidth=0.8, zorder=0)
            for curve in curves:
                which = names.index(curve.name)
                axis.plot(
                    curve.spent,
                    [100 * share for share in curve.accuracy],
                    color=PETROFF[0] if which == 0 else PENCIL,
                    linestyle=DASHES[which % len(DASHES)],
                    linewidth=1.2,
                    label=curve.name,
                )
            axis.set_title(title, fontsize=9)
            axis.set(xlabel=across, ylim=(0, 102), ylabel="accuracy, %" if place == 0 else "")
            axis.set_xlim(left=0)
            axis.tick_params(colors=INK, length=2)
            axis.spines[["top", "right"]].set_visible(False)
        handles = {line.get_label(): line for axis in figure.axes for line in axis.get_lines()}
        shown = [name for name in names if name in handles]
        figure.legend([handles[name] for name in shown], shown, loc="outside lower center", ncols=4, frameon=False)
    return figure
