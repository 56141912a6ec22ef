"""edits.jsonl: what people said of a discovery, a line each. Lines are added, and never changed."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from newfound import files
from newfound.discovery.edits import Edit, reaches_back
from newfound.errors import InputError, counted

EDITS = "edits.jsonl"


def read_edits(folder: Path) -> list[Edit]:
    """All that was said, in order. A last line that a crash cut off was never confirmed to anybody, and is left out."""
    path = folder / EDITS
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    edits = []
    for number, line in enumerate(lines, 1):
        try:
            edits.append(Edit.read(line.decode()))
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(
                f"Line {number} of {path} is damaged ({error}). Needed: an edit, as newfound wrote it. Take the file "
                "from a backup; without it the run shows what was found."
            ) from error
    return edits


def add_edits(
    folder: Path, edits: Sequence[Edit], known: int, check: Callable[[Sequence[Edit]], object] = len
) -> list[Edit]:
    """Add edits after whatever others have added meanwhile, and return all; on the disk when this returns.

    `known` is how many lines whoever made these edits had read. `check` is given all before any is written, and may
    refuse them: ours may contradict what others have said.
    """
    path = folder / EDITS
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        before = read_edits(folder)
        if len(before) < known:
            raise InputError(
                f"{path} has {len(before)} edits, and there were {known} when it was read: somebody has taken lines "
                "away. Put the file back, or save to another folder."
            )
        if len(before) > known and reaches_back(edits):
            raise InputError(
                f"Others have added {counted(len(before) - known, 'edit')} to {path} meanwhile: an undo or redo of "
                "what was said before would be of theirs. Read the run again and say it once more, or save to another "
                "folder."
            )
        check([*before, *edits])
        if edits:
            lines = "".join(edit.line() + "\n" for edit in edits).encode()
            with files.room_for(path, len(lines)), path.open("ab") as file:
                file.truncate(_whole(path))
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
    return [*before, *edits]


def lock(folder: Path) -> FileLock:
    """What whoever adds edits holds meanwhile."""
    return FileLock(folder / f".{EDITS}.lock")


def _whole(path: Path) -> int:
    """Bytes of whole lines: behind them may be the beginning of one."""
    return path.read_bytes().rfind(b"\n") + 1
