"""Choose which score tells images of no class, and the default lines; measure them on other images.

    python scripts/choose_outliers.py CIFAR

Chosen on stamps and CIFAR-100's classes 0–47 (`choose_axes.py`), and on the embedded drawings' known categories for our
own network; reported on clip art, drawings, CIFAR-10's test images and Fashion-MNIST. Of each collection a tenth of the
classes is hidden whole, half of the others is known by half of its images, and a seventh of all arrives later. What was
measured on the labelled images alone judges these, the hidden ones and the other collections. Writes
results/choice-outliers.json.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from choose_axes import KINDS, STAMPS, seen
from choose_counting import DRAWN, drawings
from torch import Tensor

from newfound import files
from newfound.data.datasets import load_dataset, load_doodles, load_fashion_mnist
from newfound.data.decoding import configure_pillow, decode
from newfound.discovery.facts import versions
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.pixels import READING_SHRINK
from newfound.encoders.pretend import Hidden, calibrate_outliers, fit_calibration
from newfound.functional.axes import FEW, SHRINK, axes, coordinates, moments, power_normalised
from newfound.functional.calibration import Calibration, log_margin, outlier_score, probability, reach
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.geometry import covariance, distances, means, whitening
from newfound.types import generator

CLIPART = Path("/usr/share/openclipart/png")
ART = (
    *("shapes/stars", "signs_and_symbols/flags", "animals/mammals", "shapes/arrows", "food/fruit", "recreation/music"),
    *("transportation/roadsigns", "recreation/sports", "food/desserts", "people/clothing", "transportation/vehicles"),
    *("food/beverages", "people/stickmen", "animals/birds", "animals/bugs", "shapes/jigsaw"),
)
MOST, SPLITS = 40, 4
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


def collections(cifar: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, features and classes of each."""
    hundred, ten = load_dataset("cifar100", cifar), load_dataset("cifar10", cifar, "test")
    drawn, worn = load_doodles("known"), load_fashion_mnist()
    made = {
        "stamps": lambda: pictures(STAMPS, KINDS),
        "CIFAR-100": lambda: enlarged(hundred.pixels, hundred.listing.labels, range(48)),
        "clip art": lambda: pictures(CLIPART, ART),
        "drawings": lambda: enlarged(drawn.pixels, drawn.listing.labels, range(0, 100, 5)),
        "CIFAR-10": lambda: enlarged(ten.pixels, ten.listing.labels, range(10)),
        "Fashion-MNIST": lambda: enlarged(worn.pixels, worn.listing.labels, range(10)),
    }
    for name, load in made.items():
        images, kinds = load()
        yield name, power_normalised(seen(images)[:, 0]), torch.tensor(kinds).unique(return_inverse=True)[1]


def attempt(x: Tensor, y: Tensor, others: dict[str, Tensor], split: int) -> dict[str, object]:
    """Read a collection of which some classes are hidden; judge what arrives later."""
    random = generator("outliers", split)
    y = torch.randperm(int(y.max()) + 1, generator=random)[y]
    there = int(y.max()) + 1 - max(1, round(0.1 * (int(y.max()) + 1)))
    known, drawn = there // 2, torch.rand(len(y), generator=random)
    later, taught = (y < there) & (drawn < 1 / 7), (y < there // 2) & (drawn > 4 / 7)
    read = (y < there) & ~later
    within = covariance(x[taught], y[taught], means(x[taught], y[taught], known)[0])
    found = axes(moments(x[read]), FEW, within, SHRINK)
    u = F.normalize((x[read].double() - found.centre) @ found.matrix, dim=1).float()
    clusters = semi_supervised_kmeans(u, y.where(taught, -1)[read], there, random)
    places, _ = means(coordinates(x[read], found, within).along, clusters.assignment, there)
    default = FeatureEncoder.calibration
    line = fit_calibration(x[taught], y[taught], split) or default
    line = line if line.outlier is not None else line._replace(outlier=default.outlier)

    def judged(images: Tensor) -> tuple[Tensor, Tensor]:
        along, beside = coordinates(images, found, within)
        chance = chance_of(torch.hypot(distances(along, places), beside[:, None]), line)
        u = F.normalize((images.double() - found.centre) @ found.matrix, dim=1).float()
        away = distances(u, clusters.centres)
        return chance, probability(log_margin(away, away.argmin(1), torch.eye(there, dtype=torch.bool)), line.right)

    shown = {"of a class": x[later], "hidden": x[y >= there]} | others
    result: dict[str, object] = {}
    for name, images in shown.items():
        chance, right = judged(images)
        result[name] = {
            "outlier": round((chance > 0.5).double().mean().item(), 4),
            "named": round(((1 - chance) * right >= 0.5).double().mean().item(), 4),
            "named before": round((right >= 0.5).double().mean().item(), 4),
        }
    return result


def chance_of(away: Tensor, line: Calibration) -> Tensor:
    assert line.outlier is not None
    return probability(outlier_score(*reach(away)), line.outlier)


def learnt() -> list[Hidden]:
    """How drawings lie among latents of a network that has learnt 60 kinds, fifteen others hidden."""
    z, labels, truth, spread = drawings()
    u, scores = F.normalize(z @ whitening(spread, READING_SHRINK), dim=1), []
    for split in range(SPLITS):
        random = generator("outliers", split)
        order = torch.cat([torch.arange(DRAWN), DRAWN + torch.randperm(100 - DRAWN, generator=random)])
        y, there = order.argsort()[truth], 85
        later = (y >= there) | ((labels < 0) & (torch.rand(len(y), generator=random) < 0.25))
        clusters = semi_supervised_kmeans(u[~later], labels[~later], there, random, starts=5)
        away = distances(u[later], clusters.centres)
        scores.append(Hidden(outlier_score(*reach(away)), y[later] >= there))
    return scores


def main() -> None:
    """Fit both defaults, and measure."""
    own = learnt()
    line = calibrate_outliers(own)
    score, outlier = (torch.cat(parts) for parts in zip(*own, strict=True))
    chance = probability(score, line)
    print("drawings, our own network:", line, flush=True)
    result = {
        "command": "python scripts/choose_outliers.py CIFAR",
        "versions": versions(),
        "line of our own network": line,
        "its false alarms": round((chance[~outlier] > 0.5).double().mean().item(), 4),
        "its hits": round((chance[outlier] > 0.5).double().mean().item(), 4),
    }
    sets = {name: (x, y) for name, x, y in collections(Path(sys.argv[1]))}
    result["lines of features"] = {
        name: fitted.outlier for name, (x, y) in sets.items() if (fitted := fit_calibration(x, y)) is not None
    }
    rows = []
    for name, (x, y) in sets.items():
        others = {other: theirs for other, (theirs, _) in sets.items() if other != name}
        for split in range(SPLITS):
            rows.append({"set": name, "split": split, "judged": attempt(x, y, others, split)})
            print(rows[-1], flush=True)
    files.write(RESULTS, json.dumps(result | {"rows": rows}, indent=1) + "\n")
    print(result)


if __name__ == "__main__":
    main()
