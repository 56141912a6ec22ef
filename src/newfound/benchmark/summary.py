"""Results → tables for people."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from newfound import methods
from newfound.benchmark.published import TABLES

READINGS = ("head", "k-means", "unit k-means")


def flat(path: Path, images: str = "train") -> pd.DataFrame:
    """One row a method, seed and reading, with all scores on these images."""
    results = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        {"method": row["method"], "seed": row["seed"], "reading": reading, "seconds": row["seconds"]} | scores
        for row in results["rows"]
        for reading, scores in row[images].items()
    ]
    return pd.DataFrame(rows)


def summary(path: Path) -> pd.DataFrame:
    """Mean ± standard deviation over seeds, a line a method and reading, the published number beside."""
    table = json.loads(path.read_text(encoding="utf-8"))["setting"]
    published = TABLES[table["stages"]]
    lines: list[dict[str, Any]] = []
    for (method, reading), own in flat(path).groupby(["method", "reading"], sort=False):
        title, numbers = published.get(str(method), ("", {}))
        given = numbers.get(table["split"])
        lines.append(
            {
                "method": method,
                "reading": reading,
                "accuracy": spread(100 * own["accuracy"], 1),
                "NMI": spread(own["nmi"], 3),
                "seeds": len(own),
                "published": f"{given.accuracy} / {given.nmi} ({title})" if given else "",
            }
        )
    return pd.DataFrame(lines)


def spread(values: pd.Series, digits: int) -> str:
    """Mean ± standard deviation; of one seed the number alone."""
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ± {values.std():.{digits}f}" if len(values) > 1 else mean


def listing() -> pd.DataFrame:
    """Every method: its paper, its stages, what it needs, how it is read."""
    stages = {"needed": "one", "optional": "one or two", "unused": "two"}
    lines = []
    for name, recipe in methods.METHODS.items():
        needs = ["labelled images"] * (recipe.labelled == "needed") + ["pixels"] * recipe.pixels
        lines.append(
            {
                "method": name,
                "paper": recipe.paper + (" (from description)" if recipe.described else ""),
                "stages": stages[recipe.labelled],
                "needs at discovery": ", ".join(needs) or "latents",
                "before": ", ".join(recipe.stage_one) or "nothing",
                "reading": recipe.reading,
            }
        )
    return pd.DataFrame(lines)
