"""Discovery: everything a run found, for people and for programs."""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from newfound import files
from newfound.data.collection import Collection
from newfound.data.decoding import Box
from newfound.data.pictures import Pictures, pictures
from newfound.data.sources import Images, load
from newfound.discovery.trace import Moment, Trace
from newfound.errors import InputError
from newfound.functional.geometry import distances
from newfound.methods.base import Sum
from newfound.networks.model import Model
from newfound.training import embedding
from newfound.training.loop import Learner, Row, survey

VERSION = 2
TOGETHER = 1024
"""Images of a pile whose classes are said at once."""

EXEMPLARS, DOUBTFUL = 24, 6
"""How many of a cluster's most and least typical images a run folder keeps small copies of."""


@dataclass
class Discovery:
    """Classes found in a pile of images.

    Clusters never change; classes are groups of clusters that a person may name and merge. A class is known by its
    number, the smallest of its clusters' (the largest cluster is 1), and numbers are never given anew.
    """

    model: Model  # with the backbone as discovery left it
    paths: tuple[str, ...]
    features: Float[Tensor, "n dim"]
    centres: Float[Tensor, "clusters dim"]
    cluster: Int[Tensor, " n"]
    unit: bool  # whether features are compared on the unit sphere
    thumbnails: dict[int, UInt8[Tensor, "channels height width"]]  # of some rows
    rows: list[Row] = field(default_factory=list)  # one an epoch
    facts: dict[str, str] = field(default_factory=dict)  # how it was made, for people
    scores: dict[str, float | str] | None = None  # only where the truth is known
    truth: tuple[str, ...] | None = None  # the true class of every image; metrics and captions only
    skipped: tuple[str, ...] = ()
    boxes: tuple[Box | None, ...] = ()  # the part of its file that each image is; left out, or None: all of it
    moments: tuple[Moment, Moment] | None = None  # before and after training, for figures; `load` leaves them on disk
    names: dict[int, str] = field(default_factory=dict)  # class number → its name
    group: list[int] = field(default_factory=list)  # cluster → class number

    def __post_init__(self) -> None:
        if not self.group:
            self.group = list(range(1, len(self.centres) + 1))
            self.names = {number: f"new-{number}" for number in self.group}

    @property
    def classes(self) -> list[int]:
        """The numbers of the classes, in order."""
        return sorted(set(self.group))

    def assignments(self) -> pd.DataFrame:
        """One row an image: path, class, distance to its centre, confidence."""
        return self._table(self.paths, self.boxes, self.features, self.cluster)

    def summary(self) -> pd.DataFrame:
        """One row a class: number, name, size, share, coherence (mean confidence), nearest class, an exemplar."""
        table = self.assignments().assign(number=[self.group[c] for c in self.cluster.tolist()])
        apart = distances(self.centres)
        apart[self._same_class()] = math.inf
        lines = []
        for number in self.classes:
            members = table[table["number"] == number]
            clusters = [c for c, n in enumerate(self.group) if n == number]
            neighbour = int(apart[clusters].min(dim=0).values.argmin())
            lines.append(
                {
                    "class": number,
                    "name": self.names[number],
                    "size": len(members),
                    "share": round(len(members) / len(table), 4),
                    "coherence": round(float(members["confidence"].mean()), 4),
                    "nearest": self.names[self.group[neighbour]] if len(self.classes) > 1 else "",
                    "exemplar": members.sort_values("distance", kind="stable")["path"].iloc[0],
                }
            )
        return pd.DataFrame(lines)

    def rename(self, number: int, name: str) -> None:
        """Give a class a name."""
        self._check(number)
        if not name.strip() or any(name == other for n, other in self.names.items() if n != number):
            raise InputError(f"{name!r} is empty or another class's name; give class {number} a name of its own.")
        self.names[number] = name

    def merge(self, numbers: Sequence[int]) -> int:
        """Make several classes one; it keeps the smallest number, and that class's name. Returns the number."""
        for number in numbers:
            self._check(number)
        if len(set(numbers)) < 2:
            raise InputError(f"Found {list(numbers)}; merging needs at least two different classes.")
        into = min(numbers)
        self.group = [into if number in numbers else number for number in self.group]
        self.names = {number: name for number, name in self.names.items() if number in self.group}
        return into

    def predict(self, images: str | Path | Images) -> pd.DataFrame:
        """The class of new images: path, class, distance, confidence. A folder is read, or a list of images."""
        if isinstance(images, Images):
            return self._said(images)
        return pd.concat([table for table, _ in self.predictions(images)], ignore_index=True)

    def predictions(self, place: str | Path) -> Iterator[tuple[pd.DataFrame, tuple[str, ...]]]:
        """The same bit by bit, for any number of images; with each table the files that could not be read."""
        listed = pictures(place, labelled=False)
        skipped = listed.skipped
        for rows in torch.arange(len(listed)).split(TOGETHER):
            seen = look(self.model, listed.pick(rows))
            yield self._said(seen), skipped + seen.skipped
            skipped = ()

    def trace(self, before: Moment, after: Moment) -> Trace:
        """The two moments, with the true classes where they are known, else those that were found."""
        found = [self.names[self.group[cluster]] for cluster in self.cluster.tolist()]
        names = found if self.truth is None else self.truth
        classes = sorted(set(names))
        labels = torch.tensor([classes.index(names[row]) for row in after.rows.tolist()])
        return Trace(self.facts.get("method", ""), tuple(classes), labels, before, after)

    def save(self, folder: str | Path) -> None:
        """Write the run folder: tables, the model, and all that `load` needs."""
        folder = Path(folder)
        self.model.save(folder / "model")
        rows = sorted(self.thumbnails)
        tensors = {"features": self.features, "centres": self.centres, "cluster": self.cluster}
        tensors |= {"thumbnail rows": torch.tensor(rows), "thumbnails": torch.stack([self.thumbnails[r] for r in rows])}
        files.write_tensors(folder / "discovery.safetensors", tensors)
        if self.moments is not None:
            self.trace(*self.moments).save(folder)
        about = {"format": "newfound discovery", "version": VERSION} | {
            key: getattr(self, key)
            for key in ("paths", "boxes", "unit", "rows", "facts", "scores", "truth", "skipped", "names", "group")
        }
        files.write(folder / "assignments.csv", _csv(self.assignments()))
        files.write(folder / "classes.csv", _csv(self.summary()))
        files.write(folder / "metrics.csv", _csv(pd.DataFrame(self.rows)))
        files.write(folder / "discovery.json", json.dumps(about, indent=1, ensure_ascii=False))

    @staticmethod
    def load(folder: str | Path) -> "Discovery":
        """Read a run folder back."""
        folder = Path(folder)
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
            tensors = load_file(folder / "discovery.safetensors")
            about["names"] = {int(number): name for number, name in about["names"].items()}
            for key in ("paths", "skipped", "truth"):
                about[key] = None if about[key] is None else tuple(about[key])
            about["boxes"] = tuple(None if box is None else Box(*box) for box in about["boxes"])
            rows, pixels = tensors["thumbnail rows"].tolist(), tensors["thumbnails"]
            return Discovery(
                model=Model.load(folder / "model"),
                features=tensors["features"],
                centres=tensors["centres"],
                cluster=tensors["cluster"],
                thumbnails=dict(zip(rows, pixels, strict=True)),
                **about,
            )
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"The run in {folder} is damaged ({type(error).__name__}: {error}). Copy it again, or run it anew."
            ) from error

    def _check(self, number: int) -> None:
        if number not in self.group:
            raise InputError(f"There is no class {number}; there are {', '.join(map(str, self.classes))}.")

    def _space(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        return F.normalize(features, dim=1) if self.unit else features

    def _same_class(self) -> Tensor:
        group = torch.tensor(self.group)
        return group[:, None] == group

    def _said(self, images: Collection) -> pd.DataFrame:
        features = embed(self.model, images)
        cluster = torch.cdist(self._space(features), self.centres).argmin(dim=1)
        return self._table(images.names, images.boxes, features, cluster)

    def _table(
        self,
        paths: Sequence[str],
        boxes: Sequence[Box | None],
        features: Float[Tensor, "n dim"],
        cluster: Int[Tensor, " n"],
    ) -> pd.DataFrame:
        """Distance d is to the centre of the image's cluster; confidence 1 − d/d′ with d′ to the nearest of another
        class: 1 at a centre, 0 half-way between two.
        """
        d = torch.cdist(self._space(features), self.centres)
        own = d.gather(1, cluster[:, None])[:, 0]
        other = d.masked_fill(self._same_class()[cluster], math.inf).min(dim=1).values
        places: dict[str, list[float]] = {}
        if any(boxes):
            places = {
                side: [math.nan if box is None else box[i] for box in boxes] for i, side in enumerate(Box._fields)
            }
        return pd.DataFrame(
            {"path": list(paths)}
            | places
            | {
                "class": [self.names[self.group[c]] for c in cluster.tolist()],
                "distance": [round(value, 5) for value in own.tolist()],
                "confidence": [round(value, 4) for value in (1 - own / other).clamp(min=0).nan_to_num(0).tolist()],
            }
        )


def look(model: Model, listed: Pictures) -> Collection:
    """Pictures as the model sees them: features of its trunk, or pixels."""
    return load(listed, model.size) if model.trunk is None else embedding.embed(listed, model.trunk)


def embed(model: Model, images: Collection) -> Float[Tensor, "n dim"]:
    """Latents of images, in eval mode; not-finite ones are refused."""
    if isinstance(images, Images) and (side := images.pixels.shape[-1]) != model.size:
        raise InputError(f"The images are {side} pixels wide; the model sees {model.size}. Read them at that size.")
    if not len(images):
        return torch.empty(0, model.backbone.dim)
    features = survey(Learner(model.backbone, Sum()), images.beside(None)).features.cpu()
    bad = (~features.isfinite().all(dim=1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"The model gives NaN or infinite features for {len(bad)} of {len(features)} images (first: "
            f"{images.names[bad[0]]!r}); clustering needs finite ones. The model is likely damaged or its training "
            "diverged: make it anew with `newfound pretrain`."
        )
    return features


def _csv(table: pd.DataFrame) -> str:
    text = io.StringIO()
    table.to_csv(text, index=False, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    return text.getvalue()
