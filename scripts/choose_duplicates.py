"""Choose what is called a near-duplicate, and measure it; writes results/choice-duplicates.json.

    python scripts/choose_duplicates.py CIFAR

Four sets: all embedded drawings, Debian's clip art (its 1378 stars apart: see decision 12), CIFAR-10's test images,
and Tux Paint's stamps, for whose letters alone the shape of a file is asked. Of every fifth picture one copy is made:
shifted, recompressed, resized, or all of these. Each set is put into an order by chance: bounds were chosen on the
last 3000 pictures of it, 1500 of which are shown again, and the first 1500 are reported. What is in the results
already is not measured again. A pair is right where both come of one original, where the originals are equal to the
pixel, or but for their size (no pixel of copies 64 wide differs by more than 16 of 256), and where they are one clip
under one file name in two folders. Every other pair is counted as wrong, whatever it shows, and named in the results.

A second precision, by picture, takes for right as well two originals that `show_one_picture`, which looks at all their
pixels and at nothing that the detector sees. That rule was made after looking at the pairs that are wrong by file.
"""

import hashlib
import io
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from newfound import files
from newfound.data.datasets import load_dataset, load_doodles
from newfound.data.decoding import configure_pillow, decode
from newfound.discovery.facts import versions
from newfound.functional import duplicates

CLIPART, STAMPS = Path("/usr/share/openclipart/png"), Path("/usr/share/tuxpaint/stamps")
RESULTS = Path(__file__).parents[1] / "results/choice-duplicates.json"
COPIES = (
    "shifted by 1", "shifted by 2", "JPEG 90", "JPEG 70", "JPEG 50", "3/4 the size", "1.5 times the size",
    "shifted, 3/4 the size, JPEG 70",
)  # fmt: skip
SHIFTS = {1: ((1, 0), (0, 1), (-1, 1)), 2: ((2, 0), (0, 2), (-2, 1))}
BEFORE = "before: coarse cosine"
ARMS = {
    BEFORE: None,
    "chosen": {},
    "confirmed from 64 pixels on": {"ENOUGH": 64},
    "not nudged": {"NUDGE": 0.0},
    "of any shape": {"SLACK": float("inf")},
    "bounds as before": {"NUDGE": 0.0, "ENOUGH": 64, "WORST": 0.25, "FINE_WORST": 0.35, "SLACK": float("inf")},
}
NAMED = ("wrong", "of these one picture")
"""Pairs of names; counted where an arm was not taken."""

SECOND = "precision by picture"

MOST = 1500
"""Originals of a part, at most."""

BOUNDS = (
    "SIDE", "NEIGHBOURS", "FAR", "REACH", "NUDGE", "ALL_OVER", "WORST", "FINE", "ENOUGH", "FINE_WORST", "SLACK",
    "PLAIN",
)  # fmt: skip

MOVED, BESIDE, SHADE, SHARP = 2, 1, 48, 48
"""Of two originals that are one picture: pixels by which one is moved, pixels by which an outline is, levels of 256 by
which a colour differs, at most; and pixels of a side, at least, for a pixel of a smaller one is much of it.
"""

PARTS = {"tried": slice(-MOST, None), "reported": slice(MOST)}


def shift(image, across, down):
    wide = np.pad(np.asarray(image), ((2, 2), (2, 2), (0, 0)), mode="edge")
    return Image.fromarray(wide[2 + down : 2 + down + image.height, 2 + across : 2 + across + image.width])


def recompress(image, quality):
    file = io.BytesIO()
    image.save(file, "jpeg", quality=quality)
    return Image.open(io.BytesIO(file.getvalue())).convert("RGB")


def resize(image, factor):
    return image.resize((round(factor * image.width), round(factor * image.height)), Image.Resampling.BICUBIC)


def copy(image, kind, number):
    match kind.split():
        case ["shifted", "by", pixels]:
            return shift(image, *SHIFTS[int(pixels)][number % 3])
        case ["JPEG", quality]:
            return recompress(image, int(quality))
        case ["3/4", *_]:
            return resize(image, 0.75)
        case ["1.5", *_]:
            return resize(image, 1.5)
    return recompress(resize(shift(image, 1, 1), 0.75), 70)


def small(image, side):
    file = io.BytesIO()
    image.save(file, "png", compress_level=1)
    return decode(file.getvalue(), side, framing="squeezed")


def stack(pictures):
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)


def flat(file, *, whole=False):
    """A clip on white, no wider than a page would show it, or the `whole` of it; None where it is larger than any
    screen.
    """
    try:
        with Image.open(file) as opened:
            if opened.width * opened.height > 4e6:
                return None
            image = opened.convert("RGBA")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    if not whole:
        image.thumbnail((400, 400))
    return image


def show_one_picture(a, b):
    """Whether two originals are one picture at all their pixels: they are of one size, and where one is moved against
    the other by at most `MOVED` pixels, no pixel of either is more than `SHADE` levels outside the range of what the
    other has within `BESIDE` pixels of it.

    Nothing is scaled, blurred or averaged: a stroke too many decides.
    """
    if a.size != b.size or min(a.size) < SHARP:
        return False
    x, y = (torch.from_numpy(np.array(image)).permute(2, 0, 1).float() for image in (a, b))
    width, height = a.size
    for down, across in itertools.product(range(-MOVED, MOVED + 1), repeat=2):
        here = x[:, max(down, 0) : height + min(down, 0), max(across, 0) : width + min(across, 0)]
        there = y[:, max(-down, 0) : height + min(-down, 0), max(-across, 0) : width + min(-across, 0)]
        if within(here, there) and within(there, here):
            return True
    return False


def within(x, y):
    """Whether every pixel of x is near what y has close to it."""
    high, low = (sign * F.max_pool2d(sign * y, 1 + 2 * BESIDE, 1, BESIDE) for sign in (1, -1))
    return bool(((x <= high + SHADE) & (x >= low - SHADE)).all())


def originals(root):
    """Name, pictures and what each is called; of the clip art also which share a file name."""
    drawn = torch.cat([load_doodles(group).pixels for group in ("known", "novel", "spare")])[:, 0].numpy()
    yield "doodles", [(f"drawing {i}", lambda i=i: Image.fromarray(drawn[i]).convert("RGB")) for i in range(len(drawn))]
    seen = load_dataset("cifar10", root, "test").pixels.permute(0, 2, 3, 1).numpy()
    yield "CIFAR-10 test", [(f"image {i}", lambda i=i: Image.fromarray(seen[i])) for i in range(len(seen))]
    clips = sorted(file for file in CLIPART.rglob("*.png") if file.parent.name != "stars")
    yield "clip art", [(str(file.relative_to(CLIPART)), partial(flat, file)) for file in clips]
    stamps = sorted(STAMPS.rglob("*.png"))
    yield "stamps", [(str(file.relative_to(STAMPS)), partial(flat, file)) for file in stamps]


def take(pictures, rows):
    """Small copies, the original of each, its kind; equal originals are one."""
    order = np.random.default_rng(12).permutation(len(pictures))[rows]
    copies, fine, sides, sources, kinds, names, loads = [], [], [], [], [], [], []
    first: dict[object, int] = {}
    for row in order.tolist():
        name, load = pictures[row]
        image = load()
        if image is None:
            continue
        number = len(names)
        names.append(name)
        loads.append(partial(load, whole=True) if "/" in name else load)
        same = first.setdefault(hashlib.sha256(repr(image.size).encode() + image.tobytes()).digest(), number)
        same = first.setdefault(Path(name).name, same) if "/" in name else same
        made = [(image, "")]
        if number % 5 == 0:
            kind = COPIES[number // 5 % len(COPIES)]
            made.append((copy(image, kind, number // 5 // len(COPIES)), kind))
        for shown, kind in made:
            copies.append(small(shown, duplicates.SIDE))
            fine.append(small(shown, duplicates.FINE))
            sides.append(sorted(shown.size))
            sources.append((number, same))
            kinds.append(kind)
    return Part(stack(copies), stack(fine), torch.tensor(sides), sources, kinds, names, loads)


class Part(NamedTuple):
    """Pictures of a part, and the copies made of them."""

    copies: Tensor
    fine: Tensor
    sides: Tensor
    sources: list[tuple[int, int]]  # the original's number, and that of the first that equals it
    kinds: list[str]  # of a copy; "" of an original
    names: list[str]  # of the originals
    loads: list[Callable[[], Image.Image]]  # these themselves, with all their pixels

    def equal(self, a, b):
        """Whether two pictures are one, drawn at another size: no pixel of the finer copies differs by much."""
        return (self.fine[a].int() - self.fine[b].int()).abs().max() <= 16


def coarse_cosine(copies):
    """The rule before, of images in memory: the cosine of pixels at 16 × 16 about their mean."""
    x = F.adaptive_avg_pool2d(copies.float(), 16).flatten(1)
    x = F.normalize(F.pad(x - x.mean(1, keepdim=True), (0, 1), value=1.0), dim=1)
    return torch.cat([((x[i : i + 512] @ x.T) >= 0.97).triu(i + 1).nonzero() + torch.tensor([i, 0])
                      for i in range(0, len(x), 512)])  # fmt: skip


def measure(name, part, pairs, pictures):
    copies, _, _, sources, kinds, names, _ = pictures
    original = {number: row for row, (number, _) in enumerate(sources) if not kinds[row]}
    right, wrong, found, one_picture = 0, [], set(), {}
    for a, b in pairs.tolist():
        (one, same_one), (other, same_other) = sources[a], sources[b]
        if same_one == same_other or pictures.equal(original[one], original[other]):
            right += 1
            found |= {a, b} if one == other else set()
        else:
            wrong.append(said := f"{names[one]} = {names[other]}")
            if said not in one_picture:
                one_picture[said] = show_one_picture(pictures.loads[one](), pictures.loads[other]())
    plain = duplicates.contrast(duplicates.blur(copies.float())) < duplicates.PLAIN**2
    made = [row for row, kind in enumerate(kinds) if kind and not plain[row]]
    by_kind = Counter(kinds[row] for row in made)
    hits = Counter(kinds[row] for row in made if row in found)
    return {
        "set": name,
        "part": part,
        "originals": len(names),
        "copies": len(made),
        "pairs": len(pairs),
        "precision": round(right / max(len(pairs), 1), 4),
        SECOND: round((right + sum(one_picture[said] for said in wrong)) / max(len(pairs), 1), 4),
        "recall": round(sum(hits.values()) / len(made), 4),
        "recall by kind": {kind: round(hits[kind] / by_kind[kind], 3) for kind in COPIES},
        "wrong": sorted(set(wrong)),
        "of these one picture": sorted(said for said, same in one_picture.items() if same),
    }


def under(bounds, pictures):
    before = {name: getattr(duplicates, name) for name in bounds}
    for name, value in bounds.items():
        setattr(duplicates, name, value)
    try:
        pairs = duplicates.find_pairs(pictures.copies)
        pairs = pairs[duplicates.share_shape(*pictures.sides[pairs].unbind(1))]
        fine = (pictures.sides[pairs] >= duplicates.ENOUGH).flatten(1).all(1)
        same = ~fine
        same[fine] = duplicates.confirm(*(pictures.fine[pairs[fine, side]] for side in (0, 1)))
        return pairs[same]
    finally:
        for name, value in before.items():
            setattr(duplicates, name, value)


def wanted(name, part, arm):
    """Arms are told apart on the clip art, whose series are the hardest; what is reported has the chosen one alone."""
    if part == "tried":
        return arm == "chosen" or name == "clip art"
    return arm in ("chosen", BEFORE)


def main(root):
    bounds, rows = {name: getattr(duplicates, name) for name in BOUNDS}, []
    if RESULTS.is_file() and (before := json.loads(RESULTS.read_text()))["setting"]["bounds"] == bounds:
        rows = [row for row in before["rows"] if row["part"] == "tried" or not row["wrong"] or SECOND in row]
        for row in rows:
            if not row["wrong"]:  # nothing is left that a second look could find right
                row[SECOND] = row["precision"]
    there = {(row["set"], row["part"], row["arm"]) for row in rows}
    for name, pictures in originals(root):
        for part, chosen in PARTS.items():
            arms = [arm for arm in ARMS if wanted(name, part, arm) and (name, part, arm) not in there]
            if not arms or (name, part) == ("stamps", "tried"):
                continue
            with configure_pillow():
                shown = take(pictures, chosen)
            for arm in arms:
                pairs = coarse_cosine(shown.copies) if arm == BEFORE else under(ARMS[arm], shown)
                row = {"arm": arm} | measure(name, part, pairs, shown)
                if arm != "chosen":
                    row |= {key: len(row[key]) for key in NAMED}
                rows.append(row)
                print({key: value for key, value in row.items() if key not in NAMED}, flush=True)
    setting = {"command": "python scripts/choose_duplicates.py CIFAR", "versions": versions(), "bounds": bounds}
    files.write(RESULTS, json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
