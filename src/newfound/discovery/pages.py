"""The present classes → the plain values of a report."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import UInt8
from torch import Tensor

from newfound import files
from newfound.discovery.edits import Classes
from newfound.discovery.found import Found
from newfound.discovery.howmany import explain
from newfound.discovery.judging import DOUBTFUL, EXEMPLARS
from newfound.discovery.summary import explain_gaps
from newfound.discovery.tables import find_nearest_known, measure, tabulate_assignments, tabulate_classes
from newfound.errors import counted
from newfound.functional.rehearsal import Rows, introduce, tabulate
from newfound.report import page as report
from newfound.report.maps import flatten

MANY, POOR = 0.3, 0.6
"""A share of unsure images, or of outliers, above which, and an expected accuracy below which, a report begins with a
warning.
"""

DOUBTED = ("unsure", "outlier")
"""The kinds of images that are of no class for sure."""

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
    summary, nearest = tabulate_classes(now), find_nearest_known(now)
    where, rehearsed = _rehearsal(found)
    counts = (summary["kind"] == "new") | (summary["size"] > 0)  # a known class that no image is surely of is none
    return report.Page(
        title=f"{counted(len(summary[counts]), 'class', 'classes')} in {counted(len(of), 'image')}",
        lead=_lead(now, summary),
        classes=[_class(now, table, number, nearest.get(number)) for number in filled],
        warnings=find_faults(now, summary),
        notes=explain_gaps(now),
        points=points,
        assignments=of[shown],
        captions=[found.caption(int(row)) for row in shown],
        curves=_curves(found),
        counting={} if count is None else {CRITERIA[c]: [getattr(t, c) for t in count.curve] for c in count.estimates},
        tried=[] if count is None else [tried.classes for tried in count.curve],
        chosen=0 if count is None else count.classes,
        reason="" if count is None else explain(count),
        rehearsal=where,
        rehearsed=rehearsed,
        expected="" if found.expected is None else str(found.expected),
        metrics=measure(now),
        measured=f"On all {kept} unlabelled images, without augmentation, after the last epoch. "
        "The truth was used for these numbers and the captions alone, never while learning.",
        comparison=[(other.title, other.accuracy, other.nmi) for other in found.comparison],
        facts=dict(found.facts),
        skipped=list(found.listing.skipped),
    )


def find_faults(now: Classes, summary: pd.DataFrame) -> list[str]:
    """Why little of a run should be believed: a sentence for each reason, none where all seems well."""
    faults = []
    unsure, outliers = int(summary["unsure"].sum()), int(summary["outliers"].sum())
    all_images = int(summary["size"].sum()) + unsure + outliers
    if all_images and unsure > MANY * all_images:
        faults.append(
            f"{unsure} of {counted(all_images, 'image')} ({unsure / all_images:.0%}) are unsure: the classes are not "
            "told apart well. Look at each before you name it; more labelled images, another --backbone or fewer "
            "--classes may help."
        )
    if all_images and outliers > MANY * all_images:
        faults.append(
            f"{outliers} of {counted(all_images, 'image')} ({outliers / all_images:.0%}) fit no class, known or new. "
            "Look at them first: they may be other pictures than you meant, or more --classes may be there."
        )
    expected = now.found.expected
    if expected is not None and expected.accuracy < POOR:
        faults.append(
            f"The expected accuracy is {expected}: so many images are likely in the right class. Take the classes as a "
            "first sorting, not as kinds."
        )
    return faults


def _rehearsal(found: Found) -> tuple[str, dict[str, Rows]]:
    """On which known classes ways were tried, in a sentence, and rows below each heading; nothing where none was."""
    rehearsal = found.model.rehearsal
    if found.way is None or rehearsal is None or not rehearsal.trials:
        return "", {}
    rows = tabulate(rehearsal, found.way, mixed=found.run is None or found.run.mixed)
    return f"{introduce(rehearsal)}, to choose how to find new ones.", rows


def _class(now: Classes, table: pd.DataFrame, number: int, nearest: int | None) -> report.FoundClass:
    found, members = now.found, now.rows(number).tolist()
    ordered = table.iloc[members].sort_values("distance", kind="stable")
    kept = [
        (said in DOUBTED, report.Exemplar(found.caption(int(row)), _pixels(found.thumbnails[row]), confidence))
        for row, confidence, said in zip(ordered.index, ordered["confidence"], ordered["kind"], strict=True)
        if row in found.thumbnails
    ]
    sure = [shown for unsure, shown in kept if not unsure]
    typical = sure[: min(EXEMPLARS, len(kept) - min(DOUBTFUL, len(kept) // 3))]
    others = [shown for _, shown in kept if shown not in typical]
    return report.FoundClass(
        name=now.names[number],
        size=int((~ordered["kind"].isin(DOUBTED)).sum()),  # a class may be called so
        unsure=int((ordered["kind"] == "unsure").sum()),
        outliers=int((ordered["kind"] == "outlier").sum()),
        known=now.kind(number) == "known",
        coherence=float(ordered["confidence"].mean()),
        exemplars=typical,
        doubtful=others[-DOUBTFUL:][::-1],
        truth=None if found.truth is None else dict(Counter(found.truth[row] for row in members)),
        number=number,
        nearest="" if nearest is None else now.names[nearest],
        references=_references(now, number if nearest is None else nearest),
    )


def _references(now: Classes, number: int) -> list[report.Exemplar]:
    """Labelled images of a known class, or of those that were merged into it."""
    found = now.found
    places = [place for place in found.references if now.owners[place] == number]
    return [
        report.Exemplar(f"labelled {found.known[place]}", _pixels(copy))
        for place in places
        for copy in found.references[place]
    ]


def _pixels(copy: UInt8[Tensor, "channels height width"]) -> UInt8[np.ndarray, "height width channels"]:
    return copy.permute(1, 2, 0).numpy()


def _lead(now: Classes, classes: pd.DataFrame) -> str:
    found = now.found
    new = classes[classes["kind"] == "new"]
    others = counted(len(found.model.classes), "other class", "other classes")
    text = f"newfound found {counted(len(new), 'new class', 'new classes')} in "
    text += f"{counted(len(found), 'unlabelled image')}{f', knowing {others}' if found.model.classes else ''}."
    if found.known:
        seen = classes[(classes["kind"] == "known") & (classes["size"] > 0)]
        sure = int(seen["size"].sum())
        text += f" {counted(sure, 'image is', 'images are')} of {counted(len(seen), 'known class', 'known classes')}."
    if unsure := int(classes["unsure"].sum()):
        text += f" {counted(unsure, 'is', 'are')} unsure."
    if outliers := int(classes["outliers"].sum()):
        text += f" {counted(outliers, 'fits', 'fit')} none of them."
    if aside := int(now.aside.sum()):
        text += f" {counted(aside, 'was', 'were')} set aside."
    return text


def _curves(found: Found) -> dict[str, list[float]]:
    """What methods wrote down, a value for every epoch; not a number where they had nothing to say."""
    names = dict.fromkeys(name for row in found.history for name in row if name not in ("epoch", "seconds"))
    return {name: [row.get(name, math.nan) for row in found.history] for name in names}
