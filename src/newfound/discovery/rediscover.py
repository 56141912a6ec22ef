"""rediscover: a run, and what people said of it, become a run that has learnt from them."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from newfound import parallel
from newfound.console import Progress, silent
from newfound.data.leaks import check_leaks
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.discovery.answers import Answers, answers
from newfound.discovery.discover import restore
from newfound.discovery.edits import Edit
from newfound.discovery.facts import About
from newfound.discovery.folder import finished, refuse, working
from newfound.discovery.looking import tell_skipped
from newfound.discovery.plan import (
    Source,
    check_labelled,
    check_model,
    check_not_over,
    expand_home,
    list_source,
    path_of,
)
from newfound.discovery.refine import ReviewLesson, encoder_for, refine
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne, check_device
from newfound.discovery.storage import CHECKPOINT, DISCOVERY, locate
from newfound.encoders import Encoder
from newfound.encoders.base import encode_source
from newfound.errors import InputError, counted, shorten
from newfound.networks.model import Model

log = logging.getLogger("newfound")

REVIEW = "Look at its classes first (`newfound review`), and accept, move, merge, split or set aside."


@dataclass(frozen=True, eq=False)
class RediscoveryPlan:
    """What will be learnt. All that a person could have got wrong was looked at, but what only reading images shows."""

    before: Discovery  # with the edits that teach
    answers: Answers
    run: Run
    encoder: Encoder
    unlabelled: Listing | Images
    labelled: Listing | Images | None
    settings: dict[str, Any]  # what `config.toml` will hold


def rediscover(
    run: str | Path | Discovery,
    *,
    output: str | Path | None = None,
    known: Source | None = None,
    images: Source | None = None,
    device: str | None = None,
    edits: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
    command: str = "newfound.rediscover(…)",
) -> Discovery:
    """Discover again, with what people have said of a run; with `output`, write the new run folder.

    Images that somebody vouches for become labelled, set-asides stay out, classes keep numbers and names; the run that
    was given stays as it is. Known classes are remembered; with `known` their images take part too. `images` is where
    the unlabelled ones are now, or these themselves where they were in memory. Of the run's edits the first `edits`
    count, else all.
    """
    about, output = About(command, began=time.perf_counter()), expand_home(output)
    home = run.home if isinstance(run, Discovery) else Path(run).expanduser()
    check_not_over(output, () if home is None else (home,), "is the run that is learnt from")
    plan = plan_rediscovery(run, known=known, images=images, device=device, edits=edits)
    refuse(output, "discover", plan.settings, overwrite=overwrite, resume=resume)
    if (done := finished(output, "discover", plan.settings, last=DISCOVERY, resume=resume)) is not None:
        return restore(done)
    lesson = _encode(plan, progress)
    note = f"Answers: {plan.answers}."
    with working(output, "discover", plan.settings, overwrite=overwrite, resume=resume, note=note) as folder:
        checkpoint = None if folder is None else folder / CHECKPOINT
        found = refine(lesson, about=about, progress=progress, checkpoint=checkpoint, resume=resume)
        log.info(f"What changed: {found.facts['changed']}.")
        after = Discovery(found, plan.answers.decisions)
        if folder is not None and parallel.first():
            after.save(folder)
        if lesson.labelled is not None:
            tell_skipped(lesson.labelled.listing.skipped)
    return after


def plan_rediscovery(
    run: str | Path | Discovery,
    *,
    known: Source | None = None,
    images: Source | None = None,
    device: str | None = None,
    edits: int | None = None,
) -> RediscoveryPlan:
    """Look at all that is asked for."""
    known, images = expand_home(known), expand_home(images)
    if device is not None:
        check_device(device)
    before = Discovery.load(run) if isinstance(run, str | Path) else run
    said = before.edits if edits is None else before.edits[:edits]
    if edits is not None and len(said) < edits:
        raise InputError(f"Asked for the first {edits} edits; the run has {len(said)}. Leave --edits out for all.")
    found = before.found
    if found.run is None:
        raise InputError(
            "This run was made by an older newfound, which did not write down how. Needed: a run of this version. Make "
            "it anew with `newfound discover`."
        )
    told = answers(found, said)
    check_answers(told, said)
    settings = found.run if device is None else replace(found.run, device=device)
    labelled = None if known is None else list_known(found.model, known, looked_for=bool(found.known))
    listing = images if isinstance(images, Images) else locate(found, None if images is None else Path(images)).listing
    check_same(found.listing, listing.listing)
    encoder = encoder_for(found, settings)
    encoder.check_images([some for some in (listing, labelled) if isinstance(some, Images)])
    kept: dict[str, Any] = {"continue": None if isinstance(run, Discovery) else path_of(run), "known": path_of(known)}
    kept |= {"images": path_of(images), "edits": len(said), "device": settings.device}
    return RediscoveryPlan(Discovery(found, said), told, settings, encoder, listing, labelled, kept)


def check_answers(told: Answers, edits: Sequence[Edit]) -> None:
    """Refuse to learn from nothing, or for nothing."""
    if not edits:
        raise InputError(f"Nobody has said anything of this run, so there is nothing to learn from. {REVIEW}")
    if not (told.vouched.any() or told.aside.any() or told.restructured):
        raise InputError(
            f"Of what {counted(len(edits), 'edit')} of this run say, nothing teaches: names alone, or what was undone. "
            f"{REVIEW}"
        )
    if not told.free.any():
        raise InputError(
            "Somebody has decided on every image of this run, so nothing is left to find. Export it, or discover in "
            "more images."
        )


def list_known(model: Model, place: Source, *, looked_for: bool) -> Listing | Images:
    """The labelled images of the model's known classes."""
    labelled = list_source(place, labelled=True)
    check_labelled(labelled.listing)
    check_model(model, labelled, StageOne())
    if not looked_for:
        raise InputError(
            "The run looked for no known class (--no-mixed), so labelled images would change nothing. Leave --known "
            "out."
        )
    return labelled


def check_same(found: Listing, given: Listing) -> None:
    """Refuse other images than the run is of."""
    if found.names != given.names:
        raise InputError(
            f"The run is of {counted(len(found), 'image')}, beginning with {found.names[0]!r}; given are {len(given)}, "
            f"beginning with {shorten(map(repr, given.names[:1]))}. Needed: the same, in the same order."
        )


def _encode(plan: RediscoveryPlan, progress: Progress) -> ReviewLesson:
    """The images as the backbone will be given them; what cannot be read any more is refused."""
    unlabelled = encode_source(plan.encoder, plan.unlabelled, progress)
    if lost := len(plan.before.found) - len(unlabelled):
        raise InputError(
            f"{counted(lost, 'image')} of this run cannot be read any more: {shorten(unlabelled.listing.skipped)}. "
            "Needed: all of them. Put them back, or set them aside and leave copies."
        )
    labelled = None
    if plan.labelled is not None:
        labelled = encode_source(plan.encoder, plan.labelled, progress)
        check_leaks(labelled, unlabelled)
    return ReviewLesson(plan.before.found, plan.answers, plan.run, plan.encoder, unlabelled, labelled)


def next_place(run: Path) -> Path:
    """Where the run after this one goes, if nobody says where: run, run-2, run-3, …; the first that is free."""
    run = Path(run).expanduser().absolute()
    base, number = run.name, 2
    if match := re.fullmatch(r"(.+)-(\d+)", run.name):
        base, number = match[1], int(match[2]) + 1
    while (place := run.with_name(f"{base}-{number}")).exists():
        number += 1
    return place
