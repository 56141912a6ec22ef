"""The present classes of a list of edits that grows: `edits.classes`, without doing all of it anew each time."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from newfound.discovery.edits import Classes, Edit, apply, begin
from newfound.discovery.found import Found
from newfound.functional.names import count_names, is_counted

RECENT, SPARSE = 32, 64
"""Classes are kept after each of the last edits, and after every so many: an undo looks them up, or begins near."""


@dataclass(frozen=True, eq=False)
class Replay:
    """Edits, those of them that hold, and the classes that follow.

        Replay(found).extend(edits).now = classes(found, edits)

    However the edits came, one by one or all at once.
    """

    found: Found
    edits: tuple[Edit, ...] = ()
    done: tuple[Edit, ...] = ()  # those that hold
    undone: tuple[Edit, ...] = ()  # those that `redo` would do again, the next one last
    kept: Mapping[int, Classes] = field(default_factory=dict)  # the classes after so many of `done`

    def extend(self, edits: Sequence[Edit]) -> "Replay":
        """The same with more edits; what cannot be is refused, and nothing has changed."""
        done, undone = [*self.done], [*self.undone]
        same = len(done)  # so many of these were done before
        for edit in edits:
            if edit.action == "undo" and done:
                undone.append(done.pop())
                same = min(same, len(done))
            elif edit.action == "redo" and undone:
                done.append(undone.pop())
            elif edit.action not in ("undo", "redo"):
                done.append(edit)
                undone.clear()
        kept = {count: now for count, now in self.kept.items() if count <= same}
        start = max(kept, default=0)
        now = kept[start] if kept else begin(self.found)
        for count, edit in enumerate(done[start:], start + 1):
            now = apply(now, edit)
            if count % SPARSE == 0 or count > len(done) - RECENT:
                kept[count] = now
        kept = {count: now for count, now in kept.items() if count % SPARSE == 0 or count > len(done) - RECENT}
        return Replay(self.found, (*self.edits, *edits), tuple(done), tuple(undone), kept | {len(done): now})

    @cached_property
    def now(self) -> Classes:
        """The present classes. Numbers of classes that an undone edit made stay used."""
        now = self.kept[len(self.done)] if self.kept else begin(self.found)
        return replace(now, used=max([now.used, *itertools.chain.from_iterable(edit.made for edit in self.edits)]))


def rebase(ours: Sequence[Edit], now: Classes) -> list[Edit]:
    """What we said, as if we had known what others say meanwhile: classes that we made get numbers which nobody's have,
    and the names that were given by counting go on counting.
    """
    number = itertools.count(now.used + 1)
    renumbered = {made: next(number) for edit in ours for made in edit.made}
    said = [name for edit in ours for name in edit.names]
    taken = {*now.names.values(), *now.found.names, *now.found.model.classes}
    free = count_names({*taken, *said})
    again = [name for edit in ours if edit.made for name in edit.names if is_counted(name) and name in taken]
    called = {name: next(free) for name in again}
    return [
        edit._replace(
            classes=tuple(renumbered.get(old, old) for old in edit.classes),
            made=tuple(renumbered[old] for old in edit.made),
            names=tuple(called.get(name, name) for name in edit.names) if edit.made else edit.names,
        )
        for edit in ours
    ]
