"""Small sets, on which the product itself is measured: its stage one, its defaults on images of one's own, its
readings. Methods see the novel images alone, without labels; the number of classes is given.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.benchmark import entries
from newfound.benchmark.stages import fingerprint
from newfound.console import Progress, silent
from newfound.data.datasets import load_dataset, load_doodles, split_dataset
from newfound.data.pixels import Images
from newfound.discovery.find import find
from newfound.discovery.found import Found
from newfound.discovery.scoring import PIXELS, score_discovery, score_features, table_rows
from newfound.discovery.settings import Run, StageOne
from newfound.encoders import choose_encoder
from newfound.networks.model import Model
from newfound.types import generator


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
    novel = load_doodles("novel")
    return SmallSet(load_doodles("known"), novel.unlabel(), novel.listing.labels, StageOne(size=28))


def _split(dataset: str, split: str, stage: StageOne, most: int | None = None) -> SmallSet:
    """A set by one of its splits; `most` images of a class, where that is given."""
    images = load_dataset(dataset)
    if most is not None:
        images, _ = thin(images, images.listing.labels, [most] * len(images.listing.classes))
    parts = split_dataset(images, dataset, split)
    return SmallSet(parts.known, parts.novel, parts.truth, stage)


def _cifar(data: Path | None, counts: list[int]) -> SmallSet:
    split = split_dataset(load_dataset("cifar10", data), "cifar10", "5-5")
    novel, truth = thin(split.novel, split.truth, counts)
    return SmallSet(split.known, novel, truth, StageOne())


def _tail(whole: SmallSet, seed: int, most: int) -> SmallSet:
    novel, truth = thin(whole.novel, whole.truth, long_tail(most, whole.classes, 20.0, seed))
    return replace(whole, novel=novel, truth=truth)


SETS: dict[str, Callable[[Path | None, int], SmallSet]] = {
    "doodles": _doodles,
    "digits-0-4": lambda data, seed: _split("digits", "0-4", StageOne(pretrain_epochs=40)),
    "digits-5-9": lambda data, seed: _split("digits", "5-9", StageOne(pretrain_epochs=40)),
    "digits-even": lambda data, seed: _split("digits", "even", StageOne(pretrain_epochs=40)),
    "fashion-mnist": lambda data, seed: _split("fashion-mnist", "5-5", StageOne(size=28), most=600),
    "cifar10-few": lambda data, seed: _cifar(data, [200] * 5),
    "doodles-tail": lambda data, seed: _tail(_doodles(data, seed), seed, 100),
    "cifar10-tail": lambda data, seed: _cifar(data, long_tail(2000, 5, 20.0, seed)),
    "doodles-15": lambda data, seed: replace(_doodles(data, seed), asked=15),
    "doodles-7": lambda data, seed: replace(_doodles(data, seed), asked=7),
}
"""How each set is made, given the folder with CIFAR and a seed. Behind doodles a number: so many classes are asked for,
where there are ten.
"""


def fit_known(known: Images, stage: StageOne, seed: int, progress: Progress = silent) -> Model:
    """Stage one on labelled images in memory, as the product has it."""
    return choose_encoder(stage, None, [known], labelled=True).fit_known(known, stage, seed, progress=progress)


def learn_known(small: SmallSet, seed: int, progress: Progress = silent) -> Model:
    """Stage one of a set, from the cache once it has been run."""
    setting = {"known": fingerprint(small.known), "stage": vars(small.stage), "seed": seed, "smoothing": 0.0}
    folder = entries.entry(
        "small", setting, lambda place: fit_known(small.known, small.stage, seed, progress).save_pretrained(place)
    )
    return Model.from_pretrained(folder)


def run_row(small: SmallSet, model: Model, method: str, seed: int, progress: Progress = silent) -> list[dict[str, Any]]:
    """The scores of a method on a set, one for each reading."""
    asked = small.asked or small.classes
    if method == PIXELS:
        pixels = small.novel.pixels.flatten(1) / 255
        return table_rows(PIXELS, seed, 0.0, score_features(pixels, small.truth, asked, seed))
    began = time.perf_counter()
    found = discover(small, model, method, seed, progress)
    seconds = time.perf_counter() - began
    return table_rows(method, seed, seconds, score_discovery(found, small.truth, asked, seed))


def discover(small: SmallSet, model: Model, method: str, seed: int, progress: Progress = silent) -> Found:
    """What the product finds in a set."""
    run = Run(method=method, mixed=False, seed=seed)
    return find(model, small.novel, small.asked or small.classes, run=run, progress=progress)
