"""pretrain and discover: from folders to folders that are enough for a person who never opens Python."""

import logging
import os
import platform
import time
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from newfound import methods, parallel
from newfound.data.batches import Data
from newfound.data.collection import Collection
from newfound.data.embedded import Embedded
from newfound.data.manifests import is_manifest
from newfound.data.pictures import Pictures, first_folders, pictures
from newfound.data.pictures import truth as truth_of
from newfound.data.sources import Images
from newfound.data.splits import check_apart, check_leaks
from newfound.discovery.find import Progress, about, check_method, check_number, find, lasting, silent, training
from newfound.discovery.folder import CHECKPOINT, REPORT, finished, refuse, working
from newfound.discovery.howmany import explained, how_many
from newfound.discovery.pages import write_report
from newfound.discovery.result import Discovery, tell_skipped
from newfound.discovery.settings import Run, StageOne, check_device
from newfound.discovery.sight import PIXELS, chosen, described, seen
from newfound.errors import InputError, counted, listing
from newfound.methods.similarity import SIMILARITY_TRAINING
from newfound.methods.stage_one import TRAINING
from newfound.networks.model import Model
from newfound.networks.pretrained import Trunk
from newfound.networks.resnet import OWN
from newfound.training.adapt import aimed, measured, plain
from newfound.training.loop import estimate
from newfound.training.pretrain import beginner
from newfound.training.pretrain import pretrain as learn
from newfound.training.pretrain import similarity as teach_similarity

log = logging.getLogger("newfound")

Place = TypeVar("Place")


def pretrain(
    known: str | Path | Images,
    *,
    output: str | Path | None = None,
    stage: StageOne | None = None,
    similarity: bool = False,
    seed: int = 0,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
) -> Model:
    """Learn the known classes from labelled images; with `output`, write the model folder. With `similarity`, learn
    too which images share a class, which KCL and MCL must be told.

    Images that our own network is to learn from are in memory all at once; those that a pretrained one looks at never.
    """
    stage, known, output = stage or StageOne(), at_home(known), at_home(output)
    check_device(device)
    source = known if isinstance(known, Images) else pictures(known, labelled=True)
    check_labelled(source)
    eye = chosen(stage, None, [source], labelled=True)
    if eye is not None and similarity:
        raise InputError(f"--similarity is learnt from pixels, and {eye.name} gives features. Take --backbone {OWN}.")
    settings = {"known": _place(known), "similarity": similarity, "seed": seed, "device": device} | asdict(stage)
    refuse(output, "pretrain", settings, overwrite=overwrite, resume=resume)
    if (done := finished(output, "model.json", resume)) is not None:
        return Model.from_pretrained(done)
    labelled = seen(source, eye, stage.size or PIXELS, device, progress)
    with working(output, "pretrain", settings, overwrite=overwrite, resume=resume) as folder:
        keep = None if folder is None else folder / CHECKPOINT
        model = stage_one(labelled, stage, seed, eye, device=device, progress=progress, keep=keep, resume=resume)
        if similarity:
            keep = None if folder is None else folder / f"similarity-{CHECKPOINT}"
            model = with_similarity(model, labelled, stage, seed, device, progress, keep=keep, resume=resume)
        if folder is not None and parallel.first():
            model.save_pretrained(folder)
    tell_skipped(labelled.skipped)  # not into the model folder's log: no file name leaves with it
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
    check_labelled(labelled)
    if eye is not None:
        assert isinstance(labelled, Embedded)
        return measured(labelled, eye, seed)
    assert isinstance(labelled, Images)
    budget = replace(TRAINING, epochs=stage.pretrain_epochs, rate=stage.pretrain_rate)
    learner = beginner(labelled, seed, width=stage.width, stride=stage.stride)
    seconds = estimate(learner, Data(labelled.pixels, labelled.labels), budget, device=device)
    log.info(
        f"Learning {len(labelled.classes)} known classes from {len(labelled)} images: "
        f"{counted(budget.epochs, 'epoch')}{lasting(seconds)}."
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


def with_similarity(
    model: Model,
    labelled: Collection,
    stage: StageOne,
    seed: int,
    device: str,
    progress: Progress,
    *,
    keep: Path | None = None,
    resume: bool = False,
) -> Model:
    """The model with the network that KCL and MCL ask whether two images share a class."""
    assert isinstance(labelled, Images)
    budget = replace(SIMILARITY_TRAINING, epochs=stage.pretrain_epochs)
    log.info(f"Learning which images share a class: {budget.epochs} epochs.")
    told = partial(progress, "similarity", budget.epochs)
    pairs = teach_similarity(
        labelled,
        budget,
        seed,
        width=stage.width,
        stride=stage.stride,
        device=device,
        progress=told,
        keep=keep,
        resume=resume,
    )
    return replace(model, similarity=pairs)


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
    unlabelled, known, model, output = at_home(unlabelled), at_home(known), at_home(model), at_home(output)
    folders = [Path(place) for place in (known, unlabelled) if isinstance(place, str | Path)]
    if len(folders) == 2 and not any(map(is_manifest, folders)):
        check_apart(*folders)
    start = Model.from_pretrained(model) if isinstance(model, str | Path) else model
    pile = unlabelled if isinstance(unlabelled, Images) else pictures(unlabelled, labelled=False)
    taught = known if isinstance(known, Images | None) else pictures(known, labelled=True)
    eye = chosen(stage, start, [source for source in (pile, taught) if source is not None], taught is not None)
    run, asked = run.suited(features=eye is not None), run
    if start is not None and taught is not None and start.classes != taught.classes:
        raise InputError(
            f"The model knows {_few(start.classes)}; the labelled images are of {_few(taught.classes)}. "
            "Give the labelled images that the model learnt from, or leave one of the two out."
        )
    if start is not None and stage != StageOne():
        given = asdict(stage).items() - asdict(StageOne()).items()
        flags = ", ".join(sorted(f"--{name.replace('_', '-')}" for name, _ in given))
        raise InputError(f"The model is taught already, so {flags} would change nothing. Leave it out, or the model.")
    if taught is not None:
        check_labelled(taught)
    check_method(
        run.method,
        labelled=taught is not None,
        features=eye is not None,
        similarity=start is not None and start.similarity is not None,
    )
    if classes is not None:
        check_number(classes, len(pile))
    if truth:
        _truth(unlabelled, pile)
    settings = {"unlabelled": _place(unlabelled), "known": _place(known), "model": _place(model)}
    settings |= {"classes": classes, "truth": truth} | asdict(asked) | asdict(stage)
    refuse(output, "discover", settings, overwrite=overwrite, resume=resume)
    if (done := finished(output, "discovery.json", resume)) is not None:
        found = Discovery.load(done)
        if parallel.first() and not (done / REPORT).is_file():
            write_report(found, done / REPORT)
        return found

    size = (stage.size or PIXELS) if start is None else start.size
    new = seen(pile, eye, size, run.device, progress)
    if classes is not None:
        check_number(classes, len(new))  # not every file may have been readable
    labelled = None if taught is None else seen(taught, eye, size, run.device, progress)
    if labelled is not None:
        check_leaks(labelled, new)
    answers = _truth(unlabelled, new) if truth else None
    with working(output, "discover", settings, overwrite=overwrite, resume=resume) as folder:
        if start is None and labelled is not None:
            if classes is not None and not methods.parse(run.method)[0].stage_one:
                stage = replace(stage, pretrain_epochs=0)  # the method wants nothing learnt before it; counting does
            keep = None if folder is None else folder / f"stage-one-{CHECKPOINT}"
            start = stage_one(
                labelled, stage, run.seed, eye, device=run.device, progress=progress, keep=keep, resume=resume
            )
        if isinstance(new, Embedded):
            assert isinstance(labelled, Embedded | None)
            assert eye is not None
            start = plain(new, eye, run.seed) if start is None else aimed(start, new, labelled, run.seed)
        assert start is not None  # our own network has labelled images to learn from, or a model
        count, number = None, classes
        if number is None:
            log.info("Counting the classes.")
            count = how_many(start, new, labelled, run.seed)
            number = count.classes - count.known
            log.info(f"Classes: {explained(count)}.")
        keep = None if folder is None else folder / CHECKPOINT
        found = find(start, new, number, labelled=labelled, run=run, progress=progress, keep=keep, resume=resume)
        found.count = count
        if answers is not None:
            labels, names = answers
            found.truth = tuple(names[label] for label in labels.tolist())
        found.facts = facts(found, run, new, labelled, command) | {"took": about(time.perf_counter() - began)}
        if folder is not None and parallel.first():
            found.save(folder)
            write_report(found, folder / REPORT)
        tell_skipped([*new.skipped, *(() if labelled is None else labelled.skipped)])
    return found


def facts(
    found: Discovery, run: Run, unlabelled: Collection, labelled: Collection | None, command: str
) -> dict[str, str]:
    """How a discovery was made, for people."""
    budget = training(run, unlabelled)
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


def versions() -> str:
    """Versions of what a result may depend on."""
    parts = [f"{name} {version(name)}" for name in ("newfound", "torch", "numpy", "scikit-learn")]
    return ", ".join([*parts, f"Python {platform.python_version()}", counted(torch.get_num_threads(), "thread")])


def _truth(place: str | Path | Images, images: Collection | Pictures) -> tuple[Int[Tensor, " n"], tuple[str, ...]]:
    """The real classes of unlabelled images, for the metrics alone."""
    if isinstance(place, Images):
        return first_folders(images.names)
    return truth_of(place, images.names, images.boxes)


def at_home(place: Place) -> Place | Path:
    """A place with ~ in it as the shell would have written it; what is no place stays."""
    return Path(place).expanduser() if isinstance(place, str | Path) else place


def check_labelled(images: Collection | Pictures) -> None:
    """Refuse labelled images that nothing can be learnt from: of a single class, with names or labels amiss."""
    if len(images.classes) < 2:
        found = counted(len(images.classes), "known class", "known classes")
        raise InputError(f"Found {found}; learning needs at least 2 (one folder each).")
    if twice := sorted({name for name in images.classes if images.classes.count(name) > 1}):
        raise InputError(f"Several known classes are called {listing(map(repr, twice))}. Give each a name of its own.")
    if unlabelled := int((images.labels < 0).sum()):
        raise InputError(
            f"{unlabelled} of {len(images)} labelled images have the label -1. Needed: a class each. Leave them out, "
            "or put them into the pile."
        )
    there = set(images.labels.tolist())
    if empty := [name for label, name in enumerate(images.classes) if label not in there]:
        raise InputError(f"Known classes without an image: {listing(map(repr, empty))}. Add one, or leave them out.")


def _place(source: Any) -> str | None:
    """A folder as it is written into `config.toml`; images and models in memory have none."""
    return os.path.abspath(source) if isinstance(source, str | Path) else None  # noqa: PTH100 (keeps symlinks)


def _few(names: tuple[str, ...]) -> str:
    return f"{len(names)} classes ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
