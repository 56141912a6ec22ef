"""The user's cache folder, for what need not be computed twice: where it is, how large, and who is at what."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path


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
