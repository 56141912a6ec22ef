"""Learner and fit: the one loop for every method."""

import copy
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from newfound import parallel
from newfound.console import lasting
from newfound.data.batches import Dataset
from newfound.errors import InputError, counted
from newfound.methods.base import Method
from newfound.networks.backbone import Backbone, still
from newfound.training.checkpoint import count_epochs, load_checkpoint, save_checkpoint
from newfound.types import ALL, Batch, Latents, Losses, Now, Survey, Training

Row = dict[str, float]
"""What is written down after an epoch."""


def silent(row: Row) -> None:
    """The progress that says nothing."""


class Learner(nn.Module):
    """Backbone and method: the one module that is wrapped, trained and saved."""

    def __init__(self, backbone: Backbone, method: Method, trains: int = ALL):
        super().__init__()
        self.backbone, self.method, self.trains = backbone, method, trains
        self.backbone.requires_grad_(True)
        for stage in backbone.stages[: max(0, len(backbone.stages) - trains)]:
            stage.requires_grad_(False)

    def train(self, mode: bool = True) -> "Learner":
        """As ever, but a backbone of which no stage learns only looks: its BatchNorm forgets nothing."""
        super().train(mode)
        if self.trains == 0:
            self.backbone.eval()
        return self

    def latents(self, images: Tensor) -> Latents:
        """Latents of every process's images, in full precision."""
        z, stage = self.backbone(images)
        keep = self.method.reads_map and stage is not None
        return Latents(parallel.gather(_full(z)), parallel.gather(_full(stage)) if keep else None)

    def forward(self, batch: Batch, now: Now) -> tuple[Losses, list[Latents], Batch]:
        """Losses of the whole batch, and what `after_step` will be given.

        The backbone sees this process's images, the method the latents of all: means, pairs and banks are those of
        one process, and methods need no distributed code. Pairwise BCE overflows in half precision: autocast is off.
        """
        latents = [self.latents(view) for view in batch.views]
        notes = {name: parallel.gather(note) for name, note in batch.notes.items()}
        whole = Batch([], parallel.gather(batch.labels), parallel.gather(batch.rows), notes)
        with torch.autocast(latents[0].z.device.type, enabled=False):
            losses = self.method(latents, whole, now)
        seen = [Latents(v.z.detach(), None if v.map is None else v.map.detach()) for v in latents]
        return losses, seen, whole._replace(notes={name: note.detach() for name, note in whole.notes.items()})

    @torch.no_grad()
    def embed(self, images: Tensor) -> Latents:
        """What the moved backbone says, with the batch's statistics and without remembering them."""
        with still(self.backbone):
            return self.latents(images)


@torch.no_grad()
def survey(backbone: Backbone, data: Dataset) -> Survey:
    """Latents of all images, in eval mode, without augmentation; every process does its part. The mode stays."""
    parallel.average(backbone)
    device, training = next(backbone.parameters()).device, backbone.training
    rank, processes = parallel.world()
    share = math.ceil(len(data) / processes)
    rows = torch.arange(rank * share, (rank + 1) * share).clamp(max=len(data) - 1)
    backbone.eval()
    z = torch.cat([backbone(images.to(device)).z for images in data.plain(rows)])
    backbone.train(training)
    return Survey(parallel.gather(_full(z))[: len(data)], data.labels.to(device))


def accelerator(device: str = "auto") -> Any:
    """accelerate, as this project uses it: gathering is ours, so data-parallel leaves buffers alone.

    It remembers its device as long as Python runs, so another choice must make it forget; processes that have met
    through it cannot.
    """
    from accelerate import Accelerator, PartialState  # 30 MB: only those who train need them
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedDataParallelKwargs, parse_flag_from_env

    cpu = device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU")  # what `accelerate launch --cpu` says
    state = PartialState(cpu)
    other = state.device.type != "cpu" if cpu else state._cpu and state.default_device.type != "cpu"
    if other:
        if state.num_processes > 1:
            raise InputError(
                f"Asked for the device {device}, where {state.num_processes} processes work on {state.device.type} "
                "already. Needed: one device from first to last. Start them anew with the one you want (--device)."
            )
        AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=cpu, kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])


def optimiser(learner: nn.Module, training: Training) -> torch.optim.Optimizer:
    """The optimiser over all that learns."""
    learnt = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    if training.optimiser == "adam":
        return torch.optim.Adam(learnt, training.rate, weight_decay=training.decay)
    return torch.optim.SGD(learnt, training.rate, momentum=0.9, weight_decay=training.decay)


def fit(
    learner: Learner,
    data: Dataset,
    training: Training,
    seed: int,
    *,
    device: str = "auto",
    before: Survey | None = None,
    progress: Callable[[Row], None] = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> list[Row]:
    """Train, and return one row per epoch: mean losses and what the method logs.

    `before` is a survey of the data as the learner comes, where there is one. `progress` is called with each row. With
    `checkpoint`, a file, all is written there after every epoch; with `resume` too, training goes on from it and ends
    as if it had never stopped. The learner is left in eval mode.
    """
    engine, method = accelerator(device), learner.method
    learner.to(engine.device)
    inner = optimiser(learner, training)
    start, rows = 0, list[Row]()
    if checkpoint is not None and resume and checkpoint.exists():
        start, rows = load_checkpoint(checkpoint, learner, inner, seed, training, engine.scaler)
        for row in rows:
            progress(row)
    wrapped, optimizer = engine.prepare(learner, inner) if start < training.epochs else (learner, inner)
    learner.train()
    for epoch in range(start, training.epochs):
        began, now = time.perf_counter(), Now(seed, epoch, training.epochs)
        looks = _sight(learner.backbone, data, before if epoch == 0 else None, lambda: _autocast(engine, training))
        method.before_epoch(looks, now)
        parallel.broadcast(method)  # the first process's k-means is everybody's
        totals: dict[str, Tensor] = {}
        for here, batch in data.batches(training, now, engine.device):
            losses = _step(wrapped, learner, engine, optimizer, training, batch, here)
            for name, loss in losses.items():
                totals[name] = totals.get(name, torch.zeros_like(loss)) + loss / here.steps
        rows.append(_row(epoch, totals, method, training, time.perf_counter() - began))
        if checkpoint is not None:
            parallel.average(learner.backbone)
            if parallel.first():
                save_checkpoint(checkpoint, learner, inner, seed, training, rows, engine.scaler)
        progress(rows[-1])
    parallel.average(learner.backbone)
    learner.eval()
    return rows


def _sight(
    backbone: Backbone, data: Dataset, before: Survey | None, precision: Callable[[], AbstractContextManager[None]]
) -> Callable[[], Survey]:
    """What `before_epoch` may call: a survey, made once and only where it is asked for, or the one there is."""
    device = next(backbone.parameters()).device
    if before is not None:
        return lambda: Survey(before.features.to(device), before.labels.to(device))

    @functools.cache
    def look() -> Survey:
        with precision():
            return survey(backbone, data)

    return look


def _step(
    wrapped: nn.Module,
    learner: Learner,
    engine: Any,
    optimizer: torch.optim.Optimizer,
    training: Training,
    batch: Batch,
    now: Now,
) -> Losses:
    """One step; `wrapped` is the learner as data-parallel training sees it."""
    with torch.no_grad():
        batch = learner.method.prepare(batch, now)
    with _autocast(engine, training):
        losses, latents, whole = wrapped(batch, now)
    for group in optimizer.param_groups:
        group["lr"] = training.rate * training.schedule(now.progress)
    engine.backward(torch.stack(list(losses.values())).sum())
    optimizer.step()
    optimizer.zero_grad()

    def embed(view: int) -> Latents:
        with _autocast(engine, training):
            return learner.embed(batch.views[view])

    with torch.no_grad():
        learner.method.after_step(latents, whole, embed, now)
    return {name: loss.detach() for name, loss in losses.items()}


def _autocast(engine: Any, training: Training) -> AbstractContextManager[None]:
    """The precision that a backbone computes in: as asked of accelerate, or what the training says.

    bfloat16 has the range of full precision, so no loss is scaled; processors that have it take half of the time.
    """
    if training.precision == "full":
        return engine.autocast()
    return torch.autocast(engine.device.type, torch.bfloat16)


def _full(z: Tensor) -> Tensor:
    """In full precision at least."""
    return z.to(torch.promote_types(z.dtype, torch.float32))


def _row(epoch: int, totals: dict[str, Tensor], method: Method, training: Training, seconds: float) -> Row:
    losses = {name: total.item() for name, total in totals.items()}
    if not all(map(math.isfinite, losses.values())):
        raise InputError(
            f"Training diverged in epoch {epoch + 1}: {losses}. Take a smaller rate than {training.rate} "
            "(--rate, in stage one --pretrain-rate)."
        )
    return {"epoch": epoch + 1.0} | losses | method.log() | {"seconds": seconds}


def tell_length(
    learner: Learner, data: Dataset, training: Training, *, device: str = "auto", checkpoint: Path | None = None
) -> str:
    """How long `fit` will be, for people; with a checkpoint to go on from, what is restored and what is left."""
    length = f"{counted(training.epochs, 'epoch')} of {counted(len(data), 'image')}"
    done = min(count_epochs(checkpoint), training.epochs)
    if done and done == training.epochs:
        return f"{length}, restored"
    seconds = estimate(learner, data, training, device=device)
    if not done:
        return f"{length}{lasting(seconds)}"
    left = None if seconds is None else seconds * (training.epochs - done) / training.epochs
    return f"{length}, {done} of them restored{lasting(left)}{' to go' if left else ''}"


def estimate(learner: Learner, data: Dataset, training: Training, *, device: str = "auto") -> float | None:
    """About how many seconds `fit` will take, from a few steps of a copy; None where several processes share them."""
    if training.epochs == 0:
        return 0.0
    engine = accelerator(device)
    if parallel.world()[1] > 1:  # not known before: it is accelerate that lets processes meet
        return None
    trial, times = copy.deepcopy(learner).to(engine.device).train(), list[float]()
    wrapped, optimizer = engine.prepare(trial, optimiser(trial, training))
    began = time.perf_counter()
    for now, batch in itertools.islice(data.batches(training, Now(0, 0, training.epochs), engine.device), 4):
        losses = _step(wrapped, trial, engine, optimizer, training, batch, now)
        torch.stack([*losses.values()]).sum().item()  # a number is there when the device has done all it was told
        times.append(time.perf_counter() - began)
        began += times[-1]
    return statistics.median(times) * data.steps(training) * training.epochs
