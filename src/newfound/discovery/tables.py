"""Found and edits as tables: a row an image, a row a class, and how right they are."""

import csv
import math
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound.data.collection import Collection
from newfound.data.decoding import Box
from newfound.data.listing import Listing
from newfound.discovery.edits import NOBODY, Classes
from newfound.discovery.found import Found
from newfound.discovery.outliers import judge_other_outliers, judge_outliers
from newfound.encoders import embed, encoder_of
from newfound.functional import metrics
from newfound.functional.axes import Coordinates
from newfound.functional.calibration import leave_one_out, log_margin, novelty_score, probability, withhold_names
from newfound.functional.geometry import distances

UNSURE, ASIDE, OUTLIER = -1, -2, -3
"""The numbers of images that are of no class for sure, of those that were set aside, and of those that fit none."""

WORDS = {UNSURE: "unsure", OUTLIER: "outlier", ASIDE: "set aside"}

COLUMNS = [
    "number",
    "class",
    "kind",
    "size",
    "share",
    "unsure",
    "outliers",
    "coherence",
    "newness",
    "nearest",
    "exemplar",
    "reviewed",
]
"""What is said of a class; said too where no class has an image."""

TEXT = {
    *("path", "group", "class", "kind", "guess", "identified_by", "duplicate_of", "verification"),
    *("nearest", "exemplar"),
    *("concept", "image", "observer"),  # FathomNet's, then Darwin Core's
    *("occurrenceID", "basisOfRecord", "occurrenceStatus", "verbatimIdentification", "identifiedBy"),
    *("identificationVerificationStatus", "eventID", "associatedMedia", "dynamicProperties"),
    *("told", "folder", "proposal"),  # of what is watched
}
"""Columns of tables that hold words."""

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
"""How cells begin that spreadsheets run, or would once their first signs are dropped."""

ALGORITHM = "newfound"
"""Who identified an image that no person has decided on."""


class Judged(NamedTuple):
    """What is thought of some images."""

    guess: Int[Tensor, " n"]  # the class each would be, if it had to be one
    confidence: Float[Tensor, " n"]  # the probability that this is right
    newness: Float[Tensor, " n"]  # that its class is new
    outlier: Float[Tensor, " n"]  # that it is of none of these classes
    distance: Float[Tensor, " n"]  # to the centre it goes by


def judge(now: Classes) -> Judged:
    """The images that were discovered in, each as if it drew no centre to itself; what a person decided is sure."""
    apart = leave_one_out(now.distances, now.own, now.sizes)
    judged = _judge(now, apart, now.own, now.assignment, judge_outliers(now))
    own = now.distances.gather(1, now.own[:, None])[:, 0]
    rows = torch.tensor([*now.decided], dtype=torch.long)
    new = torch.tensor([float(now.kind(number) == "new") for number in now.assignment[rows].tolist()])
    return judged._replace(
        confidence=judged.confidence.index_fill(0, rows, 1.0),
        newness=judged.newness.index_copy(0, rows, new.to(judged.newness)),
        distance=own,
    )


def judge_others(now: Classes, features: Float[Tensor, "m dim"], seen: Coordinates | None = None) -> Judged:
    """Images that no centre knows yet: their latents, and where they lie among features, if there are such."""
    away = now.mask(distances(now.found.compare(features), now.centres))
    own = away.argmin(1)
    return _judge(now, away, own, now.owners[own], judge_other_outliers(now, features, seen))


def _judge(
    now: Classes,
    away: Float[Tensor, "m centres"],
    own: Int[Tensor, " m"],
    guess: Int[Tensor, " m"],
    outlier: Float[Tensor, " m"],
) -> Judged:
    """What distances mean.

        P(right) = P(right | of a class) · (1 − P(outlier)) ≤ P(new) of a new class, ≤ 1 − P(new) of a known one

    A class is right only if its kind is. Two lines are fitted to two scores, and where these disagree the nearest other
    class, which P(right) looks at, knows better. One that is given a class though it is likelier wrong, for somebody
    wants no image unsure, is as likely new as not.
    """
    calibration, owners = now.found.calibration, now.owners
    new = torch.tensor([number != NOBODY and now.kind(number) == "new" for number in owners.tolist()])
    known = torch.tensor([number != NOBODY and now.kind(number) == "known" for number in owners.tolist()])
    there = new | known
    confidence = probability(log_margin(away, own, owners[:, None] == owners), calibration.right) * (1 - outlier)
    newness = probability(novelty_score(away[:, there], new[there]), calibration.new)
    unnamed = torch.logical_or(*withhold_names(confidence, outlier, now.found.threshold))
    surely = confidence.where(unnamed, confidence.clamp(min=0.5))
    fresh = torch.tensor([now.kind(number) == "new" for number in guess.tolist()], dtype=torch.bool)
    newness = torch.where(fresh, newness.maximum(surely), newness.minimum(1 - surely))
    return Judged(guess, confidence, newness, outlier, away.gather(1, own[:, None])[:, 0])


def answer_images(now: Classes) -> Int[Tensor, " n"]:
    """The number of each image's class, −1 where it is unsure, −2 where it was set aside: as tables say it."""
    return _answer(now, judge(now))


def named_confidence(now: Classes) -> Float[Tensor, " n"]:
    """The confidence of every image that has a class for sure; 0 of the others, however sure their classes would be."""
    judged = judge(now)
    return judged.confidence.masked_fill(_answer(now, judged) < 0, 0.0)


def tabulate_assignments(now: Classes) -> pd.DataFrame:
    """One row per image: path, class and its number (unsure and −1 where it is of none for sure, set aside and −2,
    outlier and −3 where it fits none), kind, confidence, probability that it is new, and that it is an outlier,
    distance to its centre, the class it would be if it had to be one, who identified it, and the image it nearly
    equals.
    """
    found, judged = now.found, judge(now)
    table = _tabulate(now, found.listing, judged, _answer(now, judged), columns_of=found.listing)
    by = [now.decided.get(row, ALGORITHM) for row in range(len(found))]
    same = [found.caption(found.duplicates[row]) if row in found.duplicates else "" for row in range(len(found))]
    return table.assign(identified_by=by, duplicate_of=same)


def tabulate_predictions(
    now: Classes,
    listing: Listing,
    features: Float[Tensor, "m dim"],
    seen: Coordinates | None = None,
    *,
    columns_of: Listing | None = None,
) -> pd.DataFrame:
    """What is said of images that were not discovered in, some of those whose listing decides on columns."""
    judged = judge_others(now, features, seen)
    return _tabulate(now, listing, judged, _name(now, judged), columns_of=columns_of or listing)


def tabulate_others(now: Classes, images: Collection, columns_of: Listing) -> pd.DataFrame:
    """The same of images as the backbone is given them."""
    model = now.found.model
    features, seen = embed(model, images), encoder_of(model).coordinates(model, images)
    return tabulate_predictions(now, images.listing, features, seen, columns_of=columns_of)


def _answer(now: Classes, judged: Judged) -> Int[Tensor, " n"]:
    """The class of each image, or that it has none."""
    decided = torch.zeros(len(judged.guess), dtype=torch.bool)
    decided[[*now.decided]] = True
    return judged.guess.where(decided, _name(now, judged)).masked_fill(now.aside, ASIDE)


def _name(now: Classes, judged: Judged) -> Int[Tensor, " n"]:
    """The class of each image on which nobody has decided."""
    unsure, outlier = withhold_names(judged.confidence, judged.outlier, now.found.threshold)
    return judged.guess.masked_fill(unsure, UNSURE).masked_fill(outlier, OUTLIER)


def _tabulate(
    now: Classes, listing: Listing, judged: Judged, numbers: Int[Tensor, " m"], *, columns_of: Listing
) -> pd.DataFrame:
    where: dict[str, list[Any]] = {"path": list(listing.names)}
    if any(columns_of.boxes):
        for i, side in enumerate(Box._fields):
            where[side] = [math.nan if box is None else box[i] for box in listing.boxes]
    if any(columns_of.groups):
        where["group"] = list(listing.groups)
    names = now.names | WORDS
    kinds = {number: now.kind(number) for number in now.names} | WORDS
    return pd.DataFrame(
        where
        | {
            "class": [names[number] for number in numbers.tolist()],
            "number": numbers.tolist(),
            "kind": [kinds[number] for number in numbers.tolist()],
            "confidence": [round(value, 4) for value in judged.confidence.tolist()],
            "newness": [round(value, 4) for value in judged.newness.tolist()],
            "outlier": [round(value, 4) for value in judged.outlier.tolist()],
            "distance": [round(value, 5) for value in judged.distance.tolist()],
            "guess": [now.names[number] for number in judged.guess.tolist()],
        }
    )


def tabulate_classes(now: Classes) -> pd.DataFrame:
    """One row per class that has images: number, name, kind, size, share, how many more are unsure, and outliers that
    are nearest to it; coherence (mean confidence) and newness (mean probability to be new) of all these, nearest class,
    an exemplar, how many of its images a person has decided on.
    """
    judged, found = judge(now), now.found
    answer = _answer(now, judged)
    decided = torch.zeros(len(found), dtype=torch.bool)
    decided[[*now.decided]] = True
    neighbours = _neighbours(now)
    lines = []
    for number in now.numbers:
        members = now.rows(number)
        if not len(members):
            continue
        size = int((answer[members] == number).sum())
        lines.append(
            {
                "number": number,
                "class": now.names[number],
                "kind": now.kind(number),
                "size": size,
                "share": round(size / len(found), 4),
                "unsure": int((answer[members] == UNSURE).sum()),
                "outliers": int((answer[members] == OUTLIER).sum()),
                "coherence": _mean(judged.confidence[members]),
                "newness": _mean(judged.newness[members]),
                "nearest": now.names.get(neighbours.get(number, NOBODY), ""),
                "exemplar": found.caption(int(members[judged.distance[members].argmin()])),
                "reviewed": int(decided[members].sum()),
            }
        )
    return pd.DataFrame(lines, columns=COLUMNS)


def tabulate_history(found: Found) -> pd.DataFrame:
    """One row per epoch: what the method wrote down. Without its seconds, which no other run would repeat."""
    return pd.DataFrame(found.history or {"epoch": []}).drop(columns="seconds", errors="ignore")


def _mean(values: Float[Tensor, " n"]) -> float:
    """The mean of values as tables show them."""
    return round(sum(round(value, 4) for value in values.tolist()) / len(values), 4)


def _neighbours(now: Classes) -> dict[int, int]:
    """The class nearest to each, by the nearest two of their centres."""
    apart = distances(now.centres)
    apart[now.owners[:, None] == now.owners] = math.inf
    apart[:, now.owners == NOBODY] = math.inf
    nearest = {}
    for number in now.numbers:
        away = apart[now.owners == number].amin(0) if (now.owners == number).any() else torch.tensor([math.inf])
        if away.isfinite().any():
            nearest[number] = int(now.owners[away.argmin()])
    return nearest


def find_nearest_known(now: Classes) -> dict[int, int]:
    """The known class nearest to each new one, by the nearest two of their centres; nothing where none is known."""
    known = torch.tensor([number in now.known for number in now.owners.tolist()])
    if not known.any():
        return {}
    apart = distances(now.centres, now.centres[known])
    return {
        number: int(now.owners[known][apart[now.owners == number].amin(0).argmin()])
        for number in now.numbers
        if now.kind(number) == "new" and (now.owners == number).any()
    }


def measure(now: Classes) -> dict[str, float] | None:
    """How well the classes agree with the truth, where it is known: on all images as if none were unsure, and on the
    sure ones. Where known classes were looked for: accuracy by kind too, by one assignment (GCD's), and `named`, where
    a known class is right only under its own name. Images that were set aside do not count.
    """
    found, judged = now.found, judge(now)
    if found.truth is None or now.aside.all():
        return None
    kept = ~now.aside
    labels, guess = (values[kept] for values in number_truth(now, found.truth))
    answer = _answer(now, judged)[kept]
    known, sure = len(found.known), answer > 0
    scores = {k: v for k, v in metrics.scores(labels, guess, len(now.names)).items() if isinstance(v, float)}
    if known:
        kinds = metrics.gcd_accuracy(labels, guess, known)
        scores |= {"known accuracy": kinds.known, "novel accuracy": kinds.novel}
        scores |= {"named accuracy": metrics.task_agnostic(labels, guess, known).all}
    scores |= {"unsure": (answer == UNSURE).double().mean().item()}
    if found.calibration.outlier is not None:
        scores |= {"outlier": (answer == OUTLIER).double().mean().item()}
    if sure.any():
        hits = metrics.right(labels, guess, metrics.matching(labels, guess))  # one assignment: that of all images
        scores |= {"sure accuracy": hits[sure].double().mean().item()}
    return {name: value for name, value in scores.items() if value == value}  # no known image: no accuracy on them


def number_truth(now: Classes, truth: Sequence[str]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """True and present classes as numbers from 0: the known ones that were looked for first, by the same numbers."""
    found = now.found
    names = {name: i for i, name in enumerate([*found.known, *sorted({*truth} - {*found.known})])}
    place = {int(now.owners[i]): i for i in reversed(range(len(found.known)))}
    others = [number for number in now.numbers if number not in place]
    place |= {number: len(found.known) + i for i, number in enumerate(others)}
    return torch.tensor([names[name] for name in truth]), torch.tensor([place[n] for n in now.assignment.tolist()])


def format_csv(table: pd.DataFrame, *, header: bool = True) -> str:
    """A table as CSV, of which no spreadsheet runs a cell; `read_csv` gives the very names back.

    Names may hold any sign: before Python 3.13 a carriage return is quoted where all text is.
    """
    safe = table.map(lambda cell: neutralise(cell) if isinstance(cell, str) else cell)
    text: str = safe.to_csv(index=False, header=header, lineterminator="\n")
    if "\r" in text:
        text = safe.to_csv(index=False, header=header, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    return text


def read_csv(source: Path | StringIO) -> pd.DataFrame:
    """A table that `format_csv` wrote, with names and words as they were: 007 and NA are words, where words stand."""
    table = pd.read_csv(source, dtype=str, keep_default_na=False)
    for name in table.columns:
        table[name] = table[name].map(restore) if name in TEXT else pd.to_numeric(table[name])
    return table


def neutralise(text: str) -> str:
    """Text that a spreadsheet takes for text: an apostrophe before what begins as a formula does, with or without
    apostrophes before it.
    """
    return f"'{text}" if FORMULA.match(text) else text


def restore(text: str) -> str:
    """What `neutralise` made this of."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text
