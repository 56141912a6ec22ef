"""The step of RS, NCL and two-stage Spacing against loops over images and pairs."""

import math

import pytest
import torch
from torch import nn

from newfound.functional import pseudo
from newfound.methods.pairwise import Pairwise
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

DIM, KNOWN, NOVEL = 6, 3, 4
NOW = Now(seed=0, epoch=3, epochs=20, step=1, steps=4)
LABELS = [0, -1, 2, -1, -1, 1, -1]


def rand(*shape, key="z"):
    return torch.randn(*shape, generator=generator("pairwise", key), dtype=torch.float64)


def make_method(labelled=True, novel=NOVEL, guess=pseudo.cosine, **given):
    with seeded("pairwise"):
        return Pairwise(Problem(DIM, KNOWN, novel, labelled), guess, **given).double()


def make_batch(labels):
    """Two views; some images are close enough to be alike."""
    groups = rand(2, DIM, key="groups")[torch.arange(len(labels)) % 2]
    views = [Latents(groups + 0.2 * rand(len(labels), DIM, key=key)) for key in ("first", "second")]
    return views, Batch([], torch.tensor(labels, dtype=torch.long), torch.arange(len(labels)), {})


def softmax(row):
    powers = [math.exp(value) for value in row]
    return [power / sum(powers) for power in powers]


def apply(head, z):
    """Scores, number by number."""
    classes = list(zip(head.weight.tolist(), head.bias.tolist(), strict=True))
    return [[sum(w * x for w, x in zip(row, zi, strict=True)) + b for row, b in classes] for zi in z.tolist()]


def naive_losses(method, views, labels, guessed_from, now):
    """L = CE + BCE + w(t) · (squared differences of both heads), image by image and pair by pair."""
    z, other = views[0].z, views[1].z
    p, q = ([softmax(row) for row in apply(method.heads.novel, view)] for view in (z, other))
    u = [i for i, label in enumerate(labels) if label < 0]
    pairs = []
    for i in u:
        for j in u:
            a, b = guessed_from[i], guessed_from[j]
            together = sum(x * y for x, y in zip(p[i], q[j], strict=True))
            alike = (a @ b / a.norm() / b.norm()).item() > 0.95
            pairs.append(-math.log(together if alike else 1 - together))

    def squares(p, q):
        return [(a - b) ** 2 for x, y in zip(p, q, strict=True) for a, b in zip(x, y, strict=True)]

    losses, steady = {"pairs": average(pairs)}, average(squares(p, q))
    if method.heads.labelled is not None:
        known, known_other = ([softmax(row) for row in apply(method.heads.labelled, view)] for view in (z, other))
        losses["cross-entropy"] = average([-math.log(known[i][y]) for i, y in enumerate(labels) if y >= 0])
        steady += average(squares(known, known_other))
    length, top = (50 / 200, 5) if method.problem.novel <= 10 else (150 / 200, 50)
    progress = (now.epoch + now.step / now.steps) / now.epochs
    weight = top * math.exp(-5 * (1 - min(progress / length, 1)) ** 2)
    return losses | {"consistency": weight * steady}


def average(values):
    return sum(values) / len(values) if values else 0.0


def same(losses, expected):
    return {name: loss.item() for name, loss in losses.items()} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("labels", [LABELS, [-1] * 6, [0, 1, 2, 0]], ids=["mixed", "unlabelled", "labelled"])
def test_the_losses_equal_the_loops_with_labelled_images(labels):
    method, (views, batch) = make_method(), make_batch(labels)
    losses = method(views, batch, NOW)
    assert losses.keys() == {"pairs", "consistency", "cross-entropy"}
    assert same(losses, naive_losses(method, views, labels, views[0].z, NOW))


def test_the_losses_equal_the_loops_in_two_stages():
    method, (views, batch) = make_method(labelled=False), make_batch([-1] * 6)
    losses = method(views, batch, NOW)
    assert losses.keys() == {"pairs", "consistency"}
    assert same(losses, naive_losses(method, views, [-1] * 6, views[0].z, NOW))


def test_a_teachers_latents_decide_which_images_are_alike():
    method, (views, batch) = make_method(labelled=False), make_batch([-1] * 6)
    teacher = rand(6, DIM, key="teacher")[[0, 1, 2, 0, 1, 2]]
    batch.notes["teacher"] = teacher
    losses = method(views, batch, NOW)
    assert same(losses, naive_losses(method, views, [-1] * 6, teacher, NOW))
    assert not same(losses, naive_losses(method, views, [-1] * 6, views[0].z, NOW))


def test_the_teacher_is_a_frozen_copy_that_looks_at_the_first_view():
    with seeded("teacher"):
        backbone = SmallResNet(width=2, stride=2)
    method = Pairwise(Problem(backbone.dim, KNOWN, NOVEL, False), pseudo.cosine, teacher=backbone).train()
    images = torch.rand(4, 3, 8, 8, generator=generator("images"))
    expected = backbone.eval()(images).z
    with torch.no_grad():
        next(backbone.parameters()).add_(1)  # discovery moves the backbone, not its copy
    batch = method.prepare(Batch([images, 1 - images], torch.full((4,), -1), torch.arange(4), {}), NOW)
    torch.testing.assert_close(batch.notes["teacher"], expected.detach())
    assert not batch.notes["teacher"].requires_grad
    assert not any(parameter.requires_grad for name, parameter in method.named_parameters() if "teacher" in name)


def test_a_teacher_may_go_by_each_batch_and_remembers_none_of_them():
    with seeded("teacher"):
        backbone = SmallResNet(width=2, stride=2)
    problem = Problem(backbone.dim, KNOWN, NOVEL, False)
    taught = [
        Pairwise(problem, pseudo.cosine, teacher=backbone, statistics=statistics).train()
        for statistics in ("learnt", "batch")
    ]
    images = torch.rand(4, 3, 8, 8, generator=generator("images"))
    expected = [backbone.eval()(images).z.detach(), backbone.train()(images).z.detach()]
    state = {name: value.clone() for name, value in taught[1].state_dict().items()}
    for method, z in zip(taught, expected, strict=True):
        batch = method.prepare(Batch([images, 1 - images], torch.full((4,), -1), torch.arange(4), {}), NOW)
        torch.testing.assert_close(batch.notes["teacher"], z)
    assert (expected[0] - expected[1]).abs().max() > 0.01
    assert all(torch.equal(state[name], value) for name, value in taught[1].state_dict().items())


@pytest.mark.parametrize(("novel", "top"), [(5, 5.0), (10, 5.0), (20, 50.0)])
@pytest.mark.parametrize("epoch", [0, 5, 40, 100, 199])
def test_consistency_ramps_as_on_cifar_10_for_few_classes_and_as_on_cifar_100_for_many(novel, top, epoch):
    method, (views, batch) = make_method(novel=novel), make_batch(LABELS)
    now = Now(0, epoch, 200)
    expected = naive_losses(method, views, LABELS, views[0].z, now)
    assert method(views, batch, now)["consistency"].item() == pytest.approx(expected["consistency"])
    full = method(views, batch, Now(0, 199, 200))["consistency"].item()
    unweighted = sum((a - b).square().mean() for a, b in probabilities(method, views)).item()
    assert full == pytest.approx(top * unweighted)


@pytest.mark.parametrize("novel", [5, 20])
@pytest.mark.parametrize("epoch", [0, 25, 40, 50])
def test_a_ramp_that_is_given_takes_the_place_of_both(novel, epoch):
    method, (views, batch) = make_method(novel=novel, ramp=(0.8, 3.0)), make_batch(LABELS)
    unweighted = sum((a - b).square().mean() for a, b in probabilities(method, views)).item()
    weight = 3 * math.exp(-5 * (1 - min(epoch / 40, 1)) ** 2)
    assert method(views, batch, Now(0, epoch, 50))["consistency"].item() == pytest.approx(weight * unweighted)


def probabilities(method, views):
    return [[head(view.z).softmax(1) for view in views] for head in (method.heads.novel, method.heads.labelled)]


def test_a_labelled_image_moves_neither_pairs_nor_an_unlabelled_one_cross_entropy():
    method, (views, batch) = make_method(), make_batch(LABELS)
    u = batch.labels < 0
    for name, untouched in (("pairs", ~u), ("cross-entropy", u)):
        z = views[0].z.clone().requires_grad_()
        method([Latents(z), views[1]], batch, NOW)[name].backward()
        assert z.grad is not None
        assert not z.grad[untouched].any()
        assert z.grad[~untouched].any(dim=1).all()


def test_scores_are_those_of_known_classes_then_of_novel_ones():
    method, z = make_method(), rand(5, DIM)
    expected = [a + b for a, b in zip(apply(method.heads.labelled, z), apply(method.heads.novel, z), strict=True)]
    torch.testing.assert_close(method.logits(z), torch.tensor(expected, dtype=torch.float64))
    alone = make_method(labelled=False)
    torch.testing.assert_close(alone.logits(z), alone.heads.novel(z))


def test_the_labelled_head_starts_as_a_copy_of_the_given_one_and_in_two_stages_there_is_none():
    head = nn.Linear(DIM, KNOWN)
    own = Pairwise(Problem(DIM, KNOWN, NOVEL), pseudo.cosine, head=head).heads.labelled
    assert torch.equal(own.weight, head.weight)
    assert own.weight is not head.weight
    assert Pairwise(Problem(DIM, KNOWN, NOVEL, False), pseudo.cosine, head=head).heads.labelled is None
