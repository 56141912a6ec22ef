"""A backbone without BatchNorm, and runs of it that may have several processes.

    python -m tests.training.plain DTYPE EPOCHS OUT METHOD:STAGES…     (also under torchrun)

STAGES is 1 where labelled images take part, else 2. Each process writes a learner's state to
OUT/METHOD:STAGES.RANK.safetensors.
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
from newfound.data.batches import Data
from newfound.methods import build, parse
from newfound.methods.base import Method
from newfound.methods.stage_one import ROTATION, Rotation
from newfound.networks.backbone import Backbone
from newfound.networks.model import Model
from newfound.networks.similarity import PairHead, PairNet
from newfound.training.loop import Learner, fit
from newfound.types import Latents, Problem, Training, generator, seeded

ROWS = 64


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
        return Rotation(problem), ROTATION.views
    return build(name, problem, model), parse(name)[0].training.views


def main(dtype: str, epochs: int, out: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    pixels = torch.randint(0, 256, (ROWS, 3, 6, 6), generator=generator("pixels"), dtype=torch.uint8)
    for case in cases:
        name, _, stages = case.rpartition(":")
        labels = torch.arange(ROWS) % 3
        labels[0 if stages == "2" else ROWS // 2 :] = -1
        with seeded("plain"):
            similarity = PairNet(Plain(), PairHead(8))
            model = Model(Plain(), 6, 3, ("a", "b", "c"), nn.Linear(8, 3), similarity=similarity)
            method, views = make_method(name, Problem(8, 3, 4, stages == "1", ROWS), model)
        learner = Learner(model.backbone, method).to(getattr(torch, dtype))
        training = Training(epochs=epochs, batch=16 if epochs > 1 else ROWS, rate=0.05, views=views)
        fit(learner, Data(pixels, labels), training, seed=7, device="cpu")
        save_file(dict(learner.state_dict()), out / f"{case}.{os.environ.get('RANK', '0')}.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
    parallel.leave()
