"""The method Spacing, against the paper's own loops."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from newfound.errors import InputError
from newfound.functional.geometry import whitening
from newfound.methods import METHODS, parse
from newfound.methods.spacing import Spacing, spacing_of
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.spacing.loss import SpacingLoss
from newfound.spacing.presets import Swap, aligned, dcn, paper, swapped, unanchored
from newfound.types import Batch, Latents, Now, Problem, Survey, generator
from tests.spacing.naive import make_network, naive_loss, naive_move, rand

DIM, CLASSES = 12, 4


def algorithm_2(network, p, e, v, batches, rate, weight):
    """The paper's Algorithm 2, line by line."""
    optimizer = torch.optim.SGD(network.parameters(), rate)
    for x in batches:
        z = network(x)  # line 6
        nearest = [min(range(len(p)), key=lambda k, zi=zi: (zi - p[k]).norm().item()) for zi in z]  # line 7
        targets = torch.stack([p[k] for k in nearest])
        loss = sum(((zi - t) ** 2).sum() for zi, t in zip(z, targets, strict=True)) / len(z)  # line 8
        optimizer.zero_grad()
        (weight * loss).backward()
        optimizer.step()
        with torch.no_grad():
            p, v, _ = naive_move(network(x), p, e, v)  # lines 9–15
    return p, v


def test_the_preset_paper_is_algorithm_2_line_by_line():
    ours, theirs = make_network(), make_network()
    batches = [rand(32, 5, key=f"x{i}") for i in range(3)]
    preset = replace(paper(), weight=0.5)  # large enough for the backbone to move
    method = Spacing(Problem(dim=8, known=0, novel=4, labelled=False, rows=96), preset).double()
    with torch.no_grad():
        features = ours(torch.cat(batches))
    method.before_epoch(lambda: Survey(features, torch.full((96,), -1)), Now(0, 0, 1))
    start = [t.clone() for t in (method.loss.prototypes, method.loss.anchors, method.loss.counts)]

    optimizer = torch.optim.SGD(ours.parameters(), 0.05)
    for i, x in enumerate(batches):
        now = Now(0, 0, 1, i, 3)
        batch = Batch([x], torch.full((32,), -1), torch.arange(32) + 32 * i, {})
        z = ours(x)
        optimizer.zero_grad()
        method([Latents(z)], batch, now)["spacing"].backward()
        optimizer.step()
        with torch.no_grad():
            method.after_step([Latents(z.detach())], batch, lambda view, x=x: Latents(ours(x)), now)

    p, v = algorithm_2(theirs, *start, batches, 0.05, preset.weight)
    torch.testing.assert_close(method.loss.prototypes, p, rtol=0, atol=1e-10)
    torch.testing.assert_close(method.loss.counts, v, rtol=0, atol=1e-10)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_pairs_are_guessed_from_moving_latents_unless_a_teacher_is_asked_for():
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"), nn.Linear(16, 2))
    assert all(parse("pairs").build(Problem(16, 2, 3, labelled), model).teacher is None for labelled in (False, True))
    taught = parse("pairs:teacher").build(Problem(16, 2, 3, labelled=False), model)
    pixels = torch.rand(5, 1, 12, 12, generator=generator("pixels"))
    before = taught.teacher(pixels).z
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1.0)  # it learns on, its teacher does not
    assert torch.equal(taught.teacher(pixels).z, before)


def test_the_method_whitens_by_the_models_spread():
    within_covariance = torch.diag(torch.arange(1.0, 17.0))
    known = Statistics(torch.rand(2, 16), within_covariance, torch.tensor([9, 9]))
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"), nn.Linear(16, 2), known=known)
    metric = parse("spacing").build(Problem(16, 2, 3), model).loss.metric
    assert metric is not None
    torch.testing.assert_close(metric, whitening(within_covariance, 0.3))
    assert parse("spacing:paper").build(Problem(16, 2, 3), model).loss.metric is None


def test_one_prototype_is_logged_without_a_distance_it_has_not():
    method = Spacing(Problem(8, 0, 1, labelled=False))
    method.loss.start(rand(20, 8, key="f"))
    assert all(map(math.isfinite, method.log().values()))
    assert "smallest prototype distance" not in method.log()


def test_nobody_need_say_how_many_images_there_are():
    method = Spacing(Problem(8, known=2, novel=3)).double()
    method.loss.start(rand(40, 8, key="f"))
    latents, batch = [Latents(rand(6, 8, key="z"))], Batch([], torch.full((6,), -1), torch.arange(6), {})
    before = method.loss.prototypes.clone()
    method.after_step(latents, batch, lambda view: latents[view], Now(0, 0, 1))
    assert not torch.equal(method.loss.prototypes, before)


@pytest.mark.parametrize("labelled", [True, False])
def test_the_method_tells_the_loss_whether_the_pile_is_mixed(labelled):
    labels = torch.arange(60) % 3 if labelled else torch.full((60,), -1)
    labels[30:] = -1
    survey = Survey(rand(60, 8, key="f").float(), labels)
    for mixed in (False, True):
        method = Spacing(Problem(8, known=3, novel=2, labelled=labelled, rows=60, mixed=mixed))
        method.before_epoch(lambda: survey, Now(0, 0, 5))
        alone = SpacingLoss(5 if labelled or mixed else 2, 8)
        alone.start(*survey, random=Now(0, 0, 5).random("spacing"), mixed=mixed)
        assert torch.equal(method.loss.prototypes, alone.prototypes)
        assert torch.equal(method.loss.counts, alone.counts)
    assert method.loss.counts.sum() == 60


def test_every_epoch_logs_norms_distances_empty_clusters_and_changes():
    method = Spacing(Problem(dim=2, known=0, novel=3, labelled=False, rows=4), dcn())
    loss = method.loss
    loss.prototypes.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    loss.started.fill_(True)
    loss.counts.fill_(1e6)
    rows, labels = torch.arange(4), torch.full((4,), -1)

    def see(angles):
        z = torch.tensor([[math.cos(a), math.sin(a)] for a in angles])
        method.before_epoch(lambda: None, Now(0, 1, 3))
        method.after_step([Latents(z)], Batch([], labels, rows, {}), lambda view: None, Now(0, 1, 3))
        return method.log()

    assert "changed assignments" not in see([0.1, 0.1, 1.5, 1.5])  # nothing was known before
    log = see([0.1, 1.5, 1.5, 1.5])
    assert log["changed assignments"] == 0.25
    assert log["empty clusters"] == 1
    assert log["smallest prototype distance"] == pytest.approx(math.sqrt(2), abs=1e-4)
    assert log["mean prototype norm"] == pytest.approx(1, abs=1e-4)


def test_a_restart_forgets_assignments_to_prototypes_that_are_no_more():
    preset = replace(swapped(), swap=Swap(restarts=(0.5,)))
    method = Spacing(Problem(8, 0, 3, labelled=False, rows=60), preset)
    features, labels, rows = rand(60, 8, key="all").float(), torch.full((60,), -1), torch.arange(60)
    logs = []
    for epoch in range(4):
        method.before_epoch(lambda: Survey(features, labels), Now(0, epoch, 4))
        logs.append(method.log())
        method.after_step([Latents(features)], Batch([], labels, rows, {}), lambda view: None, Now(0, epoch, 4))
        logs.append(method.log())
    assert [("empty clusters" in log) for log in logs] == [False, True, True, True, False, True, True, True]
    assert [("changed assignments" in log) for log in logs] == [False, False, False, True] * 2
    assert all(log["empty clusters"] == 0 for log in logs[1::2])


@pytest.mark.parametrize("rows", [0, 60])
def test_before_it_starts_and_where_nobody_counts_images_no_cluster_is_said_to_be_empty(rows):
    method = Spacing(Problem(8, 0, 3, labelled=False, rows=rows), replace(aligned(), start=0.5))
    features, labels = rand(60, 8, key="all").float(), torch.full((60,), -1)
    for epoch in range(4):
        method.before_epoch(lambda: Survey(features, labels), Now(0, epoch, 4))
        batch = Batch([], labels, torch.arange(60), {})
        method.after_step([Latents(features)], batch, lambda view: None, Now(0, epoch, 4))
        seen = rows > 0 and epoch >= 2
        assert ("empty clusters" in method.log()) is seen
        assert ("changed assignments" in method.log()) is (seen and epoch > 2)


def test_the_method_takes_all_views_of_an_image_and_scores_by_cosines():
    method = Spacing(Problem(DIM, 0, CLASSES, labelled=False), swapped()).double()
    method.loss.start(rand(200, DIM, key="features"))
    views = [Latents(rand(20, DIM, key=key)) for key in ("z", "other", "small")]
    batch = Batch([], torch.full((20,), -1), torch.arange(20), {})
    targets = [method.loss._assign(method.loss.space(view.z)) for view in views[:2]]  # the third is not large
    expected = naive_loss(method.loss, [view.z for view in views], targets)
    torch.testing.assert_close(method(views, batch, Now(0, 0, 1))["spacing"], expected)
    blended = batch._replace(notes={"appended": torch.ones(20)})
    two = method.loss(views[0].z, views[1].z)
    torch.testing.assert_close(method(views, blended, Now(0, 0, 1))["spacing"], two)  # a blend is none of its views
    scores = method.logits(views[0].z)
    torch.testing.assert_close(scores, F.normalize(views[0].z, dim=1) @ method.loss.prototypes.T / 0.1)
    assert Spacing(Problem(DIM, 0, CLASSES), replace(swapped(), swap=None)).logits(views[0].z) is None


def test_known_classes_hold_their_prototypes_in_a_mixed_pile_though_their_images_are_away():
    truth = torch.arange(60) % 3  # of class 0, which is known, and of two new ones; class 1 of the model is absent
    places = 3 * torch.eye(4, DIM, dtype=torch.float64)
    features = places[torch.tensor([0, 2, 3])[truth]] + 0.2 * rand(60, DIM, key="pile")
    method = Spacing(
        Problem(DIM, 2, 2, labelled=False, mixed=True), swapped(), None, (places[:2], torch.tensor([9, 9]))
    )
    method.double().before_epoch(lambda: Survey(features, torch.full((60,), -1)), Now(0, 0, 5))
    loss = method.loss
    assert loss.counts[1] == 9  # absent, and not forgotten
    assert loss.limit == 60 / 3
    assert (loss.prototypes[:2] * F.normalize(places[:2], dim=1)).sum(1).min() > 0.97
    assert torch.equal(loss._assign(loss.space(features))[truth == 0].argmax(1), torch.zeros(20, dtype=torch.long))
    assert loss.shares[1] < 0.05  # nothing is forced into a class that is not there


def test_the_default_method_and_loss_are_swapped_and_its_control_differs_by_anchors_alone():
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"))
    assert parse("spacing").build(Problem(16, 2, 3), model).loss.preset == swapped() == SpacingLoss(3, 8).preset
    assert replace(unanchored(), orientation="orthonormal") == swapped()


@pytest.mark.parametrize("name", ["spacing:paper", "pairs+spacing:paper", "rs+spacing"])
def test_a_method_is_built_with_what_was_asked_for_and_is_otherwise_its_preset(name):
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"))
    usual = parse(name)
    for asked in ({"weight": 0.125}, {"initial": 50.0}, {"weight": 0.5, "initial": 0.0}):
        recipe = parse(name, **asked)
        assert vars(recipe.spacing) == vars(usual.spacing) | asked
        assert spacing_of(recipe.build(Problem(16, 2, 3), model)).preset == recipe.spacing
        assert (recipe.training, recipe.reading, recipe.own) == (usual.training, usual.reading, usual.own)
    assert parse(name).spacing == usual.spacing


@pytest.mark.parametrize("asked", [{"weight": 0.0}, {"initial": 1.0}])
def test_a_method_without_spacing_has_no_weight_to_set(asked):
    with pytest.raises(InputError, match=r"rs was given a weight.*no Spacing.*as in pairs\+spacing"):
        parse("rs", **asked)


@pytest.mark.parametrize("name", METHODS)
def test_a_recipe_says_how_the_spacing_in_it_is_set(name):
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"), nn.Linear(16, 2))
    model.similarity = PairNet(SmallResNet(2, 2), PairHead(16))
    recipe = parse(name)
    loss = spacing_of(recipe.build(Problem(16, 2, 3, recipe.labelled != "unused", rows=10), model))
    assert recipe.spacing == (None if loss is None else loss.preset)


def surveyed(method, epochs):
    """The prototypes after each epoch's beginning, where latents change from epoch to epoch."""
    seen = []
    for epoch in range(epochs):
        features = rand(60, 8, key=f"epoch {epoch}").float()
        method.before_epoch(lambda now=features: Survey(now, torch.full((60,), -1)), Now(0, epoch, epochs))
        seen.append(method.loss.prototypes.clone())
    return seen


def test_prototypes_are_placed_anew_at_the_shares_of_the_run_that_the_preset_names_and_at_no_other():
    preset = replace(swapped(), swap=Swap(restarts=(0.25, 0.5)))
    seen = surveyed(Spacing(Problem(8, 0, 3, labelled=False, rows=60), preset), 8)
    moved = [epoch for epoch in range(1, 8) if not torch.equal(seen[epoch], seen[epoch - 1])]
    assert moved == [2, 4]
    fresh = SpacingLoss(3, 8, preset, images=60)
    fresh.start(rand(60, 8, key="epoch 4").float(), random=Now(0, 4, 8).random("spacing"))
    assert torch.equal(seen[-1], fresh.prototypes)


def test_presets_of_the_paper_and_known_classes_that_are_away_are_placed_once():
    away = Problem(8, 2, 3, labelled=False, rows=60, mixed=True)
    known = rand(2, 8, key="known").float(), torch.tensor([9, 9])
    once = [
        Spacing(away, swapped(), torch.eye(8), known),
        Spacing(Problem(8, 0, 3, labelled=False, rows=60), aligned()),
    ]
    for method in once:
        seen = surveyed(method, 6)
        assert all(torch.equal(other, seen[0]) for other in seen)


def test_half_of_the_loss_is_that_of_a_finer_set_which_moves_beside_the_first():
    features, z = (rand(n, 8, key=key).float() for n, key in ((300, "all"), (40, "batch")))
    method = Spacing(Problem(8, 0, 3, labelled=False, rows=300), swapped())
    now, labels = Now(0, 0, 4), torch.full((300,), -1)
    method.before_epoch(lambda: Survey(features, labels), now)
    sets = [SpacingLoss(classes, 8, swapped(), images=300) for classes in (3, 30)]
    for loss, purpose in zip(sets, ("spacing", "finer spacing"), strict=True):
        loss.start(features, labels, random=now.random(purpose))
    latents, batch = [Latents(z), Latents(z.flip(0))], Batch([], labels[:40], torch.arange(40), {})
    found = method(latents, batch, now)
    for name, loss in zip(("spacing", "finer spacing"), sets, strict=True):
        expected = loss(z, z.flip(0), labels[:40], torch.arange(40), now.progress) / 2
        torch.testing.assert_close(found[name], expected)
        loss.update(z, labels[:40], torch.arange(40), now.progress)
    method.after_step(latents, batch, lambda view: latents[view], now)
    assert torch.equal(method.loss.prototypes, sets[0].prototypes)
    assert torch.equal(method.finer.prototypes, sets[1].prototypes)


def test_of_few_images_there_is_no_finer_set_and_the_loss_is_that_of_the_first():
    features, z = (rand(n, 8, key=key).float() for n, key in ((140, "all"), (40, "batch")))
    method = Spacing(Problem(8, 0, 3, labelled=False, rows=140), swapped())
    now, labels = Now(0, 0, 4), torch.full((140,), -1)
    method.before_epoch(lambda: Survey(features, labels), now)
    alone = SpacingLoss(3, 8, swapped(), images=140)
    alone.start(features, labels, random=now.random("spacing"))
    found = method([Latents(z), Latents(z.flip(0))], Batch([], labels[:40], torch.arange(40), {}), now)
    assert list(found) == ["spacing"]
    torch.testing.assert_close(found["spacing"], alone(z, z.flip(0), labels[:40], torch.arange(40), now.progress))


def test_labelled_images_keep_one_prototype_a_class_in_the_finer_set():
    method = Spacing(Problem(8, 4, 3, labelled=True, rows=600), swapped())
    labels = torch.cat([torch.arange(200) % 4, torch.full((400,), -1)])
    method.before_epoch(lambda: Survey(rand(600, 8, key="both").float(), labels), Now(0, 0, 4))
    assert len(method.finer.prototypes) == 4 + 30
    assert method.finer.labelled_classes == method.loss.labelled_classes == 4
    torch.testing.assert_close(method.finer.prototypes[:4], method.loss.prototypes[:4])
