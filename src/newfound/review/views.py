"""What the page shows, as plain values that JSON holds: pure functions of the present classes and their measures."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from newfound.discovery.edits import NOBODY, Classes, Edit, standing
from newfound.discovery.tables import ALGORITHM, ASIDE, OUTLIER, UNSURE, WORDS
from newfound.errors import InputError
from newfound.functional.geometry import distances
from newfound.functional.names import is_counted
from newfound.report.figures import colours
from newfound.review.measures import Measures

KINDS = ("known", "new", "unsure", "outlier", "set aside")
"""What a line of the class list may be, in the order of the list. The last three are no classes: images wait there."""

WAITING = (UNSURE, OUTLIER)
"""Lists of images that have no class for sure: "more like these" looks among them."""

REFERENCES, NEIGHBOURS, SIMILAR, MORE = 6, 12, 8, 60
"""So many images stand for a class, lie beside an image; so many classes are called similar, images proposed."""

Order = Literal["typical", "doubtful"]


class Scene(NamedTuple):
    """The present classes, and what is thought of their images."""

    now: Classes
    measures: Measures
    apart: Float[Tensor, "centres centres"]  # distances between centres


def view_scene(now: Classes, measures: Measures, found: Float[Tensor, "found found"]) -> Scene:
    """A scene, given the distances between the centres that were found: those of others are few."""
    if not len(now.more):
        return Scene(now, measures, found)
    more = distances(now.more, now.centres)
    upper = torch.cat([found, more[:, : len(found)].T], 1)
    return Scene(now, measures, torch.cat([upper, more]))


def view_state(scene: Scene, edits: Sequence[Edit]) -> dict[str, Any]:
    """All but images: the class list, how far the review is, and what can be undone."""
    now, holding = scene.now, standing(edits)
    return {
        "length": len(edits),
        "images": len(now.found),
        "reviewed": int(scene.measures.decided.sum()),
        "kinds": KINDS,
        "classes": [*view_classes(scene), *view_lists(scene)],
        "labelled": view_labelled(now),
        "names": suggest_names(now, edits),
        "undo": bool(holding),
        "redo": len(standing([*edits, Edit("redo")])) > len(holding),
        "last": view_last(edits),
    }


def view_classes(scene: Scene) -> list[dict[str, Any]]:
    """A line for every class: the known ones first, then by size. One without images has no medoid."""
    now, measures = scene.now, scene.measures
    slots = now.used + 1
    there = (~now.aside).numpy()
    number = now.assignment.numpy()[there]
    sizes = np.bincount(number, minlength=slots)
    unsure = np.bincount(number, measures.unsure.numpy()[there], slots)
    reviewed = np.bincount(number, measures.decided.numpy()[there], slots)
    confidence = np.bincount(number, measures.confidence.numpy()[there], slots)
    medoid = find_medoids(now, measures)
    known, tints = nearest_known(scene), colours(now.used)
    lines = [
        {
            "number": n,
            "name": name,
            "kind": now.kind(n),
            "proposed": n in now.found.proposed,
            "size": int(sizes[n]),
            "unsure": int(unsure[n]),
            "confidence": round(float(confidence[n] / sizes[n]), 3) if sizes[n] else None,
            "reviewed": int(reviewed[n]),
            "medoid": medoid.get(n),
            "known": known.get(n),
            "colour": tints[n - 1],
        }
        for n, name in now.names.items()
    ]
    return sorted(lines, key=lambda line: (line["kind"] != "known", -line["size"], line["number"]))


def view_lists(scene: Scene) -> list[dict[str, Any]]:
    """A line for every list of images that wait for somebody: unsure, set aside."""
    answer = answers(scene)
    lines = []
    for number, name in WORDS.items():
        rows = (answer == number).nonzero()[:, 0]
        confidence = scene.measures.confidence[rows]
        lines.append(
            {
                "number": number,
                "name": name,
                "kind": name,
                "proposed": False,
                "size": len(rows),
                "unsure": 0,
                "confidence": round(float(confidence.mean()), 3) if len(rows) else None,
                "reviewed": int(scene.measures.decided[rows].sum()),
                "medoid": int(rows[0]) if len(rows) else None,
                "known": None,
                "colour": "#8a8f96",
            }
        )
    return lines


def view_labelled(now: Classes) -> dict[int, list[str]]:
    """Labelled images of known classes, by number: where small copies of them are, "place/which". What was merged into
    a class brings its own.
    """
    shown: dict[int, list[str]] = {}
    for place, copies in sorted(now.found.references.items()):
        if (owner := int(now.owners[place])) != NOBODY:
            shown.setdefault(owner, []).extend(f"{place}/{which}" for which in range(len(copies)))
    return shown


def view_last(edits: Sequence[Edit]) -> dict[str, Any] | None:
    """What was said last, for those who look on."""
    if not edits:
        return None
    last = edits[-1]
    return {"action": last.action, "by": last.by, "at": last.at, "images": len(last.rows)}


def answers(scene: Scene) -> Int[Tensor, " n"]:
    """The number of every image's class, or of the list that it waits in."""
    now, measures = scene.now, scene.measures
    answer = now.assignment.masked_fill(measures.unsure, UNSURE).masked_fill(measures.outlier, OUTLIER)
    return answer.masked_fill(now.aside, ASIDE)


def find_medoids(now: Classes, measures: Measures) -> dict[int, int]:
    """The most typical image of every class that has one: the nearest to the centre that it goes by."""
    rows = (~now.aside).nonzero()[:, 0].numpy()
    number, distance = now.assignment.numpy()[rows], measures.distance.numpy()[rows]
    order = np.lexsort((distance, number))
    classes, first = np.unique(number[order], return_index=True)
    return dict(zip(classes.tolist(), rows[order][first].tolist(), strict=True))


def nearest_known(scene: Scene) -> dict[int, int]:
    """The known class nearest to every other class, by the nearest two of their centres."""
    now, owners = scene.now, scene.now.owners
    known = torch.tensor([owner in now.known for owner in owners.tolist()])
    if not known.any():
        return {}
    away = scene.apart[:, known].masked_fill(owners[:, None] == owners[known], torch.inf)
    least, place = away.min(1)
    nearest: dict[int, tuple[float, int]] = {}
    near = owners[known][place]
    for owner, reach, other in zip(owners.tolist(), least.tolist(), near.tolist(), strict=True):
        if owner != NOBODY and reach < nearest.get(owner, (float("inf"), 0))[0]:
            nearest[owner] = reach, other
    return {owner: other for owner, (_, other) in nearest.items()}


def similar_classes(scene: Scene, number: int, most: int = SIMILAR) -> list[int]:
    """Other classes that have images, the nearest first, by the nearest two centres."""
    now, owners = scene.now, scene.now.owners
    mine = owners == now.number(number)
    filled = {*now.assignment[~now.aside].unique().tolist()} - {number}
    if not mine.any():
        return []
    away = scene.apart[mine].amin(0).tolist()
    reach: dict[int, float] = {}
    for owner, far in zip(owners.tolist(), away, strict=True):
        if owner in filled:
            reach[owner] = min(far, reach.get(owner, float("inf")))
    return sorted(reach, key=lambda owner: reach[owner])[:most]


def members(scene: Scene, number: int) -> Int[Tensor, " rows"]:
    """The images of a class, unsure ones among them, or of a list."""
    if number in WORDS:
        return (answers(scene) == number).nonzero()[:, 0]
    return scene.now.rows(scene.now.number(number))


def view_images(scene: Scene, number: int, order: Order) -> dict[str, Any]:
    """The images of a class or a list in order, each with its confidence in per cent; `marks` has a letter for each: d,
    a person decided; o, an outlier; f, unsure, for it lies far out; u, unsure; – else. Those of a list, which are of
    several classes, begin with the surest.
    """
    rows = members(scene, number)
    sure, away, unsure = (each[rows].numpy() for each in scene.measures[:3])
    typical = (away, -sure) if number in WORDS else (away, unsure)
    keys = (-away, sure) if order == "doubtful" else typical
    ordered = rows[torch.from_numpy(np.lexsort(keys))]
    return pack_guesses(scene, ordered) if number in WORDS else pack_images(scene, ordered)


def pack_images(scene: Scene, rows: Int[Tensor, " rows"]) -> dict[str, Any]:
    """Images as the grid takes them."""
    measures = scene.measures
    per_cent = (100 * measures.confidence[rows]).floor().int().tolist()
    decided, outlier, unsure, far = (
        each[rows].numpy() for each in (measures.decided, measures.outlier, measures.unsure, measures.far)
    )
    letters = np.select([decided, outlier, unsure & far, unsure], ["d", "o", "f", "u"], "-")
    return {"rows": rows.tolist(), "confidence": per_cent, "marks": "".join(letters.tolist())}


def pack_guesses(scene: Scene, rows: Int[Tensor, " rows"]) -> dict[str, Any]:
    """The same of images of several classes, with the number of the class that each is thought to be of; of those set
    aside that of their list.
    """
    numbers = scene.now.assignment.masked_fill(scene.now.aside, ASIDE)
    return pack_images(scene, rows) | {"numbers": numbers[rows].tolist()}


def view_parts(scene: Scene, parts: Iterable[Sequence[int]]) -> list[dict[str, Any]]:
    """The parts that a class would be split in, each as the grid takes it, the images nearest to its mean first."""
    latents, shown = scene.now.found.latents, []
    for part in parts:
        rows = torch.tensor(part)
        away = distances(latents[rows], latents[rows].mean(0, keepdim=True))[:, 0]
        shown.append(pack_images(scene, rows[away.argsort(stable=True)]))
    return shown


def view_image(scene: Scene, row: int) -> dict[str, Any]:
    """All that is said of an image: who decided, what lies beside it, and images that stand for its class and for the
    nearest known one.
    """
    now, measures, found = scene.now, scene.measures, scene.now.found
    number = int(now.assignment[row])
    answer = int(answers(scene)[row])
    known = nearest_known(scene).get(number)
    box = found.listing.boxes[row]
    return {
        "row": row,
        "caption": found.caption(row),
        "box": None if box is None else [*box],
        "group": found.listing.groups[row],
        "number": number,
        "answer": answer,
        "confidence": round(float(measures.confidence[row]), 4),
        "far": bool(measures.unsure[row] & measures.far[row]),
        "by": now.decided.get(row, ALGORITHM),
        "decided": row in now.decided,
        "duplicate": found.duplicates.get(row),
        "neighbours": neighbours(scene, row),
        "references": references(scene, number),
        "known": None if known is None else {"number": known, "rows": references(scene, known)},
    }


def references(scene: Scene, number: int, most: int = REFERENCES) -> list[int]:
    """Images that stand for a class: those that a person called right before others, unsure ones last, and the most
    typical of these.
    """
    rows = scene.now.rows(number)
    measures = scene.measures
    order = np.lexsort(
        (measures.distance[rows].numpy(), measures.unsure[rows].numpy(), ~measures.decided[rows].numpy())
    )
    return rows[torch.from_numpy(order)][:most].tolist()


def neighbours(scene: Scene, row: int, most: int = NEIGHBOURS) -> list[int]:
    """The images that lie nearest to one, whatever their class."""
    latents = scene.now.found.latents
    away = (latents - latents[row]).square().sum(1) if len(latents) * latents.shape[1] < 1e7 else _squares(latents, row)
    away[row] = torch.inf
    return away.topk(min(most, len(away) - 1), largest=False).indices.tolist()


def _squares(latents: Float[Tensor, "n dim"], row: int) -> Float[Tensor, " n"]:
    """‖z_i − z_row‖² without a copy of all latents."""
    return torch.cat([(part - latents[row]).square().sum(1) for part in latents.split(8192)])


def more_like(scene: Scene, rows: Sequence[int], most: int = MORE) -> dict[str, Any]:
    """Images that wait for a class, the nearest to the mean of some images first; those themselves are left out."""
    check_rows(scene.now, rows)
    if not rows:
        raise InputError("No image was given. Select one at least, and ask for more like it.")
    latents = scene.now.found.latents
    waiting: Bool[Tensor, " n"] = torch.isin(answers(scene), torch.tensor(WAITING))
    waiting[[*rows]] = False
    there = waiting.nonzero()[:, 0]
    middle = latents[[*rows]].mean(0, keepdim=True)
    away = distances(latents[there], middle)[:, 0]
    return pack_guesses(scene, there[away.argsort(stable=True)[:most]])


def check_rows(now: Classes, rows: Iterable[int]) -> None:
    """Refuse rows that are no image's."""
    if outside := [row for row in rows if not 0 <= row < len(now.found)]:
        raise InputError(f"There is no image {outside[0]}; there are {len(now.found)}, from 0 on.")


def suggest_names(now: Classes, edits: Sequence[Edit]) -> list[str]:
    """Names that somebody may mean: those of known classes, and those that people gave before, newest first."""
    given = [name for edit in reversed(edits) for name in edit.names if not is_counted(name)]
    return [*dict.fromkeys([*given, *now.found.model.classes])][:500]


def view_captions(scene: Scene, rows: Sequence[int]) -> dict[int, str]:
    """What people recognise images by."""
    check_rows(scene.now, rows)
    return {row: scene.now.found.caption(row) for row in rows}


def view_map(scene: Scene, rows: Int[ndarray, " shown"]) -> list[int]:
    """The class of every image that the map shows; of those set aside none."""
    return scene.now.assignment.masked_fill(scene.now.aside, ASIDE)[torch.from_numpy(rows)].tolist()
