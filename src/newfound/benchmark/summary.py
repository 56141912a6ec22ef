"""Results → tables for people."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import t as student

from newfound import methods
from newfound.benchmark.published import CONTROLS, TABLES
from newfound.benchmark.results import read

READINGS = ("head", "k-means", "unit k-means")
NOT_RUN = "Not run yet."


def markdown(heads: Iterable[object], rows: Iterable[Iterable[object]], nothing: str = NOT_RUN) -> str:
    """A table in Markdown, every cell as it is written; without rows, what is said instead."""
    names, body = [*map(str, heads)], [f"| {' | '.join(map(str, row))} |" for row in rows]
    head = " | ".join(names).lstrip()  # the first column may have no name
    return "\n".join([f"| {head} |", "|---" * len(names) + "|", *body]) if body else nothing


def flat(results: dict[str, Any], images: str = "train") -> pd.DataFrame:
    """One row per method, seed and reading, with accuracy and NMI on these images."""
    rows = [
        {"method": row["method"], "seed": row["seed"], "reading": reading} | scores
        for row in results["rows"]
        for reading, scores in row[images].items()
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "reading", "accuracy", "nmi"])


def spread(values: "pd.Series[float]", digits: int) -> str:
    """Mean ± standard deviation; of one seed the number alone."""
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ± {values.std():.{digits}f}" if len(values) > 1 else mean


def summary(path: Path) -> pd.DataFrame:
    """Mean ± standard deviation over seeds, one line per method and reading, the published number beside."""
    results = read(path)
    lines: list[dict[str, Any]] = []
    for (method, reading), own in flat(results).groupby(["method", "reading"], sort=False):
        title, numbers = TABLES[results["setting"]["stages"]].get(str(method), ("", {}))
        given = numbers.get(results["setting"]["split"])
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


def comparison(results: dict[str, Any]) -> str:
    """All rows beside the paper's, in Markdown: its own and the controls, then every other that was run."""
    listed = _listed(results)
    others = [name for name in dict.fromkeys(row["method"] for row in results["rows"]) if name not in listed]
    return _beside(results, [*listed, *others])


def published(results: dict[str, Any]) -> str:
    """The same without the others: the paper's rows and the controls."""
    return _beside(results, _listed(results))


def cell(own: pd.DataFrame) -> str:
    """Accuracy in per cent and NMI, mean ± standard deviation."""
    return f"{spread(100 * own['accuracy'], 1)} / {spread(own['nmi'], 3)}" if len(own) else ""


def gains(results: dict[str, Any]) -> str:
    """What Spacing adds to its host, in Markdown: within one reading, seed by seed, with the interval of the mean."""
    lines = []
    for name in dict.fromkeys(row["method"] for row in results["rows"]):
        if (host := host_of(name)) is not None:
            lines += [
                [
                    *(f"`{name}`", f"`{host}`", reading),
                    *(interval(100 * pairs["accuracy"], 1), interval(pairs["nmi"], 3), len(pairs)),
                ]
                for reading in READINGS
                if len(pairs := paired(results, name, host, reading))
            ]
    heads = ("with Spacing", "over", "reading", "accuracy, points", "NMI", "seeds")
    return markdown(heads, lines, "No row with Spacing and its host has been run.")


def host_of(name: str) -> str | None:
    """The method that Spacing was added to, where it was: `pairs` of `pairs+spacing:dcn`."""
    host = name.rpartition("+")[0]
    return host if host and methods.parse(name).spacing is not None else None


def paired(results: dict[str, Any], name: str, other: str, reading: str, images: str = "train") -> pd.DataFrame:
    """Scores of one method minus another's, on the seeds that both have."""
    scores = flat(results, images)
    scores = scores[scores["reading"] == reading].set_index("seed")
    sides = (scores[scores["method"] == method][["accuracy", "nmi"]].astype(float) for method in (name, other))
    one, two = sides
    return (one - two).dropna()


def interval(values: "pd.Series[Any]", digits: int) -> str:
    """Mean difference, from three seeds on with its interval."""
    mean = f"{values.mean():+.{digits}f}"
    if len(values) < 3:
        return mean
    low, high = bounds(values)
    return f"{mean} [{low:+.{digits}f}, {high:+.{digits}f}]"


def bounds(values: "pd.Series[Any]") -> tuple[float, float]:
    """The 95 % interval of the mean (Student's t)."""
    half = float(student.ppf(0.975, len(values) - 1)) * values.std() / math.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def separation(results: dict[str, Any]) -> str:
    """How separate novel classes lie on the unit sphere before and after, in Markdown."""
    lines = []
    for name in dict.fromkeys(row["method"] for row in results["rows"]):
        own = [row["separation"] for row in results["rows"] if row["method"] == name]
        cells = [
            spread(pd.Series([one[when][what] for one in own]), 3)
            for what in ("silhouette", "scatter")
            for when in ("before", "after")
        ]
        lines.append([f"`{name}`", *cells, len(own)])
    return markdown(("method", "silhouette before", "after", "scatter before", "after", "seeds"), lines)


def costs(results: dict[str, Any]) -> str:
    """Minutes and memory, where it was measured, of each method, in Markdown."""
    lines = []
    for name in dict.fromkeys(row["method"] for row in results["rows"]):
        own = pd.DataFrame([row for row in results["rows"] if row["method"] == name])
        minutes, before = own["seconds"].mean() / 60, own["stage one seconds"].mean() / 60
        measured = own["memory"].dropna()
        memory = f"{measured.max():.0f}" if len(measured) else ""
        lines.append([f"`{name}`", own["epochs"].iloc[0], f"{minutes:.1f}", f"{before:.1f}", memory])
    return markdown(("method", "epochs", "minutes", "minutes before", "memory, MB"), lines)


def listing() -> pd.DataFrame:
    """Every method: its paper, its stages, what it needs, how it is read."""
    stages = {"needed": "one", "optional": "one or two", "unused": "two"}
    lines = []
    for name, recipe in methods.METHODS.items():
        needs = ["labelled images"] * (recipe.labelled == "needed")
        needs += ["pixels"] * recipe.pixels + ["maps"] * recipe.maps
        lines.append(
            {
                "method": name,
                "paper": recipe.paper + (" (from description)" if recipe.described else ""),
                "stages": stages[recipe.labelled],
                "needs": ", ".join(needs) or "latents",
                "before": ", ".join(recipe.stage_one) or "nothing",
                "reading": recipe.reading,
            }
        )
    return pd.DataFrame(lines)


def _listed(results: dict[str, Any]) -> list[str]:
    stages = results["setting"]["stages"]
    return [*TABLES[stages], *CONTROLS[stages]]


def _beside(results: dict[str, Any], names: list[str]) -> str:
    """Published numbers, then ours in every reading, one line per method; rows not run are empty."""
    setting, scores = results["setting"], flat(results)
    lines = []
    for name in names:
        title, numbers = TABLES[setting["stages"]].get(name, ("", {}))
        given = numbers.get(setting["split"])
        own = scores[scores["method"] == name]
        cells = [cell(own[own["reading"] == reading]) for reading in READINGS]
        label = f"{title} (`{name}`)" if title else f"`{name}`"
        beside = f"{given.accuracy:.1f} / {given.nmi:.3f}" if given else ""
        lines.append([label, beside, *cells, own["seed"].nunique() or "not run"])
    return markdown(["method", "published", *READINGS, "seeds"], lines)
