"""How a discovery was made, for people."""

import platform
import time
from dataclasses import dataclass
from importlib.metadata import version

import torch

from newfound import console, methods
from newfound.discovery.howmany import explain
from newfound.discovery.settings import DISCRIMINANT, SHIFT, Run
from newfound.errors import counted
from newfound.functional.counting import Count
from newfound.functional.rehearsal import Expected, Way
from newfound.types import Training

SOONER = {
    SHIFT: ", after mean shift over neighbours",
    DISCRIMINANT: ", after mean shift over neighbours, then along the discriminants of its own clusters",
}
"""What a reading does beside k-means."""


@dataclass(frozen=True)
class About:
    """What a discovery is told of itself, to be written down with what it finds."""

    command: str = "newfound.discover(…)"
    count: Count | None = None  # how the number of classes was estimated; None: it was given
    truth: tuple[str, ...] | None = None  # the true class of every image, for the metrics alone
    began: float | None = None  # when, by `time.perf_counter`
    why: str = ""  # the backbone, and why it was chosen
    way: Way | None = None  # what was taken after a rehearsal, or by default
    rehearsal: str = ""  # why there was none
    expected: Expected | None = None  # the accuracy that it lets expect


def state_facts(
    about: About, run: Run, training: Training, *, backbone: str, setting: str, images: int, new: int, known: int
) -> dict[str, str]:
    """Everything that a number depends on, in words."""
    unit = run.unit(methods.parse(run.method).reading)
    facts = {
        "command": about.command,
        "images": f"{images} unlabelled",
        "setting": setting,
        "classes": f"{new} new, given" if about.count is None else explain(about.count),
        "known classes": f"{known}, which may be among them too" if known else "not looked for",
        "backbone": backbone,
        **({"backbone chosen": about.why} if about.why else {}),
        "method": run.method,
        "read by": ("k-means on unit latents" if unit else "k-means on latents")
        + " of the last epoch"
        + SOONER.get(run.read_by, ""),
        "budget": f"{training.epochs} epochs, batch {training.batch}, learning rate {training.rate}",
        **({"rehearsal": about.rehearsal} if about.rehearsal else {}),
        **({"expected accuracy": str(about.expected)} if about.expected else {}),
        "seed": str(run.seed),
        "versions": versions(),
    }
    return facts if about.began is None else facts | {"took": console.about(time.perf_counter() - about.began)}


def versions() -> str:
    """Versions of what a result may depend on."""
    parts = [f"{name} {version(name)}" for name in ("newfound", "torch", "numpy", "scikit-learn")]
    return ", ".join([*parts, f"Python {platform.python_version()}", counted(torch.get_num_threads(), "thread")])
