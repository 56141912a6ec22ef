"""How good a run was on its way: clusters are written down at some epochs, and measured once it is over."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from newfound.functional.cluster import kmeans
from newfound.functional.metrics import scores
from newfound.methods.base import Method
from newfound.report import curves
from newfound.types import Batch, Latents, Losses, Now, Survey


@final
class Curve(Method):
    """Beside a method in a `Sum`: no loss, but what unit k-means finds at the beginning of some epochs.

    The truth is not known here. That the clusters are a buffer keeps them with a run that is interrupted.
    """

    found: Int[Tensor, "points n"]
    epochs: Int[Tensor, " points"]

    def __init__(self, unlabelled: int, novel: int, points: int):
        super().__init__()
        self.novel, self.points = novel, points
        self.register_buffer("found", torch.full((points, unlabelled), -1))
        self.register_buffer("epochs", torch.full((points,), -1))  # that were over; −1: no such point

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """None."""
        return {}

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Look at all images where the share of the run is that of a point; the end is none, for it is the result."""
        reached = [point for point in range(self.points) if now.first(point / self.points)]
        if reached:
            z = F.normalize(survey().unlabelled, dim=1)
            self.found[reached[0]] = kmeans(z, self.novel, now.random("curve")).assignment
            self.epochs[reached[0]] = now.epoch


def draw(curve: Curve, truth: Int[Tensor, " n"], before: float, seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Accuracy and NMI against minutes: those `before` discovery, and those of the epochs that were over by then."""
    rows = []
    for found, epoch in zip(curve.found.cpu(), curve.epochs.tolist(), strict=True):
        if epoch >= 0:
            measured = scores(truth, found, curve.novel)
            minutes = (before + sum(seconds[:epoch])) / 60
            rows.append({"epoch": epoch, "minutes": minutes} | {name: measured[name] for name in ("accuracy", "nmi")})
    return rows


def against_minutes(rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> list[curves.Curve]:
    """What a figure shows of rows of results: each from the end of stage one to its last epoch, by unit k-means."""
    shown = []
    for row in rows:
        points = [(point["minutes"], point["accuracy"]) for point in row.get("curve", ())]
        if points:
            ended = (row["stage one seconds"] + row["seconds"]) / 60
            minutes, accuracy = zip(*points, (ended, row["train"]["unit k-means"]["accuracy"]), strict=True)
            shown.append(curves.Curve(titles.get(row["method"], row["method"]), minutes, accuracy))
    return shown
