"""train: a survey of the discovery set, the loop, another survey."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from newfound.data.batches import Dataset
from newfound.errors import InputError, counted
from newfound.methods.base import Method
from newfound.networks.backbone import Backbone
from newfound.training.loop import Learner, Row, accelerator, fit, silent, survey
from newfound.training.moments import Moment, moment, start
from newfound.types import Survey, Training


@dataclass(frozen=True, eq=False)
class Trained:
    """What training a method leaves, all on the CPU."""

    method: Method  # in eval mode
    before: Survey  # the discovery set
    after: Survey
    history: list[Row]  # one an epoch
    untrained: Method  # a copy of the method from before the first epoch
    seed: int
    epochs: int

    def moments(self) -> tuple[Moment, Moment]:
        """What figures need. The first shows prototypes where training has started them, or would have."""
        started = start(self.untrained, self.before, self.seed, self.epochs)
        return moment(started, self.before), moment(self.method, self.after)


def train(
    learner: Learner,
    data: Dataset,
    training: Training,
    seed: int,
    *,
    device: str = "auto",
    progress: Callable[[Row], None] = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Trained:
    """Train a method on data, and look at all of it before and after.

    The work is done on the device; the learner is left on the CPU, in eval mode. The first survey is that of the first
    epoch too, and where nothing is trained it is also the last. Progress, checkpoint and resume are those of `fit`.
    """
    learner.to(accelerator(device).device)
    before, untrained = _survey_finite(learner.backbone, data), copy.deepcopy(learner.method).cpu()
    history = fit(
        learner,
        data,
        training,
        seed,
        device=device,
        before=before,
        progress=progress,
        checkpoint=checkpoint,
        resume=resume,
    )
    after = _survey_finite(learner.backbone, data) if training.epochs else before
    learner.cpu()
    return Trained(learner.method, before, after, history, untrained, seed, training.epochs)


def _survey_finite(backbone: Backbone, data: Dataset) -> Survey:
    """A survey that is made where the backbone is, and comes to the CPU; latents that are no numbers are refused."""
    seen = Survey(*(values.cpu() for values in survey(backbone, data)))
    bad = (~seen.features.isfinite().all(1)).nonzero()[:, 0].tolist()
    if bad:
        raise InputError(
            f"The network gives NaN or infinite features for {len(bad)} of {counted(len(data), 'image')} (first: row "
            f"{bad[0]} of the discovery set); finite ones are needed. It is likely damaged, or its training diverged: "
            "take another model, or a smaller rate (--rate)."
        )
    return seen
