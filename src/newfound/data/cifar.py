"""CIFAR-10 and CIFAR-100 from their original Python files (Krizhevsky, 2009), or from where torchvision gets them."""

import pickle
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import numpy as np
from jaxtyping import Shaped, UInt8

from newfound.data.listing import check_folder
from newfound.data.pixels import Images, arrays
from newfound.errors import InputError
from newfound.vision import vision


class Layout(NamedTuple):
    """Where one of the two keeps what, and what it is called."""

    name: str  # as `newfound data` gets it
    torchvision: str  # its class there
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


CIFAR10 = Layout(
    name="cifar10",
    torchvision="CIFAR10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{part}" for part in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    labels="labels",
    classes="label_names",
)
CIFAR100 = Layout(
    name="cifar100",
    torchvision="CIFAR100",
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    meta="meta",
    labels="fine_labels",
    classes="fine_label_names",
)


def read_cifar(layout: Layout, root: str | Path | None, part: str = "train") -> Images:
    """The images of a part, "train" or "test", from files in `root` or in the folder that the archive unpacks to.

    Labels are the fine ones of CIFAR-100. An image is called after its part and row: "train/00017".
    """
    files = {"train": layout.train, "test": layout.test}[part]
    folder = locate_files(layout, root, (*files, layout.meta))
    batches = [read_batch(folder / file, layout.labels) for file in files]
    pixels = np.concatenate([pixels for pixels, _ in batches])
    return arrays(
        pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1),
        labels=np.concatenate([labels for _, labels in batches]),
        classes=read_class_names(folder / layout.meta, layout.classes),
        names=[f"{part}/{row:05}" for row in range(len(pixels))],
    )


def fetch_cifar(layout: Layout, folder: str | Path) -> Path:
    """Get the files into a folder, checked by torchvision, and return the one they are in."""
    try:
        getattr(vision("torchvision.datasets"), layout.torchvision)(str(folder), download=True)
    except (URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"{layout.name} could not be fetched ({error}). Needed: a network, or the dataset's Python version from "
            f"another machine: put its folder {layout.folder} into {folder}."
        ) from error
    return locate_files(layout, folder, layout.files)


def check_cifar(layout: Layout, root: str | Path | None) -> None:
    """Refuse a folder that lacks any of the files, or was not given, before one is read."""
    locate_files(layout, root, layout.files)


def locate_files(layout: Layout, root: str | Path | None, files: tuple[str, ...]) -> Path:
    """The folder that holds the files: `root`, or the archive's own folder in it."""
    if root is None:
        raise InputError(
            f"No folder with {layout.name} was given. Needed: a folder with {layout.folder}, which holds "
            f"{', '.join(layout.files)}. Give it with --data or NEWFOUND_DATA, "
            f"or get it with `newfound data {layout.name}`."
        )
    root = check_folder(root, f"the folder {layout.folder}, which holds {', '.join(files)}, or the one around it")
    folder = root / layout.folder if (root / layout.folder).is_dir() else root
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise InputError(
            f"{folder} lacks {', '.join(missing)}. Needed: {', '.join(files)}, there or in a folder {layout.folder}. "
            "Unpack the dataset's Python version there, give the folder where it is, or get it with `newfound data`."
        )
    return folder


def read_batch(file: Path, key: str) -> tuple[UInt8[np.ndarray, "n 3072"], Shaped[np.ndarray, " n"]]:
    """Images, a row each, channel first, and their labels."""
    content = load_pickle(file)
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


def read_class_names(file: Path, key: str) -> list[str]:
    """What the labels stand for."""
    content = load_pickle(file)
    names = content.get(key)
    if not isinstance(names, list):
        raise InputError(
            f"{file} holds {', '.join(sorted(content)) or 'nothing'}. Needed: {key}, a list. "
            "Unpack the dataset's Python version again."
        )
    return [to_text(name) for name in names]


def load_pickle(file: Path) -> dict[str, Any]:
    """The dictionary in a pickle, loaded without running what else a pickle may ask for."""
    try:
        with file.open("rb") as stream:
            content = RestrictedUnpickler(stream, encoding="bytes").load()
    except InputError as error:
        raise InputError(f"{file} {error}") from None
    except Exception as error:  # a broken pickle raises almost anything
        raise InputError(
            f"{file} cannot be read ({type(error).__name__}: {error}). Needed: a whole file of the dataset's Python "
            "version. Unpack it again."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds a {type(content).__name__}. Needed: a dictionary. Unpack the dataset again.")
    return {to_text(key): value for key, value in content.items()}


def to_text(word: str | bytes) -> str:
    """The same word whether Python 2 or Python 3 wrote it."""
    return word.decode("latin1") if isinstance(word, bytes) else word


class RestrictedUnpickler(pickle.Unpickler):
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


def encode_latin1(string: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in the pickle protocol of Python 2."""
    return string.encode("latin1")


HARMLESS = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # before numpy 2
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("_codecs", "encode"): encode_latin1,
}
