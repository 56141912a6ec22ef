"""A backbone without BatchNorm, and runs of it that may have several processes.

    python -m tests.training.plain OUT METHOD:STAGES…     (also under torchrun)

STAGES is 1 where labelled images take part, else 2. Each process writes a learner's state after two epochs in double
precision to OUT/METHOD:STAGES.RANK.safetensors, and that of one case after a step in single precision to
OUT/step.RANK.safetensors.
"""

import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

from newfound import parallel
from newfound.data.pixels import PixelDataset
from newfound.methods import parse
from newfound.methods.base import Method
from newfound.methods.spacing import Spacing
from newfound.methods.stage_one import Rotation
from newfound.networks.backbone import Backbone
from newfound.networks.model import Model
from newfound.networks.similarity import PairHead, PairNet
from newfound.training.loop import Learner, fit
from newfound.types import Latents, Problem, Training, generator, seeded

ROWS, STEP = 64, "pairs+spacing:2"


class Plain(Backbone):
    """Two smooth layers: rows do not meet, so processes can agree to the last digits. Small views are enlarged."""

    def __init__(self):
        super().__init__()
        self.dim = 8
        first = nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.Tanh(), nn.Unflatten(1, (4, 2, 2)))
        self.stages = nn.ModuleList([first, nn.Conv2d(4, 8, 1)])

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Latents:
        images = F.interpolate(images.to(self.stages[1].weight.dtype), (6, 6))
        seen = self.stages[0](images)
        return Latents(self.stages[1](seen).mean((2, 3)), seen)

    def settings(self) -> dict:
        return {}


def make_method(name: str, problem: Problem, model: Model) -> tuple[Method, tuple[str, ...]]:
    """A method, stage one's rotation among them, and the views its paper takes."""
    if name == "rotation":
        return Rotation(problem), ("weak",)
    recipe = parse(name)
    return recipe.build(problem, model), recipe.training.views


def learn(case: str, dtype: torch.dtype, epochs: int, batch: int) -> dict[str, Tensor]:
    """The state of a learner that has learnt so much."""
    name, _, stages = case.rpartition(":")
    pixels = torch.randint(0, 256, (ROWS, 3, 6, 6), generator=generator("pixels"), dtype=torch.uint8)
    labels = torch.arange(ROWS) % 3
    labels[0 if stages == "2" else ROWS // 2 :] = -1
    with seeded("plain"):
        similarity = PairNet(Plain(), PairHead(8))
        model = Model(Plain(), 6, 3, ("a", "b", "c"), nn.Linear(8, 3), similarity=similarity)
        method, views = make_method(name, Problem(8, 3, 4, stages == "1", ROWS), model)
    learner = Learner(model.backbone, method).to(dtype)
    training = Training(epochs=epochs, batch=batch, rate=0.05, views=views)
    fit(learner, PixelDataset(pixels, labels), training, seed=7, device="cpu")
    return dict(learner.state_dict())


def main(out: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    # What one process computes and what two do differ in the last digit: k-means on latents of an untrained network may
    # then join other images, so prototypes are placed but once.
    Spacing._starts = lambda spacing, known: (spacing.loss.preset.start,)  # type: ignore[method-assign]
    rank = os.environ.get("RANK", "0")
    for case in cases:
        save_file(learn(case, torch.float64, epochs=2, batch=16), out / f"{case}.{rank}.safetensors")
    save_file(learn(STEP, torch.float32, epochs=1, batch=ROWS), out / f"step.{rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    parallel.leave()
