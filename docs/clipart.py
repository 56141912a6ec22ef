"""From two lists of pictures to classes, and how good they are: Debian's clip art, 16 kinds, half of them known.

    apt install openclipart-png
    python docs/clipart.py

Of each kind at most 50 pictures are taken. Eight kinds are known, by half of their pictures; the others of these and
the eight unknown kinds are unlabelled, nine tenths of which are searched and the rest predicted. Three fixed choices of
the known kinds, five seeds each. Accuracy is that of the unlabelled pictures by one assignment (GCD), and, in the last
column, of the labelled ones too, which are held in their classes. Prints the table and writes results/clipart.json.
Nothing was chosen on these pictures. The backbone was taught on ImageNet, which has some of these kinds.
"""

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F

from newfound import discover, files, pretrain
from newfound.benchmark.piles import ART, KINDS
from newfound.benchmark.summary import interval, spread
from newfound.data.listing import list_images
from newfound.discovery.facts import versions
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.tables import number_truth
from newfound.encoders.extraction import extract_features
from newfound.functional.cluster import kmeans, semi_supervised_kmeans
from newfound.functional.metrics import accuracy, gcd_accuracy
from newfound.networks.pretrained import load_pretrained
from newfound.types import generator

KNOWN = len(KINDS) // 2
STAGE = StageOne(backbone="efficientnet-lite0")
ROWS = {
    "k-means": "k-means on the backbone's features",
    "semi-supervised k-means": "semi-supervised k-means on them (GCD)",
    "no training": "newfound --method kmeans",
    "one stage": "newfound, with the labelled pictures",
    "two stages": "newfound, from the model folder",
    "estimated": "newfound, classes not given",
}


COLUMNS = {
    "all": "all unlabelled",
    "known": "known",
    "novel": "novel",
    "named": "all, known ones by name",
    "with labelled": "with the labelled ones",
}


class Task(NamedTuple):
    """Lists of pictures: labelled ones, unlabelled ones, and what is predicted afterwards."""

    known: Path
    unlabelled: Path
    later: Path


def tasks(folder: Path, splits: int, most: int) -> Iterator[tuple[int, Task]]:
    """The lists of each split, as CSV files. Of equal pictures, some in two kinds, the first is taken."""
    seen: dict[bytes, Path] = {}
    for path in (path for kind in KINDS for path in sorted((ART / kind).rglob("*.png"))):
        seen.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
    for split in range(splits):
        random = generator("clip art", split)
        order = torch.randperm(len(KINDS), generator=random).tolist()
        rows: dict[str, list[tuple[str, str]]] = {"known": [], "unlabelled": [], "later": []}
        for place, kind in enumerate(order):
            paths = [path for path in seen.values() if path.is_relative_to(ART / KINDS[kind])]
            for number, row in enumerate(torch.randperm(len(paths), generator=random)[:most].tolist()):
                part = "known" if place < KNOWN and number % 2 == 0 else "later" if number % 10 > 8 else "unlabelled"
                rows[part].append((str(paths[row]), KINDS[kind]))
        task = Task(*(folder / f"{split}-{name}.csv" for name in rows))
        for path, listed in zip(task, rows.values(), strict=True):
            pd.DataFrame(listed, columns=["path", "label"]).to_csv(path, index=False)
        yield split, task


def controls(task: Task) -> dict[str, dict[str, float]]:
    """k-means and GCD's semi-supervised k-means on unit features of the plain backbone, number of classes given."""
    eye = load_pretrained()
    labelled, unlabelled, answers = (
        extract_features(list_images(path, labelled=told), eye)
        for path, told in ((task.known, True), (task.unlabelled, False), (task.unlabelled, True))
    )
    names = [*labelled.listing.classes, *sorted({*answers.listing.classes} - {*labelled.listing.classes})]
    truth = torch.tensor([names.index(answers.listing.classes[label]) for label in answers.listing.labels.tolist()])
    x = F.normalize(torch.cat([labelled.features(), unlabelled.features()]), dim=1)
    labels = torch.cat([labelled.listing.labels, unlabelled.listing.labels])
    plain = kmeans(x, len(KINDS), generator("control")).assignment
    held = semi_supervised_kmeans(x, labels, len(KINDS), generator("control")).assignment
    alone = kmeans(x[len(labelled) :], len(KINDS), generator("control")).assignment
    return {
        name: gcd_accuracy(truth, guess, KNOWN)._asdict()
        | {"with labelled": accuracy(torch.cat([labelled.listing.labels, truth]), all_)}
        for name, guess, all_ in (
            ("k-means", alone, plain),
            ("semi-supervised k-means", held[len(labelled) :], held),
        )
    }


def runs(task: Task, model: Path, seed: int, epochs: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each way of using newfound, with what it found and what it then says of pictures it has not seen."""
    ways = {
        "no training": {"known": task.known, "classes": KNOWN, "method": "kmeans"},
        "one stage": {"known": task.known, "classes": KNOWN},
        "two stages": {"model": model, "classes": KNOWN},
        "estimated": {"known": task.known},
    }
    labels = list_images(task.known, labelled=True).labels  # held in their classes, which are numbered as in the truth
    for name, way in ways.items():
        run = Run(seed=seed, epochs=epochs, method=way.pop("method", Run().method))
        stage = None if "model" in way else StageOne(backbone="efficientnet-lite0")
        discovery = discover(unlabelled=task.unlabelled, run=run, stage=stage, truth=True, **way)
        found, scores = discovery.found, discovery.scores
        assert scores is not None
        assert found.truth is not None
        said = discovery.predict(task.later)
        true = pd.read_csv(task.later)["label"]
        known = true.isin(found.model.classes)
        numbers = number_truth(discovery.classes, found.truth)
        row = {
            "all": scores["accuracy"],
            "known": scores["known accuracy"],
            "novel": scores["novel accuracy"],
            "named": scores["named accuracy"],
            "with labelled": accuracy(*(torch.cat([labels, some]) for some in numbers)),
            "sure": scores["sure accuracy"],
            "unsure": scores["unsure"],
            "classes": len(found.clusters.centres),
            "later known": float((said["guess"][known] == true[known]).mean()),
        }
        if found.count is not None:
            row |= {"least": found.count.least, "most": found.count.most}
        yield name, {key: float(value) for key, value in row.items()}


def main() -> None:
    """Make every row, write the results, print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("--splits", 3), ("--seeds", 5), ("--most", 50), ("--epochs", Run().epochs)):
        words.add_argument(name, type=int, default=value)
    words.add_argument("--output", type=Path, default=Path("results/clipart.json"))
    asked = words.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for split, task in tasks(Path(place), asked.splits, asked.most):
            rows += [{"split": split, "row": name} | scores for name, scores in controls(task).items()]
            for seed in range(asked.seeds):
                model = Path(place) / f"model-{split}-{seed}"
                pretrain(task.known, output=model, stage=STAGE, seed=seed)
                for name, scores in runs(task, model, seed, asked.epochs):
                    rows.append({"split": split, "seed": seed, "row": name} | scores)
                    print(rows[-1], flush=True)
    setting = {
        "dataset": f"Debian's openclipart-png, 16 kinds, at most {asked.most} pictures each",
        "split": f"{KNOWN} known kinds by half of their pictures, {len(KINDS) - KNOWN} novel; {asked.splits} choices",
        "images": "nine tenths of the other pictures, known and novel kinds mixed; one assignment (GCD)",
        "backbone": "efficientnet-lite0, pretrained on ImageNet, 160 pixels",
        "epochs": asked.epochs,
        "seeds": asked.seeds,
        "command": "python docs/clipart.py",
        "versions": versions(),
    }
    files.write(asked.output, json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    print(table(pd.DataFrame(rows)))


def table(rows: pd.DataFrame) -> str:
    """What the results say, in Markdown; spreads are over splits and seeds."""
    lines = [f"| accuracy | {' | '.join(COLUMNS.values())} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for name, title in ROWS.items():
        own = rows[rows["row"] == name]
        cells = ("" if own[kind].isna().all() else spread(100 * own[kind], 1) for kind in COLUMNS)
        lines.append(f"| {title} | {' | '.join(cells)} |")
    sides = (rows[rows["row"] == name].set_index(["split", "seed"])["all"] for name in ("two stages", "one stage"))
    two, one = sides
    counted = rows[rows["row"] == "estimated"]
    right = ((counted["least"] <= len(KINDS)) & (counted["most"] >= len(KINDS))).sum()
    lines += [
        "",
        f"Two stages minus one: {interval(100 * (two - one), 1)} points.",
        f"Estimated classes in all (truth {len(KINDS)}): {', '.join(f'{n:.0f}' for n in counted['classes'])}; "
        f"{right} of {len(counted)} intervals hold the truth.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
