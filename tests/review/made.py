"""A small run on the disk, made and not trained, whose images are there: what the page shows can be told by colours."""

from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from newfound.discovery.found import Clusters, Found
from newfound.discovery.result import Discovery
from newfound.types import generator
from tests.discovery.made import make_found


def write_run(folder: Path, **other) -> Path:
    """A run of 44 images in two folders, the red of each its row; returns the run's folder."""
    found = make_found(**other)
    names = tuple(f"{row % 2}/{row}.png" for row in range(len(found)))
    for row, name in enumerate(names):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 70), (row, 90, 160)).save(path)
    listing = replace(found.listing, root=folder / "images", names=names)
    Discovery(replace(found, listing=listing)).save(folder / "run")
    return folder / "run"


def make_many(n: int, clusters: int, dim: int = 16) -> Found:
    """Points about many centres."""
    random = generator("many", n, clusters)
    centres = 3 * torch.randn(clusters, dim, generator=random)
    assignment = torch.randint(clusters, (n,), generator=random)
    features = centres[assignment] + torch.randn(n, dim, generator=random)
    assignment = torch.cdist(features, centres).argmin(1)
    sizes = torch.bincount(assignment, minlength=clusters)
    made = Clusters(assignment, centres, sizes, unit=False)
    return make_found(features=features, clusters=made)
