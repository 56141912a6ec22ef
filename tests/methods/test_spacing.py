"""Spacing Loss against the paper's own loops."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from newfound.errors import InputError
from newfound.functional.geometry import distances, means, nearest, whitening
from newfound.methods import build
from newfound.methods.spacing import Spacing
from newfound.methods.spacing_loss import (
    PRESETS,
    SpacingLoss,
    aligned,
    author,
    dcn,
    move,
    paper,
)
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, Survey, generator


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


@pytest.mark.parametrize("initial", [0.0, 1.0, 100.0])
def test_the_closed_form_equals_the_loop_over_samples(initial):
    z, p, e = rand(50, 8, key="z"), rand(6, 8, key="p"), rand(6, 8, key="e")
    v = torch.full((6,), initial, dtype=torch.float64)
    fast, slow = move(z, p, e, v), naive_move(z, p, e, v)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_prototype_that_nothing_goes_to_stays():
    p = torch.tensor([[0.0, 0.0], [100.0, 0.0]], dtype=torch.float64)
    moved = move(rand(5, 2, key="z"), p, torch.ones_like(p), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(moved.prototypes[1], p[1])
    assert moved.counts.tolist() == [5.0, 0.0]


def test_without_initial_counts_the_start_is_forgotten_at_once():
    z, e = rand(20, 4, key="z"), rand(1, 4, key="e")
    moved = move(z, rand(1, 4, key="p"), e, torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(moved.prototypes[0], z.mean(0) + e[0], rtol=1e-12, atol=1e-12)


def test_latents_that_follow_their_prototype_drift_like_the_harmonic_numbers():
    e, p, v = rand(1, 4, key="e"), torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for _ in range(1000):
        p, v, _ = move(p, p, e, v)
    torch.testing.assert_close(p, e * sum(1 / n for n in range(1, 1001)), rtol=1e-10, atol=0)


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


def make_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8)).double()


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


def test_the_preset_author_takes_its_loss_against_the_moved_prototypes():
    loss = SpacingLoss(4, 8, author()).double()
    features, z = rand(100, 8, key="f"), rand(32, 8, key="z").requires_grad_()
    loss.start(features)
    before = loss.prototypes.clone()
    unit = nn.functional.normalize(z.detach(), dim=1)
    p, v, a = naive_move(unit, loss.prototypes, loss.anchors, loss.counts)
    expected = author().weight * ((nn.functional.normalize(z, dim=1) - p[a]) ** 2).sum(1).mean()
    torch.testing.assert_close(loss(z), expected)
    assert torch.equal(loss.prototypes, before)
    loss.update(z)
    torch.testing.assert_close(loss.prototypes, p)
    torch.testing.assert_close(loss.counts, v)


def test_the_preset_author_weighs_as_its_code_does():
    """½·β·Σ_i mean_d (z − p)² with β = 5, B = 128 images and D = 512 dimensions is 0.625 · mean_i ‖z − p‖²."""
    z, p = rand(128, 512, key="z"), rand(128, 512, key="p")
    code = 0.5 * 5 * ((z - p) ** 2).mean(1).sum()
    torch.testing.assert_close(code, author().weight * ((z - p) ** 2).sum(1).mean())


def test_dcn_is_a_running_mean_without_anchors():
    loss = SpacingLoss(3, 8, dcn()).double()
    loss.start(rand(60, 8, key="f"))
    assert not loss.anchors.any()
    p, _, _ = naive_move(loss.space(rand(20, 8, key="z")), loss.prototypes, torch.zeros(3, 8), loss.counts)
    loss.update(rand(20, 8, key="z"))
    torch.testing.assert_close(loss.prototypes, p)


@pytest.mark.parametrize("name", ["aligned", "paper", "author"])
def test_anchors_are_equidistant_and_as_far_apart_as_the_preset_says(name):
    preset = PRESETS[name]()
    loss = SpacingLoss(5, 16, preset).double()
    loss.start(rand(200, 16, key="f").abs())
    apart = distances(loss.anchors)[~torch.eye(5, dtype=torch.bool)]
    asked = preset.alpha * distances(loss.prototypes).max()
    torch.testing.assert_close(apart, torch.full_like(apart, min(asked, math.sqrt(2)) if name == "aligned" else asked))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper", (False, None, 1.1, "random", 0.0, "k-means", "again", 0.0)),
        ("author", (True, None, 1.0, "random", 100.0, "k-means", "first", 5 / 200)),
        ("author-two-stage", (True, None, 1.0, "random", 100.0, "k-means", "first", 5 / 50)),
        ("aligned", (True, 0.3, 1.1, "aligned", None, "means", "last", 0.0)),
        ("swapped", (True, 0.3, 1.1, "orthonormal", None, "means", "last", 0.0)),
        ("unanchored", (True, 0.3, 1.1, "none", None, "means", "last", 0.0)),
        ("dcn", (True, 0.3, 1.1, "none", None, "means", "last", 0.0)),
    ],
)
def test_presets_read_the_paper_as_they_say(name, expected):
    p = PRESETS[name]()
    assert (p.unit, p.whiten, p.alpha, p.orientation, p.initial, p.known, p.order, p.start) == expected


@pytest.mark.parametrize("name", PRESETS)
def test_counts_start_as_the_preset_says(name):
    spacing, z = SpacingLoss(4, 8, name), torch.rand(60, 8, generator=generator("z"))
    spacing.start(z)
    sizes = torch.bincount(nearest(spacing.space(z), spacing.prototypes), minlength=4).tolist()
    assert spacing.counts.tolist() == {"paper": [0.0] * 4, "author": [100.0] * 4, "author-two-stage": [100.0] * 4}.get(
        name, sizes
    )


def test_anchors_nearer_than_the_prototypes_are_warned_of_but_not_the_authors():
    z = torch.rand(60, 8, generator=generator("z"))
    with pytest.warns(UserWarning, match=r"alpha = 0\.5"):
        SpacingLoss(4, 8, replace(aligned(), alpha=0.5)).start(z)
    SpacingLoss(4, 8, "author").start(z)  # a warning would be an error


@pytest.mark.parametrize("name", PRESETS)
def test_latents_of_half_precision_are_taken_as_those_of_full(name):
    z = torch.rand(60, 8, generator=generator("z")).bfloat16()
    half, full = SpacingLoss(4, 8, name, torch.eye(8)), SpacingLoss(4, 8, name, torch.eye(8))
    for spacing in (half, full):
        spacing.start(z.float(), random=generator("start"))
    assert torch.equal(half(z[:16]), full(z[:16].float()))
    half.update(z[:16])
    full.update(z[:16].float())
    assert torch.equal(half.prototypes, full.prototypes)


def test_pairs_are_guessed_from_moving_latents_unless_a_teacher_is_asked_for():
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"), nn.Linear(16, 2))
    assert all(build("pairs", Problem(16, 2, 3, labelled), model).teacher is None for labelled in (False, True))
    taught = build("pairs:teacher", Problem(16, 2, 3, labelled=False), model)
    pixels = torch.rand(5, 1, 12, 12, generator=generator("pixels"))
    before = taught.teacher(pixels).z
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1.0)  # it learns on, its teacher does not
    assert torch.equal(taught.teacher(pixels).z, before)


def test_the_method_whitens_by_the_models_spread():
    spread = torch.diag(torch.arange(1.0, 17.0))
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"), nn.Linear(16, 2), spread=spread)
    metric = build("spacing", Problem(16, 2, 3), model).loss.metric
    assert metric is not None
    torch.testing.assert_close(metric, whitening(spread, 0.3))
    assert build("spacing:paper", Problem(16, 2, 3), model).loss.metric is None


def test_a_preset_may_be_given_by_its_name():
    assert SpacingLoss(3, 8, "author").preset == author()
    with pytest.raises(InputError, match=r"no preset called 'papers'.*Did you mean paper\?"):
        SpacingLoss(3, 8, "papers")


def test_the_cap_is_for_unit_latents_and_for_ours_alone():
    opposite = torch.cat([torch.eye(4), -torch.eye(4)]).repeat(10, 1) * 3

    def apart(preset):
        loss = SpacingLoss(8, 4 + 8, preset)
        loss.start(torch.nn.functional.pad(opposite, (0, 8)))
        return distances(loss.anchors).max().item()

    assert apart(aligned()) == pytest.approx(math.sqrt(2), abs=1e-4)
    assert apart(author()) == pytest.approx(2.0, abs=1e-4)
    assert apart(paper()) == pytest.approx(1.1 * 6, abs=1e-4)
    assert apart(replace(aligned(), unit=False)) == pytest.approx(1.1 * 6, abs=1e-4)


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


def test_known_prototypes_start_at_the_labelled_means_where_the_preset_says_so():
    features, labels = rand(90, 8, key="f").abs(), torch.arange(90) % 3
    labels[45:] = -1
    loss = SpacingLoss(5, 8, "aligned").double()
    loss.start(features, labels)
    unit = nn.functional.normalize(features, dim=1)
    for k in range(3):
        torch.testing.assert_close(loss.prototypes[k], unit[:45][labels[:45] == k].mean(0))
    assert loss.counts.sum() == 90


def test_in_a_mixed_pile_unlabelled_images_may_join_known_prototypes():
    labels = torch.arange(100) % 5  # three known classes, half of whose images are labelled, and two new ones
    places = 9 * nn.functional.one_hot(torch.arange(5), 8).double()
    features = places[labels] + rand(100, 8, key="f")
    told = labels.where((labels < 3) & (torch.arange(100) < 50), -1)
    loss = SpacingLoss(5, 8, replace(aligned(), unit=False)).double()
    loss.start(features, told, mixed=True)
    for k in range(3):
        torch.testing.assert_close(loss.prototypes[k], features[labels == k].mean(0))
    new = {tuple(features[labels == k].mean(0).round(decimals=9).tolist()) for k in (3, 4)}
    assert {tuple(p.round(decimals=9).tolist()) for p in loss.prototypes[3:]} == new
    assert loss.counts.tolist() == [20.0] * 5
    loss.start(features, told)  # as if none could be of a known class
    assert loss.counts[:3].tolist() == [10.0] * 3


@pytest.mark.parametrize("labelled", [True, False])
def test_the_method_tells_the_loss_whether_the_pile_is_mixed(labelled):
    labels = torch.arange(60) % 3 if labelled else torch.full((60,), -1)
    labels[30:] = -1
    survey = Survey(rand(60, 8, key="f").float(), labels)
    for mixed in (False, True):
        method = Spacing(Problem(8, known=3, novel=2, labelled=labelled, rows=60, mixed=mixed))
        method.before_epoch(lambda: survey, Now(0, 0, 5))
        alone = SpacingLoss(5 if labelled or mixed else 2, 8)
        alone.start(*survey, Now(0, 0, 5).random("spacing"), mixed)
        assert torch.equal(method.loss.prototypes, alone.prototypes)
        assert torch.equal(method.loss.counts, alone.counts)
    assert method.loss.counts.sum() == 60


def test_the_loss_does_not_depend_on_how_often_the_batch_is_repeated():
    loss = SpacingLoss(3, 8).double()
    loss.start(rand(60, 8, key="f"))
    z = rand(20, 8, key="z")
    torch.testing.assert_close(loss(z), loss(torch.cat([z, z])))


def test_gradient_flows_to_latents_alone_and_the_loss_is_zero_before_the_start():
    loss, z = SpacingLoss(3, 8), torch.rand(4, 8, generator=generator("z")).requires_grad_()
    assert loss(z).item() == 0
    assert loss(z).requires_grad
    assert not list(loss.parameters())


def smallest_gap_after_a_strangers_loop(preset):
    network, x = make_network(), rand(200, 5, key="x")
    spacing = SpacingLoss(4, 8, preset).double()
    spacing.start(network(x).detach())
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(30):
        z = network(x)
        optimizer.zero_grad()
        spacing(z).backward()
        optimizer.step()
        spacing.update(z)
    z = spacing.space(network(x).detach())
    gaps = distances(means(z, nearest(z, spacing.prototypes), 4)[0])
    return gaps.fill_diagonal_(math.inf).min()


def test_anchors_keep_classes_further_apart_than_self_training_alone():
    assert smallest_gap_after_a_strangers_loop(aligned()) > 1.05 * smallest_gap_after_a_strangers_loop(dcn())


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

    assert see([0.1, 0.1, 1.5, 1.5])["changed assignments"] == 0  # nothing was known before
    log = see([0.1, 1.5, 1.5, 1.5])
    assert log["changed assignments"] == 0.25
    assert log["empty clusters"] == 1
    assert log["smallest prototype distance"] == pytest.approx(math.sqrt(2), abs=1e-4)
    assert log["mean prototype norm"] == pytest.approx(1, abs=1e-4)


def test_latents_are_whitened_by_the_known_classes_spread_where_the_preset_says_so():
    spread = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    scale = (torch.tensor([4.0, 1.0], dtype=torch.float64) + aligned().whiten * 2.5).rsqrt()
    z = rand(5, 2, key="z")
    seen = SpacingLoss(3, 2, aligned(), spread).double().space(z)
    torch.testing.assert_close(seen, nn.functional.normalize(z * scale, dim=1))
    torch.testing.assert_close(SpacingLoss(3, 2, paper(), spread).double().space(z), z)
    assert "metric" not in SpacingLoss(3, 2, paper(), spread).state_dict()
