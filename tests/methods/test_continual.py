"""Methods that learn novel classes beside known ones: each formula against a slow, obviously right loop."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.errors import InputError
from newfound.functional.exemplars import herding
from newfound.functional.geometry import distances
from newfound.functional.losses import feature_distillation
from newfound.methods import METHODS, parse
from newfound.methods.anchored import place_anchors
from newfound.methods.ncdwf import invert
from newfound.methods.widened import Widened
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, Survey, generator, seeded

DIM, KNOWN, NOVEL, ROWS = 16, 3, 4, 40
NOW = Now(seed=1, epoch=5, epochs=10, step=2, steps=5)
CONTINUAL = [name for name, recipe in METHODS.items() if recipe.continual]
TWO_STAGE = [name for name in CONTINUAL if METHODS[name].labelled != "needed"]


def make_model():
    with seeded("continual"):
        means = torch.rand(KNOWN, DIM)
        covariance = 0.05 * torch.eye(DIM) + 0.01
        known = Statistics(means, covariance, torch.full((KNOWN,), 30))
        return Model(SmallResNet(2, 2), 8, 3, ("a", "b", "c"), head=nn.Linear(DIM, KNOWN), known=known)


def make_method(name, labelled=False, model=None):
    model = model or make_model()
    with seeded("method"):
        method = parse(name).build(Problem(DIM, KNOWN, NOVEL, labelled, ROWS), model)
    labels = torch.full((ROWS,), -1)
    if labelled:
        labels[: ROWS // 2] = torch.arange(ROWS // 2) % KNOWN
    survey = Survey(torch.rand(ROWS, DIM, generator=generator("survey")), labels)
    for epoch in range(NOW.epoch + 1):
        method.before_epoch(lambda: survey, NOW._replace(epoch=epoch, step=0))
    return method.train()


def make_batch(method, labelled=0, n=12):
    views = [torch.rand(n, 3, 8, 8, generator=generator("view", v)) for v in range(2)]
    labels = torch.full((n,), -1)
    labels[:labelled] = torch.arange(labelled) % KNOWN
    batch = method.prepare(Batch(views, labels, torch.arange(n), {}), NOW)
    return [Latents(torch.rand(n, DIM, generator=generator("latent", v))) for v in range(2)], batch


@pytest.mark.parametrize("name", TWO_STAGE)
def test_in_two_stages_there_is_a_score_for_every_known_and_novel_class(name):
    scores = make_method(name).eval().logits(torch.rand(5, DIM, generator=generator(1)))
    assert scores.shape == (5, KNOWN + NOVEL)


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("name", [*TWO_STAGE, "ncdwf"])
def test_one_known_class_is_enough_and_none_as_well_unless_it_is_refused(name, known):
    model, problem = Model(SmallResNet(2, 2), 8, 3, ("a",)[:known]), Problem(DIM, known, NOVEL, False, ROWS)
    if name == "ncdwf" and known == 0:
        with pytest.raises(InputError, match="none is known"):
            parse(name).build(problem, model)
        return
    method = parse(name).build(problem, model)
    survey = Survey(torch.rand(ROWS, DIM, generator=generator("survey")), torch.full((ROWS,), -1))
    method.before_epoch(lambda: survey, NOW._replace(epoch=0))
    latents, batch = make_batch(method)
    assert all(loss.isfinite() for loss in method(latents, batch, NOW).values())
    method.after_step(latents, batch, latents.__getitem__, NOW)
    assert method.logits(latents[0].z).shape == (len(batch.labels), known + NOVEL)


@pytest.mark.parametrize("name", CONTINUAL)
def test_the_head_that_the_next_model_is_given_says_what_the_method_says(name):
    method = make_method(name, labelled=METHODS[name].labelled == "needed").eval()
    z = torch.rand(200, DIM, generator=generator("head"))
    head = method.joint_head()
    assert head.out_features == KNOWN + NOVEL
    assert torch.equal(head(z).argmax(1), method.logits(z).argmax(1))


@pytest.mark.parametrize("name", ["frozen", "anchored", "anchored:apart"])
def test_a_known_class_is_recognised_by_what_is_remembered_of_it(name):
    model = make_model()
    with torch.no_grad():
        model.head.weight.copy_(model.known.means - model.known.means.mean(0))
    method = make_method(name, model=model).eval()
    assert method.logits(model.known.means).argmax(1).tolist() == [0, 1, 2]


def test_the_losses_of_frost_equal_the_loop():
    method = make_method("frost")
    latents, batch = make_batch(method)
    losses = method(latents, batch, NOW)
    z, other, old = latents[0].z, latents[1].z, batch.notes["old latents"]
    lengths = z.square().sum().sqrt(), old.square().sum().sqrt()
    far = sum((z[i, d] / lengths[0] - old[i, d] / lengths[1]).item() ** 2 for i in range(len(z)) for d in range(DIM))
    assert losses["distillation"].item() == pytest.approx(10 * math.sqrt(far), rel=1e-4)
    weight = 5 * math.exp(-5 * max(0.0, 1 - NOW.progress / (50 / 300)) ** 2)
    novel = method.heads.novel.novel
    p, q = novel(z).softmax(1), novel(other).softmax(1)
    assert losses["consistency"].item() == pytest.approx(weight * (p - q).square().mean().item(), rel=1e-4)
    total = 0.0
    for row in z:
        total -= method.heads.joint(row).log_softmax(0)[KNOWN + int(novel(row).argmax())].item()
    assert losses["self-training"].item() == pytest.approx(1.0 * weight / 5 * total / len(z), rel=1e-4)
    drawn, labels = method.replay.draw(20, NOW.random("replay"))
    assert labels.tolist() == [label for label in range(KNOWN) for _ in range(20)]
    surprise = -sum(method.heads.joint(z).log_softmax(0)[y].item() for z, y in zip(drawn, labels, strict=True))
    assert losses["replay"].item() == pytest.approx(surprise / len(drawn), rel=1e-4)


@pytest.mark.parametrize(("known", "length"), [(10, 300 * 195), (11, 300 * 39)])
def test_what_the_published_length_is_depends_on_whether_known_classes_are_few(known, length):
    assert Widened(Problem(DIM, known, NOVEL, False, ROWS), None).published == length


@pytest.mark.parametrize("mixed", [False, True])
def test_a_copy_is_held_only_where_unlabelled_images_may_be_of_known_classes(mixed):
    problem = Problem(DIM, KNOWN, NOVEL, False, ROWS, mixed=mixed)
    method = parse("anchored:apart").build(problem, make_model())
    survey = Survey(torch.rand(ROWS, DIM, generator=generator("survey")), torch.full((ROWS,), -1))
    method.before_epoch(lambda: survey, NOW._replace(epoch=0, step=0))
    latents, batch = make_batch(method)
    losses = method(latents, batch, NOW)
    assert set(losses) == ({"swapped", "distillation"} if mixed else {"swapped"})
    assert ("old latents" in batch.notes) == mixed
    if mixed:
        assert losses["distillation"].item() == pytest.approx(
            10 * feature_distillation(latents[0].z, batch.notes["old latents"]).item()
        )


def mixed_pile(known, novel, each, more):
    """Latents of unlabelled images, `each` of every known class and `more` of every novel one, and their classes."""
    places = F.normalize(torch.randn(known + novel, DIM, generator=generator("places")), dim=1) + 0.5
    truth = torch.cat([torch.arange(known).repeat(each), torch.arange(known, known + novel).repeat(more)])
    z = places[truth] + 0.05 * torch.randn(len(truth), DIM, generator=generator("scatter"))
    return z, truth, places


@pytest.mark.parametrize("name", ["anchored", "anchored:apart"])
def test_among_images_of_known_classes_novel_prototypes_start_at_novel_classes(name):
    z, truth, places = mixed_pile(5, 3, each=40, more=20)
    known = Statistics(places[:5], 0.05**2 * torch.eye(DIM), torch.full((5,), 30))
    model = Model(SmallResNet(2, 2), 8, 3, tuple("abcde"), head=nn.Linear(DIM, 5), known=known)
    method = parse(name).build(Problem(DIM, 5, 3, False, len(z), mixed=True), model)
    method.before_epoch(lambda: Survey(z, torch.full((len(z),), -1)), NOW._replace(epoch=0, step=0))
    guess = method.logits(z).argmax(1)
    assert torch.equal(guess[truth < 5], truth[truth < 5])
    assert {frozenset(guess[truth == k].tolist()) for k in (5, 6, 7)} == {frozenset({k}) for k in (5, 6, 7)}


def test_known_classes_that_are_absent_get_few_of_the_images():
    z, _, places = mixed_pile(5, 3, each=0, more=40)
    known = Statistics(places[:5], 0.05**2 * torch.eye(DIM), torch.full((5,), 30))
    model = Model(SmallResNet(2, 2), 8, 3, tuple("abcde"), head=nn.Linear(DIM, 5), known=known)
    method = parse("anchored").build(Problem(DIM, 5, 3, False, len(z), mixed=True), model)
    labels = torch.full((len(z),), -1)
    method.before_epoch(lambda: Survey(z, labels), NOW._replace(epoch=0, step=0))
    assigned = method._assign(method.space(z) @ method.prototypes.T, labels)
    assert assigned[:, :5].sum() < 0.1 * len(z)


def test_frost_draws_with_a_diagonal_covariance():
    root = make_method("frost").replay.root
    covariance = root @ root.T
    torch.testing.assert_close(covariance, 0.06 * torch.eye(DIM))


def test_lwf_distils_what_the_old_model_says_of_unlabelled_images():
    method = make_method("lwf")
    latents, batch = make_batch(method)
    old = method.old_head(batch.notes["old latents"])
    total = 0.0
    for row, before in zip(latents[0].z, old, strict=True):
        p, q = (method.heads.joint(row)[:KNOWN] / 2).softmax(0), (before / 2).softmax(0)
        total += sum(q[c] * (q[c] / p[c]).log() for c in range(KNOWN)).item()
    assert method(latents, batch, NOW)["distillation"].item() == pytest.approx(4 * total / len(old), rel=1e-4)


def test_fine_tuning_has_nothing_that_holds_known_classes():
    method = make_method("finetune")
    assert set(method(*make_batch(method), NOW)) == {"pairs", "consistency", "self-training"}


def test_the_frozen_baseline_equals_the_loop():
    method = make_method("frozen")
    latents, batch = make_batch(method)
    losses = method(latents, batch, NOW)
    assert METHODS["frozen"].training.trains == 0
    drawn, labels = method.replay.draw(method.each, NOW.random("replay"))
    rows = F.normalize(torch.cat([method.known.weight, method.novel.weight]), dim=1)
    surprise = 0.0
    for z, y in zip(drawn, labels.tolist(), strict=True):
        cosines = torch.stack([z @ row / z.norm() for row in rows]) / 0.1
        surprise -= cosines.log_softmax(0)[y].item()
    assert losses["replay"].item() == pytest.approx(surprise / len(drawn), rel=1e-4)


def test_prototypes_of_ours_move_as_the_loop_over_latents_moves_them():
    method = make_method("anchored")
    latents, batch = make_batch(method)
    before, counts = method.prototypes.clone(), method.counts.clone()
    centres = method.centres.clone()
    drawn, labels = method.replay.draw(len(batch.labels) // NOVEL, NOW.random("replay"))
    u = method.space(torch.cat([latents[0].z, drawn]))
    sums, follow, seen = counts[:, None] * before, counts[:, None] * centres, counts.clone()
    for place, row in enumerate(u):
        if place < len(batch.labels):
            k = KNOWN + max(range(NOVEL), key=lambda c: float(row @ before[KNOWN + c]))
        else:
            k = int(labels[place - len(batch.labels)])
        sums[k] += row + method.anchors[k]
        follow[k] += row
        seen[k] += 1
    method.after_step(latents, batch, latents.__getitem__, NOW)
    torch.testing.assert_close(method.prototypes, F.normalize(sums / seen[:, None], dim=1))
    torch.testing.assert_close(method.centres, F.normalize(follow / seen[:, None], dim=1))
    torch.testing.assert_close(method.counts, seen.clamp(max=float(method.limit)))


def test_anchors_of_known_classes_do_not_depend_on_novel_ones_and_all_are_equally_far_apart():
    known, one, other = (
        F.normalize(torch.randn(n, 20, generator=generator(n, s))) for n, s in ((5, 0), (4, 1), (4, 2))
    )
    first, second = place_anchors(known, one), place_anchors(known, other)
    assert torch.equal(first[:5], second[:5])
    assert not torch.equal(first[5:], second[5:])
    apart = distances(first)[~torch.eye(9, dtype=torch.bool)]
    torch.testing.assert_close(apart, torch.full_like(apart, math.sqrt(2)), atol=1e-5, rtol=0)


def test_classes_that_have_no_room_for_anchors_are_refused_before_anything_is_trained():
    problem = Problem(DIM, KNOWN, DIM - 1, False, ROWS)
    with pytest.raises(InputError, match=r"3 known and 15 novel classes .* 16 dimensions.* take a backbone"):
        parse("anchored").build(problem, make_model())
    parse("anchored").build(problem._replace(novel=DIM - 2), make_model())


def test_unlabelled_images_are_assigned_to_novel_classes_alone_and_labelled_ones_as_labels_say():
    method = make_method("anchored", labelled=True)
    cosines = torch.rand(6, KNOWN + NOVEL, generator=generator("cosines"))
    assigned = method._assign(cosines, torch.tensor([0, 2, -1, -1, -1, -1]))
    assert assigned[:2].argmax(1).tolist() == [0, 2]
    assert assigned[2:, :KNOWN].sum() == 0
    torch.testing.assert_close(assigned.sum(1), torch.ones(6))


def test_pseudo_latents_are_of_the_class_that_was_wanted_and_of_the_size_of_real_ones():
    with seeded("inverted"):
        head = nn.Linear(DIM, KNOWN)
    labels = torch.arange(30) % KNOWN
    start = torch.rand(30, DIM, generator=generator("start"))
    found = invert(head.weight.detach(), head.bias.detach(), labels, start)
    assert head(found).argmax(1).tolist() == labels.tolist()
    torch.testing.assert_close(found.norm(dim=1), start.norm(dim=1).mean().expand(30))
    before, after = (F.cross_entropy(head(z), labels).item() for z in (start, found))
    assert after < before / 2


def test_the_known_class_identifier_shares_out_probability():
    method = make_method("ncdwf").eval()
    z = torch.rand(7, DIM, generator=generator("shares"))
    p = method.logits(z).exp()
    torch.testing.assert_close(p.sum(1), torch.ones(7))
    torch.testing.assert_close(p[:, :KNOWN].sum(1), method.identifier(z).sigmoid()[:, 0])
    torch.testing.assert_close(p[:, :KNOWN] / p[:, :KNOWN].sum(1, keepdim=True), method.known(z).softmax(1))


def test_herding_equals_the_loop_over_exemplars():
    z = torch.randn(15, 4, generator=generator("herding"), dtype=torch.float64)
    u = [row / row.norm() for row in z]
    centre, chosen = sum(u) / len(u), []
    for k in range(1, 7):
        left = [i for i in range(len(u)) if i not in chosen]
        chosen.append(min(left, key=lambda i: ((sum(u[j] for j in chosen) + u[i]) / k - centre).norm().item()))
    assert herding(z, 6).tolist() == chosen
    assert herding(z, 3).tolist() == chosen[:3]
    assert sorted(herding(z, 99).tolist()) == list(range(15))
    assert len(herding(z[:0], 3)) == 0


def test_icarl_tells_by_the_nearest_mean_of_exemplars():
    method = make_method("icarl", labelled=True)
    labels = torch.full((ROWS,), -1)
    labels[: ROWS // 2] = torch.arange(ROWS // 2) % KNOWN
    survey = Survey(torch.rand(ROWS, DIM, generator=generator("survey")), labels)
    method.eval()
    z = torch.rand(5, DIM, generator=generator("asked"))
    novel = method.heads.novel.logits(survey.unlabelled).argmax(1)
    near = []
    for row in z:
        far = []
        for k in range(KNOWN + NOVEL):
            own = survey.labelled[labels[labels >= 0] == k] if k < KNOWN else survey.unlabelled[novel == k - KNOWN]
            mean = F.normalize(own, dim=1).mean(0)
            far.append((row / row.norm() - mean / mean.norm()).norm().item() if len(own) else math.inf)
        near.append(far.index(min(far)))
    assert method.logits(z).argmax(1).tolist() == near
