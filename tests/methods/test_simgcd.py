"""SimGCD against loops over images in numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.data.pixels import PixelDataset
from newfound.functional.metrics import accuracy
from newfound.methods.simgcd import SimGcd, build, distillation, recipe, unevenness
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, fit
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

DIM, KNOWN, NOVEL = 9, 3, 4
NOW = Now(seed=1, epoch=3, epochs=40, step=2, steps=8)  # half of the teacher's way
LABELS = {"mixed": [0, 2, -1, -1, 1, -1, 2, -1, 0], "only unlabelled": [-1] * 6, "only labelled": [2, 0, 1, 1]}
CASES = [*((kind, True) for kind in LABELS), ("only unlabelled", False)]


def rand(*shape, key):
    return torch.randn(*shape, generator=generator("simgcd", key), dtype=torch.float64)


def probabilities(n, key="p"):
    return rand(n, NOVEL, key=key).softmax(1)


def make(labelled=True, known=None, **settings):
    problem = Problem(DIM, KNOWN, NOVEL, labelled, mixed=labelled or known is not None)
    with seeded("simgcd"):
        return SimGcd(problem, known, **settings).double()


def make_batch(labels, views=2, key="z"):
    labels = torch.tensor(labels, dtype=torch.long)
    latents = [Latents(rand(len(labels), DIM, key=f"{key}{view}").requires_grad_()) for view in range(views)]
    return latents, Batch([], labels, torch.arange(len(labels)), {})


def numpy(tensor):
    return tensor.detach().numpy()


def unit(rows):
    return [row / math.sqrt(sum(row**2)) for row in rows]


def naive_softmax(scores):
    powers = [math.exp(score) for score in scores]
    return np.array([power / sum(powers) for power in powers])


def naive_distillation(a, b, temperature):
    total = 0.0
    for student, teacher in [*zip(a, b, strict=True), *zip(b, a, strict=True)]:
        p, q = naive_softmax(student / 0.1), naive_softmax(teacher / temperature)
        total -= sum(q[c] * math.log(p[c]) for c in range(len(p)))
    return total / (2 * len(a))


def naive_unevenness(p):
    shares = [sum(row[k] for row in p) / len(p) for k in range(p.shape[1])]
    return math.log(len(shares)) + sum(share * math.log(share) for share in shares)


def naive_contrast(a, b, names, temperature):
    """View by view: how surprising those of the same name are among all but itself."""
    views, names, total = unit([*a, *b]), [*names, *names], 0.0
    for i, view in enumerate(views):
        others = [j for j in range(len(views)) if j != i]
        among = sum(math.exp(view @ views[j] / temperature) for j in others)
        positives = [j for j in others if names[j] == names[i]]
        total -= sum(math.log(math.exp(view @ views[j] / temperature) / among) for j in positives) / len(positives)
    return total / len(views)


def naive_losses(method, latents, labels, temperature):
    prototypes = numpy(method.head.weight)
    scores = [np.array([[z @ mu for mu in prototypes] for z in unit(numpy(view.z))]) for view in latents[:2]]
    projected = [numpy(method.projector(view.z)) for view in latents[:2]]
    both = np.array([naive_softmax(row / 0.1) for row in [*scores[0], *scores[1]]])
    losses = {
        "distillation": 0.65 * naive_distillation(*scores, temperature),
        "unevenness": 0.65 * 2 * naive_unevenness(both),
        "contrast": 0.65 * naive_contrast(*projected, range(len(labels)), 1.0),
    }
    if method.problem.labelled:
        l = [i for i, label in enumerate(labels) if label >= 0]  # noqa: E741
        surprise = [-math.log(both[i + len(labels) * view][labels[i]]) for view in (0, 1) for i in l]
        own = [labels[i] for i in l]
        losses["cross-entropy"] = 0.35 * sum(surprise) / max(len(surprise), 1)
        losses["labelled contrast"] = 0.35 * naive_contrast(*(p[l] for p in projected), own, 0.07) if l else 0.0
    return losses


@pytest.mark.parametrize(("kind", "labelled"), CASES)
def test_losses_equal_the_loop_over_images(kind, labelled):
    method = make(labelled)
    latents, batch = make_batch(LABELS[kind], views=3)  # a third view is not looked at
    losses = method(latents, batch, NOW)
    slow = naive_losses(method, latents, LABELS[kind], temperature=0.07 - 0.03 * (3.25 / 40) / 0.15)
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(slow, rel=1e-9)


def test_distillation_equals_the_loop_and_moves_predictions_but_never_targets():
    a, b = rand(5, NOVEL, key="a").requires_grad_(), rand(5, NOVEL, key="b").requires_grad_()
    loss = distillation(a, b, 0.05)
    assert loss.item() == pytest.approx(naive_distillation(numpy(a), numpy(b), 0.05))
    for own, other, gradient in zip((a, b), (b, a), torch.autograd.grad(loss, (a, b)), strict=True):
        torch.testing.assert_close(gradient, ((own / 0.1).softmax(1) - (other / 0.05).softmax(1)) / 0.1 / 10)


def test_distillation_of_equal_views_is_their_entropy_where_the_teacher_is_no_surer():
    s = rand(6, NOVEL, key="s") / 5
    p = (s / 0.1).softmax(1)
    assert distillation(s, s, 0.1).item() == pytest.approx(-(p * p.log()).sum(1).mean().item())


@pytest.mark.parametrize("temperature", [0.04, 0.07])
def test_distillation_of_equal_sure_views_is_next_to_nothing_and_of_opposite_ones_large(temperature):
    sure = torch.eye(NOVEL, dtype=torch.float64)
    assert distillation(sure, sure, temperature).item() == pytest.approx(0.0, abs=1e-3)  # entropy 0, but for e^−10
    assert distillation(sure, sure.flip(0), temperature).item() == pytest.approx(10, abs=1e-2)


@pytest.mark.parametrize("temperature", [0.04, 0.07, 0.1])
def test_distillation_is_never_less_than_the_targets_entropy(temperature):
    a, b = rand(8, NOVEL, key="a") / 5, rand(8, NOVEL, key="b") / 5
    q = (torch.cat([a, b]) / temperature).softmax(1)
    assert distillation(a, b, temperature) >= -(q * q.log()).sum(1).mean()


def test_unevenness_equals_the_loop_over_images_and_classes():
    assert unevenness(probabilities(7)).item() == pytest.approx(naive_unevenness(numpy(probabilities(7))))


def test_unevenness_is_0_where_classes_are_equally_large_however_sure_images_are():
    sure = torch.eye(NOVEL, dtype=torch.float64)
    assert unevenness(sure).item() == pytest.approx(0.0, abs=1e-12)
    assert unevenness(torch.full((3, NOVEL), 1 / NOVEL, dtype=torch.float64)).item() == pytest.approx(0.0, abs=1e-12)
    assert unevenness(sure[[0, 0, 0]]).item() == pytest.approx(math.log(NOVEL))
    assert unevenness(sure[[0, 1]]).item() == pytest.approx(math.log(NOVEL) - math.log(2))


def test_unevenness_sees_neither_the_order_of_classes_nor_of_images():
    p = probabilities(6)
    torch.testing.assert_close(unevenness(p), unevenness(p.flip(0).roll(1, 1)))
    assert 0 < unevenness(p) < math.log(NOVEL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unevenness_has_a_finite_gradient_where_a_class_has_nothing(dtype):
    logits = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, -1e4]], dtype=dtype).requires_grad_()
    loss = unevenness(logits.softmax(1))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(3))
    assert logits.grad.isfinite().all()


def test_the_step_against_unevenness_fills_the_smaller_class():
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    unevenness(logits.softmax(1)).backward()
    assert (logits.grad[:, 0] > 0).all()
    assert (logits.grad[:, 1] < 0).all()


@pytest.mark.parametrize(
    ("epoch", "step", "temperature"),
    [(0, 0, 0.07), (15, 0, 0.055), (15, 5, 0.0545), (30, 0, 0.04), (199, 9, 0.04)],
)
def test_the_teacher_grows_surer_over_30_of_200_epochs_and_stays(epoch, step, temperature):
    method = make()
    latents, batch = make_batch(LABELS["mixed"])
    now = Now(seed=1, epoch=epoch, epochs=200, step=step, steps=10)
    a, b = (method.head(view.z) for view in latents)
    torch.testing.assert_close(method(latents, batch, now)["distillation"], 0.65 * distillation(a, b, temperature))


@pytest.mark.parametrize(("kind", "labelled"), CASES)
def test_which_view_and_which_image_comes_first_changes_nothing(kind, labelled):
    method = make(labelled)
    latents, batch = make_batch(LABELS[kind])
    losses, order = method(latents, batch, NOW), torch.randperm(len(batch.labels), generator=generator("order"))
    torch.testing.assert_close(method(latents[::-1], batch, NOW), losses)
    turned = batch._replace(labels=batch.labels[order], rows=batch.rows[order])
    torch.testing.assert_close(method([Latents(view.z[order]) for view in latents], turned, NOW), losses)


def test_epsilon_weighs_the_mean_entropy_and_nothing_else():
    latents, batch = make_batch(LABELS["mixed"])
    two, four = (make(epsilon=epsilon)(latents, batch, NOW) for epsilon in (2.0, 4.0))
    for name, loss in two.items():
        torch.testing.assert_close(four[name], 2 * loss if name == "unevenness" else loss)


def test_every_loss_reaches_the_latents_of_both_views():
    latents, batch = make_batch(LABELS["mixed"])
    for name, loss in make()(latents, batch, NOW).items():
        for gradient in torch.autograd.grad(loss, [view.z for view in latents], retain_graph=True):
            assert gradient.any(), name


@pytest.mark.parametrize("labels", [[], [-1], [1], [1, 1], [-1, -1], [-1, 1]])
def test_a_batch_of_few_images_or_none_is_welcome(labels):
    method = make()
    latents, batch = make_batch(labels)
    losses = method(latents, batch, NOW)
    for loss in losses.values():
        gradients = torch.autograd.grad(loss, [view.z for view in latents], retain_graph=True)
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients)
    method.after_step(latents, batch, latents.__getitem__, NOW)
    nothing = set(losses) if not labels else {"cross-entropy", "labelled contrast"} if max(labels) < 0 else set()
    if len(labels) == 1:
        nothing |= {"contrast", "labelled contrast"}  # the other view is the only one there is
    assert all(losses[name].item() == 0 for name in nothing)


def test_prototypes_are_of_unit_length_after_every_step():
    method = make()
    latents, batch = make_batch(LABELS["mixed"])
    optimizer = torch.optim.SGD(method.parameters(), 5.0)
    sum(method(latents, batch, NOW).values()).backward()
    optimizer.step()
    assert (method.head.weight.norm(dim=1) - 1).abs().max() > 1e-2
    method.after_step(latents, batch, latents.__getitem__, NOW)
    torch.testing.assert_close(method.head.weight.norm(dim=1), torch.ones(KNOWN + NOVEL, dtype=torch.float64))


def test_scores_are_cosines_over_the_temperature_and_see_no_length():
    method, z = make(), rand(5, DIM, key="z")
    cosines = torch.stack([F.cosine_similarity(z, row[None]) for row in method.head.weight.detach()], 1)
    torch.testing.assert_close(method.logits(z).detach(), cosines / 0.1)
    torch.testing.assert_close(method.logits(7 * z), method.logits(z))


def test_the_projector_has_the_sizes_of_the_paper_and_no_batch_norm():
    method = SimGcd(Problem(768, 80, 20))
    shapes = [(part.in_features, part.out_features) for part in method.projector if isinstance(part, nn.Linear)]
    assert shapes == [(768, 2048), (2048, 2048), (2048, 256)]
    assert [type(part) for part in method.projector[1::2]] == [nn.GELU, nn.GELU]
    assert method.head.weight.shape == (100, 768)
    assert SimGcd(Problem(1, 1, 1)).projector(torch.ones(2, 1)).shape == (2, 1)


def make_model(means):
    known = None if means is None else Statistics(means, torch.eye(DIM), means.any(1).long())
    return Model(SmallResNet(1), 32, 3, ("a", "b", "c"), nn.Linear(DIM, KNOWN), known=known)


@pytest.mark.parametrize(
    ("labelled", "mixed", "classes"),
    [(True, True, KNOWN + NOVEL), (True, False, KNOWN + NOVEL), (False, True, KNOWN + NOVEL), (False, False, NOVEL)],
)
def test_every_class_that_comes_has_a_prototype_and_no_other(labelled, mixed, classes):
    problem = Problem(DIM, KNOWN, NOVEL, labelled, mixed=mixed)
    for means in (torch.rand(KNOWN, DIM), None):
        assert build(problem, make_model(means)).head.weight.shape == (classes, DIM)
    nobody = problem._replace(known=0, labelled=False)
    assert build(nobody, replace(make_model(None), classes=(), head=None)).head.weight.shape == (NOVEL, DIM)


def test_prototypes_of_known_classes_start_at_their_means_where_no_label_will_name_them():
    means = rand(KNOWN, DIM, key="means").float()
    means[1] = 0  # of too few images
    problem, before = Problem(DIM, KNOWN, NOVEL, labelled=False, mixed=True), means.clone()
    with seeded("same"):
        method = build(problem, make_model(means))
    with seeded("same"):
        random = build(problem, make_model(None)).head.weight.detach()
    expected = torch.stack([F.normalize(means[0], dim=0), random[1], F.normalize(means[2], dim=0), *random[KNOWN:]])
    torch.testing.assert_close(method.head.weight.detach(), expected)
    assert method.head.weight.requires_grad
    assert torch.equal(means, before)
    for other in (problem._replace(labelled=True), problem._replace(mixed=False)):
        starts = []
        for known in (means, None):
            with seeded("same"):
                starts.append(build(other, make_model(known)).head.weight)
        assert torch.equal(*starts)  # labels will name them, or they do not come


def test_it_is_trained_as_published():
    training = recipe.training
    assert (training.epochs, training.batch, training.decay, training.trains) == (200, 128, 5e-5, 1)
    rates = [training.rate * training.schedule(Now(0, epoch, 200).progress) for epoch in (0, 100, 200)]
    assert rates == pytest.approx([0.1, (0.1 + 1e-4) / 2, 1e-4])
    assert (recipe.labelled, recipe.reading) == ("optional", "head")


@pytest.mark.parametrize("labelled", [True, False])
def test_it_goes_through_the_loop(labelled):
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


PLACES = 2 * rand(KNOWN + NOVEL, DIM, key="places")
STEPS = 100


def drawn(truth, key):
    """Images of these classes: their latents, as a backbone would give them that is not trained."""
    return PLACES[truth] + 0.7 * rand(len(truth), DIM, key=key)


def learnt(method, truth, labels):
    """Train on latents alone, and say which class every image is of."""
    images = drawn(truth, "images")
    optimizer = torch.optim.SGD(method.parameters(), 0.1, momentum=0.9)
    for epoch in range(STEPS):
        latents = [Latents(images + 0.3 * rand(len(truth), DIM, key=f"{epoch} {view}")) for view in range(2)]
        batch, now = Batch([], labels, torch.arange(len(truth)), {}), Now(1, epoch, STEPS)
        optimizer.zero_grad()
        sum(method(latents, batch, now).values()).backward()
        optimizer.step()
        method.after_step(latents, batch, latents.__getitem__, now)
    with torch.no_grad():
        return method.eval().logits(images).argmax(1)


def among_known(method):
    """Half of the known classes' images lie unlabelled beside the novel ones. The share of these that are called so,
    the share of novel images that are not called known, and the accuracy on the whole pile.
    """
    truth = torch.arange(210) % (KNOWN + NOVEL)
    labels = torch.where((truth < KNOWN) & (torch.arange(210) < 105), truth, -1)
    guess = learnt(method, truth, labels)[labels < 0]
    truth = truth[labels < 0]
    known = truth < KNOWN
    called, novel = guess[known] == truth[known], guess[~known] >= KNOWN
    return called.double().mean().item(), novel.double().mean().item(), accuracy(truth, guess)


def test_known_classes_among_the_unlabelled_images_are_called_so_and_novel_ones_told_apart():
    assert min(among_known(make())) > 0.95


@pytest.mark.parametrize("left_out", [{"epsilon": 0.0}, {"labelled_weight": 0.0}, {"labelled_weight": 1.0}])
def test_without_mean_entropy_labels_or_self_distillation_they_are_not(left_out):
    assert min(among_known(make(**left_out))) < 0.8


def test_two_stages_tell_novel_classes_apart():
    truth = torch.arange(160) % NOVEL
    assert accuracy(truth, learnt(make(False), KNOWN + truth, torch.full((160,), -1))) > 0.95


def test_two_stages_find_known_classes_again_where_their_means_are():
    truth, many = torch.arange(210) % (KNOWN + NOVEL), torch.arange(90) % KNOWN
    past = drawn(many, "labelled")
    means = torch.stack([past[many == k].mean(0) for k in range(KNOWN)])
    guess = learnt(make(False, means), truth, torch.full((210,), -1))
    assert (guess[truth < KNOWN] == truth[truth < KNOWN]).double().mean() > 0.95
    assert accuracy(truth, guess) > 0.95
