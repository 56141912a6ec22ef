"""Algorithm 2 and our own rule as slow loops, and numbers to try it on."""

import math

import torch
from torch import nn

from newfound.types import generator


def naive_move(z, prototypes, anchors, counts):
    """Algorithm 2, lines 10–15, sample by sample."""
    p, v = [row.clone() for row in prototypes], counts.tolist()
    assignment = [min(range(len(prototypes)), key=lambda k, zi=zi: (zi - prototypes[k]).norm().item()) for zi in z]
    for zi, k in zip(z, assignment, strict=True):
        v[k] += 1
        eta = 1 / v[k]
        p[k] = (1 - eta) * p[k] + eta * (zi + anchors[k])
    return torch.stack(p), torch.tensor(v, dtype=z.dtype), torch.tensor(assignment)


def rand(*shape, key):
    return torch.randn(*shape, generator=generator(key), dtype=torch.float64)


def make_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8)).double()


def naive_loss(loss, views, targets):
    """Every image, every ordered pair of views, class by class."""
    total, pairs = 0.0, 0
    for v, target in enumerate(targets):
        for w, view in enumerate(views):
            if v == w:
                continue
            for z, shares in zip(view, target, strict=True):
                logits = [(z / z.norm()) @ p / 0.1 for p in loss.prototypes]
                partition = math.log(sum(math.exp(value) for value in logits))
                total -= sum(share * (value - partition) for share, value in zip(shares, logits, strict=True))
            pairs += 1
    return total / pairs / len(views[0])
