"""A simulated reviewer: somebody who knows what an image shows once they look at it, with the page's operations alone.

What is one action:

* an edit: rename, merge of two classes, split (its number of parts, and the look at them beforehand, included), move of
  what is selected to a class, new class of it with its name, accept;
* a click that selects: one for an image, two for three or more in a row (the first, and Shift on the last), one for all
  that is shown (Ctrl A), from which clicks take images away again.

Opening a class, another order, scrolling and previews of a split change nothing and are no actions. What they show is
looked at, and how many images somebody has looked at is written down beside the actions. Of others the reviewer knows
nothing; a class is expected to hold beyond what was seen what it holds there.

At each step the edit is made that is expected to put most images right per action. An image is right where its class
bears the name of what it shows.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray

from newfound.discovery.edits import Classes
from newfound.discovery.result import Discovery
from newfound.discovery.tables import UNSURE
from newfound.errors import InputError
from newfound.functional.geometry import distances
from newfound.functional.names import is_counted
from newfound.review import views
from newfound.review.measures import begin_measures, measure_again
from newfound.review.views import Scene

SCREEN, STRIP = 40, 18
"""Images of a class that are seen without scrolling, and of a part in the preview of a split."""

PARTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
"""In how many parts a split is tried; the page offers up to 20."""

ORDERS: tuple[views.Order, ...] = get_args(views.Order)

FEW = 3
"""Where no edit puts more images right per action, the reviewer looks on before they take out single ones."""

STRANGERS = 5
"""A class with fewer images of other kinds is not split: clicks take them out as quickly."""

CHANGED = 0.1
"""The share of a class that must have changed for its splits to be looked at again."""

Kinds = Mapping[int, str]
"""What images show, by row, of those that were looked at."""


class Proposal(NamedTuple):
    """An edit that might be made."""

    action: str
    what: tuple[Any, ...]  # as the verb of `Discovery` takes it
    gain: float  # images that it is expected to put right
    cost: int  # actions
    later: int = 0  # actions that must follow for the gain: the parts of a split want names

    @property
    def value(self) -> float:
        """Images put right per action."""
        return self.gain / (self.cost + self.later)


class Step(NamedTuple):
    """Where the review is after an edit."""

    action: str
    cost: int  # actions that it took
    actions: int  # in all
    looked: int  # images that were looked at


class Grid(NamedTuple):
    """Images as the page shows them in a row, and the clicks that brought them there."""

    rows: Int[ndarray, " shown"]
    clicks: int = 0


class Preview(NamedTuple):
    """What a class would be split in, by so many parts after the other, when it had these images."""

    rows: set[int]
    parts: list[list[list[int]]]


class Reviewer:
    """One run under review by somebody who sees what images show.

    The truth is asked for through `look` alone.
    """

    def __init__(self, run: Discovery, *, confirm: float = 0.0):
        """`confirm` is what calling an image right is worth beside putting one right: 0, where right classes are all
        that is wanted; more, where a run is to learn from what was accepted.
        """
        if run.found.truth is None:
            raise InputError("Nobody knows what the images of this run show. Needed: a run that was given the truth.")
        self.run, self.confirm = run, confirm
        self.kinds: dict[int, str] = {}
        self.actions = 0
        self._truth = run.found.truth
        self._measures = begin_measures(run.classes)
        self._between = distances(run.found.clusters.centres)
        self._previews: dict[int, Preview] = {}  # of each class, the last ones
        self._parted: set[bytes] = set()  # images that were split
        self._moves: dict[tuple[object, ...], list[Proposal]] = {}  # what grids that have not changed gave

    def look(self, rows: Iterable[int]) -> None:
        """See what images show."""
        for row in rows:
            self.kinds[row] = self._truth[row]

    def scene(self) -> Scene:
        """What the page shows."""
        self._measures = measure_again(self._measures, self.run.classes)
        return views.view_scene(self.run.classes, self._measures, self._between)

    def steps(self) -> Iterator[Step]:
        """Make one edit after the other, until nothing that was seen is wrong and everything was seen."""
        while True:
            scene = self.scene()
            self._glance(scene)
            best = max(self._propose(scene), key=lambda proposal: proposal.value, default=None)
            if (best is None or best.value < FEW) and self._scroll(scene, to_the_end=best is None):
                continue
            if best is None:
                return
            if best.action == "split":
                self._parted.add(key_of(scene.now, best.what[0]))
            VERBS[best.action](self.run, *best.what)
            self.actions += best.cost
            yield Step(best.action, best.cost, self.actions, len(self.kinds))

    def _glance(self, scene: Scene) -> None:
        """Look at a screen of every class, the most typical images, and one of the least sure."""
        for number in filled(scene.now):
            for order in ORDERS:
                self.look(show(scene, number, order)[:SCREEN].tolist())

    def _scroll(self, scene: Scene, *, to_the_end: bool) -> bool:
        """Look on through every class, from the least sure on, until a screen holds one kind, or to the end; whether
        there was something new.
        """
        before = len(self.kinds)
        for number in filled(scene.now):
            for screen in screens(show(scene, number, "doubtful")):
                self.look(screen)
                if not to_the_end and len({self.kinds[row] for row in screen}) == 1:
                    break
        return len(self.kinds) > before

    def _propose(self, scene: Scene) -> Iterator[Proposal]:
        names = [*propose_names(scene.now, self.kinds)]
        yield from names
        yield from self._propose_splits(scene.now, max((name.value for name in names), default=0.0))
        for grid in self._grids(scene):
            yield from self._propose_moves(scene.now, grid)
        if self.confirm:
            yield from propose_accepts(scene, self.kinds, self.confirm)

    def _grids(self, scene: Scene) -> Iterator[Grid]:
        """What images can be selected in: every class and the list of unsure ones in both orders, and unsure images
        like those of a class, which are asked for with all of it selected.
        """
        for number in (*filled(scene.now), UNSURE):
            for order in ORDERS:
                yield Grid(show(scene, number, order))
        for number in filled(scene.now):
            yield Grid(np.array(views.more_like(scene, scene.now.rows(number).tolist())["rows"], dtype=int), 1)

    def _propose_moves(self, now: Classes, grid: Grid) -> list[Proposal]:
        """`propose_moves`, once for a grid that stays as it is."""
        rows = grid.rows.tolist()
        seen, there = tuple(map(self.kinds.get, rows)), now.assignment.numpy()[grid.rows]
        key = grid.clicks, grid.rows.tobytes(), there.tobytes(), seen, tuple(now.names.items())
        if key not in self._moves:
            self._moves[key] = [*propose_moves(now, grid, self.kinds)]
        return self._moves[key]

    def _propose_splits(self, now: Classes, bar: float) -> Iterator[Proposal]:
        """Splits of classes with so many strangers that a split, two actions at least with a name, may be worth more
        than this; never twice of the same images, which have been merged again since.
        """
        for number in filled(now):
            held = expect(now.rows(number).tolist(), self.kinds)
            strangers = sum(held.values()) - max(held.values())
            if strangers >= max(STRANGERS, 2 * bar) and key_of(now, number) not in self._parted:
                for parts in self._preview(now, number):
                    yield from propose_split(number, parts, self.kinds)

    def _preview(self, now: Classes, number: int) -> list[list[list[int]]]:
        """The parts that the page proposes of a class, by their number, looked at as it shows them; none where it has
        hardly changed since: nobody asks again after each image that is moved.
        """
        rows = {*now.rows(number).tolist()}
        before = self._previews.get(number)
        if before is not None and before.rows == rows:
            return before.parts
        if before is not None and len(before.rows ^ rows) < CHANGED * len(before.rows):
            return []
        found = [self.run.propose_split(number, into) for into in PARTS if into <= self._different(now, number)]
        for part in itertools.chain.from_iterable(found):
            there = torch.tensor(part)
            middle = now.found.latents[there].mean(0, keepdim=True)
            away = distances(now.found.latents[there], middle)[:, 0]
            self.look(there[away.argsort(stable=True)[:STRIP]].tolist())
        self._previews[number] = Preview(rows, found)
        return found

    def _different(self, now: Classes, number: int) -> int:
        """How many different images a class has: it has no more parts."""
        return len(now.found.latents[now.rows(number)].unique(dim=0))


VERBS: dict[str, Callable[..., object]] = {
    "rename": Discovery.rename,
    "merge": Discovery.merge,
    "split": Discovery.split,
    "move": Discovery.move,
    "new class": Discovery.new_class,
    "accept": lambda run, number, rows: run.accept(number, images=rows),
}
"""How each action is made."""


def filled(now: Classes) -> list[int]:
    """The classes that have images."""
    there = {*now.assignment[~now.aside].unique().tolist()}
    return [number for number in now.numbers if number in there]


def key_of(now: Classes, number: int) -> bytes:
    """The images of a class, as a key."""
    return now.rows(number).numpy().tobytes()


def show(scene: Scene, number: int, order: views.Order) -> Int[ndarray, " shown"]:
    """The images of a class, or of a list, as the page orders them."""
    return np.array(views.view_images(scene, number, order)["rows"], dtype=int)


def screens(rows: Int[ndarray, " shown"]) -> Iterator[list[int]]:
    """Images a screen at a time."""
    for start in range(0, len(rows), SCREEN):
        yield rows[start : start + SCREEN].tolist()


def expect(rows: Sequence[int], kinds: Kinds) -> dict[str, float]:
    """How many images of each kind there are expected to be among some, of which not all were looked at.

    ĉ_k = s_k · m / s,   s of m images seen, s_k of them of kind k
    """
    seen = Counter(kinds[row] for row in rows if row in kinds)
    return {kind: count * len(rows) / seen.total() for kind, count in seen.items()}


def most(held: Mapping[str, float]) -> str:
    """The kind with the most images; of several the first by name."""
    return max(sorted(held), key=lambda kind: held[kind])


def propose_names(now: Classes, kinds: Kinds) -> Iterator[Proposal]:
    """Every class that mostly holds another kind than its name says: rename it, or, where a class is called so already,
    merge it into that. One that has a name somebody chose would keep it, so all its images are selected and moved.
    """
    called = {name: number for number, name in now.names.items()}
    for number in filled(now):
        name, rows = now.names[number], now.rows(number).tolist()
        held = expect(rows, kinds)
        kind = most(held)
        gain = held[kind] - held.get(name, 0.0)
        if gain <= 0:
            continue
        if kind not in called:
            yield Proposal("rename", (number, kind), gain, 1)
        elif is_counted(name):
            yield Proposal("merge", ([number, called[kind]],), gain, 1)
        else:
            yield Proposal("move", (rows, called[kind]), gain, 2)


def propose_split(number: int, parts: Sequence[Sequence[int]], kinds: Kinds) -> Iterator[Proposal]:
    """Part a class, and name every part or merge it: then what each part holds most of is right.

    gain = Σ_p max_k ĉ_k(p) − max_k ĉ_k;   a name for each part follows, but for one that keeps it
    """
    held, inside = expect([*itertools.chain(*parts)], kinds), [expect(part, kinds) for part in parts]
    gain = sum(max(part.values(), default=0.0) for part in inside) - max(held.values(), default=0.0)
    if gain > 0:
        keeps = bool(inside[0]) and most(inside[0]) == most(held)
        yield Proposal("split", (number, parts), gain, 1, later=len(parts) - keeps)


def propose_moves(now: Classes, grid: Grid, kinds: Kinds) -> Iterator[Proposal]:
    """For every kind: select images of it that are elsewhere, and move them to the class of its name, or make it."""
    called = {name: number for number, name in now.names.items()}
    seen = np.array([kinds.get(row, "") for row in grid.rows.tolist()])
    there = now.assignment.numpy()[grid.rows]
    for kind in sorted({*seen.tolist()} - {""}):
        to = called.get(kind)
        chosen, clicks = select((seen == kind) & (there != to), seen != kind)
        if len(chosen):
            action, where = ("new class", kind) if to is None else ("move", to)
            rows = grid.rows[chosen].tolist()
            yield Proposal(action, (rows, where), len(rows), grid.clicks + clicks + 1)


def select(wanted: Bool[ndarray, " shown"], unwanted: Bool[ndarray, " shown"]) -> tuple[Int[ndarray, " some"], int]:
    """Which of the wanted images to select so that most are moved per action, and the clicks it takes. Images that are
    neither may be among the selected ones.

    Images in a row, without an unwanted one between them, take two clicks together, or one each; the longest rows come
    first, as far as they pay. Or all are selected, by one click, and the unwanted ones are taken away again.
    """
    places = wanted.nonzero()[0]
    if not len(places):
        return places, 0
    _, row, sizes = np.unique(unwanted.cumsum()[places], return_inverse=True, return_counts=True)
    longest = np.argsort(-sizes, kind="stable")
    clicks, images = np.minimum(sizes[longest], 2).cumsum(), sizes[longest].cumsum()
    last = int((images / (clicks + 1)).argmax())
    _, others = np.unique(wanted.cumsum()[unwanted], return_counts=True)
    but = 1 + int(np.minimum(others, 2).sum())
    if len(places) / (but + 1) > images[last] / (clicks[last] + 1):
        return places, but
    return places[np.isin(row, longest[: last + 1])], int(clicks[last])


def propose_accepts(scene: Scene, kinds: Kinds, worth: float) -> Iterator[Proposal]:
    """Cut here: call the most typical images of a class right, up to the first that is wrong or was not looked at."""
    for number in filled(scene.now):
        name, rows = scene.now.names[number], show(scene, number, "typical").tolist()
        wrong = (place for place, row in enumerate(rows) if kinds.get(row) != name)
        head = rows[: next(wrong, len(rows))]
        if new := sum(row not in scene.now.decided for row in head):
            yield Proposal("accept", (number, head), worth * new, 1)
