"""Supervised and Rotation against loops over images and turns."""

import math

import pytest
import torch

from newfound import parallel
from newfound.methods.stage_one import Rotation, Supervised, turn
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

DIM, SIDE = 48, 4
NOW = Now(seed=2, epoch=1, epochs=5, step=3, steps=7)
PROBLEM = Problem(DIM, known=3, novel=0)


def make_images(n):
    return torch.rand(n, 3, SIDE, SIDE, generator=generator("images", n), dtype=torch.float64)


def make_batch(n):
    return Batch([make_images(n)], torch.arange(n) % 3, torch.arange(n), {})


def make_rotation(turns):
    with seeded("rotation"):
        return Rotation(PROBLEM, turns).double()


def latents(views):
    """A backbone that only flattens, so that turned images have other latents."""
    return [Latents(view.flatten(1)) for view in views]


def naive_cross_entropy(scores, target, smoothing=0.0):
    """Σ_c −t_c log softmax(scores)_c, t the smoothed target."""
    total = sum(math.exp(score) for score in scores)
    t = [smoothing / len(scores) + (1 - smoothing) * (c == target) for c in range(len(scores))]
    return -sum(share * math.log(math.exp(score) / total) for share, score in zip(t, scores, strict=True))


def test_each_image_is_turned_by_its_own_number_of_quarters():
    images, turns = make_images(9), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0, 1])
    turned = turn(images, turns)
    for image, one, quarters in zip(images, turned, turns.tolist(), strict=True):
        assert torch.equal(one, torch.rot90(image, quarters, (1, 2)))


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_rotation_is_the_mean_cross_entropy_over_images_and_turns(turns):
    method, batch = make_rotation(turns), make_batch(7)
    images = batch.views[0].clone()
    seen = method.prepare(batch, NOW)
    loss = method(latents(seen.views), seen, NOW)["rotation"]
    total = 0.0
    for i in range(7):
        for t in seen.notes["turns"][i].tolist():
            z = torch.rot90(images[i], t, (1, 2)).flatten()
            scores = [(method.head.weight[c] @ z + method.head.bias[c]).item() for c in range(4)]
            total += naive_cross_entropy(scores, t)
    assert loss.item() == pytest.approx(total / (7 * turns))


def test_the_paper_takes_all_four_turns_of_every_image():
    seen = make_rotation(4).prepare(make_batch(20), NOW)
    assert len(seen.views) == 4
    assert (seen.notes["turns"].sort(1).values == torch.arange(4)).all()


def test_one_turn_is_a_random_one_for_each_image():
    turns = make_rotation(1).prepare(make_batch(400), NOW).notes["turns"]
    assert turns.shape == (400, 1)
    assert (turns.squeeze(1).bincount(minlength=4) - 100).abs().max() < 40


def test_turns_are_a_function_of_the_moment():
    method = make_rotation(1)
    first, again, later = (
        method.prepare(make_batch(50), now).notes["turns"] for now in (NOW, NOW, NOW._replace(step=4))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_labels_are_not_looked_at():
    method, losses = make_rotation(1), []
    for labels in (torch.arange(6) % 3, torch.full((6,), -1)):
        seen = method.prepare(make_batch(6)._replace(labels=labels), NOW)
        losses.append(method(latents(seen.views), seen, NOW)["rotation"])
    assert torch.equal(*losses)


@pytest.mark.parametrize("turns", [1, 4])
def test_two_processes_turn_their_parts_as_one_turns_the_whole(monkeypatch, turns):
    method, whole = make_rotation(turns), make_batch(10)
    expected = method.prepare(whole, NOW)
    parts = []
    for rank in (0, 1):
        monkeypatch.setattr(parallel, "world", lambda rank=rank: (rank, 2))
        own = slice(5 * rank, 5 * rank + 5)
        part = Batch([whole.views[0][own]], whole.labels[own], whole.rows[own], {})
        parts.append(method.prepare(part, NOW))
    assert torch.equal(torch.cat([part.notes["turns"] for part in parts]), expected.notes["turns"])
    for view in range(turns):
        assert torch.equal(torch.cat([part.views[view] for part in parts]), expected.views[view])


def test_supervised_is_the_mean_smoothed_cross_entropy_of_labelled_images():
    with seeded("supervised"):
        method = Supervised(PROBLEM, smoothing=0.1).double()
    labels = torch.tensor([0, -1, 2, 1, -1])
    z = torch.rand(5, DIM, generator=generator("z"), dtype=torch.float64)
    loss = method([Latents(z)], Batch([], labels, torch.arange(5), {}), NOW)["cross-entropy"]
    losses = [naive_cross_entropy(method.head(z[i]).tolist(), y, 0.1) for i, y in enumerate(labels.tolist()) if y >= 0]
    assert loss.item() == pytest.approx(sum(losses) / len(losses))


def test_without_a_labelled_image_supervised_is_0_with_a_gradient():
    method, z = Supervised(PROBLEM), torch.rand(4, DIM, requires_grad=True)
    loss = method([Latents(z)], Batch([], torch.full((4,), -1), torch.arange(4), {}), NOW)["cross-entropy"]
    loss.backward()
    assert loss == 0
    assert z.grad is not None
