"""What this machine has: the first thing to look at when something does not work."""

import importlib.util
import os
import platform
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch

from newfound import cache
from newfound.errors import counted, sized
from newfound.networks.pretrained import list_usable
from newfound.networks.resnet import OWN
from newfound.vision import vision

PACKAGES = ("newfound", "torch", "torchvision", "timm", "accelerate", "numpy", "scikit-learn", "pandas", "pillow")


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    found: str
    fine: bool = True


def examine(*folders: Path) -> list[Finding]:
    """Versions, compute, backbones, memory, and whether these folders and the cache can be written to."""
    places = {"cache": cache.root()} | {f"folder {folder}": folder for folder in folders}
    return [
        Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(_torchvision() if name == "torchvision" else _package(name) for name in PACKAGES),
        Finding("compute", _compute()),
        Finding("memory", _memory()),
        _backbones(),
        *(_writable(name, folder) for name, folder in places.items()),
        Finding("cache's size", f"{sized(cache.measure())}; newfound cache --clear empties it"),
    ]


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, f"not installed; get it with `pip install {name}`", fine=False)


def _torchvision() -> Finding:
    """torchvision and torch must be of one make; where they are not, all that newfound needs works all the same."""
    found = _package("torchvision")
    if importlib.util.find_spec("torchvision") is None:
        return Finding("torchvision", f"{found.found}; pretrained backbones need it", fine=False)
    vision("torchvision")
    if hasattr(torch.ops.torchvision, "roi_align"):
        return found
    return found._replace(
        found=f"{found.found}, made for another torch: its compiled operators do not load. Nothing here needs them"
    )


def _compute() -> str:
    cores = f"{counted(os.cpu_count() or 1, 'core')}, {counted(torch.get_num_threads(), 'thread')}"
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}, {cores}"
    if torch.backends.mps.is_available():
        return f"Apple GPU, {cores}"
    return f"no accelerator, {cores}"


def _memory() -> str:
    free = f"{shutil.disk_usage(_existing(cache.root())).free / 2**30:.0f} GiB free on the cache's disk"
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return free
    return f"{pages * size / 2**30:.0f} GiB, {free}"


def _backbones() -> Finding:
    names = [backbone.name for backbone in list_usable()]
    return Finding("backbones", ", ".join([f"{OWN} (learns from your images)", *names]), fine=bool(names))


def _writable(what: str, folder: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return Finding(what, f"{folder} can be written to")
    except OSError as error:
        return Finding(what, f"{folder} cannot be written to: {error.strerror}", fine=False)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
