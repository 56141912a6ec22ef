"""learn: what was discovered becomes known, without the images that taught what was known before.

The network stays as the discovery left it; a class is learnt by its mean and by what it adds to the shared covariance.
Nothing is forgotten, for nothing moves (decision 18).
"""

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from newfound import files
from newfound.data.collection import Collection
from newfound.discovery import storage
from newfound.discovery.edits import Classes
from newfound.discovery.folder import refuse, working
from newfound.discovery.found import Found
from newfound.discovery.plan import check_not_over, expand_home, path_of
from newfound.discovery.tables import tabulate_assignments
from newfound.encoders import embed, encoder_of
from newfound.encoders.base import Lesson
from newfound.encoders.known import weigh
from newfound.encoders.reading import read
from newfound.errors import InputError, counted, shorten
from newfound.functional.stability import stability
from newfound.networks.model import ENOUGH, Model

log = logging.getLogger("newfound")

HOLDS = 0.6
"""The share of its images that a class which nobody has looked at must find again (`stability`); decision 18."""

SAME = 0.2
"""How far, as a share of its length, a latent may be from what it was for its image to be the same."""


@dataclass(frozen=True, eq=False)
class Learning:
    """What a discovery teaches: a lesson, the numbers of its classes, and what there is to say of it."""

    lesson: Lesson
    numbers: tuple[int, ...]
    used: int  # the largest number that a class ever had
    added: tuple[str, ...]  # the classes that the model did not know
    said: tuple[str, ...]  # for people; names of classes, never of images


def teach(
    now: Classes,
    output: str | Path | None,
    *,
    run: Path | None,
    images: str | Path | None,
    merge: bool,
    overwrite: bool,
) -> Model:
    """`learn`, and write the model folder; `run` is the folder that the discovery came from.

    The folder takes its place when all is in it: whoever is interrupted leaves what was there, and begins again.
    """
    output, root = expand_home(output), None if images is None else Path(images).expanduser()
    if output is None:
        return learn(now, images=root, merge=merge)
    settings = {"run": path_of(run), "images": path_of(root), "merge": merge}
    check_not_over(output, () if run is None else (run,), "is the run that is learnt from")
    refuse(output, "learn", settings, overwrite=overwrite, resume=False)
    with files.building(Path(output)) as folder, working(folder, "learn", settings, overwrite=False, resume=False):
        model = learn(now, images=root, merge=merge)
        model.save_pretrained(folder)
    return model


def learn(now: Classes, *, images: Path | None = None, merge: bool = False, seed: int = 0) -> Model:
    """The model that knows the classes of a discovery as they are now, known and new ones together.

    They keep their names, numbers and order: known ones first, as they were, then new ones by number. Images that are
    of no class for sure, or were set aside, teach nothing. `images` is where they are now, if they have moved: a
    pretrained backbone sees them again. `merge` takes a new class for the known one of its name.
    """
    plan, found = plan_learning(now, merge=merge), now.found
    for line in plan.said:
        log.info(line)
    taught = plan.lesson.labels >= 0
    if not taught.any() and plan.lesson.classes == found.model.classes:
        return found.model
    model = encoder_of(found.model).extend_known(
        found.model, plan.lesson, found.features, lambda: look_again(found, images, taught), seed
    )
    model = replace(model, numbers=plan.numbers, used=plan.used)
    if few := [repr(name) for name in plan.added if name not in model.recognisable]:
        log.warning(
            f"New classes of fewer than {ENOUGH} sure images, which the model cannot recognise: {shorten(few)}. Accept "
            "more of their images (`newfound review`), or learn again when there are more."
        )
    return model


def plan_learning(now: Classes, *, merge: bool = False) -> Learning:
    """What a discovery teaches: a pure function of its classes. Refuses what only a person can decide."""
    model, groups = now.found.model, group_known(now)
    classes = [now.names.get(number or 0, model.classes[places[0]]) for number, places in groups]
    parts, numbers = [places for _, places in groups], [model.numbers[places[0]] for _, places in groups]
    check_known(classes, model)
    place = {number: row for row, (number, _) in enumerate(groups) if number is not None}
    answers = torch.tensor(tabulate_assignments(now)["number"].tolist(), dtype=torch.long)
    doubtful, left, used = find_doubtful(now, answers), left_out(now), max(now.used, model.used)
    added: list[str] = []
    for number in sorted(now.names.keys() - now.known):
        if number in doubtful or number in left or not (answers == number).any():
            continue
        if (name := now.names[number]) in classes:
            place[number] = _same(name, classes, merge=merge)
            continue
        used += number in numbers  # such a run counted from 1, for it looked for no known class
        place[number] = len(classes)
        numbers.append(used if number in numbers else number)
        classes.append(name)
        parts.append(())
        added.append(name)
    lesson = Lesson(tuple(classes), tuple(parts), label_rows(now, answers, place))
    said = review(now), *_tell(now, added, doubtful, left, answers)
    return Learning(lesson, tuple(numbers), used, tuple(added), said)


def check_known(names: Sequence[str], model: Model) -> None:
    """Refuse known classes of which one was renamed to what another is called that this run did not look for: no list
    of its classes shows that one, and a model of two classes by one name could not be read.
    """
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"A known class is called {shorten(map(repr, twice))} now, as another one that the model knows and this "
            "run did not look for. Needed: a name for each. Rename once more what was renamed so."
        )


def group_known(now: Classes) -> list[tuple[int | None, tuple[int, ...]]]:
    """Every class that was known: its present number and its places in the model, more than one where somebody merged
    two. None: it was not looked for, and has no number in this run.
    """
    cluster = {name: row for row, name in enumerate(now.found.known)}
    groups: dict[tuple[bool, int], tuple[int, ...]] = {}
    for place, name in enumerate(now.found.model.classes):
        key = (True, int(now.owners[cluster[name]])) if name in cluster else (False, place)
        groups[key] = (*groups.get(key, ()), place)
    return [(number if looked else None, places) for (looked, number), places in groups.items()]


def label_rows(now: Classes, answers: Int[Tensor, " n"], place: Mapping[int, int]) -> Int[Tensor, " n"]:
    """The place of the class that each image teaches; −1 where it teaches none.

    A new class is taught by all images that are surely of it, a known one by those that a person put there: what the
    algorithm recognised by its mean would only say the mean again.
    """
    first = torch.tensor(now.found.numbers)[now.found.clusters.assignment]
    decided = torch.zeros(len(answers), dtype=torch.bool)
    decided[[*now.decided]] = True
    labels = torch.full((len(answers),), -1)
    for number, where in place.items():
        mine = answers == number
        labels[mine & (decided | (first != number)) if number in now.known else mine] = where
    return labels


def looked_at(now: Classes) -> set[int]:
    """The new classes that a person has named, made, merged, or decided on images of."""
    found = now.found
    named = dict(zip(found.numbers, found.names, strict=True))
    clusters = torch.tensor(found.numbers)
    merged = {number for number in now.names if ((now.owners[: len(clusters)] == number) & (clusters != number)).any()}
    decided = {*now.assignment[[*now.decided]].tolist()} if now.decided else set()
    changed = {number for number, name in now.names.items() if named.get(number) != name}
    return (merged | decided | changed) - now.known


def left_out(now: Classes) -> set[int]:
    """The new classes that a watcher who proposed others did not propose, and that nobody has looked at."""
    return now.names.keys() - now.known - looked_at(now) - {*now.found.proposed} if now.found.proposed else set()


def find_doubtful(now: Classes, answers: Int[Tensor, " n"], seed: int = 0) -> dict[int, float]:
    """The new classes that nobody has looked at, and that are not found again among half of the images, or are of very
    few; how far they are. A pile with nothing new in it still gives clusters, where so many were asked for.
    """
    found, known = now.found, len(now.found.known)
    unseen = now.names.keys() - now.known - looked_at(now)
    clusters = {row: number for row, number in enumerate(found.numbers) if number in unseen}
    if not clusters:
        return {}
    held = weigh(found.clusters.centres[:known], found.clusters.sizes[:known]) if known else None

    def again(half: Int[Tensor, " half"], turn: int) -> Int[Tensor, " half"]:
        new = min(len(found.numbers) - known, len(half))
        return read(found.latents[half], new, held, seed + turn).assignment

    scores = stability(found.clusters.assignment, clusters, again, seed=seed)
    few = {number for number in unseen if (answers == number).sum() < ENOUGH}
    return {clusters[row]: score for row, score in scores.items() if score < HOLDS or clusters[row] in few}


def look_again(found: Found, images: Path | None, taught: Bool[Tensor, " n"]) -> Collection:
    """The images of a discovery as the backbone is given them; refused where they are not there, or not the same."""
    found = storage.locate(found, images)
    seen = encoder_of(found.model).encode(found.listing)
    if len(seen) < len(found):
        raise InputError(
            f"{len(found) - len(seen)} of {len(found)} images cannot be read any more. Needed: all of them. Put them "
            f"back. Found: {shorten(seen.listing.skipped)}."
        )
    apart = (embed(found.model, seen) - found.features).norm(dim=1) / found.features.norm(dim=1).clamp(min=1e-9)
    if changed := int((taught & (apart > SAME)).sum()):
        raise InputError(
            f"{changed} of {int(taught.sum())} images that would teach a class are not seen as they were: they have "
            "changed, or the run's model is another backbone's. Needed: the images and the model that the run was made "
            "with. Say where the images are (--images), or discover anew."
        )
    return seen


def review(now: Classes) -> str:
    """Whether people have looked at a discovery, in a sentence."""
    people = shorten(sorted({*now.decided.values()}))
    if now.decided:
        return f"Reviewed: {people} decided on {len(now.decided)} of {counted(len(now.found), 'image')}."
    if looked_at(now):
        return "Reviewed in part: classes were named or merged, and nobody has decided on an image."
    return "Nobody has reviewed this run: what it found is learnt as it was found. `newfound review` opens it."


def _same(name: str, classes: Sequence[str], *, merge: bool) -> int:
    """The place of the known class that a new one is; refused where nobody has said so."""
    if not merge:
        raise InputError(
            f"A new class is called {name!r}, as one that the model knows and this run did not look for. Say that they "
            "are one class (--merge; merge=True), or give the new one another name."
        )
    return classes.index(name)


def _tell(
    now: Classes, added: Sequence[str], doubtful: Mapping[int, float], left: Set[int], answers: Int[Tensor, " n"]
) -> list[str]:
    """What is learnt and what is not, in sentences."""
    said = [f"Learnt: {shorten(map(repr, added))}." if added else "Nothing is new: the model knows what it knew."]
    if doubtful:
        sure = {number: counted(int((answers == number).sum()), "sure image") for number in doubtful}
        scores = [f"{now.names[n]!r} ({100 * score:.0f} % found again, {sure[n]})" for n, score in doubtful.items()]
        said.append(
            "Not learnt, for nobody has looked at them, and they are few or not found again in half of the images: "
            f"{shorten(scores)}. Name those that are real, or accept their images (`newfound review`)."
        )
    if others := [repr(now.names[number]) for number in sorted(left - doubtful.keys())]:
        said.append(f"Not learnt, for nobody has looked at them, and they were not proposed: {shorten(others)}.")
    return said
