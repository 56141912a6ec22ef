"""edits.jsonl: what people said of a discovery, a line each. Lines are added, and never changed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from newfound import files
from newfound.discovery.edits import Edit, reaches_back
from newfound.errors import InputError, counted

EDITS = "edits.jsonl"


class Journal:
    """A folder's journal as somebody follows it: how much of it was read, and where the next line begins."""

    def __init__(self, folder: Path):
        self.folder = folder.absolute()  # it is the same folder wherever somebody goes meanwhile
        self.path = self.folder / EDITS
        self.lines = 0  # so many were read, or written
        self._end = 0  # bytes that these take

    def follow(self) -> list[Edit]:
        """What was added since it was looked at last. A last line that a crash cut off was never confirmed to anybody,
        and is left out; one that somebody is writing comes next time.
        """
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < self._end:
            raise InputError(
                f"{self.path} is shorter than when it was read, with {counted(self.lines, 'edit')}: somebody has taken "
                "lines away. Put the file back, or save to another folder."
            )
        if size == self._end:
            return []
        with self.path.open("rb") as file:
            file.seek(self._end)
            whole, newline, _ = file.read().rpartition(b"\n")
        edits = [self._read(line, number) for number, line in enumerate(whole.split(b"\n"), self.lines + 1) if newline]
        self.lines, self._end = self.lines + len(edits), self._end + len(whole + newline)
        return edits

    def _read(self, line: bytes, number: int) -> Edit:
        try:
            return Edit.read(line.decode())
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(
                f"Line {number} of {self.path} is damaged ({error}). Needed: an edit, as newfound wrote it. Take the "
                "file from a backup; without it the run shows what was found."
            ) from error

    @contextmanager
    def looking(self) -> Iterator[list[Edit]]:
        """What was added since it was looked at last; where that cannot be taken on, it is as if nobody had looked."""
        before = self.lines, self._end
        try:
            yield self.follow()
        except BaseException:
            self.lines, self._end = before
            raise

    @contextmanager
    def adding(self) -> Iterator[list[Edit]]:
        """The same, while nobody else writes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock(self.folder), self.looking() as theirs:
            yield theirs

    def append(self, edits: Sequence[Edit]) -> None:
        """Write edits after all others, while `adding`; on the disk when this returns."""
        if not edits:
            return
        lines = "".join(edit.line() + "\n" for edit in edits).encode()
        with files.room_for(self.path, len(lines)), self.path.open("ab", buffering=0) as file:
            file.truncate(self._end)  # behind the whole lines may be the beginning of one
            try:
                file.write(lines)
                os.fsync(file.fileno())
            except BaseException:  # what was not confirmed is not said
                file.truncate(self._end)
                raise
        if self.lines == 0:  # a new file is there after a crash when its folder says so
            sync_folder(self.folder)
        self.lines, self._end = self.lines + len(edits), self._end + len(lines)


def read_edits(folder: Path) -> list[Edit]:
    """All that was said, in order."""
    return Journal(folder).follow()


def check_reach(edits: Sequence[Edit], added: int) -> None:
    """Refuse an undo or redo of what was said before others added so many edits."""
    if reaches_back(edits):
        raise InputError(
            f"Others have added {counted(added, 'edit')} meanwhile: an undo or redo of what was said before would be "
            "of theirs. Read the run again and say it once more, or save to another folder."
        )


def lock(folder: Path) -> FileLock:
    """What whoever adds edits, or writes what follows from them, holds meanwhile."""
    return FileLock(folder / f".{EDITS}.lock")


def sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk; where folders cannot be opened, as on Windows, they are so."""
    if os.name == "posix":
        place = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
