"""The paper's two figures, for print: novel classes on a plane, and how Spacing moves them apart."""

import io
import math
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from newfound import files
from newfound.report.figures import LABELS, PETROFF, SVG_POINTS, colours
from newfound.report.maps import flatten

MOST = 5000
"""At most so many latents are drawn in a panel."""

SHAPES = ("o", "^", "s", "D", "v")
"""Beyond ten classes colours no longer suffice for colour-blind readers. Five: of 4 to 9 shapes, those that keep 30
colours of one shape farthest apart, four times as far as colours alone are."""

INK, PENCIL, FRAME = "#222222", "#8a8a8a", "#c8c8c8"

ARROW = 0.3
"""The share of its anchor that is drawn at a prototype; the whole would reach far out of the picture."""

STYLE = {
    "font.size": 8.0,
    "text.color": INK,
    "text.parse_math": False,  # a class may be called "$5 or $6"
    "svg.fonttype": "none",  # words stay words, for those who search and those who listen
    "svg.hashsalt": "newfound",  # else ids are drawn at random
}


@dataclass(frozen=True)
class Snapshot:
    """Spacing at one moment, in the space where its prototypes live."""

    title: str
    latents: Float[ndarray, "n d"]
    assignment: Int[ndarray, " n"]  # the prototype nearest to each latent
    prototypes: Float[ndarray, "c d"]
    anchors: Float[ndarray, "c d"]  # displacements, hence about the origin; 0 where there are none


class Plane(NamedTuple):
    """A plane in latent space, and the share of the prototypes' spread that lies in it."""

    origin: Float[ndarray, " d"]
    directions: Float[ndarray, "d 2"]
    share: float


def tsne(
    panels: Sequence[tuple[str, Float[ndarray, "n _"]]],
    classes: Sequence[str],
    truth: Int[ndarray, " n"],
    seed: int,
    caption: str = "",
) -> Figure:
    """The same images as several backbones see them, one panel per (title, features), coloured by truth.

    `truth` holds places in `classes`. t-SNE knows no directions: every map is turned, mirrored if need be, to lie as
    the first one does.
    """
    places: list[ndarray] = []
    rows = np.zeros(0, int)
    for _, features in panels:
        rows, points = flatten(features, seed, MOST)
        places.append(turned(points, places[0] if places else points))
    named = len(classes) <= LABELS
    remarks = [
        caption,
        "" if named else f"Colours and shapes stand for {len(classes)} classes, too many to name.",
        f"{len(rows):,} of {len(truth):,} images are shown." if len(rows) < len(truth) else "",
    ]
    with look():
        each = zip(classes, colours(len(classes)), shapes(len(classes)), strict=True)
        marks = [mark(shortened(name), colour, shape, 5) for name, colour, shape in each] if named else []
        figure, axes = sheet([title for title, _ in panels], marks, " ".join(filter(None, remarks)))
        for axis, points in zip(axes, places, strict=True):
            frame(axis, points)
            dots(axis, points, truth[rows], len(classes), alpha=0.85, vector=len(rows) * len(panels) <= SVG_POINTS)
    return figure


def spacing(before: Snapshot, after: Snapshot, caption: str = "") -> Figure:
    """How Spacing moved latents and prototypes: both panels show the same plane at the same scale.

    An anchor is a displacement, so its prototype carries it as an arrow; placed about the first middle of the
    prototypes, anchors are the corners of a simplex, which stands still while latents and prototypes move.
    """
    plane = main_plane(before, after)
    first, last = projected(before, plane), projected(after, plane)
    reach = [part for each in (first, last) for part in (each.latents, each.prototypes, each.anchors, tips(each))]
    vector = len(first.latents) + len(last.latents) <= SVG_POINTS
    with look():
        marks = [mark("latent", PENCIL, "o", 3), mark("prototype", PENCIL, "o", 7, INK)]
        marks += [mark("prototype before", "white", "o", 5, PENCIL)]
        if before.anchors.any() or after.anchors.any():
            marks += [mark("anchor", "white", "D", 4.5, PENCIL)]
        figure, axes = sheet(
            [before.title, after.title], marks, f"{caption} {explanation(before, after, plane)}".strip()
        )
        for axis, each in zip(axes, (first, last), strict=True):
            frame(axis, np.concatenate(reach))
            dots(axis, each.latents, each.assignment, len(each.prototypes), alpha=0.4, vector=vector)
            portray(axis, each)
        trail(axes[-1], first.prototypes, last.prototypes)
    return figure


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and as SVG, beside each other; `path` has no suffix. Equal figures give equal bytes."""
    png, svg = io.BytesIO(), io.BytesIO()
    with look():
        figure.savefig(png, format="png", dpi=300, metadata={"Software": None})
        figure.savefig(svg, format="svg", dpi=300, metadata={"Creator": None, "Date": None})
    written = path.with_name(path.name + ".png"), path.with_name(path.name + ".svg")
    for each, content in zip(written, (png, svg), strict=True):
        files.write(each, content.getvalue())
    return written


def main_plane(before: Snapshot, after: Snapshot) -> Plane:
    """The plane in which prototypes are most spread, before and after alike.

        directions = argmax_V Σ_t Σ_k ‖(p_tk − p̄_t) V‖²,   VᵀV = I,   t before and after

    A shift that all prototypes share is not spread. Latents settle what prototypes leave open: there may be but one.
    """
    prototypes = np.concatenate([centred(each.prototypes) for each in (before, after)])
    latents = np.concatenate([centred(each.latents) for each in (before, after)])
    scatter = prototypes.T @ prototypes + 1e-6 / max(len(latents), 1) * latents.T @ latents
    directions = np.linalg.eigh(scatter).eigenvectors[:, :-3:-1]
    directions = np.pad(directions, ((0, 0), (0, 2 - directions.shape[1])))  # latents may be mere numbers
    spread = np.square(prototypes).sum()
    share = np.square(prototypes @ directions).sum() / spread if spread else 0.0
    return Plane(before.prototypes.mean(axis=0, dtype=np.float64), directions, float(share))


def centred(points: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
    """Less their mean, in double precision."""
    exact = points.astype(np.float64)
    return exact - exact.sum(axis=0) / max(len(exact), 1)


def projected(snapshot: Snapshot, plane: Plane) -> Snapshot:
    """The same in the plane's coordinates; of very many latents, evenly chosen ones."""
    rows = np.linspace(0, len(snapshot.latents) - 1, min(len(snapshot.latents), MOST)).round().astype(int)
    return Snapshot(
        snapshot.title,
        (snapshot.latents[rows] - plane.origin) @ plane.directions,
        snapshot.assignment[rows],
        (snapshot.prototypes - plane.origin) @ plane.directions,
        snapshot.anchors @ plane.directions,
    )


def tips(snapshot: Snapshot) -> Float[ndarray, "c d"]:
    """Where the arrows of the prototypes end."""
    return snapshot.prototypes + ARROW * snapshot.anchors


def turned(points: Float[ndarray, "n 2"], like: Float[ndarray, "n 2"]) -> Float[ndarray, "n 2"]:
    """Points turned about their middle, and mirrored if need be, to lie as near to others as they can (Procrustes)."""
    points = centred(points)
    left, _, right = np.linalg.svd(points.T @ centred(like))
    return points @ left @ right


def explanation(snapshot: Snapshot, after: Snapshot, plane: Plane) -> str:
    """What a reader must know of the plane, the anchors, the latents and the prototypes that have none."""
    words = "Colours show assignments. Both panels show the plane of the two main directions of the "
    words += f"prototypes, which holds {plane.share:.0%} of their spread." if plane.share else "latents."
    apart = [float(np.linalg.norm(a - b)) for a, b in combinations(snapshot.anchors, 2)]
    if any(apart):
        least, most = f"{min(apart):.2f}", f"{max(apart):.2f}"
        words += f" Arrows: the push along each anchor, {ARROW:.0%} of its length. In latent space any two anchors are "
        words += f"{least if least == most else f'{least} to {most}'} apart"
        words += "; a plane cannot show more than three equidistant points." if len(snapshot.anchors) > 3 else "."
    idle = [len(each.prototypes) - len(np.unique(each.assignment)) for each in (snapshot, after)]
    if any(idle):
        words += (
            f" Of {len(after.prototypes)} prototypes {idle[0]} before and {idle[1]} after hold none of these latents: "
        )
        words += "those of known classes, where labelled images take part, and any that others have emptied."
    if len(snapshot.latents) > MOST:
        words += f" {MOST:,} of {len(snapshot.latents):,} latents are shown."
    return words


def portray(axis: Axes, snapshot: Snapshot) -> None:
    """Prototypes, and where there are anchors, the simplex they span and the push along each."""
    prototypes, anchors = snapshot.prototypes, snapshot.anchors
    tints = colours(len(prototypes))
    if anchors.any():
        faint = min(0.8, 6 / len(anchors))
        lines = LineCollection(list(combinations(anchors, 2)), colors=PENCIL, linewidths=0.5, alpha=faint, zorder=3)
        axis.add_collection(lines, autolim=False)
        axis.scatter(
            anchors[:, 0], anchors[:, 1], s=26, marker="D", color="white", edgecolors=tints, linewidths=1.3, zorder=4
        )
        axis.quiver(
            *prototypes.T, *(ARROW * anchors).T,
            angles="xy", scale_units="xy", scale=1, width=0.005, headwidth=3.6, headlength=4, color=INK, zorder=5,
        )  # fmt: skip
    axis.scatter(prototypes[:, 0], prototypes[:, 1], s=60, color=tints, edgecolors=INK, linewidths=0.9, zorder=6)


def trail(axis: Axes, start: Float[ndarray, "c 2"], end: Float[ndarray, "c 2"]) -> None:
    """Where prototypes came from."""
    lines = LineCollection(list(np.stack([start, end], axis=1)), colors=INK, linewidths=0.8, linestyles=":", zorder=4)
    axis.add_collection(lines, autolim=False)
    axis.scatter(
        start[:, 0], start[:, 1], s=26, color="white", edgecolors=colours(len(start)), linewidths=1.3, zorder=4
    )


def sheet(titles: Sequence[str], marks: Sequence[Line2D], caption: str) -> tuple[Figure, list[Axes]]:
    """Empty square panels side by side, with one legend and one caption under them; lengths are in inches.

    One panel is as wide as a column of a conference paper, more are as wide as its page.
    """
    gap, margin, letter = 0.1, 0.02, 0.058
    side = 3.25 if len(titles) == 1 else max(1.6, (7.0 + gap) / len(titles) - gap)
    width = len(titles) * (side + gap) - gap + 2 * margin
    longest = max((len(str(each.get_label())) for each in marks), default=0)
    rows = math.ceil(len(marks) / max(1, int(width / (longest * letter + 0.34))))
    lines = [printable(line) for line in textwrap.wrap(caption, int(width / letter))]
    top = 0.06 + 0.155 * max(title.count("\n") + 1 for title in titles)
    key = 0.05 + 0.15 * rows if rows else 0.0
    foot = 0.06 + 0.15 * len(lines) if lines else margin
    height = top + side + key + foot

    figure = Figure(figsize=(width, height))
    axes = []
    for i, title in enumerate(titles):
        left = margin + i * (side + gap)
        axes.append(figure.add_axes((left / width, (foot + key) / height, side / width, side / height)))
        axes[-1].set_title(title, pad=4, fontsize=9)
    if rows:
        figure.legend(
            handles=list(marks), labels=[str(each.get_label()) for each in marks], ncols=math.ceil(len(marks) / rows),
            loc="upper center", bbox_to_anchor=(0.5, (foot + key - 0.06) / height), borderaxespad=0, borderpad=0,
            frameon=False, handletextpad=0.1, columnspacing=1.0, labelspacing=0.3, handlelength=1.4,
        )  # fmt: skip
    figure.text(margin / width, (foot - 0.04) / height, "\n".join(lines), va="top", linespacing=1.25)
    return figure, axes


def frame(axis: Axes, points: Float[ndarray, "n 2"]) -> None:
    """Fit a square panel to points; a unit is as long across as up, and no axis has a meaning of its own."""
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.zeros(2), np.zeros(2))
    middle, half = (low + high) / 2, 0.54 * (float((high - low).max()) or 1.0)
    axis.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    axis.set(aspect="equal", xticks=[], yticks=[])
    axis.spines[:].set(color=FRAME, linewidth=0.7)


def dots(
    axis: Axes,
    points: Float[ndarray, "n 2"],
    classes: Int[ndarray, " n"],
    count: int,
    alpha: float,
    vector: bool,
) -> None:
    """Points by class, in an order that hides no class behind the others; pixels where a vector file would be huge."""
    size = min(14.0, max(2.5, 140 / max(len(points), 1) ** 0.5))
    order = np.random.default_rng(0).permutation(len(points))
    tints, drawn = np.array(colours(count)), np.array(shapes(count))
    for shape in dict.fromkeys(drawn.tolist()):
        rows = order[drawn[classes[order]] == shape]
        axis.scatter(
            points[rows, 0], points[rows, 1], s=size, c=tints[classes[rows]], marker=shape, alpha=alpha, linewidths=0,
            rasterized=not vector,
        )  # fmt: skip


def shapes(classes: int) -> list[str]:
    """One shape per class: up to ten colours need no help."""
    return [SHAPES[i % len(SHAPES)] if classes > len(PETROFF) else SHAPES[0] for i in range(classes)]


def mark(name: str, colour: str, shape: str, size: float, edge: str = "none") -> Line2D:
    """What the legend shows for a name."""
    return Line2D([], [], linestyle="none", marker=shape, ms=size, color=colour, markeredgecolor=edge, label=name)


def shortened(name: str) -> str:
    """A class name that leaves room for others."""
    name = printable(name)
    return name if len(name) <= 24 else name[:23] + "…"


def printable(words: str) -> str:
    """Words that any file can hold: what is no character is a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def look() -> AbstractContextManager[None]:
    """Our style on matplotlib's own, whatever the user's settings are, and theirs again afterwards."""
    return style.context(["default", STYLE])
