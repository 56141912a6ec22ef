"""Results of continual discovery → tables and a curve for people."""

from pathlib import Path
from typing import Any

import pandas as pd

from newfound.benchmark.results import read
from newfound.benchmark.summary import markdown, spread

TITLES = {
    "anchored": "ours: anchors for known and novel classes",
    "anchored:apart": "ours, discovered on a copy",
    "frozen": "frozen baseline (MSc-iNCD)",
    "frost": "FRoST",
    "lwf": "LwF",
    "ncdwf": "NCDwF",
    "icarl": "iCaRL, 20 images of each class kept",
    "rs-il": "RS-IL, all images kept",
    "finetune": "fine-tuning, the lower bound",
    "all-labels": "joint training with all labels, the upper bound",
}
"""What a row is, in the order of the tables."""

COLOURS = ("#0b6e99", "#c2571a", "#4d7c0f", "#7c3aed", "#a16207", "#be185d", "#475569", "#94a3b8", "#111827")
WIDTH, HEIGHT, EDGE = 640, 360, 44
"""Of the curve, in pixels."""

PANELS = ("anchored", "anchored:apart", "frozen", "frost", "all-labels")
"""Rows whose groups of classes are drawn."""

PANEL, GAP, LEGEND = 200, 24, 100
"""Of the panels, in pixels: one with what follows it, what follows it, and the names behind the last."""


def flat(results: dict[str, Any]) -> pd.DataFrame:
    """One line a method and seed, in per cent: at the last step, and what was forgotten until then."""
    rows = [
        {
            "method": row["method"],
            "seed": row["seed"],
            "all": 100 * row["last"]["all"],
            "known": 100 * row["last"]["known"],
            "novel": 100 * row["last"]["novel"],
            "harmonic mean": 100 * row["last"]["harmonic"],
            "known lost": 100 * row["forgetting"]["known"],
            "forgetting": 100 * row["forgetting"]["mean"],
            "discovery": 100 * sum(found) / len(found) if (found := row.get("discovery")) else None,
            "forward transfer": 100 * row["forward transfer"] if row.get("forward transfer") is not None else None,
        }
        for row in results["rows"]
    ]
    return pd.DataFrame(rows)


def summary(results: dict[str, Any]) -> pd.DataFrame:
    """Mean ± standard deviation over seeds, one line a method, in the order of `TITLES`."""
    scores = flat(results)
    lines = []
    for name in _ordered(results):
        own = scores[scores["method"] == name]
        cells = {
            column: spread(own[column].astype(float), 1) if own[column].notna().all() else ""
            for column in own.columns[2:]
        }
        lines.append({"method": name} | cells | {"seeds": len(own)})
    return pd.DataFrame(lines)


def table(results: dict[str, Any]) -> str:
    """The same in Markdown, with what each row is."""
    rows = summary(results)
    lines = ([f"{TITLES.get(name, name)} (`{name}`)", *cells] for name, *cells in rows.itertuples(index=False))
    return markdown(rows, lines)


def groups(results: dict[str, Any]) -> str:
    """Accuracy of each group of classes after each step, mean over seeds, in Markdown: a block of lines a method."""
    sizes, lines = results["setting"]["classes"], []
    for name in _ordered(results):
        own = [row for row in results["rows"] if row["method"] == name]
        for step in range(len(sizes)):
            cells = [_mean([row["all"][step] for row in own])]
            cells += [_mean([row["groups"][step][group] for row in own]) for group in range(step + 1)]
            lines.append([f"`{name}`", step, *cells, *[""] * (len(sizes) - step - 1)])
    return markdown(["method", "after step", "all", *(f"classes {head}" for head in _heads(sizes))], lines)


def draw(results: dict[str, Any]) -> str:
    """A curve a method as SVG: accuracy on all classes so far, after each step, mean over seeds."""
    steps, names = len(results["setting"]["classes"]), _ordered(results)
    wide, high = WIDTH - 2 * EDGE - 150, HEIGHT - 2 * EDGE

    def place(step: int, share: float) -> str:
        return f"{EDGE + wide * step / max(1, steps - 1):.1f},{EDGE + high * (1 - share):.1f}"

    setting, frame = results["setting"], f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>',
        f"<title>{setting['dataset']}, {setting['split']}: accuracy on all classes so far</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tenth in range(0, 11, 2):
        x, y = place(0, tenth / 10).split(",")
        parts.append(f'<path d="M{x},{y}h{wide}" stroke="#ddd"/><text x="{EDGE - 28}" y="{y}">{10 * tenth} %</text>')
    for step in range(steps):
        x = place(step, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - EDGE + 16}" text-anchor="middle">step {step}</text>')
    for number, name in enumerate(names):
        own = [row["all"] for row in results["rows"] if row["method"] == name]
        means = [sum(values) / len(own) for values in zip(*own, strict=True)]
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(place(step, share) for step, share in enumerate(means))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        low = EDGE + 18 * number
        parts.append(f'<text x="{WIDTH - EDGE - 130}" y="{low}" fill="{colour}">{name} {100 * means[-1]:.1f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def draw_groups(results: dict[str, Any]) -> str:
    """A panel for each of some rows as SVG: accuracy of every group of classes from the step on that brought it, mean
    over seeds.
    """
    setting, names = results["setting"], [name for name in _ordered(results) if name in PANELS]
    sizes = setting["classes"]
    wide, high, left = PANEL - GAP, HEIGHT - 2 * EDGE, EDGE
    total = left + PANEL * len(names) + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f"<title>{setting['dataset']}, {setting['split']}: accuracy of each group of classes</title>",
        f'<rect width="{total}" height="{HEIGHT}" fill="white"/>',
    ]
    for panel, name in enumerate(names):
        first, own = left + PANEL * panel, [row["groups"] for row in results["rows"] if row["method"] == name]
        parts.append(f'<text x="{first}" y="{EDGE - 14}">{name}</text>')
        for tenth in range(0, 11, 2):
            y = EDGE + high * (1 - tenth / 10)
            parts.append(f'<path d="M{first},{y:.1f}h{wide}" stroke="#ddd"/>')
            parts += [f'<text x="{first - 38}" y="{y + 4:.1f}">{10 * tenth} %</text>'] if panel == 0 else []
        for step in range(len(sizes)):
            x = first + wide * step / max(1, len(sizes) - 1)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - EDGE + 16}" text-anchor="middle">{step}</text>')
        for group in range(len(sizes)):
            points = []
            for step in range(group, len(sizes)):
                share = sum(rows[step][group] for rows in own) / len(own)
                points.append(f"{first + wide * step / max(1, len(sizes) - 1):.1f},{EDGE + high * (1 - share):.1f}")
            colour, (end, height) = COLOURS[group % len(COLOURS)], points[-1].split(",")
            parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts.append(f'<circle cx="{end}" cy="{height}" r="2.5" fill="{colour}"/>')
    for group, head in enumerate(_heads(sizes)):
        low, colour = EDGE + 18 * group, COLOURS[group % len(COLOURS)]
        parts.append(f'<text x="{total - LEGEND + 4}" y="{low}" fill="{colour}">classes {head}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def gather(folder: Path) -> dict[str, dict[str, Any]]:
    """All results of continual discovery, by the name of their file."""
    return {path.stem: read(path) for path in sorted(folder.glob("continual-*.json"))}


def _ordered(results: dict[str, Any]) -> list[str]:
    names = dict.fromkeys(row["method"] for row in results["rows"])
    return [*(name for name in TITLES if name in names), *(name for name in names if name not in TITLES)]


def _heads(sizes: list[int]) -> list[str]:
    """What each group of classes is called: its first and its last."""
    return [f"{sum(sizes[:place])}–{sum(sizes[: place + 1]) - 1}" for place in range(len(sizes))]


def _mean(values: list[float]) -> str:
    return f"{100 * sum(values) / len(values):.1f}"
