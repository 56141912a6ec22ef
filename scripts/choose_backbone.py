"""Choose what a rehearsal prefers: which backbone, and how clusters are read off its features.

    apt install tuxpaint-stamps-default fonts-noto-color-emoji unicode-data
    python scripts/choose_backbone.py CIFAR [--sets NAME …]

Collections that no result is reported on: stamps with other classes known, stamps of other kinds, emoji by Unicode's
subgroups, drawings of 20 known kinds as files of 40 and of 96 pixels, CIFAR-100's classes 0–19 as files of 32 and 20–39
as files of 64 pixels. Half of the classes are known, by every other image of theirs, four times each. Every way is run
on the pile that is left (accuracy of all its images by one assignment, along main directions as a rehearsal has them),
and rehearsed on the labelled images alone. Writes results/choice-backbone.json, where rows that are there stay, and
prints what each way finds and what a rehearsal would find that prefers it.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from choose_framing import OTHER, listed
from PIL import Image, ImageDraw, ImageFont

from newfound import files
from newfound.data.datasets import load_doodles
from newfound.discovery.audition import SEEN
from newfound.discovery.facts import versions
from newfound.discovery.hidings import RehearsalSet
from newfound.discovery.rehearsal import SHRINKS, TRIED
from newfound.encoders.features import FeatureEncoder
from newfound.functional.rehearsal import Hiding, Trial, Way, choose, hide
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))

from counting import STAMP, STAMPS, Kinds, folders, photographs, written  # noqa: E402

SPLITS, HIDINGS, EACH, SHARE = 4, 10, 20, Path("/usr/share")
"""How often classes are made known and then hidden, images of a class, and where Debian's files lie."""

EMOJI, FEWEST, MOST = (136, 128), 12, 25
"""Pixels of an emoji; how many of a subgroup are enough, and taken at most."""

SUBGROUPS = (
    *("animal-mammal", "animal-bird", "animal-marine", "animal-bug", "animal-reptile", "plant-flower", "plant-other"),
    *("food-fruit", "food-vegetable", "food-prepared", "food-sweet", "drink", "place-building", "transport-ground"),
    *("transport-air", "transport-water", "time", "sky & weather", "sport", "music", "musical-instrument", "clothing"),
    *("office", "tool", "zodiac", "arrow", "geometric", "face-smiling", "book-paper", "household", "computer"),
)


def emoji(place: Path) -> Kinds:
    """Emoji of a single character, by subgroup."""
    font = ImageFont.truetype(str(SHARE / "fonts/truetype/noto/NotoColorEmoji.ttf"), 109)
    kinds, group = Kinds(), ""
    for line in (SHARE / "unicode/emoji/emoji-test.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# subgroup:"):
            group = line.partition(":")[2].strip()
        codes = [code for code in line.partition(";")[0].split() if code != "FE0F"]
        if "; fully-qualified" not in line or group not in SUBGROUPS or len(codes) > 1:
            continue
        if len(kinds.setdefault(group, [])) < MOST:
            path = place / group / f"{codes[0]}.png"
            path.parent.mkdir(exist_ok=True)
            image = Image.new("RGB", EMOJI, "white")
            ImageDraw.Draw(image).text((0, 0), chr(int(codes[0], 16)), font=font, embedded_color=True)
            image.save(path)
            kinds[group].append(path)
    return {kind: paths for kind, paths in kinds.items() if len(paths) >= FEWEST}


def enlarged(pixels: np.ndarray, side: int) -> np.ndarray:
    """Images of so many pixels."""
    how = Image.Resampling.BICUBIC
    return np.stack([np.asarray(Image.fromarray(image).resize((side, side), how)) for image in pixels])


def drawings(side: int, first: int, place: Path) -> Kinds:
    """Drawings of 20 known kinds, from the so-manieth of each on."""
    images = load_doodles("known")
    rows, labels = images.listing.labels >= 80, images.listing.labels.numpy()
    kinds = written("drawings", enlarged(images.pixels[rows, 0].numpy(), side), labels[rows], place)
    return {kind: paths[first : first + EACH] for kind, paths in kinds.items()}


def hundred(root: Path, first: int, side: int, place: Path) -> Kinds:
    """Twenty classes of CIFAR-100."""
    pixels, labels = photographs(root, "cifar100", first)
    rows = np.concatenate([np.flatnonzero(labels == label)[:EACH] for label in range(first, first + 20)])
    seen = pixels[rows] if side == pixels.shape[1] else enlarged(pixels[rows], side)
    return written("cifar100", seen, labels[rows], place)


SETS = {
    "stamps": lambda root, place: folders(STAMPS, STAMP),
    "other stamps": lambda root, place: folders(STAMPS, OTHER),
    "emoji": lambda root, place: emoji(place),
    "drawings, 40 pixels": lambda root, place: drawings(40, 0, place),
    "CIFAR-100, classes 0-19, 32 pixels": lambda root, place: hundred(root, 0, 32, place),
    "CIFAR-100, classes 20-39, 64 pixels": lambda root, place: hundred(root, 20, 64, place),
    "drawings, 96 pixels": lambda root, place: drawings(96, EACH, place),
}


def split(labels: torch.Tensor, number: int) -> Hiding:
    """Half of the classes known, by every other image of theirs; all else is the pile."""
    classes = int(labels.max()) + 1
    place = torch.randperm(classes, generator=generator("choose backbone", number)).argsort()[labels]
    rank = torch.stack([(labels[:row] == label).sum() for row, label in enumerate(labels)])
    told = (place < classes // 2) & (rank % 2 == 0)
    there, rest = told.nonzero()[:, 0], (~told).nonzero()[:, 0]
    return Hiding(there, place[there], rest, place[rest], classes // 2, classes - classes // 2)


def run(stage: RehearsalSet, hiding: Hiding, seed: int) -> dict[str, float]:
    """What each way of a backbone finds."""
    found = {}
    for shrink in SHRINKS:
        told, pile = stage.latents(hiding, shrink)
        for reading in TRIED:
            found[f"{reading} {shrink:g}"] = round(stage.score(hiding, told, pile, reading, seed), 4)
    return found


def measure(stages: dict[str, RehearsalSet], number: int) -> dict[str, object]:
    """One split: what every way finds in earnest and in each of some rehearsals."""
    whole = split(next(iter(stages.values())).labels, number)
    turns = filter(None, (hide(whole.labels, number, "rehearsal", "eyes", turn) for turn in range(HIDINGS)))
    hidings = [one._replace(labelled=whole.labelled[one.labelled], pile=whole.labelled[one.pile]) for one in turns]
    found, eyes = {}, {}
    for name, stage in stages.items():
        found[name] = run(stage, whole, number)
        each = [run(stage, hiding, number) for hiding in hidings]
        eyes[name] = {way: [one[way] for one in each] for way in found[name]}
    return {"split": number, "known": whole.known, "hidden": whole.hidden, "found": found, "eyes": eyes}


def taken(row: dict, first: tuple[str, str]) -> float:
    """What is found by the way that a rehearsal takes which prefers this one: the backbone first, then its ways."""

    def pick(names: list[str], ways: list[str], default: tuple[str, str]) -> tuple[str, str]:
        trials = {
            Way(name, float(way.split()[1]), "kmeans", way.split()[0]): (name, way) for name in names for way in ways
        }
        scores = [Trial(way, tuple(row["eyes"][name][which])) for way, (name, which) in trials.items()]
        return trials[choose(scores, next(way for way, there in trials.items() if there == default))]

    plain = [way for way in row["eyes"][first[0]] if way.endswith(f" {SHRINKS[0]:g}")]
    name, _ = pick([*row["found"]], plain, first)
    name, way = pick([name], [*row["eyes"][name]], (name, first[1]))
    return row["found"][name][way]


def main() -> None:
    """Measure what is missing, write each row, print what it says."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    words.add_argument("--output", type=Path, default=ROOT / "results/choice-backbone.json")
    asked = words.parse_args()
    rows = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if asked.output.is_file() else []
    setting = {"hidings": HIDINGS, "command": "python scripts/choose_backbone.py CIFAR", "versions": versions()}
    for name in asked.sets:
        there = {row["split"] for row in rows if row["set"] == name}
        missing = [number for number in range(SPLITS) if number not in there]
        if not missing:
            continue
        encoders = [FeatureEncoder(load_pretrained(backbone), "cpu") for backbone in sorted(SEEN, key=len)]
        with tempfile.TemporaryDirectory() as place:
            listing = listed(SETS[name](asked.cifar, Path(place)), Path(place))
            stages = {one.name: RehearsalSet.of(one.encode(listing), one) for one in encoders}
        for number in missing:
            rows.append({"set": name} | measure(stages, number))
            rows.sort(key=lambda row: ([*SETS].index(row["set"]), row["split"]))
            lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
            head = json.dumps({"setting": setting}, indent=1, ensure_ascii=False).removesuffix("\n}")
            files.write(asked.output, f'{head},\n "rows": [\n{lines}\n ]\n}}\n')
    for first in [(name, way) for name in rows[0]["found"] for way in rows[0]["found"][name]]:
        alone = statistics.fmean(row["found"][first[0]][first[1]] for row in rows)
        print(f"{100 * alone:5.1f}  {first[0]}, {first[1]}", end="")
        chosen = first[1].endswith(f" {SHRINKS[0]:g}")
        print(f"; preferred: {100 * statistics.fmean(taken(row, first) for row in rows):.1f}" if chosen else "")


if __name__ == "__main__":
    main()
