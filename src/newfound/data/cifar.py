"""CIFAR-10 and CIFAR-100 from their original Python files (Krizhevsky, 2009)."""

import pickle
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Shaped, UInt8

from newfound.data.pictures import existing
from newfound.data.sources import Images, arrays
from newfound.errors import InputError


class Layout(NamedTuple):
    """Where a dataset keeps what."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str
    classes: str

    @property
    def files(self) -> tuple[str, ...]:
        """All that it has."""
        return *self.train, *self.test, self.meta


LAYOUTS = {
    "cifar10": Layout(
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{part}" for part in range(1, 6)),
        test=("test_batch",),
        meta="batches.meta",
        labels="labels",
        classes="label_names",
    ),
    "cifar100": Layout(
        folder="cifar-100-python",
        train=("train",),
        test=("test",),
        meta="meta",
        labels="fine_labels",
        classes="fine_label_names",
    ),
}


def cifar(root: str | Path, dataset: Literal["cifar10", "cifar100"], train: bool = True) -> Images:
    """CIFAR's training or test images, from its files in `root` or in the folder that its archive unpacks to.

    Labels are the fine ones of CIFAR-100. An image is called after its part and row: "train/00017".
    """
    layout = LAYOUTS[dataset]
    files = layout.train if train else layout.test
    folder = locate(root, layout, (*files, layout.meta))
    parts = [batch(folder / file, layout.labels) for file in files]
    pixels = np.concatenate([pixels for pixels, _ in parts])
    return arrays(
        pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1),
        labels=np.concatenate([labels for _, labels in parts]),
        classes=class_names(folder / layout.meta, layout.classes),
        names=[f"{'train' if train else 'test'}/{row:05}" for row in range(len(pixels))],
    )


def locate(root: str | Path, layout: Layout, files: tuple[str, ...]) -> Path:
    """The folder that holds the files: `root`, or the archive's own folder in it."""
    root = existing(root, f"the folder {layout.folder}, which holds {', '.join(files)}, or the one around it")
    folder = root / layout.folder if (root / layout.folder).is_dir() else root
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise InputError(
            f"{folder} lacks {', '.join(missing)}. Needed: {', '.join(files)}, there or in a folder {layout.folder}. "
            "Unpack the dataset's Python version there, give the folder where it is, or get it with `newfound data`."
        )
    return folder


def batch(file: Path, key: str) -> tuple[UInt8[np.ndarray, "n 3072"], Shaped[np.ndarray, " n"]]:
    """Images, a row each, channel first, and their labels."""
    content = load(file)
    pixels, labels = content.get("data"), np.asarray(content.get(key))
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (3072,)
        or labels.shape != pixels.shape[:1]
    ):
        raise InputError(
            f"{file} holds {', '.join(sorted(content)) or 'nothing'}. Needed: data, n × 3072 bytes, and {key}, "
            "one for each of the n. Unpack the dataset's Python version again."
        )
    return pixels, labels


def class_names(file: Path, key: str) -> list[str]:
    """What the labels stand for."""
    content = load(file)
    names = content.get(key)
    if not isinstance(names, list):
        raise InputError(
            f"{file} holds {', '.join(sorted(content)) or 'nothing'}. Needed: {key}, a list. "
            "Unpack the dataset's Python version again."
        )
    return [text(name) for name in names]


def load(file: Path) -> dict[str, Any]:
    """The dictionary in a pickle, loaded without running what else a pickle may ask for."""
    try:
        with file.open("rb") as stream:
            content = Restricted(stream, encoding="bytes").load()
    except InputError as error:
        raise InputError(f"{file} {error}") from None
    except Exception as error:  # a broken pickle raises almost anything
        raise InputError(
            f"{file} cannot be read ({type(error).__name__}: {error}). Needed: a whole file of the dataset's Python "
            "version. Unpack it again."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds a {type(content).__name__}. Needed: a dictionary. Unpack the dataset again.")
    return {text(key): value for key, value in content.items()}


def text(word: str | bytes) -> str:
    """The same word whether Python 2 or Python 3 wrote it."""
    return word.decode("latin1") if isinstance(word, bytes) else word


class Restricted(pickle.Unpickler):
    """Unpickles containers, numbers, strings and numpy arrays, and nothing that could run."""

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle may call, by the name that it gives."""
        try:
            return HARMLESS[module, name]
        except KeyError:
            raise InputError(
                f"asks for {module}.{name}, which could run a program. Needed: lists, numbers and numpy arrays alone. "
                "Get the dataset from its authors."
            ) from None


def latin1(string: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in the pickle protocol of Python 2."""
    return string.encode("latin1")


HARMLESS = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # before numpy 2
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("_codecs", "encode"): latin1,
}
