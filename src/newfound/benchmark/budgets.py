"""How much a benchmark may cost: `paper` what the papers spent, `cpu` what two cores can, `hours` what they can in an
evening for one row, `smoke` a minute.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from newfound import methods
from newfound.functional.schedules import one_cycle, steps
from newfound.methods.similarity import SIMILARITY_TRAINING
from newfound.types import ALL, Training


@dataclass(frozen=True)
class Budget:
    """The network, the stages before discovery, and how long methods of each kind train."""

    width: int
    stride: int
    supervised: Training  # cross-entropy on the labelled images, every stage
    rotation: Training
    turns: int  # rotations of each image in a step
    finishing: Training  # cross-entropy on the last stage, after rotation
    similarity: Training
    smoothing: float  # of labels, in both cross-entropies
    last: int | None  # epochs of methods that train the last stage; None: as published
    whole: int | None  # of those that train every stage, or must see images
    fresh: int | None  # of those that begin with a new network
    rate: float | None = None  # of those that train the last stage; None: as published
    published_rates: tuple[str, ...] = ()  # hosts among them that keep their published rate
    batch: int | None = None  # at most; the published rate shrinks with it
    remembers: bool = False  # whether the frozen trunk is computed once
    images: int | None = None  # of each class, at most
    points: int = 0  # moments of the run at which its clusters are written down, for the curve
    weights: Mapping[str, float] = field(default_factory=dict)  # λ by method, alone or added, where it is another

    def training(self, name: str) -> Training:
        """How a method trains at this budget: in the precision of its first stage. Ramps, steps and starts are shares
        of the run, and stay.
        """
        recipe = methods.parse(name)
        host = recipe.training
        if host.epochs == 0:  # k-means trains nothing
            return host
        whole = host.trains == ALL or recipe.pixels  # who looks at images cannot use what is remembered of them
        epochs = self.fresh if recipe.start == "new" else self.whole if whole else self.last
        batch = host.batch if self.batch is None else min(host.batch, self.batch)
        rate = host.rate if host.optimiser == "adam" else host.rate * batch / host.batch
        if host.trains != ALL and self.rate is not None and name.partition("+")[0] not in self.published_rates:
            rate = self.rate
        epochs = host.epochs if epochs is None else min(epochs, host.epochs)
        return replace(host, epochs=epochs, batch=batch, rate=rate, precision=self.supervised.precision)

    def weight(self, name: str) -> float | None:
        """λ of the Spacing in a method, where there is one."""
        preset, added = methods.parse(name).spacing, name.rpartition("+")[2]
        return None if preset is None else self.weights.get(name, self.weights.get(added, preset.weight))

    def settings(self) -> dict[str, Any]:
        """Plain values, for the results; λ and the rate are a row's own."""
        stages = ("supervised", "rotation", "finishing", "similarity")
        values = asdict(self) | {name: getattr(self, name).settings() for name in stages}
        del values["weights"], values["published_rates"], values["points"]
        return values


_SHORT = Training(epochs=12, batch=128, rate=0.2, decay=5e-4, schedule=one_cycle, views=("weak",))

_LONG = replace(_SHORT, epochs=25, precision="bfloat16")

_CPU = Budget(
    width=16,
    stride=2,
    supervised=_SHORT,
    rotation=_SHORT,
    turns=1,
    finishing=replace(_SHORT, trains=1),
    similarity=replace(SIMILARITY_TRAINING, epochs=12),
    smoothing=0.1,
    last=20,
    whole=10,
    fresh=12,
    rate=0.03,
    published_rates=("pairs",),
    batch=128,
    remembers=True,
    weights={
        "pairs+spacing:aligned": 0.03,  # beside hosts at the published rate, 0.1
        "pairs+spacing:paper": 1e-4,
        "spacing:aligned": 0.1,  # beside hosts at the rate 0.03
        "spacing:dcn": 0.03,
        "spacing:paper": 1e-5,
    },
)

BUDGETS = {
    # RotNet and the supervised stage after it are AutoNovel's. Of stage one in two stages the Spacing paper says only
    # "200 epochs"; the steps are those of FRoST (Roy et al. 2022), which trains the same network in the same way.
    # What differs from the authors: RotNet's momentum is plain (theirs Nesterov's), and UNO and DTC begin where all
    # methods do (UNO's own stage one has a cosine head, DTC's is Adam's, on a small VGG for CIFAR-100).
    "paper": Budget(
        width=64,
        stride=1,
        supervised=Training(
            200, 128, 0.1, schedule=partial(steps, at=(0.15, 0.3, 0.45, 0.6, 0.75, 0.9)), views=("weak",)
        ),
        rotation=Training(
            200, 128, 0.1, decay=5e-4, schedule=partial(steps, at=(0.3, 0.6, 0.8), factor=0.2), views=("weak",)
        ),
        turns=4,
        finishing=Training(
            100,
            128,
            0.1,
            schedule=partial(steps, at=tuple(n / 10 for n in range(1, 10)), factor=0.5),
            views=("weak",),
            trains=1,
        ),
        similarity=SIMILARITY_TRAINING,
        smoothing=0.0,
        last=None,
        whole=None,
        fresh=None,
    ),
    "cpu": _CPU,
    # A laptop over an evening: a network that is wider and sees four times as many places, each stage two to four times
    # as long, half of the digits.
    "hours": replace(
        _CPU,
        width=32,
        stride=1,
        supervised=_LONG,
        rotation=_LONG,
        finishing=replace(_LONG, trains=1),
        last=100,
        whole=16,
        points=8,
    ),
    "smoke": Budget(
        width=4,
        stride=2,
        supervised=replace(_SHORT, epochs=2, batch=32),
        rotation=replace(_SHORT, epochs=1, batch=32),
        turns=1,
        finishing=replace(_SHORT, epochs=1, batch=32, trains=1),
        similarity=replace(SIMILARITY_TRAINING, epochs=1, batch=32),
        smoothing=0.1,
        last=2,
        whole=1,
        fresh=1,
        batch=32,
        remembers=True,
        images=40,
    ),
}
