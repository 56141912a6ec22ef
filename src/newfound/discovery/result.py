"""Discovery: what a run found, what people say of it, and the classes that follow from both."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from html import escape
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import pandas as pd
import torch

from newfound import files
from newfound.data.pixels import Images
from newfound.discovery import storage
from newfound.discovery.edits import Action, Classes, Edit
from newfound.discovery.export import export
from newfound.discovery.found import Found
from newfound.discovery.journal import EDITS, Journal, check_reach, lock
from newfound.discovery.learn import teach
from newfound.discovery.looking import predict, predict_in_parts
from newfound.discovery.pages import render_report
from newfound.discovery.replay import Replay, rebase
from newfound.discovery.summary import Summary, explain_gaps
from newfound.discovery.tables import measure, named_confidence, tabulate_assignments, tabulate_classes
from newfound.discovery.which import Called, Which, find_rows, name_images, several
from newfound.errors import InputError, counted, is_text, shorten
from newfound.functional.cluster import kmeans
from newfound.functional.names import is_counted
from newfound.types import generator

if TYPE_CHECKING:
    from newfound.discovery.classifier import Classifier


@final
class Discovery:
    """Classes found among unlabelled images, and all that people said of them.

    `found` is what was measured and never changes. Edits act at once, can be undone, and are written down by `save`. A
    class is called by its name, or by its number, which no other class ever had or will have.
    """

    def __init__(self, found: Found, edits: Iterable[Edit] = (), *, by: str = ""):
        """`by` is the name of whoever edits from now on."""
        if not is_text(by):
            raise InputError(f"The name {by!r} is not valid text. Needed: one that edits can hold. Write it in UTF-8.")
        self.by = by
        self._replay = Replay(found).extend([*edits])
        self._home: tuple[Path, str | None] | None = None  # the folder it was read from, or saved to, and which run
        self._journal: Journal | None = None  # of that folder; None: it has none

    def __repr__(self) -> str:
        summary = self.summary()
        return "\n".join([self._title(summary), *repr(summary).splitlines(), *explain_gaps(self.classes)])

    def _repr_html_(self) -> str:
        summary = self.summary()
        below = "".join(f"<p>{escape(line)}</p>" for line in explain_gaps(self.classes))
        return f"<p>{self._title(summary)}</p>{summary.show_html()}{below}"

    def _title(self, summary: pd.DataFrame) -> str:
        return f"{counted(len(summary), 'class', 'classes')} in {counted(len(self.found), 'image')}"

    @property
    def found(self) -> Found:
        """What was measured."""
        return self._replay.found

    @property
    def edits(self) -> list[Edit]:
        """All that was said of it, in order."""
        return [*self._replay.edits]

    @property
    def classes(self) -> Classes:
        """The present classes."""
        return self._replay.now

    @property
    def home(self) -> Path | None:
        """The run folder that it was read from, or saved to."""
        return self._home and self._home[0]

    @property
    def journalled(self) -> bool:
        """Whether it lies in a folder of the present format, with a journal."""
        return self._journal is not None

    @property
    def facts(self) -> dict[str, str]:
        """How it was made, for people."""
        return dict(self.found.facts)

    @property
    def scores(self) -> dict[str, float] | None:
        """How well the present classes agree with the truth (`tables.measure`); None where nobody knows it."""
        return measure(self.classes)

    def assignments(self) -> pd.DataFrame:
        """One row per image (`tables.tabulate_assignments`)."""
        return tabulate_assignments(self.classes)

    def summary(self) -> Summary:
        """One row per class that has images (`tables.tabulate_classes`). Printed, it fits a screen."""
        return Summary(tabulate_classes(self.classes))

    def rename(self, which: Which, name: str) -> None:
        """Give a class a name."""
        self._do("rename", classes=(self._number(which),), names=(name,))

    def merge(self, which: Which | Iterable[Which], *, force: bool = False) -> int:
        """Make several classes one. It keeps number and name of the first: of known ones before those that somebody has
        named, of these before others. Two known ones, which labelled images tell apart, become one by `force` alone.
        """
        numbers = dict.fromkeys(map(self._number, several(which)))  # a column of `summary`, or an array, works too
        known = [repr(self.classes.names[number]) for number in numbers if self.classes.kind(number) == "known"]
        if len(known) > 1 and not force:
            raise InputError(
                f"{shorten(known)} are known classes: labelled images tell them apart. Merge new classes, or say that "
                "these are meant (force=True)."
            )
        order = [number for number in self.found.numbers if number in numbers]
        now, order = self.classes, [*order, *sorted(numbers.keys() - {*order})]
        merged = sorted(order, key=lambda n: (now.kind(n) == "new", is_counted(now.names[n])))
        self._do("merge", classes=tuple(merged))
        return merged[0]

    def split(self, which: Which, into: SupportsIndex | Sequence[Sequence[int]] = 2) -> list[int]:
        """Part a class in so many, by k-means among its images, or into these rows. The largest part keeps number and
        name. Returns the numbers of all.
        """
        number = self._number(which)
        parts = [[*map(index, one)] for one in into] if isinstance(into, Iterable) else self.propose_split(number, into)
        parts.sort(key=len, reverse=True)
        made = tuple(range(self.classes.used + 1, self.classes.used + len(parts)))
        self._do("split", classes=(number,), parts=tuple(map(tuple, parts)), made=made, names=self._names(len(made)))
        return [number, *made]

    def propose_split(self, which: Which, into: SupportsIndex = 2) -> list[list[int]]:
        """The rows of each part that `split` would make, the largest first; nothing changes."""
        number, wanted = self._number(which), index(into)
        rows = self.classes.rows(number)
        if not 2 <= wanted <= len(rows):
            raise InputError(
                f"Asked for {wanted} parts of class {number}, which has {counted(len(rows), 'image')}. Needed: 2 or "
                "more parts, at most one per image."
            )
        parts = kmeans(self.found.latents[rows], wanted, generator("split", number)).assignment
        if (found := len(parts.unique())) < wanted:
            raise InputError(
                f"Asked for {wanted} parts of class {number}, whose {len(rows)} images show no more than {found}. "
                "Needed: at most one part per different image. Ask for fewer, or say which rows belong together."
            )
        return sorted((rows[parts == part].tolist() for part in range(wanted)), key=len, reverse=True)

    def move(self, images: Which | Iterable[Which], to: Which) -> None:
        """Put images into a class."""
        self._do("move", classes=(self._number(to),), rows=self._rows(images))

    def new_class(self, images: Which | Iterable[Which], name: str | None = None) -> int:
        """Make a class of some images. Returns its number."""
        made = self.classes.used + 1
        self._do("move", rows=self._rows(images), made=(made,), names=self._names(1) if name is None else (name,))
        return made

    def set_aside(self, images: Which | Iterable[Which]) -> None:
        """Take images out of all classes; they count nowhere until they are moved to one."""
        self._do("set aside", rows=self._rows(images))

    def accept(self, which: Which | None, above: float = 0.0, images: Which | Iterable[Which] | None = None) -> int:
        """Call images of a class right, or of all as guessed (None): above a confidence, or these. Returns how many.

        Unsure images and outliers are not above any confidence.
        """
        numbers = self.classes.numbers if which is None else [self._number(which)]
        rows = torch.cat([*map(self.classes.rows, numbers)]) if images is None else torch.tensor(self._rows(images))
        if not above <= 0:  # nothing is above a confidence that is no number
            rows = rows[named_confidence(self.classes)[rows] >= above]
        if len(rows):
            said = numbers if which is not None else self.classes.assignment[rows].unique().tolist()
            self._do("accept", classes=tuple(said), rows=tuple(rows.tolist()))
        return len(rows)

    def undo(self) -> bool:
        """Take the last edit back; whether there was one."""
        return self._turn("undo")

    def redo(self) -> bool:
        """Do again what was undone last; whether there was something."""
        return self._turn("redo")

    def predict(self, images: str | Path | Images) -> pd.DataFrame:
        """The class of new images, as `assignments` has it. A folder, a list of images or one image is read; files
        that cannot be are left out, and named in the log.
        """
        return predict(self.classes, images)

    def predictions(self, place: str | Path) -> Iterator[tuple[pd.DataFrame, tuple[str, ...]]]:
        """The same bit by bit, for any number of images; with each table the files that could not be read."""
        return predict_in_parts(self.classes, place)

    def learn(
        self,
        output: str | Path | None = None,
        *,
        images: str | Path | None = None,
        merge: bool = False,
        overwrite: bool = False,
    ) -> "Classifier":
        """Fold the new classes into the model as they are now (`learn.learn`); with `output`, write its folder."""
        from newfound.discovery.classifier import Classifier  # which discovers: each leads to the other

        return Classifier(teach(self.classes, output, run=self.home, images=images, merge=merge, overwrite=overwrite))

    def export(self, to: str, place: str | Path, *, images: str | Path | None = None, link: bool = False) -> Path:
        """Write the classes for other tools (`export.FORMATS`) to a place where nothing is yet."""
        root = None if images is None else Path(images).expanduser()
        return export(self.classes, to, Path(place).expanduser(), images=root, link=link)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the run folder, or what has been said since it was read: edits, tables and report.

        Edits that others have written down meanwhile come first. A folder that holds another run is refused, unless it
        may be overwritten.
        """
        folder = Path(folder).expanduser()
        there = storage.identify(folder)  # somebody may have written another run there meanwhile
        own = there is not None and self._home == (folder.absolute(), there)
        if own and self._journal is not None:
            with self.together():
                pass  # what was said before is written down with it
        elif there is not None and not own and not overwrite:
            raise InputError(f"{folder} holds another run. Give another place, or overwrite it (overwrite=True).")
        else:
            if not own:
                storage.clear(folder)
            (folder / EDITS).unlink(missing_ok=True)  # saving a run of version 3 may have been interrupted
            self._journal = Journal(folder)
            with self._journal.adding():
                self._journal.append(self.edits)
            storage.write_found(self.found, folder)
        self._home = folder.absolute(), storage.identify(folder)
        self.write_tables()

    def write_tables(self) -> None:
        """Write tables and report of the present classes into its folder, what others have said among them.

        Whoever has said the last edit writes last: a report, which takes a while, is left to them.
        """
        folder = self._own_journal().folder
        with lock(folder):
            self.follow()
            storage.write_tables(self.classes, folder)
        said, text = len(self.edits), render_report(self.classes)
        with lock(folder):
            self.follow()
            if len(self.edits) == said:
                files.write(folder / storage.REPORT, text)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is said inside is in the folder's journal when it ends, or is not said at all, where it cannot be.

        It comes after what others have said, of which all is known inside; nobody else writes meanwhile.
        """
        journal, before = self._own_journal(), self._replay
        try:
            with journal.adding() as theirs:
                self._take_on(theirs)
                yield
                journal.append(self.edits[journal.lines :])
        except BaseException:
            self._replay = before
            raise

    def follow(self) -> int:
        """Take on what others have written down since; returns how many edits. Ours that are not, come after theirs."""
        with self._own_journal().looking() as theirs:
            self._take_on(theirs)
        return len(theirs)

    def _take_on(self, theirs: Sequence[Edit]) -> None:
        """Put what others have written down before what we have not."""
        said = self.edits
        ours = said[self._own_journal().lines - len(theirs) :]
        if not theirs:
            return
        if ours:
            check_reach(ours, len(theirs))
        after = Replay(self.found).extend(said[: len(said) - len(ours)]) if ours else self._replay
        after = after.extend(theirs)
        self._replay = after.extend(rebase(ours, after.now))

    def _own_journal(self) -> Journal:
        if self._journal is None:
            raise InputError("This discovery lies in no folder of the present format yet. Save it to one first.")
        return self._journal

    @staticmethod
    def load(folder: str | Path, *, by: str = "") -> "Discovery":
        """Read a run folder back. `by` is the name of whoever edits from now on."""
        folder = Path(folder).expanduser()
        home = folder.absolute(), storage.identify(folder)
        found, edits, written = storage.read_run(folder)
        run = Discovery(found, () if written else edits, by=by)
        run._home, run._journal = home, Journal(folder) if written else None
        if written:
            run.follow()
        return run

    def _do(self, action: Action, **what: Any) -> None:
        edit = Edit(action, by=self.by, at=datetime.now(UTC).isoformat(timespec="seconds"), **what)
        self._replay = self._replay.extend([edit])

    def _turn(self, action: Action) -> bool:
        if not (self._replay.done if action == "undo" else self._replay.undone):
            return False
        self._do(action)
        return True

    def _number(self, which: Which) -> int:
        return self.classes.number(which if isinstance(which, str) else index(which))

    def _names(self, count: int) -> tuple[str, ...]:
        return self.classes.free_names(count)

    @cached_property
    def _called(self) -> Called:
        return name_images(self.found)

    def _rows(self, images: Which | Iterable[Which]) -> tuple[int, ...]:
        return find_rows(self._called, images)
