"""Choose how a picture that is not square is seen: its middle square, whole on white, or squashed.

    apt install tuxpaint-stamps-default
    python scripts/choose_framing.py

Stamps, 16 kinds (`docs/counting.py`), seen by EfficientNet-lite0 each way. Half of the kinds are hidden at a time, as
in a rehearsal; each way is scored on the same hidings. Writes results/choice-framing.json.
"""

import json
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from newfound import files
from newfound.data.decoding import configure_pillow, flatten, open_image
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing
from newfound.discovery.facts import versions
from newfound.discovery.rehearsal import TRIED, Stage
from newfound.encoders.extraction import CHUNK, key, views
from newfound.encoders.features import FeatureEncoder
from newfound.functional.axes import SHRINK
from newfound.functional.rehearsal import Trial, gain
from newfound.networks.pretrained import LITE, trunk

ROOT = Path(__file__).parents[1]
HIDINGS, SQUARE = 20, 1.1
"""How often kinds are hidden; how many times as long as wide a picture is that still counts as square."""

HOW = Image.Resampling.BICUBIC
WAYS = {
    "middle square": lambda image, size: ImageOps.fit(image, size, HOW),
    "whole, on white": lambda image, size: ImageOps.pad(image, size, HOW, color="white"),
    "squashed": lambda image, size: image.resize(size, HOW),
}


def stamps() -> dict[str, list[Path]]:
    """The stamps' files by kind."""
    sys.path.append(str(ROOT / "docs"))
    from counting import STAMP, STAMPS, folders

    return folders(STAMPS, STAMP)


def see(listing: Listing, way: str, encoder: FeatureEncoder) -> tuple[FeatureImages, float]:
    """Features of pictures that are framed so, and the share of them that are not square."""
    eye, records, keys, long = encoder.backbone.folded(), [], [], 0
    for start in range(0, len(listing), CHUNK):
        some: dict[bytes, np.ndarray] = {}
        for path in listing.files[start : start + CHUNK]:
            content = path.read_bytes()
            with configure_pillow(), open_image(BytesIO(content)) as file:
                long += max(file.size) > SQUARE * min(file.size)
                some[key(content, None)] = np.asarray(WAYS[way](flatten(file), (encoder.size, encoder.size)))
        records.append(views(eye, some))
        keys += some
    return FeatureImages(listing, torch.cat(records), torch.arange(len(listing)), tuple(keys)), long / len(listing)


def main() -> None:
    """Frame, hide, score, write."""
    kinds, encoder, rows = stamps(), FeatureEncoder(trunk(LITE), "cpu"), []
    paths = [(path, label) for label, some in enumerate(kinds.values()) for path in some]
    names, labels = (tuple(values) for values in zip(*paths, strict=True))
    listing = Listing.of(tuple(map(str, names)), torch.tensor(labels), [*kinds], root=Path("/"))
    scores: dict[tuple[str, str], list[float]] = {}
    for way in WAYS:
        images, share = see(listing, way, encoder)
        stage = Stage.of(images, encoder)
        for hiding in stage.hidings("framing", HIDINGS, 0):
            told, pile = stage.latents(hiding, SHRINK)
            for reading in TRIED:
                scores.setdefault((way, reading), []).append(stage.score(hiding, told, pile, reading, 0))
    for (way, reading), theirs in scores.items():
        plain = Trial(None, tuple(scores["middle square", reading]))
        more, error = gain(Trial(None, tuple(theirs)), plain)
        row = {"framing": way, "reading": reading, "accuracy": np.mean(theirs), "gain": more, "standard error": error}
        rows.append({name: value if isinstance(value, str) else round(float(value), 4) for name, value in row.items()})
        print(rows[-1], flush=True)
    about = {
        "images": f"{len(listing)} stamps of {len(kinds)} kinds",
        "not square": round(share, 3),
        "hidings": HIDINGS,
    }
    setting = about | {"backbone": LITE, "command": "python scripts/choose_framing.py", "versions": versions()}
    files.write(
        ROOT / "results/choice-framing.json",
        json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n",
    )


if __name__ == "__main__":
    main()
