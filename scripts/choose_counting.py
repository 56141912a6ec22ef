"""Choose how classes are counted and what distances mean, on images that no result is reported on.

    python scripts/choose_counting.py CIFAR

Stamps and CIFAR-100's classes 0–47 as in choose_axes.py, some of the classes known, half of their images labelled; and
the embedded drawings, a network that has learnt 60 of the known categories, and others that it has not. Writes
results/choice-counting.json: for each arm the estimated over the true number of classes in all, a split each, and the
lines that turn distances into chances.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from choose_axes import photographs, seen, stamps
from torch import Tensor

from newfound import files
from newfound.data.datasets import load_doodles
from newfound.discovery.facts import versions
from newfound.discovery.settings import StageOne
from newfound.encoders import embed
from newfound.encoders.pixels import READING_SHRINK, PixelEncoder
from newfound.encoders.pretend import Scores, calibrate, outcomes
from newfound.encoders.reading import KMEANS
from newfound.functional.axes import FEW, SHRINK, axes, moments, power_normalised
from newfound.functional.counting import count
from newfound.functional.geometry import covariance, means, whitening
from newfound.types import generator

SETTINGS = {"stamps": [(8, 8)], "cifar100": [(5, 5), (8, 8), (24, 24)]}
SPLITS, SHRINKS = 4, (1.0, 3.0, 6.0, 10.0)
DRAWN, NEW, WHITE = 60, (10, 25), (None, 0.3, 3.0)
RESULTS = Path(__file__).parents[1] / "results/choice-counting.json"


def task(x: Tensor, truth: Tensor, known: int, novel: int, split: int) -> tuple[Tensor, Tensor, Tensor]:
    """Some classes of a set: features, labels (−1 where unlabelled), the truth with known classes first."""
    random = generator("count", split, known, novel)
    order = torch.randperm(int(truth.max()) + 1, generator=random)[: known + novel]
    place = torch.full((int(truth.max()) + 1,), -1).scatter_(0, order, torch.arange(len(order)))[truth]
    x, y = x[place >= 0], place[place >= 0]
    return x, torch.where((y < known) & (torch.rand(len(y), generator=random) < 0.5), y, -1), y


def placed(x: Tensor, labels: Tensor, known: int, shrink: float) -> Tensor:
    """Unit latents of features, as an adapter that has learnt nothing gives them."""
    taught = labels >= 0
    spread = covariance(x[taught], labels[taught], means(x[taught], labels[taught], known)[0])
    found = axes(moments(x), FEW, spread, shrink)
    return F.normalize((x.double() - found.centre) @ found.matrix, dim=1).float()


def drawings() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Latents of drawings by a network that has learnt half of the first categories' drawings; labels (−1 where it has
    not); truth; the spread of what it learnt.
    """
    images = load_doodles("known")
    half = torch.rand(len(images), generator=generator("half")) < 0.5
    rows = ((images.listing.labels < DRAWN) & half).nonzero()[:, 0]
    known = images.pick(rows).relabel(images.listing.labels[rows], images.listing.classes[:DRAWN])
    model = PixelEncoder(28, "cpu").fit_known(known, StageOne(), 0)
    assert model.known is not None
    labels = torch.full_like(images.listing.labels, -1)
    labels[rows] = images.listing.labels[rows]
    return embed(model, images), labels, images.listing.labels, model.known.within_covariance


def main() -> None:
    """Try every arm."""
    sets = {"stamps": stamps(), "cifar100": photographs(Path(sys.argv[1]))}
    rows: list[dict[str, object]] = []
    scores: list[Scores] = []
    for name, (pixels, kinds) in sets.items():
        x, truth = power_normalised(seen(pixels)[:, 0]), torch.tensor(kinds)
        for known, novel in SETTINGS[name]:
            tries = [task(x, truth, known, novel, split) for split in range(SPLITS)]
            for shrink in SHRINKS:
                counts = [counted(placed(x, y, known, shrink), y, split) for split, (x, y, _) in enumerate(tries)]
                rows.append(
                    {"set": name, "known": known, "novel": novel, "shrink": shrink} | ratios(counts, known + novel)
                )
                print(rows[-1], flush=True)
            scores += [outcomes(placed(x, y, known, SHRINK), y, z, s)[KMEANS] for s, (x, y, z) in enumerate(tries)]
    lines = {"features": calibrate(scores)}
    x, labels, truth, spread = drawings()
    scores = []
    for novel in NEW:
        for shrink in WHITE:
            metric = torch.eye(len(spread)) if shrink is None else whitening(spread, shrink)
            tries = []
            for split in range(SPLITS):
                some = DRAWN + torch.randperm(100 - DRAWN, generator=generator("new", split))[:novel]
                keep = (truth < DRAWN) | torch.isin(truth, some)
                y = torch.cat([torch.arange(DRAWN), some]).sort().values
                y = torch.searchsorted(y, truth[keep])
                tries.append((F.normalize(x[keep] @ metric, dim=1), labels[keep], y))
            counts = [counted(u, y, split) for split, (u, y, _) in enumerate(tries)]
            rows.append(
                {"set": "drawings", "known": DRAWN, "novel": novel, "shrink": shrink} | ratios(counts, DRAWN + novel)
            )
            print(rows[-1], flush=True)
            if shrink == READING_SHRINK:
                scores += [outcomes(*parts, s)[KMEANS] for s, parts in enumerate(tries)]
    lines["learnt"] = calibrate(scores)
    about = {"command": "python scripts/choose_counting.py CIFAR", "versions": versions()}
    result = about | {"measure": "estimated over true number of classes in all, a split each", "rows": rows}
    result["lines"] = {name: trust._asdict() for name, trust in lines.items()}
    files.write(RESULTS, json.dumps(result, indent=1) + "\n")
    print(result["lines"])


def counted(u: Tensor, labels: Tensor, seed: int) -> dict[str, int]:
    """What each way of asking says."""
    taught = labels >= 0
    return {
        str(name): number for name, number in count(u[~taught], u[taught], labels[taught], seed=seed).estimates.items()
    }


def ratios(counts: list[dict[str, int]], truth: int) -> dict[str, object]:
    """Estimated over true numbers, by the way of asking, and the root mean square of their logs."""
    by = {name: [round(one[name] / truth, 3) for one in counts] for name in counts[0]}
    return by | {"off by (pairs)": round(math.sqrt(np.mean(np.square(np.log(by["pairs"])))), 3)}


if __name__ == "__main__":
    main()
