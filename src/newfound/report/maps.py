"""Latents → places on a plane."""

import io
import subprocess
import sys

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray


def flatten(
    features: Float[ndarray, "n d"], seed: int, most: int = 5000
) -> tuple[Int[ndarray, " shown"], Float[ndarray, "shown 2"]]:
    """Rows to show, and their places on a plane where neighbours in feature space stay neighbours.

    t-SNE (van der Maaten and Hinton 2008), started at the two main directions. Of more than `most` rows,
    evenly chosen ones are shown. Fewer than 4 rows, or rows that are all equal, are only projected.
    """
    rows = np.linspace(0, len(features) - 1, min(len(features), most)).round().astype(int)
    directions = principal(features[rows], 50)
    plane = directions[:, :2]
    if len(rows) < 4 or not plane.any():
        return rows, plane

    from openTSNE import TSNE  # 3 s to import: only those who draw a map wait for it

    start = plane / plane[:, 0].std() * 1e-4
    start += np.random.default_rng(seed).normal(scale=1e-6, size=start.shape)  # equal rows must not start at one place
    # One thread: where the cores are shared, openTSNE's second made 1000 rows three times slower, 60 rows forty times.
    tsne = TSNE(perplexity=min(30, (len(rows) - 1) // 3), initialization=start, neighbors="exact", n_jobs=1)
    return rows, np.asarray(tsne.fit(directions))


def flatten_apart(features: Float[ndarray, "n d"], seed: int) -> Float[ndarray, "n 2"]:
    """The places that `flatten` gives all rows, made by a process of its own: what t-SNE takes of memory ends with it.
    Where no process can be started, it is done here.
    """
    given = io.BytesIO()
    np.save(given, features)
    line = [sys.executable, "-m", __name__, str(seed)]
    try:
        done = subprocess.run(line, input=given.getvalue(), capture_output=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return flatten(features, seed, len(features))[1]
    return np.load(io.BytesIO(done.stdout))


def principal(features: Float[ndarray, "n d"], most: int) -> Float[ndarray, "n k"]:
    """Coordinates along the main directions: at most `most` of them, at least two (zeros where there are fewer)."""
    centred = features.astype(np.float64)
    centred -= centred.sum(axis=0) / max(len(centred), 1)
    left, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    found = (left * strengths)[:, :most]
    return np.pad(found, ((0, 0), (0, max(0, 2 - found.shape[1]))))


def main() -> None:
    """The other side of `flatten_apart`: features come in, places go out."""
    features, seed = np.load(io.BytesIO(sys.stdin.buffer.read())), int(sys.argv[1])
    np.save(sys.stdout.buffer, flatten(features, seed, len(features))[1])


if __name__ == "__main__":
    main()
