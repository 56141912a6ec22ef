"""Files appear whole or not at all."""

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torch import Tensor

from newfound.errors import InputError


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, never meets half of it."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def check_writable(folder: Path) -> None:
    """Refuse a folder that nothing can be written in, or that cannot be made; leaves no trace."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(f"Nothing can be written in {folder}: {error.strerror}. Give another place (-o).") from error


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, bit by bit, that appears when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:  # not by mkstemp: who may read it is for the umask to say
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Write tensors in the safetensors format (no pickle), with a few strings about them in its header."""
    from safetensors.torch import save

    write(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, dict(about or {})))
