"""What a figure needs of a run: its latents, and Spacing's prototypes and anchors, before training and after."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor

from newfound import files
from newfound.data.batches import Dataset
from newfound.errors import InputError
from newfound.methods.base import Method
from newfound.methods.spacing import spacing_of
from newfound.training.loop import Learner, survey
from newfound.types import Now

NAME = "trace.safetensors"
MOST = 5000
"""At most so many images, evenly chosen, are kept."""


@dataclass(frozen=True, eq=False)
class Moment:
    """Unlabelled images at one moment of a run."""

    rows: Int[Tensor, " n"]  # which of them

    latents: Float[Tensor, "n dim"]
    spaced: Float[Tensor, "n dim"] | None = None  # the same in the space where prototypes live
    prototypes: Float[Tensor, "c dim"] | None = None
    anchors: Float[Tensor, "c dim"] | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """A run before and after, and what its images are called."""

    title: str
    classes: tuple[str, ...]
    labels: Int[Tensor, " n"]  # places in `classes`, of the rows kept: the truth where it is known, else what was found
    before: Moment
    after: Moment

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        tensors = {"labels": self.labels}
        for when, moment in (("before", self.before), ("after", self.after)):
            tensors |= {f"{when}.{key}": value for key, value in vars(moment).items() if value is not None}
        about = {"newfound": json.dumps({"title": self.title, "classes": self.classes})}
        files.write_tensors(folder / NAME, tensors, about)

    @staticmethod
    def load(folder: Path) -> "Trace":
        """Read it from a run folder."""
        path = folder / NAME
        if not path.is_file():
            raise InputError(
                f"{folder} has no {NAME}. Needed: a folder that `newfound discover` wrote, or one of those that "
                "`newfound benchmark --keep DIR` wrote. Give such a folder, or make the run anew."
            )
        try:
            with safe_open(path, "pt") as file:
                about = json.loads(file.metadata()["newfound"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            moments = {
                when: Moment(**{name.split(".")[1]: t for name, t in tensors.items() if name.startswith(f"{when}.")})
                for when in ("before", "after")
            }
            return Trace(about["title"], tuple(about["classes"]), tensors["labels"], **moments)
        except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} cannot be read ({error}). Copy it again, or make the run anew.") from error


@torch.no_grad()
def beginning(learner: Learner, data: Dataset, seed: int, epochs: int) -> Moment:
    """Before training: a copy of the method is started as `fit` will start it, and shows where its prototypes are."""
    seen = survey(learner.backbone, data)
    trial = copy.deepcopy(learner.method).to(seen.features.device)  # it may have been built elsewhere
    starts = (Now(seed, epoch, max(epochs, 1)) for epoch in range(max(epochs, 1)))
    for now in starts:
        trial.before_epoch(lambda: seen, now)
        if (loss := spacing_of(trial)) is None or loss.started:
            break
    return _moment(trial, seen.features[seen.labels < 0])


@torch.no_grad()
def ending(learner: Learner, data: Dataset) -> Moment:
    """After training."""
    seen = survey(learner.backbone, data)
    return _moment(learner.method, seen.features[seen.labels < 0])


def _moment(method: Method, latents: Float[Tensor, "all dim"]) -> Moment:
    rows = torch.linspace(0, len(latents) - 1, min(len(latents), MOST), dtype=torch.float64).round().long()
    loss, kept = spacing_of(method), latents[rows.to(latents.device)]
    if loss is None or not loss.started:
        return Moment(rows, kept.cpu())
    # clones: latents may be their own space, and tensors that share memory cannot be saved
    more = (value.cpu().clone() for value in (loss.space(kept), loss.prototypes, loss.anchors))
    return Moment(rows, kept.cpu(), *more)
