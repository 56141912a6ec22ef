"""A backbone without BatchNorm, and a run of it that may have several processes.

    python -m tests.training.plain METHOD LABELLED DTYPE EPOCHS OUT     (also under torchrun)

Each process writes the learner's state to OUT/RANK.safetensors.
"""

import os
import sys
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

from newfound import parallel
from newfound.data.batches import Data
from newfound.methods import build
from newfound.networks.backbone import Backbone
from newfound.networks.model import Model
from newfound.training.loop import Learner, fit
from newfound.types import Latents, Problem, Training, generator, seeded

ROWS = 64


class Plain(Backbone):
    """Two smooth layers: rows do not meet, so processes can agree to the last digits."""

    def __init__(self):
        super().__init__()
        self.dim = 8
        self.stages = nn.ModuleList([nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Tanh()), nn.Linear(16, 8)])

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Latents:
        return Latents(self.stages[1](self.stages[0](images.to(self.stages[1].weight.dtype))), None)

    def settings(self) -> dict:
        return {}


def main(name: str, labelled: bool, dtype: str, epochs: int, out: Path) -> None:
    torch.set_num_threads(1)
    pixels = torch.randint(0, 256, (ROWS, 1, 6, 6), generator=generator("pixels"), dtype=torch.uint8)
    labels = torch.arange(ROWS) % 3
    labels[0 if not labelled else ROWS // 2 :] = -1
    with seeded("plain"):
        model = Model(Plain(), 6, 1, ("a", "b", "c"), nn.Linear(8, 3))
        method = build(name, Problem(8, 3, 4, labelled, ROWS), model)
    learner = Learner(model.backbone, method).to(getattr(torch, dtype))
    training = Training(epochs=epochs, batch=16 if epochs > 1 else ROWS, rate=0.05)
    fit(learner, Data(pixels, labels), training, seed=7, device="cpu")
    save_file(dict(learner.state_dict()), out / f"{os.environ.get('RANK', '0')}.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "True", sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    parallel.leave()
