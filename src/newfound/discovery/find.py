"""find: a model and a pile of images → the classes in it."""

import copy
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.data.collection import Collection
from newfound.data.embedded import Embedded
from newfound.data.sources import Images
from newfound.discovery.reading import examples, held, located, moved, read, remembered, space, twins
from newfound.discovery.result import DOUBTFUL, EXEMPLARS, Discovery, embed
from newfound.discovery.settings import Run
from newfound.discovery.trace import beginning, ending
from newfound.errors import InputError, counted, listing
from newfound.functional.cluster import Held
from newfound.networks.adapter import Adapter
from newfound.networks.model import ENOUGH, Model
from newfound.networks.resnet import OWN
from newfound.training.loop import Learner, Row, estimate, fit
from newfound.types import Problem, Training, seeded

log = logging.getLogger("newfound")

ALL_UNSURE = 2.0
"""A confidence that no image has."""

Progress = Callable[[str, int, Row], None]
"""Called after every epoch: which stage, how many epochs it has, what the epoch gave."""


def silent(stage: str, epochs: int, row: Row) -> None:
    """The progress that says nothing."""


def training(run: Run, images: Collection) -> Training:
    """The host's training on somebody's own images, under wider views. Their shape changes; of images with three
    channels also the colours, where the method asks for strong views.
    """
    host = methods.parse(run.method)[0]
    epochs = host.own.epochs if run.epochs is None else run.epochs
    rate = host.own.rate if run.rate is None else run.rate
    coloured = isinstance(images, Images) and images.pixels.shape[1] == 3
    view = "strong" if coloured and "strong" in host.training.views else "affine"
    budget = host.training.at(epochs, rate, run.batch, host.own.schedule)
    return replace(
        budget, views=(view,) * min(2, len(host.training.views))
    )  # more would take longer than they are worth


def find(
    model: Model,
    unlabelled: Collection,
    classes: int,
    *,
    labelled: Collection | None = None,
    run: Run | None = None,
    progress: Progress = silent,
    keep: Path | None = None,
    resume: bool = False,
) -> Discovery:
    """Train the method on the pile (and the labelled images, in single-stage), then read classes off by k-means.

    `classes` are new ones; known ones may be in the pile too unless the run says otherwise (`mixed`). The model given
    is left as it is; the discovery has its own. `keep` and `resume` are those of `fit`.
    """
    run = (run or Run()).suited(features=isinstance(unlabelled, Embedded))
    check_number(classes, len(unlabelled))
    check_method(
        run.method,
        labelled=labelled is not None,
        features=isinstance(unlabelled, Embedded),
        similarity=model.similarity is not None,
    )
    model, anew = copy.deepcopy(model), methods.parse(run.method)[0].start == "new"
    recognised = recognisable(model, labelled is not None, anew) if run.mixed else ()
    seen = len(unlabelled) + (0 if labelled is None else len(labelled))
    problem = Problem(
        model.backbone.dim,
        known=len(model.classes),
        novel=classes,
        labelled=labelled is not None,
        rows=seen,
        mixed=len(recognised) > 0 and seen >= len(model.classes) + classes,  # with fewer no class could be placed
    )
    with seeded(run.seed, "method"):
        method = methods.build(run.method, problem, model)
    if anew:
        with seeded(run.seed, "new"):
            fresh = model.backbone.fresh()
        model = replace(model, backbone=fresh, head=None, means=None, spread=None, counts=None, trust=None)
    budget = training(run, unlabelled)
    learner, data = Learner(model.backbone, method, budget.trains), unlabelled.beside(labelled)
    if budget.epochs:
        seconds = estimate(learner, data, budget, device=run.device)
        length = f"{counted(budget.epochs, 'epoch')} of {counted(len(data), 'image')}"
        log.info(f"Discovery with {run.method}: {length}{lasting(seconds)}.")
    first = beginning(learner, data, run.seed, budget.epochs)
    before = embed(model, unlabelled) if labelled is None and not isinstance(model.backbone, Adapter) else None
    rows = fit(
        learner,
        data,
        budget,
        run.seed,
        device=run.device,
        progress=lambda row: progress("discover", budget.epochs, row),
        keep=keep,
        resume=resume,
    )
    features, theirs = embed(model, unlabelled), None if labelled is None else embed(model, labelled)
    learner.cpu()  # where all that is known of classes lies
    unit = methods.parse(run.method)[-1].reading == "unit k-means"
    known: Held | None = None
    if labelled is not None and theirs is not None:
        model = located(model, theirs, labelled.labels)
        known = held(space(theirs, unit), labelled.labels, len(model.classes)) if recognised else None
    elif model.told:
        model = model if before is None else moved(model, before, features)
        known = remembered(model, unit=unit, seed=run.seed) if recognised else None
    found = read(space(features, unit), classes, known, run.seed)
    sizes = torch.bincount(found.assignment, minlength=len(found.centres))
    if known is not None:
        sizes[classes:] += known.counts.long()
    discovery = Discovery(
        model,
        paths=unlabelled.names,
        boxes=unlabelled.boxes,
        groups=unlabelled.groups,
        features=features,
        centres=found.centres,
        cluster=found.assignment,
        unit=unit,
        sizes=sizes,
        known=recognised,
        thumbnails={},
        rows=rows,
        skipped=unlabelled.skipped,
        moments=(first, ending(learner, data)),
    )
    discovery.threshold = bar(discovery.confidence(), run.unsure)
    illustrate(discovery, unlabelled)
    return discovery


def recognisable(model: Model, labelled: bool, anew: bool) -> tuple[str, ...]:
    """The known classes that can be recognised in a pile, with or without their images; the others are told.

    In a network that begins `anew` only their images could say where they lie.
    """
    if anew and not labelled and model.classes:
        log.warning(
            "This method begins with a new network, in which nothing says where known classes lie: every image goes to "
            "a new class. To recognise known ones, take another method."
        )
        return ()
    able = model.classes if labelled else model.told
    if lost := [repr(name) for name in model.classes if name not in able]:
        log.warning(
            f"Known classes that cannot be recognised, for they had fewer than {ENOUGH} images: {listing(lost)}. "
            "To recognise them too, give their images (--known)."
        )
    return able


def illustrate(found: Discovery, images: Collection) -> None:
    """Find the near-duplicates, and keep small copies of the most and the least typical of the other images."""
    away = torch.cdist(space(found.features, found.unit), found.centres).gather(1, found.cluster[:, None])[:, 0]
    found.twins = near(images, away, found.cluster)
    lone = torch.ones(len(away), dtype=torch.bool)
    lone[[*found.twins]] = False
    found.thumbnails = images.thumbnails(examples(away, found.cluster, lone, EXEMPLARS, DOUBTFUL))


def bar(confidence: Float[Tensor, " n"], share: float | None) -> float:
    """The confidence below which an image is unsure: where it is more likely wrong than right, or that of a share."""
    if share is None:
        return 0.5
    fewest = math.floor(share * len(confidence) + 1e-9)  # .29 · 100 is a little less than 29
    if fewest == 0:
        return 0.0
    return confidence.sort().values[fewest].item() if fewest < len(confidence) else ALL_UNSURE


def near(images: Collection, away: Float[Tensor, " n"], cluster: Int[Tensor, " n"]) -> dict[int, int]:
    """Rows of near-duplicates, each with that of the image it nearly equals: the most typical of its cluster."""
    looks, found = images.looks(), dict[int, int]()
    for number in cluster.unique():
        rows = (cluster == number).nonzero()[:, 0]
        firsts = rows[twins(looks[rows], away[rows].argsort(stable=True), images.alike)]
        found |= {row: first for row, first in zip(rows.tolist(), firsts.tolist(), strict=True) if row != first}
    return found


def check_number(classes: int, images: int) -> None:
    """Refuse a number of new classes that so many images cannot have."""
    if not 1 <= classes <= images:
        raise InputError(
            f"Asked for {counted(classes, 'class', 'classes')} in {counted(images, 'image')}; ask for at least 1 and "
            "at most one per image."
        )


def check_method(name: str, *, labelled: bool, features: bool, similarity: bool) -> None:
    """Refuse a method that cannot work, before any long work: by whether labelled images take part, whether all that is
    known of an image are features, and whether a network says which images share a class.
    """
    recipes = methods.parse(name)
    if not labelled and not all(recipe.suits(labelled=False) for recipe in recipes):
        raise InputError(
            f"{name} needs labelled images while it discovers; give them too (--known), "
            f"or take a method that does not: {methods.suitable(labelled=False)}."
        )
    if labelled and not all(recipe.suits(labelled=True) for recipe in recipes):
        raise InputError(
            f"{name} discovers in two stages, without the labelled images. Learn from them first with "
            "`newfound pretrain`, then give that model (--model) instead of them (--known)."
        )
    if features and not all(recipe.suits(features=True) for recipe in recipes):
        raise InputError(
            f"{name} needs more of an image than a pretrained backbone's features. Take a method that begins at "
            f"latents ({methods.suitable(features=True)}), or let a network learn from the images themselves "
            f"(--backbone {OWN})."
        )
    if not similarity and any("similarity" in recipe.stage_one for recipe in recipes):
        raise InputError(f"{name} {methods.similarity.NEEDED}")


def lasting(seconds: float | None) -> str:
    """How long something will take, at the end of a sentence; nothing where nobody knows, or there is nothing to do."""
    return f", {about(seconds)}" if seconds else ""


def about(seconds: float) -> str:
    """A rough time in words."""
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(1, round(seconds))} s"
