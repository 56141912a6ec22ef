"""Discovery on a pretrained backbone's features: looking, finding, predicting."""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from benchmarks.clock import Case
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing, list_images
from newfound.discovery.find import find
from newfound.discovery.howmany import how_many
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run
from newfound.encoders.extraction import AUGMENTED, CHUNK, extract_features
from newfound.encoders.statistics import fit_statistics, refit_axes
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator

FILES = 64
IMAGES, KNOWN, NEW, FEATURES = 10_000, 10, 10, 1280


def looking() -> Iterator[Case]:
    """Files to features beside the bare backbone, and predictions beside looking; each time from an empty cache."""
    with tempfile.TemporaryDirectory() as place:
        folder, cache = Path(place) / "files", Path(place) / "cache"
        folder.mkdir()
        os.environ["NEWFOUND_CACHE"] = str(cache)
        photographs(folder)
        eye, listed = load_pretrained(), list_images(folder, labelled=False)
        chunk = torch.rand(CHUNK, 3, eye.size, eye.size)

        def looked() -> FeatureImages:
            shutil.rmtree(cache, ignore_errors=True)
            return extract_features(listed, eye)

        @torch.inference_mode()
        def bare() -> None:
            for _ in range((1 + AUGMENTED) * FILES // CHUNK):
                eye.network(chunk)

        yield Case(f"{FILES} JPEG files of 640 × 480 to features / the bare backbone", looked, bare, 3, most=1 / 0.85)
        found = find(
            refit_axes(fit_statistics(known(looked()), eye), looked()), looked(), 4, run=Run(epochs=1, device="cpu")
        )

        def said() -> object:
            shutil.rmtree(cache, ignore_errors=True)
            return Discovery(found).predict(folder)

        yield Case("their classes predicted / looked at only", said, looked, 5, most=1.05)


def photographs(folder: Path) -> None:
    """Smooth noise, as large and as hard to decode as photographs."""
    for number in range(FILES):
        coarse = torch.rand(30, 40, 3, generator=generator("photograph", number)).mul(255).byte().numpy()
        Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)


def known(images: FeatureImages) -> FeatureImages:
    """The same with labels."""
    labels = torch.arange(len(images)) % 4
    return replace(images, listing=replace(images.listing, labels=labels, classes=tuple("abcd")))


def synthetic(n: int, classes: int, first: int, labelled: bool) -> FeatureImages:
    """Features of classes that lie apart a little, as cached ones lie on disk."""
    labels = torch.arange(n) % classes
    centres = torch.rand(KNOWN + NEW, FEATURES, generator=generator("centres"))
    records = torch.empty(n, 1 + AUGMENTED, FEATURES, dtype=torch.half)
    for view in range(1 + AUGMENTED):
        noise = torch.rand(n, FEATURES, generator=generator("noise", first, view))
        records[:, view] = (centres[first + labels] + 2 * noise).half()
    names = tuple(f"{first}/{row}" for row in range(n))
    root = Path()
    listed = (
        Listing.of(names, labels, [*map(str, range(classes))], root=root) if labelled else Listing.of(names, root=root)
    )
    return FeatureImages(
        listed, records, torch.arange(n), tuple(hashlib.sha256(name.encode()).digest() for name in names)
    )


def discovering() -> None:
    """`discover` on cached features: seconds and memory, each way in a process of its own with every core."""
    for way in WAYS:
        line = [sys.executable, "-m", "benchmarks.features", way]
        print(subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip())


WAYS = ("two-stage, classes given", "single-stage, classes estimated")


def main() -> None:
    """What that process does: all that comes after looking at images."""
    labelled = synthetic(KNOWN * 100, KNOWN, 0, labelled=True)
    pile = synthetic(IMAGES, KNOWN + NEW, 0, labelled=False)
    eye, began, way = load_pretrained(), time.perf_counter(), sys.argv[1]
    beside = None if way == WAYS[0] else labelled
    model = refit_axes(fit_statistics(labelled, eye), pile, beside)
    new = NEW if beside is None else how_many(model, pile, beside, 0).classes - KNOWN
    find(model, pile, new, labelled=beside, run=Run(device="cpu"))
    wall, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    verdict = "ok" if wall <= 60 and memory <= 1.5 else "short"
    print(
        f"discover on {IMAGES} cached features of {FEATURES} dims, {KNOWN + NEW} classes, {way}: {wall:.0f} s "
        f"(asked ≤ 60), {memory:.2f} GB (asked ≤ 1.5): {verdict}"
    )


if __name__ == "__main__":
    main()
