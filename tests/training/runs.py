"""A small run: images that nobody painted, and a learner for them."""

import torch

from newfound.data.pixels import PixelDataset
from newfound.methods import parse
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner
from newfound.types import Problem, Training, generator, seeded

ROWS, LABELLED, EPOCHS, SEED = 40, 16, 4, 5
TRAINING = Training(EPOCHS, 20, 0.05)


def make_data(labelled=True):
    pixels = torch.randint(0, 256, (ROWS, 1, 8, 8), generator=generator("pixels"), dtype=torch.uint8)
    labels = torch.full((ROWS,), -1)
    if labelled:
        labels[:LABELLED] = torch.arange(LABELLED) % 2
    return PixelDataset(pixels, labels)


def make_learner(name, labelled=True):
    with seeded("trace"):
        model = Model(SmallResNet(2, 2), 8, 1, ("a", "b"), torch.nn.Linear(16, 2))
        method = parse(name).build(Problem(16, 2, 3, labelled, ROWS), model)
    return Learner(model.backbone, method)


def state(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
