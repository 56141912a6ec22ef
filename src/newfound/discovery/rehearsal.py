"""Rehearsal: known classes are hidden for a moment, so that they say how new ones are best found, and how well.

Known classes are the one place where somebody's own images have a truth. That of unlabelled images is never seen here.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.console import Progress, silent
from newfound.data.collection import Collection
from newfound.data.features import FeatureDataset, FeatureImages
from newfound.discovery.find import plan_training, state_problem
from newfound.discovery.howmany import MOST
from newfound.discovery.settings import AUTO, DISCRIMINANT, KMEANS, NO, Run, StageOne
from newfound.encoders import Encoder
from newfound.encoders.features import FeatureEncoder, shrink_for_counting
from newfound.encoders.known import KnownPoints
from newfound.encoders.reading import read_by
from newfound.encoders.statistics import add_head
from newfound.functional.axes import FEW, SHRINK, Axes, axes, main_axes, moments, power_normalised, squared
from newfound.functional.counting import Errors, sweep
from newfound.functional.geometry import covariance, means
from newfound.functional.metrics import gcd_accuracy
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
    hide,
    tell_nothing,
    thin,
)
from newfound.networks.adapter import adapter_along
from newfound.networks.model import Model, Statistics
from newfound.training.loop import Learner, survey
from newfound.training.train import train
from newfound.types import generator, seeded

log = logging.getLogger("newfound")

HIDINGS, DEAR = 10, 3
"""How often classes are hidden to choose, and on how many of these what is trained is tried."""

REPORTED = 5
"""How often they are hidden, otherwise, to say what is to be expected, all of them and half of them; where that takes
training, `DEAR` times each.
"""

TAUGHT = 400
"""Images of either kind that are trained on, at most; all are read. Training costs most; decision 13."""

COUNTED, TIMES = 5, 3
"""How often they are hidden to see how counting errs, and how many times as many classes as there are it may find."""

SHRINKS = (SHRINK, 1.0)
"""How much the known classes' covariance may be shrunk, the default first. Not by more: with half of the classes hidden
it is known less well than in earnest, and more would seem better than it is.
"""

TRIED = (KMEANS, DISCRIMINANT)
"""How clusters may be read off. Mean shift alone never did better than with discriminants after it; decision 13."""

MAIN, SAMPLE = 256, 3000
"""Directions that hold nearly all of features, and images that they are taken from: quicker to turn and whiten."""


@dataclass(frozen=True, eq=False)
class RehearsalSet:
    """Features of known classes on which hidings are played, along their main directions."""

    images: FeatureImages
    labels: Int[Tensor, " n"]
    x: Float[Tensor, "n main"]  # power-normalised, along the main directions
    main: Axes
    encoder: FeatureEncoder

    @staticmethod
    def of(images: FeatureImages, encoder: FeatureEncoder) -> "RehearsalSet":
        """Those of labelled images."""
        x, labels = power_normalised(images.features()), images.listing.labels
        random = generator("main directions")
        main = main_axes(x[torch.randperm(len(x), generator=random)[:SAMPLE]], MAIN, random)
        return RehearsalSet(images, labels, (x.double() - main.centre) @ main.matrix, main, encoder)

    def hidings(self, purpose: str, number: int, seed: int, *, part: int = 1) -> list[Hiding]:
        """So many, of all classes or of one in `part`; none where too few classes are known."""
        return [*filter(None, (self._hide(part, seed, "rehearsal", purpose, turn) for turn in range(number)))]

    def _hide(self, part: int, *key: int | str) -> Hiding | None:
        classes = int(self.labels.max()) + 1
        some = torch.randperm(classes, generator=generator(*key, "part"))[: -(-classes // part)]
        rows = torch.isin(self.labels, some).nonzero()[:, 0]
        found = hide(self.labels[rows].unique(return_inverse=True)[1], *key)
        return found and found._replace(labelled=rows[found.labelled], pile=rows[found.pile])

    def place(self, hiding: Hiding, shrink: float) -> Axes:
        """Axes, along the main directions, that know the kept classes alone."""
        told, pile = self.x[hiding.labelled], self.x[hiding.pile]
        centres, _ = means(told, hiding.labels, hiding.known)
        share = shrink * self.x.shape[1] / len(self.main.centre)  # of the mean over all directions, as everywhere
        return axes(moments(torch.cat([told, pile])), FEW, covariance(told, hiding.labels, centres), share)

    def latents(self, hiding: Hiding, shrink: float) -> tuple[Float[Tensor, "m dim"], Float[Tensor, "n dim"]]:
        """Latents of labelled and of unlabelled images before anything is trained."""
        found = self.place(hiding, shrink)
        told, pile = (F.normalize((self.x[rows] - found.centre) @ found.matrix, dim=1).float() for rows in hiding[:3:2])
        return told, pile

    def trained(
        self, hiding: Hiding, shrink: float, method: str, seed: int
    ) -> tuple[Float[Tensor, "m dim"], Float[Tensor, "n dim"]]:
        """The same once a method has been trained, as `find` does it.

        The axes of an adapter never move. So features are brought to them once, and what learns begins there.
        """
        found, names = self.place(hiding, shrink), tuple(map(str, range(hiding.known)))
        few = found.matrix.shape[1]
        adapter = adapter_along(Axes(torch.zeros(few), torch.eye(few)), seed)
        told = (self.x[hiding.labelled] - found.centre) @ found.matrix
        statistics = Statistics.of(told.float(), hiding.labels, hiding.known)
        model = add_head(Model(adapter, self.encoder.size, 3, names), adapter, statistics)
        some = thin(hiding, TAUGHT, seed, "taught")
        taught = _join(some, self._turn(self._views(torch.cat([some.labelled, some.pile])), found))
        problem = state_problem(model, hiding.hidden, True, len(taught), mixed=True)
        with seeded(seed, "method"):
            built = methods.parse(method).build(problem, model)
        training = plan_training(Run(method=method), self.images)
        learner = Learner(adapter, built, training.trains)
        train(learner, taught, training, seed, device=self.encoder.device)
        plain = self.x[torch.cat([hiding.labelled, hiding.pile]), None]
        after = survey(adapter, _join(hiding, self._turn(plain, found)))
        return after.labelled, after.unlabelled

    def _views(self, rows: Int[Tensor, " some"]) -> Float[Tensor, "some views main"]:
        """All that is kept of some images, along the main directions."""
        records = power_normalised(self.images.records[self.images.places[rows]].float().flatten(0, 1))
        return ((records.double() - self.main.centre) @ self.main.matrix).unflatten(0, (len(rows), -1))

    @staticmethod
    def _turn(x: Float[Tensor, "some views main"], along: Axes) -> Float[Tensor, "some views few"]:
        """What an adapter that looks along no axes of its own takes for unit latents along these."""
        return squared(F.normalize((x - along.centre) @ along.matrix, dim=2).float())

    @staticmethod
    def score(
        hiding: Hiding,
        told: Float[Tensor, "m dim"],
        pile: Float[Tensor, "n dim"],
        reading: str,
        seed: int,
        *,
        mixed: bool = True,
    ) -> float:
        """Accuracy on the images that were taken for unlabelled, by one assignment of clusters to classes; or on those
        of hidden classes, where no image is of a known one (not `mixed`).
        """
        z, truth, new = F.normalize(pile, dim=1), hiding.truth, hiding.truth >= hiding.known
        if not mixed:
            found = read_by(reading, z[new], hiding.hidden, None, seed)
            return gcd_accuracy(truth[new], found.assignment, 0).all
        counts = torch.bincount(hiding.labels, minlength=hiding.known)
        known = KnownPoints(F.normalize(told, dim=1), hiding.labels, counts)
        return gcd_accuracy(truth, read_by(reading, z, hiding.hidden, known, seed).assignment, hiding.known).all


def _join(hiding: Hiding, records: Float[Tensor, "n views few"]) -> FeatureDataset:
    """The images of a hiding, as they are trained on: labelled ones, then the pile."""
    labels = torch.cat([hiding.labels, torch.full((len(hiding.pile),), -1)])
    return FeatureDataset(records, labels, torch.arange(len(labels)))


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
    taken = {kind: choose(found.tried(mixed=kind), preferred_way(encoder.name)) for kind in (True, False)}
    reported = _report(stage, taken, seed)
    return found._replace(mixed=reported[True], alone=reported[False], counting=tuple(count_hidden(stage, seed)))


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


def _report(stage: RehearsalSet, taken: dict[bool, Way], seed: int) -> dict[bool, Expected | None]:
    """What ways give on other hidings than they were chosen on, of all the known classes and of half of them: one where
    images are of known classes too, one where none is. Both are tried on the same, which are placed, or trained, once.
    """
    scores, classes = dict[bool, list[float]](), dict[bool, list[int]]()
    for part in (1, 2):
        for turn, hiding in enumerate(stage.hidings(f"report {part}", REPORTED, seed, part=part)):
            latents = dict[tuple[float, str], tuple[Tensor, Tensor]]()
            for mixed, way in taken.items():
                if way.method != "kmeans" and turn >= DEAR:
                    continue
                if (key := (way.shrink, way.method)) not in latents:
                    cheap = way.method == "kmeans"
                    latents[key] = stage.latents(hiding, way.shrink) if cheap else stage.trained(hiding, *key, seed)
                found = stage.score(hiding, *latents[key], way.reading, seed, mixed=mixed)
                scores.setdefault(mixed, []).append(found)
                classes.setdefault(mixed, []).append(hiding.hidden + (hiding.known if mixed else 0))
    return {mixed: expect(scores.get(mixed, ()), classes.get(mixed, ())) for mixed in taken}


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


def settle(model: Model, encoder: Encoder, asked: Run, *, given: bool) -> Settled:
    """Take the best of what a model's rehearsal tried; whatever was asked for stays as it is.

    `given` says that the model came from elsewhere, its rehearsal with it.
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
    return Settled(run, way, "", expect_of(found, way, mixed=asked.mixed))


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


def expect_of(found: Rehearsal, way: Way, *, mixed: bool) -> Expected | None:
    """The accuracy to be expected of a way: as reported where it is the one that was taken, else as it was tried."""
    trials = found.tried(mixed=mixed)
    if way == choose(trials, preferred_way(way.backbone)):
        return found.mixed if mixed else found.alone
    tried = next((trial for trial in trials if trial.way == way), None)
    if tried is None or not (mixed or found.apart):
        return None
    return expect(tried.scores, [found.known if mixed else found.hidden] * len(tried.scores))
