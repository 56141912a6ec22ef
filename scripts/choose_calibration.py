"""Choose the lines that confidence goes by: those of k-means, or of clusters that are read as the run reads them.

    apt install tuxpaint-stamps-default
    python scripts/choose_calibration.py CIFAR [--sets NAME …]

Collections that no result is reported on: stamps with other classes known, CIFAR-100's classes 0–9, 10–19 and 20–39 as
they are, drawings of the kinds 0–19 as files of 64 pixels. Half of the classes are known, by half of their
images; one image in six takes no part and is told afterwards. What is left is read by k-means and along discriminants,
as the true number of classes and as 0.8 and 1.25 times as many, which is about as far off as estimates are. The lines
are fitted on the labelled images alone. Prints, for every choice of lines, the expected calibration error of confidence
among all three readings of a set, as where classes are counted, the mean of all sets; splits of a set together. What
lies too far out for any class is left aside. Writes results/choice-calibration.json, where rows that are there stay.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from choose_framing import listed
from torch import Tensor

from newfound import files
from newfound.data.listing import Listing
from newfound.discovery.facts import versions
from newfound.discovery.hidings import RehearsalSet
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.known import KnownPoints
from newfound.encoders.pretend import MISCOUNTED, Scores, fit_calibration, see
from newfound.encoders.reading import DISCRIMINANT, KMEANS, read_by
from newfound.functional import calibration
from newfound.functional.axes import SHRINK, power_normalised
from newfound.functional.calibration import Calibration, carry_on, log_margin, novelty_score, probability
from newfound.functional.cluster import Clustering
from newfound.functional.geometry import distances
from newfound.functional.metrics import calibration_gaps, matching, right
from newfound.functional.rehearsal import Hiding
from newfound.networks.pretrained import LITE, load_pretrained
from newfound.types import generator

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))

from counting import LATER, STAMP, STAMPS, Kinds, doodles, folders, photographs, written  # noqa: E402

FALLS, FEW = (0.25, 0.5, 0.75, 1.0), (0, 2, 8)
"""What is tried of `carry_on`."""


def hundred(root: Path, first: int, last: int, place: Path) -> Kinds:
    """Some classes of CIFAR-100."""
    pixels, labels = photographs(root, "cifar100", first)
    return written("cifar100", pixels[labels < last], labels[labels < last], place)


SETS = {
    "stamps": (4, lambda root, place: folders(STAMPS, STAMP)),
    "drawings, kinds 0–19": (3, lambda root, place: written("drawings", *doodles(0, 20), place)),
    "CIFAR-100, classes 0–9": (2, lambda root, place: hundred(root, 0, 10, place)),
    "CIFAR-100, classes 10–19": (2, lambda root, place: hundred(root, 10, 20, place)),
    "CIFAR-100, classes 20–39": (2, lambda root, place: hundred(root, 20, 40, place)),
}
"""How often the classes of each are made known, and where its images come from."""


def split(labels: Tensor, name: str, number: int) -> tuple[Hiding, Tensor]:
    """Half of the classes known, by half of their images; all else is the pile, but for what comes later."""
    random, classes = generator("choose calibration", name, number), int(labels.max()) + 1
    y = torch.randperm(classes, generator=random)[labels]
    later = torch.arange(len(y)) % LATER == number
    told = ~later & (y < classes // 2) & (torch.rand(len(y), generator=random) < 0.5)
    there, rest, last = (some.nonzero()[:, 0] for some in (told, ~told & ~later, later))
    return Hiding(there, y[there], rest, y[rest], classes // 2, classes - classes // 2), last


def see_later(z: Tensor, truth: Tensor, hiding: Hiding, found: Clustering) -> Scores:
    """The same as `see` of images that no centre knows."""
    k, away = len(found.centres), distances(z, found.centres)
    own, alone, new = away.argmin(1), torch.eye(k, dtype=torch.bool), torch.arange(k) >= hiding.known
    hits = right(truth, own, matching(hiding.truth, found.assignment))
    return Scores(log_margin(away, own, alone), hits, novelty_score(away, new), truth >= hiding.known)


def measure(stage: RehearsalSet, name: str, number: int) -> Iterator[dict[str, object]]:
    """One split: how far every choice of lines is off, in every reading of it."""
    hiding, later = split(stage.labels, name, number)
    labelled = power_normalised(stage.images.pick(hiding.labelled).features())
    lines = fit_calibration(labelled, hiding.labels, number)
    told, pile = stage.latents(hiding, SHRINK)
    along = stage.place(hiding, SHRINK)
    last = F.normalize((stage.x[later] - along.centre) @ along.matrix, dim=1).float()
    order = torch.full((hiding.known + hiding.hidden,), -1)
    rows = torch.cat([hiding.labelled, hiding.pile])
    order[stage.labels[rows]] = torch.cat([hiding.labels, hiding.truth])
    counts = torch.bincount(hiding.labels, minlength=hiding.known)
    for reading, share in itertools.product((KMEANS, DISCRIMINANT), (MISCOUNTED[0], 1.0, MISCOUNTED[1])):
        classes = round(share * (hiding.known + hiding.hidden))
        known = KnownPoints(told, hiding.labels, counts)
        found = read_by(reading, pile, classes - hiding.known, known, number)
        parts = {
            "pile": see(pile, hiding.truth, found, counts),
            "later": see_later(last, order[stage.labels[later]], hiding, found),
        }
        for part, scores in parts.items():
            yield {
                "set": name,
                "split": number,
                "reading": reading,
                "share": share,
                "part": part,
                "images": len(scores.right),
                "right": int(scores.right.sum()),
                "gaps": dict(judge(scores, lines, reading, hiding.known, classes)),
            }


def judge(
    scores: Scores, lines: Calibration | None, reading: str, known: int, classes: int
) -> Iterator[tuple[str, list[float]]]:
    """The gaps of every choice of lines: of which reading, what they fall by, how many classes others weigh as."""
    others = FeatureEncoder.calibration
    for whose, falls, few in itertools.product((KMEANS, "its own"), FALLS, FEW):
        with mock.patch.multiple(calibration, FALLS=falls, FEW=few):
            own = others
            if lines is not None:
                which = reading if whose == "its own" else KMEANS
                own = carry_on(lines.resolve(estimated=True, reading=which), others, known, classes)
        found = calibration_gaps(probability(scores.log_margin, own.right), scores.right)
        yield f"{whose}, {falls:g}, {few}", [round(gap, 2) for gap in found.tolist()]


def table(rows: pd.DataFrame) -> str:
    """What every choice errs by: the mean over sets of the sum of a set's gaps, over its images."""
    lines = [
        "| lines of | fall by | others weigh | k-means: pile | later | discriminants: pile | later |",
        "|" + "---|" * 7,
    ]
    for choice in rows["gaps"].iloc[0]:
        cells = []
        for reading, part in itertools.product((KMEANS, DISCRIMINANT), ("pile", "later")):
            some = rows[(rows["reading"] == reading) & (rows["part"] == part)]
            errors = [
                np.abs(np.array([gaps[choice] for gaps in own["gaps"]]).sum(0)).sum() / own["images"].sum()
                for _, own in some.groupby("set", sort=False)
            ]
            cells.append(f"{np.mean(errors):.3f}")
        lines.append(f"| {' | '.join([*choice.rsplit(', ', 2), *cells])} |")
    return "\n".join(lines)


def look(images: Listing) -> RehearsalSet:
    """What a network says of them."""
    encoder = FeatureEncoder(load_pretrained(LITE), "cpu")
    return RehearsalSet.of(encoder.encode(images), encoder)


def main() -> None:
    """Measure what is missing, write each row, print what it says."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    words.add_argument("--output", type=Path, default=ROOT / "results/choice-calibration.json")
    asked = words.parse_args()
    rows = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if asked.output.is_file() else []
    setting = {"command": "python scripts/choose_calibration.py CIFAR", "versions": versions()}
    for name in asked.sets:
        splits, load = SETS[name]
        missing = [number for number in range(splits) if (name, number) not in {(r["set"], r["split"]) for r in rows}]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as place:
            stage = look(listed(load(asked.cifar, Path(place)), Path(place)))
        for number in missing:
            rows += measure(stage, name, number)
            lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
            files.write(asked.output, f'{{"setting": {json.dumps(setting)},\n "rows": [\n{lines}\n ]\n}}\n')
            print(f"{name}, split {number}", flush=True)
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
