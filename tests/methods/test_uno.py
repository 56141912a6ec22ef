"""UNO against loops over heads, views and images."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.data.pixels import PixelDataset
from newfound.functional.losses import swapped_cross_entropy
from newfound.functional.metrics import accuracy
from newfound.methods.uno import Uno, build, over_clustering, recipe, targets
from newfound.networks.heads import Cosine
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, fit
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

DIM, KNOWN, NOVEL = 8, 3, 4
NOW = Now(seed=1, epoch=0, epochs=5)


def rand(*shape, key):
    return torch.randn(*shape, generator=generator("uno", key), dtype=torch.float64)


def make(labelled=True, **settings):
    with seeded("uno"):
        return Uno(Problem(DIM, KNOWN, NOVEL, labelled), **settings).double()


def make_batch(labels, views=2, key="z"):
    labels = torch.tensor(labels, dtype=torch.long)
    latents = [Latents(rand(len(labels), DIM, key=f"{key}{view}").requires_grad_()) for view in range(views)]
    return latents, Batch([], labels, torch.arange(len(labels)), {})


def naive_sinkhorn(logits):
    """On exponentials; `logits` are those of the unlabelled images alone."""
    q = (logits / 0.05).exp()
    for _ in range(3):
        q = q / q.sum(0, keepdim=True)
        q = q / q.sum(1, keepdim=True)
    return q


def naive_loss(head, labelled, views, labels):
    """−log p of the other view's target, image by image, for one head: [image] → loss."""
    known = 0 if labelled is None else KNOWN
    u = [i for i, label in enumerate(labels) if label < 0]
    total, pairs = [0.0] * len(labels), 0
    novel = [head(z) for z in views]
    logits = [s if labelled is None else torch.cat([labelled(z), s], 1) for z, s in zip(views, novel, strict=True)]
    for v in range(2):
        guess = naive_sinkhorn(novel[v][u])
        for w in range(len(views)):
            if v == w:
                continue
            pairs += 1
            for i, label in enumerate(labels):
                p = (logits[w][i] / 0.1).softmax(0)
                if label >= 0:
                    total[i] = total[i] - p[label].log()
                else:
                    share = guess[u.index(i)].detach()
                    total[i] = total[i] - sum(share[c] * p[known + c].log() for c in range(len(share)))
    return torch.stack([loss / pairs for loss in total])


LABELS = {"mixed": [0, 2, -1, -1, 1, -1, -1, -1], "only unlabelled": [-1] * 6, "only labelled": [2, 0, 1, 1]}


@pytest.mark.parametrize("views", [2, 4])
@pytest.mark.parametrize(("kind", "labelled"), [*((kind, True) for kind in LABELS), ("only unlabelled", False)])
def test_losses_and_gradients_equal_the_loop_over_heads_views_and_images(kind, labelled, views):
    method, labels = make(labelled, heads=2, over=2), LABELS[kind]
    latents, batch = make_batch(labels, views)
    losses = method(latents, batch, NOW)
    plain = [view.z for view in latents]
    slow = [
        torch.stack([naive_loss(head, method.labelled, plain, labels) for head in heads])
        for heads in (method.novel, method.over)
    ]
    torch.testing.assert_close(losses["swapped"], slow[0].mean() / 2)
    torch.testing.assert_close(losses["over-clustered"], slow[1].mean() / 2)
    torch.testing.assert_close(batch.notes["loss of heads"], slow[0].T.detach())
    learnt = [*plain, *method.parameters()]
    fast = torch.autograd.grad(losses["swapped"] + losses["over-clustered"], learnt)
    for a, b in zip(fast, torch.autograd.grad((slow[0].mean() + slow[1].mean()) / 2, learnt), strict=True):
        torch.testing.assert_close(a, b)


def test_targets_are_labels_or_a_guess_among_novel_classes_and_sum_to_1():
    labels = torch.tensor([1, -1, -1, 0, -1])
    target = targets(rand(2, 5, NOVEL, key="t"), labels, KNOWN)
    assert target[:, 0].tolist() == [[0, 1, 0, 0, 0, 0, 0]] * 2
    assert target[:, 3].tolist() == [[1, 0, 0, 0, 0, 0, 0]] * 2
    assert not target[:, labels < 0, :KNOWN].any()
    torch.testing.assert_close(target.sum(2), torch.ones(2, 5, dtype=torch.float64))


def test_labelled_images_do_not_change_what_is_guessed_of_unlabelled_ones():
    novel, labels = rand(8, NOVEL, key="t"), torch.tensor([0, 1, -1, -1, 2, -1, -1, -1])
    torch.testing.assert_close(targets(novel, labels, KNOWN)[labels < 0, KNOWN:], naive_sinkhorn(novel[labels < 0]))


def test_small_views_predict_and_give_no_targets():
    logits = rand(4, 1, 3, 5, key="l")
    target = rand(2, 1, 3, 5, key="t").softmax(-1)
    log_p = logits.log_softmax(-1)
    pairs = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]
    slow = -sum((target[v] * log_p[w]).sum(-1) for v, w in pairs) / 6
    torch.testing.assert_close(swapped_cross_entropy(logits, target), slow)


def test_one_view_alone_has_nothing_to_learn_from():
    loss = swapped_cross_entropy(rand(1, 2, 3, 5, key="l").requires_grad_(), rand(1, 2, 3, 5, key="t").softmax(-1))
    assert not loss.any()
    assert loss.requires_grad


def test_a_head_that_all_views_agree_with_is_hardly_surprised():
    sure = 30 * torch.eye(5, dtype=torch.float64)[None, None].expand(2, 1, 5, 5)
    assert swapped_cross_entropy(sure, sure.softmax(-1)).max() < 1e-9
    assert swapped_cross_entropy(torch.zeros_like(sure), sure.softmax(-1)).mean().item() == pytest.approx(math.log(5))


def test_permuting_images_permutes_their_losses_and_changes_nothing_else():
    method, order = make(), torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    latents, batch = make_batch(LABELS["mixed"])
    turned = Batch([], batch.labels[order], batch.rows[order], {})
    first, second = method(latents, batch, NOW), method([Latents(v.z[order]) for v in latents], turned, NOW)
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(turned.notes["loss of heads"], batch.notes["loss of heads"][order])


def test_the_best_head_of_the_epoch_is_the_one_read():
    method = make(heads=3).eval()
    latents, _ = make_batch(LABELS["mixed"])
    z = latents[0].z
    for losses in ([[3.0, 1.0, 2.0], [3.0, 3.0, 2.0]], [[0.0, 0.0, 5.0]]):
        note = torch.tensor(losses, dtype=torch.float64)
        method.after_step(
            latents, Batch([], torch.tensor([-1]), torch.tensor([0]), {"loss of heads": note}), latents.__getitem__, NOW
        )
    assert method.head_loss.tolist() == [3.0, 2.0, 7.0]  # a step counts the mean of its images
    expected = torch.cat([method.labelled(z), method.novel[1](z)], 1) / 0.1
    torch.testing.assert_close(method.logits(z), expected)
    assert method.log() == {"best head": 1.0}
    method.before_epoch(lambda: None, NOW)
    assert not method.head_loss.any()


def test_prototypes_are_of_unit_length_after_every_step():
    method = make()
    latents, batch = make_batch(LABELS["mixed"])
    optimizer = torch.optim.SGD(method.parameters(), 5.0)
    sum(method(latents, batch, NOW).values()).backward()
    optimizer.step()
    heads = [module for module in method.modules() if isinstance(module, Cosine)]
    assert len(heads) == 1 + 4 + 4
    assert any((head.weight.norm(dim=1) - 1).abs().max() > 1e-2 for head in heads)
    method.after_step(latents, batch, latents.__getitem__, NOW)
    for head in heads:
        torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(len(head.weight), dtype=torch.float64))


def test_the_labelled_head_starts_where_stage_one_left_it_if_it_fits():
    with seeded("head"):
        head, other = nn.Linear(DIM, KNOWN), nn.Linear(DIM, KNOWN + 1)
    before = head.weight.detach().clone()
    model = Model(SmallResNet(1), 32, 3, ("a", "b", "c"), head)
    method = build(Problem(DIM, KNOWN, NOVEL), model)
    torch.testing.assert_close(method.labelled.weight.detach(), F.normalize(before, dim=1))
    assert method.labelled.weight.requires_grad
    assert torch.equal(head.weight, before)
    assert Uno(Problem(DIM, KNOWN, NOVEL), other).labelled.weight.shape == (KNOWN, DIM)
    assert Uno(Problem(DIM, KNOWN, NOVEL, labelled=False), head).labelled is None


def test_heads_have_the_sizes_of_the_paper():
    method = Uno(Problem(512, 80, 20), heads=1)
    (first, norm, _, last), prototypes = method.novel[0]
    assert (first.out_features, norm.num_features, last.out_features) == (2048, 2048, 256)
    assert prototypes.weight.shape == (20, 256)
    assert method.over[0][1].weight.shape == (100, 256)
    assert method.labelled.weight.shape == (80, 512)


@pytest.mark.parametrize(("novel", "times"), [(1, 10), (5, 10), (6, 5), (20, 5), (21, 3), (50, 3)])
def test_fewer_novel_classes_are_over_clustered_more(novel, times):
    assert over_clustering(novel) == times
    assert len(Uno(Problem(2, 1, novel), heads=1).over[0][1].weight) == novel * times


@pytest.mark.parametrize("labels", [[], [-1], [1]])
def test_a_batch_of_one_image_or_none_is_welcome(labels):
    method = make()
    latents, batch = make_batch(labels, views=4)
    losses = method(latents, batch, NOW)
    sum(losses.values()).backward()
    method.after_step(latents, batch, latents.__getitem__, NOW)
    assert all(loss.isfinite() for loss in losses.values())
    assert latents[3].z.grad.isfinite().all()
    assert method.head_loss.isfinite().all()


def test_groups_of_unlabelled_latents_are_told_apart_beside_the_known_ones():
    places, truth = 3 * rand(KNOWN + NOVEL, DIM, key="places"), torch.arange(140) % (KNOWN + NOVEL)
    labels = torch.where(truth < KNOWN, truth, -1)
    method = make(heads=2)
    optimizer = torch.optim.SGD(method.parameters(), 0.1, momentum=0.9)
    for step in range(40):
        latents = [Latents(places[truth] + 0.5 * rand(140, DIM, key=f"{step} {view}")) for view in range(2)]
        batch = Batch([], labels, torch.arange(140), {})
        optimizer.zero_grad()
        sum(method(latents, batch, NOW).values()).backward()
        optimizer.step()
        method.after_step(latents, batch, latents.__getitem__, NOW)
    with torch.no_grad():
        guess = method.eval().logits(places[truth] + 0.5 * rand(140, DIM, key="new")).argmax(1)
    assert (guess[truth < KNOWN] == truth[truth < KNOWN]).double().mean() > 0.95
    assert accuracy(truth, guess) > 0.95


@pytest.mark.parametrize("labelled", [True, False])
def test_its_own_views_go_through_the_loop(labelled):
    pixels = torch.randint(0, 256, (16, 3, 32, 32), generator=generator("pixels"), dtype=torch.uint8)
    labels = torch.where(torch.arange(16) < 6, torch.arange(16) % KNOWN, -1) if labelled else torch.full((16,), -1)
    with seeded("learner"):
        model = Model(SmallResNet(width=1, stride=2), 32, 3, ("a", "b", "c"), nn.Linear(8, KNOWN))
        learner = Learner(model.backbone, build(Problem(8, KNOWN, NOVEL, labelled, 16), model))
    rows = fit(
        learner, PixelDataset(pixels, labels), replace(recipe.training, epochs=2, batch=8, rate=0.05), 0, device="cpu"
    )
    assert len(rows) == 2
    scores = learner.eval().method.logits(learner.backbone(pixels.float() / 255).z)
    assert scores.shape == (16, KNOWN + NOVEL if labelled else NOVEL)
    assert scores.isfinite().all()


def test_the_rate_warms_up_for_10_of_500_epochs_and_falls_to_what_it_began_with():
    training = recipe.training
    rates = [training.rate * training.schedule(Now(0, epoch, 500).progress) for epoch in range(501)]
    assert rates[0] == pytest.approx(0.001)
    assert rates[5] == pytest.approx((0.001 + 0.4) / 2)
    assert rates[10] == pytest.approx(0.4)
    assert rates[255] == pytest.approx((0.001 + 0.4) / 2)
    assert rates[500] == pytest.approx(0.001)
