"""The demonstration: people's doodles, 100 known categories, ten that nobody named."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from newfound import files, parallel
from newfound.console import Progress, retitle, silent
from newfound.data.datasets import load_doodles
from newfound.discovery import scoring
from newfound.discovery.facts import About, versions
from newfound.discovery.find import find
from newfound.discovery.found import Compared
from newfound.discovery.result import Discovery
from newfound.discovery.scoring import PIXELS, score_discovery, score_features, table_rows
from newfound.discovery.settings import Run, StageOne, needed
from newfound.encoders import choose_encoder
from newfound.encoders.pixels import PixelEncoder
from newfound.errors import InputError, counted

DEFAULT = PixelEncoder.default_method
STAGE = StageOne(size=28)
TITLES = {name: title for name, title in scoring.TITLES.items() if name not in ("dtc", "pairs+spacing")}
FEW = ("kmeans", DEFAULT)
MANY = tuple(name for name in TITLES if name != PIXELS)
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
    known, novel, rows = load_doodles("known"), load_doodles("novel"), list[dict]()
    unlabelled, truth, classes = novel.unlabel(), novel.listing.labels, len(novel.listing.classes)
    about = About(command, truth=tuple(novel.listing.classes[label] for label in truth.tolist()))
    for seed in range(seeds):
        encoder = choose_encoder(STAGE, None, [known], labelled=True)
        model = encoder.fit_known(known, STAGE, seed, progress=retitle(progress, f"seed {seed}: learn the known"))
        rows += table_rows(PIXELS, seed, 0.0, score_features(unlabelled.pixels.flatten(1) / 255, truth, classes, seed))
        for method in MANY if everything else FEW:
            run, began = Run(method=method, mixed=False, seed=seed), time.perf_counter()
            told = retitle(progress, f"seed {seed}: {method}")
            found = find(model, unlabelled, classes, run=run, about=about, progress=told)
            seconds = time.perf_counter() - began
            rows += table_rows(method, seed, seconds, score_discovery(found, truth, classes, seed))
            if method == DEFAULT and seed == 0:
                first = found
    facts = {**first.facts, "comparison": f"mean of {counted(seeds, 'seed')}, this is seed 0"}
    Discovery(replace(first, facts=facts, comparison=tuple(comparison(rows)))).save(output, overwrite=True)
    return pd.DataFrame(rows)


def check_place(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier demonstration."""
    files.check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not _demonstrated(folder / "discovery.json"):
        raise InputError(f"{folder} holds other files; this needs a folder of its own. Give another place with -o.")


def comparison(rows: Sequence[dict]) -> list[Compared]:
    """Title, mean accuracy and mean NMI of each method, in the table's reading."""
    table = pd.DataFrame([row for row in rows if row["reading"] == READING])
    table = table.groupby("method")[["accuracy", "nmi"]].mean()
    return [Compared(TITLES[name], *map(float, table.loc[name])) for name in TITLES if name in table.index]


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
