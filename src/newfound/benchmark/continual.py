"""Continual discovery: a model learns classes from unlabelled images, step after step, without the images before.

    model of step t − 1, unlabelled images of the next classes ──method──▶ model of step t, with all classes

The truth of unlabelled images is taken up after training alone: to name novel outputs, once, on the step's own training
images, and to measure test images. The upper bound, `JOINT`, learns from it, and is a row for that reason only.
"""

import copy
import logging
import time
from collections.abc import Sequence as Many
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from filelock import Timeout
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound import cache, files, methods, parallel
from newfound.benchmark.cached_maps import carried
from newfound.benchmark.results import add, check_setting, has
from newfound.benchmark.rows import rounded
from newfound.benchmark.sequences import JOINT, ROWS, Sequence
from newfound.benchmark.sources import Source, read_source
from newfound.console import Progress, silent
from newfound.discovery.facts import versions
from newfound.encoders.statistics import SHARPNESS
from newfound.errors import InputError, choices
from newfound.functional.exemplars import herding
from newfound.functional.geometry import covariance, means, whitening
from newfound.functional.metrics import ByKind, accuracy, forgetting, forward_transfer, group_accuracy, matching
from newfound.methods.base import Method
from newfound.methods.stage_one import Supervised
from newfound.networks.heads import unbiased
from newfound.networks.model import Model, Statistics
from newfound.training.loop import Learner, survey
from newfound.training.train import train
from newfound.types import Problem, seeded

log = logging.getLogger("newfound")

KEEPS: dict[str, int | None] = {"icarl": 20, "rs-il": None}
"""Images of each class that are kept for a method that needs some: iCaRL's 2000 are so many of each of 100 classes.
None: all, with the labels that they had or were given.
"""


RIDGE = 0.05
"""How much the shared covariance is shrunk before latents are whitened by it for a head (decision 19)."""


class StepImages(NamedTuple):
    """Training images of a step by their rows, with the labels that they go under: −1 where unlabelled."""

    rows: Int[Tensor, " n"]
    labels: Int[Tensor, " n"]


class Step(NamedTuple):
    """What a step leaves: the next model, the method that made it, and which novel class each image was given."""

    model: Model
    method: Method
    guess: Int[Tensor, " n"]
    seconds: float


def learn(
    which: Sequence, source: Source, model: Model, new: StepImages, old: StepImages, novel: int, name: str, seed: int
) -> Step:
    """One step: the model, unlabelled images of novel classes, and, for a method that needs them, old images with
    labels, become a model of all classes. The model given stays as it is.

    The next backbone is the one that has learnt; what is known moves as unlabelled latents did (`carried`). A method
    that discovers `apart` leaves it as it was: the head follows from statistics.
    """
    began, known, recipe = time.perf_counter(), len(model.classes), methods.parse(name)
    given, model = model, replace(model, backbone=copy.deepcopy(model.backbone))
    labelled = recipe.labelled == "needed"
    shown = StepImages(*(torch.cat(parts) for parts in zip(old, new, strict=True))) if labelled else new
    backbone, data = source.data(model, *shown)
    problem = Problem(backbone.dim, known, novel, labelled, len(data))
    with seeded(seed, "method", known):
        method = recipe.build(problem, replace(model, backbone=backbone))
    training = which.training(name)
    trained = train(Learner(backbone, method, training.trains), data, training, seed)
    before, after = trained.before.unlabelled, trained.after.unlabelled
    scores = method.novel_logits(after, novel)
    assert scores is not None
    guess = scores.argmax(1)
    if recipe.apart:
        grown = add_classes(given, before, guess, novel)
        grown = replace(grown, head=None if grown.known is None else head_of(grown.known))
    else:
        moved = carried(model, before, after) if training.trains else model
        grown = replace(add_classes(moved, after, guess, novel), head=method.joint_head())
    return Step(grown, trained.method, guess, time.perf_counter() - began)


def add_classes(model: Model, features: Float[Tensor, "n dim"], guess: Int[Tensor, " n"], novel: int) -> Model:
    """The model with novel classes beside the others, by what was guessed of these latents; its head stays."""
    names = (f"{len(model.classes) + place}" for place in range(novel))
    return replace(model, classes=(*model.classes, *names), known=grow(model.known, features, guess, novel))


@torch.no_grad()
def head_of(known: Statistics) -> nn.Linear:
    """The head that follows from statistics: it tells classes by the angle to their means, where latents are whitened.

        h_k(z) = z W · unit(μ_k W),   W = (S + ρ s̄ I)^−½        (`whitening`; ρ is `RIDGE`)

    A class without a mean is never said.
    """
    metric = whitening(known.within_covariance, RIDGE)
    head = unbiased(SHARPNESS * F.normalize(known.means @ metric, dim=1) @ metric)
    head.bias.masked_fill_(known.counts == 0, torch.finfo(head.bias.dtype).min)
    return head


def grow(
    known: Statistics | None, features: Float[Tensor, "n dim"], guess: Int[Tensor, " n"], novel: int
) -> Statistics | None:
    """What is known of classes, with novel ones added as they were guessed.

        S ← (c S + c′ S′) / (c + c′)

    c, c′ are the classes before and the novel ones: each weighs the same, however many images it has. Those that taught
    the network, which are many, lie closer together than others of their class would (decision 19). A class that no
    image was given has no mean.
    """
    if known is None:
        return None
    centres, counts = means(features, guess, novel)
    before, more = (known.counts > 0).sum(), (counts > 0).sum()
    share = (more / (before + more).clamp(min=1)).to(features)
    spread = torch.lerp(known.within_covariance, covariance(features, guess, centres), share)
    return Statistics(torch.cat([known.means, centres]), spread, torch.cat([known.counts, counts]))


@torch.no_grad()
def tell(done: Step, latents: Float[Tensor, "m dim"]) -> Float[Tensor, "m classes"]:
    """Scores of all classes: by the next model's head, or where it can hold none by the method."""
    logits = done.model.head(latents) if done.model.head is not None else done.method.logits(latents)
    assert logits is not None
    return logits


def learn_jointly(which: Sequence, source: Source, first: Model, classes: int, seed: int) -> tuple[Model, Method]:
    """The upper bound: all classes so far together, with all true labels, from the first model on; the head starts at
    the directions of their means.
    """
    model = replace(first, backbone=copy.deepcopy(first.backbone))
    rows = (source.labels < classes).nonzero()[:, 0]
    backbone, data = source.data(model, rows, source.labels[rows])
    seen = survey(backbone, data)
    centres, _ = means(seen.features.cpu(), seen.labels.cpu(), classes)
    method = Supervised(Problem(backbone.dim, known=classes, novel=0))
    method.head.load_state_dict(unbiased(SHARPNESS * F.normalize(centres, dim=1)).state_dict())
    training = which.training(JOINT)
    trained = train(Learner(backbone, method, training.trains), data, training, seed)
    return model, trained.method


def run(which: Sequence, source: Source, name: str, seed: int, progress: Progress = silent) -> dict[str, Any]:
    """All steps with one method and seed, each measured on the test images of all classes so far."""
    began = time.perf_counter()
    first = source.first(seed, progress)
    sizes, title = which.sizes, f"seed {seed}: {name}"
    assert first.head is not None
    with torch.no_grad():
        table = [score(source, sizes[:1], first.head(source.test(first)), {})]
    if name == JOINT:
        for done in range(1, len(sizes)):
            classes = sum(sizes[: done + 1])
            model, method = learn_jointly(which, source, first, classes, seed)
            logits = method.logits(source.test(model))
            assert logits is not None
            table.append(score(source, sizes[: done + 1], logits, {}))
            progress(title, len(sizes) - 1, {"epoch": float(done)})
        found: dict[str, Any] = {}
    else:
        found = _walk(which, source, first, name, seed, table, progress)
    return {
        "method": name,
        "seed": seed,
        "training": which.training(name).settings(),
        "seconds": round(time.perf_counter() - began, 1),
        "versions": versions(),
    } | rounded(summarise(table, sizes) | found)


def _walk(
    which: Sequence, source: Source, first: Model, name: str, seed: int, table: list[list[float]], progress: Progress
) -> dict[str, Any]:
    """The steps of a method, its test accuracies added to the table; and how well it discovers at each, beside how well
    it would have from the first model.
    """
    model, sizes, names = first, which.sizes, dict[int, int]()
    base = old = keep(source, first, seen_at_first(source, sizes[0]), KEEPS.get(name, 0))
    discovered, from_first = list[float](), list[float]()
    for step, novel in enumerate(sizes[1:], 1):
        before = len(model.classes)
        rows = ((source.labels >= before) & (source.labels < before + novel)).nonzero()[:, 0]
        new, truth = StepImages(rows, torch.full_like(rows, -1)), source.labels[rows]
        done = learn(which, source, model, new, old, novel, name, seed)
        if step > 1:
            again = learn(which, source, first, new, base, novel, name, seed)
            from_first.append(accuracy(truth, again.guess))
        names |= {before + output: label for output, label in matching(truth, done.guess).items()}
        discovered.append(accuracy(truth, done.guess))
        model = done.model
        more = keep(source, model, StepImages(rows, before + done.guess), KEEPS.get(name, 0))
        old = StepImages(torch.cat([old.rows, more.rows]), torch.cat([old.labels, more.labels]))
        table.append(score(source, sizes[: step + 1], tell(done, source.test(model)), names))
        progress(f"seed {seed}: {name}", len(sizes) - 1, {"epoch": float(step)})
    later = {"forward transfer": forward_transfer(discovered[1:], from_first)} if from_first else {}
    return {"discovery": discovered} | later


def seen_at_first(source: Source, known: int) -> StepImages:
    """The labelled images of the first classes."""
    rows = (source.labels < known).nonzero()[:, 0]
    return StepImages(rows, source.labels[rows])


def score(source: Source, sizes: Many[int], logits: Float[Tensor, "m outputs"], names: dict[int, int]) -> list[float]:
    """Accuracy of each group of classes so far on test images; then of all their images together."""
    seen = source.test_labels < sum(sizes)
    truth, guess = source.test_labels[seen], logits[seen].argmax(1)
    if names:
        names = names | {output: output for output in range(sizes[0])}
    else:  # outputs that labels taught
        names = {output: output for output in range(logits.shape[1])}
    groups = group_accuracy(truth, guess, names, sizes)
    return [*groups, group_accuracy(truth, guess, names, [sum(sizes)])[0]]


def summarise(table: list[list[float]], sizes: Many[int]) -> dict[str, Any]:
    """Every number of a row: after each step accuracy by group and of all, at the end known, novel (each class as much,
    whatever the size of its group) and their harmonic mean, and what was forgotten.
    """
    groups, everything = [row[:-1] for row in table], [row[-1] for row in table]
    right = sum(classes * share for classes, share in zip(sizes[1:], groups[-1][1:], strict=True))
    last = ByKind(everything[-1], groups[-1][0], right / max(1, sum(sizes[1:])))
    lost = forgetting(groups)[:-1]
    return {
        "groups": groups,
        "all": everything,
        "last": last._asdict() | {"harmonic": last.harmonic},
        "forgetting": {"mean": sum(lost) / max(1, len(lost)), "known": lost[0] if lost else 0.0, "groups": lost},
    }


def keep(source: Source, model: Model, images: StepImages, most: int | None) -> StepImages:
    """At most so many images of each class, by herding, for methods that need some; None: all."""
    if most is None:
        return images
    chosen = [torch.zeros(0, dtype=torch.long)]
    if most:
        backbone, data = source.data(model, *images)
        z = survey(backbone, data).features.cpu()
        for label in images.labels.unique():
            own = (images.labels == label).nonzero()[:, 0]
            chosen.append(own[herding(z[own], most)])
    return StepImages(*(values[torch.cat(chosen)] for values in images))


def able(steps: int) -> list[str]:
    """Rows that can be made of so many steps: methods that tell known and novel classes with one head, which the next
    model is given, and the upper bound. NCDwF's is none that a model can hold: it serves for the last step alone.
    """
    last = ["ncdwf"] if steps == 1 else []
    return [*(name for name, recipe in methods.METHODS.items() if recipe.continual), *last, JOINT]


def names_of(only: Many[str], steps: int) -> list[str]:
    """The rows that are asked for; a method that cannot be one is refused."""
    possible = able(steps)
    for name in only:
        if name not in possible:
            methods.parse(name)
            raise InputError(
                f"{name} has no head over known and novel classes that a next step could go on from. "
                f"{choices(name, possible)}"
            )
    return list(only or ROWS)


def benchmark(
    which: Sequence,
    data: Path,
    output: Path,
    *,
    only: Many[str] = (),
    seeds: Many[int] = (0, 1, 2),
    progress: Progress = silent,
) -> Path:
    """Run the rows that the results do not have yet, and add each as it is finished; several of these at once share the
    work.
    """
    parallel.check_alone(
        "Rows share the work when the command is started several times, each process on its own, not under torchrun."
    )
    asked, path = (
        [(name, seed) for seed in seeds for name in names_of(only, len(which.sizes) - 1)],
        output / f"{which.name}.json",
    )
    if not seeds:
        raise InputError("No seed was given; give one at least, as in --seeds 0 1 2.")
    files.check_writable(output)
    check_setting(path, which.setting(), which.compare)
    todo = [(name, seed) for name, seed in asked if not has(path, {"method": name, "seed": seed})]
    if len(todo) < len(asked):
        log.info(f"{len(asked) - len(todo)} of {len(asked)} rows are finished already.")
    source = read_source(which, data, progress) if todo else None
    for number, (name, seed) in enumerate(todo):
        assert source is not None
        try:
            with cache.lock(f"{path.resolve()} {name} {seed}").acquire(timeout=0):
                if not has(path, {"method": name, "seed": seed}):
                    log.info(f"Row {number + 1} of {len(todo)}: {name}, seed {seed}.")
                    row = run(which, source, name, seed, progress) | {"command": which.command(name, seed)}
                    add(path, which.setting(), [row], by=("method", "seed"))
        except Timeout:
            log.info(f"{name}, seed {seed}: another process is at it.")
        progress("rows", len(todo), {"epoch": number + 1.0})
    return path
