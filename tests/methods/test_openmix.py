"""OpenMix against loops over images."""

import math

import pytest
import torch

from newfound import parallel
from newfound.methods.openmix import OpenMix, blend, build, joint_labels, partners, recipe
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

NOW = Now(seed=1, epoch=3, epochs=10, step=2, steps=5)
KNOWN, NOVEL, DIM = 3, 4, 8
MIXED = [0, -1, 2, -1, -1, 1, -1, 0, -1, -1]


def make_method(**settings):
    with seeded("openmix"):
        return OpenMix(Problem(DIM, KNOWN, NOVEL), torch.nn.Linear(DIM, KNOWN), **settings).double()


def make_batch(labels=MIXED):
    n = len(labels)
    views = [torch.rand(n, 3, 4, 4, generator=generator("images", view), dtype=torch.float64) for view in range(2)]
    return Batch(views, torch.tensor(labels, dtype=torch.long), torch.arange(n) + 7, {})


def make_latents(n):
    """Two views, near one another, and the blends; the novel head is sure of some images and not of others."""
    first, noise, blends = torch.randn(3, n, DIM, generator=generator("latents"), dtype=torch.float64)
    return [Latents(z.requires_grad_()) for z in (4 * first, 4 * first + noise, blends)]


def naive_softmax(row):
    powers = [math.exp(value) for value in row]
    return [power / sum(powers) for power in powers]


def naive_label(method, latents, labels, i):
    """Over all classes, and whether a surer image could be found."""
    if labels[i] >= 0:
        return [float(c == labels[i]) for c in range(KNOWN + NOVEL)], True
    novel = [naive_softmax(method.pairs.heads.novel(view.z[i]).tolist()) for view in latents[:2]]
    average = [(a + b) / 2 for a, b in zip(*novel, strict=True)]
    squares = [value**2 for value in average]  # T = 0.5
    return [0.0] * KNOWN + [value / sum(squares) for value in squares], max(average) >= method.sure


def naive_blends(method, latents, batch):
    """Cross-entropy, blend by blend."""
    labels, surprises = batch.labels.tolist(), []
    for i, (j, keep) in enumerate(zip(batch.notes["partner"].tolist(), batch.notes["keep"].tolist(), strict=True)):
        own, _ = naive_label(method, latents, labels, i)
        other, sure = naive_label(method, latents, labels, j)
        if labels[i] < 0 and not sure:
            continue
        z = latents[2].z[i]
        scores = method.pairs.heads.labelled(z).tolist() + method.pairs.heads.novel(z).tolist()
        logs = [math.log(p) for p in naive_softmax(scores)]
        surprises.append(-sum((keep * a + (1 - keep) * b) * log for a, b, log in zip(own, other, logs, strict=True)))
    return surprises


def test_blended_pixels_equal_the_loop_over_images():
    batch = make_batch()
    prepared = make_method().prepare(batch, NOW)
    assert len(prepared.views) == 3
    assert all(torch.equal(a, b) for a, b in zip(prepared.views, batch.views, strict=False))
    for i, (j, keep) in enumerate(zip(*(prepared.notes[name].tolist() for name in ("partner", "keep")), strict=True)):
        for channel, y, x in ((0, 0, 0), (1, 2, 3), (2, 3, 1)):
            expected = keep * batch.views[0][i, channel, y, x] + (1 - keep) * batch.views[0][j, channel, y, x]
            torch.testing.assert_close(prepared.views[2][i, channel, y, x], expected)


@pytest.mark.parametrize(("sure", "counted"), [(0.25, 10), (0.9, 7), (1.1, 4)])
def test_the_loss_of_blends_equals_the_loop_over_images(sure, counted):
    method = make_method(sure=sure)
    batch, latents = method.prepare(make_batch(), NOW), make_latents(len(MIXED))
    surprises = naive_blends(method, latents, batch)
    assert len(surprises) == counted  # the labelled ones, and those whose partner is sure
    loss = method(latents, batch, NOW)["blends"]  # after a quarter of the run the weight is 1
    assert loss.item() == pytest.approx(sum(surprises) / counted)


def test_the_blends_weigh_little_at_first_and_1_at_the_end():
    method = make_method()
    batch, latents = method.prepare(make_batch(), NOW), make_latents(len(MIXED))
    surprises = naive_blends(method, latents, batch)
    for now, weight in ((Now(1, 0, 10), math.exp(-5)), (Now(1, 9, 10), 1.0)):
        assert method(latents, batch, now)["blends"].item() == pytest.approx(weight * sum(surprises) / len(surprises))


def test_beside_the_blends_it_is_the_pairwise_step():
    method, latents = make_method(), make_latents(len(MIXED))
    batch = method.prepare(make_batch(), NOW)
    losses, pairs = method(latents, batch, NOW), method.pairs(latents, batch, NOW)
    assert losses.keys() == pairs.keys() | {"blends"}
    assert all(torch.equal(losses[name], loss) for name, loss in pairs.items())


@pytest.mark.parametrize("step", range(5))
def test_half_of_every_label_mixed_with_a_labelled_image_is_right(step):
    """Whatever is guessed of unlabelled images: the known and the novel part of a label do not meet."""
    method = make_method()
    batch = method.prepare(make_batch(), NOW._replace(step=step))
    partner, keep = batch.notes["partner"], batch.notes["keep"]
    guess = torch.rand(len(MIXED), NOVEL, generator=generator("guess"), dtype=torch.float64).softmax(1)
    labels = joint_labels(batch.labels, guess, KNOWN)
    target = blend(labels, labels[partner], keep)
    torch.testing.assert_close(target.sum(1), torch.ones_like(keep))
    for i, label in enumerate(MIXED):
        if label >= 0:
            assert target[i, label] == keep[i] >= 0.5
            assert target[i, :KNOWN].sum() == target[i, label]
        else:
            assert keep[i] <= 0.5
            assert not target[i, :KNOWN].any()


def test_partners_are_unlabelled_images_and_another_one_than_oneself():
    labels, met = torch.tensor(MIXED), set()
    for step in range(200):
        partner, _ = partners(labels, generator("partners", step))
        assert (labels[partner] < 0).all()
        assert (partner != torch.arange(len(labels))).all()
        met |= set(enumerate(partner.tolist()))
    unlabelled = [i for i, label in enumerate(MIXED) if label < 0]
    assert met == {(i, j) for i in range(len(MIXED)) for j in unlabelled if i != j}


def test_shares_are_uniform_from_a_half_to_1_on_the_surer_side():
    labels = torch.cat([torch.zeros(5000), torch.full((5000,), -1)]).long()
    _, keep = partners(labels, generator("shares"))
    for surer in (keep[:5000], 1 - keep[5000:]):
        assert surer.min() >= 0.5
        assert surer.max() <= 1
        counts = torch.histc(surer, 5, 0.5, 1.0)
        assert counts.sum() == 5000
        assert ((counts - 1000).abs() < 120).all()  # four standard deviations


@pytest.mark.parametrize(
    ("labels", "alone"), [([0, 1, 2], [0, 1, 2]), ([-1], [0]), ([2, -1], [1]), ([-1, -1], []), ([], [])]
)
def test_an_image_that_finds_no_partner_is_its_own_and_stays_as_it_is(labels, alone):
    method, batch = make_method(), make_batch(labels)
    prepared = method.prepare(batch, NOW)
    partner = prepared.notes["partner"].tolist()
    assert [i for i, j in enumerate(partner) if i == j] == alone
    torch.testing.assert_close(prepared.views[2][alone], batch.views[0][alone])
    losses = method(make_latents(len(labels)), prepared, NOW)
    assert all(loss.isfinite() for loss in losses.values())


def test_where_nobody_is_sure_blends_of_unlabelled_images_give_no_gradient():
    method, latents = make_method(sure=1.1), make_latents(len(MIXED))
    method(latents, method.prepare(make_batch(), NOW), NOW)["blends"].backward()
    assert latents[2].z.grad.any(1).tolist() == [label >= 0 for label in MIXED]


def test_blends_teach_the_blended_images_alone_and_never_move_guesses():
    method, latents = make_method(sure=0.25), make_latents(len(MIXED))
    method(latents, method.prepare(make_batch(), NOW), NOW)["blends"].backward()
    assert latents[2].z.grad.any(1).all()
    assert latents[0].z.grad is None
    assert latents[1].z.grad is None


def test_two_processes_make_together_the_blends_that_one_makes(monkeypatch):
    method, whole = make_method(), make_batch()
    alone, n = method.prepare(whole, NOW), len(MIXED)
    parts = []
    for rank in range(2):
        own = slice(rank * n // 2, (rank + 1) * n // 2)
        batch = Batch([view[own] for view in whole.views], whole.labels[own], whole.rows[own], {})
        gathered = {id(batch.views[0]): whole.views[0], id(batch.labels): whole.labels}
        monkeypatch.setattr(parallel, "gather", lambda tensor, gathered=gathered: gathered[id(tensor)])
        monkeypatch.setattr(parallel, "part", lambda rows, own=own: own)
        parts.append(method.prepare(batch, NOW))
    assert torch.equal(torch.cat([part.views[2] for part in parts]), alone.views[2])
    for name, note in alone.notes.items():
        assert torch.equal(torch.cat([part.notes[name] for part in parts]), note)


def test_the_moment_alone_decides_who_is_blended_with_whom():
    method, batch = make_method(), make_batch()
    first, again, later = (method.prepare(batch, now).views[2] for now in (NOW, NOW, NOW._replace(step=3)))
    assert torch.equal(first, again)
    assert not torch.allclose(first, later)


def test_the_order_of_classes_means_nothing():
    method, renamed, latents = make_method(), make_method(), make_latents(len(MIXED))
    known, novel = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2])
    with torch.no_grad():
        for head, order in ((renamed.pairs.heads.labelled, known), (renamed.pairs.heads.novel, novel)):
            head.weight[order], head.bias[order] = head.weight.clone(), head.bias.clone()
    batch = make_batch()
    other = batch._replace(labels=torch.where(batch.labels < 0, -1, known[batch.labels]))
    losses = method(latents, method.prepare(batch, NOW), NOW)
    for name, loss in renamed(latents, renamed.prepare(other, NOW), NOW).items():
        torch.testing.assert_close(loss, losses[name])


def test_the_head_of_stage_one_is_copied_and_scores_known_classes_first():
    assert recipe.described
    assert recipe.pixels
    head = torch.nn.Linear(16, KNOWN)
    method = build(Problem(16, KNOWN, NOVEL), Model(SmallResNet(width=2), 4, 3, ("a", "b", "c"), head=head))
    assert not {id(p) for p in method.parameters()} & {id(p) for p in head.parameters()}
    features = torch.rand(5, 16, generator=generator("features"))
    assert method.logits(features).shape == (5, KNOWN + NOVEL)
    assert torch.equal(method.logits(features)[:, :KNOWN], head(features))
