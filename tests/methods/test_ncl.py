"""Neighbourhood contrast against loops over images and entries of the banks."""

import math

import pytest
import torch
from torch import nn

from newfound.methods import METHODS, ncl
from newfound.methods.ncl import HardNegatives, Neighbours
from newfound.networks.bank import Bank
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

DIM, KNOWN, NOVEL, SIZE = 8, 3, 2, 20
NOW = Now(seed=0, epoch=3, epochs=20, step=1, steps=4)
LABELS = [0, -1, 2, -1, -1, 1, -1]
HARD = HardNegatives(far=4, draws=3, kept=7)


def rand(*shape, key):
    return torch.rand(*shape, generator=generator("ncl", key), dtype=torch.float64)


def make_method(hard=None, labelled=True, filled=True):
    with seeded("ncl"):
        method = Neighbours(Problem(DIM, KNOWN, NOVEL, labelled), hard, size=SIZE).double()
    for bank in (method.unlabelled, method.labelled):
        if bank is not None:
            bank.push(bank.latents)  # of unit length in double precision
    if filled:
        method.unlabelled.push(rand(15, DIM, key="unlabelled"))
        if labelled:
            method.labelled.push(rand(15, DIM, key="labelled"), torch.arange(15) % KNOWN)
    return method


def make_batch(labels=LABELS):
    n = len(labels)
    groups = rand(3, DIM, key="groups")[torch.arange(n) % 3]
    views = [Latents(groups + 0.3 * rand(n, DIM, key=key)) for key in ("first", "second")]
    return views, Batch([], torch.tensor(labels, dtype=torch.long), torch.arange(n), {})


def unit(z):
    return z / z.norm()


def naive_contrast(similarities, target):
    """Cross-entropy of one image with its target, at temperature 0.05."""
    logits = [s / 0.05 for s in similarities]
    whole = math.log(sum(math.exp(value - max(logits)) for value in logits)) + max(logits)
    return -sum(t * (value - whole) for t, value in zip(target, logits, strict=True))


def naive_losses(method, views, labels, now, hard=None):
    """Both halves, image by image; `hard` gives an image's hard negatives."""
    losses, labelled_losses = [], []
    for i, label in enumerate(labels):
        q, k = unit(views[0].z[i]), unit(views[1].z[i])
        if label < 0:
            near = [(q @ m).item() for m in (k, *method.unlabelled.latents)]
            order = sorted(range(len(near)), key=lambda j, near=near: -near[j])[: method.k]
            target = [0.8 / method.k if j in order else 0.0 for j in range(len(near))]
            target[0] = 0.2
            more = [] if hard is None else [(q @ b).item() for b in hard(q, len(losses))]
            losses.append(naive_contrast(near + more, target + [0.0] * len(more)))
        else:
            near = [(q @ m).item() for m in (k, *method.labelled.latents)]
            alike = [True, *(entry == label for entry in method.labelled.labels.tolist())]
            labelled_losses.append(naive_contrast(near, [a / sum(alike) for a in alike]))
    expected = {"neighbours": average(losses)}
    return expected | ({} if method.labelled is None else {"labelled neighbours": 0.1 * average(labelled_losses)})


def average(values):
    return sum(values) / len(values) if values else 0.0


def same(losses, expected):
    return {name: loss.item() for name, loss in losses.items()} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("labels", [LABELS, [-1] * 6, [0, 1, 2, 0]], ids=["mixed", "unlabelled", "labelled"])
@pytest.mark.parametrize("filled", [True, False])
def test_the_losses_equal_the_loops_with_labelled_images(labels, filled):
    method, (views, batch) = make_method(filled=filled), make_batch(labels)
    losses = method(views, batch, NOW)
    assert losses.keys() == {"neighbours", "labelled neighbours"}
    assert same(losses, naive_losses(method, views, labels, NOW))


@pytest.mark.parametrize("hard", [None, HARD])
def test_two_stages_have_the_unlabelled_half_alone(hard):
    method, (views, batch) = make_method(hard, labelled=False), make_batch([-1] * 6)
    losses = method(views, batch, NOW)
    assert losses.keys() == {"neighbours"}
    assert same(losses, naive_losses(method, views, [-1] * 6, NOW))
    assert {name.split(".")[0] for name in method.state_dict()} == {"unlabelled"}


def blends_one_by_one(method, hard, now):
    """For the i-th unlabelled image: far entries, drawn labelled ones, both blends, the most similar kept."""
    n = sum(label < 0 for label in LABELS)
    drawn = torch.randint(SIZE, (n, hard.draws, hard.far), generator=now.random("hard negatives")).tolist()

    def negatives(q, i):
        far = sorted(method.unlabelled.latents, key=lambda u: (q @ u).item())[: hard.far]
        blends = []
        for draw in range(hard.draws):
            for j, u in enumerate(far):
                l = method.labelled.latents[drawn[i][draw][j]]  # noqa: E741
                blends += [unit((u + 2 * l) / 3), unit((2 * u + l) / 3)]
        return sorted(blends, key=lambda b: -(q @ b).item())[: hard.kept]

    return negatives


def test_hard_negatives_equal_blends_formed_one_by_one():
    method, (views, batch) = make_method(HARD), make_batch()
    losses = method(views, batch, NOW)
    assert same(losses, naive_losses(method, views, LABELS, NOW, blends_one_by_one(method, HARD, NOW)))
    assert losses["neighbours"] > make_method()(views, batch, NOW)["neighbours"]


@pytest.mark.parametrize("size", [3, 60])
def test_labelled_entries_are_drawn_from_all_of_their_bank_whatever_the_other_one_holds(size, monkeypatch):
    method, (views, _) = make_method(HardNegatives(far=4, draws=50)), make_batch()
    method.labelled = Bank(size, DIM).double()
    seen = []

    def see(q, unlabelled, labelled, drawn, kept):
        seen.extend(drawn.flatten().tolist())
        return q.new_zeros(len(q), 0)

    monkeypatch.setattr(ncl.pseudo, "hard_negatives", see)
    method.negatives(views[0].z, NOW)
    assert set(seen) == set(range(size))


def test_every_step_draws_its_own_hard_negatives():
    method, (views, batch) = make_method(HARD), make_batch()
    moments = [NOW, NOW, NOW._replace(step=2), NOW._replace(seed=1)]
    first, again, later, elsewhere = (method(views, batch, now)["neighbours"].item() for now in moments)
    assert first == again
    assert len({first, later, elsewhere}) == 3


def test_more_hard_negatives_than_the_banks_can_give_are_as_many_as_they_can_give():
    method, (views, batch) = make_method(HardNegatives(far=400)), make_batch()
    assert method.negatives(views[0].z / views[0].z.norm(dim=1, keepdim=True), NOW).shape == (7, 2 * 5 * SIZE)
    capped = HardNegatives(far=SIZE, kept=10 * SIZE)
    expected = naive_losses(method, views, LABELS, NOW, blends_one_by_one(method, capped, NOW))
    assert same(method(views, batch, NOW), expected)


@pytest.mark.parametrize("hard", [None, HARD])
def test_gradient_is_that_of_the_first_view_alone(hard):
    method, (views, batch) = make_method(hard), make_batch()
    z, other = (view.z.requires_grad_() for view in views)
    sum(method([Latents(z), Latents(other)], batch, NOW).values()).backward()
    assert other.grad is None
    assert z.grad is not None

    def total(first):
        return sum(method([Latents(first), Latents(other)], batch, NOW).values())

    assert torch.autograd.gradcheck(total, z)


@pytest.mark.parametrize(
    ("epoch", "on", "hard"), [(0, False, False), (1, True, False), (2, True, False), (3, True, True)]
)
def test_the_unlabelled_half_starts_at_epoch_1_of_200_and_hard_negatives_at_epoch_3(epoch, on, hard):
    now = Now(0, epoch, 200)
    views, batch = make_batch()
    plain, full = (make_method(setting)(views, batch, now) for setting in (None, HARD))
    assert (plain["neighbours"] > 0) == on
    assert (full["neighbours"] > plain["neighbours"]) == hard
    assert plain["labelled neighbours"] > 0
    assert torch.equal(plain["labelled neighbours"], full["labelled neighbours"])


def test_random_directions_are_nobodys_neighbours():
    with seeded("ncl"):
        method = Neighbours(Problem(DIM, KNOWN, NOVEL), size=SIZE).double()
    views, batch = make_batch()
    method.unlabelled.push(rand(SIZE - 1, DIM, key="unlabelled"))
    early = method(views, batch, NOW)
    assert early["neighbours"] == 0
    assert early["labelled neighbours"] > 0
    method.unlabelled.push(rand(1, DIM, key="last"))
    assert method(views, batch, NOW)["neighbours"] > 0


def test_banks_remember_the_first_view_that_forward_saw_after_the_step_and_not_before():
    method, (views, batch) = make_method(), make_batch()
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method(views, batch, NOW)
    assert all(torch.equal(before[name], tensor) for name, tensor in method.state_dict().items())
    method.after_step(views, batch, lambda view: pytest.fail("the moved backbone is not asked"), NOW)
    z = views[0].z / views[0].z.norm(dim=1, keepdim=True)
    torch.testing.assert_close(method.unlabelled.latents[15:19], z[batch.labels < 0])
    torch.testing.assert_close(method.labelled.latents[15:18], z[batch.labels >= 0])
    assert method.labelled.labels[15:18].tolist() == [0, 2, 1]
    assert (method.unlabelled.labels == -1).all()


@pytest.mark.parametrize(("novel", "k"), [(5, 200), (20, 50), (50, 20), (80, 12), (5000, 1)])
def test_neighbours_are_half_a_novel_classs_share_of_the_bank(novel, k):
    assert Neighbours(Problem(2, 0, novel, rows=50_000)).k == k


def test_a_bank_is_no_larger_than_the_discovery_set():
    assert [len(Neighbours(Problem(2, 3, 2, rows=rows)).unlabelled.latents) for rows in (0, 60, 9000)] == [
        2000,
        60,
        2000,
    ]


def make_model():
    with seeded("model"):
        return Model(SmallResNet(width=2), 8, 3, ("a", "b", "c"), head=nn.Linear(DIM, KNOWN))


@pytest.mark.parametrize(("novel", "far"), [(4, 50), (5, 50), (6, 400), (20, 400)])
def test_the_recipes_are_the_pairwise_step_and_neighbours_with_and_without_hard_negatives(novel, far):
    problem = Problem(DIM, KNOWN, novel, rows=40)
    _, neighbours = ncl.recipe.build(problem, make_model()).methods
    assert neighbours.hard == HardNegatives(far, draws=5, kept=400, start=3 / 200)
    _, neighbours = ncl.plain.build(problem, make_model()).methods
    assert neighbours.hard is None


@pytest.mark.parametrize("labelled", [True, False])
def test_pairs_are_guessed_by_the_cosine_of_the_latents_of_the_moment(labelled):
    labels = LABELS if labelled else [-1] * 6
    with seeded("recipe"):
        method = ncl.recipe.build(Problem(DIM, KNOWN, NOVEL, labelled, 40), make_model()).double()
    views, batch = make_batch(labels)
    pairs, u = method.methods[0], [i for i, label in enumerate(labels) if label < 0]
    p, q = (pairs.heads.novel(view.z).softmax(1) for view in views)
    total, count = 0.0, 0
    for i in u:
        for j in u:
            alike = unit(views[0].z[i]) @ unit(views[0].z[j]) > 0.95
            together = (p[i] @ q[j]).item()
            total -= math.log(together if alike else 1 - together)
            count += bool(alike)
    assert len(u) < count < len(u) ** 2
    assert method(views, batch, NOW)["pairs"].item() == pytest.approx(total / len(u) ** 2)


def test_discovery_leaves_the_models_own_head_alone():
    model = make_model()
    before = model.head.weight.clone()
    method = ncl.recipe.build(Problem(DIM, KNOWN, NOVEL, rows=40), model)
    assert torch.equal(method.logits(torch.eye(DIM))[:, :KNOWN], model.head(torch.eye(DIM)))
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(1)
    assert torch.equal(model.head.weight, before)


# The losses beside Spacing in its author's two-stage script


def make_author(model=None, novel=NOVEL):
    with seeded("author"):
        return ncl.author.build(Problem(16, KNOWN, novel, False, rows=SIZE), model or make_taught_model()).train()


def make_taught_model(head=True):
    with seeded("taught"):
        backbone = SmallResNet(width=2, stride=2)
        return Model(backbone, 8, 3, ("a", "b", "c"), head=nn.Linear(backbone.dim, KNOWN) if head else None)


def make_images(n=6):
    return Batch([rand(n, 3, 8, 8, key=key).float() for key in "ab"], torch.full((n,), -1), torch.arange(n), {})


def filled(method):
    (neighbours,) = (part for part in method.methods if isinstance(part, Neighbours))
    neighbours.unlabelled.push(rand(SIZE, 16, key="full").float())
    return method


def squares(p, q):
    return sum((a - b) ** 2 for x, y in zip(p.tolist(), q.tolist(), strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("novel", [NOVEL, 20])
@pytest.mark.parametrize(("epoch", "neighbours"), [(0, False), (1, True), (25, True), (49, True)])
def test_the_authors_losses_are_pairs_of_a_teacher_steadiness_of_both_heads_and_neighbours(novel, epoch, neighbours):
    method, model, now = filled(make_author(novel=novel)), make_taught_model(), Now(0, epoch, 50)
    batch = method.prepare(make_images(), now)
    z, other = (rand(6, 16, key=key).float() for key in ("first", "second"))
    losses = method([Latents(z), Latents(other)], batch, now)
    assert losses.keys() == {"pairs", "consistency", "known consistency", "neighbours"}

    said = model.backbone.train()(batch.views[0]).z  # by the batch's own statistics
    head = method.methods[0].heads.novel
    p, q = head(z).softmax(1), head(other).softmax(1)
    total = 0.0
    for i in range(6):
        for j in range(6):
            together = sum(a * b for a, b in zip(p[i].tolist(), q[j].tolist(), strict=True))
            total -= math.log(together if unit(said[i]) @ unit(said[j]) > 0.95 else 1 - together)
    assert losses["pairs"].item() == pytest.approx(total / 36, rel=1e-5)

    weight = 10 * math.exp(-5 * (1 - epoch / 50) ** 2)
    assert losses["consistency"].item() == pytest.approx(weight * squares(p, q) / p.numel(), rel=1e-4)
    known = [model.head(view).softmax(1) for view in (z, other)]
    assert losses["known consistency"].item() == pytest.approx(weight * squares(*known) / known[0].numel(), rel=1e-4)
    assert (losses["neighbours"] > 0) == neighbours


def test_the_authors_neighbours_have_weight_1_and_no_hard_negatives():
    (neighbours,) = (part for part in make_author().methods if isinstance(part, Neighbours))
    assert (neighbours.weight, neighbours.start, neighbours.hard) == (1.0, 1 / 50, None)


def test_the_authors_teacher_stays_while_backbone_and_both_heads_learn():
    model = make_taught_model()
    method, now = filled(make_author(model)), Now(0, 25, 50)
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1)
    batch = method.prepare(make_images(), now)
    z = rand(6, 16, key="first").float().requires_grad_()
    sum(method([Latents(z), Latents(rand(6, 16, key="second").float())], batch, now).values()).backward()
    assert not any(name for name, p in method.named_parameters() if p.requires_grad == ("teacher" in name))
    assert all(p.grad.any() for p in method.parameters() if p.requires_grad)
    assert z.grad.any()
    said = make_taught_model().backbone.train()(batch.views[0]).z
    torch.testing.assert_close(batch.notes["teacher"], said.detach())


def test_a_model_without_a_head_has_one_steadiness_less():
    method, now = filled(make_author(make_taught_model(head=False))), Now(0, 25, 50)
    latents = [Latents(rand(6, 16, key=key).float()) for key in "ab"]
    losses = method(latents, method.prepare(make_images(), now), now)
    assert losses.keys() == {"pairs", "consistency", "neighbours"}


def test_the_authors_host_is_trained_and_read_as_in_his_script():
    training = ncl.author.training
    assert (training.epochs, training.batch, training.rate, training.trains) == (50, 512, 0.1, 1)
    assert [training.schedule(epoch / 50) for epoch in (0, 29, 30, 49)] == pytest.approx([1, 1, 0.1, 0.1])
    assert (ncl.author.labelled, ncl.author.reading, ncl.author.stage_one) == (
        "unused",
        "unit k-means",
        ("supervised",),
    )
    assert METHODS["ncl:author"] is ncl.author
