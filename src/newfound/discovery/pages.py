"""The present classes → the plain values of a report."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from newfound import files
from newfound.discovery.edits import Classes
from newfound.discovery.find import DOUBTFUL, EXEMPLARS
from newfound.discovery.found import Found
from newfound.discovery.howmany import explain
from newfound.discovery.tables import measure, tabulate_assignments, tabulate_classes
from newfound.errors import counted
from newfound.report import page as report
from newfound.report.maps import flatten

CRITERIA = {"pairs": "log of joined over true pairs", "accuracy": "labelled accuracy", "silhouette": "silhouette"}


def write_report(now: Classes, path: Path) -> None:
    """Write the report of a discovery: one HTML file that needs nothing else."""
    files.write(path, render_report(now))


def render_report(now: Classes) -> str:
    """The text of that file."""
    return report.render(page(now))


def page(now: Classes) -> report.Page:
    """What the report shows."""
    found, table = now.found, tabulate_assignments(now)
    shown, points = flatten(found.features.numpy(), seed=0)
    filled = [number for number in now.numbers if len(now.rows(number))]
    place = {number: i for i, number in enumerate(filled)}
    of = np.array([place.get(number, -1) for number in now.assignment.masked_fill(now.aside, -1).tolist()])
    shown, points = shown[of[shown] >= 0], points[of[shown] >= 0]
    count, kept = found.count, len(of) - int(now.aside.sum())
    return report.Page(
        title=f"{counted(len(filled), 'class', 'classes')} in {counted(len(of), 'image')}",
        lead=_lead(now),
        classes=[_class(now, table, number) for number in filled],
        points=points,
        assignments=of[shown],
        captions=[found.caption(int(row)) for row in shown],
        curves=_curves(found),
        counting={} if count is None else {CRITERIA[c]: [getattr(t, c) for t in count.curve] for c in count.estimates},
        tried=[] if count is None else [tried.classes for tried in count.curve],
        chosen=0 if count is None else count.classes,
        reason="" if count is None else explain(count),
        metrics=measure(now),
        measured=f"On all {kept} unlabelled images, without augmentation, after the last epoch. "
        "The truth was used for these numbers and the captions alone, never while learning.",
        comparison=[(other.title, other.accuracy, other.nmi) for other in found.comparison],
        facts=dict(found.facts),
        skipped=list(found.listing.skipped),
    )


def _class(now: Classes, table: pd.DataFrame, number: int) -> report.Found:
    found, members = now.found, now.rows(number).tolist()
    ordered = table.iloc[members].sort_values("distance", kind="stable")
    kept = [
        report.Exemplar(found.caption(int(row)), found.thumbnails[row].permute(1, 2, 0).numpy(), confidence)
        for row, confidence in zip(ordered.index, ordered["confidence"], strict=True)
        if row in found.thumbnails
    ]
    typical = kept[: min(EXEMPLARS, len(kept) - min(DOUBTFUL, len(kept) // 3))]
    return report.Found(
        name=now.names[number],
        size=int((ordered["kind"] != "unsure").sum()),  # a class may be called so
        unsure=int((ordered["kind"] == "unsure").sum()),
        known=now.kind(number) == "known",
        coherence=float(ordered["confidence"].mean()),
        exemplars=typical,
        doubtful=kept[len(typical) :][-DOUBTFUL:][::-1],
        truth=None if found.truth is None else dict(Counter(found.truth[row] for row in members)),
    )


def _lead(now: Classes) -> str:
    classes, found = tabulate_classes(now), now.found
    new = classes[classes["kind"] == "new"]
    others = counted(len(found.model.classes), "other class", "other classes")
    text = f"newfound found {counted(len(new), 'new class', 'new classes')} in "
    text += f"{counted(len(found), 'unlabelled image')}{f', knowing {others}' if found.model.classes else ''}."
    if found.known:
        seen = classes[classes["kind"] == "known"]
        sure = int(seen["size"].sum())
        text += f" {counted(sure, 'image is', 'images are')} of {counted(len(seen), 'known class', 'known classes')}."
    if unsure := int(classes["unsure"].sum()):
        text += f" {counted(unsure, 'is', 'are')} unsure."
    if aside := int(now.aside.sum()):
        text += f" {counted(aside, 'was', 'were')} set aside."
    return text


def _curves(found: Found) -> dict[str, list[float]]:
    names = [name for name in (found.history[0] if found.history else {}) if name not in ("epoch", "seconds")]
    return {name: [row[name] for row in found.history] for name in names}
