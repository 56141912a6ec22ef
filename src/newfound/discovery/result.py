"""Discovery: everything a run found, for people and for programs."""

import csv
import itertools
import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

import pandas as pd
import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from newfound import files
from newfound.data.collection import Collection
from newfound.data.decoding import Box
from newfound.data.pictures import Pictures, at, pictures
from newfound.data.sources import Images, load
from newfound.discovery.reading import space
from newfound.discovery.trace import NAME as TRACE
from newfound.discovery.trace import Moment, Trace
from newfound.errors import InputError, counted
from newfound.functional import metrics
from newfound.functional.calibration import Line, Trust, chance, lead, strangeness, without_self
from newfound.functional.counting import Count, Tried
from newfound.functional.geometry import distances
from newfound.networks.model import Model
from newfound.training import embedding
from newfound.training.loop import Row, survey

log = logging.getLogger("newfound")

VERSION = 3
TENSORS = ("features", "centres", "cluster", "sizes")
TOGETHER = 1024
"""Images of a pile whose classes are said at once."""

UNSURE = -1
"""The number of the class of images that are of none for sure."""

TRUST_FEATURES = Trust(right=Line(6.7, -0.7), new=Line(6.2, 0.9))
TRUST_LEARNT = Trust(right=Line(3.4, -1.5), new=Line(1.7, -0.2))
"""What distances mean where too few classes are known to tell: on a pretrained backbone's features, and on latents of
a network that learnt the known classes; decision 8."""

EXEMPLARS, DOUBTFUL = 24, 6
"""How many of a cluster's most and least typical images a run folder keeps small copies of."""


@dataclass
class Discovery:
    """Classes found in a pile of images.

    Clusters never change; classes are groups of clusters that a person may name and merge. A class is called by its
    number, the smallest of its clusters' (the largest new one is 1; known ones come last), and numbers are never given
    anew.
    """

    model: Model  # with the backbone as discovery left it
    paths: tuple[str, ...]
    features: Float[Tensor, "n dim"]
    centres: Float[Tensor, "clusters dim"]
    cluster: Int[Tensor, " n"]
    sizes: Int[Tensor, " clusters"]  # images that each centre is the mean of, labelled ones too
    unit: bool  # whether features are compared on the unit sphere
    thumbnails: dict[int, UInt8[Tensor, "channels height width"]]  # of some rows
    known: tuple[str, ...] = ()  # the known classes that were looked for: the last clusters are theirs
    rows: list[Row] = field(default_factory=list)  # one an epoch
    facts: dict[str, str] = field(default_factory=dict)  # how it was made, for people
    truth: tuple[str, ...] | None = None  # the true class of every image; metrics and captions only
    skipped: tuple[str, ...] = ()
    boxes: tuple[Box | None, ...] = ()  # the part of its file that each image is; left out, or None: all of it
    groups: tuple[str, ...] = ()  # dive, burst or camera of each; left out, or "": none was given
    threshold: float = 0.5  # below this confidence an image is unsure
    twins: dict[int, int] = field(default_factory=dict)  # row of a near-duplicate → row of the image it nearly equals
    count: Count | None = None  # how the number of classes was estimated; None: it was given
    moments: tuple[Moment, Moment] | None = None  # before and after training, for figures
    names: dict[int, str] = field(default_factory=dict)  # class number → its name
    numbers: list[int] = field(default_factory=list)  # cluster → class number

    def __post_init__(self) -> None:
        self.boxes = self.boxes or (None,) * len(self.paths)
        self.groups = self.groups or ("",) * len(self.paths)
        if not self.numbers:
            self.numbers = list(range(1, len(self.centres) + 1))
            free = (name for i in itertools.count(1) if (name := f"new-{i}") not in self.model.classes)
            names = [*itertools.islice(free, len(self.numbers) - len(self.known)), *self.known]
            self.names = dict(zip(self.numbers, names, strict=True))

    @property
    def classes(self) -> list[int]:
        """The numbers of the classes, in order."""
        return sorted(set(self.numbers))

    def kind(self, number: int) -> str:
        """Whether a class is known or new; one that has a known cluster is known."""
        first = len(self.numbers) - len(self.known)
        return "known" if number in self.numbers[first:] else "new"

    def confidence(self) -> Float[Tensor, " n"]:
        """The chance that an image's class is right."""
        return chance(lead(self._apart(), self.cluster, self._same_class()), self._trust().right)

    def assignments(self) -> pd.DataFrame:
        """One row per image: path, class and its number ("unsure" and −1 where it is of none for sure), kind,
        confidence, chance that it is new, distance to its centre, the class it would be if it had to be one, and the
        image it nearly equals.
        """
        listed = Listed(self.paths, self.boxes, self.groups)
        table = self._table(listed, listed, self._away(self.features), self._apart(), self.cluster)
        return table.assign(twin=[self.called(self.twins[r]) if r in self.twins else "" for r in range(len(table))])

    def called(self, row: int) -> str:
        """What a person recognises an image by: its path, and the box where it is but a part."""
        return self.paths[row] + at(self.boxes[row])

    def summary(self) -> pd.DataFrame:
        """One row per class that has images: number, name, kind, size, share, how many more are unsure, coherence (mean
        confidence) and newness (mean chance to be new) of all these, nearest class, an exemplar.
        """
        table, guessed = self.assignments(), torch.tensor(self.numbers)[self.cluster].numpy()
        apart = distances(self.centres)
        apart[self._same_class()] = math.inf
        lines = []
        for number in self.classes:
            members = table[guessed == number]
            if members.empty:
                continue
            sure = int((members["kind"] != "unsure").sum())  # a class may be called so
            clusters = [c for c, n in enumerate(self.numbers) if n == number]
            neighbour = int(apart[clusters].min(dim=0).values.argmin())
            lines.append(
                {
                    "class": number,
                    "name": self.names[number],
                    "kind": self.kind(number),
                    "size": sure,
                    "share": round(sure / len(table), 4),
                    "unsure": len(members) - sure,
                    "coherence": round(float(members["confidence"].mean()), 4),
                    "newness": round(float(members["newness"].mean()), 4),
                    "nearest": self.names[self.numbers[neighbour]] if len(self.classes) > 1 else "",
                    "exemplar": self.called(int(members.index[int(members["distance"].argmin())])),
                }
            )
        return pd.DataFrame(lines)

    @property
    def scores(self) -> dict[str, float | str] | None:
        """How well the classes agree with the truth, where it is known: on all images as if none were unsure, and on
        the sure ones. Where known classes were looked for: accuracy by kind too, by one assignment (GCD's), and
        `named`, where a known class is right only under its own name.
        """
        if self.truth is None:
            return None
        labels, guess = self.numbered(self.truth)
        known, sure = len(self.known), self.confidence() >= self.threshold
        found = metrics.scores(labels, guess, len(self.classes))
        if known:
            kinds = metrics.gcd_accuracy(labels, guess, known)
            found |= {"known accuracy": kinds.known, "novel accuracy": kinds.novel}
            found |= {"named accuracy": metrics.task_agnostic(labels, guess, known).all}
        found |= {"unsure": 1 - sure.double().mean().item()}
        if sure.any():
            hits = metrics.right(labels, guess, metrics.matching(labels, guess))  # one assignment: that of all images
            found |= {"sure accuracy": hits[sure].double().mean().item()}
        return {name: value for name, value in found.items() if value == value}  # no known image: no accuracy on them

    def numbered(self, truth: Sequence[str]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """True and found classes as numbers: the known ones that were looked for first, by the same numbers."""
        names = [*self.known, *sorted({*truth} - {*self.known})]
        known = self.numbers[len(self.numbers) - len(self.known) :]
        place = {number: known.index(number) for number in known}
        new = [number for number in self.classes if number not in place]
        place |= {number: len(known) + i for i, number in enumerate(new)}
        guess = torch.tensor([place[self.numbers[cluster]] for cluster in self.cluster.tolist()])
        return torch.tensor([names.index(name) for name in truth]), guess

    def rename(self, number: SupportsIndex, name: str) -> None:
        """Give a class a name."""
        number = index(number)
        self._check(number)
        if not name.strip() or any(name == other for n, other in self.names.items() if n != number):
            raise InputError(f"{name!r} is empty or another class's name; give class {number} a name of its own.")
        self.names[number] = name

    def merge(self, numbers: Iterable[SupportsIndex]) -> int:
        """Make several classes one; it keeps the smallest number, and the name of that class, or of the known one among
        them. Returns the number.
        """
        merged = sorted({index(number) for number in numbers})  # a column of `summary`, or an array, works too
        for number in merged:
            self._check(number)
        if len(merged) < 2:
            raise InputError(f"Found {merged}; merging needs at least two different classes.")
        into = merged[0]
        if known := [self.names[number] for number in merged if self.kind(number) == "known"]:
            self.names[into] = known[0]
        self.numbers = [into if number in merged else number for number in self.numbers]
        self.names = {number: name for number, name in self.names.items() if number in self.numbers}
        return into

    def predict(self, images: str | Path | Images) -> pd.DataFrame:
        """The class of new images, as `assignments` has it. A folder, a list of images or one image is read; files
        that cannot be are left out, and named in the log.
        """
        if isinstance(images, Images):
            return self._said(images, images)
        tables, skipped = zip(*self.predictions(images), strict=True)
        tell_skipped([*itertools.chain.from_iterable(skipped)])
        return pd.concat(tables, ignore_index=True)

    def predictions(self, place: str | Path) -> Iterator[tuple[pd.DataFrame, tuple[str, ...]]]:
        """The same bit by bit, for any number of images; with each table the files that could not be read."""
        listed = pictures(place, labelled=False)
        skipped = listed.skipped
        for rows in torch.arange(len(listed)).split(TOGETHER):
            seen = look(self.model, listed.pick(rows))
            yield self._said(seen, listed), skipped + seen.skipped
            skipped = ()

    def trace(self, before: Moment, after: Moment) -> Trace:
        """The two moments, with the true classes where they are known, else those that were found."""
        found = [self.names[self.numbers[cluster]] for cluster in self.cluster.tolist()]
        names = found if self.truth is None else self.truth
        classes = sorted(set(names))
        labels = torch.tensor([classes.index(names[row]) for row in after.rows.tolist()])
        return Trace(self.facts.get("method", ""), tuple(classes), labels, before, after)

    def save(self, folder: str | Path) -> None:
        """Write the run folder: tables, the model, and all that `load` needs; the report is `newfound report`'s."""
        folder = Path(folder).expanduser()
        self.model.save_pretrained(folder / "model")
        rows = sorted(self.thumbnails)
        tensors = {name: getattr(self, name) for name in TENSORS}
        tensors |= {"thumbnail rows": torch.tensor(rows), "thumbnails": torch.stack([self.thumbnails[r] for r in rows])}
        files.write_tensors(folder / "discovery.safetensors", tensors)
        if self.moments is not None:
            self.trace(*self.moments).save(folder)
        about = {"format": "newfound discovery", "version": VERSION} | {
            key: getattr(self, key)
            for key in (
                *("paths", "boxes", "groups", "unit", "known", "rows", "facts", "scores", "truth", "skipped", "names"),
                *("numbers", "threshold", "twins"),
            )
        }
        if self.count is not None:  # JSON knows no NaN
            curve = [[None if seen != seen else seen for seen in tried] for tried in self.count.curve]
            about["count"] = self.count._asdict() | {"curve": curve}
        files.write(folder / "assignments.csv", csv_text(self.assignments()))
        files.write(folder / "classes.csv", csv_text(self.summary()))
        files.write(folder / "metrics.csv", csv_text(pd.DataFrame(self.rows or {"epoch": []})))
        files.write(folder / "discovery.json", json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False))

    @staticmethod
    def load(folder: str | Path) -> "Discovery":
        """Read a run folder back."""
        folder = Path(folder).expanduser()
        path = folder / "discovery.json"
        if not path.is_file():
            raise InputError(
                f"{folder} holds no finished run: it has no discovery.json. Give a folder that "
                "`newfound discover` wrote; if it was interrupted, run the same command again with --resume."
            )
        try:
            about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if (about.pop("format"), version := about.pop("version")) != ("newfound discovery", VERSION):
                raise InputError(
                    f"{path} has format version {version}; this newfound reads version {VERSION}. "
                    "Use the newfound that wrote it, or run the discovery again."
                )
            about.pop("scores")  # for readers of the file; they follow from the truth
            tensors = load_file(folder / "discovery.safetensors")
            for key in ("names", "twins"):
                about[key] = {int(number): value for number, value in about[key].items()}
            if (count := about.get("count")) is not None:
                curve = [[math.nan if seen is None else seen for seen in tried] for tried in count.pop("curve")]
                about["count"] = Count(**count, curve=tuple(itertools.starmap(Tried, curve)))
            for key in ("paths", "groups", "known", "skipped", "truth"):
                about[key] = None if about[key] is None else tuple(about[key])
            about["boxes"] = tuple(None if box is None else Box(*box) for box in about["boxes"])
            rows, pixels = tensors["thumbnail rows"].tolist(), tensors["thumbnails"]
            about |= {name: tensors[name] for name in TENSORS}
            trace = Trace.load(folder) if (folder / TRACE).is_file() else None
            return Discovery(
                model=Model.from_pretrained(folder / "model"),
                thumbnails=dict(zip(rows, pixels, strict=True)),
                moments=None if trace is None else (trace.before, trace.after),
                **about,
            )
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"The run in {folder} is damaged ({type(error).__name__}: {error}). Copy it again, or run it anew."
            ) from error

    def _check(self, number: int) -> None:
        if number not in self.numbers:
            raise InputError(f"There is no class {number}; there are {', '.join(map(str, self.classes))}.")

    def _away(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n clusters"]:
        """Distances to all centres."""
        return distances(space(features, self.unit), self.centres)

    def _apart(self) -> Float[Tensor, "n clusters"]:
        """Those of the pile's own images, which have a part in the centres."""
        return without_self(self._away(self.features), self.cluster, self.sizes)

    def _trust(self) -> Trust:
        return self.model.trust or (TRUST_LEARNT if self.model.trunk is None else TRUST_FEATURES)

    def _same_class(self) -> Tensor:
        numbers = torch.tensor(self.numbers)
        return numbers[:, None] == numbers

    def _said(self, images: Collection, listed: Collection | Pictures) -> pd.DataFrame:
        """What is said of new images, some of those listed."""
        away = self._away(embed(self.model, images))
        return self._table(Listed.of(images), Listed.of(listed), away, away, away.argmin(dim=1))

    def _table(
        self,
        images: "Listed",
        listed: "Listed",
        away: Float[Tensor, "n clusters"],
        apart: Float[Tensor, "n clusters"],
        cluster: Int[Tensor, " n"],
    ) -> pd.DataFrame:
        """What is said of some of the listed images, which decide on columns: by distances, as they are (`away`) and as
        they are judged (`apart`).
        """
        right = chance(lead(apart, cluster, self._same_class()), self._trust().right)
        new = torch.tensor([self.kind(number) == "new" for number in self.numbers])
        newness = chance(strangeness(apart, new), self._trust().new)
        guess = [self.numbers[c] for c in cluster.tolist()]
        number = [UNSURE if confidence < self.threshold else g for g, confidence in zip(guess, right, strict=True)]
        where: dict[str, list[Any]] = {"path": list(images.paths)}
        if any(listed.boxes):
            for i, side in enumerate(Box._fields):
                where[side] = [math.nan if box is None else box[i] for box in images.boxes]
        if any(listed.groups):
            where["group"] = list(images.groups)
        names, kinds = self.names | {UNSURE: "unsure"}, {n: self.kind(n) for n in self.names} | {UNSURE: "unsure"}
        own = away.gather(1, cluster[:, None])[:, 0]
        return pd.DataFrame(
            where
            | {
                "class": [names[n] for n in number],
                "number": number,
                "kind": [kinds[n] for n in number],
                "confidence": [round(value, 4) for value in right.tolist()],
                "newness": [round(value, 4) for value in newness.tolist()],
                "distance": [round(value, 5) for value in own.tolist()],
                "guess": [names[n] for n in guess],
            }
        )


class Listed(NamedTuple):
    """What is known of images before anybody looks at them."""

    paths: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    groups: tuple[str, ...]

    @staticmethod
    def of(images: Collection | Pictures) -> "Listed":
        """That of images."""
        return Listed(images.names, images.boxes, images.groups)


def tell_skipped(files: Sequence[str]) -> None:
    """Name the files that were left out."""
    if files:
        log.warning(f"{counted(len(files), 'file')} left out as unreadable:\n  " + "\n  ".join(files))


def look(model: Model, listed: Pictures) -> Collection:
    """Pictures as the model sees them: features of its trunk, or pixels."""
    return load(listed, model.size) if model.trunk is None else embedding.embed(listed, model.trunk)


def in_memory(name: str) -> str:
    """Why a pretrained backbone cannot look at pixels that somebody else has read."""
    return f"These images are in memory, and {name} looks at files. Write them to a folder, and give that."


def embed(model: Model, images: Collection) -> Float[Tensor, "n dim"]:
    """Latents of images, in eval mode; not-finite ones are refused."""
    if isinstance(images, Images) and model.trunk is not None:
        raise InputError(in_memory(model.trunk.name))
    if isinstance(images, Images) and (side := images.pixels.shape[-1]) != model.size:
        raise InputError(f"The images are {side} pixels wide; the model sees {model.size}. Read them at that size.")
    if not len(images):
        return torch.empty(0, model.backbone.dim)
    features = survey(model.backbone, images.beside(None)).features.cpu()
    bad = (~features.isfinite().all(dim=1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"The model gives NaN or infinite features for {len(bad)} of {len(features)} images (first: "
            f"{images.names[bad[0]]!r}); clustering needs finite ones. The model is likely damaged or its training "
            "diverged: make it anew with `newfound pretrain`."
        )
    return features


def csv_text(table: pd.DataFrame, *, header: bool = True) -> str:
    """A table as CSV. Names may hold any sign: before Python 3.13 a carriage return is quoted where all text is."""
    text: str = table.to_csv(index=False, header=header, lineterminator="\n")
    if "\r" in text:
        text = table.to_csv(index=False, header=header, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    return text
