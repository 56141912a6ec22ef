"""Rehearsal: known classes are hidden for a moment, so that they say how new ones are best found, and how well.

Known classes are the one place where somebody's own images have a truth. That of unlabelled images is never seen here.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from newfound.console import Progress, silent
from newfound.data.collection import Collection
from newfound.data.features import FeatureImages
from newfound.discovery.hidings import RehearsalSet
from newfound.discovery.howmany import MOST
from newfound.discovery.settings import AUTO, DISCRIMINANT, KMEANS, NO, Run, StageOne
from newfound.encoders import Encoder
from newfound.encoders.features import FeatureEncoder, shrink_for_counting
from newfound.encoders.pretend import MISCOUNTED
from newfound.functional.axes import SHRINK
from newfound.functional.counting import Errors, sweep
from newfound.functional.rehearsal import (
    ENOUGH,
    FEWEST,
    Expected,
    Hiding,
    Rehearsal,
    Trial,
    Way,
    choose,
    describe,
    expect,
    tell_nothing,
)
from newfound.networks.model import Model
from newfound.types import generator

log = logging.getLogger("newfound")

HIDINGS, DEAR = 10, 3
"""How often classes are hidden to choose, and on how many of these what is trained is tried."""

REPORTED = 5
"""How often they are hidden, otherwise, to say what is to be expected, all of them and half of them; where that takes
training, `DEAR` times each.
"""

COUNTED, TIMES = 5, 3
"""How often they are hidden to see how counting errs, and how many times as many classes as there are it may find."""

SHRINKS = (SHRINK, 1.0)
"""How much the known classes' covariance may be shrunk, the default first. Not by more: with half of the classes hidden
it is known less well than in earnest, and more would seem better than it is.
"""

TRIED = (KMEANS, DISCRIMINANT)
"""How clusters may be read off. Mean shift alone never did better than with discriminants after it; decision 13."""


def default_way(encoder: Encoder) -> Way:
    """What is done where nothing was rehearsed."""
    return Way(encoder.name, SHRINK if isinstance(encoder, FeatureEncoder) else 0.0, encoder.default_method, KMEANS)


def plain_way(name: str) -> Way:
    """The simplest way of a pretrained network."""
    return Way(name, SHRINK, "kmeans", KMEANS)


def preferred_way(name: str) -> Way:
    """The way of a pretrained network that is taken unless hidden classes speak clearly for another; decision 13."""
    return Way(name, SHRINK, "kmeans", DISCRIMINANT)


def rehearse(images: FeatureImages, encoder: FeatureEncoder, seed: int, progress: Progress = silent) -> Rehearsal:
    """Try every way of one backbone on known classes that are hidden, and say what the best would give.

    What it costs is a matter of images alone, at most 1500 of either kind a hiding, never of a clock: the same images
    and seed give the same choice.
    """
    stage = RehearsalSet.of(images, encoder)
    known = len(images.listing.classes)
    hidings = stage.hidings("choose", HIDINGS, seed)
    if not hidings:
        return Rehearsal(known, 0, why=too_few(known))
    scores, apart, lots = dict[Way, list[float]](), dict[Way, list[float]](), list[float]()
    for turn, hiding in enumerate(hidings):
        for way, told, pile in _try(stage, hiding, default_way(encoder), dear=turn < DEAR, seed=seed):
            scores.setdefault(way, []).append(stage.score(hiding, told, pile, way.reading, seed))
            apart.setdefault(way, []).append(stage.score(hiding, told, pile, way.reading, seed, mixed=False))
            if way == plain_way(encoder.name):
                new = (hiding.truth >= hiding.known).nonzero()[:, 0]
                drawn = new[torch.randperm(len(new), generator=generator(seed, "lots", turn))]
                lots.append(stage.score(hiding, told, pile.index_copy(0, new, pile[drawn]), KMEANS, seed, mixed=False))
        progress("rehearse", len(hidings), {"epoch": float(turn + 1)})
    trials, others = (tuple(Trial(way, tuple(theirs)) for way, theirs in some.items()) for some in (scores, apart))
    if tell_nothing(others, Trial(plain_way("lots"), tuple(lots))):
        why = f"{encoder.name} tells hidden known classes apart no better than drawing lots would"
        return Rehearsal(known, hidings[0].hidden, why=why)
    found = Rehearsal(known, hidings[0].hidden, trials=trials, apart=others)
    taken = {mixed: choose(found.tried(mixed=mixed), preferred_way(encoder.name)) for mixed in (True, False)}
    return found._replace(**_report(stage, taken, seed)._asdict(), counting=tuple(count_hidden(stage, seed)))


def _try(
    stage: RehearsalSet, hiding: Hiding, default: Way, *, dear: bool, seed: int
) -> Iterator[tuple[Way, Float[Tensor, "m dim"], Float[Tensor, "n dim"]]]:
    """Every way of a backbone on one hiding, with its latents of labelled and of unlabelled images."""
    for shrink in SHRINKS:
        told, pile = stage.latents(hiding, shrink)
        for reading in TRIED:
            yield Way(default.backbone, shrink, "kmeans", reading), told, pile
    if dear:
        told, pile = stage.trained(hiding, SHRINK, default.method, seed)
        for reading in TRIED:
            yield Way(default.backbone, SHRINK, default.method, reading), told, pile


class Reported(NamedTuple):
    """What the ways that are taken let expect, each by the name that it has in a rehearsal."""

    mixed: Expected | None
    alone: Expected | None
    mixed_counted: Expected | None
    alone_counted: Expected | None


def _report(stage: RehearsalSet, taken: dict[bool, Way], seed: int) -> Reported:
    """What ways give on other hidings than they were chosen on, of all the known classes and of half of them: one where
    images are of known classes too, one where none is. Both are tried on the same, which are placed, or trained, once,
    and read as their number of classes and as those that it might be taken for.
    """
    scores = {name: list[tuple[float, int]]() for name in Reported._fields}
    for part in (1, 2):
        for turn, hiding in enumerate(stage.hidings(f"report {part}", REPORTED, seed, part=part)):
            latents, every = dict[tuple[float, str], tuple[Tensor, Tensor]](), hiding.known + hiding.hidden
            for mixed, way in taken.items():
                if way.method != "kmeans" and turn >= DEAR:
                    continue
                if (key := (way.shrink, way.method)) not in latents:
                    cheap = way.method == "kmeans"
                    latents[key] = stage.latents(hiding, way.shrink) if cheap else stage.trained(hiding, *key, seed)
                kind, classes = ("mixed", every) if mixed else ("alone", hiding.hidden)
                numbers = [max(1, round(share * every) - hiding.known) for share in (1.0, *MISCOUNTED)]
                found = stage.scores(hiding, *latents[key], way.reading, seed, numbers, mixed=mixed)
                scores[kind].append((found[0], classes))
                scores[f"{kind}_counted"] += [(score, classes) for score in found]
    return Reported(**{name: expect(*zip(*told, strict=True)) if told else None for name, told in scores.items()})


def count_hidden(stage: RehearsalSet, seed: int) -> Iterator[Errors]:
    """How far off each way of counting is where some known classes are hidden and counted as in earnest, on axes that
    know the kept ones alone; by one start each, for the errors of several hidings are averaged.
    """
    for hiding in stage.hidings("count", COUNTED, seed):
        truth = hiding.known + hiding.hidden
        told, pile = stage.latents(hiding, shrink_for_counting(hiding.known))
        found = sweep(pile, told, hiding.labels, most=min(MOST, TIMES * truth), starts=1, seed=seed).tops
        yield Errors(*(found[name] - math.log(truth) for name in ("pairs", "accuracy", "silhouette")))


def too_few(known: int) -> str:
    """Why nothing was rehearsed."""
    return f"rehearsing needs {FEWEST} known classes of {ENOUGH} images or more, and found {known} known ones"


def rehearse_known(
    encoder: Encoder,
    labelled: Collection,
    auditioned: Rehearsal | None,
    stage: StageOne,
    seed: int,
    progress: Progress = silent,
) -> Rehearsal | None:
    """What known classes tell, hidden; None where nobody wants to know. `auditioned`: what backbones were tried by."""
    if stage.rehearse == NO:
        return None
    if isinstance(encoder, FeatureEncoder) and isinstance(labelled, FeatureImages):
        found = rehearse(labelled, encoder, seed, progress)
        return found if auditioned is None else found._replace(backbones=auditioned.backbones)
    known = len(labelled.listing.classes)
    why = f"{encoder.name} learns all known classes, so none is left to be new to it"
    return auditioned or Rehearsal(known, 0, why=why)


class Settled(NamedTuple):
    """What a rehearsal decided, under what somebody asked for."""

    run: Run
    way: Way
    why: str = ""  # there was no rehearsal; empty where there was one, or nobody wanted any
    expected: Expected | None = None  # accuracy; None where nothing is known of it


def settle(model: Model, encoder: Encoder, asked: Run, *, given: bool, counted: bool = False) -> Settled:
    """Take the best of what a model's rehearsal tried; whatever was asked for stays as it is.

    `given` says that the model came from elsewhere, its rehearsal with it, `counted` that the number of classes will be
    an estimate.
    """
    found, default = model.rehearsal, default_way(encoder)
    if found is None or not found.trials:
        why = found.why if found is not None else "the model has none" if given else ""
        if why:
            log.info(f"No rehearsal: {why}. What nobody chose is as by default.")
        return Settled(asked.suited(default.method), default, f"none: {why}" if why else "")

    way = choose_way(found, encoder, asked)
    run = asked.suited(way.method)
    run = replace(run, read_by=way.reading) if run.read_by == AUTO else run
    way = way._replace(method=run.method, reading=run.read_by)
    for line in describe(found, way, mixed=asked.mixed):
        log.info(line)
    return Settled(run, way, "", expect_of(found, way, mixed=asked.mixed, counted=counted))


def choose_way(found: Rehearsal | None, encoder: Encoder, asked: Run) -> Way:
    """The best of what a rehearsal tried that fits what was asked for; what is done by default, where there is none."""
    if found is None or not found.trials:
        return default_way(encoder)
    trials = found.tried(mixed=asked.mixed)
    untried = asked.read_by not in {trial.way.reading for trial in trials}  # the rest is chosen all the same

    def allowed(way: Way) -> bool:
        trains = asked.epochs is not None or asked.rate is not None
        return (
            asked.method in (AUTO, way.method)
            and (untried or asked.read_by in (AUTO, way.reading))
            and not (trains and asked.method == AUTO and way.method == "kmeans")
        )

    if not any(allowed(trial.way) for trial in trials):
        return plain_way(encoder.name)  # nobody has seen how clusters of such latents are best read
    first = preferred_way(encoder.name)
    return choose(trials, first if untried else first._replace(reading=asked.read_by), allowed)


def expect_of(found: Rehearsal, way: Way, *, mixed: bool, counted: bool) -> Expected | None:
    """The accuracy to be expected of a way: as reported where it is the one that was taken, else as it was tried, and
    less by as much as the one that was taken loses where the number of classes is `counted`.
    """
    trials = found.tried(mixed=mixed)
    given, reported = (found.expected(mixed=mixed, counted=estimated) for estimated in (False, counted))
    if way == choose(trials, preferred_way(way.backbone)):
        return reported
    tried = next((trial for trial in trials if trial.way == way), None)
    if tried is None or not (mixed or found.apart):
        return None
    told = expect(tried.scores, [found.known if mixed else found.hidden] * len(tried.scores))
    if told is None or given is None or reported is None:
        return told
    lost = given.accuracy - reported.accuracy
    return told._replace(accuracy=told.accuracy - lost, least=told.least - lost, most=told.most - lost)
