"""What a rehearsal costs, in seconds of one processor: on 10,000 labelled images whose features are there.

    python scripts/measure_rehearsal_time.py

Features are drawn: the 2560 numbers of two networks side by side, of 10,000 images of 20 classes. Once the preferred
way is taken, as it falls out, and once the one that trains, which is dearest, for what is to be expected of it is
rehearsed too. It is processor time, which other programs on the machine hardly change. Writes
results/rehearsal-time.json.
"""

import hashlib
import json
import time
from pathlib import Path

import torch

from newfound import files
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing
from newfound.discovery import rehearsal
from newfound.discovery.facts import versions
from newfound.encoders.features import FeatureEncoder
from newfound.functional.rehearsal import Trial, Way
from newfound.networks.pretrained import LITE, load_pretrained
from newfound.types import generator

IMAGES, CLASSES, NUMBERS, NOISE = 10_000, 20, 2560, 3.0


def draw(classes: int) -> FeatureImages:
    """Features of images that nobody painted, about as hard to tell apart as photographs."""
    random, labels = generator("time", classes), torch.arange(IMAGES) % classes
    centres = torch.rand(classes, NUMBERS, generator=random).pow(4)
    x = centres[labels] + NOISE * torch.rand(IMAGES, NUMBERS, generator=random).pow(3)
    names = tuple(f"{row}.png" for row in range(IMAGES))
    listing = Listing.of(names, labels, [f"{label}" for label in range(classes)], root=Path())
    keys = tuple(hashlib.sha256(name.encode()).digest() for name in names)
    return FeatureImages(listing, x.half()[:, None].expand(-1, 3, -1), torch.arange(IMAGES), keys)


def dearest(trials: tuple[Trial, ...], default: Way) -> Way:
    """A choice for what is trained, whatever it scored."""
    return next(trial.way for trial in trials if trial.way.method != "kmeans")


def main() -> None:
    """Rehearse, tell the time, write it."""
    encoder, choose, rows = FeatureEncoder(load_pretrained(LITE), "cpu"), rehearsal.choose, []
    images = draw(CLASSES)
    for taken, chooser in (("what is trained", dearest), ("the preferred", choose)):
        rehearsal.choose = chooser  # type: ignore[assignment]
        began = time.process_time()
        rehearsal.rehearse(images, encoder, 0)
        seconds = time.process_time() - began
        about = {"images": IMAGES, "classes": CLASSES, "numbers": NUMBERS}
        rows.append(about | {"taken": taken, "seconds": round(seconds, 1)})
        print(rows[-1], flush=True)
    setting = {"command": "python scripts/measure_rehearsal_time.py", "time": "processor", "versions": versions()}
    files.write(Path("results/rehearsal-time.json"), json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
