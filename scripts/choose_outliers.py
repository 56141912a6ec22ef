"""Choose how images of no class are told, and measure it on other images.

    python scripts/choose_outliers.py CIFAR FOLDER

Chosen on stamps, CIFAR-100's classes 0–47 and the embedded drawings' known categories, and on how these look to one
another: there the line that one's own is drawn to is that of the other two. Reported on clip art, CIFAR-10's test
images and Fashion-MNIST, and on how these and drawings of novel categories look to one another. Of each collection a
tenth of the classes is hidden whole, half of the others is known by half of its images, and a seventh of all arrives
later. What was measured on the labelled images alone judges these, the hidden ones and the other collections. Features
and what was judged are kept in FOLDER, and the same command goes on there.
Writes results/choice-outliers.json.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from choose_axes import KINDS, STAMPS, seen
from torch import Tensor

from newfound import files
from newfound.data.datasets import load_dataset, load_doodles, load_fashion_mnist
from newfound.data.decoding import configure_pillow, decode
from newfound.discovery.facts import versions
from newfound.encoders import pretend
from newfound.encoders.features import FeatureEncoder
from newfound.functional.axes import FEW, SHRINK, axes, coordinates, moments, power_normalised
from newfound.functional.calibration import (
    FAR_OUT,
    Calibration,
    Logistic,
    carry_on,
    log_margin,
    outlier_line,
    outlier_score,
    platt,
    probability,
    reach,
    withhold_names,
)
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.geometry import covariance, distances, means
from newfound.types import generator

CLIPART = Path("/usr/share/openclipart/png")
ART = (
    *("shapes/stars", "signs_and_symbols/flags", "animals/mammals", "shapes/arrows", "food/fruit", "recreation/music"),
    *("transportation/roadsigns", "recreation/sports", "food/desserts", "people/clothing", "transportation/vehicles"),
    *("food/beverages", "people/stickmen", "animals/birds", "animals/bugs", "shapes/jigsaw"),
)
MOST = 40
HIDDEN = 0.1
"""Images of a kind at most, and the share of classes that are of no collection that is read."""

CHOSEN = {"stamps": 2, "CIFAR-100": 2, "drawings": 2}
REPORTED = {"clip art": 4, "CIFAR-10": 4, "Fashion-MNIST": 4}
"""Collections, and how often the classes of each are split."""

FOREIGN = ("other drawings",)
"""Shown to those that are reported, beside these themselves."""

RESULTS = Path(__file__).parents[1] / "results/choice-outliers.json"


def pictures(root: Path, kinds: tuple[str, ...]) -> tuple[list[np.ndarray], list[int]]:
    """Some of each kind that can be read."""
    found: list[tuple[np.ndarray, int]] = []
    for label, kind in enumerate(kinds):
        paths = sorted((root / kind).rglob("*.png"))
        for row in torch.randperm(len(paths), generator=generator("outliers", kind))[:MOST].tolist():
            with configure_pillow():
                try:
                    found.append((decode(paths[row].read_bytes(), 160), label))
                except ValueError:  # larger than any screen
                    continue
    return [picture for picture, _ in found], [label for _, label in found]


def enlarged(pixels: Tensor, labels: Tensor, classes: range) -> tuple[list[np.ndarray], list[int]]:
    """Some small images of each class, as large as the network wants them."""
    rows = torch.cat([(labels == label).nonzero()[: MOST // (1 + (len(classes) > 16)), 0] for label in classes])
    large = F.interpolate(pixels[rows].expand(-1, 3, -1, -1).float(), (160, 160), mode="bicubic", antialias=True)
    return [*large.clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()], labels[rows].tolist()


def collections(cifar: Path, folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Power-normalised features and classes of each; what is looked at is kept."""

    def drawn(group: str, classes: range) -> tuple[list[np.ndarray], list[int]]:
        images = load_doodles(group)
        return enlarged(images.pixels, images.listing.labels, classes)

    def photographs(name: str, part: str, classes: range) -> tuple[list[np.ndarray], list[int]]:
        images = load_dataset(name, cifar, part)
        return enlarged(images.pixels, images.listing.labels, classes)

    def worn() -> tuple[list[np.ndarray], list[int]]:
        images = load_fashion_mnist()
        return enlarged(images.pixels, images.listing.labels, range(10))

    made: dict[str, Callable[[], tuple[list[np.ndarray], list[int]]]] = {
        "stamps": lambda: pictures(STAMPS, KINDS),
        "CIFAR-100": lambda: photographs("cifar100", "train", range(48)),
        "drawings": lambda: drawn("known", range(0, 100, 5)),
        "clip art": lambda: pictures(CLIPART, ART),
        "other drawings": lambda: drawn("novel", range(10)),
        "CIFAR-10": lambda: photographs("cifar10", "test", range(10)),
        "Fashion-MNIST": worn,
    }
    found = {}
    for name, load in made.items():
        path = folder / f"{name}.pt"
        if not path.is_file():
            images, kinds = load()
            torch.save((seen(images)[:, 0], torch.tensor(kinds)), path)
        x, y = torch.load(path)
        found[name] = power_normalised(x), y.unique(return_inverse=True)[1]
    return found


class Told(NamedTuple):
    """What is seen of some images: how far out they are, and by how much they are nearer to one cluster than others."""

    outlier_score: Tensor
    log_margin: Tensor


class Attempt(NamedTuple):
    """What a collection says of images that come later, and what its labelled images say of that."""

    told: dict[str, Told]
    right: Logistic
    hidden: pretend.Hidden | None  # of labelled classes that were hidden for calibration; None: too few


def attempt(x: Tensor, y: Tensor, others: dict[str, Tensor], split: int) -> Attempt:
    """Read a collection of which some classes are hidden; look at what arrives later."""
    random = generator("outliers", split)
    y = torch.randperm(int(y.max()) + 1, generator=random)[y]
    there = int(y.max()) + 1 - max(1, round(HIDDEN * (int(y.max()) + 1)))
    known, drawn = there // 2, torch.rand(len(y), generator=random)
    later, taught = (y < there) & (drawn < 1 / 7), (y < there // 2) & (drawn > 4 / 7)
    read = (y < there) & ~later
    within = covariance(x[taught], y[taught], means(x[taught], y[taught], known)[0])
    found = axes(moments(x[read]), FEW, within, SHRINK)
    u = F.normalize((x[read].double() - found.centre) @ found.matrix, dim=1).float()
    clusters = semi_supervised_kmeans(u, y.where(taught, -1)[read], there, random)
    places, _ = means(coordinates(x[read], found, within).along, clusters.assignment, there)
    line, hidden = calibrated(x[taught], y[taught], split)

    def look(images: Tensor) -> Told:
        along, beside = coordinates(images, found, within)
        score = outlier_score(*reach(torch.hypot(distances(along, places), beside[:, None])))
        away = distances(F.normalize((images.double() - found.centre) @ found.matrix, dim=1).float(), clusters.centres)
        return Told(score, log_margin(away, away.argmin(1), torch.eye(there, dtype=torch.bool)))

    shown = {"of a class": x[later], "read": x[read], "hidden": x[y >= there]} | others
    return Attempt({name: look(images) for name, images in shown.items()}, line, hidden)


def calibrated(x: Tensor, y: Tensor, seed: int) -> tuple[Logistic, pretend.Hidden | None]:
    """What `fit_calibration` makes of labelled images, and the scores that its line of outliers is made of."""
    scores: list[pretend.Hidden] = []
    keep, default = pretend.calibrate_outliers, FeatureEncoder.calibration
    pretend.calibrate_outliers = lambda found: scores.extend(found)
    try:
        line = pretend.fit_calibration(x, y, seed) or default
    finally:
        pretend.calibrate_outliers = keep
    hidden = pretend.Hidden(*(torch.cat(parts) for parts in zip(*scores, strict=True))) if scores else None
    return line.right, hidden if keep(scores) is not None else None


class Around(NamedTuple):
    """What an attempt was made among: known classes, all that were read, and the line of outliers elsewhere."""

    known: int
    classes: int
    others: Logistic


class Arm(NamedTuple):
    """A way to judge: what outliers' scores mean, and who is named, of P(right | of a class), P(outlier); and whether
    P(right) is carried to more classes, as a discovery does it (decision 17).
    """

    line: Callable[[Attempt, Around], Logistic]
    names: Callable[[Tensor, Tensor], Tensor]
    carried: bool = False


def tell_hidden(made: Attempt, around: Around) -> Logistic:
    """The line of the first rule: a logistic one that tells hidden classes where one image in ten is of none, moved
    outwards until 2 % of the others are called outliers.
    """
    if made.hidden is None:
        return Logistic(3.1, -8.2)
    score, outlier = made.hidden
    line, share = platt(score, outlier), outlier.double().mean().item()
    offset = line.offset + math.log(0.1 / 0.9) - math.log(share / (1 - share))
    far = score[~outlier].double().quantile(0.98).item()
    return Logistic(line.slope, min(offset, -line.slope * far))


def ends(made: Attempt, unnamed: float) -> tuple[float, float]:
    """Two quantiles of images that have a class: the near and the far end of a line."""
    assert made.hidden is not None
    score = made.hidden.score[~made.hidden.outlier].double()
    return score.quantile(1 - unnamed).item(), score.quantile(1 - pretend.ALARMS).item()


def draw_outliers(fitted: Logistic, others: Logistic, known: int, borrowed: float) -> Logistic:
    """A line whose ends are drawn to those of the line elsewhere, the more so the fewer classes are known.

    near ← w near + (1 − w) near′,   far ← w far + (1 − w) far′,   w = known / (known + borrowed)
    """
    own, steep = known / (known + borrowed), math.log((1 - FAR_OUT) / FAR_OUT)
    (near, far), (near_other, far_other) = (
        ((-steep - offset) / slope, -offset / slope) for slope, offset in (fitted, others)
    )
    return outlier_line(own * near + (1 - own) * near_other, own * far + (1 - own) * far_other)


def cut(unnamed: float, borrowed: float = 0) -> Callable[[Attempt, Around], Logistic]:
    """A line through two quantiles of images that have a class (`outlier_line`), drawn to that elsewhere."""

    def line(made: Attempt, around: Around) -> Logistic:
        if made.hidden is None:
            return around.others
        return draw_outliers(outlier_line(*ends(made, unnamed)), around.others, around.known, borrowed)

    return line


def name_likely(right: Tensor, outlier: Tensor) -> Tensor:
    """Whoever is likelier right than wrong."""
    return right * (1 - outlier) >= 0.5


def name_with_odds(right: Tensor, outlier: Tensor) -> Tensor:
    """The second rule: the same, the odds of being of no class counted fifty times."""
    return right * (1 - outlier) / (1 - outlier + 50 * outlier) >= 0.5


def name_near(right: Tensor, outlier: Tensor) -> Tensor:
    """The rule as it is."""
    return ~torch.logical_or(*withhold_names(right * (1 - outlier), outlier, 0.5))


BEFORE = "odds counted 50 times, 10%"
ARMS: dict[str, Arm] = {
    "no judgement": Arm(lambda made, around: Logistic(0.0, -1e9), name_likely),
    "P(right) times 1 − P(outlier)": Arm(tell_hidden, name_likely),
    BEFORE: Arm(cut(0.1), name_with_odds),
    **{f"{share:.0%} far out": Arm(cut(share), name_near) for share in (0.1, 0.12, 0.15, 0.2, 0.25)},
    **{
        f"{pretend.UNNAMED:.0%} far out, drawn by {classes}": Arm(cut(pretend.UNNAMED, classes), name_near)
        for classes in (2, 4, 8, 16, 32)
    },
    "as a discovery": Arm(cut(pretend.UNNAMED), name_near, carried=True),
    "as a discovery, drawn by 8": Arm(cut(pretend.UNNAMED, 8), name_near, carried=True),
}
TAKEN = f"{pretend.UNNAMED:.0%} far out"
SHOWN = (*[*ARMS][:3], TAKEN, f"{TAKEN}, drawn by 8", *[*ARMS][-2:])
"""Arms of which what is reported is told: those of before, that which is taken, and drawn as the chosen sets had it."""


def judge(made: Attempt, arm: str, around: Around) -> dict[str, dict[str, float]]:
    """The shares of images that are named, and that are called outliers."""
    line, right = ARMS[arm].line(made, around), made.right
    if ARMS[arm].carried:
        right = carry_on(Calibration(right, right), FeatureEncoder.calibration, around.known, around.classes).right
    result = {}
    for name, (score, margin) in made.told.items():
        chance = probability(score, line)
        named = ARMS[arm].names(probability(margin, right), chance)
        result[name] = {
            "named": round(named.double().mean().item(), 4),
            "outlier": round((chance > 0.5).double().mean().item(), 4),
        }
    return result


def line_elsewhere(name: str, made: dict[tuple[str, int], Attempt]) -> Logistic:
    """The line of outliers on other images: of chosen sets that of the others among them, else the product's."""
    assert FeatureEncoder.calibration.outlier is not None
    lines = [
        ends(made[other, split], pretend.UNNAMED)
        for other, count in CHOSEN.items()
        for split in range(count)
        if other != name and (other, split) in made and made[other, split].hidden is not None
    ]
    if name not in CHOSEN or not lines:
        return FeatureEncoder.calibration.outlier
    return outlier_line(*(sum(values) / len(values) for values in zip(*lines, strict=True)))


def main(cifar: Path, folder: Path) -> None:
    """Try all arms where they are chosen, and the chosen one beside the others where it is reported."""
    sets = collections(cifar, folder)
    rows: list[dict[str, Any]] = []
    made: dict[tuple[str, int], Attempt] = {}
    for part, splits in {"chosen on": CHOSEN, "reported": REPORTED}.items():
        for name, split in ((name, split) for name, count in splits.items() for split in range(count)):
            foreign = {*splits, *(FOREIGN if part == "reported" else ())} - {name}
            path = folder / f"{name} {split}.attempt.pt"
            if not path.is_file():
                torch.save(attempt(*sets[name], {other: sets[other][0] for other in sorted(foreign)}, split), path)
            made[name, split] = torch.load(path, weights_only=False)
        for name, split in ((name, split) for name, count in splits.items() for split in range(count)):
            all_classes = int(sets[name][1].max()) + 1
            there = all_classes - max(1, round(HIDDEN * all_classes))
            around = Around(there // 2, there, line_elsewhere(name, made))
            setting = {"part": part, "set": name, "split": split}
            rows.extend(
                setting | {"arm": arm, "judged": judge(made[name, split], arm, around)}
                for arm in (ARMS if part == "chosen on" else SHOWN)
            )
            print(rows[-1], flush=True)
    defaults = [
        outlier_line(*ends(made[name, split], pretend.UNNAMED))
        for name in ("stamps", "CIFAR-100")
        for split in range(CHOSEN[name])
    ]
    setting = {"command": "python scripts/choose_outliers.py CIFAR FOLDER", "versions": versions(), "taken": TAKEN}
    line = [round(sum(values) / len(values), 2) for values in zip(*defaults, strict=True)]
    files.write(RESULTS, json.dumps({"setting": setting, "default line": line, "rows": rows}, indent=1) + "\n")
    print(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
