"""refine: what was found, what people said of it, and the images → what is found now that they have said it."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.console import Progress, silent
from newfound.data.batches import Dataset
from newfound.data.collection import Collection
from newfound.discovery.answers import Answers
from newfound.discovery.changes import explain_changes, tabulate_moves
from newfound.discovery.edits import Classes
from newfound.discovery.facts import About, state_facts
from newfound.discovery.find import plan_training, state_setting, train_run
from newfound.discovery.found import Clusters, Fit, Found
from newfound.discovery.judging import Judgement, calibrate, judge_images
from newfound.discovery.outliers import measure_fit
from newfound.discovery.rehearsal import choose_way
from newfound.discovery.rereading import Present, reread_by
from newfound.discovery.settings import Run
from newfound.discovery.tables import ASIDE, OUTLIER, UNSURE, answer_images
from newfound.encoders import Encoder, embed, encoder_of
from newfound.encoders.known import KnownPoints, compare, known_points
from newfound.functional.calibration import Calibration
from newfound.functional.geometry import nearest
from newfound.methods.base import Method
from newfound.networks.model import Model
from newfound.training.loop import Learner, Row
from newfound.training.moments import Moment, moment, start
from newfound.training.train import Trained
from newfound.types import Problem, Survey, seeded

log = logging.getLogger("newfound")


@dataclass(frozen=True, eq=False)
class ReviewLesson:
    """All that is learnt from: the images, what is said of them, and how the run was made."""

    found: Found
    answers: Answers
    run: Run
    encoder: Encoder
    unlabelled: Collection
    labelled: Collection | None  # those of known classes, where they are at hand

    @property
    def kept(self) -> Int[Tensor, " kept"]:
        """The rows of images that were not set aside."""
        return (~self.answers.aside).nonzero()[:, 0]


class Learnt(NamedTuple):
    """What training left."""

    model: Model
    features: Float[Tensor, "n dim"]  # of all unlabelled images
    labelled: Float[Tensor, "m dim"] | None  # of the labelled ones, where they took part
    history: tuple[Row, ...]
    moments: tuple[Moment, Moment] | None


def encoder_for(found: Found, run: Run) -> Encoder:
    """The encoder that a run was made with, its whitening shrunk as it was for the run."""
    encoder = encoder_of(found.model, run.device)
    return encoder.whitened(choose_way(found.model.rehearsal, encoder, run).shrink)


def refine(
    lesson: ReviewLesson,
    *,
    about: About | None = None,
    progress: Progress = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Found:
    """Learn from what people said, then read the classes that they left.

    Images that somebody vouches for are labelled ones of their classes, in training as in reading; the classes go on
    under their numbers and names, and what was set aside takes no part. `checkpoint` and `resume` are those of `fit`.
    """
    learnt = relearn(lesson, progress=progress, checkpoint=checkpoint, resume=resume)
    return _measure(lesson, learnt, about or About())


def relearn(
    lesson: ReviewLesson, *, progress: Progress = silent, checkpoint: Path | None = None, resume: bool = False
) -> Learnt:
    """Train the run's method again, with the images that somebody vouches for as labelled ones.

    A method that cannot have labelled images beside unlabelled ones, or begins with a new network, leaves latents as
    they are.
    """
    found, run, encoder, kept = lesson.found, lesson.run, lesson.encoder, lesson.kept
    data, problem = pose(lesson)
    recipe = methods.parse(run.method)
    if recipe.start == "new" or not recipe.suits(labelled=problem.labelled):
        log.info(f"{run.method} cannot be trained on such answers: latents stay, and classes are read anew.")
        return Learnt(found.model, found.features, None, found.history, found.moments)
    vouched = lesson.answers.vouched
    model = encoder.learn_scatter(
        found.model, lesson.unlabelled.pick(vouched.nonzero()[:, 0]), lesson.answers.classes.assignment[vouched]
    )
    model = copy.deepcopy(encoder.aim(model, lesson.unlabelled.pick(kept), lesson.labelled, run.seed))
    with seeded(run.seed, "method"):
        method = recipe.build(problem, replace(model, head=None))
    budget = plan_training(run, lesson.unlabelled)
    learner = Learner(model.backbone, method, budget.trains)
    trained = train_run(learner, data, budget, run, "Learning from answers", progress, checkpoint, resume=resume)
    return _collect(lesson, model, trained)


def pose(lesson: ReviewLesson) -> tuple[Dataset, Problem]:
    """What is trained on, and the problem that it is: classes of which labelled images are here are known ones, all
    others are new, also those whose labelled images are away.
    """
    kept, answers, labelled = lesson.kept, lesson.answers, lesson.labelled
    now = answers.classes.assignment[kept]
    vouched, numbers = answers.vouched[kept], [*numbers_that_stay(lesson)]
    theirs = torch.zeros(0, dtype=torch.long)
    if labelled is not None:
        called = number_known(lesson.found, answers.classes)
        of = [called.get(name, -1) for name in labelled.listing.classes]
        theirs = torch.tensor(of)[labelled.listing.labels]
    taught = [number for number in numbers if number in {*now[vouched].tolist(), *theirs.tolist()}]
    place = {number: label for label, number in enumerate(taught)}
    told = torch.where(vouched, now, -1)
    labels = torch.tensor([place.get(number, -1) for number in torch.cat([theirs, told]).tolist()])
    data = lesson.unlabelled.pick(kept).discovery_set(labelled).relabel(labels)
    novel = min(len(numbers) - len(taught), int((labels < 0).sum()))
    dim = lesson.found.model.backbone.dim
    return data, Problem(dim, len(taught), novel, labelled=bool(taught), rows=len(data), mixed=bool(taught))


def _collect(lesson: ReviewLesson, model: Model, trained: Trained) -> Learnt:
    """What training left, of all images: those that were set aside are looked at now."""
    first, kept = 0 if lesson.labelled is None else len(lesson.labelled), lesson.kept
    before, after = (survey.features[first:] for survey in (trained.before, trained.after))
    model = replace(model, head=None) if trained.epochs else model  # it was another backbone's
    model, metric = lesson.encoder.aim_for_reading(model)
    theirs = None if lesson.labelled is None else trained.after.features[:first] @ metric
    told = None if theirs is None or lesson.labelled is None else (theirs, lesson.labelled.listing.labels)
    model = lesson.encoder.update_known(model, before @ metric, after @ metric, told)
    aside = lesson.answers.aside.nonzero()[:, 0]
    features = after.new_empty(len(lesson.found), after.shape[1])
    features[kept], features[aside] = after @ metric, embed(model, lesson.unlabelled.pick(aside))
    started = start(trained.untrained, trained.before, trained.seed, trained.epochs)
    moments = _show(started, before, kept), _show(trained.method, after, kept)
    return Learnt(model, features, theirs, tuple(trained.history), moments)


def _show(method: Method, latents: Float[Tensor, "kept dim"], kept: Int[Tensor, " kept"]) -> Moment:
    """A moment of all images that take part, those that somebody vouches for too, by their rows among all."""
    shown = moment(method, Survey(latents, torch.full((len(kept),), -1)))
    return replace(shown, rows=kept[shown.rows])


def number_known(found: Found, now: Classes) -> dict[str, int]:
    """The present class that each known one is, or was merged into."""
    return dict(zip(found.known, now.owners[: len(found.known)].tolist(), strict=True))


def numbers_that_stay(lesson: ReviewLesson) -> list[int]:
    """The classes that go on, known ones first: those with images, and known ones of which is known where they lie."""
    now, found = lesson.answers.classes, lesson.found
    able = found.model.classes if lesson.labelled is not None else found.model.recognisable
    placed = {number for name, number in number_known(found, now).items() if name in able}
    return [number for number in lesson.answers.numbers if number in placed or len(now.rows(number))]


def stand_for_known(lesson: ReviewLesson, learnt: Learnt, numbers: Sequence[int], unit: bool) -> KnownPoints | None:
    """What stands for known classes among latents, by their places among these numbers."""
    if not lesson.found.known:
        return None
    labelled = lesson.labelled
    theirs = None if labelled is None or learnt.labelled is None else (learnt.labelled, labelled.listing.labels)
    if theirs is None and not learnt.model.recognisable:
        return None
    points = known_points(lesson.encoder, learnt.model, theirs, unit=unit, seed=lesson.run.seed)
    names = learnt.model.recognisable if theirs is None else learnt.model.classes
    called = number_known(lesson.found, lesson.answers.classes)
    places = torch.tensor([numbers.index(called[name]) if name in called else -1 for name in names])
    there = places >= 0  # not all that labelled images are of may have been looked for
    counts = torch.zeros(len(numbers), dtype=torch.long).index_add_(0, places[there], points.counts[there])
    seen = there[points.labels]
    return KnownPoints(points.points[seen], places[points.labels[seen]], counts)


def read_anew(lesson: ReviewLesson, learnt: Learnt) -> tuple[list[int], Clusters]:
    """The classes that go on, by number, and the clusters that they are now, in the same order."""
    now, numbers, kept = lesson.answers.classes, numbers_that_stay(lesson), lesson.kept
    unit, seed = lesson.found.clusters.unit, lesson.run.seed
    known = stand_for_known(lesson, learnt, numbers, unit)
    place = {number: i for i, number in enumerate(numbers)}
    assignment = torch.tensor([place[number] for number in now.assignment[kept].tolist()])
    present = Present(assignment, lesson.answers.vouched[kept], lesson.answers.bar(numbers)[kept], known)
    z = compare(learnt.features, unit)
    read = reread_by(lesson.run.read_by, z[kept], present, seed)
    sizes = torch.bincount(read.assignment, minlength=len(numbers)) + (0 if known is None else known.counts)
    everywhere = nearest(z, read.centres).index_copy(0, kept, read.assignment)  # what was set aside lies somewhere too
    return numbers, Clusters(everywhere, read.centres, sizes, unit)


def _measure(lesson: ReviewLesson, learnt: Learnt, about: About) -> Found:
    """What was measured, from what training left."""
    found, run, now, model = lesson.found, lesson.run, lesson.answers.classes, learnt.model
    numbers, clusters = read_anew(lesson, learnt)
    called = {number: name for name, number in reversed(number_known(found, now).items())}  # the first that it was
    known = tuple(called[number] for number in numbers if number in called)
    before = [found.known.index(name) for name in known]
    calibration, fit = _calibrate(lesson, model, clusters, known)
    judged = judge_images(lesson.unlabelled, learnt.features, clusters, calibration, fit, run.unsure)
    after = answer_anew(lesson.answers, torch.tensor(numbers)[clusters.assignment], judged)
    changed = tabulate_moves(answer_images(now), after, now.names)
    facts = _state(lesson, about, len(numbers) - len(known), len(known)) | {"changed": explain_changes(changed)}
    return Found(
        found.listing,
        model,
        learnt.features,
        clusters,
        calibration,
        judged.threshold,
        fit,
        known=known,
        numbers=tuple(numbers),
        duplicates=judged.duplicates,
        thumbnails=judged.thumbnails,
        references={place: found.references[old] for place, old in enumerate(before) if old in found.references},
        history=learnt.history,
        truth=found.truth,
        moments=learnt.moments,
        facts=facts,
        run=run,
        called=tuple(now.names[number] for number in numbers),
        used=now.used,
    )


def answer_anew(answers: Answers, numbers: Int[Tensor, " n"], judged: Judgement) -> Int[Tensor, " n"]:
    """The class that each image is of once it was read anew, by number, or that it has none, as tables will say it."""
    unsure, outlier = judged.unnamed
    named = numbers.masked_fill(unsure, UNSURE).masked_fill(outlier, OUTLIER)
    return numbers.where(answers.vouched, named).masked_fill(answers.aside, ASIDE)


def _calibrate(
    lesson: ReviewLesson, model: Model, clusters: Clusters, known: tuple[str, ...]
) -> tuple[Calibration, Fit | None]:
    """What distances mean, and where outliers show. Where known classes were merged nobody knows where outliers of the
    new ones begin, and none is called so.
    """
    encoder, labelled = lesson.encoder, lesson.labelled
    estimated = lesson.found.count is not None
    calibration = calibrate(model, encoder, len(clusters.centres), estimated=estimated, reading=lesson.run.read_by)
    if known != (model.recognisable if labelled is None else tuple(labelled.listing.classes)):
        return calibration._replace(outlier=None), None
    return calibration, measure_fit(encoder, model, lesson.unlabelled, labelled, clusters, len(known))


def _state(lesson: ReviewLesson, about: About, new: int, known: int) -> dict[str, str]:
    """How it was made, for people."""
    facts = state_facts(
        about,
        lesson.run,
        plan_training(lesson.run, lesson.unlabelled),
        backbone=lesson.encoder.describe(),
        setting=state_setting(lesson.found.model, lesson.labelled),
        images=len(lesson.found),
        new=new,
        known=known,
    )
    return facts | {"classes": f"{new} new, as they were reviewed", "answers": str(lesson.answers)}
