"""The rule in which views learn from one another, against slow loops and by its laws."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound.errors import InputError
from newfound.functional.geometry import distances, nearest
from newfound.functional.losses import pull
from newfound.spacing.loss import SpacingLoss
from newfound.spacing.presets import Swap, swapped, unanchored
from newfound.types import generator
from tests.spacing.naive import naive_loss, rand

DIM, CLASSES = 12, 4


def swap(**settings):
    return replace(swapped(), swap=Swap(**settings))


def started(preset=None, **given):
    """A loss that has begun, and two views of 40 images."""
    loss = SpacingLoss(CLASSES, DIM, preset or swapped()).double()
    loss.start(rand(200, DIM, key="features"), **given)
    return loss, rand(40, DIM, key="z"), rand(40, DIM, key="other")


def naive_sinkhorn(cosines, epsilon, shares, rounds=3):
    Q = [[math.exp(value / epsilon) for value in row] for row in cosines.tolist()]
    for _ in range(rounds):
        for c, share in enumerate(shares.tolist()):
            total = sum(row[c] for row in Q)
            for row in Q:
                row[c] *= share / total
        Q = [[value / sum(row) for value in row] for row in Q]
    return torch.tensor(Q, dtype=torch.float64)


@pytest.mark.parametrize("balance", ["equal", "learnt"])
def test_the_loss_equals_the_loop_over_images_and_pairs_of_views(balance):
    loss, *views = started(swap(balance=balance))
    assert (loss.shares.std() == 0) == (balance == "equal")
    cosines = [F.normalize(view, dim=1) @ loss.prototypes.T for view in views]
    shares = (loss.shares + 1 / CLASSES) / 2
    targets = [naive_sinkhorn(cosine, 0.05, shares) for cosine in cosines]
    torch.testing.assert_close(loss(*views), naive_loss(loss, views, targets))


def test_without_balance_an_image_is_assigned_by_its_own_cosines():
    loss, *views = started(swap(balance="none"))
    targets = [(F.normalize(view, dim=1) @ loss.prototypes.T / 0.05).softmax(1) for view in views]
    torch.testing.assert_close(loss(*views), naive_loss(loss, views, targets))


def test_with_one_view_and_hard_assignment_it_is_the_papers_pull_against_that_of_all_prototypes():
    """−log softmax(u·p/τ)_a = (½ ‖u − p_a‖² − 1)/τ + log Σ_k exp(u·p_k/τ), a the nearest, for unit u and p."""
    loss, z, _ = started(swap(balance="none", epsilon=1e-6))
    u = F.normalize(z, dim=1)
    nearest_ones = loss.prototypes[nearest(u, loss.prototypes)]
    rest = (u @ loss.prototypes.T / 0.1).logsumexp(1).mean()
    torch.testing.assert_close(loss(z), (pull(u, nearest_ones) / 2 - 1) / 0.1 + rest)


def test_a_view_learns_from_the_other_and_gives_no_gradient_to_what_it_learns_from():
    loss, z, other = started()
    z.requires_grad_()
    loss(z, other).backward()
    both, z.grad = z.grad.clone(), None
    swap_of = loss._assign(loss.space(other))
    (-(swap_of * (loss.space(z) @ loss.prototypes.T / 0.1).log_softmax(1)).sum(1).mean() / 2).backward()
    torch.testing.assert_close(both, z.grad)


def naive_step(loss, z):
    """What `update` does, one class after the other."""
    u = F.normalize(z, dim=1)
    where = [max(range(CLASSES), key=lambda k, row=row: (row @ loss.prototypes[k]).item()) for row in u]
    prototypes, counts = [], []
    for k in range(CLASSES):
        mine = [row for row, own in zip(u, where, strict=True) if own == k]
        v, n = loss.counts[k].item(), len(mine)
        p = (v * loss.prototypes[k] + sum(mine) + n * loss.anchors[k]) / (v + n) if n else loss.prototypes[k]
        prototypes.append(p / p.norm())
        counts.append(min(v + n, 200 / CLASSES))
    return torch.stack(prototypes), torch.tensor(counts, dtype=torch.float64)


@pytest.mark.parametrize("preset", [swapped(), unanchored()])
def test_prototypes_follow_their_class_and_anchor_on_the_sphere_and_remember_one_class_of_images(preset):
    loss, z, _ = started(preset)
    for _ in range(3):
        prototypes, counts = naive_step(loss, z)
        loss.update(z)
        torch.testing.assert_close(loss.prototypes, prototypes)
        torch.testing.assert_close(loss.counts, counts)


def test_anchors_are_orthonormal_and_the_nearest_such_to_the_prototypes():
    loss, *_ = started()
    torch.testing.assert_close(loss.anchors @ loss.anchors.T, torch.eye(CLASSES, dtype=torch.float64))
    own = (loss.anchors - loss.prototypes).norm()
    for draw in range(100):
        turned = torch.linalg.qr(loss.anchors.T + 0.3 * rand(DIM, CLASSES, key=str(draw))).Q.T
        signs = (turned * loss.prototypes).sum(1).sign()
        assert (turned * signs[:, None] - loss.prototypes).norm() > own
    assert not started(unanchored())[0].anchors.any()


def test_anchors_push_prototypes_apart():
    def gap(preset):
        loss = SpacingLoss(CLASSES, DIM, preset).double()
        crowd = 1.0 + 0.3 * rand(200, DIM, key="crowd")  # all in one direction
        loss.start(crowd)
        for _ in range(20):
            loss.update(crowd)
        return distances(loss.prototypes)[~torch.eye(CLASSES, dtype=torch.bool)].min()

    assert gap(swapped()) > 1.5 * gap(unanchored())


def test_learnt_shares_follow_what_is_seen_and_equal_ones_stay():
    def crowd(sizes):
        places = torch.eye(CLASSES, DIM, dtype=torch.float64).repeat_interleave(torch.tensor(sizes), 0)
        return places + 0.05 * rand(len(places), DIM, key="noise")

    shares = {}
    for balance in ("learnt", "equal"):
        loss = SpacingLoss(CLASSES, DIM, swap(balance=balance)).double()
        loss.start(crowd([30] * 4))
        torch.testing.assert_close(loss.shares, torch.full((CLASSES,), 0.25, dtype=torch.float64))
        for _ in range(500):
            loss.update(crowd([90, 10, 10, 10]))
        shares[balance] = loss.shares
    torch.testing.assert_close(shares["learnt"].max(), torch.tensor(0.75, dtype=torch.float64), atol=0.02, rtol=0)
    assert shares["learnt"].sum().item() == pytest.approx(1)
    assert shares["equal"].tolist() == [0.25] * 4


def told_apart(mixed):
    """Two known classes, two new ones; half of the known classes' images are labelled."""
    truth = torch.arange(80) % 4
    features = 3 * torch.eye(4, DIM, dtype=torch.float64)[truth] + 0.3 * rand(80, DIM, key="features")
    seen = (truth >= 2) | (torch.arange(80) < 40) | torch.tensor(mixed)
    features, truth = features[seen], truth[seen]
    labels = torch.where((truth < 2) & (torch.arange(len(truth)) < 40), truth, -1)
    loss = SpacingLoss(4, DIM).double()
    loss.start(features, labels, mixed=mixed)
    return loss, features, truth, labels


def test_labelled_images_are_held_to_the_prototypes_of_their_classes():
    loss, features, truth, labels = told_apart(mixed=False)
    assigned = loss._assign(loss.space(features), labels)
    assert torch.equal(assigned[labels >= 0], F.one_hot(truth[labels >= 0], 4).double())
    assert not assigned[labels < 0, :2].any()  # nothing unlabelled is of a known class
    torch.testing.assert_close(assigned.sum(1), torch.ones(len(features), dtype=torch.float64))
    wrong = labels.where(labels < 0, 1 - labels)  # what labels say counts, not what is near
    before = loss.prototypes.clone()
    loss.update(features, wrong)
    assert ((loss.prototypes[:2] @ before[:2].T).diagonal() < 0.999).all()
    assert loss(features, features, labels) < loss(features, features, wrong)


def test_in_a_mixed_pile_unlabelled_images_may_be_assigned_to_known_classes():
    loss, features, truth, labels = told_apart(mixed=True)
    assigned = loss._assign(loss.space(features), labels)
    theirs = (labels < 0) & (truth < 2)
    assert theirs.any()
    assert torch.equal(assigned[theirs].argmax(1), truth[theirs])


def test_assignments_remember_how_an_image_was_seen_the_more_the_later_in_the_run():
    features, rows = rand(60, DIM, key="features"), torch.arange(40)
    loss = SpacingLoss(CLASSES, DIM, images=60).double()
    loss.start(features)
    z, other = rand(40, DIM, key="z"), rand(40, DIM, key="other")
    torch.testing.assert_close(loss(z, other, rows=rows), loss(z, other))  # at the beginning nothing
    before, m = F.normalize(features, dim=1)[:40], 0.8 * 0.5
    blended = [F.normalize(m * before + (1 - m) * F.normalize(view, dim=1), dim=1) for view in (z, other)]
    targets = [loss._assign(each) for each in blended]
    torch.testing.assert_close(loss(z, other, rows=rows, progress=0.5), naive_loss(loss, [z, other], targets))
    loss.update(z, rows=rows, progress=0.5)
    torch.testing.assert_close(loss.memory[:40], blended[0])
    torch.testing.assert_close(loss.memory[40:], F.normalize(features, dim=1)[40:])


def test_autocast_changes_nothing():
    loss, again = SpacingLoss(CLASSES, DIM), SpacingLoss(CLASSES, DIM)
    features = rand(200, DIM, key="features").float()
    loss.start(features)
    with torch.autocast("cpu", torch.bfloat16):
        again.start(features)
    assert torch.equal(again.prototypes, loss.prototypes)
    z, other = rand(40, DIM, key="z").float(), rand(40, DIM, key="other").float()
    expected = loss(z, other)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(z, other), expected)
        loss.update(z)
    assert loss.prototypes.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_latents_of_any_precision_are_taken(dtype):
    loss = SpacingLoss(CLASSES, DIM, within_covariance=torch.eye(DIM), images=60)
    loss.start(rand(60, DIM, key="features").to(dtype))
    z, rows = rand(40, DIM, key="z").to(dtype).requires_grad_(), torch.arange(40)
    loss(z, z.detach(), rows=rows, progress=0.5).backward()
    loss.update(z, rows=rows, progress=0.5)
    assert z.grad.isfinite().all()


def test_a_covariance_of_any_precision_is_taken():
    z = rand(60, 8, key="covariance")
    covariance = z.T.double().cov()
    losses = []
    for given in (covariance, covariance.float()):
        loss = SpacingLoss(6, 8, within_covariance=given)
        loss.start(z)
        losses.append(loss(z[:20]).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_views_that_learn_from_one_another_need_unit_latents():
    with pytest.raises(InputError, match="unit=False"):
        replace(swapped(), unit=False)


def test_another_number_of_images_than_was_said_is_refused():
    with pytest.raises(InputError, match="made for 60 images, and starts with latents of 61"):
        SpacingLoss(CLASSES, DIM, images=60).start(rand(61, DIM, key="features").float())


def test_a_start_from_fewer_latents_than_classes_is_refused_with_what_was_found_and_needed():
    with pytest.raises(InputError, match=r"asked for 4 clusters of 3 points\. Needed: .* a point for each"):
        SpacingLoss(CLASSES, DIM).start(rand(3, DIM, key="features").float())
    labels = torch.tensor([0, 2, -1, -1, -1, -1])
    with pytest.raises(InputError, match=r"no labelled point of classes \[1\].*Count classes from 0"):
        SpacingLoss(CLASSES, DIM).start(rand(6, DIM, key="features").float(), labels, mixed=True)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("preset", ["swapped", "aligned", "paper"])
def test_labels_may_be_whole_numbers_of_any_length(preset, mixed):
    z, labels = rand(60, 8, key="lengths"), torch.arange(60) % 4 - 1
    found = []
    for kind in (torch.int64, torch.int32, torch.int16):
        loss = SpacingLoss(6, 8, preset)
        loss.start(z, labels.to(kind), mixed=mixed)
        values = [loss(z, labels=labels.to(kind))]
        loss.update(z, labels.to(kind))
        found.append([*values, loss.prototypes])
    for same in found[1:]:
        assert all(map(torch.equal, same, found[0]))


@pytest.mark.parametrize(
    ("classes", "mixed", "said"),
    [
        (3, False, "3 known classes.*3 prototypes.*one more at least"),
        (2, True, "3 known classes.*2 prototypes.*one for every class"),
    ],
)
def test_labels_of_more_classes_than_prototypes_are_refused_with_what_was_found_and_needed(classes, mixed, said):
    with pytest.raises(InputError, match=said):
        SpacingLoss(classes, 8).start(rand(60, 8, key="labels"), torch.arange(60) % 4 - 1, mixed=mixed)


def test_a_start_without_latents_for_novel_classes_is_refused_with_what_was_found_and_needed():
    with pytest.raises(InputError, match=r"4 prototypes, 1 of them of novel.*0 unlabelled latents.*Needed: one"):
        SpacingLoss(4, 8).start(rand(60, 8, key="labels"), torch.arange(60) % 3)


@pytest.mark.parametrize("preset", ["swapped", "paper"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_start_from_latents_that_are_no_numbers_is_refused_with_how_many_there_are(preset, wrong):
    z = rand(60, 8, key="no numbers")
    z[3, 3] = z[5, 0] = wrong
    loss = SpacingLoss(6, 8, preset)
    with pytest.raises(InputError, match=r"2 of 60 latents.*NaN or infinite.*Needed: numbers"):
        loss.start(z)
    assert not loss.started


def test_labels_say_nothing_where_prototypes_started_without_them():
    loss, z, other = started()
    labels = torch.arange(40) % CLASSES
    assert torch.equal(loss(z, other, labels), loss(z, other))


def test_a_long_tail_does_not_collapse_where_shares_are_learnt():
    """Classes of 200, 60, 20 and 10 images; a linear network that could put all of them into one."""
    truth = torch.tensor([0] * 200 + [1] * 60 + [2] * 20 + [3] * 10)
    x = 4 * torch.eye(4, DIM, dtype=torch.float64)[truth] + 0.4 * rand(len(truth), DIM, key="x")

    def sizes(balance):
        network = torch.nn.Linear(DIM, DIM, bias=False).double()
        torch.nn.init.eye_(network.weight)
        spacing = SpacingLoss(4, DIM, swap(balance=balance)).double()
        spacing.start(network(x).detach())
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        for step in range(150):
            views = [network(x + 0.3 * rand(*x.shape, key=f"{step} {view}")) for view in range(2)]
            optimizer.zero_grad()
            spacing(*views).backward()
            optimizer.step()
            spacing.update(views[0])
        found = (spacing.space(network(x)) @ spacing.prototypes.T).argmax(1)
        return sorted(torch.bincount(found, minlength=4).tolist())

    assert sizes("learnt") == pytest.approx([10, 20, 60, 200], abs=12)
    assert sizes("equal")[-1] < 150  # cut into parts


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


def test_it_loads_torch_and_pure_functions_alone():
    loaded = "import json, sys; from newfound import SpacingLoss; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    assert "newfound.spacing.loss" in names
    assert {"timm", "torchvision", "huggingface_hub", "pandas", "accelerate", "sklearn", "PIL"}.isdisjoint(names)
    rooms = {name.split(".")[1] for name in names if name.startswith("newfound.")}
    assert rooms == {"errors", "types", "parallel", "functional", "spacing"}
