"""find: a model and unlabelled images → what is found in them."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.console import Progress, silent
from newfound.data.batches import Dataset
from newfound.data.collection import Collection
from newfound.discovery.facts import About, state_facts
from newfound.discovery.found import Clusters, Found
from newfound.discovery.judging import calibrate, judge_images, pick_references
from newfound.discovery.outliers import measure_fit
from newfound.discovery.plan import check_method, check_number
from newfound.discovery.settings import Run
from newfound.encoders import Encoder, encoder_of
from newfound.encoders.known import KnownPoints, compare, known_points
from newfound.encoders.reading import read_by
from newfound.errors import shorten
from newfound.methods.base import Method, Recipe
from newfound.networks.model import ENOUGH, Model
from newfound.training.loop import Learner, tell_length
from newfound.training.train import Trained, train
from newfound.types import Problem, Training, seeded

log = logging.getLogger("newfound")


def find(
    model: Model,
    unlabelled: Collection,
    classes: int,
    *,
    labelled: Collection | None = None,
    run: Run | None = None,
    about: About | None = None,
    progress: Progress = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Found:
    """Train the method on unlabelled images (and labelled ones, in single-stage), then read clusters off by k-means.

    `classes` are new ones; unlabelled images may be of known ones too unless the run says otherwise (`mixed`). The
    model given is left as it is; what is found has its own. `checkpoint` and `resume` are those of `fit`.
    """
    encoder = encoder_of(model)
    run = (run or Run()).suited(encoder.default_method)
    check_number(classes, len(unlabelled))
    check_method(run.method, encoder, labelled=labelled is not None, similarity=model.similarity is not None)
    encoder.check_images([unlabelled, *(() if labelled is None else (labelled,))])
    recipe, data = methods.parse(run.method), unlabelled.discovery_set(labelled)
    recognised = list_recognisable(model, labelled is not None, recipe.start == "new") if run.mixed else ()
    problem = state_problem(model, classes, labelled is not None, len(data), mixed=bool(recognised))
    model, method = _build(recipe, problem, copy.deepcopy(model), run.seed)
    budget = plan_training(run, unlabelled)
    learner = Learner(model.backbone, method, budget.trains)
    trained = train_run(learner, data, budget, run, "Discovery", progress, checkpoint, resume=resume)
    return _measure(model, encoder, trained, unlabelled, labelled, classes, recognised, run, about or About())


def train_run(
    learner: Learner,
    data: Dataset,
    budget: Training,
    run: Run,
    what: str,
    progress: Progress,
    checkpoint: Path | None,
    *,
    resume: bool,
) -> Trained:
    """Train as a run asks, and say beforehand how long that will take."""
    if budget.epochs:
        length = tell_length(learner, data, budget, device=run.device, checkpoint=checkpoint if resume else None)
        log.info(f"{what} with {run.method}: {length}.")
    return train(
        learner,
        data,
        budget,
        run.seed,
        device=run.device,
        progress=lambda row: progress("discover", budget.epochs, row),
        checkpoint=checkpoint,
        resume=resume,
    )


def _measure(
    model: Model,
    encoder: Encoder,
    trained: Trained,
    unlabelled: Collection,
    labelled: Collection | None,
    classes: int,
    recognised: tuple[str, ...],
    run: Run,
    about: About,
) -> Found:
    """What was measured, from what training left."""
    model, features, theirs = place_images(model, encoder, trained, labelled)
    unit = run.unit(methods.parse(run.method).reading)
    known = known_points(encoder, model, theirs, unit=unit, seed=run.seed) if recognised else None
    clusters = read_clusters(features, classes, known, unit, run.seed, run.read_by)
    fit = measure_fit(encoder, model, unlabelled, labelled, clusters, len(recognised))
    estimated = about.count is not None
    calibration = calibrate(model, encoder, len(clusters.centres), estimated=estimated, reading=run.read_by)
    judged = judge_images(unlabelled, features, clusters, calibration, fit, run.unsure)
    return Found(
        unlabelled.listing,
        model,
        features,
        clusters,
        calibration,
        judged.threshold,
        fit,
        known=recognised,
        numbers=number_clusters(model, recognised, classes),
        duplicates=judged.duplicates,
        thumbnails=judged.thumbnails,
        references=pick_references(labelled, None if theirs is None else compare(theirs[0], unit), recognised),
        history=tuple(trained.history),
        count=about.count,
        truth=about.truth,
        moments=trained.moments(),
        facts=_state(model, encoder, unlabelled, labelled, classes, len(recognised), run, about),
        run=run,
        way=about.way,
        expected=about.expected,
    )


def _state(
    model: Model,
    encoder: Encoder,
    unlabelled: Collection,
    labelled: Collection | None,
    new: int,
    known: int,
    run: Run,
    about: About,
) -> dict[str, str]:
    """The facts of a run, for people."""
    return state_facts(
        about,
        run,
        plan_training(run, unlabelled),
        backbone=encoder.describe(),
        setting=state_setting(model, labelled),
        images=len(unlabelled),
        new=new,
        known=known,
    )


def place_images(
    model: Model, encoder: Encoder, trained: Trained, labelled: Collection | None
) -> tuple[Model, Float[Tensor, "n dim"], tuple[Float[Tensor, "m dim"], Int[Tensor, " m"]] | None]:
    """The model that classes are read with, and where it puts unlabelled images, and labelled ones with their labels,
    where these took part.
    """
    model = replace(model, head=None) if trained.epochs else model  # it was another backbone's
    model, metric = encoder.aim_for_reading(model)
    before, after, told = (
        z @ metric for z in (trained.before.unlabelled, trained.after.unlabelled, trained.after.labelled)
    )
    theirs = None if labelled is None else (told, labelled.listing.labels)
    return encoder.update_known(model, before, after, theirs), after, theirs


def number_clusters(model: Model, known: Sequence[str], new: int) -> tuple[int, ...]:
    """The number of each cluster's class: known classes keep those that the model calls them by, new ones get numbers
    that no class had before. Where no known class is looked for there are no others: 1, 2, 3, …
    """
    if not known:
        return tuple(range(1, new + 1))
    called = dict(zip(model.classes, model.numbers, strict=True))
    return (*(called[name] for name in known), *range(model.used + 1, model.used + new + 1))


def state_setting(model: Model, labelled: Collection | None) -> str:
    """Whether labelled images took part, for people."""
    if labelled is not None:
        return f"single-stage, with {len(labelled)} labelled images"
    return "two-stage, without the labelled images" if model.classes else "no class is known"


def state_problem(model: Model, classes: int, labelled: bool, rows: int, *, mixed: bool) -> Problem:
    """What the method is told. With fewer images than classes no known one could be placed among unlabelled ones."""
    known = len(model.classes)
    return Problem(model.backbone.dim, known, classes, labelled, rows, mixed=mixed and rows >= known + classes)


def _build(recipe: Recipe, problem: Problem, model: Model, seed: int) -> tuple[Model, Method]:
    """The method, and the model whose backbone it will train: a fresh one, where it begins anew."""
    with seeded(seed, "method"):
        method = recipe.build(problem, model)
    if recipe.start == "new":
        with seeded(seed, "new"):
            model = replace(model, backbone=model.backbone.fresh(), head=None, known=None, calibration=None)
    return model, method


def plan_training(run: Run, images: Collection) -> Training:
    """The host's training on somebody's own images, under wider views. Their shape changes; of images with three
    channels also the colours, where the method asks for strong views.
    """
    recipe = methods.parse(run.method)
    epochs = recipe.own.epochs if run.epochs is None else run.epochs
    rate = recipe.own.rate if run.rate is None else run.rate
    view = "strong" if images.coloured and "strong" in recipe.training.views else "affine"
    budget = recipe.training.at(epochs, rate, run.batch, recipe.own.schedule)
    return replace(budget, views=(view,) * min(2, len(budget.views)))  # more would take longer than they are worth


def list_recognisable(model: Model, labelled: bool, anew: bool) -> tuple[str, ...]:
    """The known classes that can be recognised among unlabelled images, with or without their own; the others are said.

    In a network that begins `anew` only their images could say where they lie.
    """
    if anew and not labelled and model.classes:
        log.warning(
            "This method begins with a new network, in which nothing says where known classes lie: every image goes to "
            "a new class. To recognise known ones, take another method."
        )
        return ()
    able = model.classes if labelled else model.recognisable
    if lost := [repr(name) for name in model.classes if name not in able]:
        log.warning(
            f"Known classes that cannot be recognised, for they had fewer than {ENOUGH} images: {shorten(lost)}. "
            "To recognise them too, give their images (--known)."
        )
    return able


def read_clusters(
    latents: Float[Tensor, "n dim"], new: int, known: KnownPoints | None, unit: bool, seed: int, by: str
) -> Clusters:
    """Clusters as they are read off, with how many images each centre is the mean of."""
    z = compare(latents, unit)
    found = read_by(by, z, new, known, seed)
    sizes = torch.bincount(found.assignment, minlength=len(found.centres))
    if known is not None:
        sizes[: len(known.counts)] += known.counts.long()
    return Clusters(found.assignment, found.centres, sizes, unit)
