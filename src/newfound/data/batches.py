"""The discovery set as the loop sees it: order and views drawn from `now`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from newfound import parallel
from newfound.data.views import draw_numbers
from newfound.types import Batch, Now, Training


class Dataset(ABC):
    """Something that can be seen in several views, with labels, −1 where unlabelled."""

    labels: Int[Tensor, " n"]

    @abstractmethod
    def look(
        self, rows: Int[Tensor, " m"], kinds: tuple[str, ...], draws: list[Tensor], device: torch.device
    ) -> list[Tensor]:
        """Some of it in one view a kind; a row of uniform numbers decides how each image is seen."""

    @abstractmethod
    def relabel(self, labels: Int[Tensor, " n"]) -> "Dataset":
        """The same images with other labels."""

    def __len__(self) -> int:
        return len(self.labels)

    def steps(self, training: Training) -> int:
        """Batches in an epoch; the last uneven one is dropped."""
        return max(1, len(self) // training.batch)

    def batches(self, training: Training, now: Now, device: torch.device) -> Iterator[tuple[Now, Batch]]:
        """One epoch. Order and views are drawn for the whole batch on every process; each takes its own part."""
        processes = parallel.world()[1]
        size = min(training.batch, len(self)) // processes * processes
        steps = self.steps(training)
        if training.classes_per_batch:
            order = draw_class_batches(self.labels, training.classes_per_batch, size, steps, now.random("order"))
        else:
            order = torch.randperm(len(self), generator=now.random("order"))
        for step in range(steps):
            here = now._replace(step=step, steps=steps)
            part = parallel.part(size)
            rows = order[step * size : (step + 1) * size][part]
            random = here.random("views")
            seen = self.look(rows, training.views, [draw_numbers(size, random)[part] for _ in training.views], device)
            yield here, Batch(seen, self.labels[rows].to(device), rows.to(device), {})

    def plain(self, rows: Int[Tensor, " m"], chunk: int = 512) -> Iterator[Float[Tensor, " some *image"]]:
        """Some of the images, or of the maps or features that stand for them, in the order of `rows`, unaugmented."""
        for some in rows.split(chunk):
            yield self.look(some, ("plain",), [draw_numbers(len(some), torch.Generator())], torch.device("cpu"))[0]


def draw_class_batches(
    labels: Int[Tensor, " n"], few: int, size: int, steps: int, random: torch.Generator
) -> Int[Tensor, " all"]:
    """Rows of an epoch whose every batch holds few classes, equally many images of each, drawn with replacement.

    So that pairs of one class are not too rare to learn from. Where a batch cannot be divided so, some classes have
    one image more. Unlabelled images are left out.
    """
    members = [(labels == label).nonzero().squeeze(1) for label in labels.unique() if label >= 0]
    few, rows = min(few, len(members)), []
    for _ in range(steps):
        classes = torch.randperm(len(members), generator=random)[:few][torch.arange(size) * few // size]
        picks = torch.rand(size, generator=random)
        for own, pick in zip((members[c] for c in classes.tolist()), picks.tolist(), strict=True):
            rows.append(own[int(pick * len(own))])
    return torch.stack(rows)
