"""Files appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torch import Tensor


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, never meets half of it."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, bit by bit, that appears when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Write tensors in the safetensors format (no pickle), with a few strings about them in its header."""
    from safetensors.torch import save

    write(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, dict(about or {})))
