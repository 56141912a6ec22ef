"""A run in which nothing divides by two, of a backbone with BatchNorm, whole and then stopped and resumed.

    python -m torch.distributed.run … -m tests.training.uneven OUT

Each process writes to OUT/RANK.safetensors: `whole.…` and `resumed.…`, the learners' states; `features` and `labels`, a
survey by the resumed one.
"""

import os
import sys
from pathlib import Path

import torch

from newfound import files, parallel
from newfound.data.pixels import PixelDataset
from newfound.methods import parse
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, estimate, fit, survey
from newfound.types import Problem, Training, generator, seeded

ROWS, SEED = 63, 7
TRAINING = Training(epochs=3, batch=15, rate=0.02)


def make_data() -> PixelDataset:
    pixels = torch.randint(0, 256, (ROWS, 3, 12, 12), generator=generator("uneven"), dtype=torch.uint8)
    labels = torch.arange(ROWS) % 3
    labels[ROWS // 2 :] = -1
    return PixelDataset(pixels, labels)


def make_learner() -> Learner:
    with seeded("uneven"):
        model = Model(SmallResNet(2, 2), 12, 3, ("a", "b", "c"), torch.nn.Linear(16, 3))
        return Learner(model.backbone, parse("pairs+spacing").build(Problem(16, 3, 4, rows=ROWS), model))


def main(out: Path) -> None:
    torch.set_num_threads(1)
    data, whole, stopped, resumed = make_data(), make_learner(), make_learner(), make_learner()
    assert estimate(whole, data, TRAINING, device="cpu") is None, "of several processes nothing can be said"
    fit(whole, data, TRAINING, SEED, device="cpu", checkpoint=out / "whole")

    def interrupt(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    try:
        fit(stopped, data, TRAINING, SEED, device="cpu", progress=interrupt, checkpoint=out / "stopped")
    except KeyboardInterrupt:
        torch.distributed.barrier()  # the first process writes
    fit(resumed, data, TRAINING, SEED, device="cpu", checkpoint=out / "stopped", resume=True)
    learnt = {f"whole.{name}": tensor for name, tensor in whole.state_dict().items()}
    learnt |= {f"resumed.{name}": tensor for name, tensor in resumed.state_dict().items()}
    learnt |= survey(resumed.backbone, data)._asdict()
    files.write_tensors(out / f"{os.environ['RANK']}.safetensors", learnt)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    parallel.leave()
