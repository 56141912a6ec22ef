"""RS and RS+ against loops over images and pairs."""

import math

import pytest
import torch
from torch import nn

from newfound.methods import rs
from newfound.methods.base import Sum
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

DIM, KNOWN, NOVEL = 8, 3, 4
NOW = Now(seed=0, epoch=3, epochs=20, step=1, steps=4)
LABELS = [0, -1, 2, -1, -1, 1, -1, -1]


def rand(*shape, key):
    return torch.rand(*shape, generator=generator("rs", key), dtype=torch.float64)


def make_model():
    with seeded("model"):
        head = nn.Linear(DIM, KNOWN)
        return Model(SmallResNet(width=2), 8, 3, ("a", "b", "c"), head=head)


def make_method(recipe, labelled=True):
    with seeded("rs"):
        return recipe.build(Problem(DIM, KNOWN, NOVEL, labelled), make_model()).double()


def make_batch(labels=LABELS):
    """Two views; every other image has the same strong features, in another order."""
    n = len(labels)
    strong = torch.zeros(n, DIM, dtype=torch.float64)
    strong[::2, :5] = 2
    strong[1::2, 3:] = 2
    views = [Latents(rand(n, DIM, key=key) + strong) for key in ("first", "second")]
    return views, Batch([], torch.tensor(labels), torch.arange(n), {})


def naive_pairs(method, views, u):
    """BCE over all ordered pairs of unlabelled images, alike when their five strongest features are the same set."""
    p, q = (method.heads.novel(view.z).softmax(1) for view in views)
    strongest = [set(sorted(range(DIM), key=lambda d, z=z: -z[d])[:5]) for z in views[0].z.tolist()]
    total = 0.0
    for i in u:
        for j in u:
            together = (p[i] * q[j]).sum().item()
            total -= math.log(together if strongest[i] == strongest[j] else 1 - together)
    return total / len(u) ** 2


@pytest.mark.parametrize(("labelled", "labels"), [(True, LABELS), (False, [-1] * 6)])
def test_pairs_are_alike_when_their_five_strongest_features_are_the_same_set(labelled, labels):
    method, (views, batch) = make_method(rs.recipe, labelled), make_batch(labels)
    u = [i for i, label in enumerate(labels) if label < 0]
    assert method(views, batch, NOW)["pairs"].item() == pytest.approx(naive_pairs(method, views, u))


def naive_self_training(method, z, u, progress):
    """0.05 · ramp · cross-entropy of the widened head with what the novel head guesses, image by image."""
    wide, novel = method.pairs.heads.labelled, method.pairs.heads.novel
    total = 0.0
    for i in u:
        scores = [(wide.weight[c] @ z[i] + wide.bias[c]).item() for c in range(KNOWN + NOVEL)]
        guesses = [(novel.weight[c] @ z[i] + novel.bias[c]).item() for c in range(NOVEL)]
        guess = KNOWN + guesses.index(max(guesses))
        total += math.log(sum(math.exp(s) for s in scores)) - scores[guess]
    return 0.05 * math.exp(-5 * (1 - min(progress / 0.25, 1)) ** 2) * total / len(u)


@pytest.mark.parametrize("epoch", [0, 3, 19])
def test_the_widened_head_learns_what_the_novel_head_guesses(epoch):
    method, (views, batch), now = make_method(rs.incremental), make_batch(), Now(0, 10 * epoch, 200, 0, 390)
    u = [i for i, label in enumerate(LABELS) if label < 0]
    losses = method(views, batch, now)
    assert losses.keys() == {"pairs", "cross-entropy", "consistency", "self-training"}
    weighed = naive_self_training(method, views[0].z, u, epoch / 20)
    assert losses["self-training"].item() == pytest.approx(weighed)
    shorter = method(views, batch, now._replace(steps=39))["self-training"].item()
    assert shorter == pytest.approx(10 * weighed), "a tenth of the published steps"
    assert losses["pairs"].item() == pytest.approx(naive_pairs(method.pairs, views, u))


def test_cross_entropy_and_consistency_of_the_widened_head_are_over_all_classes():
    method, (views, batch) = make_method(rs.incremental), make_batch()
    losses, wide, l = method(views, batch, NOW), method.pairs.heads.labelled, batch.labels >= 0  # noqa: E741
    p, q = (wide(view.z).softmax(1) for view in views)
    assert p.shape == (len(LABELS), KNOWN + NOVEL)
    expected = sum(-p[i, y].log() for i, y in enumerate(LABELS) if y >= 0) / l.sum()
    assert losses["cross-entropy"].item() == pytest.approx(expected.item())
    a, b = (method.pairs.heads.novel(view.z).softmax(1) for view in views)
    weight = 5 * math.exp(-5 * (1 - NOW.progress / 0.25) ** 2)
    expected = weight * (sum((p - q).flatten() ** 2) / p.numel() + sum((a - b).flatten() ** 2) / a.numel())
    assert losses["consistency"].item() == pytest.approx(expected.item())


def test_guesses_are_not_moved_by_what_is_learnt_from_them():
    method, (views, batch) = make_method(rs.incremental), make_batch()
    method(views, batch, NOW)["self-training"].backward()
    assert method.pairs.heads.labelled.weight.grad.abs().sum() > 0
    novel = method.pairs.heads.novel.weight.grad
    assert novel is None or not novel.any()


def test_scores_of_all_classes_are_those_of_the_widened_head_and_known_ones_start_as_stage_one_left_them():
    method, z = make_method(rs.incremental), rand(5, DIM, key="z")
    assert torch.equal(method.logits(z), method.pairs.heads.labelled(z))
    torch.testing.assert_close(method.logits(z)[:, :KNOWN], make_model().head.double()(z))
    assert method.logits(z).argmax(1).max() < KNOWN  # a novel class is not guessed before one is learnt


def parted(method):
    """With heads that disagree on every image: the novel one for the first class, the widened one for the last."""
    heads = method.pairs.heads
    with torch.no_grad():
        heads.novel.bias.copy_(torch.tensor([9.0, 0, 0, 0]) * 100)
        heads.labelled.bias[KNOWN:] = torch.tensor([0, 0, 0, 9.0]) * 100
    return method


def test_images_known_to_be_of_novel_classes_are_told_by_the_novel_head_and_others_by_the_widened_one():
    method, z = parted(make_method(rs.incremental)), rand(5, DIM, key="z")
    assert torch.equal(method.novel_logits(z, NOVEL), method.pairs.heads.novel(z))
    assert method.novel_logits(z, NOVEL).argmax(1).tolist() == [0] * 5
    assert method.logits(z)[:, -NOVEL:].argmax(1).tolist() == [NOVEL - 1] * 5
    assert method.logits(z).argmax(1).tolist() == [KNOWN + NOVEL - 1] * 5


def test_with_a_loss_added_novel_classes_are_told_by_the_same_head():
    method, z = parted(make_method(rs.incremental)), rand(5, DIM, key="z")
    added = Sum(Sum(), method)
    assert torch.equal(added.novel_logits(z, NOVEL), method.pairs.heads.novel(z))
    assert torch.equal(added.logits(z), method.pairs.heads.labelled(z))
    assert Sum().novel_logits(z, NOVEL) is None


@pytest.mark.parametrize("labelled", [True, False])
def test_a_method_with_one_head_for_novel_classes_tells_them_by_the_last_of_its_scores(labelled):
    method, z = make_method(rs.recipe, labelled), rand(5, DIM, key="z")
    assert torch.equal(method.novel_logits(z, NOVEL), method.logits(z)[:, -NOVEL:])


def test_where_unlabelled_images_may_be_of_known_classes_too_the_novel_ones_are_the_last_of_the_novel_head():
    with seeded("rs"):
        method = rs.incremental.build(Problem(DIM, KNOWN, NOVEL, mixed=True), make_model()).double()
    z = rand(5, DIM, key="z")
    assert torch.equal(method.novel_logits(z, NOVEL), method.pairs.heads.novel(z)[:, KNOWN:])


@pytest.mark.parametrize("recipe", [rs.recipe, rs.incremental])
def test_discovery_leaves_the_models_own_head_alone(recipe):
    model = make_model()
    before = [parameter.clone() for parameter in model.head.parameters()]
    method = recipe.build(Problem(DIM, KNOWN, NOVEL), model)
    assert torch.equal(method.logits(torch.eye(DIM))[:, :KNOWN], model.head(torch.eye(DIM)))
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(model.head.parameters(), before, strict=True))


@pytest.mark.parametrize("recipe", [rs.recipe, rs.incremental])
def test_a_model_without_a_head_gets_a_new_one(recipe):
    model = make_model()
    model.head = None
    method = recipe.build(Problem(DIM, KNOWN, NOVEL), model)
    assert method.logits(torch.rand(2, DIM)).shape == (2, KNOWN + NOVEL)


def test_the_rate_falls_tenfold_at_epoch_170_of_200():
    for recipe in (rs.recipe, rs.incremental):
        assert [recipe.training.schedule(epoch / 200) for epoch in (0, 169, 170)] == pytest.approx([1, 1, 0.1])
