"""What a rehearsal's choice is worth beside every way it could have taken, on six sets.

    apt install openclipart-png tuxpaint-stamps-default dataset-fashion-mnist
    python docs/candidates.py CIFAR                             what is not in the results yet
    python docs/candidates.py CIFAR --choices 20                more choices of the known classes
    python docs/candidates.py CIFAR --again                     the rehearsals alone: what a way found stays

The sets of docs/counting.py that are small. Half of the classes are known, by half of their images; the others of
these and the other classes are unlabelled, their number given. With the first choices of the known classes every way
is run; with the others the plainest, which is k-means on the latents that training would start from, and the one that
was taken. On the clip art and Fashion-MNIST, by which nothing is ever chosen, every backbone looks, and the rehearsal
chooses that too; on the others EfficientNet-lite0 does. All see middle squares (`--framing middle`). Accuracy is that
of all unlabelled images by one assignment (GCD). Images are looked at once a set, and nothing is drawn or written of a
run, else all is done as `discover` does it. Writes results/candidates.json a row at a time and prints the table.
"""

import argparse
import copy
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from counting import SETS
from torch import Tensor

from newfound import discover, files, methods
from newfound.benchmark.summary import spread
from newfound.data.features import FeatureImages
from newfound.data.listing import Listing, list_images
from newfound.discovery.audition import SEEN, audition_backbones
from newfound.discovery.facts import versions
from newfound.discovery.find import place_images, plan_training, read_clusters, state_problem
from newfound.discovery.rehearsal import choose_way, plain_way, rehearse
from newfound.discovery.settings import MIDDLE, NO, Run, StageOne
from newfound.encoders import choose_encoder
from newfound.encoders.extraction import extract_features
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.known import known_points
from newfound.functional.cluster import kmeans
from newfound.functional.metrics import accuracy, gcd_accuracy
from newfound.functional.rehearsal import Way
from newfound.networks.pretrained import LITE, load_pretrained
from newfound.networks.resnet import OWN
from newfound.training.loop import Learner
from newfound.training.train import train
from newfound.types import generator, seeded

FRESH = ("clip art", "Fashion-MNIST")
NAMES = (*FRESH, "stamps", "CIFAR-10", "digits", "drawings as files")
ALL = 3
"""Choices of the known classes with which every way is run."""


class Side(NamedTuple):
    """Images with labels, and images without, whose truth counts the known classes first."""

    labelled: FeatureImages
    unlabelled: FeatureImages
    truth: Tensor

    @property
    def new(self) -> int:
        """How many new classes there are."""
        return int(self.truth.max()) + 1 - len(self.labelled.listing.classes)


def deal(images: FeatureImages, choice: int) -> Side:
    """Make half of the classes known, by every other image of theirs."""
    labels, classes = images.listing.labels, images.listing.classes
    order = torch.randperm(len(classes), generator=generator("candidates", choice))
    place, known = order.argsort()[labels], len(classes) // 2
    rank = torch.stack([(labels[:row] == label).sum() for row, label in enumerate(labels)])
    told = (place < known) & (rank % 2 == 0)
    there, rest = told.nonzero()[:, 0], (~told).nonzero()[:, 0]
    names = tuple(classes[label] for label in order[:known].tolist())
    return Side(
        relabel(images.pick(there), place[there], names),
        relabel(images.pick(rest), torch.full_like(rest, -1), ()),
        place[rest],
    )


def relabel(images: FeatureImages, labels: Tensor, classes: tuple[str, ...]) -> FeatureImages:
    """The same images with other labels."""
    return replace(images, listing=replace(images.listing, labels=labels, classes=classes))


def run_all(side: Side, encoder: FeatureEncoder, ways: list[Way], seed: int) -> Iterator[tuple[Way, float]]:
    """What each way finds: as `find` does it, without all that it draws; ways that differ in reading train once."""
    model = encoder.fit_known(side.labelled, StageOne(), seed)
    for shrink, method in dict.fromkeys((way.shrink, way.method) for way in ways):
        aimed = copy.deepcopy(encoder.whitened(shrink).aim(model, side.unlabelled, side.labelled, seed))
        data, recipe = side.unlabelled.discovery_set(side.labelled), methods.parse(method)
        problem = state_problem(aimed, side.new, True, len(data), mixed=True)
        with seeded(seed, "method"):
            built = recipe.build(problem, aimed)
        budget = plan_training(Run(method=method), side.unlabelled)
        trained = train(Learner(aimed.backbone, built, budget.trains), data, budget, seed, device="cpu")
        placed, latents, theirs = place_images(aimed, encoder, trained, side.labelled)
        for way in (way for way in ways if (way.shrink, way.method) == (shrink, method)):
            unit = Run(read_by=way.reading).unit(recipe.reading)
            known = known_points(encoder, placed, theirs, unit=unit, seed=seed)
            found = read_clusters(latents, side.new, known, unit, seed, way.reading)
            yield way, gcd_accuracy(side.truth, found.assignment, len(model.classes)).all


def measure(side: Side, encoder: FeatureEncoder, choice: int, there: dict[str, float]) -> dict[str, object]:
    """What each way of a backbone finds, those that are there as they are, and which one the rehearsal takes."""
    rehearsal = rehearse(side.labelled, encoder, choice)
    taken, plain = choose_way(rehearsal, encoder, Run()), plain_way(encoder.name)
    tried = [trial.way for trial in rehearsal.trials] if choice < ALL else []
    ways = [way for way in dict.fromkeys([plain, taken, *tried]) if way.describe() not in there]
    found = run_all(side, encoder, ways, choice) if ways else ()
    return {
        "backbone": encoder.name,
        "taken": taken.describe(),
        "plain": plain.describe(),
        "found": there | {way.describe(): round(right, 4) for way, right in found},
    }


def start(side: Side, choice: int) -> float:
    """Accuracy of k-means on unit features of the unlabelled images."""
    x = F.normalize(side.unlabelled.features(), dim=1)
    return round(accuracy(side.truth, kmeans(x, int(side.truth.max()) + 1, generator("plain", choice)).assignment), 4)


def learn(side: Side, choice: int) -> dict[str, object]:
    """What our own network finds, all as by default."""
    labelled, unlabelled, number = side.labelled.listing, side.unlabelled.listing, len(side.labelled.listing.classes)
    kinds = [*labelled.classes, *(f"new {new}" for new in range(side.new))]
    with tempfile.TemporaryDirectory() as place:
        lists = [Path(place) / "known.csv", Path(place) / "unlabelled.csv"]
        for path, listing, labels in zip(lists, (labelled, unlabelled), (labelled.labels, side.truth), strict=True):
            rows = zip(map(str, listing.files), (kinds[label] for label in labels.tolist()), strict=True)
            pd.DataFrame(rows, columns=["path", "label"]).to_csv(path, index=False)
        stage, run = StageOne(backbone=OWN, rehearse=NO), Run(seed=choice, device="cpu")
        found = discover(known=lists[0], unlabelled=lists[1], classes=side.new, stage=stage, run=run, truth=True)
    assert found.scores is not None
    assert len(found.found.known) == number
    way = f"{OWN}, as by default"
    return {"backbone": OWN, "taken": way, "plain": way, "found": {way: round(found.scores["accuracy"], 4)}}


def make(name: str, listing: Listing, choice: int, before: dict[str, Any] | None) -> dict[str, object]:
    """One choice of a set as a row; `before` it was this."""
    several = SEEN if name in FRESH and choice < ALL else (LITE,)
    encoders = {backbone: FeatureEncoder(load_pretrained(backbone), "cpu") for backbone in several}
    sides = {one: deal(extract_features(listing, encoders[one].backbone, device="cpu"), choice) for one in several}
    there = {} if before is None else {by["backbone"]: by["found"] for by in before["by"]}
    by = [measure(sides[one], encoders[one], choice, there.get(one, {})) for one in several]
    eyes = look(sides[LITE].labelled.listing, choice) if len(several) > 1 else LITE
    by += [learn(sides[LITE], choice)] if eyes == OWN else []
    return {"set": name, "choice": choice, "unit k-means": start(sides[LITE], choice), "eyes": eyes, "by": by}


def look(labelled: Listing, choice: int) -> str:
    """The backbone that a rehearsal takes."""
    stage = StageOne(framing=MIDDLE)
    unseen = choose_encoder(stage, None, [labelled], labelled=True, device="cpu")
    return audition_backbones(unseen, stage, labelled, choice, "cpu").encoder.name


def listed(root: Path, name: str, place: Path) -> Listing:
    """All images of a set."""
    rows = [(str(path), kind) for kind, paths in SETS[name](root, place).items() for path in paths]
    pd.DataFrame(rows, columns=["path", "label"]).to_csv(place / "all.csv", index=False)
    return list_images(place / "all.csv", labelled=True)


def main() -> None:
    """Measure what is missing, write each row, print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("--sets", nargs="+", choices=NAMES, default=NAMES)
    words.add_argument("--choices", type=int, default=ALL)
    words.add_argument("--again", action="store_true")
    words.add_argument("--output", type=Path, default=Path("results/candidates.json"))
    asked = words.parse_args()
    rows = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if asked.output.is_file() else []
    setting = {
        "images": "at most 50 of a class, half of the classes known by half of theirs; number of classes given",
        "command": "python docs/candidates.py CIFAR --choices 20",
        "versions": versions(),
    }
    for name in asked.sets:
        there = {row["choice"]: row for row in rows if row["set"] == name}
        missing = [choice for choice in range(asked.choices) if asked.again or choice not in there]
        with tempfile.TemporaryDirectory() as place:
            listing = listed(asked.cifar, name, Path(place)) if missing else None
            for choice in missing:
                before = there.get(choice)
                rows = [row for row in rows if row is not before] + [make(name, listing, choice, before)]
                print(rows[-1], flush=True)
                rows.sort(key=lambda row: (NAMES.index(row["set"]), row["choice"]))
                lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
                head = json.dumps({"setting": setting}, indent=1, ensure_ascii=False).removesuffix("\n}")
                files.write(asked.output, f'{head},\n "rows": [\n{lines}\n ]\n}}\n')
    print(table(pd.DataFrame(rows)))


def table(rows: pd.DataFrame) -> str:
    """What the results say, in Markdown."""
    records = rows.to_dict("records")
    parts = [table_ways(name, [row for row in records if row["set"] == name and row["choice"] < ALL]) for name in FRESH]
    return "\n\n".join([part for part in parts if part] + [table_sets(records)])


def brief(rows: pd.DataFrame) -> str:
    """The same in a few lines: of all single ways the best and the worst."""
    lines = ["| set | taken | the best single way | the worst |", "|---|---|---|---|"]
    records = rows.to_dict("records")
    for name in FRESH:
        own = [row for row in records if row["set"] == name and row["choice"] < ALL]
        means = run_everywhere(own).mean().sort_values(ascending=False)
        chosen = pd.Series([100 * taken(row) for row in own])
        ends = [f"{means.iloc[place]:.1f} ({means.index[place]})" for place in (0, -1)]
        lines.append(f"| {name}, {len(own)} choices | {spread(chosen, 1)} | {' | '.join(ends)} |")
    return "\n".join([*lines, "", table_sets(records)])


def run_everywhere(rows: list[dict]) -> pd.DataFrame:
    """Accuracy of the ways that were run on every choice, a column each."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for by in row["by"]:
            for way, right in by["found"].items():
                found.setdefault(way, []).append(100 * right)
    return pd.DataFrame({way: pd.Series(right) for way, right in found.items() if len(right) == len(rows)})


def taken(row: dict) -> float:
    """Accuracy of what the rehearsal takes, backbone and way."""
    own = next(by for by in row["by"] if by["backbone"] == row["eyes"])
    return own["found"][own["taken"]]


def table_ways(name: str, rows: list[dict]) -> str:
    """Every way on one set, the best first, beside what was taken."""
    if not rows:
        return ""
    tried = run_everywhere(rows)
    means = tried.mean().sort_values(ascending=False)
    chosen = pd.Series([100 * taken(row) for row in rows])
    lines = [f"| {name} | accuracy |", "|---|---|", f"| **what the rehearsal takes** | **{spread(chosen, 1)}** |"]
    lines += [f"| {way} | {spread(tried[way], 1)} |" for way in means.index]
    less = chosen.mean() - means.iloc[0]
    said = f"{len(rows)} choices of the known classes. What is taken is {less:+.1f} points from the best single way"
    best = pd.Series([100 * max(max(by["found"].values()) for by in row["by"]) for row in rows]).mean()
    return "\n".join(
        [*lines, "", f"{said}; the best way of each choice by itself, which nobody can know, has {best:.1f}."]
    )


def table_sets(rows: list[dict]) -> str:
    """What EfficientNet-lite0's rehearsal takes beside k-means on what training starts from, and on unit features."""
    lines = ["| set | choices | k-means on unit features | k-means on start latents | taken | at worst | trains |"]
    lines.append("|---" * 7 + "|")
    below = total = 0
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name]
        by = [next(by for by in row["by"] if by["backbone"] == LITE) for row in own]
        plain, chosen = (pd.Series([100 * one["found"][one[what]] for one in by]) for what in ("plain", "taken"))
        unit = pd.Series([100 * row["unit k-means"] for row in own])
        below, total = below + int((chosen - plain < -2).sum()), total + len(own)
        cells = [f"{values.mean():.1f}" for values in (unit, plain, chosen)]
        trains = sum("trained" in one["taken"] for one in by)
        lines.append(f"| {name} | {len(own)} | {' | '.join(cells)} | {(chosen - plain).min():+.1f} | {trains} |")
    return "\n".join(
        [
            *lines,
            "",
            "EfficientNet-lite0; *at worst*: taken minus k-means on the latents that training starts from, on one "
            f"choice. In {below} of {total} runs what is taken is more than 2 points below it.",
        ]
    )


if __name__ == "__main__":
    main()
