"""What people's edits teach: which images are surely of a class, which of none, and which class an image is not of."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from newfound.discovery.edits import NOBODY, Classes, Edit, apply, begin, standing
from newfound.discovery.found import Found
from newfound.errors import counted


@dataclass(frozen=True, eq=False)
class Answers:
    """What follows from edits for whoever learns from them.

    Somebody vouches for an image by accepting it, or by moving it to a class or into one of its own: it is surely of
    the class that it is of now, whatever was merged or split since. A name is given to a class, not to its images, and
    merging or splitting classes, or moving all images of a class at once, says nothing of each of their images; so
    these vouch for none.
    """

    classes: Classes  # the present ones
    vouched: Bool[Tensor, " n"]  # whether somebody says that the image is of its present class
    apart: dict[int, Bool[Tensor, " n"]]  # number of a class → the images that somebody says are not of it
    restructured: bool  # whether classes were merged or split
    decisions: tuple[Edit, ...]  # who decided on which image and when, as edits of the present classes

    @property
    def aside(self) -> Bool[Tensor, " n"]:
        """The images that are of no class."""
        return self.classes.aside

    @property
    def free(self) -> Bool[Tensor, " n"]:
        """The images that nobody has decided on."""
        return ~self.vouched & ~self.aside

    @property
    def numbers(self) -> list[int]:
        """The classes that go on: known ones, and new ones that have images; known ones first."""
        now = self.classes
        known = [number for number in now.numbers if number in now.known]
        return known + [number for number in now.numbers if number not in now.known and len(now.rows(number))]

    def bar(self, numbers: Sequence[int]) -> Bool[Tensor, "n classes"]:
        """Which of these classes each image may not join."""
        nothing = torch.zeros_like(self.vouched)
        return torch.stack([self.apart.get(number, nothing) for number in numbers], 1)

    def __str__(self) -> str:
        classes = len(self.classes.assignment[self.vouched].unique())
        told = f"{counted(int(self.vouched.sum()), 'image')} of {counted(classes, 'class', 'classes')} vouched for"
        aside, barred = int(self.aside.sum()), sum(int(rows.sum()) for rows in self.apart.values())
        told += f", {aside} set aside" if aside else ""
        return told + (f", {counted(barred, 'pair')} of image and class that must not join" if barred else "")


def answers(found: Found, edits: Sequence[Edit]) -> Answers:
    """What these edits teach: a pure function of those that stand, so that one which was undone teaches nothing.

    An image must not join the class that it was moved out of, nor the other parts of a class that was split; unless
    these were merged with its own class later.
    """
    now, apart, decided = begin(found), dict[int, Tensor](), dict[int, Edit]()
    held = standing(edits)
    for edit in held:
        after = apply(now, edit)
        whole = _move_whole(now, edit)
        said = [row for row in edit.rows if row not in whole]
        if edit.action == "move":
            _keep_apart(apart, said, now.assignment)
        elif edit.action == "split":
            parts = dict(zip((edit.classes[0], *edit.made), edit.parts, strict=True))
            for number, other in itertools.permutations(parts, 2):
                _bar(apart, number, parts[other], len(found))
        elif edit.action == "merge":
            into, *others = edit.classes
            for barred in [apart.pop(other) for other in others if other in apart]:
                apart[into] = apart[into] | barred if into in apart else barred
        if edit.action in ("move", "accept", "set aside"):
            decided |= dict.fromkeys(said, edit)
        now = after
    now = replace(now, used=max([now.used, *itertools.chain.from_iterable(edit.made for edit in edits)]))
    vouched = torch.zeros(len(found), dtype=torch.bool)
    vouched[[*decided]] = True
    apart = {n: rows & (now.assignment != n) & ~now.aside for n, rows in apart.items() if n in now.names}
    return Answers(
        now,
        vouched & ~now.aside,
        {number: rows for number, rows in apart.items() if rows.any()},
        any(edit.action in ("merge", "split") for edit in held),
        _decisions(now, held, decided),
    )


def _move_whole(now: Classes, edit: Edit) -> set[int]:
    """Images of classes that are moved whole into another: that is said of the class, as merging is."""
    if edit.action != "move" or not edit.classes:
        return set()
    rows = torch.tensor(edit.rows)
    rows = rows[~now.aside[rows]]
    of, counts = now.assignment[rows].unique(return_counts=True)
    whole = [int(n) for n, count in zip(of, counts, strict=True) if 1 < count == len(now.rows(int(n)))]
    return {*rows[torch.isin(now.assignment[rows], torch.tensor(whole, dtype=torch.long))].tolist()}


def _keep_apart(apart: dict[int, Tensor], rows: Sequence[int], of: Int[Tensor, " n"]) -> None:
    """These images are not of the classes that they are in."""
    for row in rows:
        _bar(apart, int(of[row]), [row], len(of))


def _bar(apart: dict[int, Tensor], number: int, rows: Sequence[int], images: int) -> None:
    apart.setdefault(number, torch.zeros(images, dtype=torch.bool))[[*rows]] = True


def _decisions(now: Classes, held: Sequence[Edit], decided: dict[int, Edit]) -> tuple[Edit, ...]:
    """Who decided on images, in the order in which it was said: they accepted them in the classes of now, or set them
    aside.
    """
    place = {id(edit): turn for turn, edit in enumerate(held)}
    rows: dict[tuple[int, int], list[int]] = {}
    for row, edit in sorted(decided.items()):
        number = NOBODY if now.aside[row] else int(now.assignment[row])
        rows.setdefault((place[id(edit)], number), []).append(row)
    return tuple(
        Edit("set aside", rows=tuple(some), by=held[turn].by, at=held[turn].at)
        if number == NOBODY
        else Edit("accept", classes=(number,), rows=tuple(some), by=held[turn].by, at=held[turn].at)
        for (turn, number), some in sorted(rows.items())
    )
