"""Files appear whole or not at all, and a kill leaves nothing beside them."""

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from torch import Tensor

from newfound.errors import InputError, NoRoomError, check_name, sized

ENDING = ".newfound"
TEMPORARY = re.compile(rf"\.(?P<name>.+)\.[0-9a-f]{{16}}{re.escape(ENDING)}", re.DOTALL)
"""What a file is called that is not whole yet, where it must have a name."""


AT_FDCWD, EXCHANGE = -100, 2
"""Linux's words for "from here" and "change the two" (`man renameat2`)."""


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, never meets half of it."""
    data = content.encode() if isinstance(content, str) else content
    with writing(path, len(data)) as file:
        file.write(data)


def check_writable(folder: Path) -> None:
    """Refuse a folder that nothing can be written in, that cannot be made or that has no name; leaves no trace."""
    check_name(folder, "Rename it, or give another place (-o).")
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(f"Nothing can be written in {folder}: {error.strerror}. Give another place (-o).") from error


@contextmanager
def writing(path: Path, needed: int | None = None) -> Iterator[IO[bytes]]:
    """A file to write to, bit by bit, that appears when all is written; `needed` bytes, where that is known.

    Until then it has no name, where the system knows such files, so that whoever is killed leaves nothing. Elsewhere,
    and from its first name to its own, it has one that `clear_stale` knows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_stale(path.parent, path.name)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{ENDING}")
    try:
        with room_for(path, needed), _open_unnamed(path.parent) or _open_named(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.fstat(file.fileno()).st_nlink == 0:
                unnamed = f"/proc/self/fd/{file.fileno()}"
                os.link(unnamed, temporary, src_dir_fd=file.fileno(), follow_symlinks=True)  # fd: else it follows none
            if sys.platform == "win32":
                file.close()  # there only what nobody has open can be renamed
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def room_for(path: Path, needed: int | None = None) -> Iterator[None]:
    """Say of a disk that is full which file did not fit, how many bytes it needs, and how many there are."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = sized(shutil.disk_usage(path.parent).free)
        wish = f"It needs {sized(needed)}, and {free} are free" if needed else f"{free} are free, and it needs more"
        raise NoRoomError(
            f"{path} cannot be written: {error.strerror}. {wish}. Make room, then give the same command again."
        ) from error


def clear_stale(folder: Path, name: str | None = None) -> None:
    """Take away what writers of a file, or of all in a folder, have left who were killed; that of the living stays."""
    for place in [*folder.glob(f".*{ENDING}")]:
        named = TEMPORARY.fullmatch(place.name)
        if named and name in (None, named["name"]) and place.is_file() and not _is_written(place):
            with suppress(PermissionError):
                place.unlink(missing_ok=True)


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `folder` when all is in it: at once, where the system can.

    Until then what was there stays as it was; whoever is killed leaves a folder that the next one takes away.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    for place in [*folder.parent.glob(f".*{ENDING}")]:
        named = TEMPORARY.fullmatch(place.name)
        if named and named["name"] == folder.name and place.is_dir() and _hold(place, os.close):
            shutil.rmtree(place, ignore_errors=True)
    new = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}{ENDING}")
    new.mkdir()
    held: list[int] = []
    _hold(new, held.append)
    try:
        yield new
        for handle in held:  # no name may reach the disk before what it is of
            os.fsync(handle)
        _take_place(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        for handle in held:
            os.close(handle)


def _take_place(new: Path, folder: Path) -> None:
    """A folder gets another's name; what had it is called as the first was, if only for a moment."""
    if not folder.exists():
        new.rename(folder)
    elif not _exchange(new, folder):
        old = new.with_name(f".{folder.name}.{secrets.token_hex(8)}{ENDING}")
        folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change names in one step, so that neither is missing at any time; whether this system can."""
    if sys.platform != "linux":
        return False
    call = getattr(ctypes.CDLL(None), "renameat2", None)  # glibc 2.28
    return call is not None and call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), EXCHANGE) == 0


def _hold(folder: Path, keep: Callable[[int], object]) -> bool:
    """Lock a folder, and hand on what holds it; False where somebody else has. Nobody locks where folders cannot be."""
    if sys.platform == "win32":
        return True
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    keep(handle)
    return True


def _open_unnamed(folder: Path) -> IO[bytes] | None:
    """A file that has no name yet; None where there are no such files."""
    if sys.platform != "linux" or not os.access("/proc/self/fd", os.X_OK):
        return None
    try:
        file = os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666), "wb")
    except OSError:  # not every file system has them
        return None
    _lock(file)
    return file


def _open_named(place: Path) -> IO[bytes]:
    """A new file, which is locked until it is closed. Not by mkstemp: who may read it is for the umask to say."""
    while True:
        file = place.open("xb")
        if _lock(file) and not os.fstat(file.fileno()).st_nlink:  # somebody took it for stale just before
            file.close()
            continue
        return file


def _lock(file: IO[bytes]) -> bool:
    """Hold a file until it is closed, in whatever way; whether this system knows how, and nobody else does."""
    if sys.platform == "win32":  # what is open there cannot be taken away
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_written(place: Path) -> bool:
    """Whether somebody may still be writing to a file."""
    try:
        with place.open("rb") as file:
            return sys.platform != "win32" and not _lock(file)
    except OSError:
        return True


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Write tensors in the safetensors format (no pickle), with a few strings about them in its header."""
    from safetensors.torch import save

    write(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, dict(about or {})))
