"""Where the images of a sequence come from: pixels that our own network learns from, or a pretrained one's features."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, final, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import cache
from newfound.benchmark import entries
from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.cached_maps import recall, remember
from newfound.benchmark.features import look_at
from newfound.benchmark.run import thinned
from newfound.benchmark.sequences import Sequence
from newfound.benchmark.stages import MAPS, VIEW, Stages, Task, fingerprint
from newfound.console import Progress
from newfound.data.batches import Dataset
from newfound.data.datasets import DATASETS, load_dataset
from newfound.data.features import FeatureDataset, FeatureImages
from newfound.data.pixels import Images, PixelDataset
from newfound.data.splits import select_classes
from newfound.encoders.statistics import SHARPNESS
from newfound.errors import InputError
from newfound.functional.axes import axes, moments, power_normalised
from newfound.networks.adapter import adapter_along
from newfound.networks.backbone import Backbone, Tail
from newfound.networks.heads import unbiased
from newfound.networks.model import Model, Statistics
from newfound.networks.pretrained import load_pretrained
from newfound.training.loop import accelerator, survey


@runtime_checkable
class Source(Protocol):
    """Training and test images of a sequence; labels count its classes in the order in which they come."""

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The truth of training images."""

    @property
    def test_labels(self) -> Int[Tensor, " m"]:
        """The truth of test images."""

    @property
    def fingerprint(self) -> str:
        """A short name of the images."""

    def first(self, seed: int, progress: Progress) -> Model:
        """The model that knows the first classes, taught with their labels."""

    def data(self, model: Model, rows: Int[Tensor, " some"], labels: Int[Tensor, " some"]) -> tuple[Backbone, Dataset]:
        """Some training images, under these labels, as a step sees them; and the part of the backbone that does."""

    def test(self, model: Model) -> Float[Tensor, "m dim"]:
        """Latents of all test images."""


@final
class PixelSource:
    """Our own network learns from pixels. Where its last stage learns at most, what that is given is computed once."""

    def __init__(self, which: Sequence, train: Images, tests: Images):
        """All images of the dataset: stage one may see more of them than a step does."""
        budget, cost = BUDGETS[which.cost.own], which.cost
        self.which, self.budget = which, budget
        self.whole = Task(
            which.dataset, stage_split(which), False, *(thinned(part, budget.images) for part in (train, tests))
        )
        self.train = select_classes(thinned(self.whole.train, cost.images), which.order)
        self.tests = select_classes(thinned(self.whole.test, cost.tests), which.order)

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The truth of training images."""
        return self.train.listing.labels

    @property
    def test_labels(self) -> Int[Tensor, " m"]:
        """The truth of test images."""
        return self.tests.listing.labels

    @cached_property
    def fingerprint(self) -> str:
        """A short name of the training images."""
        return fingerprint(self.train)

    def first(self, seed: int, progress: Progress) -> Model:
        """Stage one of the two-stage table whose known classes these are."""
        self.folder = Stages(self.whole, seed, self.budget, progress).supervised()
        return Model.from_pretrained(self.folder)

    def data(self, model: Model, rows: Int[Tensor, " some"], labels: Int[Tensor, " some"]) -> tuple[Backbone, Dataset]:
        """Maps before the last stage, which no step changes, or pixels."""
        if not self.which.cost.last:
            return model.backbone, PixelDataset(self.train.pixels[rows], labels)

        def make(folder: Path) -> None:
            remember(model.backbone.to(accelerator().device), self.train.pixels, folder / MAPS, VIEW, 0)

        setting = {"first": self.folder.name, "images": self.fingerprint, "view": VIEW}
        maps = recall(entries.entry("maps", setting, make) / MAPS)
        return Tail(model.backbone), FeatureDataset(maps, labels, rows)

    def test(self, model: Model) -> Float[Tensor, "m dim"]:
        """Latents of all test images."""
        backbone = model.backbone.to(accelerator().device)
        return survey(backbone, PixelDataset(self.tests.pixels, self.test_labels)).features.cpu()


@final
@dataclass(frozen=True, eq=False)
class FeatureSource:
    """A pretrained network looks once; an adapter along the first classes' axes may learn."""

    which: Sequence
    train: FeatureImages
    tests: FeatureImages

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The truth of training images."""
        return self.train.listing.labels

    @property
    def test_labels(self) -> Int[Tensor, " m"]:
        """The truth of test images."""
        return self.tests.listing.labels

    @cached_property
    def fingerprint(self) -> str:
        """A short name of the training images and of what looked."""
        return cache.key({"keys": [key.hex() for key in self.train.keys], "labels": self.labels.tolist()})

    def first(self, seed: int, progress: Progress) -> Model:
        """The first classes as they lie along their own axes; the head is their means' directions."""
        known, classes = self.labels < self.which.sizes[0], self.which.sizes[0]
        x, labels = self.train.features()[known], self.labels[known]
        hat = power_normalised(x)
        found = axes(moments(hat), self.which.cost.axes, Statistics.of(hat, labels, classes).within_covariance)
        adapter = adapter_along(found, seed)
        with torch.no_grad():
            statistics = Statistics.of(adapter(x).z, labels, classes)
        head = unbiased(SHARPNESS * F.normalize(statistics.means, dim=1))
        names = self.train.listing.classes[:classes]
        return Model(adapter, self.which.cost.side, 3, names, head=head, known=statistics)

    def data(self, model: Model, rows: Int[Tensor, " some"], labels: Int[Tensor, " some"]) -> tuple[Backbone, Dataset]:
        """Features."""
        return model.backbone, FeatureDataset(self.train.records, labels, self.train.places[rows])

    def test(self, model: Model) -> Float[Tensor, "m dim"]:
        """Latents of all test images."""
        data = FeatureDataset(self.tests.records, self.test_labels, self.tests.places)
        return survey(model.backbone, data).features.cpu()


def read_source(which: Sequence, data: Path, progress: Progress) -> Source:
    """The images of a sequence, as the budget has them; all files are looked for before any is read."""
    DATASETS[which.dataset].check(data)
    train, tests = (load_dataset(which.dataset, data, part) for part in ("train", "test"))
    if which.backbone is None:
        return PixelSource(which, train, tests)
    backbone = load_pretrained(which.backbone, size=which.cost.side)
    seen = []
    for title, images, most in (("training", train, which.cost.images), ("test", tests, which.cost.tests)):
        some = select_classes(thinned(images, most), which.order)

        def tell(done: int, title: str = title, total: int = len(some)) -> None:
            progress(f"look: {title} images", total, {"epoch": float(done)})

        seen.append(look_at(some, backbone, tell))
    return FeatureSource(which, *seen)


def stage_split(which: Sequence) -> str:
    """The split of the two-stage tables that has the same known classes, so that stage one is shared with them."""
    splits = DATASETS[which.dataset].splits
    name = next((name for name, classes in splits.items() if len(classes.known) == which.sizes[0]), None)
    if name is None:
        able = ", ".join(str(len(classes.known)) for classes in splits.values())
        raise InputError(
            f"{which.split} begins with {which.sizes[0]} known classes. Needed where our own network learns "
            f"them: {able}. Take one of these, or a pretrained network (--backbone)."
        )
    return name + which.split[len(which.split.partition("@")[0]) :]
