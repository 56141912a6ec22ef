"""The values that travel through the house, with their shapes."""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.errors import InputError

Scalar = Float[Tensor, ""]
Losses = dict[str, Tensor]

ALL = 99
"""Train every stage of the backbone: no backbone has so many. Files of results hold it, and are compared by it."""


class Latents(NamedTuple):
    """What a backbone says of some images."""

    z: Float[Tensor, "batch dim"]
    map: Float[Tensor, "batch channels height width"] | None = None  # before the last stage, to branch there


class Batch(NamedTuple):
    """Some images, each seen in several views. The truth of unlabelled images is not in here."""

    views: list[Tensor]  # each batch × image
    labels: Int[Tensor, " batch"]  # −1 where unlabelled
    rows: Int[Tensor, " batch"]  # place in the dataset
    notes: dict[str, Tensor]  # what one hook writes down for the next, a row per image


class Survey(NamedTuple):
    """Latents of every image of the discovery set, in eval mode, without augmentation."""

    features: Float[Tensor, "all dim"]
    labels: Int[Tensor, " all"]  # −1 where unlabelled

    @property
    def unlabelled(self) -> Float[Tensor, "n dim"]:
        """Latents of the unlabelled images."""
        return self.features[self.labels < 0]

    @property
    def labelled(self) -> Float[Tensor, "n dim"]:
        """Latents of the labelled images."""
        return self.features[self.labels >= 0]


class Now(NamedTuple):
    """Where in the run we are. Order, views, methods' draws and the learning rate are functions of it."""

    seed: int
    epoch: int
    epochs: int
    step: int = 0  # within the epoch
    steps: int = 1

    @property
    def progress(self) -> float:
        """Share of the run that is over; ramps, starts and rates are written in it."""
        return (self.epoch + self.step / self.steps) / self.epochs

    def random(self, purpose: str) -> torch.Generator:
        """A generator that depends on this moment and the purpose, and on nothing else."""
        return generator(self.seed, self.epoch, self.step, purpose)

    def first(self, start: float) -> bool:
        """Whether this is the first epoch at or after this share of the run, or the last one if there is none."""
        reached, last = self.epoch / self.epochs >= start, self.epoch == self.epochs - 1
        return (self.epoch - 1) / self.epochs < start and (reached or last)

    def every(self, interval: float, start: float = 0.0) -> bool:
        """Whether a multiple of `interval` after `start` (shares of the run) falls on this epoch; the first at or after
        `start` is one.
        """
        since = self.epoch - math.ceil(round(start * self.epochs, 6))  # rounded: 0.1 · 30 is a little more than 3
        return since >= 0 and since % max(1, round(interval * self.epochs)) == 0


def generator(*key: int | str) -> torch.Generator:
    """A random generator seeded by a hash of the key: equal keys, equal draws, on every machine."""
    digest = hashlib.sha256(" ".join(map(str, key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


@contextmanager
def seeded(*key: int | str) -> Iterator[None]:
    """Within it torch's global draws on the CPU, which initial weights come from, are a function of the key.

    Other devices' generators are left alone: `torch.manual_seed` would seed them too, and nobody would put them back.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator(*key).initial_seed())
        yield


class Problem(NamedTuple):
    """How many classes there are, whether labelled images take part, and what unlabelled ones may be of."""

    dim: int
    known: int  # always the true number
    novel: int
    labelled: bool = True  # False in two stages: no labelled image comes
    rows: int = 0  # images in the discovery set
    mixed: bool = False  # whether unlabelled images may be of known classes too

    @property
    def classes(self) -> int:
        """Classes in the discovery set; Spacing's c."""
        return self.novel + (self.known if self.labelled or self.mixed else 0)

    @property
    def unlabelled_classes(self) -> int:
        """Classes that unlabelled images may be of: as many outputs has a head for them."""
        return self.novel + (self.known if self.mixed else 0)


def constant(progress: float) -> float:
    """The schedule that does nothing."""
    return 1.0


@dataclass(frozen=True)
class Training:
    """How a method is trained: plain values; a budget replaces some of them."""

    epochs: int
    batch: int
    rate: float
    optimiser: Literal["sgd", "adam"] = "sgd"
    decay: float = 1e-4
    schedule: Callable[[float], float] = constant  # of progress; there is no scheduler object to save
    views: tuple[str, ...] = ("weak", "weak")  # kinds in data/views.py
    trains: int = ALL  # how many of backbone.stages, counted from the last; the rest is frozen
    classes_per_batch: int = 0  # classes in a batch, the same number of images of each; 0: images as they come
    precision: Literal["full", "bfloat16"] = "full"  # of the backbone; methods count in full precision always

    def at(self, epochs: int, rate: float, batch: int, schedule: Callable[[float], float] = constant) -> "Training":
        """The same for somebody's own images: every stage learns. What trains nothing, as k-means, goes on to train
        nothing, and a backbone that is to stay as it is stays.
        """
        epochs, trains = epochs if self.epochs else 0, ALL if self.trains else 0
        return replace(self, epochs=epochs, rate=rate, batch=batch, schedule=schedule, trains=trains)

    def settings(self) -> dict[str, Any]:
        """The same as values that JSON can hold, the schedule as text; equal settings, equal text, in every process.

        A schedule of which two that differ would read the same, such as a lambda, is refused.
        """
        schedule = self.schedule
        given: list[str] = []
        if isinstance(schedule, partial):
            given = [*map(str, schedule.args), *(f"{key}={value}" for key, value in schedule.keywords.items())]
            schedule = schedule.func
        if not isinstance(schedule, FunctionType | BuiltinFunctionType) or "<" in schedule.__qualname__:
            raise InputError(
                f"The schedule {self.schedule} has no name that tells it from others. Needed: a function of a module, "
                "or a partial of one. Write lambdas and inner functions so, with what they depend on as arguments."
            )
        text = f"{schedule.__name__}({', '.join(given)})" if given else schedule.__name__
        values = vars(self) | {"schedule": text, "views": list(self.views)}
        if self.precision == "full":  # files of results are older than the choice
            del values["precision"]
        return values | {"few": values.pop("classes_per_batch")}  # as files of results call it
