"""How the paper is read: each preset keeps what it says."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from newfound.errors import InputError
from newfound.functional.geometry import distances, means, nearest
from newfound.spacing.loss import SpacingLoss
from newfound.spacing.presets import PRESETS, aligned, author, dcn, paper, resolve, swapped
from newfound.types import generator
from tests.spacing.naive import make_network, naive_move, rand


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper", (False, None, 1.1, "random", 0.0, "k-means", "reembed", 0.0)),
        ("author", (True, None, 1.0, "random", 100.0, "k-means", "before_loss", 5 / 200)),
        ("author-two-stage", (True, None, 1.0, "random", 100.0, "k-means", "before_loss", 5 / 50)),
        ("aligned", (True, 0.3, 1.1, "aligned", None, "means", "after_step", 0.0)),
        ("swapped", (True, 0.3, 1.1, "orthonormal", None, "means", "after_step", 0.0)),
        ("unanchored", (True, 0.3, 1.1, "none", None, "means", "after_step", 0.0)),
        ("dcn", (True, 0.3, 1.1, "none", None, "means", "after_step", 0.0)),
    ],
)
def test_presets_read_the_paper_as_they_say(name, expected):
    p = PRESETS[name]()
    assert (p.unit, p.whiten, p.alpha, p.orientation, p.initial, p.known, p.update, p.start) == expected


def test_a_preset_may_be_given_by_its_name():
    assert SpacingLoss(3, 8, "author").preset == author()
    with pytest.raises(InputError, match=r"no preset called 'papers'.*Did you mean paper\?"):
        SpacingLoss(3, 8, "papers")


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
    half, full = (
        SpacingLoss(4, 8, name, within_covariance=torch.eye(8)),
        SpacingLoss(4, 8, name, within_covariance=torch.eye(8)),
    )
    for spacing in (half, full):
        spacing.start(z.float(), random=generator("start"))
    assert torch.equal(half(z[:16]), full(z[:16].float()))
    half.update(z[:16])
    full.update(z[:16].float())
    assert torch.equal(half.prototypes, full.prototypes)


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


def test_latents_are_whitened_by_the_known_classes_spread_where_the_preset_says_so():
    within_covariance = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    scale = (torch.tensor([4.0, 1.0], dtype=torch.float64) + aligned().whiten * 2.5).rsqrt()
    z = rand(5, 2, key="z")
    seen = SpacingLoss(3, 2, aligned(), within_covariance=within_covariance).double().space(z)
    torch.testing.assert_close(seen, nn.functional.normalize(z * scale, dim=1))
    torch.testing.assert_close(SpacingLoss(3, 2, paper(), within_covariance=within_covariance).double().space(z), z)
    assert "metric" not in SpacingLoss(3, 2, paper(), within_covariance=within_covariance).state_dict()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_itself_unless_something_else_is_asked_for(name):
    assert resolve(name) == resolve(PRESETS[name]()) == PRESETS[name]()
    other = resolve(name, weight=0.125, initial=7.0)
    assert vars(other) == vars(PRESETS[name]()) | {"weight": 0.125, "initial": 7.0}
    assert resolve(name, weight=0.0, initial=0.0).weight == 0.0


def test_the_preset_that_nobody_names_is_ours():
    assert resolve() == swapped() == SpacingLoss(3, 8).preset


def test_the_loss_takes_another_weight_and_other_anchors_than_its_preset():
    z = rand(60, 8, key="f").float()
    usual, other = SpacingLoss(4, 8, "paper"), SpacingLoss(4, 8, "paper", weight=0.5, alpha=1.4)
    for loss in (usual, other):
        loss.start(z)
    torch.testing.assert_close(other(z), usual(z) * 500)
    torch.testing.assert_close(distances(other.anchors).max(), distances(usual.anchors).max() * 1.4 / 1.1)


@pytest.mark.parametrize("name", ["swapped", "unanchored", "dcn"])
def test_an_alpha_that_would_change_nothing_is_refused(name):
    with pytest.raises(InputError, match=r"alpha is 1\.5.*ask for none.*\"aligned\""):
        SpacingLoss(4, 8, name, alpha=1.5)
