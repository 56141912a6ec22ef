"""What rows share, computed once and kept in the cache under a key made of its whole setting."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from newfound import cache, files


def entry(kind: str, setting: dict[str, Any], make: Callable[[Path], None]) -> Path:
    """The folder of this kind and setting; made now if it is not there, while others who want it wait.

    `setting.json` in it says what it is and how many seconds it took, those before interruptions too (see `_spent`).
    What `make` leaves unfinished in it is thrown away; a checkpoint at `unfinished(folder)` stays until it has ended.
    """
    folder = cache.root() / "benchmark" / f"{kind}-{cache.key(setting)}"
    with cache.lock(folder.name):
        if (folder / "setting.json").is_file():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        before, note = _spent(folder), _note(folder)
        files.write(note, str(before))  # where we are killed, its age says when we began
        began = time.perf_counter()
        try:
            make(folder)
        except BaseException:
            files.write(note, str(before + time.perf_counter() - began))
            raise
        about = {"setting": setting, "seconds": round(before + time.perf_counter() - began, 1)}
        files.write(folder / "setting.json", json.dumps(about, indent=1))
        for left in (note, unfinished(folder)):
            left.unlink(missing_ok=True)
    return folder


def unfinished(folder: Path) -> Path:
    """Where the maker of an entry may keep a checkpoint."""
    return folder.with_name(f"{folder.name}.checkpoint")


def _note(folder: Path) -> Path:
    """The seconds spent on an entry until the note was written: when its maker began, or was interrupted."""
    return folder.with_name(f"{folder.name}.seconds")


def _spent(folder: Path) -> float:
    """Seconds that earlier makers of an unfinished entry spent on it.

    Who is killed cannot write them down: of these the time until their last checkpoint counts, by the dates of the
    files, and what came after it, which is lost and done again, does not.
    """
    note, checkpoint = _note(folder), unfinished(folder)
    if not note.is_file():
        return 0.0
    since = checkpoint.stat().st_mtime - note.stat().st_mtime if checkpoint.is_file() else 0.0
    return float(note.read_text(encoding="ascii")) + max(0.0, since)


def seconds(folder: Path) -> float:
    """How long an entry took to make."""
    return json.loads((folder / "setting.json").read_text(encoding="utf-8"))["seconds"]
