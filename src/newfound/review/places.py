"""Where images lie on the map: at once by two directions, and better when that is ready. It is kept beside the run."""

import hashlib
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray

from newfound import files
from newfound.discovery.found import Found
from newfound.errors import InputError
from newfound.report.maps import flatten_apart, principal
from newfound.schema import TensorSpec, check_tensors, read_tensors

PLACES = "map.safetensors"
"""The file in a run's folder that holds the places, and what they were made from."""

SHOWN = 3000
"""Images on the map, at most: so many are drawn sharply, and t-SNE takes seconds for them."""

ABOUT = "made from"


class Places:
    """The map of a run. t-SNE begins when somebody first asks, in the background, so that the page comes first."""

    def __init__(self, found: Found, folder: Path):
        n = len(found)
        self.rows: Int[ndarray, " shown"] = np.linspace(0, n - 1, min(n, SHOWN)).round().astype(int)
        self._features, self._path = found.features[self.rows].numpy(), folder / PLACES
        self._lock = threading.Lock()
        self._sketch: Float[ndarray, "shown 2"] | None = None
        self._better: Float[ndarray, "shown 2"] | None = None

    def look(self) -> tuple[bool, Float[ndarray, "shown 2"]]:
        """Places as good as they are by now, and whether that is for good."""
        with self._lock:
            if self._sketch is None:  # nobody has asked before
                self._better = read_places(self._path, self._features)
                self._sketch = principal(self._features, 2)[:, :2] if self._better is None else self._better
                if self._better is None:
                    threading.Thread(target=self._improve, daemon=True, name="map").start()
        better = self._better
        return better is not None, self._sketch if better is None else better

    def _improve(self) -> None:
        places = flatten_apart(self._features, seed=0)
        self._better = places
        with suppress(OSError, InputError):  # where it cannot be kept, it is made anew next time
            write_places(self._path, self._features, places)


def identify_features(features: Float[ndarray, "shown dim"]) -> str:
    """What tells the places of these features from those of others: the digest of features, and how places are made."""
    shape = f"t-SNE 1, {features.shape}".encode()
    return hashlib.sha256(shape + np.ascontiguousarray(features).tobytes()).hexdigest()


def write_places(path: Path, features: Float[ndarray, "shown dim"], places: Float[ndarray, "shown 2"]) -> None:
    """Keep the places of these features."""
    tensor = torch.from_numpy(places.astype(np.float32))
    files.write_tensors(path, {"places": tensor}, {ABOUT: identify_features(features)})


def read_places(path: Path, features: Float[ndarray, "shown dim"]) -> Float[ndarray, "shown 2"] | None:
    """The places of these features, where they were kept; None: they were not, or the file is damaged."""
    if not path.is_file():
        return None
    try:
        tensors, about = read_tensors(path, "It is made anew.")
        lengths = {"images": len(features), "directions": 2}
        check_tensors(tensors, {"places": TensorSpec(torch.float32, ("images", "directions"))}, lengths)
    except ValueError:
        return None
    return tensors["places"].numpy() if about.get(ABOUT) == identify_features(features) else None
