"""The demonstration: people's doodles, 100 known categories, ten that nobody named."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from newfound import files, parallel
from newfound.benchmark import small as sets
from newfound.benchmark.small import PIXELS, SETS, discover, measure, measure_found, run_row
from newfound.data.sources import doodles
from newfound.discovery.discover import facts, stage_one, versions
from newfound.discovery.find import Progress, silent
from newfound.discovery.pages import write_report
from newfound.discovery.settings import DEFAULT, Run, needed
from newfound.errors import InputError
from newfound.functional.geometry import whitening
from newfound.methods.spacing_loss import swapped
from newfound.networks.model import Model

STAGE = SETS["doodles"](None, 0).stage
WHITENED = "whitened"
"""The row of k-means on what the default's space gives before anything is trained."""
TITLES = {name: title for name, title in sets.TITLES.items() if name not in ("dtc", "pairs+spacing")}
TITLES[WHITENED] = "k-means on the whitened start features"
FEW = ("kmeans", DEFAULT)
MANY = tuple(name for name in TITLES if name not in (PIXELS, WHITENED))
READING = "unit k-means"
"""The reading of the table; all are in the results."""


def demonstrate(
    output: Path,
    *,
    everything: bool = False,
    seeds: int = 1,
    command: str = "newfound demo",
    progress: Progress = silent,
) -> pd.DataFrame:
    """Run it for each seed; write the first one's run folder and report. Returns a row per method, seed and reading."""
    parallel.check_alone(
        "Start it once, without torchrun; only rows of `newfound benchmark` share the work of several processes."
    )
    needed("seeds", seeds, seeds >= 1, "at least 1")
    check_place(output)
    small, names, rows = SETS["doodles"](None, 0), doodles("novel").classes, list[dict]()
    for seed in range(seeds):
        model = stage_one(small.known, STAGE, seed, progress=_called(progress, f"seed {seed}: learn the known"))
        rows += run_row(small, model, PIXELS, seed)
        for method in MANY if everything else FEW:
            began = time.perf_counter()
            found = discover(small, model, method, seed, _called(progress, f"seed {seed}: {method}"))
            rows += measure_found(small, found, method, seed, time.perf_counter() - began)
            if method == "kmeans" and everything:
                rows += measure(small, _whitened(model, found.features), WHITENED, seed, 0.0)
            if method == DEFAULT and seed == 0:
                first = found
                first.truth = tuple(names[label] for label in small.truth.tolist())
                run = Run(method=method, mixed=False, seed=seed)
                first.facts = facts(found, run, small.novel, None, command) | {
                    "comparison": f"mean of {seeds} seeds, this is seed 0"
                }
    first.save(output)
    write_report(first, output / "report.html", comparison(rows))
    return pd.DataFrame(rows)


def check_place(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier demonstration."""
    files.check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not _demonstrated(folder / "discovery.json"):
        raise InputError(f"{folder} holds other files; this needs a folder of its own. Give another place with -o.")


def comparison(rows: Sequence[dict]) -> list[tuple[str, float, float]]:
    """Title, mean accuracy and mean NMI of each method, in the table's reading."""
    table = pd.DataFrame([row for row in rows if row["reading"] == READING])
    table = table.groupby("method")[["accuracy", "nmi"]].mean()
    return [(TITLES[name], *table.loc[name]) for name in TITLES if name in table.index]


def write_results(rows: pd.DataFrame, path: Path, command: str) -> None:
    """Keep every number with its setting."""
    setting = {
        "dataset": "Quick, Draw! doodles, 28 × 28, embedded",
        "split": "100 known categories × 100 drawings; 10 novel ones × 100, unlabelled",
        "images": "all 1000 unlabelled images, unaugmented, last epoch",
        "classes": "10, given",
        "nmi normaliser": "arithmetic",
        "stage one": vars(STAGE),
        "discovery": "the product's defaults for each method",
        "seeds": sorted(set(rows["seed"].tolist())),
        "command": command,
        "versions": versions(),
    }
    records = rows.round(4).to_dict("records")
    text = json.dumps({"setting": setting, "rows": records}, indent=1, ensure_ascii=False)
    files.write(path, text + "\n")


def _demonstrated(about: Path) -> bool:
    """Whether this file is there, whole, and of a demonstration."""
    try:
        return "comparison" in json.loads(about.read_text(encoding="utf-8"))["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _whitened(model: Model, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
    shrink = swapped().whiten
    assert shrink is not None
    assert model.spread is not None
    return features @ whitening(model.spread, shrink)


def _called(progress: Progress, name: str) -> Progress:
    return lambda stage, epochs, row: progress(name, epochs, row)
