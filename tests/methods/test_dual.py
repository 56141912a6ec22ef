"""Dual ranking against loops over images, pairs, locations and parts."""

import copy
import math

import pytest
import torch
from torch import nn

from newfound.data.pixels import PixelDataset
from newfound.methods.dual import Dual, likeness, locations, recipe
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, fit
from newfound.types import Batch, Latents, Now, Problem, Training, generator, seeded

DIM, KNOWN, NOVEL = 16, 3, 4
PARTS, BANK, K, TAU = 23, 17, 2, 0.07  # no batch below divides them
NOW = Now(seed=1, epoch=3, epochs=10, step=2, steps=5)
KINDS = {"mixed": (4, 6), "only unlabelled": (0, 10), "only labelled": (10, 0)}


def make_model(channels=3):
    return Model(SmallResNet(width=2, stride=2), 16, channels, ("a", "b", "c"), head=nn.Linear(DIM, KNOWN))


def make_method(labelled=True, key="method"):
    with seeded(key):
        method = Dual(Problem(DIM, KNOWN, NOVEL, labelled), make_model(), parts=PARTS, bank=BANK, k=K)
    return method.double().train()


def adapt_batch_norm(method):
    """Some steps on, and β has found its scale: codes are neither flat nor of one part."""
    for earlier in (0, 1):
        step(method, "mixed", NOW._replace(step=earlier))
    method.parts.nearest.fill_(naive_nearest(method, method.stage(make_batch()[0][0].map).detach()))


def make_batch(kind="mixed", now=NOW, side=8):
    """Latents and maps that ask for a gradient, as a backbone would give them; local maps are half the side."""
    labelled, unlabelled = KINDS[kind]
    random, n = now.random("batch"), labelled + unlabelled
    views = [
        Latents(
            torch.rand(n, DIM, generator=random, dtype=torch.float64).requires_grad_(),
            torch.rand(n, DIM // 2, side, side, generator=random, dtype=torch.float64).requires_grad_(),
        )
        for _ in range(2)
    ]
    labels = torch.cat([torch.arange(labelled) % KNOWN, torch.full((unlabelled,), -1)])
    return views, Batch([], labels, torch.arange(n), {})


def step(method, kind="mixed", now=NOW):
    """One step of the loop, with a backbone that does not move."""
    latents, batch = make_batch(kind, now)
    losses = method(latents, batch, now)
    with torch.no_grad():
        method.after_step([Latents(view.z.detach()) for view in latents], batch, latents.__getitem__, now)
    return losses


def state_of(method):
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


# the obvious slow version


def probabilities(head, z):
    scores = [sum(w * x for w, x in zip(row, z.tolist(), strict=True)) for row in head.weight.tolist()]
    grown = [math.exp(score + bias) for score, bias in zip(scores, head.bias.tolist(), strict=True)]
    return [value / sum(grown) for value in grown]


def top(values):
    return set(sorted(range(len(values)), key=lambda i: -values[i])[:K])


def naive_average(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def naive_inner(seen):
    """Local descriptors of one image, the border left out."""
    return [seen[:, y, x].tolist() for y in range(1, seen.shape[1] - 1) for x in range(1, seen.shape[2] - 1)]


def naive_far(d, v):
    return sum((a - b) ** 2 for a, b in zip(d, v, strict=True))


def naive_nearest(method, maps):
    parts = method.parts.ring.rows.tolist()
    return naive_average(min(naive_far(d, v) for v in parts) for seen in maps for d in naive_inner(seen))


def naive_codes(method, maps):
    mean = 0.99 * method.parts.nearest.item() + 0.01 * naive_nearest(method, maps)
    parts, codes = method.parts.ring.rows.tolist(), []
    for seen in maps:
        shares = []
        for d in naive_inner(seen):
            weights = [math.exp(-15 / mean * naive_far(d, v)) for v in parts]
            shares.append([weight / sum(weights) for weight in weights])
        codes.append([naive_average(column) for column in zip(*shares, strict=True)])
    return codes


def naive_branch(branch, z, other, labels, ranked):
    u = [i for i, label in enumerate(labels) if label < 0]
    p, q = ([probabilities(branch.novel, row) for row in view] for view in (z, other))
    known, known_other = ([probabilities(branch.labelled, row) for row in view] for view in (z, other))
    pairs = []
    for i in u:
        for j in u:
            together = sum(a * b for a, b in zip(p[i], q[j], strict=True))
            pairs.append(-math.log(together if top(ranked[i]) == top(ranked[j]) else 1 - together))
    steady = sum(
        naive_average((a - b) ** 2 for rows in zip(*views, strict=True) for a, b in zip(*rows, strict=True))
        for views in ((p, q), (known, known_other))
    )
    weight = 50 * math.exp(-5 * (1 - min(NOW.progress / 0.75, 1)) ** 2)
    return {
        "pairs": naive_average(pairs),
        "cross-entropy": naive_average(-math.log(known[i][y]) for i, y in enumerate(labels) if y >= 0),
        "consistency": weight * steady,
    }


def naive_likeness(z, other, bank):
    scores = [(z @ b).item() / z.norm().item() / TAU for b in (other / other.norm(), *bank)]
    return [math.exp(s) / sum(map(math.exp, scores)) for s in scores]


def naive_distillation(method, sides, labels):
    totals = []
    for i in (i for i, label in enumerate(labels) if label < 0):
        p, q = (
            naive_likeness(z[i], other[i], branch.bank.latents)
            for (z, other), branch in zip(sides, (method.whole, method.local), strict=True)
        )
        totals.append(sum((a * math.log(a / b) + b * math.log(b / a)) / 2 for a, b in zip(p, q, strict=True)))
    return naive_average(totals)


@pytest.mark.parametrize("kind", KINDS)
def test_all_losses_equal_the_loops_over_images_and_pairs(kind):
    method = make_method()
    adapt_batch_norm(method)
    latents, batch = make_batch(kind)
    losses = method(latents, batch, NOW)
    with torch.no_grad():
        z, other = (view.z for view in latents)
        maps, other_maps = (method.stage(view.map) for view in latents)
        local, local_other = ([seen.flatten(1).mean(1) for seen in view] for view in (maps, other_maps))
        labels, codes = batch.labels.tolist(), naive_codes(method, maps)
        slow = {"distillation": naive_distillation(method, ((z, other), (local, local_other)), labels)}
        for name, loss in naive_branch(method.whole, z, other, labels, z.tolist()).items():
            slow[f"global {name}"] = loss
        for name, loss in naive_branch(method.local, local, local_other, labels, codes).items():
            slow[f"local {name}"] = loss
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(slow, rel=1e-8)


def test_the_guesses_of_the_example_are_neither_all_alike_nor_all_different():
    method = make_method()
    adapt_batch_norm(method)
    latents, _ = make_batch("only unlabelled")
    ranked = naive_codes(method, method.stage(latents[0].map).detach())
    alike = [top(a) == top(b) for i, a in enumerate(ranked) for b in ranked[:i]]
    assert any(alike)
    assert not all(alike)
    assert all(0.02 < share < 0.9 for code in ranked for share in sorted(code)[-K:])


def test_dictionary_and_banks_keep_the_latest_and_the_mean_distance_runs():
    method = make_method()
    parts = [row.clone() for row in method.parts.ring.rows]
    banks = [[row.clone() for row in branch.bank.latents] for branch in (method.whole, method.local)]
    nearest, places = 0.5, [0, 0]
    for moment in (NOW._replace(step=step) for step in range(5)):
        latents, batch = make_batch("mixed", moment)
        with torch.no_grad():
            maps, other_maps = (method.stage(view.map) for view in latents)
        nearest = 0.99 * nearest + 0.01 * naive_nearest(method, maps)
        drawn = torch.randint(4, (len(maps),), generator=moment.random("parts")).tolist()
        for seen, choice in zip(maps, drawn, strict=True):
            parts[places[0] % PARTS] = torch.tensor(naive_inner(seen)[choice], dtype=torch.float64)
            places[0] += 1
        for i in (i for i, label in enumerate(batch.labels) if label < 0):
            for bank, row in zip(banks, (latents[1].z[i].detach(), other_maps[i].mean(dim=(1, 2))), strict=True):
                bank[places[1] % BANK] = row / row.norm()
            places[1] += 1
        step(method, "mixed", moment)
        torch.testing.assert_close(method.parts.ring.rows, torch.stack(parts))
        assert method.parts.nearest.item() == pytest.approx(nearest)
        for bank, branch in zip(banks, (method.whole, method.local), strict=True):
            torch.testing.assert_close(branch.bank.latents, torch.stack(bank))
    assert method.log() == {"squared distance to the nearest part": pytest.approx(nearest)}


@pytest.mark.parametrize(("side", "kept"), [(1, [0]), (2, [0, 1]), (3, [1]), (4, [1, 2]), (7, [1, 2, 3, 4, 5])])
def test_locations_leave_out_the_border_where_there_is_something_else(side, kept):
    maps = torch.arange(2 * 3 * side * 4.0).view(2, 3, side, 4)
    found = locations(maps)
    wanted = [[maps[i, :, y, x] for y in kept for x in (1, 2)] for i in range(2)]
    assert torch.equal(found, torch.stack([torch.stack(row) for row in wanted]))


def test_likeness_is_the_softmax_over_another_view_and_the_bank():
    random = generator("likeness")
    z, other, bank = (torch.randn(n, 5, generator=random, dtype=torch.float64) for n in (3, 3, 7))
    bank = nn.functional.normalize(bank, dim=1)
    shares = likeness(z, other, bank, TAU).softmax(1)
    wanted = torch.tensor([naive_likeness(*rows, bank) for rows in zip(z, other, strict=True)], dtype=torch.float64)
    torch.testing.assert_close(shares, wanted)


def test_the_distillation_moves_both_branches_and_both_views_and_nothing_labelled():
    method = make_method()
    latents, batch = make_batch()
    method(latents, batch, NOW)["distillation"].backward()
    u = batch.labels < 0
    for view in latents:
        assert (view.z.grad[u] != 0).any(1).all()
        assert not view.z.grad[~u].any()
        assert view.map.grad.any()
    assert all(parameter.grad.any() for parameter in method.stage.parameters())
    assert all(p.grad is None for branch in (method.whole, method.local) for p in branch.parameters())


def losses_after(change):
    """Names of the losses that a change of the latents, maps or method changes."""
    method = make_method()
    latents, batch = make_batch()
    with torch.no_grad():
        before = method(latents, batch, NOW)
        change(method, latents)
        after = method(latents, batch, NOW)
    return {name for name in before if not torch.equal(before[name], after[name])}


LOCAL = {"local pairs", "local cross-entropy", "local consistency"}
GLOBAL = {"global pairs", "global cross-entropy", "global consistency"}


def test_local_heads_see_local_latents_and_global_heads_global_ones():
    assert losses_after(lambda method, latents: latents[0].map.mul_(2).add_(latents[0].map.square())) == {
        *LOCAL,
        "distillation",
    }
    assert losses_after(lambda method, latents: latents[0].z.add_(latents[0].z.square())) == {*GLOBAL, "distillation"}


def test_the_second_view_matters_in_both_branches_but_not_for_cross_entropy():
    changed = losses_after(lambda method, latents: latents[1].map.add_(latents[1].map.square()))
    assert changed == {"local pairs", "local consistency", "distillation"}
    changed = losses_after(lambda method, latents: latents[1].z.add_(latents[1].z.square()))
    assert changed == {"global pairs", "global consistency", "distillation"}


def test_the_order_of_images_does_not_matter():
    method = make_method()
    latents, batch = make_batch()
    order = torch.randperm(len(batch.labels), generator=generator("order"))
    turned = [Latents(view.z[order], view.map[order]) for view in latents]
    first = method(latents, batch, NOW)
    second = method(turned, Batch([], batch.labels[order], batch.rows[order], {}), NOW)
    for name, loss in first.items():
        torch.testing.assert_close(second[name], loss)


def test_the_local_branch_begins_as_a_copy_of_the_global_one():
    with seeded("copy"):
        model = make_model()
    backbone = model.backbone.requires_grad_(False).train()
    method = Dual(Problem(DIM, KNOWN, NOVEL), model).train()
    assert all(parameter.requires_grad for parameter in method.stage.parameters())
    assert not {p.data_ptr() for p in method.stage.parameters()} & {p.data_ptr() for p in backbone.parameters()}
    method.local.bank.load_state_dict(method.whole.bank.state_dict())
    latents = [backbone(torch.rand(6, 3, 16, 16, generator=generator("copy", view))) for view in range(2)]
    losses = method(latents, Batch([], torch.tensor([0, 1, 2, -1, -1, -1]), torch.arange(6), {}), NOW)
    torch.testing.assert_close(losses["distillation"], torch.tensor(0.0))
    torch.testing.assert_close(losses["local cross-entropy"], losses["global cross-entropy"])


def test_descriptors_that_all_died_give_codes_all_the_same():
    method = make_method()
    method.parts.ring.rows.zero_()
    method.parts.nearest.zero_()
    codes, nearest = method.parts(torch.zeros(3, 4, DIM, dtype=torch.float64))
    torch.testing.assert_close(codes, torch.full_like(codes, 1 / PARTS))
    assert not nearest.any()


# the questions that every method is asked


@pytest.mark.parametrize("side", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_finite_scalars_with_a_gradient(kind, side):
    method = make_method()
    latents, batch = make_batch(kind, side=side)
    losses = method(latents, batch, NOW)
    assert losses.keys() == {*LOCAL, *GLOBAL, "distillation"}
    assert all(loss.shape == () and loss.isfinite() for loss in losses.values())
    torch.stack(list(losses.values())).sum().backward()
    assert all(tensor.grad.isfinite().all() for view in latents for tensor in view)
    assert all(parameter.grad is not None for parameter in method.parameters())
    assert all(len(note) == len(batch.labels) and not note.requires_grad for note in batch.notes.values())


@pytest.mark.parametrize("kind", KINDS)
def test_forward_changes_no_state_and_repeats_itself(kind):
    method = make_method()
    latents, batch = make_batch(kind)
    before = state_of(method)
    assert equal(method(latents, batch, NOW), method(latents, batch, NOW))
    assert equal(before, state_of(method))


@pytest.mark.parametrize("kind", KINDS)
def test_saved_loaded_and_going_on_equals_going_on(kind):
    going, loaded = make_method(), make_method(key="another")
    step(going, kind)
    loaded.load_state_dict(state_of(going))
    for now in (NOW._replace(step=3), NOW._replace(step=4)):
        assert equal(step(going, kind, now), step(loaded, kind, now))
    assert equal(state_of(going), state_of(loaded))


def test_without_labelled_images_there_is_no_head_for_them_and_a_labelled_row_is_refused():
    method = make_method(labelled=False)
    assert step(method, "only unlabelled").keys() == {
        f"{branch} {name}" for branch in ("global", "local") for name in ("pairs", "consistency")
    } | {"distillation"}
    assert method.logits(torch.rand(5, DIM, dtype=torch.float64)).shape == (5, NOVEL)
    with pytest.raises(ValueError, match="labelled row"):
        step(method, "mixed")


def test_a_backbone_without_maps_is_refused():
    latents, batch = make_batch()
    with pytest.raises(ValueError, match="gave no map"):
        make_method()([Latents(view.z) for view in latents], batch, NOW)


def test_logits_are_the_global_branch_s_known_classes_first():
    method, z = make_method(), torch.rand(5, DIM, generator=generator("z"), dtype=torch.float64)
    assert torch.equal(method.logits(z), torch.cat([method.whole.labelled(z), method.whole.novel(z)], dim=1))


def make_learner():
    with seeded("learner"):
        model = make_model(channels=1)
        return Learner(model.backbone, recipe.build(Problem(DIM, KNOWN, NOVEL, rows=48), model), recipe.training.trains)


def test_the_recipe_trains_in_the_loop_and_stopped_and_resumed_equals_never_stopped(tmp_path):
    pixels = torch.randint(0, 256, (48, 1, 16, 16), generator=generator("pixels"), dtype=torch.uint8)
    data = PixelDataset(pixels, torch.where(torch.arange(48) < 24, torch.arange(48) % KNOWN, -1))
    training, checkpoint = Training(epochs=2, batch=16, rate=0.01, trains=1), tmp_path / "checkpoint.safetensors"
    learner, stopped = make_learner(), make_learner()
    start = copy.deepcopy(learner.state_dict())
    fit(learner, data, training, seed=3, device="cpu")

    def interrupt(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(stopped, data, training, seed=3, device="cpu", progress=interrupt, checkpoint=checkpoint)
    resumed = make_learner()
    fit(resumed, data, training, seed=3, device="cpu", checkpoint=checkpoint, resume=True)
    assert equal(learner.state_dict(), resumed.state_dict())

    moved = {name for name, tensor in learner.state_dict().items() if not torch.equal(tensor, start[name])}
    learnt = {name for name, parameter in learner.named_parameters() if parameter.requires_grad}
    assert learnt <= moved
    assert {f"method.{name}" for name in ("parts.ring.rows", "parts.nearest", "whole.bank.ring.rows")} <= moved
    assert not any("running" in name for name in moved if name.startswith("method."))
