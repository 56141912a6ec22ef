"""Which backbone a rehearsal takes, and which would have been best: ten small collections.

    apt install tuxpaint-stamps-default
    python docs/backbones.py CIFAR                              what is not in the results yet
    python docs/backbones.py CIFAR --anew                       all of it
    python docs/backbones.py CIFAR --again                      the rehearsal alone: what each finds stays

Stamps; drawings as files of 28, 48, 64 and 128 pixels; CIFAR-10 and CIFAR-100 as files of 32 pixels. Half of the
classes are known, by half of their images; the others of these and the other classes are unlabelled, their number
given. Each backbone is made to look by itself (`--backbone`): on a pretrained one's features nothing is trained
(`--method kmeans`), our own network learns as by default. Accuracy is that of the unlabelled images by one assignment
(GCD); beside it stands that of the new classes' images. Then the rehearsal says which it would have taken: it sees
the labelled images alone. All see middle squares (`--framing middle`), for the question is which network. Writes
results/backbones.json a row at a time and prints the table. Nothing was chosen on these splits; EfficientNet was taught
on ImageNet, whose classes overlap CIFAR's.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from counting import STAMP, STAMPS, Kinds, folders, photographs, written
from PIL import Image

from newfound import discover, files
from newfound.benchmark.piles import Pile, deal
from newfound.data.datasets import load_doodles
from newfound.data.listing import list_images
from newfound.discovery.audition import audition_backbones, rival_names
from newfound.discovery.facts import versions
from newfound.discovery.settings import AUTO, MIDDLE, NO, Run, StageOne
from newfound.encoders import choose_encoder
from newfound.networks.resnet import OWN

EACH, MORE, DRAWN = 20, 40, 16
"""Images of a class, of CIFAR-10's ten, and kinds of drawings in a collection."""

STAGE = StageOne(framing=MIDDLE)
"""What every backbone sees."""

NEAR = 0.02
"""Backbones whose accuracies lie no farther apart are alike good: of some 300 images this is less than the noise."""


def drawings(side: int, first: int, place: Path) -> Kinds:
    """Some of the demonstration's known kinds as files of so many pixels."""
    images = load_doodles("known")
    labels = images.listing.labels.numpy()
    rows = np.flatnonzero((labels >= first) & (labels < first + DRAWN))
    how = Image.Resampling.BICUBIC
    large = [np.asarray(Image.fromarray(image).resize((side, side), how)) for image in images.pixels[rows, 0].numpy()]
    return some(written(f"drawings-{side}", np.stack(large), labels[rows], place))


def some(kinds: Kinds, each: int = EACH) -> Kinds:
    """The first images of each kind."""
    return {kind: paths[:each] for kind, paths in kinds.items()}


def ten(root: Path, place: Path) -> Kinds:
    """CIFAR-10."""
    return some(written("cifar10", *photographs(root, "cifar10", 0), place), MORE)


def hundred(root: Path, first: int, place: Path) -> Kinds:
    """Twenty classes of CIFAR-100."""
    pixels, labels = photographs(root, "cifar100", first)
    rows = labels < first + 20
    return some(written("cifar100", pixels[rows], labels[rows], place))


COLLECTIONS: dict[tuple[str, int], Callable[[Path, Path], Kinds]] = {
    ("stamps", 20): lambda root, place: folders(STAMPS, STAMP),
    ("stamps", 21): lambda root, place: folders(STAMPS, STAMP),
    ("drawings, 28 pixels", 20): lambda root, place: drawings(28, 0, place),
    ("drawings, 48 pixels", 21): lambda root, place: drawings(48, 16, place),
    ("drawings, 64 pixels", 22): lambda root, place: drawings(64, 32, place),
    ("drawings, 128 pixels", 23): lambda root, place: drawings(128, 48, place),
    ("CIFAR-10", 20): ten,
    ("CIFAR-10", 21): ten,
    ("CIFAR-100, classes 48–67", 20): lambda root, place: hundred(root, 48, place),
    ("CIFAR-100, classes 68–87", 21): lambda root, place: hundred(root, 68, place),
}
"""Images of each kind, by the collection's name and the seed that says which classes are known."""


def measure(pile: Pile, kinds: int, seed: int) -> dict[str, object]:
    """What every backbone finds, and which the rehearsal takes."""
    labelled = list_images(pile.known, labelled=True)
    unseen = choose_encoder(STAGE, None, [labelled], labelled=True, device="cpu")
    found: dict[str, object] = {}
    for name in rival_names(unseen, STAGE):
        run = discover(
            known=pile.known,
            unlabelled=pile.unlabelled,
            classes=kinds - len(labelled.classes),
            run=Run(method=AUTO if name == OWN else "kmeans", seed=seed, device="cpu"),
            stage=replace(STAGE, backbone=name, rehearse=NO),
            truth=True,
        )
        assert run.scores is not None
        found[name] = [round(run.scores[part], 4) for part in ("accuracy", "novel accuracy")]
    about = {"known": len(labelled.classes), "kinds": kinds, "labelled": len(labelled), "found": found}
    return about | rehearse(pile, seed)


def rehearse(pile: Pile, seed: int) -> dict[str, object]:
    """Which one the rehearsal takes."""
    labelled = list_images(pile.known, labelled=True)
    unseen = choose_encoder(STAGE, None, [labelled], labelled=True, device="cpu")
    chosen = audition_backbones(unseen, STAGE, labelled, seed, "cpu")
    assert chosen.rehearsal is not None
    rehearsed = {trial.way.describe(): round(trial.mean, 4) for trial in chosen.rehearsal.backbones}
    return {"unseen": unseen.name, "taken": chosen.encoder.name, "rehearsed": rehearsed}


def main() -> None:
    """Measure what is missing, write each row, print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--sets", nargs="+", choices=[*dict.fromkeys(name for name, _ in COLLECTIONS)])
    words.add_argument("--anew", action="store_true")
    words.add_argument("--again", action="store_true")
    words.add_argument("--output", type=Path, default=Path("results/backbones.json"))
    asked = words.parse_args()
    kept = asked.output.is_file() and not asked.anew
    rows = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if kept else []
    setting = {
        "images": f"{EACH} of a class (CIFAR-10: {MORE}, stamps: at most 50); half of the classes known by half",
        "command": "python docs/backbones.py CIFAR",
        "versions": versions(),
    }
    for (name, seed), make in COLLECTIONS.items():
        there = next((row for row in rows if (row["set"], row["seed"]) == (name, seed)), None)
        if (there and not asked.again) or name not in (asked.sets or (name,)):
            continue
        with tempfile.TemporaryDirectory() as place:
            kinds = make(asked.cifar, Path(place))
            pile = deal(kinds, lambda number: number % 2 == 0, seed, Path(place))
            row = there | rehearse(pile, seed) if there else measure(pile, len(kinds), seed)
        rows = [row for row in rows if row is not there] + [{"set": name, "seed": seed} | row]
        print(rows[-1], flush=True)
        rows.sort(key=lambda row: [*COLLECTIONS].index((row["set"], row["seed"])))
        files.write(asked.output, json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    print(table(pd.DataFrame(rows)))


def table(rows: pd.DataFrame) -> str:
    """What the results say, in Markdown."""
    names = sorted({name for found in rows["found"] for name in found}, key=lambda name: (name != OWN, len(name), name))
    lines = [f"| collection | known + new | {' | '.join(names)} | taken |", "|---" * (3 + len(names)) + "|"]
    best = near = rightly = tried = 0
    for row in rows.to_dict("records"):
        found = {name: scores[0] for name, scores in row["found"].items()}
        taken, most = row["taken"], max(found.values())
        best += found[taken] == most
        near += found[taken] >= most - NEAR
        tried += OWN in found
        rightly += OWN in found and (taken == OWN) == (max(found, key=found.__getitem__) == OWN)
        cells = [
            "" if name not in found else " / ".join(f"{100 * score:.1f}" for score in row["found"][name])
            for name in names
        ]
        lines.append(
            f"| {row['set']}, seed {row['seed']} | {row['known']} + {row['kinds'] - row['known']} "
            f"| {' | '.join(cells)} | {taken} |"
        )
    unseen = sum(row["found"][row["unseen"]][0] for row in rows.to_dict("records")) / len(rows)
    mean, most = (
        sum(pick(row) for row in rows.to_dict("records")) / len(rows)
        for pick in (
            lambda row: row["found"][row["taken"]][0],
            lambda row: max(scores[0] for scores in row["found"].values()),
        )
    )
    return "\n".join(
        [
            *lines,
            "",
            f"Accuracy of all unlabelled images / of the new classes'. The one that was taken is the best in {best} of "
            f"{len(rows)}, at most {100 * NEAR:.0f} points below the best in {near}. Our own network was tried on "
            f"{tried}, and rightly taken or left in {rightly}. What was taken finds {100 * mean:.1f} %, "
            f"the best {100 * most:.1f} %, the one that would be taken without a rehearsal {100 * unseen:.1f} %.",
        ]
    )


if __name__ == "__main__":
    main()
