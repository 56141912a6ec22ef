"""pretrain and discover: from folders to folders that are enough for a person who never opens Python."""

import logging
import time
from dataclasses import replace
from pathlib import Path

from newfound import methods, parallel
from newfound.console import Progress, silent
from newfound.data.collection import Collection
from newfound.data.leaks import check_leaks
from newfound.data.pixels import Images
from newfound.discovery.audition import BackboneChoice, audition_backbones
from newfound.discovery.facts import About
from newfound.discovery.find import find
from newfound.discovery.folder import finished, refuse, working
from newfound.discovery.found import Found
from newfound.discovery.howmany import explain, how_many
from newfound.discovery.looking import tell_skipped
from newfound.discovery.plan import (
    Plan,
    check_backbone,
    check_number,
    check_output,
    expand_home,
    plan_discovery,
    plan_pretrain,
)
from newfound.discovery.rehearsal import rehearse_known, settle
from newfound.discovery.result import Discovery
from newfound.discovery.settings import AUTO, NO, Run, StageOne
from newfound.discovery.storage import ASSIGNMENTS, CHECKPOINT, CLASSES, DISCOVERY, REPORT
from newfound.encoders.base import encode_source
from newfound.functional.rehearsal import Rehearsal
from newfound.networks.model import Model

log = logging.getLogger("newfound")


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
    plan = plan_pretrain(known, stage or StageOne(), similarity=similarity, seed=seed, device=device)
    output, encoder = expand_home(output), plan.encoder
    refuse(output, "pretrain", plan.settings, overwrite=overwrite, resume=resume)
    if (done := finished(output, "pretrain", plan.settings, last="model.json", resume=resume)) is not None:
        return Model.from_pretrained(done)
    chosen = audition_backbones(encoder, plan.stage, plan.labelled, seed, device, progress, pixels=similarity)
    encoder = chosen.encoder
    labelled = encode_source(encoder, plan.labelled, progress)
    note = f"Backbone: {chosen.explain(plan.why)}."
    with working(output, "pretrain", plan.settings, overwrite=overwrite, resume=resume, note=note) as folder:
        keep = _checkpoint(folder)
        rehearsal = rehearse_known(encoder, labelled, chosen.rehearsal, plan.stage, seed, progress)
        model = encoder.fit_known(labelled, chosen.stage, seed, progress=progress, checkpoint=keep, resume=resume)
        model = replace(model, rehearsal=rehearsal)
        settle(model, encoder, Run(), given=False)
        if similarity:
            keep = _checkpoint(folder, "similarity-")
            pairs = encoder.fit_similarity(
                labelled, plan.stage, seed, progress=progress, checkpoint=keep, resume=resume
            )
            model = replace(model, similarity=pairs)
        if folder is not None and parallel.first():
            model.save_pretrained(folder)
    tell_skipped(labelled.listing.skipped)  # not into the model folder's log: no file name leaves with it
    return model


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
    """Find the classes among unlabelled images; with `output`, write the run folder.

    With `known` alone, stage one learns from the labelled images, then both sets are seen at once (single-stage).
    With `model` alone, the labelled images are not needed (two-stage). With both, stage one is not run again.
    `classes` are the new ones; where it is left out it is estimated. `truth` says that the first folder level under
    `unlabelled` names the true classes: for the metrics alone.
    """
    about, output = About(command, began=time.perf_counter()), expand_home(output)
    check_output(model, output)
    plan = plan_discovery(
        unlabelled, known, model, classes=classes, run=run or Run(), stage=stage or StageOne(), truth=truth
    )
    check_backbone(plan.model, output)
    refuse(output, "discover", plan.settings, overwrite=overwrite, resume=resume)
    if (done := finished(output, "discover", plan.settings, last=DISCOVERY, resume=resume)) is not None:
        return restore(done)
    chosen = BackboneChoice(plan.encoder, plan.stage, None)
    if plan.model is None and plan.labelled is not None:
        pixels = plan.asked.method != AUTO and not methods.parse(plan.asked.method).suits(features=True)
        chosen = audition_backbones(
            plan.encoder, plan.stage, plan.labelled, plan.run.seed, plan.run.device, progress, pixels=pixels
        )
        plan = replace(
            plan, encoder=chosen.encoder, stage=chosen.stage, run=plan.asked.suited(chosen.encoder.default_method)
        )
    new, labelled = _encode(plan, progress)
    why = chosen.explain(plan.why)
    about, note = replace(about, truth=plan.read_truth(new), why=why), f"Backbone: {why}."
    with working(output, "discover", plan.settings, overwrite=overwrite, resume=resume, note=note) as folder:
        discovery = Discovery(_carry_out(plan, chosen.rehearsal, new, labelled, about, progress, folder, resume))
        if folder is not None and parallel.first():
            discovery.save(folder)
        tell_skipped([*new.listing.skipped, *(() if labelled is None else labelled.listing.skipped)])
    return discovery


def _encode(plan: Plan, progress: Progress) -> tuple[Collection, Collection | None]:
    """The images as the backbone will be given them: what only shows once they are read is refused here."""
    new = encode_source(plan.encoder, plan.unlabelled, progress)
    if plan.classes is not None:
        check_number(plan.classes, len(new))  # not every file may have been readable
    if plan.labelled is None:
        return new, None
    labelled = encode_source(plan.encoder, plan.labelled, progress)
    check_leaks(labelled, new)
    return new, labelled


def _carry_out(
    plan: Plan,
    auditioned: Rehearsal | None,
    new: Collection,
    labelled: Collection | None,
    about: About,
    progress: Progress,
    folder: Path | None,
    resume: bool,
) -> Found:
    """Stage one, where it is not done yet, the number of classes, where it is not given, and the discovery."""
    model, stage, seed = plan.model, plan.stage, plan.run.seed
    if model is None and labelled is not None:
        if plan.classes is not None and not methods.parse(plan.run.method).stage_one:
            stage = replace(stage, pretrain_epochs=0)  # the method wants nothing learnt before it; counting does
        keep = _checkpoint(folder, "stage-one-")
        rehearsal = rehearse_known(plan.encoder, labelled, auditioned, plan.stage, seed, progress)
        model = plan.encoder.fit_known(labelled, stage, seed, progress=progress, checkpoint=keep, resume=resume)
        model = replace(model, rehearsal=rehearsal)
    run, encoder, expected, rehearsed = plan.run, plan.encoder, None, plan.stage.rehearse != NO
    if model is not None and rehearsed:
        settled = settle(model, encoder, plan.asked, given=plan.model is not None, counted=plan.classes is None)
        run, encoder = settled.run, encoder.whitened(settled.way.shrink)
        about, expected = replace(about, way=settled.way, rehearsal=settled.why), settled.expected
    model = encoder.aim(model, new, labelled, seed)
    number = plan.classes
    if number is None:
        log.info("Counting the classes.")
        asked = model if rehearsed else replace(model, rehearsal=None)  # a model's own may not decide either
        count = how_many(asked, new, labelled, seed, plan.run.count_by, progress)
        about, number = replace(about, count=count), count.classes - count.known
        log.info(f"Classes: {explain(count)}.")
    if expected is not None:
        expected = expected.at(number + (len(model.classes) if run.mixed else 0))
        log.info(f"Expected accuracy: {expected}.")
        about = replace(about, expected=expected)
    return find(
        model,
        new,
        number,
        labelled=labelled,
        run=run,
        about=about,
        progress=progress,
        checkpoint=_checkpoint(folder),
        resume=resume,
    )


def restore(folder: Path) -> Discovery:
    """A run that is finished already; what people read of it is written, where it was not yet."""
    discovery = Discovery.load(folder)
    if parallel.first() and not all((folder / name).is_file() for name in (ASSIGNMENTS, CLASSES, REPORT)):
        discovery.save(folder)
    return discovery


def _checkpoint(folder: Path | None, stage: str = "") -> Path | None:
    """Where a stage that is interrupted goes on from."""
    return None if folder is None else folder / f"{stage}{CHECKPOINT}"
