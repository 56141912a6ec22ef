"""What the page draws: colours, thumbnails, curves and the map."""

import base64
import colorsys
import io
import math
from html import escape

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy import ndarray
from PIL import Image

PETROFF = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
"""Ten colours that colour-blind readers tell apart (Petroff 2021, arXiv:2107.02270)."""

LABELS = 30
"""So many class names can stand on the map itself."""

SVG_POINTS = 3000
"""Up to so many points are drawn as SVG, which every browser has and prints sharply; more move smoothly in WebGL."""


def colours(classes: int) -> list[str]:
    """One colour per class; beyond ten, hues by the golden angle in three lightnesses."""
    if classes <= len(PETROFF):
        return list(PETROFF[:classes])
    hls = ((i * 0.618034 % 1, (0.42, 0.55, 0.66)[i % 3], 0.62) for i in range(classes))
    return ["#" + bytes(round(255 * part) for part in colorsys.hls_to_rgb(*each)).hex() for each in hls]


def thumbnail(pixels: UInt8[ndarray, "h w c"], caption: str) -> str:
    """An `<img>` that carries its own pixels.

    Tiny images are kept exactly and enlarged by a whole number; photographs are shrunk to what the page shows.
    """
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    side = max(image.size)
    tiny = side <= 64
    scale = 64 // side if tiny else 104 / side
    width, height = (max(1, round(length * scale)) for length in image.size)
    image.thumbnail((160, 160))
    file = io.BytesIO()
    image.save(file, "webp", lossless=tiny, quality=75)
    kind = ' class="tiny"' if tiny else ""
    uri = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    words = escape(caption)
    return f'<img{kind} decoding="async" width="{width}" height="{height}" alt="{words}" title="{words}" src="{uri}">'


def curve(name: str, values: list[float], ends: tuple[str, str] | None = None, mark: int = -1) -> str:
    """A line from its lowest to its highest value, by default over the epochs, with a dot at one value, by default the
    last, which stands in figures too; what is not finite is left out. Where that value was not measured, the nearest
    one that was takes its place.
    """
    first, last = ends or ("epoch 1", str(len(values)))
    finite = [(epoch, value) for epoch, value in enumerate(values) if math.isfinite(value)]
    low = min((value for _, value in finite), default=math.nan)
    high = max((value for _, value in finite), default=math.nan)
    shown = min(finite, key=lambda point: abs(point[0] - mark % len(values)), default=None)
    places = [
        f"{100 * epoch / max(len(values) - 1, 1):.2f} {40 - 40 * (value - low) / ((high - low) or 1):.2f}"
        for epoch, value in finite
    ]
    said = shown[1] if shown and math.isnan(values[mark]) else values[mark]
    line, dot = ("M" + "L".join(places), f"M{places[finite.index(shown)]}h0") if shown else ("", "")
    return (
        f'<figure class="curve"><figcaption><b>{escape(name)}</b><span>{said:.3g}</span></figcaption>'
        f'<div class="frame"><span>{high:.3g}</span>'
        '<svg viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="{line}"/><path class="dot" d="{dot}"/></svg>'
        f'<span>{low:.3g}</span></div><div class="epochs"><span>{first}</span><span>{last}</span></div></figure>'
    )


def scatter(
    points: Float[ndarray, "n 2"], assignments: Int[ndarray, " n"], captions: list[str], names: list[str]
) -> dict[str, list]:
    """The map as plotly reads it: one trace per class, in order, and the names at their classes' middles, those of
    larger classes first: where they would overlap, these keep their places.
    """
    kind = "scatter" if len(points) <= SVG_POINTS else "scattergl"
    size = min(8.0, max(4.0, 200 / max(len(points), 1) ** 0.5))
    traces, labels = [], []
    for i, (name, colour) in enumerate(zip(names, colours(len(names)), strict=True)):
        rows = np.flatnonzero(assignments == i)
        x, y = points[rows].round(3).T.tolist()
        traces.append(
            {
                "type": kind,
                "mode": "markers",
                "name": plain(name),
                "x": x,
                "y": y,
                "text": [plain(captions[row]) for row in rows],
                "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
                "marker": {"color": colour, "size": size, "line": {"width": 0.5, "color": "rgba(128,128,128,.6)"}},
            }
        )
        if len(rows) and len(names) <= LABELS:
            middle = np.median(points[rows], axis=0)
            short = name if len(name) <= 24 else name[:23] + "…"
            place = {"x": float(middle[0]), "y": float(middle[1]), "text": plain(short), "showarrow": False}
            labels.append((len(rows), place))
    labels.sort(key=lambda label: -label[0])
    return {"traces": traces, "labels": [place for _, place in labels]}


def plain(words: str) -> str:
    """Words that plotly shows as they are: it reads tags and links in its texts."""
    return escape(words, quote=False)
