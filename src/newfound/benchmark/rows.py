"""One row of a table: run a method with one seed, and measure it in every way."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.benchmark.budgets import Budget
from newfound.benchmark.curve import Curve, draw
from newfound.benchmark.stages import Stages, Start, Task
from newfound.console import Progress
from newfound.data.datasets import split_classes
from newfound.data.pixels import PixelDataset
from newfound.data.splits import select_classes
from newfound.discovery.facts import versions
from newfound.discovery.trace import Trace
from newfound.encoders.pixels import READING_SHRINK
from newfound.functional.cluster import kmeans
from newfound.functional.geometry import nearest, whitening
from newfound.functional.metrics import novel_names, scatter, scores, silhouette, task_agnostic, task_aware
from newfound.methods.base import Method, Sum
from newfound.networks.model import Model
from newfound.training.loop import Learner, accelerator, survey
from newfound.training.train import train
from newfound.types import Problem, generator, seeded

Spaces = dict[str, Callable[[Tensor], Tensor]]

WHITENED = "whitened k-means"
"""The reading of the product's own network."""


def spaces(model: Model) -> Spaces:
    """The readings that need no head, and the space each looks at; whitened, where known classes say how."""
    found: Spaces = {"k-means": lambda z: z, "unit k-means": lambda z: F.normalize(z, dim=1)}
    if model.known is not None:
        metric = whitening(model.known.within_covariance, READING_SHRINK)
        found[WHITENED] = lambda z: F.normalize(z @ metric, dim=1)
    return found


OTHER = ("epoch", "seconds")
"""What a row of training has beside losses and what the method logs."""


def run(
    task: Task,
    name: str,
    seed: int,
    budget: Budget,
    progress: Progress,
    *,
    keep: Path | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Discover with one method and seed, and measure it at the last epoch.

    The truth of unlabelled images is taken up only after training. With `keep`, a folder, it leaves what figures need.
    With `checkpoint`, a file, a run that was interrupted goes on from there.
    """
    measure_memory_anew()
    start = Stages(task, seed, budget, progress).start(name)
    training, parts, weight = budget.training(name), task.parts, budget.weight(name)
    method = _build(task, start, name, seed, weight)
    curve = Curve(len(parts.truth), len(parts.novel_classes), budget.points) if budget.points else None
    learner = Learner(start.backbone, method if curve is None else Sum(method, curve), training.trains)
    trained = train(
        learner,
        start.data,
        training,
        seed,
        progress=lambda row: progress(f"seed {seed}: {name}", training.epochs, row),
        checkpoint=checkpoint,
        resume=True,
    )
    if keep is not None:
        first, last = trained.moments()
        Trace(f"{name}, seed {seed}", parts.novel_classes, parts.truth[last.rows], first, last).save(keep)
    seconds, ended = [row["seconds"] for row in trained.history], trained.history[-1:]
    row = {
        "method": name,
        "seed": seed,
        "epochs": training.epochs,
        "training": training.settings(),
        "weight": weight,
        "seconds": round(sum(seconds), 1),
        "stage one seconds": round(start.seconds, 1),
        "memory": peak(),
        "versions": versions(),
        "losses": {key: round(value, 4) for row in ended for key, value in row.items() if key not in OTHER},
    } | evaluate(task, start, trained.method, trained.before.unlabelled, trained.after.unlabelled, seed)
    if curve is not None:
        row["curve"] = rounded(draw(curve, parts.truth, start.seconds, seconds))
    return row


def _build(task: Task, start: Start, name: str, seed: int, weight: float | None) -> Method:
    """The method of a row."""
    parts, model = task.parts, replace(start.model, backbone=start.backbone)
    known, novel = len(parts.known.listing.classes), len(parts.novel_classes)
    problem = Problem(model.backbone.dim, known, novel, task.labelled, len(start.data))
    with seeded(seed, "method"):
        return methods.parse(name, weight=weight).build(problem, model)


def evaluate(
    task: Task, start: Start, method: Method, before: Float[Tensor, "n dim"], after: Float[Tensor, "n dim"], seed: int
) -> dict[str, Any]:
    """Every number of a finished run: on unlabelled training images, on test images, and how separate classes lie."""
    truth, novel, known = task.parts.truth, len(task.parts.novel_classes), len(task.parts.known.listing.classes)
    classes = split_classes(task.dataset, task.split)
    test = select_classes(task.test, [*classes.known, *classes.novel])
    whole = start.model.backbone.to(accelerator().device)
    seen = survey(whole, PixelDataset(test.pixels, test.listing.labels)).features.cpu()
    ours = test.listing.labels >= known
    result: dict[str, Any] = {"train": {}, "test": {}}
    for reading, space in spaces(start.model).items():
        found = kmeans(space(after), novel, generator(seed, "reading"))
        result["train"][reading] = scores(truth, found.assignment, novel)
        guess = nearest(space(seen[ours]), found.centres)
        result["test"][reading] = scores(test.listing.labels[ours], guess, novel)
    if (logits := method.logits(after)) is not None:
        result["train"]["head"] = scores(truth, _novel(method, after, novel), novel)
        result["test"]["head"] = scores(test.listing.labels[ours], _novel(method, seen[ours], novel), novel)
        all_logits = method.logits(seen)
        assert all_logits is not None
        if logits.shape[1] == known + novel:
            # one assignment, made on the unlabelled training images, names the novel outputs of the test images
            names = novel_names(known + truth, known + logits[:, -novel:].argmax(1), known)
            agnostic = task_agnostic(test.listing.labels, all_logits.argmax(1), known, names)
            aware = task_aware(test.listing.labels, all_logits, known, names)
            result["all classes"] = {"task-agnostic": agnostic._asdict(), "task-aware": aware._asdict()}
    unit = {"before": F.normalize(before), "after": F.normalize(after)}
    result["separation"] = {
        when: {"silhouette": silhouette(z, truth), "scatter": scatter(z, truth)} for when, z in unit.items()
    }
    return rounded(result)


def _novel(method: Method, features: Float[Tensor, "n dim"], novel: int) -> Int[Tensor, " n"]:
    """Which novel class the head says."""
    scores = method.novel_logits(features, novel)
    assert scores is not None
    return scores.argmax(1)


def measure_memory_anew() -> None:
    """Let `peak` forget what was before; only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int | None:
    """The most memory this process has had since, in MB; None where Python cannot tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (2**20 if sys.platform == "darwin" else 2**10))


def rounded(value: Any) -> Any:
    """Numbers to four digits, through dicts and lists."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value
