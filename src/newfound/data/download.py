"""CIFAR from where torchvision gets it, for machines with a network."""

from pathlib import Path
from urllib.error import URLError

from newfound.data.cifar import LAYOUTS, locate
from newfound.errors import InputError, choices
from newfound.vision import vision

NAMES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


def download(dataset: str, folder: str | Path) -> Path:
    """Get a dataset's Python files, checked by torchvision, and return the folder they are in."""
    if dataset not in NAMES:
        raise InputError(f"There is no dataset {dataset!r} to get. {choices(dataset, NAMES)}")
    layout = LAYOUTS[dataset]
    try:
        getattr(vision("torchvision.datasets"), NAMES[dataset])(str(folder), download=True)
    except (URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"{dataset} could not be fetched ({error}). Needed: a network, or the dataset's Python version from "
            f"another machine: put its folder {layout.folder} into {folder}."
        ) from error
    return locate(folder, layout, layout.files)
