"""What rows share, computed once and kept in the user's cache folder under a key made of its whole setting."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from newfound import files


def root() -> Path:
    """The cache folder: `NEWFOUND_CACHE`, or where this system keeps caches."""
    return Path(os.environ.get("NEWFOUND_CACHE") or user_cache_path("newfound"))


KINDS = ("features", "benchmark", "rows")
"""The folders in the cache folder that hold something; whatever else lies there is not ours."""


def measure() -> int:
    """Bytes of all that is kept."""
    held = (path for kind in KINDS for path in (root() / kind).rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in held)


def clear() -> int:
    """Throw away all that is kept, and say how many bytes that was; what is needed again is computed again."""
    size = measure()
    for kind in KINDS:
        shutil.rmtree(root() / kind, ignore_errors=True)
    return size


def key(setting: dict[str, Any]) -> str:
    """A short name of a setting: equal settings, equal names."""
    return hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:16]


def lock(name: str) -> FileLock:
    """What at most one process holds at a time; it is let go when the process ends, in whatever way."""
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock")


def entry(kind: str, setting: dict[str, Any], make: Callable[[Path], None]) -> Path:
    """The folder of this kind and setting; made now if it is not there, while others who want it wait.

    `setting.json` in it says what it is and how many seconds it took, those before interruptions too (see `_spent`).
    What `make` leaves unfinished in it is thrown away; a checkpoint at `unfinished(folder)` stays until it has ended.
    """
    folder = root() / "benchmark" / f"{kind}-{key(setting)}"
    with lock(folder.name):
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
