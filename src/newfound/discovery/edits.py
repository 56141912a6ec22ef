"""What people say of a discovery: a list of edits that only grows. The present classes follow from it.

`classes(found, edits)` is a pure function, so that undo is leaving an edit out, and replay is reading a file.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.discovery.found import Found
from newfound.errors import InputError, choices, counted, is_text, shorten
from newfound.functional.geometry import distances
from newfound.functional.names import count_names
from newfound.schema import MOST, parse_json

Action = Literal["rename", "merge", "split", "move", "set aside", "accept", "undo", "redo"]

NOBODY = 0
"""The number of no class: that of a centre which no class has any more."""

SOMEBODY = "somebody"
"""Who decided, where no name was given."""


class Edit(NamedTuple):
    """One thing that somebody said: a line of `edits.jsonl`. Classes are called by number, images by row."""

    action: Action
    classes: tuple[int, ...] = ()  # that it acts on
    rows: tuple[int, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()  # rows of each, of a split; the first keeps number and name
    made: tuple[int, ...] = ()  # the classes it makes, by numbers that none had before
    names: tuple[str, ...] = ()  # of those, or the new name of a class
    by: str = ""  # who said it
    at: str = ""  # when

    def line(self) -> str:
        """The edit as a line of JSON, what is empty left out."""
        return json.dumps({key: value for key, value in self._asdict().items() if value}, ensure_ascii=False)

    @staticmethod
    def read(line: str) -> "Edit":
        """An edit from its line; ValueError where it is none."""
        values = parse_json(line)
        if not isinstance(values, dict) or values.keys() - {*Edit._fields} or values.get("action") not in ACTIONS:
            raise ValueError(f"no edit: {line[:80]}")
        text = {key: _text(values.get(key, "")) for key in ("action", "by", "at")}
        numbers = {key: _numbers(values.get(key, ())) for key in ("classes", "rows", "made")}
        parts = tuple(_numbers(part) for part in values.get("parts", ()))
        names = tuple(_text(name) for name in values.get("names", ()))
        return Edit(**text, **numbers, parts=parts, names=names)  # type: ignore[arg-type]  # the action was looked up


@dataclass(frozen=True, eq=False)
class Classes:
    """The present classes, their images, and the centres that say where they lie."""

    found: Found
    names: dict[int, str]  # number → name, in order: known ones first, as they were found
    known: frozenset[int]  # the numbers of known classes
    assignment: Int[Tensor, " n"]  # the number of every image's class
    aside: Bool[Tensor, " n"]  # whether it was set aside
    decided: Mapping[int, str]  # row → the person who decided on it; of others the algorithm did
    more: Float[Tensor, "more dim"]  # centres of classes that people made, after those that were found
    owners: Int[Tensor, " centres"]  # the class of each centre, or NOBODY
    sizes: Int[Tensor, " centres"]  # images that each centre is the mean of
    own: Int[Tensor, " n"]  # the centre that each image goes by
    used: int  # the largest number that a class ever had

    def __repr__(self) -> str:
        named = shorten(f"{number}: {name!r}" for number, name in self.names.items())
        return f"Classes of {counted(len(self.assignment), 'image')}: {named}"

    @property
    def numbers(self) -> list[int]:
        """The numbers of the classes, in order."""
        return [*self.names]

    @cached_property
    def distances(self) -> Float[Tensor, "n centres"]:
        """From every image to every centre; to those of no class there is no way."""
        return self.mask(torch.cat([self.found.distances, distances(self.found.latents, self.more)], 1))

    @property
    def centres(self) -> Float[Tensor, "centres dim"]:
        """Where classes lie, those of no class too."""
        return torch.cat([self.found.clusters.centres, self.more])

    def mask(self, away: Float[Tensor, "m centres"]) -> Float[Tensor, "m centres"]:
        """Distances to centres, infinite where a centre is no class's."""
        return away.masked_fill(self.owners == NOBODY, torch.inf)

    def kind(self, number: int) -> Literal["known", "new"]:
        """Whether a class is known or new; one that a known one was merged into is known."""
        return "known" if number in self.known else "new"

    def rows(self, number: int) -> Int[Tensor, " members"]:
        """The images of a class, but those set aside."""
        return ((self.assignment == number) & ~self.aside).nonzero()[:, 0]

    def number(self, which: int | str) -> int:
        """The number of a class that a person means by its number or by its name."""
        if isinstance(which, str):
            named = [number for number, name in self.names.items() if name == which]
            if not named:
                raise InputError(f"There is no class called {which!r}. {choices(which, self.names.values())}")
            return named[0]
        if which not in self.names:
            raise InputError(f"There is no class {which}; there are {', '.join(map(str, self.numbers))}.")
        return which

    def free_names(self, count: int) -> tuple[str, ...]:
        """Names for so many new classes, which none has or had at first."""
        taken = {*self.names.values(), *self.found.names, *self.found.model.classes}
        return tuple(itertools.islice(count_names(taken), count))


def classes(found: Found, edits: Sequence[Edit] = ()) -> Classes:
    """The present classes: what was found, and each standing edit applied to it in turn. Numbers of classes that an
    undone edit made stay used.
    """
    now = reduce(apply, standing(edits), begin(found))
    return replace(now, used=max([now.used, *itertools.chain.from_iterable(edit.made for edit in edits)]))


def standing(edits: Iterable[Edit]) -> list[Edit]:
    """The edits that hold: `undo` takes the last one back, `redo` that, until something else is said."""
    done: list[Edit] = []
    undone: list[Edit] = []
    for edit in edits:
        if edit.action == "undo" and done:
            undone.append(done.pop())
        elif edit.action == "redo" and undone:
            done.append(undone.pop())
        elif edit.action not in ("undo", "redo"):
            done.append(edit)
            undone.clear()
    return done


def reaches_back(edits: Iterable[Edit]) -> bool:
    """Whether some `undo` or `redo` among these is of what was said before them."""
    done = undone = 0
    for edit in edits:
        if edit.action == "undo":
            done, undone = done - 1, undone + 1
        elif edit.action == "redo":
            done, undone = done + 1, undone - 1
        else:
            done, undone = done + 1, 0
        if done < 0 or undone < 0:
            return True
    return False


def begin(found: Found) -> Classes:
    """Every cluster a class of its own, or of those that share its number."""
    assignment, _, sizes, _ = found.clusters
    numbers = torch.tensor(found.numbers)
    return Classes(
        found,
        names=dict(zip(found.numbers, found.names, strict=True)),
        known=frozenset(found.numbers[: len(found.known)]),
        assignment=numbers[assignment],
        aside=torch.zeros(len(found), dtype=torch.bool),
        decided={},
        more=found.clusters.centres[:0],
        owners=numbers,
        sizes=sizes,
        own=assignment,
        used=max(found.used, *found.numbers),
    )


def apply(now: Classes, edit: Edit) -> Classes:
    """The classes after one more edit; one that cannot be is refused."""
    _check_whole(edit)
    for number in edit.classes:
        now.number(number)
    if outside := [row for row in itertools.chain(edit.rows, *edit.parts) if not 0 <= row < len(now.found)]:
        raise InputError(f"There is no image {outside[0]}; there are {counted(len(now.found), 'image')}, from 0 on.")
    if twice := [number for number in edit.made if number <= now.used]:
        raise InputError(f"The number {twice[0]} was a class's before. Needed: one above {now.used}.")
    _check_names(now, edit)
    after = ACTIONS[edit.action](now, edit)
    return replace(after, used=max([now.used, *edit.made]))


def _rename(now: Classes, edit: Edit) -> Classes:
    """Another name for a class."""
    (number,), (name,) = edit.classes, edit.names
    return replace(now, names=now.names | {number: name})


def _merge(now: Classes, edit: Edit) -> Classes:
    """Several classes become the first of them."""
    if len({*edit.classes}) < max(2, len(edit.classes)):
        raise InputError(f"Found {[*edit.classes]}; merging needs at least two different classes.")
    into, *others = edit.classes
    joined = torch.tensor(others)
    return replace(
        now,
        names={number: name for number, name in now.names.items() if number not in others},
        known=(now.known - {*others}) | ({into} if now.known & {*edit.classes} else set()),
        assignment=now.assignment.masked_fill(torch.isin(now.assignment, joined), into),
        owners=now.owners.masked_fill(torch.isin(now.owners, joined), into),
    )


def _split(now: Classes, edit: Edit) -> Classes:
    """A class in parts: the first keeps its number and name, and a known one its centres; the others are new."""
    (number,) = edit.classes
    members, divided = now.rows(number).tolist(), sorted(itertools.chain(*edit.parts))
    if len(edit.parts) < 2 or not all(edit.parts) or len(edit.made) != len(edit.parts) - 1 or divided != members:
        raise InputError(
            f"{len(edit.parts)} parts with {len(divided)} images were given for class {number}, which has "
            f"{len(members)}. Needed: two parts or more, none empty, in which each of its images is once."
        )
    after = now if number in now.known else _retire(now, number)
    for part, made in zip(edit.parts, (number, *edit.made), strict=True):
        if made != number or number not in now.known:
            after = _gather(after, part, made)
    if number not in now.known:  # what was set aside is in no part, and went by a centre that is gone
        after = _join(after, ((now.assignment == number) & now.aside).nonzero()[:, 0], number)
    return replace(after, names=after.names | dict(zip(edit.made, edit.names, strict=True)))


def _move(now: Classes, edit: Edit) -> Classes:
    """Images go to a class, or make one of their own; a person has decided on them."""
    rows = torch.tensor(edit.rows, dtype=torch.long)
    after = _decide(replace(now, aside=now.aside.index_fill(0, rows, False)), edit)
    if edit.made:
        (made,), (name,) = edit.made, edit.names
        return replace(_gather(after, edit.rows, made), names=now.names | {made: name})
    (number,) = edit.classes
    return _join(after, rows, number)


def _set_aside(now: Classes, edit: Edit) -> Classes:
    """Images that are of no class and count nowhere."""
    rows = torch.tensor(edit.rows, dtype=torch.long)
    return _decide(replace(now, aside=now.aside.index_fill(0, rows, True)), edit)


def _accept(now: Classes, edit: Edit) -> Classes:
    """Images whose class a person found right."""
    rows = torch.tensor(edit.rows, dtype=torch.long)
    away = rows[now.aside[rows] | ~torch.isin(now.assignment[rows], torch.tensor(edit.classes, dtype=torch.long))]
    if len(away):
        raise InputError(
            f"Image {int(away[0])} is not of {shorten(map(str, edit.classes))}. Move it there, or leave it out."
        )
    return _decide(now, edit)


ACTIONS: dict[str, Callable[[Classes, Edit], Classes]] = {
    "rename": _rename,
    "merge": _merge,
    "split": _split,
    "move": _move,
    "set aside": _set_aside,
    "accept": _accept,
    "undo": lambda now, edit: now,  # `standing` has seen to them
    "redo": lambda now, edit: now,
}
assert ACTIONS.keys() == {*get_args(Action)}


def _decide(now: Classes, edit: Edit) -> Classes:
    return replace(now, decided={**now.decided, **dict.fromkeys(edit.rows, edit.by or SOMEBODY)})


def _retire(now: Classes, number: int) -> Classes:
    """The centres of a class are nobody's any more."""
    return replace(now, owners=now.owners.masked_fill(now.owners == number, NOBODY))


def _gather(now: Classes, rows: Sequence[int], number: int) -> Classes:
    """Images become of a class that lies at their mean."""
    there = torch.tensor(rows, dtype=torch.long)
    place = len(now.owners)
    return replace(
        now,
        assignment=now.assignment.index_fill(0, there, number),
        more=torch.cat([now.more, now.found.latents[there].mean(0, keepdim=True)]),
        owners=torch.cat([now.owners, torch.tensor([number])]),
        sizes=torch.cat([now.sizes, torch.tensor([len(there)])]),
        own=now.own.index_fill(0, there, place),
    )


def _join(now: Classes, rows: Int[Tensor, " rows"], number: int) -> Classes:
    """Images become of a class, and go by the nearest of its centres."""
    theirs = (now.owners == number).nonzero()[:, 0]
    nearest = distances(now.found.latents[rows], now.centres[theirs]).argmin(1)  # of these alone: n may be large
    return replace(
        now,
        assignment=now.assignment.index_fill(0, rows, number),
        own=now.own.index_copy(0, rows, theirs[nearest]),
    )


def _check_whole(edit: Edit) -> None:
    """Refuse an edit that lacks something, or says more than one thing: somebody else wrote it."""
    on, made, names = len(edit.classes), len(edit.made), len(edit.names)
    whole = {
        "rename": (on, made, names) == (1, 0, 1),
        "split": on == 1 and made == names,
        "move": (on, made, names) in ((1, 0, 0), (0, 1, 1)) and bool(edit.rows),
    }
    if not whole.get(edit.action, True):
        raise InputError(
            f"A {edit.action} of {counted(on, 'class', 'classes')} and {counted(len(edit.rows), 'image')} that makes "
            f"{made} and gives {counted(names, 'name')} cannot be. Take edits as newfound wrote them."
        )


def _check_names(now: Classes, edit: Edit) -> None:
    """Refuse names that are empty or that no file can hold, or another class's."""
    others = {name for number, name in now.names.items() if edit.action != "rename" or number not in edit.classes}
    for name in edit.names:
        if not name.strip() or not is_text(name):
            raise InputError(f"{name!r} is empty, or not valid text; give the class a name that people can see.")
        if name in others:
            taken = next(number for number, other in now.names.items() if other == name)
            both = f"merge([{taken}, {edit.classes[0]}])" if edit.action == "rename" else "merge"
            raise InputError(
                f"{name!r} is another class's name, of number {taken}. Take another; {both} makes two one."
            )
    if len({*edit.names}) < len(edit.names):
        raise InputError(f"Found the names {shorten(map(repr, edit.names))}; give each class one of its own.")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or any(type(value) is not int or abs(value) > MOST for value in values):
        raise ValueError(f"{values!r} are no whole numbers")
    return tuple(values)
