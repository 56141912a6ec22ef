"""From a dataset to where discovery starts: the stages before it, taken from the cache once they have been run."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from newfound import methods
from newfound.benchmark import entries
from newfound.benchmark.budgets import Budget
from newfound.benchmark.cached_maps import VIEWS, adapt_batch_norm, adapt_model, recall, remember
from newfound.console import Progress
from newfound.data.batches import Dataset
from newfound.data.datasets import split_classes, split_dataset
from newfound.data.features import FeatureDataset
from newfound.data.pixels import Images, PixelDataset
from newfound.data.splits import Split
from newfound.methods.stage_one import Rotation, Supervised
from newfound.networks.backbone import Backbone, Tail
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, Row, fit
from newfound.training.pretrain import colours, new_learner, pretrain, similarity, to_model
from newfound.types import Problem, Training, seeded

VIEW = "weak"
"""The view that maps are remembered in: that of every method which trains the last stage alone."""

MAPS = "maps.npy"


@dataclass(frozen=True, eq=False)
class Task:
    """One dataset, split in one way; in single-stage (`labelled`) the labelled images take part in discovery."""

    dataset: str
    split: str
    labelled: bool
    train: Images
    test: Images

    @property
    def parts(self) -> Split:
        """The training images, split."""
        return split_dataset(self.train, self.dataset, self.split)

    @property
    def known_rows(self) -> Int[Tensor, " known"]:
        """Where in the training set the images of known classes are, in the order of `parts.known`."""
        return self._rows_of(split_classes(self.dataset, self.split).known)

    @property
    def novel_rows(self) -> Int[Tensor, " novel"]:
        """Where those of novel classes are, in the order of `parts.novel`."""
        return self._rows_of(split_classes(self.dataset, self.split).novel)

    @property
    def rows(self) -> Int[Tensor, " n"]:
        """Where the discovery set is: images of known classes, if they take part, then novel."""
        return torch.cat([self.known_rows, self.novel_rows]) if self.labelled else self.novel_rows

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """Labels of the discovery set, −1 where unlabelled."""
        parts = self.parts
        hidden = parts.novel.listing.labels
        return torch.cat([parts.known.listing.labels, hidden]) if self.labelled else hidden

    @property
    def pixels(self) -> UInt8[Tensor, "n channels height width"]:
        """Images of the discovery set."""
        return self.train.pixels[self.rows]

    @cached_property
    def fingerprint(self) -> str:
        """A short name of the training images and their labels."""
        return fingerprint(self.train)

    def _rows_of(self, classes: Sequence[int]) -> Int[Tensor, " some"]:
        return torch.isin(self.train.listing.labels, torch.tensor(list(classes))).nonzero().squeeze(1)


@dataclass(frozen=True, eq=False)
class Start:
    """Where discovery begins: a model of its own, and the discovery set as its backbone sees it."""

    model: Model
    backbone: Backbone  # what is trained: the model's, or its last stage alone
    data: Dataset
    seconds: float  # that the stages before took, when they were run


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages before discovery, for one task and seed at one budget; each is a folder in the cache."""

    task: Task
    seed: int
    budget: Budget
    progress: Progress

    def start(self, name: str) -> Start:
        """Where this method begins."""
        task, recipe, origin = self.task, methods.parse(name), origin_of(name, labelled=self.task.labelled)
        if origin == "new":
            return self._fresh(self.similarity() if "similarity" in recipe.stage_one else None)
        if origin == "finished":
            trunk, folder = self.rotation(), self.finished()
            rows, before = task.rows, entries.seconds(trunk)
        elif origin == "settled":
            trunk = folder = self.settled()
            rows, before = torch.arange(len(task.rows)), entries.seconds(self.supervised())
        else:
            trunk = folder = self.supervised()
            rows, before = torch.arange(len(task.rows)), 0.0
        model, seconds = Model.from_pretrained(folder), before + entries.seconds(folder)
        if (trunk / MAPS).is_file() and not recipe.pixels:
            return Start(model, Tail(model.backbone), FeatureDataset(recall(trunk / MAPS), task.labels, rows), seconds)
        return Start(model, model.backbone, PixelDataset(task.pixels, task.labels), seconds)

    def supervised(self) -> Path:
        """Cross-entropy on the labelled images; unlabelled ones are not looked at."""

        def make(folder: Path) -> None:
            known = self.task.parts.known
            budget = self.budget
            learner = new_learner(
                known, self.seed, width=budget.width, stride=budget.stride, smoothing=budget.smoothing
            )
            training = budget.supervised
            told = self._telling("known classes", training)
            model = pretrain(
                learner, known, training, self.seed, progress=told, checkpoint=entries.unfinished(folder), resume=True
            )
            model.save_pretrained(folder)

        setting = self._setting(split=True, stage=self.budget.supervised) | {"smoothing": self.budget.smoothing}
        return entries.entry("supervised", setting, make)

    def settled(self) -> Path:
        """The supervised model after a look at the discovery set, and its maps."""
        supervised = self.supervised()

        def make(folder: Path) -> None:
            model = adapt_model(Model.from_pretrained(supervised), self.task.pixels, VIEW, self.seed)
            model.save_pretrained(folder)
            self._remember(model.backbone, self.task.pixels, folder)

        setting = {"supervised": supervised.name, "labelled": self.task.labelled, "statistics": "carried along"}
        setting |= self._remembered()
        return entries.entry("settled", setting, make)

    def rotation(self) -> Path:
        """RotNet on all training images, and its maps. It knows no labels, so it serves every split."""

        def make(folder: Path) -> None:
            images = self.task.train
            with seeded(self.seed, "rotation"):
                backbone = SmallResNet(self.budget.width, self.budget.stride)
                method = Rotation(Problem(backbone.dim, known=0, novel=0), self.budget.turns)
            backbone.normalise(*colours(images.pixels))
            data, training = (
                PixelDataset(images.pixels, torch.full_like(images.listing.labels, -1)),
                self.budget.rotation,
            )
            self._fit(Learner(backbone, method), data, training, "rotation", folder)
            adapt_batch_norm(backbone, images.pixels, VIEW, self.seed)
            Model(backbone, size=images.pixels.shape[-1], channels=images.pixels.shape[1], classes=()).save_pretrained(
                folder
            )
            self._remember(backbone, images.pixels, folder)

        setting = self._setting(split=False, stage=self.budget.rotation) | {"turns": self.budget.turns}
        return entries.entry("rotation", setting | self._remembered(), make)

    def finished(self) -> Path:
        """Cross-entropy on the last stage, from the trunk that RotNet left."""
        trunk = self.rotation()

        def make(folder: Path) -> None:
            whole, known = Model.from_pretrained(trunk).backbone, self.task.parts.known
            backbone: Backbone = whole
            data: Dataset = PixelDataset(known.pixels, known.listing.labels)
            if (trunk / MAPS).is_file():
                backbone, data = (
                    Tail(whole),
                    FeatureDataset(recall(trunk / MAPS), known.listing.labels, self.task.known_rows),
                )
            with seeded(self.seed, "finishing"):
                method = Supervised(
                    Problem(whole.dim, known=len(known.listing.classes), novel=0), self.budget.smoothing
                )
            training = self.budget.finishing
            learner = Learner(backbone, method, training.trains)
            self._fit(learner, data, training, "known classes", folder)
            to_model(learner, data, known, whole).save_pretrained(folder)

        setting = self._setting(split=True, stage=self.budget.finishing)
        setting |= {"trunk": trunk.name, "smoothing": self.budget.smoothing}
        return entries.entry("finished", setting, make)

    def similarity(self) -> Path:
        """KCL's and MCL's network that says whether two images share a class."""

        def make(folder: Path) -> None:
            known, training = self.task.parts.known, self.budget.similarity
            told = self._telling("similarity", training)
            pairs = similarity(
                known,
                training,
                self.seed,
                width=self.budget.width,
                stride=self.budget.stride,
                progress=told,
                checkpoint=entries.unfinished(folder),
                resume=True,
            )
            _, channels, size, _ = known.pixels.shape
            model = Model(pairs.backbone, size=size, channels=channels, classes=known.listing.classes, similarity=pairs)
            model.save_pretrained(folder)

        return entries.entry("similarity", self._setting(split=True, stage=self.budget.similarity), make)

    def _fit(self, learner: Learner, data: Dataset, training: Training, stage: str, folder: Path) -> None:
        """Train for an entry of the cache; interrupted, it goes on where it stopped."""
        told, checkpoint = self._telling(stage, training), entries.unfinished(folder)
        fit(learner, data, training, self.seed, progress=told, checkpoint=checkpoint, resume=True)

    def _fresh(self, folder: Path | None) -> Start:
        """A new network, with the similarity network beside it where the method asks for one."""
        pixels = self.task.pixels
        with seeded(self.seed, "new"):
            backbone = SmallResNet(self.budget.width, self.budget.stride)
        backbone.normalise(*colours(pixels))
        similarity = None if folder is None else Model.from_pretrained(folder).similarity
        classes = self.task.parts.known.listing.classes
        model = Model(backbone, size=pixels.shape[-1], channels=pixels.shape[1], classes=classes, similarity=similarity)
        return Start(
            model, backbone, PixelDataset(pixels, self.task.labels), 0.0 if folder is None else entries.seconds(folder)
        )

    def _remember(self, backbone: Backbone, pixels: UInt8[Tensor, "n channels height width"], folder: Path) -> None:
        if self.budget.remembers:
            remember(backbone, pixels, folder / MAPS, VIEW, self.seed)

    def _remembered(self) -> dict[str, Any]:
        """How a discovery set is looked at once, and how many views of it are kept."""
        return {"view": VIEW, "views": VIEWS if self.budget.remembers else 0}

    def _setting(self, *, split: bool, stage: Training) -> dict[str, Any]:
        """All that a stage depends on."""
        setting = {"dataset": self.task.dataset, "images": self.task.fingerprint, "seed": self.seed}
        setting |= {"split": self.task.split} if split else {}
        return setting | {"width": self.budget.width, "stride": self.budget.stride, "training": stage.settings()}

    def _telling(self, stage: str, training: Training) -> Callable[[Row], None]:
        title = f"seed {self.seed}: {stage}"
        return lambda row: self.progress(title, training.epochs, row)


def origin_of(name: str, *, labelled: bool) -> Literal["new", "finished", "settled", "supervised"]:
    """What a method goes on from: a new network, or what one of the stages left. In two stages none knows rotation."""
    recipe = methods.parse(name)
    if recipe.start == "new":
        return "new"
    if "rotation" in recipe.stage_one and labelled:
        return "finished"
    return "settled" if recipe.training.trains == 1 or recipe.training.epochs == 0 else "supervised"


def fingerprint(images: Images) -> str:
    """A short name of these images and labels."""
    digest = hashlib.sha256()
    for part in (images.pixels, images.listing.labels):
        digest.update(part.contiguous().flatten().numpy().data)  # read where they lie, not copied
    return digest.hexdigest()[:16]
