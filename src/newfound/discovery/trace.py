"""What figures need of a run, in its folder: a moment before training, and one after."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from newfound import files
from newfound.errors import InputError
from newfound.schema import TensorSpec, check_tensors, damaged, each, parse_json, read_tensors, record, text
from newfound.training.moments import Moment

TRACE = "trace.safetensors"

ABOUT = record({"title": text, "classes": each(text)})
"""What the header of `trace.safetensors` holds."""

KEPT = {"labels": TensorSpec(torch.int64, ("images",), below="classes")} | {
    f"{when}.{name}": TensorSpec(dtype, axes)
    for when in ("before", "after")
    for name, dtype, axes in (
        ("rows", torch.int64, ("images",)),
        ("latents", torch.float32, ("images", "dimensions")),
        ("spaced", torch.float32, ("images", "dimensions")),
        ("prototypes", torch.float32, (f"places {when}", "dimensions")),
        ("anchors", torch.float32, (f"places {when}", "dimensions")),
    )
}
"""What `trace.safetensors` holds; where there are no prototypes, the last three are not there."""


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
        mend = "Copy it again, or make the run anew."
        tensors, words = read_tensors(path, mend)
        try:
            about = parse_json(words.get("newfound", "null"))
            ABOUT(about, "its header")
            names = [name for name in KEPT if name in tensors or name.split(".")[-1] in ("labels", "rows", "latents")]
            check_tensors(tensors, {name: KEPT[name] for name in names}, {"classes": len(about["classes"])})
            moments = {
                when: Moment(**{name.split(".")[1]: tensors[name] for name in names if name.startswith(f"{when}.")})
                for when in ("before", "after")
            }
        except (ValueError, RecursionError) as error:
            raise damaged(path, error, mend) from error
        return Trace(about["title"], tuple(about["classes"]), tensors["labels"], **moments)
