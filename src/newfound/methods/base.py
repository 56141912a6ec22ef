"""Method: everything that happens to latents. Sum: several at once. Recipe: a published method, ready to build."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, final

from jaxtyping import Bool, Float
from torch import Tensor, nn

from newfound.networks.backbone import Frozen
from newfound.networks.model import Model
from newfound.spacing.presets import Preset
from newfound.types import Batch, Latents, Losses, Now, Problem, Survey, Training, constant

Reading = Literal["head", "k-means", "unit k-means"]
Stage = Literal["rotation", "supervised", "similarity"]
"""What can come before discovery. Rotation looks at unlabelled images too: in two stages it is left out."""


APPENDED = "appended"
"""The note of a method that appends views which are none of the image itself: how many, the same in every row."""


def own_views(latents: list[Latents], batch: Batch) -> list[Latents]:
    """Those of the views that show the images themselves."""
    note = batch.notes.get(APPENDED)
    return latents if note is None or len(note) == 0 else latents[: len(latents) - int(note[0])]


class Method(nn.Module, ABC):
    """Everything that happens to latents. Only `forward` must be written.

    `forward` changes no state: same latents, same moment, same losses (running statistics of a method's own
    BatchNorm excepted). What is not learnt by gradient lives in buffers and moves in `before_epoch` and
    `after_step` alone.
    """

    reads_map = False
    """Whether it needs `Latents.map`."""

    @abstractmethod
    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """Named losses of the whole batch, already weighted; their sum is what the optimiser sees.

        What `after_step` will need of them goes into `batch.notes`.
        """

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Look at the images before the backbone does: append a view (it becomes `latents[-1]`; one that shows other
        images is counted in the note `APPENDED`), or let a frozen network look and leave a note with one row per image.
        """
        return batch

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Start or refresh state. Calling `survey` costs a pass over the data, shared by all who call it."""

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Move buffers, project parameters, once the optimiser has moved the backbone.

        `latents` and notes are those of `forward`; `embed(0)` is what the moved backbone says of view 0.
        """

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"] | None:
        """Scores of the head: known classes first, then novel; or novel alone. None where there is no head."""
        return None

    def novel_logits(self, features: Float[Tensor, "n dim"], novel: int) -> Float[Tensor, "n {novel}"] | None:
        """Scores of so many novel classes, for images that are known to be of one: the last of `logits`, unless the
        method reads them from a head of their own.
        """
        scores = self.logits(features)
        return None if scores is None else scores[:, -novel:]

    def joint_head(self) -> nn.Linear | None:
        """The head over known and novel classes that the next model is given: on latents its largest score is that of
        `logits`. None where the method has no such head.
        """
        return None

    def log(self) -> dict[str, float]:
        """What to write down after an epoch, from the state."""
        return {}


@final
class Sum(Method):
    """Several methods on the same latents; `Sum()` of none is plain k-means.

    L = Σ_m L_m
    """

    def __init__(self, *methods: Method):
        super().__init__()
        self.methods = nn.ModuleList(methods)
        self.reads_map = any(method.reads_map for method in methods)

    def _each(self) -> list[Method]:
        return list(self.methods)  # type: ignore[arg-type]  # a ModuleList forgets what it holds

    def forward(self, latents: list[Latents], batch: Batch, now: Now) -> Losses:
        """The losses of all; a name used twice is refused."""
        losses: Losses = {}
        for method in self._each():
            more = method(latents, batch, now)
            if twice := losses.keys() & more.keys():
                raise ValueError(f"Two methods of a sum both call a loss {sorted(twice)}; rename one of them.")
            losses |= more
        return losses

    def prepare(self, batch: Batch, now: Now) -> Batch:
        """Each looks in turn, and sees what the ones before appended."""
        for method in self._each():
            batch = method.prepare(batch, now)
        return batch

    def before_epoch(self, survey: Callable[[], Survey], now: Now) -> None:
        """Each in turn; the survey is made at most once."""
        for method in self._each():
            method.before_epoch(survey, now)

    def after_step(self, latents: list[Latents], batch: Batch, embed: Callable[[int], Latents], now: Now) -> None:
        """Each in turn."""
        for method in self._each():
            method.after_step(latents, batch, embed, now)

    def logits(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n classes"] | None:
        """Scores of the first that has a head."""
        return next((scores for m in self._each() if (scores := m.logits(features)) is not None), None)

    def novel_logits(self, features: Float[Tensor, "n dim"], novel: int) -> Float[Tensor, "n {novel}"] | None:
        """Those of the first that has a head."""
        return next((scores for m in self._each() if (scores := m.novel_logits(features, novel)) is not None), None)

    def joint_head(self) -> nn.Linear | None:
        """That of the first that has one."""
        return next((head for m in self._each() if (head := m.joint_head()) is not None), None)

    def log(self) -> dict[str, float]:
        """All that any of them logs."""
        return {name: value for method in self._each() for name, value in method.log().items()}


class Own(NamedTuple):
    """How a method trains on somebody's own images, which are few: every stage learns."""

    epochs: int = 15
    rate: float = 0.02
    schedule: Callable[[float], float] = constant


@dataclass(frozen=True)
class Recipe:
    """A published method: how it is built, trained and read."""

    paper: str
    build: Callable[[Problem, Model], Method]
    labelled: Literal["needed", "optional", "unused"]
    training: Training
    reading: Reading  # the headline; every reading that exists is stored
    pixels: bool = False  # needs images: neither cached maps nor features will do
    maps: bool = False  # needs what comes before the last stage: features will not do
    stage_one: tuple[Stage, ...] = ("supervised",)  # what comes before, in this order
    start: Literal["model", "new"] = "model"  # new: the backbone that discovers is a fresh one
    described: bool = False  # made from a description: neither its code nor its paper's text was at hand
    continual: bool = False  # gives the next model a head over known and novel classes (`Method.joint_head`)
    apart: bool = False  # discovers on a copy of the backbone: the next model keeps its own, and learns by statistics
    joins: bool = False  # may be added to another method: it learns nothing of its own, and one view is enough for it
    own: Own = Own()
    spacing: Preset | None = None  # how the Spacing in it is set, where there is one

    def suits(self, *, labelled: bool | None = None, features: bool = False) -> bool:
        """Whether it can discover with labelled images beside it (True) or without (False), and from features alone."""
        unfit = {True: "unused", False: "needed", None: ""}[labelled]
        return self.labelled != unfit and not (features and (self.pixels or self.maps))

    def settings(self) -> dict[str, Any]:
        """What can be chosen of it, as values that JSON can hold: how it trains, here and on few images, how it is
        read, and how the Spacing in it is set.
        """
        own = self.training.at(self.own.epochs, self.own.rate, self.training.batch, self.own.schedule)
        return {
            "training": self.training.settings(),
            "own": own.settings(),
            "reading": self.reading,
            "spacing": None if self.spacing is None else json.loads(json.dumps(asdict(self.spacing))),  # lists
        }


def chain(*recipes: Recipe) -> Recipe:
    """One recipe of several that train together: the first, the host, says where it begins, how it is trained and under
    which views; the last how it is read. It suits where all of them do, and builds their `Sum`; one alone is itself.
    """
    host, last = recipes[0], recipes[-1]
    if len(recipes) == 1:
        return host
    needs = {recipe.labelled for recipe in recipes} - {"optional"}
    if len(needs) > 1:
        raise ValueError("One method of a chain needs labelled images and another cannot have them; take one of them.")
    return replace(
        host,
        paper=" + ".join(dict.fromkeys(recipe.paper for recipe in recipes)),
        build=lambda problem, model: Sum(*(recipe.build(problem, model) for recipe in recipes)),
        labelled=needs.pop() if needs else "optional",
        reading=last.reading,
        pixels=any(recipe.pixels for recipe in recipes),
        maps=any(recipe.maps for recipe in recipes),
        described=any(recipe.described for recipe in recipes),
        joins=all(recipe.joins for recipe in recipes),
        spacing=next((recipe.spacing for recipe in recipes if recipe.spacing is not None), None),
    )


def note_old_latents(batch: Batch, old: Frozen | None) -> Batch:
    """With what the old backbone says of the first view as the note `old latents`, where there is one to ask."""
    if old is not None:
        batch.notes["old latents"] = old(batch.views[0]).z
    return batch


def unlabelled_rows(batch: Batch, problem: Problem) -> Bool[Tensor, " batch"]:
    """Which rows are unlabelled. In two stages all must be: the labelled images have stayed behind."""
    mask = batch.labels < 0
    if not problem.labelled and not mask.all():
        raise ValueError("A labelled row came to a two-stage problem; give unlabelled images alone (labels −1).")
    return mask
