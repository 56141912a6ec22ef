"""Choose how a picture that is not square is seen: its middle square, or whole, on white.

    apt install tuxpaint-stamps-default
    python scripts/choose_framing.py CIFAR [--backbone NAME] [--sets NAME …]

Stamps of the 16 kinds of `docs/counting.py`, stamps of twelve other kinds, and photographs: CIFAR-100's classes 0–19,
20 images each, of which the middle 20 of 32 rows or columns are left, since none that are not square are at hand. Half
of the kinds are hidden at a time, as in a rehearsal; either way is scored on the same hidings. Writes
results/choice-framing.json, where rows of other sets and backbones stay.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from newfound import files
from newfound.data.listing import Listing, list_images
from newfound.discovery.audition import share_oblong
from newfound.discovery.facts import versions
from newfound.discovery.hidings import RehearsalSet
from newfound.discovery.rehearsal import TRIED
from newfound.encoders.features import FeatureEncoder
from newfound.functional.axes import SHRINK
from newfound.functional.rehearsal import Trial, gain
from newfound.networks.pretrained import LITE, load_pretrained

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))

from counting import STAMP, STAMPS, Kinds, folders, photographs, written  # noqa: E402

HIDINGS, EACH, LEFT = 20, 20, 20
"""How often kinds are hidden; photographs of a class, and rows or columns that are left of each."""

OTHER = (
    *("clothes", "vehicles", "space/planets", "household/dishes", "town/monuments", "town/cartoon", "hobbies/music"),
    *("seasonal/hanukkah", "seasonal/easter", "animals/fish", "sports", "plants/trees"),
)
"""Kinds of stamps that no result is reported on."""


def cut(root: Path, place: Path) -> Kinds:
    """Photographs that are not square: of every other one the upper and lower ends are gone, else left and right."""
    pixels, labels = photographs(root, "cifar100", 0)
    rows = np.concatenate([np.flatnonzero(labels == label)[:EACH] for label in range(EACH)])
    first = (pixels.shape[1] - LEFT) // 2
    flat, tall = pixels[rows][:, first : first + LEFT], pixels[rows][:, :, first : first + LEFT]
    sides = (("flat", flat, 0), ("tall", tall, 1))
    kinds = [written(name, some[part::2], labels[rows][part::2], place) for name, some, part in sides]
    return {kind: kinds[0][kind] + kinds[1][kind] for kind in kinds[0]}


SETS = {
    "stamps": lambda root, place: folders(STAMPS, STAMP),
    "other stamps": lambda root, place: folders(STAMPS, OTHER),
    "photographs, cut": cut,
}


def listed(kinds: Kinds, place: Path) -> Listing:
    """All images of a set."""
    rows = [(str(path), kind) for kind, paths in kinds.items() for path in paths]
    pd.DataFrame(rows, columns=["path", "label"]).to_csv(place / "all.csv", index=False)
    return list_images(place / "all.csv", labelled=True)


def compare(name: str, listing: Listing, backbone: str) -> list[dict[str, object]]:
    """Either framing on the same hidings, a row for each way to read."""
    scores: dict[tuple[str, bool], list[float]] = {}
    for whole in (False, True):
        encoder = FeatureEncoder(load_pretrained(backbone, whole=whole), "cpu")
        stage = RehearsalSet.of(encoder.encode(listing), encoder)
        for hiding in stage.hidings("framing", HIDINGS, 0):
            told, pile = stage.latents(hiding, SHRINK)
            for reading in TRIED:
                scores.setdefault((reading, whole), []).append(stage.score(hiding, told, pile, reading, 0))
    rows = []
    for reading in TRIED:
        middle, whole = (Trial(None, tuple(scores[reading, whole])) for whole in (False, True))
        more, error = gain(whole, middle)
        values = {"middle": middle.mean, "whole": whole.mean, "gain": more, "standard error": error}
        about = {"set": name, "backbone": backbone, "reading": reading, "images": len(listing)}
        about |= {"not square": round(share_oblong(listing), 3)}
        rows.append(about | {part: round(value, 4) for part, value in values.items()})
    return rows


def main() -> None:
    """Frame, hide, score, write."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    words.add_argument("--backbone", default=LITE)
    words.add_argument("--output", type=Path, default=ROOT / "results/choice-framing.json")
    asked = words.parse_args()
    rows = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if asked.output.is_file() else []
    command = "python scripts/choose_framing.py CIFAR"
    setting = {"hidings": HIDINGS, "command": command, "versions": versions()}
    for name in asked.sets:
        with tempfile.TemporaryDirectory() as place:
            new = compare(name, listed(SETS[name](asked.cifar, Path(place)), Path(place)), asked.backbone)
        print(*new, sep="\n", flush=True)
        rows = [row for row in rows if (row["set"], row["backbone"]) != (name, asked.backbone)] + new
        rows.sort(key=lambda row: ([*SETS].index(row["set"]), row["backbone"]))
        files.write(asked.output, json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
