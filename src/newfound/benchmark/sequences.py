"""Which classes come when, and how much each step may cost: `newfound benchmark continual`."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from newfound import methods
from newfound.benchmark.budgets import BUDGETS
from newfound.benchmark.results import Row
from newfound.data.datasets import DATASETS
from newfound.errors import InputError, check_word
from newfound.types import Training

SPLITS = {"cifar10": ("5+5",), "cifar100": ("50-10x5", "80-10-10")}
"""The field's, the first the default: known classes, then how many come at each step."""

JOINT = "all-labels"
"""The upper bound: all classes seen so far are learnt together, each image with its true label. No method, for it could
not discover anything.
"""

ROWS = ("anchored", "anchored:apart", "frozen", "frost", "lwf", "finetune", JOINT)
"""What a table holds unless asked otherwise."""


@dataclass(frozen=True)
class Cost:
    """How much a sequence may cost, with our own network or with a pretrained one."""

    own: str  # which of `BUDGETS` says how our own network is made and taught the first classes
    images: int | None  # training images of each class, at most
    tests: int | None  # test images of each class, at most
    epochs: int | None  # of a method at each step; None: as published
    rate: float | None  # None: as published
    batch: int
    last: bool  # whether all rows train the last stage at most, and what comes before it is computed once
    side: int = 128  # pixels of a side that a pretrained network is shown
    axes: int = 128  # along which its features are seen: more than classes, for anchors need room


COSTS = {
    "paper": Cost("paper", images=None, tests=None, epochs=None, rate=None, batch=128, last=False, side=160),
    "cpu": Cost("cpu", images=500, tests=200, epochs=20, rate=0.03, batch=128, last=True),
    "smoke": Cost("smoke", images=20, tests=10, epochs=2, rate=None, batch=32, last=True, side=32, axes=24),
}
FEATURES = {**COSTS, "cpu": replace(COSTS["cpu"], images=100, tests=50)}
"""The same with a pretrained network, which takes long to look at an image."""


@dataclass(frozen=True)
class Sequence:
    """One dataset whose classes come in steps."""

    dataset: Literal["cifar10", "cifar100"]
    split: str
    budget: str
    backbone: str | None = None  # a pretrained one's name; None: our own learns from the first classes

    @property
    def name(self) -> str:
        """The name of its results."""
        return "-".join(
            ["continual", self.dataset, self.split, self.budget, *([self.backbone] if self.backbone else [])]
        )

    @property
    def sizes(self) -> list[int]:
        """Classes that are known at first, and that come at each step."""
        return sizes_of(self.split)

    @property
    def order(self) -> list[int]:
        """The dataset's classes in the order in which they come."""
        count, seed = sum(self.sizes), self.split.partition("@")[2]
        classes = range(DATASETS[self.dataset].classes)
        return (list(classes) if not seed else np.random.default_rng(int(seed)).permutation(len(classes)).tolist())[
            :count
        ]

    @property
    def cost(self) -> Cost:
        """What it may cost."""
        return (COSTS if self.backbone is None else FEATURES)[self.budget]

    def command(self, method: str, seed: int) -> str:
        """What makes one row of it."""
        where = f"--dataset {self.dataset} --split {self.split} --budget {self.budget}"
        where += f" --backbone {self.backbone}" if self.backbone else ""
        return f"newfound benchmark continual {where} --methods {method} --seeds {seed}"

    def training(self, name: str) -> Training:
        """How a method trains at each step. What stays as it is at every budget: views, schedule, optimiser."""
        cost, own = self.cost, BUDGETS[self.cost.own].supervised if name == JOINT else methods.parse(name).training
        return replace(
            own,
            epochs=own.epochs if cost.epochs is None else min(cost.epochs, own.epochs),
            rate=own.rate if cost.rate is None or name == JOINT else cost.rate,
            batch=min(own.batch, cost.batch),
            trains=min(own.trains, 1) if cost.last else own.trains,
        )

    def setting(self) -> dict[str, Any]:
        """Everything that all its rows share."""
        return asdict(self) | {
            "classes": self.sizes,
            "images": "test images of the classes learnt so far, unaugmented",
            "names": "of novel outputs: matched once, on the unlabelled training images of their step",
            "cost": asdict(self.cost),
            "first": BUDGETS[self.cost.own].supervised.settings() if self.backbone is None else None,
        }

    def compare(self, row: Row) -> list[str]:
        """What a row has otherwise than it would have now; one that no table can be made of fails."""
        _ = row["seed"], row["groups"], row["last"]["all"], row["forgetting"]["mean"]
        same = row["training"] == self.training(row["method"]).settings()
        return [] if same else [f"training of {row['method']}"]

    def row(self, method: str, seed: int) -> dict[str, Any]:
        """Everything that one row depends on."""
        return self.setting() | {"method": method, "seed": seed, "training": self.training(method).settings()}


def sizes_of(split: str) -> list[int]:
    """Classes at each step: `5+5` → 5, 5; `80-10-10` → 80, 10, 10; `50-10x5` → 50 and five times 10."""
    parts = re.split(r"[-+]", split.partition("@")[0])
    sizes: list[int] = []
    for part in parts:
        found = re.fullmatch(r"(\d+)(?:[x×](\d+))?", part)
        if found is None:
            return []
        sizes += [int(found[1])] * int(found[2] or 1)
    return sizes


def sequence(dataset: str | None, split: str | None, budget: str, backbone: str | None) -> Sequence:
    """A sequence by its words; what cannot be is refused."""
    for what, given, possible in (("dataset", dataset, SPLITS), ("budget", budget, COSTS)):
        check_word(what, given, possible)
    assert dataset is not None
    split = (split or SPLITS[dataset][0]).replace("×", "x")
    sizes, order = sizes_of(split), split.partition("@")[2]
    most = DATASETS[dataset].classes
    if len(sizes) < 2 or 0 in sizes or sum(sizes) > most or ("@" in split and not order.isdecimal()):
        raise InputError(
            f"There is no sequence {split!r} of {dataset}. Needed: known classes, then how many come at each step, at "
            f"most {most} together, as in {' or '.join(SPLITS[dataset])}; with @ and a number behind, in another order."
        )
    return Sequence(dataset, split, budget, backbone)  # type: ignore[arg-type]  # looked up above
