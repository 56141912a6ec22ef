"""Saved runs → the paper's figures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from newfound import files
from newfound.discovery.edits import classes
from newfound.discovery.storage import DISCOVERY, read_run
from newfound.discovery.trace import Trace
from newfound.errors import InputError
from newfound.functional.geometry import nearest
from newfound.report.drawings import Snapshot, save, spacing, tsne
from newfound.training.moments import Moment


def draw(kind: Literal["tsne", "spacing"], runs: Sequence[Path], output: Path) -> tuple[Path, Path]:
    """Draw saved runs; writes a PNG and an SVG, and returns their paths. An ending that `output` has is left off."""
    files.check_writable(output.parent)
    if output.suffix in (".png", ".svg"):
        output = output.with_suffix("")
    traces = [read_trace(run) for run in runs]
    if kind == "tsne":
        return draw_tsne(traces, output)
    if len(traces) > 1:
        raise InputError(f"A spacing figure shows one run, and {len(traces)} came. Draw them one by one.")
    return draw_spacing(traces[0], output)


def read_trace(folder: Path) -> Trace:
    """What a figure needs of a run. Where nobody knows the truth, images are called by their present classes."""
    trace = Trace.load(folder)
    if not (folder / DISCOVERY).is_file():  # a row of a benchmark
        return trace
    found, edits, _ = read_run(folder)
    now = classes(found, edits)
    if found.truth is not None:
        return trace
    names = [now.names[number] for number in now.assignment[trace.after.rows].tolist()]
    words = sorted(set(names))
    return replace(trace, classes=tuple(words), labels=torch.tensor([words.index(name) for name in names]))


def draw_tsne(traces: Sequence[Trace], output: Path) -> tuple[Path, Path]:
    """Latents of novel classes: before, then after, of the first run; then after, of the others."""
    first = traces[0]
    if any(not torch.equal(other.labels, first.labels) or other.classes != first.classes for other in traces):
        raise InputError(
            "These runs are of different images, or found different classes and do not know the truth. Needed: runs "
            "on the same images, with --truth where there is one. Or draw them one by one."
        )
    panels = [("before", first.before.latents.numpy())]
    gap = ", " if len(traces) <= 2 else "\n"  # narrow panels have room for a word a line
    panels += [(f"after {trace.title}".replace(", ", gap), trace.after.latents.numpy()) for trace in traces]
    caption = "Latents of unlabelled images by t-SNE."
    return save(tsne(panels, first.classes, first.labels.numpy(), seed=0, caption=caption), output)


def draw_spacing(trace: Trace, output: Path) -> tuple[Path, Path]:
    """Latents, prototypes and anchors, before and after."""
    return save(spacing(_snapshot("before", trace.before), _snapshot(f"after {trace.title}", trace.after)), output)


def _snapshot(title: str, moment: Moment) -> Snapshot:
    if moment.spaced is None or moment.prototypes is None or moment.anchors is None:
        raise InputError("This run has no Spacing in it: nothing to draw. Give a run of a method with +spacing.")
    assignment = nearest(moment.spaced, moment.prototypes)
    values = (moment.spaced, assignment, moment.prototypes, moment.anchors)
    return Snapshot(title, *(value.numpy() for value in values))
