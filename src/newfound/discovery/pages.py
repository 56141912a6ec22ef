"""Discovery → the plain values of a report."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from newfound import files
from newfound.discovery.howmany import explained
from newfound.discovery.result import DOUBTFUL, EXEMPLARS, Discovery
from newfound.errors import counted
from newfound.report.maps import flatten
from newfound.report.page import Exemplar, Found, Page, render


def write_report(found: Discovery, path: Path, comparison: Sequence[tuple[str, float, float]] = ()) -> None:
    """Write the report of a discovery: one HTML file that needs nothing else."""
    files.write(path, render(page(found, comparison)))


def page(found: Discovery, comparison: Sequence[tuple[str, float, float]] = ()) -> Page:
    """What the report shows of a discovery; `comparison` sets other methods beside it (title, accuracy, NMI)."""
    shown, points = flatten(found.features.numpy(), seed=0)
    filled = {found.numbers[cluster] for cluster in found.cluster.tolist()}
    place = {number: i for i, number in enumerate(number for number in found.classes if number in filled)}
    of = np.array([place[found.numbers[cluster]] for cluster in found.cluster.tolist()])
    table = found.assignments()
    classes = [_class(found, table, number, np.flatnonzero(of == i)) for number, i in place.items()]
    counting: dict[str, list[float]] = {}
    if found.count is not None:
        names = {"pairs": "log of joined over true pairs", "accuracy": "labelled accuracy", "silhouette": "silhouette"}
        counting = {
            names[voice]: [getattr(tried, voice) for tried in found.count.curve] for voice in found.count.estimates
        }
    return Page(
        title=f"{counted(len(classes), 'class', 'classes')} in {counted(len(of), 'image')}",
        lead=_lead(found),
        classes=classes,
        points=points,
        assignments=of[shown],
        captions=[found.called(int(row)) for row in shown],
        curves=_curves(found),
        counting=counting,
        tried=[] if found.count is None else [tried.classes for tried in found.count.curve],
        chosen=0 if found.count is None else found.count.classes,
        reason="" if found.count is None else explained(found.count),
        metrics=None if found.scores is None else {k: v for k, v in found.scores.items() if isinstance(v, float)},
        measured=f"On all {len(of)} unlabelled images, without augmentation, after the last epoch. "
        "The truth was used for these numbers and the captions alone, never while learning.",
        comparison=list(comparison),
        facts=found.facts,
        skipped=list(found.skipped),
    )


def _class(found: Discovery, table: pd.DataFrame, number: int, members: np.ndarray) -> Found:
    ordered = table.iloc[members].sort_values("distance", kind="stable")
    kept = [
        Exemplar(found.called(int(row)), found.thumbnails[row].permute(1, 2, 0).numpy(), confidence)
        for row, confidence in zip(ordered.index, ordered["confidence"], strict=True)
        if row in found.thumbnails
    ]
    typical = kept[: min(EXEMPLARS, len(kept) - min(DOUBTFUL, len(kept) // 3))]
    return Found(
        name=found.names[number],
        size=int((ordered["kind"] != "unsure").sum()),  # a class may be called so
        unsure=int((ordered["kind"] == "unsure").sum()),
        known=found.kind(number) == "known",
        coherence=float(ordered["confidence"].mean()),
        exemplars=typical,
        doubtful=kept[len(typical) :][-DOUBTFUL:][::-1],
        truth=None if found.truth is None else dict(Counter(found.truth[row] for row in members)),
    )


def _lead(found: Discovery) -> str:
    classes = found.summary()
    new = classes[classes["kind"] == "new"]
    knowing = (
        f", knowing {counted(len(found.model.classes), 'other class', 'other classes')}" if found.model.classes else ""
    )
    text = f"newfound found {counted(len(new), 'new class', 'new classes')} in "
    text += f"{counted(len(found.paths), 'unlabelled image')}{knowing}."
    if found.known:
        seen = classes[classes["kind"] == "known"]
        sure = int(seen["size"].sum())
        text += f" {counted(sure, 'image is', 'images are')} of {counted(len(seen), 'known class', 'known classes')}."
    if unsure := int(classes["unsure"].sum()):
        text += f" {counted(unsure, 'is', 'are')} unsure."
    return text


def _curves(found: Discovery) -> dict[str, list[float]]:
    names = [name for name in (found.rows[0] if found.rows else {}) if name not in ("epoch", "seconds")]
    return {name: [row[name] for row in found.rows] for name in names}
