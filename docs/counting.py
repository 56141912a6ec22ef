"""How well the number of classes is estimated, and what confidence is worth, on eight sets.

    apt install openclipart-png tuxpaint-stamps-default dataset-fashion-mnist
    python docs/counting.py CIFAR                              all of them
    python docs/counting.py CIFAR stamps "clip art"            some anew

Half of the classes are known, by half of their images; the others of these and the other classes are unlabelled. Three
choices of the known classes each. One image in six takes no part, and is predicted afterwards. Of CIFAR-100 the classes
that nothing was chosen on. Digits and drawings are written as files of 64 pixels; and the drawings are those of the
demonstration once more: 100 known kinds that a network learns, 10 others unlabelled, three seeds. Prints the tables and
writes results/counting.json.

The ways of counting and of calibrating were chosen on the stamps, with other classes known, on 24 other kinds of the
drawings and on CIFAR-100's classes 0–47; the clip art, Fashion-MNIST, CIFAR-10, CIFAR-100 and the demonstration's
drawings had been counted before; digits and the files of drawings are new to it. EfficientNet-lite0, which looks at all
but the last, was taught on ImageNet.
"""

import argparse
import gzip
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from clipart import ART, KINDS
from PIL import Image
from sklearn.datasets import load_digits

from newfound import Discovery, discover, files
from newfound.data.datasets import load_dataset, load_doodles
from newfound.discovery.facts import versions
from newfound.discovery.settings import Run, StageOne
from newfound.functional.metrics import calibration_gaps, matching, right
from newfound.types import generator

STAMPS, FASHION = Path("/usr/share/tuxpaint/stamps"), Path("/usr/share/datasets/fashion-mnist")
STAMP = (
    *("symbols/alphabets", "animals/mammals", "food/fruit", "animals/birds", "symbols/money", "town/houses"),
    *("plants/flowers", "town/roadsigns", "symbols/math", "animals/insects", "seasonal/christmas", "food/vegetables"),
    *("seasonal/halloween", "household/tools", "symbols/music", "symbols/chess"),
)
CHOICES, MOST, LATER = 3, 50, 6
"""Choices of known classes, images of a class, and one in how many of them is predicted afterwards."""

SIDE = 64
"""Pixels of a side of the digits and drawings that are written as files."""

Kinds = dict[str, list[Path]]


def folders(root: Path, kinds: tuple[str, ...]) -> Kinds:
    """Image files by their kind. Of equal ones, some in two kinds, the first is taken."""
    first: dict[bytes, tuple[str, Path]] = {}
    for kind in kinds:
        for path in sorted((root / kind).rglob("*.png")):
            first.setdefault(hashlib.sha256(path.read_bytes()).digest(), (kind, path))
    return {kind: [path for own, path in first.values() if own == kind][:MOST] for kind in kinds}


def written(name: str, pixels: np.ndarray, labels: np.ndarray, place: Path) -> Kinds:
    """Images in memory as files."""
    found: Kinds = {}
    for label in np.unique(labels):
        found[f"{label}"] = []
        for number, image in enumerate(pixels[labels == label][:MOST]):
            path = place / name / f"{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
            found[f"{label}"].append(path)
    return found


def fashion() -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST's test images and labels."""
    with gzip.open(FASHION / "t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(FASHION / "t10k-labels-idx1-ubyte.gz") as file:
        return pixels, np.frombuffer(file.read(), np.uint8, offset=8)


def photographs(root: Path, name: str, first: int) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR's training images of the classes from one on."""
    images = load_dataset(name, root)
    rows = images.listing.labels >= first
    return images.pixels[rows].permute(0, 2, 3, 1).numpy(), images.listing.labels[rows].numpy()


def enlarge(pixels: np.ndarray) -> np.ndarray:
    """Small grey images as larger ones."""
    size, how = (SIDE, SIDE), Image.Resampling.BICUBIC
    return np.stack([np.asarray(Image.fromarray(image).resize(size, how)) for image in pixels])


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits, as scikit-learn has them."""
    found = load_digits()
    return enlarge((found.images * (255 / 16)).astype(np.uint8)), found.target


def doodles(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Drawings of some of the demonstration's known kinds."""
    images = load_doodles("known")
    rows = (images.listing.labels >= first) & (images.listing.labels < last)
    return enlarge(images.pixels[rows][:, 0].numpy()), images.listing.labels[rows].numpy()


def judged(found: Discovery, later: pd.DataFrame, truth: list[str]) -> dict[str, object]:
    """What confidence and newness were worth, of images in the pile and of later ones: in how many images' gaps, and
    how often newness was right. An image is right in the class that most of its cluster's are of, one cluster a class.
    """
    pile, known = found.assignments(), {*found.found.known}
    true = pd.Series(found.found.truth)
    names = {name: number for number, name in enumerate(sorted({*pile["guess"], *later["guess"], *true, *truth}))}

    def numbers(words: pd.Series) -> torch.Tensor:
        return torch.tensor([names[word] for word in words])

    clusters = matching(numbers(true), numbers(pile["guess"]))
    row: dict[str, object] = {}
    for part, said, real in (("pile", pile, true), ("later", later, pd.Series(truth))):
        hits = right(numbers(real), numbers(said["guess"]), clusters)
        new = torch.tensor([word not in known for word in real])
        sure, strange = (torch.tensor(said[column].to_numpy(np.float64)) for column in ("confidence", "newness"))
        row[part] = {
            "images": len(said),
            "accuracy": round(hits.double().mean().item(), 4),
            "new": int(new.sum()),
            "newness right": int(((strange > 0.5) == new).sum()),
            "confidence gaps": [round(gap, 2) for gap in calibration_gaps(sure, hits).tolist()],
            "newness gaps": [round(gap, 2) for gap in calibration_gaps(strange, new).tolist()],
        }
    return row


def counted(name: str, kinds: Kinds, choice: int, place: Path) -> dict[str, object]:
    """Estimate how many classes there are, half of them known."""
    random = generator(name, choice)
    order = torch.randperm(len(kinds), generator=random).tolist()
    rows: dict[str, list[tuple[str, str]]] = {"known": [], "unlabelled": [], "later": []}
    for number, kind in enumerate([*kinds][i] for i in order):
        for row, half in enumerate(torch.rand(len(kinds[kind]), generator=random).tolist()):
            known = number < len(kinds) // 2 and half < 0.5
            part = "later" if row % LATER == choice else "known" if known else "unlabelled"
            rows[part].append((str(kinds[kind][row]), kind))
    for part, listed in rows.items():
        pd.DataFrame(listed, columns=["path", "label"]).to_csv(place / f"{part}.csv", index=False)
    found = discover(
        known=place / "known.csv",
        unlabelled=place / "unlabelled.csv",
        run=Run(seed=choice),
        stage=StageOne(backbone="efficientnet-lite0"),
        truth=True,
    )
    truth = pd.read_csv(place / "later.csv", dtype=str)["label"].tolist()
    return tell(name, choice, len(kinds), found, judged(found, found.predict(place / "later.csv"), truth))


def tell(name: str, choice: int, truth: int, found: Discovery, worth: dict[str, object]) -> dict[str, object]:
    """One run as a row."""
    assert found.found.count is not None
    count = {key: value for key, value in found.found.count._asdict().items() if key != "curve"}
    expected = found.found.expected
    said = None if expected is None else [round(value, 4) for value in expected[:3]]
    own = {"method": found.facts["method"], "expected": said}
    return {"set": name, "choice": choice, "truth": truth} | count | own | worth


def drawn(seed: int) -> dict[str, object]:
    """The same of drawings, which a network of our own learns."""
    novel = load_doodles("novel")
    later = torch.arange(len(novel)) % LATER == seed
    pile, rest = (novel.pick(rows.nonzero()[:, 0]) for rows in (~later, later))
    kinds = [novel.listing.classes[label] for label in novel.listing.labels[later].tolist()]
    found = discover(known=load_doodles("known"), unlabelled=pile, run=Run(method="kmeans", seed=seed), truth=True)
    return tell(DRAWN, seed, 110, found, judged(found, found.predict(rest), kinds))


DRAWN = "drawings"
SETS: dict[str, Callable[[Path, Path], Kinds]] = {
    "clip art": lambda root, place: folders(ART, KINDS),
    "stamps": lambda root, place: folders(STAMPS, STAMP),
    "Fashion-MNIST": lambda root, place: written("fashion", *fashion(), place),
    "CIFAR-10": lambda root, place: written("cifar10", *photographs(root, "cifar10", 0), place),
    "CIFAR-100, classes 48–99": lambda root, place: written("cifar100", *photographs(root, "cifar100", 48), place),
    "digits": lambda root, place: written("digits", *digits(), place),
    "drawings as files": lambda root, place: written("doodles", *doodles(60, 80), place),
}


def rows(root: Path, place: Path, name: str) -> Iterator[dict[str, object]]:
    """Every choice of a set."""
    kinds = None if name == DRAWN else SETS[name](root, place)
    for choice in range(CHOICES):
        yield drawn(choice) if kinds is None else counted(name, kinds, choice, place)


def main() -> None:
    """Count everything, or some anew, write the results, print the tables."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cifar", type=Path)
    words.add_argument("sets", nargs="*", help=f"some of {', '.join([*SETS, DRAWN])}; default: all")
    words.add_argument("--output", type=Path, default=Path("results/counting.json"))
    asked = words.parse_args()
    if strange := {*asked.sets} - {*SETS, DRAWN}:  # `choices` would refuse an empty list in Python 3.11
        words.error(f"there is no set {', '.join(sorted(strange))}; there are {', '.join([*SETS, DRAWN])}")
    there = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if asked.output.exists() else []
    setting = {
        "measure": "classes in all, known and new; gaps between chances and what happened, in images, by tenths",
        "images": f"at most {MOST} of a class, one in {LATER} predicted later, half of the known classes' others "
        "labelled; drawings: the demonstration's",
        "choices": CHOICES,
        "command": "python docs/counting.py CIFAR",
        "versions": versions(),
    }
    for name in asked.sets or [*SETS, DRAWN]:
        with tempfile.TemporaryDirectory() as place:
            for row in rows(asked.cifar, Path(place), name):
                print(row, flush=True)
                there = [one for one in there if (one["set"], one["choice"]) != (name, row["choice"])] + [row]
        there.sort(key=lambda row: ([*SETS, DRAWN].index(row["set"]), row["choice"]))
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in there)
        head = json.dumps({"setting": setting}, indent=1, ensure_ascii=False).removesuffix("\n}")
        files.write(asked.output, f'{head},\n "rows": [\n{lines}\n ]\n}}\n')
    print(table(pd.DataFrame(there)))


def table(found: pd.DataFrame) -> str:
    """What the results say, in Markdown."""
    return f"{table_counts(found)}\n\n{table_chances(found)}\n\n{tell_expected(found)}"


def table_counts(found: pd.DataFrame) -> str:
    """How many classes were estimated."""
    lines = ["| set | truth | estimates | intervals | within 25 % | intervals hold it |", "|---|---|---|---|---|---|"]
    holds = (found["least"] <= found["truth"]) & (found["truth"] <= found["most"])
    good = 0
    for name, own in found.groupby("set", sort=False):
        near = (own["classes"] / own["truth"]).sub(1).abs() <= 0.25
        good += near.mean() > 0.5
        spans = ", ".join(f"{a}–{b}" for a, b in zip(own["least"], own["most"], strict=True))
        lines.append(
            f"| {name} | {own['truth'].iloc[0]}, {own['known'].iloc[0]} of them known "
            f"| {', '.join(map(str, own['classes']))} | {spans} "
            f"| {near.sum()} of {len(own)} | {holds[own.index].sum()} of {len(own)} |"
        )
    off = math.exp(np.sqrt(np.mean(np.square(np.log(found["classes"] / found["truth"]))))) - 1
    half = (found["most"] - found["least"]) / 2
    wide, of_new = (100 * (half / number).median() for number in (found["classes"], found["classes"] - found["known"]))
    return "\n".join(
        [
            *lines,
            "",
            f"In {good} of {found['set'].nunique()} sets most estimates are within 25 % of the truth; "
            f"{holds.sum()} of {len(found)} intervals hold it. Half of them are at most ± {wide:.0f} % wide, "
            f"± {of_new:.0f} % of the new classes alone. "
            f"The typical error is {100 * off:.0f} % (root mean square of log ratios).",
        ]
    )


def table_chances(found: pd.DataFrame) -> str:
    """How far confidence and newness are off, the choices of a set together, where it was measured."""
    lines = [
        "| set | accuracy | confidence | of later images | newness | of later images | above ½ right | all new |",
        "|---|---|---|---|---|---|---|---|",
    ]
    means, newness = [], []
    for name, own in found.dropna(subset="pile").groupby("set", sort=False):
        parts = {part: pd.DataFrame([*own[part]]) for part in ("pile", "later")}
        errors = [
            float(np.abs(np.array([*some[f"{what} gaps"]]).sum(0)).sum() / some["images"].sum())
            for what in ("confidence", "newness")
            for some in parts.values()
        ]
        means.append(errors)
        pile = parts["pile"]
        newness.append(
            [some[of].sum() / some["images"].sum() for some in parts.values() for of in ("newness right", "new")]
        )
        shares = newness[-1][:2]
        cells = [f"{100 * (pile['accuracy'] * pile['images']).sum() / pile['images'].sum():.0f} %"]
        cells += [f"{error:.3f}" for error in errors] + [f"{100 * share:.0f} %" for share in shares]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    mean = " | ".join(f"{error:.3f}" for error in np.mean(means, 0))
    right, all_new, right_later, all_later = (f"{100 * share:.0f} %" for share in np.mean(newness, 0))
    better = [sum(own[first] > own[first + 1] for own in newness) for first in (0, 2)]
    lines += [
        f"| mean | | {mean} | {right} | {all_new} |",
        "",
        f"Newness above one half is right more often than to call every image new in {better[0]} of {len(newness)} "
        f"sets, of later images in {better[1]} ({right_later} and {all_later} in the mean).",
    ]
    return "\n".join(lines)


def tell_expected(found: pd.DataFrame) -> str:
    """How near the accuracy that was expected came to what was found, where one was expected."""
    told = found.dropna(subset="expected")
    hopes = pd.DataFrame([*told["expected"]], columns=["accuracy", "least", "most"], index=told.index)
    truly = pd.Series([pile["accuracy"] for pile in told["pile"]], index=told.index, dtype=float)
    off = hopes["accuracy"] - truly
    near, inside = off.abs() <= 0.1, (hopes["least"] <= truly) & (truly <= hopes["most"])
    return (
        f"The accuracy that a rehearsal let expect was within 10 points of what was found in {near.sum()} of "
        f"{len(told)} runs, {100 * off.mean():+.1f} points off in the mean; {inside.sum()} intervals held it. All of "
        "these estimated the number of classes."
    )


if __name__ == "__main__":
    main()
