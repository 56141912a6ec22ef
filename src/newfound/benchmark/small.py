"""Small sets, on which the product itself is measured: its stage one, its defaults on images of one's own, its
readings. Methods see the novel images alone, without labels; the number of classes is given.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import cache
from newfound.benchmark.stages import fingerprint
from newfound.data.cifar import cifar
from newfound.data.datasets import digits, fashion_mnist
from newfound.data.sources import Images, doodles
from newfound.data.splits import by_class, split_classes
from newfound.discovery.discover import stage_one
from newfound.discovery.find import Progress, find, silent
from newfound.discovery.reading import read
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.errors import InputError
from newfound.functional.geometry import nearest
from newfound.functional.metrics import scores
from newfound.networks.model import Model
from newfound.types import generator

PIXELS = "pixels"
"""The row of k-means on the pixels, which no method stands behind."""

TITLES = {
    PIXELS: "k-means on the pixels",
    "kmeans": "k-means on the start features",
    "spacing": "spacing (the default)",
    "spacing:unanchored": "spacing without anchors",
    "uno": "UNO",
    "dtc": "DTC",
    "pairs": "pairs alone",
    "pairs+spacing": "pairs + spacing",
    "pairs+spacing:aligned": "pairs + spacing by the paper's rule, anchors aligned",
    "pairs+spacing:paper": "pairs + spacing to the letter (paper)",
    "pairs+spacing:author": "pairs + spacing as in its author's code (author)",
    "pairs+spacing:dcn": "pairs + spacing by the paper's rule, without anchors (dcn)",
}
"""What tables call the methods, in their order."""


@dataclass(frozen=True, eq=False)
class SmallSet:
    """Known classes with labels, images of novel ones without, and the truth of these for the metrics alone."""

    known: Images
    novel: Images
    truth: Int[Tensor, " n"]
    stage: StageOne
    asked: int | None = None  # novel classes that methods are told of; None: as many as there are

    @property
    def classes(self) -> int:
        """How many novel classes there are."""
        return len(self.truth.unique())


def hide(images: Images) -> Images:
    """The same images as a pile that nobody labelled."""
    return Images(images.pixels, images.names, torch.full_like(images.labels, -1), ())


def thin(images: Images, truth: Int[Tensor, " n"], counts: list[int]) -> tuple[Images, Int[Tensor, " m"]]:
    """At most so many images of each class, the first ones."""
    kept = [(truth == label).nonzero()[:count, 0] for label, count in enumerate(counts)]
    rows = torch.cat(kept).sort().values
    return images.pick(rows), truth[rows]


def long_tail(most: int, classes: int, ratio: float, seed: int) -> list[int]:
    """Sizes of classes that fall geometrically from `most` to `most`/`ratio`, in an order drawn by the seed.

    n_k = most · ratio^(−r_k / (c − 1)),   r a permutation of 0 … c − 1
    """
    ranks = torch.randperm(classes, generator=generator(seed, "long tail"))
    return (most * ratio ** (-ranks / (classes - 1))).round().long().tolist()


def _doodles(data: Path | None, seed: int) -> SmallSet:
    novel = doodles("novel")
    return SmallSet(doodles("known"), hide(novel), novel.labels, StageOne(size=28))


def _split(images: Images, known: list[int], stage: StageOne, most: int | None = None) -> SmallSet:
    """Some classes of a set known, the others novel; `most` images of a class, where that is given."""
    if most is not None:
        images, _ = thin(images, images.labels, [most] * len(images.classes))
    split = by_class(images, known, [label for label in range(len(images.classes)) if label not in known])
    return SmallSet(split.known, split.novel, split.truth, stage)


def _cifar(data: Path | None, counts: list[int]) -> SmallSet:
    if data is None:
        raise InputError("No folder with cifar10 was given. Give it with --data or NEWFOUND_DATA.")
    classes = split_classes("5-5")
    split = by_class(cifar(data, "cifar10"), classes.known, classes.novel)
    novel, truth = thin(split.novel, split.truth, counts)
    return SmallSet(split.known, novel, truth, StageOne())


def _tail(whole: SmallSet, seed: int, most: int) -> SmallSet:
    novel, truth = thin(whole.novel, whole.truth, long_tail(most, whole.classes, 20.0, seed))
    return replace(whole, novel=novel, truth=truth)


SETS: dict[str, Callable[[Path | None, int], SmallSet]] = {
    "doodles": _doodles,
    "digits-0-4": lambda data, seed: _split(digits(), [0, 1, 2, 3, 4], StageOne(pretrain_epochs=40)),
    "digits-5-9": lambda data, seed: _split(digits(), [5, 6, 7, 8, 9], StageOne(pretrain_epochs=40)),
    "digits-even": lambda data, seed: _split(digits(), [0, 2, 4, 6, 8], StageOne(pretrain_epochs=40)),
    "fashion-mnist": lambda data, seed: _split(fashion_mnist(), [0, 1, 2, 3, 4], StageOne(size=28), most=600),
    "cifar10-few": lambda data, seed: _cifar(data, [200] * 5),
    "doodles-tail": lambda data, seed: _tail(_doodles(data, seed), seed, 100),
    "cifar10-tail": lambda data, seed: _cifar(data, long_tail(2000, 5, 20.0, seed)),
    "doodles-15": lambda data, seed: replace(_doodles(data, seed), asked=15),
    "doodles-7": lambda data, seed: replace(_doodles(data, seed), asked=7),
}
"""How each set is made, given the folder with CIFAR and a seed. Behind doodles a number: so many classes are asked for,
where there are ten.
"""


def learn_known(small: SmallSet, seed: int, progress: Progress = silent) -> Model:
    """Stage one of a set, from the cache once it has been run."""
    setting = {"known": fingerprint(small.known), "stage": vars(small.stage), "seed": seed}
    folder = cache.entry(
        "small",
        setting,
        lambda place: stage_one(small.known, small.stage, seed, progress=progress).save_pretrained(place),
    )
    return Model.from_pretrained(folder)


def run_row(small: SmallSet, model: Model, method: str, seed: int, progress: Progress = silent) -> list[dict[str, Any]]:
    """The scores of a method on a set, one for each reading."""
    if method == PIXELS:
        return measure(small, small.novel.pixels.flatten(1) / 255, PIXELS, seed, 0.0)
    began = time.perf_counter()
    found = discover(small, model, method, seed, progress)
    return measure_found(small, found, method, seed, time.perf_counter() - began)


def discover(small: SmallSet, model: Model, method: str, seed: int, progress: Progress = silent) -> Discovery:
    """What the product finds in a set."""
    run = Run(method=method, mixed=False, seed=seed)
    return find(model, small.novel, small.asked or small.classes, run=run, progress=progress)


def measure_found(small: SmallSet, found: Discovery, method: str, seed: int, seconds: float) -> list[dict[str, Any]]:
    """The scores of a discovery in every reading: by k-means, and by prototypes where a method has any."""
    return [
        *measure(small, found.features, method, seed, seconds),
        *_by_prototypes(small, found, method, seed, seconds),
    ]


def measure(
    small: SmallSet, features: Float[Tensor, "n dim"], method: str, seed: int, seconds: float
) -> list[dict[str, Any]]:
    """The scores of some features by k-means, on latents as they are and on unit ones."""
    spaces = {"k-means": features, "unit k-means": F.normalize(features, dim=1)}
    asked = small.asked or small.classes
    return [
        _row(small, read(space, asked, None, seed).assignment, method, seed, reading, seconds)
        for reading, space in spaces.items()
    ]


def _by_prototypes(small: SmallSet, found: Discovery, method: str, seed: int, seconds: float) -> list[dict[str, Any]]:
    """The scores by the nearest prototype, where a method has prototypes and all images were kept."""
    last = found.moments[-1] if found.moments else None
    if last is None or last.spaced is None or last.prototypes is None or len(last.rows) < len(small.truth):
        return []
    return [_row(small, nearest(last.spaced, last.prototypes), method, seed, "prototypes", seconds)]


def _row(
    small: SmallSet, assignment: Int[Tensor, " n"], method: str, seed: int, reading: str, seconds: float
) -> dict[str, Any]:
    own = {"method": method, "seed": seed, "reading": reading, "seconds": round(seconds, 1)}
    found = scores(small.truth, assignment, small.asked or small.classes)
    return own | {name: round(value, 4) for name, value in found.items() if isinstance(value, float)}
