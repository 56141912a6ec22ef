"""The desk: one run under review, its journal followed, its measures kept up with every edit."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from newfound import files
from newfound.discovery.export import ENDINGS, FORMATS, export, plan_folders
from newfound.discovery.result import Discovery
from newfound.errors import InputError, check_word
from newfound.functional.geometry import distances
from newfound.review import views
from newfound.review.measures import begin_measures, measure_again
from newfound.review.places import Places

Result = TypeVar("Result")

EXPORTS = "exports"
"""The folder in a run's folder that the page exports to."""


class StaleError(InputError):
    """Somebody else has edited meanwhile, and what was asked no longer fits."""


class Desk:
    """One run under review. Whoever asks, from whichever thread, sees what is in the journal."""

    def __init__(self, folder: Path, *, by: str = ""):
        files.check_writable(folder)
        self.folder, self._lock = folder, threading.RLock()
        self.run = Discovery.load(folder, by=by)
        if not self.run.journalled:  # a run of an earlier format becomes one of today
            self.run.save(folder)
        self._between = distances(self.run.found.clusters.centres)
        self._measures = begin_measures(self.run.classes)
        self._scene = views.view_scene(self.run.classes, self._measures, self._between)
        self.places = Places(self.run.found, folder)

    def scene(self) -> views.Scene:
        """The present classes and what is thought of their images, with what others have said meanwhile."""
        with self._lock:
            self.run.follow()
            return self._look()

    def _look(self) -> views.Scene:
        if self._scene.now is not self.run.classes:
            self._measures = measure_again(self._measures, self.run.classes)
            self._scene = views.view_scene(self.run.classes, self._measures, self._between)
        return self._scene

    def state(self) -> dict[str, Any]:
        """What `views.view_state` says."""
        with self._lock:
            scene = self.scene()
            return views.view_state(scene, self.run.edits)

    def length(self) -> int:
        """How many edits the journal has."""
        with self._lock:
            self.run.follow()
            return len(self.run.edits)

    def say(self, action: Callable[[Discovery], Result], seen: int) -> tuple[Result, dict[str, Any]]:
        """Let somebody who has seen so many edits say something: it is on the disk when this returns, or not said."""
        with self._lock:
            try:
                with self.run.together():
                    others = len(self.run.edits) != seen
                    result = action(self.run)
            except InputError as error:
                if len(self.run.edits) != seen or self.length() != seen:
                    raise StaleError(f"Somebody else has edited meanwhile. {error}") from error
                raise
            return result, self.state() | {"others": others}

    def turn(self, action: Callable[[Discovery], bool], seen: int) -> dict[str, Any]:
        """Undo or redo what somebody saw last; what others have said meanwhile they have not seen."""

        def check(run: Discovery) -> bool:
            if len(run.edits) != seen:
                raise InputError("Look at what changed, then undo or redo again if you still want to.")
            return action(run)

        done, state = self.say(check, seen)
        return state | {"done": done}

    def propose(self, number: int, into: int) -> list[dict[str, Any]]:
        """The parts that a split would make, as grids; nothing changes."""
        with self._lock:
            scene, parts = self.scene(), self.run.propose_split(number, into)
        return views.view_parts(scene, parts)

    def plan_export(self) -> dict[str, int]:
        """How many images would lie in which folder."""
        with self._lock:
            self.run.follow()
            return {name: len(rows) for name, rows in plan_folders(self.run.classes).items()}

    def export(self, to: str, *, link: bool) -> Path:
        """Export to a place in the run's folder where nothing is yet."""
        check_word("format", to, FORMATS)  # it becomes part of a path
        with self._lock:
            self.run.follow()
            now, number = self.run.classes, 1
            while (place := self.folder / EXPORTS / f"{to}-{number}{ENDINGS.get(to, '')}").exists():
                number += 1
            return export(now, to, place, link=link)

    def close(self) -> None:
        """Write tables and report of what was said."""
        with self._lock:
            self.run.write_tables()
