"""The demonstration: people's doodles, 100 known categories, ten that nobody named."""

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import files, parallel
from newfound.data.sources import Images, doodles
from newfound.discovery.discover import facts, stage_one, versions
from newfound.discovery.find import Progress, find, silent
from newfound.discovery.pages import write_report
from newfound.discovery.reading import read
from newfound.discovery.settings import Run, StageOne, needed
from newfound.errors import InputError
from newfound.functional.geometry import whitening
from newfound.functional.metrics import scores
from newfound.methods.spacing import aligned
from newfound.networks.model import Model

log = logging.getLogger("newfound")

STAGE = StageOne(size=28)
OURS = "pairs+spacing"
TITLES = {
    "pixels": "k-means on the pixels",
    "kmeans": "k-means on the start features",
    OURS: "pairs + spacing (aligned, the default)",
    "whitened": "k-means on the whitened start features",
    "pairs": "pairs alone",
    "pairs+spacing:dcn": "pairs + spacing without anchors (dcn)",
    "pairs+spacing:paper": "pairs + spacing to the letter (paper)",
    "pairs+spacing:author": "pairs + spacing as in its author's code (author)",
}
FEW = ("kmeans", OURS)
MANY = tuple(name for name in TITLES if name not in ("pixels", "whitened"))
READING = "unit k-means"
"""The reading of the table; both are in the results."""


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
    known, novel = doodles("known"), doodles("novel")
    pile, truth, classes = hide(novel), novel.labels, len(novel.classes)
    rows = []
    for seed in range(seeds):
        model = stage_one(known, STAGE, seed, progress=_called(progress, f"seed {seed}: learn the known"))
        rows += measure("pixels", seed, pile.pixels.flatten(1) / 255, truth)
        for method in MANY if everything else FEW:
            began, run = time.perf_counter(), Run(method=method, mixed=False, seed=seed)
            found = find(model, pile, classes, run=run, progress=_called(progress, f"seed {seed}: {method}"))
            rows += measure(method, seed, found.features, truth, time.perf_counter() - began)
            if method == "kmeans" and everything:  # what aligned's space gives by itself
                rows += measure("whitened", seed, _whitened(model, found.features), truth)
            if method == OURS and seed == 0:
                first = found
                first.truth = tuple(novel.classes[label] for label in truth.tolist())
                first.facts = facts(found, run, None, command) | {
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


def hide(images: Images) -> Images:
    """The same images as a pile that nobody labelled."""
    return Images(images.pixels, images.names, torch.full_like(images.labels, -1), ())


def measure(
    method: str, seed: int, features: Float[Tensor, "n dim"], truth: Int[Tensor, " n"], seconds: float = 0.0
) -> list[dict]:
    """The scores of some features, one row per reading."""
    classes = len(truth.unique())
    return [
        {"method": method, "seed": seed, "reading": reading, "seconds": round(seconds, 1)}
        | scores(truth, read(space, classes, None, seed).assignment, classes)
        for reading, space in (("k-means", features), (READING, F.normalize(features, dim=1)))
    ]


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
        "discovery": vars(Run(mixed=False)),
        "seeds": sorted(set(rows["seed"].tolist())),
        "command": command,
        "versions": versions(),
    }
    records = rows.drop(columns="nmi normaliser").round(4).to_dict("records")
    text = json.dumps({"setting": setting, "rows": records}, indent=1, ensure_ascii=False)
    files.write(path, text + "\n")


def _demonstrated(about: Path) -> bool:
    """Whether this file is there, whole, and of a demonstration."""
    try:
        return "comparison" in json.loads(about.read_text(encoding="utf-8"))["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _whitened(model: Model, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
    shrink = aligned().whiten
    assert shrink is not None
    assert model.spread is not None
    return features @ whitening(model.spread, shrink)


def _called(progress: Progress, name: str) -> Progress:
    return lambda stage, epochs, row: progress(name, epochs, row)
