"""The discovery set as the loop sees it: order and views drawn from `now`."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound import parallel
from newfound.data.views import VIEWS, draws
from newfound.types import Batch, Now, Training


@dataclass(frozen=True)
class Data:
    """Images and their labels, −1 where unlabelled."""

    pixels: UInt8[Tensor, "n channels height width"]
    labels: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def steps(self, training: Training) -> int:
        """Batches in an epoch; the last uneven one is dropped."""
        return max(1, len(self) // training.batch)

    def batches(self, training: Training, now: Now, device: torch.device) -> Iterator[tuple[Now, Batch]]:
        """One epoch. Order and views are drawn for the whole batch on every process; each takes its own part."""
        processes = parallel.world()[1]
        size = min(training.batch, len(self)) // processes * processes
        order = torch.randperm(len(self), generator=now.random("order"))
        steps = self.steps(training)
        for step in range(steps):
            here = now._replace(step=step, steps=steps)
            part = parallel.part(size)
            rows = order[step * size : (step + 1) * size][part]
            random = here.random("views")
            pixels = self.pixels[rows].to(device)
            views = [VIEWS[kind](pixels, draws(size, random)[part].to(device)) for kind in training.views]
            yield here, Batch(views, self.labels[rows].to(device), rows.to(device), {})

    def plain(self, rows: Int[Tensor, " m"], chunk: int = 512) -> Iterator[Float[Tensor, "some channels height width"]]:
        """Some of the images, in the order of `rows`, unaugmented."""
        for some in rows.split(chunk):
            yield VIEWS["plain"](self.pixels[some], draws(len(some), torch.Generator()))
