"""pretrain and discover: from folders to folders that are enough for a person who never opens Python."""

import logging
import os
import platform
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
import torch
from jaxtyping import Int
from torch import Tensor

from newfound import files, methods, parallel
from newfound.data.batches import Data
from newfound.data.collection import Collection
from newfound.data.embedded import Embedded
from newfound.data.manifests import is_manifest
from newfound.data.pictures import first_folders, pictures
from newfound.data.pictures import truth as truth_of
from newfound.data.sources import Images
from newfound.data.splits import check_apart, check_leaks
from newfound.discovery.find import Progress, about, check, find, silent, training
from newfound.discovery.howmany import explained, how_many
from newfound.discovery.pages import write_report
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.sight import PIXELS, chosen, described, seen
from newfound.errors import InputError
from newfound.functional.metrics import gcd_accuracy, matching, scores, task_agnostic
from newfound.methods.stage_one import TRAINING
from newfound.networks.model import Model
from newfound.networks.pretrained import Trunk
from newfound.training.adapt import aimed, measured, plain
from newfound.training.loop import estimate
from newfound.training.pretrain import beginner
from newfound.training.pretrain import pretrain as learn

log = logging.getLogger("newfound")


def pretrain(
    known: str | Path | Images,
    *,
    output: str | Path | None = None,
    stage: StageOne | None = None,
    seed: int = 0,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
) -> Model:
    """Learn the known classes from labelled images; with `output`, write the model folder.

    Images that our own network is to learn from are in memory all at once; those that a pretrained one looks at never.
    """
    stage = stage or StageOne()
    source = known if isinstance(known, Images) else pictures(known, labelled=True)
    eye = chosen(stage, None, [source], labelled=True)
    settings = {"known": _place(known), "seed": seed, "device": device} | asdict(stage)
    refuse(output, "pretrain", settings, overwrite=overwrite, resume=resume)
    labelled = seen(source, eye, stage.size or PIXELS, device, progress)
    with _work(output, "pretrain", settings, overwrite=overwrite, resume=resume) as folder:
        keep = None if folder is None else folder / CHECKPOINT
        model = stage_one(labelled, stage, seed, eye, device=device, progress=progress, keep=keep, resume=resume)
        if folder is not None and parallel.first():
            model.save_pretrained(folder)
        tell_skipped(labelled)
    return model


def stage_one(
    labelled: Collection,
    stage: StageOne,
    seed: int,
    eye: Trunk | None = None,
    *,
    device: str = "auto",
    progress: Progress = silent,
    keep: Path | None = None,
    resume: bool = False,
) -> Model:
    """Learn the known classes with these settings; where a pretrained network has looked, they are only measured."""
    if len(labelled.classes) < 2:
        raise InputError(f"Found {len(labelled.classes)} known class; learning needs at least 2 (a folder each).")
    if eye is not None:
        assert isinstance(labelled, Embedded)
        return measured(labelled, eye, seed)
    assert isinstance(labelled, Images)
    budget = replace(TRAINING, epochs=stage.pretrain_epochs, rate=stage.pretrain_rate)
    learner = beginner(labelled, seed, width=stage.width, stride=stage.stride)
    seconds = estimate(learner, Data(labelled.pixels, labelled.labels), budget, device=device)
    log.info(
        f"Learning {len(labelled.classes)} known classes from {len(labelled)} images: "
        f"{budget.epochs} epochs, {about(seconds)}."
    )
    return learn(
        learner,
        labelled,
        budget,
        seed,
        device=device,
        progress=lambda row: progress("pretrain", budget.epochs, row),
        keep=keep,
        resume=resume,
    )


def discover(
    *,
    unlabelled: str | Path | Images,
    classes: int | None = None,
    known: str | Path | Images | None = None,
    model: str | Path | Model | None = None,
    output: str | Path | None = None,
    run: Run | None = None,
    stage: StageOne | None = None,
    truth: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
    command: str = "newfound.discover(…)",
) -> Discovery:
    """Find the classes in a pile of images; with `output`, write the run folder.

    With `known` alone, stage one learns from the labelled images, then both sets are seen at once (single-stage).
    With `model` alone, the labelled images are not needed (two-stage). With both, stage one is not run again.
    `classes` are the new ones; where it is left out it is estimated. `truth` says that the first folder level under
    `unlabelled` names the true classes: for the metrics alone.
    """
    began, run, stage = time.perf_counter(), run or Run(), stage or StageOne()
    folders = [Path(place) for place in (known, unlabelled) if isinstance(place, str | Path)]
    if len(folders) == 2 and not any(map(is_manifest, folders)):
        check_apart(*folders)
    start = Model.from_pretrained(model) if isinstance(model, str | Path) else model
    pile = unlabelled if isinstance(unlabelled, Images) else pictures(unlabelled, labelled=False)
    taught = known if isinstance(known, Images | None) else pictures(known, labelled=True)
    eye = chosen(stage, start, [source for source in (pile, taught) if source is not None], taught is not None)
    if start is not None and taught is not None and start.classes != taught.classes:
        raise InputError(
            f"The model knows {_few(start.classes)}; the labelled images are of {_few(taught.classes)}. "
            "Give the labelled images that the model learnt from, or leave one of the two out."
        )
    check(run, len(pile), 1 if classes is None else classes, labelled=taught is not None, features=eye is not None)
    settings = {"unlabelled": _place(unlabelled), "known": _place(known), "model": _place(model)}
    settings |= {"classes": classes, "truth": truth} | asdict(run) | asdict(stage)
    refuse(output, "discover", settings, overwrite=overwrite, resume=resume)

    size = (stage.size or PIXELS) if start is None else start.size
    new = seen(pile, eye, size, run.device, progress)
    labelled = None if taught is None else seen(taught, eye, size, run.device, progress)
    if labelled is not None:
        check_leaks(labelled, new)
    answers = _truth(unlabelled, new) if truth else None
    with _work(output, "discover", settings, overwrite=overwrite, resume=resume) as folder:
        if folder is not None and resume and (folder / "discovery.json").is_file():
            log.info(f"The run in {folder} is finished already.")
            return Discovery.load(folder)
        if start is None and labelled is not None:
            if not methods.parse(run.method)[0].stage_one:
                stage = replace(stage, pretrain_epochs=0)  # the method wants nothing learnt before it
            keep = None if folder is None else folder / f"stage-one-{CHECKPOINT}"
            start = stage_one(
                labelled, stage, run.seed, eye, device=run.device, progress=progress, keep=keep, resume=resume
            )
        if isinstance(new, Embedded):
            assert isinstance(labelled, Embedded | None)
            assert eye is not None
            start = plain(new, eye, run.seed) if start is None else aimed(start, new, labelled, run.seed)
        assert start is not None  # our own network has labelled images to learn from, or a model
        estimate, number = None, classes
        if number is None:
            log.info("Counting the classes.")
            estimate = how_many(start, new, labelled, run.seed)
            number = min(estimate.classes - estimate.known, len(new))
            log.info(f"Classes: {explained(estimate)}.")
        keep = None if folder is None else folder / CHECKPOINT
        found = find(start, new, number, labelled=labelled, run=run, progress=progress, keep=keep, resume=resume)
        found.count = estimate
        if answers is not None:
            labels, names = answers
            found.truth = tuple(names[label] for label in labels.tolist())
            found.scores = judged(found, found.truth)
        found.facts = facts(found, run, labelled, command) | {"took": about(time.perf_counter() - began)}
        if folder is not None and parallel.first():
            found.save(folder)
            write_report(found, folder / "report.html")
        tell_skipped(new, labelled)
    return found


def tell_skipped(*read: Collection | None) -> None:
    """Name the files that were left out."""
    if skipped := [file for images in read if images is not None for file in images.skipped]:
        log.warning(f"{len(skipped)} files could not be read and were left out:\n  " + "\n  ".join(skipped))


def facts(found: Discovery, run: Run, labelled: Collection | None, command: str) -> dict[str, str]:
    """How a discovery was made, for people."""
    budget = training(run)
    both = "two-stage, without the labelled images" if found.model.classes else "no class is known"
    new = len(found.centres) - len(found.known)
    if labelled is not None:
        both = f"single-stage, with {len(labelled)} labelled images"
    return {
        "command": command,
        "images": f"{len(found.paths)} unlabelled",
        "setting": both,
        "classes": f"{new} new, given" if found.count is None else explained(found.count),
        "known classes": f"{len(found.known)}, which may be in the pile too" if found.known else "not looked for",
        "backbone": described(found.model),
        "method": run.method,
        "read by": ("k-means on unit latents" if found.unit else "k-means on latents") + " of the last epoch",
        "budget": f"{budget.epochs} epochs, batch {budget.batch}, learning rate {budget.rate}",
        "seed": str(run.seed),
        "versions": versions(),
    }


def judged(found: Discovery, truth: Sequence[str]) -> dict[str, float | str]:
    """How well the classes agree with the truth, on all images as if none were unsure, and on the sure ones.

    Where known classes were looked for: accuracy by kind too, by one assignment (GCD's), and `named`, where a known
    class is right only under its own name.
    """
    labels, guess = numbered(found, truth)
    known = len(found.known)
    sure = found.confidence() >= found.threshold
    result = scores(labels, guess, len(found.centres))
    if known:
        kinds, named = gcd_accuracy(labels, guess, known), task_agnostic(labels, guess, known)
        result |= {"known accuracy": kinds.known, "novel accuracy": kinds.novel, "named accuracy": named.all}
    result |= {"unsure": 1 - sure.double().mean().item()}
    if sure.any():
        of = matching(labels, guess)  # one assignment: that of all images
        right = torch.tensor([of.get(g, -1) for g in guess.tolist()]) == labels
        result |= {"sure accuracy": right[sure].double().mean().item()}
    return {name: value for name, value in result.items() if value == value}  # no known image: no accuracy on them


def numbered(found: Discovery, truth: Sequence[str]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """True and found classes as numbers: the known ones that were looked for first, by the same numbers."""
    names = [*found.known, *sorted({*truth} - {*found.known})]
    new = len(found.centres) - len(found.known)
    guess = torch.where(found.cluster < new, found.cluster + len(found.known), found.cluster - new)
    return torch.tensor([names.index(name) for name in truth]), guess


def versions() -> str:
    """Versions of what a result may depend on."""
    parts = [f"{name} {version(name)}" for name in ("newfound", "torch", "numpy", "scikit-learn")]
    return ", ".join([*parts, f"Python {platform.python_version()}", f"{torch.get_num_threads()} threads"])


CHECKPOINT = "checkpoint.safetensors"


@contextmanager
def _work(
    output: str | Path | None, task: str, settings: dict[str, Any], *, overwrite: bool, resume: bool
) -> Iterator[Path | None]:
    """Claim the output folder, write `config.toml`, keep `log.txt`, and drop checkpoints when all is done."""
    if output is None:
        yield None
        return
    folder = Path(output)
    if not parallel.first():  # the first process speaks for all
        yield folder
        return
    refuse(output, task, settings, overwrite=overwrite, resume=resume)
    if overwrite:
        for old in (*folder.glob(f"*{CHECKPOINT}"), folder / "discovery.json", folder / "model.json"):
            old.unlink(missing_ok=True)
    files.write(folder / "config.toml", tomli_w.dumps(_config(task, settings)))
    handler = logging.FileHandler(folder / "log.txt", mode="a" if resume else "w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        yield folder
    finally:
        log.removeHandler(handler)
        handler.close()
    for checkpoint in folder.glob(f"*{CHECKPOINT}"):
        checkpoint.unlink()


def refuse(output: str | Path | None, task: str, settings: dict[str, Any], *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that holds something else, or a run that nobody asked to overwrite or resume."""
    if output is None or not parallel.first():
        return
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; the result needs a folder. Give another place with -o.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    written = folder / "config.toml"
    if not written.is_file():
        raise InputError(f"{folder} holds other files; a run needs a folder of its own. Give another place with -o.")
    if overwrite:
        return
    if not resume:
        raise InputError(
            f"{folder} already holds a run. Give another place with -o, replace it with --overwrite, "
            "or go on with an interrupted one with --resume."
        )
    try:
        before = tomllib.loads(written.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{written} cannot be read ({error}); begin anew with --overwrite.") from error
    if before != (config := _config(task, settings)):
        was: dict[str, Any] = next(iter(before.values()), {})
        asked: dict[str, Any] = config[task]
        differs = sorted(key for key in was.keys() | asked.keys() if was.get(key) != asked.get(key))
        raise InputError(
            f"The run in {folder} had other settings ({', '.join(differs) or 'another command'}). "
            "Resume with the same ones (--config), or begin anew with --overwrite."
        )


def _config(task: str, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What `config.toml` holds."""
    return {task: {key: value for key, value in settings.items() if value is not None}}


def _truth(place: str | Path | Images, images: Collection) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The real classes of unlabelled images, for the metrics alone."""
    if isinstance(place, Images):
        return first_folders(images.names)
    return truth_of(place, images.names, images.boxes)


def _place(source: Any) -> str | None:
    """A folder as it is written into `config.toml`; images and models in memory have none."""
    return os.path.abspath(source) if isinstance(source, str | Path) else None  # noqa: PTH100 (keeps symlinks)


def _few(names: tuple[str, ...]) -> str:
    return f"{len(names)} classes ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
