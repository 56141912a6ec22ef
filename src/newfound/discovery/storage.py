"""The run folder: every file in it is named here, written here and read here.

Long, for what each file must hold stands beside what reads it.
"""

import hashlib
import itertools
import json
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from newfound import files
from newfound.data.decoding import Box
from newfound.data.listing import Listing
from newfound.discovery.edits import Classes, Edit, classes
from newfound.discovery.found import Clusters, Compared, Fit, Found
from newfound.discovery.journal import EDITS, read_edits
from newfound.discovery.settings import Run
from newfound.discovery.tables import (
    format_csv,
    measure,
    tabulate_assignments,
    tabulate_classes,
    tabulate_history,
)
from newfound.discovery.trace import TRACE, Trace
from newfound.encoders import encoder_of
from newfound.errors import InputError, shorten
from newfound.functional.calibration import Calibration
from newfound.functional.counting import Candidate, Count, Criterion
from newfound.functional.rehearsal import Expected, Way
from newfound.networks.model import EXPECTED, WAY, Model
from newfound.schema import (
    MOST,
    TensorSpec,
    check_tensors,
    damaged,
    each,
    flag,
    maybe,
    needs,
    number,
    one_of,
    read_json,
    read_tensors,
    record,
    row,
    table,
    text,
    whole,
)

CONFIG, LOG, CHECKPOINT = "config.toml", "log.txt", "checkpoint.safetensors"
DISCOVERY, TENSORS, MODEL = "discovery.json", "discovery.safetensors", "model"
ASSIGNMENTS, CLASSES, HISTORY, REPORT = "assignments.csv", "classes.csv", "metrics.csv", "report.html"

RESULTS = (DISCOVERY, TENSORS, TRACE, EDITS, REPORT, f"{MODEL}/model.json", ASSIGNMENTS, CLASSES, HISTORY, "model.json")
"""What of an earlier run would be taken for this one's, were it left where a new run begins."""

VERSION = 4

MEND = "Copy the run again, or make it anew with `newfound discover`."

CHANCE = row(number(), number())  # of a Logistic
CANDIDATE = row(whole(), maybe(number()), maybe(number()), maybe(number()))
SETTINGS = record(
    {
        "method": text,
        "epochs": maybe(whole()),
        "rate": maybe(number(0)),
        "batch": whole(),
        "read_by": text,
        "count_by": text,
        "mixed": flag,
        "unsure": maybe(number(0, 1)),
        "seed": whole(-MOST),
        "device": text,
    }
)
"""How a run was made: `Run`."""

PLAIN = record(
    {
        "root": maybe(text),
        "root from here": maybe(text),
        "names": each(text),
        "boxes": each(maybe(row(number(), number(), number(0), number(0)))),
        "groups": each(text),
        "skipped": each(text),
        "known": each(text, distinct=True),
        "numbers": each(whole(1), distinct=True),
        "threshold": number(-1, 2),
        "truth": maybe(each(text)),
        "history": each(table(number())),
        "unit": flag,
        "calibration": record({"right": CHANCE, "new": CHANCE, "outlier": CHANCE}, optional=("outlier",)),
        "duplicates": table(whole()),
        "comparison": each(row(text, number(0, 1), number(0, 1))),
        "facts": table(text),
        "run": maybe(SETTINGS),
        "called": each(text, distinct=True),
        "used": whole(),
        "way": maybe(record(WAY)),
        "expected": EXPECTED,
        "proposed": each(whole(1), distinct=True),
        "count": maybe(
            record(
                {
                    "classes": whole(),
                    "known": whole(),
                    "least": whole(),
                    "most": whole(),
                    "criterion": one_of(*get_args(Criterion)),
                    "estimates": table(whole()),
                    "curve": each(CANDIDATE),
                }
            )
        ),
    },
    optional=("root from here", "count", "run", "called", "used", "way", "expected", "proposed"),
)
"""What `discovery.json` holds."""

MEASURED = {
    "features": TensorSpec(torch.float32, ("images", "dimensions")),
    "centres": TensorSpec(torch.float32, ("clusters", "dimensions")),
    "assignment": TensorSpec(torch.int64, ("images",), below="clusters"),
    "sizes": TensorSpec(torch.int64, ("clusters",)),
    "thumbnail rows": TensorSpec(torch.int64, ("thumbnails",), below="images", distinct=True),
}
"""What `discovery.safetensors` holds, beside the thumbnails."""

FITTED = {
    "along": TensorSpec(torch.float32, ("images", "axes")),
    "beside": TensorSpec(torch.float32, ("images",)),
    "centres along": TensorSpec(torch.float32, ("clusters", "axes")),
}
"""Where outliers show, in the order of `Fit`: all or nothing of it is there."""

THUMBNAILS = {"thumbnails": TensorSpec(torch.uint8, ("thumbnails", "channels", "height", "width"))}

REFERENCE = "references "
"""Before the place of a known class, the name of the small copies of its labelled images."""


def identify(folder: Path) -> str | None:
    """What tells the run in a folder from any other: the digest of its `discovery.json`; None: there is none."""
    path = folder / DISCOVERY
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def clear(folder: Path) -> None:
    """Take away what would be read as another run's, were that written here and interrupted, or had it no such file."""
    for name in (DISCOVERY, TRACE, EDITS):  # the first says that there is a run
        (folder / name).unlink(missing_ok=True)


def write_found(found: Found, folder: Path) -> None:
    """Write what was measured; `discovery.json`, the last of its files, says that all are there."""
    found.model.save_pretrained(folder / MODEL)
    rows = sorted(found.thumbnails)
    tensors = {
        "features": found.features,
        "centres": found.clusters.centres,
        "assignment": found.clusters.assignment,
        "sizes": found.clusters.sizes,
        "thumbnail rows": torch.tensor(rows, dtype=torch.long),
        "thumbnails": torch.stack([found.thumbnails[row] for row in rows]) if rows else torch.empty(0),
    }
    tensors |= {f"{REFERENCE}{place}": copies for place, copies in found.references.items()}
    if found.fit is not None:
        tensors |= dict(zip(FITTED, found.fit, strict=True))
    files.write_tensors(folder / TENSORS, tensors)
    if found.moments is not None:
        _trace(found).save(folder)
    files.write(folder / HISTORY, format_csv(tabulate_history(found)))
    about = {"format": "newfound discovery", "version": VERSION} | _plain(found, folder)
    files.write(folder / DISCOVERY, json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False))


def write_tables(now: Classes, folder: Path) -> None:
    """Write what follows from the present classes, for people."""
    files.write(folder / ASSIGNMENTS, format_csv(tabulate_assignments(now)))
    files.write(folder / CLASSES, format_csv(tabulate_classes(now)))


def read_run(folder: str | Path) -> tuple[Found, list[Edit], bool]:
    """What was measured, what people said of it, and whether all of that stands in the folder's journal."""
    folder = Path(folder).expanduser()
    path = folder / DISCOVERY
    if not path.is_file():
        below = [str(run.parent) for run in sorted(folder.glob(f"*/{DISCOVERY}"))]
        there = f" Runs are in {shorten(below)}." if below else ""
        raise InputError(
            f"{folder} holds no finished run: it has no {DISCOVERY}.{there} Give a folder that "
            "`newfound discover` wrote; if it was interrupted, run the same command again with --resume."
        )
    about = read_json(path, MEND)
    version = about.get("version") if about.get("format") == "newfound discovery" else None
    if version not in (3, VERSION):
        raise InputError(
            f"{path} has format version {version}; this newfound reads version {VERSION}. "
            "Use the newfound that wrote it, or run the discovery again."
        )
    tensors, _ = read_tensors(folder / TENSORS, MEND)
    model = Model.from_pretrained(folder / MODEL)
    if version == 3:  # its edits are in no journal yet
        try:
            return *_of_version_3(about, tensors, folder, model), False
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise damaged(path, error, MEND) from error
    found, edits = _found(about, tensors, folder, model), read_edits(folder)
    if edits:
        try:
            classes(found, edits)
        except InputError as error:
            raise damaged(folder / EDITS, error, "Take the file from a backup.") from error
    return found, edits, True


def _check(about: dict[str, Any], tensors: dict[str, Tensor], folder: Path, model: Model) -> None:
    """Refuse a run whose files do not hold what they should, or do not fit each other."""
    try:
        PLAIN(about, "")
        images, clusters, known = (len(about[name]) for name in ("names", "numbers", "known"))
        needs(images > 0 and clusters > 0, "names", images, "one image at least, and one class")
        for name in ("boxes", "groups", *(() if about["truth"] is None else ("truth",))):
            needs(len(about[name]) == images, name, f"of {len(about[name])} images", str(images))
        ours = known <= clusters and {*about["known"]} <= {*model.classes}
        needs(ours, "known", about["known"], "some of the model's classes, one cluster each")
        called = about.get("called", ())
        needs(len(called) in (0, clusters), "called", f"{len(called)} names", f"{clusters}, one for each cluster")
        proposed = about.get("proposed", ())
        needs({*proposed} <= {*about["numbers"][known:]}, "proposed", proposed, "numbers of new classes")
        for one, other in about["duplicates"].items():
            fits = one.isascii() and one.isdecimal() and len(one) < 16 and int(one) != other
            needs(fits and max(int(one), other) < images, "duplicates", f"{one}: {other}", f"rows below {images}")
        count = about.get("count")
        needs(count is None or count["known"] <= count["classes"], "count.known", count, "at most all classes")
    except ValueError as error:
        raise damaged(folder / DISCOVERY, error, MEND) from error
    try:
        lengths = {"images": images, "clusters": clusters, "dimensions": model.backbone.dim}
        check_tensors(tensors, MEASURED, lengths)
        if FITTED.keys() & tensors.keys():
            check_tensors(tensors, FITTED, lengths)
        if lengths["thumbnails"]:
            check_tensors(tensors, THUMBNAILS, lengths)
        for name in (name for name in tensors if name.startswith(REFERENCE)):
            place = name.removeprefix(REFERENCE)
            fits = place.isascii() and place.isdecimal() and int(place) < known
            needs(fits, name, "there", f"references of known classes, whose places are below {known}")
            check_tensors(
                tensors, {name: TensorSpec(torch.uint8, (name, "colours", f"rows of {name}", "columns"))}, lengths
            )
    except ValueError as error:
        raise damaged(folder / TENSORS, error, MEND) from error


def _plain(found: Found, folder: Path) -> dict[str, Any]:
    """What of a discovery JSON can hold."""
    listing = found.listing
    where = None if listing.root is None else os.path.abspath(listing.root)  # noqa: PTH100 (keeps symlinks)
    about: dict[str, Any] = {
        "root": where,
        "root from here": None if where is None else _relative(where, folder),
        **{key: getattr(listing, key) for key in ("names", "boxes", "groups", "skipped")},
        **{key: getattr(found, key) for key in ("known", "numbers", "threshold", "truth", "history")},
        "unit": found.clusters.unit,
        "calibration": found.calibration.asdict(),
        "duplicates": dict(found.duplicates),
        "comparison": found.comparison,
        "facts": dict(found.facts),
        "scores": measure(classes(found)),  # for readers of the file; they follow from the truth
        "run": None if found.run is None else asdict(found.run),
        "way": None if found.way is None else found.way._asdict(),
        "expected": found.expected,
    }
    if found.called:
        about |= {"called": found.called, "used": found.used}
    if found.proposed:
        about |= {"proposed": found.proposed}
    if found.count is not None:  # JSON knows no NaN
        curve = [[None if seen != seen else seen for seen in tried] for tried in found.count.curve]
        about["count"] = found.count._asdict() | {"curve": curve}
    return about


def _found(about: dict[str, Any], tensors: dict[str, Tensor], folder: Path, model: Model) -> Found:
    _check(about, tensors, folder, model)
    names = tuple(about["names"])
    listing = Listing(
        _root(about, folder),
        names,
        torch.full((len(names),), -1),
        (),
        tuple(None if box is None else Box(*box) for box in about["boxes"]),
        tuple(about["groups"]),
        tuple(about["skipped"]),
    )
    trace = Trace.load(folder) if (folder / TRACE).is_file() else None
    clusters = Clusters(tensors["assignment"], tensors["centres"], tensors["sizes"], about["unit"])
    return Found(
        listing,
        model,
        tensors["features"],
        clusters,
        Calibration.of(about["calibration"]),
        about["threshold"],
        Fit(*(tensors[name] for name in FITTED)) if FITTED.keys() & tensors.keys() else None,
        known=tuple(about["known"]),
        numbers=tuple(about["numbers"]),
        duplicates={int(row): other for row, other in about["duplicates"].items()},
        thumbnails=dict(zip(tensors["thumbnail rows"].tolist(), tensors.get("thumbnails", ()), strict=False)),
        references={
            int(name.removeprefix(REFERENCE)): copies for name, copies in tensors.items() if name.startswith(REFERENCE)
        },
        history=tuple(about["history"]),
        count=_count(about.get("count")),
        truth=None if about["truth"] is None else tuple(about["truth"]),
        moments=None if trace is None else (trace.before, trace.after),
        comparison=tuple(itertools.starmap(Compared, about["comparison"])),
        facts=about["facts"],
        run=_run(about.get("run"), folder),
        called=tuple(about.get("called", ())),
        used=about.get("used", 0),
        way=None if about.get("way") is None else Way(*(about["way"][name] for name in Way._fields)),
        expected=None if about.get("expected") is None else Expected(*about["expected"]),
        proposed=tuple(about.get("proposed", ())),
    )


def _run(about: dict[str, Any] | None, folder: Path) -> Run | None:
    """The settings, by the names that they have now."""
    if about is None:
        return None
    try:
        return Run(**{field.name: about[field.name] for field in fields(Run)})
    except InputError as error:
        raise damaged(folder / DISCOVERY, error, MEND) from error


def _count(about: dict[str, Any] | None) -> Count | None:
    if about is None:
        return None
    curve = [[math.nan if seen is None else seen for seen in tried] for tried in about["curve"]]
    return Count(**about | {"curve": tuple(itertools.starmap(Candidate, curve))})


def _of_version_3(
    about: dict[str, Any], tensors: dict[str, Tensor], folder: Path, model: Model
) -> tuple[Found, list[Edit]]:
    """A run of version 3, in which known classes came last, and merged and renamed classes took the places of those
    that were found: what was done is told by edits. Numbers keep their meaning.
    """
    known, clusters = len(about["known"]), len(tensors["centres"])
    order = [*range(clusters - known, clusters), *range(clusters - known)]
    tensors |= {name: tensors[name][order] for name in ("centres", "sizes")}
    tensors["assignment"] = torch.tensor(order).argsort()[tensors.pop("cluster")]
    count = about.get("count")
    renewed = about | {
        "names": about["paths"],
        "root": _root_of_version_3(folder),
        "numbers": [place + 1 for place in order],
        "duplicates": about["twins"],
        "history": about["rows"],
        "calibration": (model.calibration or encoder_of(model).calibration)._replace(outlier=None).asdict(),
        "comparison": (),
        "count": None if count is None else {("criterion" if k == "voice" else k): v for k, v in count.items()},
    }
    found = _found(renewed, tensors, folder, model)
    called = {int(number): name for number, name in about["names"].items()}
    return found, _edits_of_version_3(found, [about["numbers"][place] for place in order], called)


def _edits_of_version_3(found: Found, now: Sequence[int], called: dict[int, str]) -> list[Edit]:
    """What makes these classes (by cluster) and names (by number) of those that were found."""
    edits = []
    for into in sorted(set(now)):
        merged = [
            number for number, class_ in zip(found.numbers, now, strict=True) if class_ == into and number != into
        ]
        edits += [Edit("merge", (into, *merged))] if merged else []
    names = classes(found, edits).names
    return edits + [Edit("rename", (n,), names=(name,)) for n, name in called.items() if names[n] != name]


def _trace(found: Found) -> Trace:
    """The two moments, with the true classes where they are known, else those that were found."""
    assert found.moments is not None
    before, after = found.moments
    called = found.names  # made anew whenever it is asked for
    names = found.truth or [called[cluster] for cluster in found.clusters.assignment.tolist()]
    words = sorted(set(names))
    place = {word: i for i, word in enumerate(words)}
    labels = torch.tensor([place[names[row]] for row in after.rows.tolist()])
    return Trace(found.facts.get("method", ""), tuple(words), labels, before, after)


def _relative(root: str, folder: Path) -> str | None:
    try:
        return os.path.relpath(root, os.path.abspath(folder))  # noqa: PTH100
    except ValueError:  # another drive
        return None


def _root(about: dict[str, Any], folder: Path) -> Path | None:
    """Where the images are: where they were from the run folder, if they moved together, or where they were."""
    near = about.get("root from here")
    if near is not None and (beside := Path(os.path.normpath(folder.absolute() / near))).is_dir():
        return beside
    return None if about["root"] is None else Path(about["root"])


def _root_of_version_3(folder: Path) -> str | None:
    """The folder that names start at, by the run's settings: that of the images, or of the list of them."""
    path = folder / CONFIG
    settings = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    place = settings.get("discover", {}).get("unlabelled")
    return None if place is None else str(Path(place) if Path(place).is_dir() else Path(place).parent)


def locate(found: Found, root: Path | None = None) -> Found:
    """The same with its images below another folder, where they have moved; refused where they are not."""
    if root is not None:
        found = replace(found, listing=replace(found.listing, root=root))
    listing = found.listing
    if listing.root is None:
        raise InputError("These images were in memory, and lie in no folder. Save them to one, and give it (--images).")
    if lost := [name for name, file in zip(listing.names, listing.files, strict=True) if not file.is_file()]:
        raise InputError(
            f"{len(lost)} of {len(listing)} images are not in {listing.root} any more (first: {lost[0]!r}). Needed: "
            "all of them. Say where they are now (--images), or put them back."
        )
    return found
