"""What figures need of a run, in its folder: a moment before training, and one after."""

import json
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from torch import Tensor

from newfound import files
from newfound.errors import InputError
from newfound.training.moments import Moment

TRACE = "trace.safetensors"


@dataclass(frozen=True, eq=False)
class Trace:
    """A run before and after, and what its images are called."""

    title: str
    classes: tuple[str, ...]
    labels: Int[Tensor, " n"]  # places in `classes`, of the rows kept: the truth where it is known, else what was found
    before: Moment
    after: Moment

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        tensors = {"labels": self.labels}
        for when, moment in (("before", self.before), ("after", self.after)):
            tensors |= {f"{when}.{key}": value for key, value in vars(moment).items() if value is not None}
        about = {"newfound": json.dumps({"title": self.title, "classes": self.classes})}
        files.write_tensors(folder / TRACE, tensors, about)

    @staticmethod
    def load(folder: Path) -> "Trace":
        """Read it from a run folder."""
        path = folder / TRACE
        if not path.is_file():
            raise InputError(
                f"{folder} has no {TRACE}. Needed: a folder that `newfound discover` wrote, or one of those that "
                "`newfound benchmark --keep DIR` wrote. Give such a folder, or make the run anew."
            )
        try:
            with safe_open(path, "pt") as file:
                about = json.loads(file.metadata()["newfound"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            moments = {
                when: Moment(**{name.split(".")[1]: t for name, t in tensors.items() if name.startswith(f"{when}.")})
                for when in ("before", "after")
            }
            return Trace(about["title"], tuple(about["classes"]), tensors["labels"], **moments)
        except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} cannot be read ({error}). Copy it again, or make the run anew.") from error
