"""A run folder as newfound 0.1 wrote it."""

import json
from dataclasses import replace

import torch

from newfound import files
from newfound.functional.counting import Candidate, Count
from tests.discovery.made import CALIBRATION, KNOWN

COUNT = Count(
    7, 2, 5, 9, "pairs", {"pairs": 7, "silhouette": 8}, (Candidate(2, 0.5, 0.25, 0.1), Candidate(4, 0.0, 1.0, 0.2))
)


def write_version_3(folder, found, numbers, names):
    """Known classes come last, merged and renamed classes stand in place of what was found."""
    order = [2, 3, 4, 0, 1]
    tensors = {
        "features": found.features,
        "centres": found.clusters.centres[order],
        "cluster": torch.tensor(order).argsort()[found.clusters.assignment],
        "sizes": found.clusters.sizes[order],
        "thumbnail rows": torch.tensor([0]),
        "thumbnails": torch.zeros(1, 1, 4, 4, dtype=torch.uint8),
    }
    replace(found.model, calibration=CALIBRATION).save_pretrained(folder / "model")
    files.write_tensors(folder / "discovery.safetensors", tensors)
    listing, count = found.listing, COUNT._asdict()
    about = {
        "format": "newfound discovery",
        "version": 3,
        "paths": listing.names,
        "boxes": listing.boxes,
        "groups": listing.groups,
        "unit": False,
        "known": KNOWN,
        "rows": [{"epoch": 1.0, "seconds": 2.0}],
        "facts": {"seed": "0"},
        "scores": None,
        "truth": None,
        "skipped": [],
        "names": names,
        "numbers": numbers,
        "threshold": 0.6,
        "twins": {"3": 1},
        "count": {("voice" if key == "criterion" else key): value for key, value in count.items()},
    }
    files.write(folder / "discovery.json", json.dumps(about))
