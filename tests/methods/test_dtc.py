"""Deep Transfer Clustering against the paper's own loops."""

import math

import pytest
import torch
from torch import nn

from newfound.functional.cluster import kmeans
from newfound.functional.geometry import principal
from newfound.functional.pseudo import soft_assignment, target_distribution
from newfound.methods.dtc import DTC, PI, TE, TEP, Baseline, Ensemble, recipes
from newfound.types import Batch, Latents, Now, Problem, Survey, generator, seeded

VARIANTS = {"baseline": Baseline, "pi": PI, "te": TE, "tep": TEP}
every_variant = pytest.mark.parametrize("name", VARIANTS)

ROWS, DIM, K = 24, 6, 3
WARM_EPOCHS, EPOCHS, UPDATE, RISE, TOP = 2, 9, 3, 4, 10.0
"""A short run: 2 epochs of warm-up, then 7; targets anew after every third; a ramp of 4."""


def rand(*shape, key):
    return torch.randn(*shape, generator=generator("dtc", key), dtype=torch.float64)


def make_problem(rows=ROWS, labelled=False):
    return Problem(DIM, known=2, novel=K, labelled=labelled, rows=rows)


def make_method(name, problem=None):
    problem = problem or make_problem()
    with seeded("dtc"):
        method = DTC(
            problem,
            VARIANTS[name](problem),
            warm=WARM_EPOCHS / EPOCHS,
            interval=UPDATE / EPOCHS,
            rise=(RISE / EPOCHS, TOP),
        )
    return method.double().train()


def make_survey(rows=ROWS, labels=None):
    return Survey(rand(rows, DIM, key="survey"), torch.full((rows,), -1) if labels is None else labels)


# The whole run, as the authors' four training loops are written: sample by sample, epoch by epoch.


def naive_q(z, centres):
    rows = []
    for zi in z:
        weights = [1 / (1 + sum((a - b) ** 2 for a, b in zip(zi, c, strict=True))) for c in centres]
        rows.append(torch.stack([w / sum(weights) for w in weights]))
    return torch.stack(rows)


def naive_target(q):
    q = q.tolist()
    sizes = [sum(row[k] for row in q) for k in range(K)]
    weights = [[row[k] ** 2 / sizes[k] for k in range(K)] for row in q]
    return torch.tensor([[w / sum(row) for w in row] for row in weights], dtype=torch.float64)


def naive_divergence(q, p):
    terms = [p[i, k] * (p[i, k].log() - q[i, k].log()) for i in range(len(q)) for k in range(K)]
    return sum(terms) / len(terms)


def naive_consistency(q, r):
    terms = [(q[i, k] - r[i, k]) ** 2 for i in range(len(q)) for k in range(K)]
    return sum(terms) / len(terms)


def make_backbone():
    with seeded("backbone"):
        return nn.Sequential(nn.Linear(5, DIM), nn.Tanh()).double()


def images(epoch, step, view):
    """The same few images in changing noise; without a moment, as a survey sees them."""
    plain = rand(ROWS, 5, key="images") + 3 * (torch.arange(ROWS) % K)[:, None]
    return plain if epoch is None else plain + 0.1 * rand(ROWS, 5, key=f"noise {epoch} {step} {view}")


def order(epoch):
    return torch.randperm(ROWS, generator=generator("order", epoch)).split(8)


def naive_run(name):
    """Warm-up, then the loop of one variant; returns the loss of every step and the last assignment."""
    backbone, method = make_backbone(), make_method(name)  # the method gives initial weights alone
    bottleneck, centres = method.bottleneck, method.centres
    with torch.no_grad():
        z = backbone(images(None, None, 0))
        start = principal(z, K)
        solution = torch.linalg.lstsq(torch.cat([z, torch.ones(ROWS, 1)], dim=1), start).solution
        bottleneck.weight.copy_(solution[:-1].T)  # ours: the authors leave both as they were drawn
        bottleneck.bias.copy_(solution[-1])
        centres.copy_(kmeans(start, K, Now(0, 0, EPOCHS).random("dtc")).centres)
        p = naive_target(naive_q(start, centres))
    optimizer = torch.optim.SGD([*backbone.parameters(), *bottleneck.parameters(), centres], 0.1, momentum=0.9)
    losses, Z = [], torch.zeros(ROWS, K, dtype=torch.float64)
    ema = torch.zeros_like(Z)

    def say(x):
        return naive_q(bottleneck(backbone(x)), centres)

    for epoch in range(EPOCHS):
        main, said = epoch - WARM_EPOCHS, torch.zeros_like(Z)
        for step, rows in enumerate(order(epoch)):
            q = say(images(epoch, step, 0)[rows])
            said[rows] = q.detach()
            loss = naive_divergence(q, p[rows])
            if main >= 0:
                w = TOP * math.exp(-5 * (1 - min((main + step / 3) / RISE, 1)) ** 2)
                if name == "pi":
                    loss = loss + w * naive_consistency(q, say(images(epoch, step, 1)[rows]))
                if name == "te":
                    loss = loss + w * naive_consistency(q, ema[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            whole = say(images(None, None, 0))
        if main < 0:
            p = naive_target(whole) if main == -1 else p
            continue
        if name in {"te", "tep"}:
            Z = 0.6 * Z + 0.4 * (said if name == "te" else whole)
            ema = Z / (1 - 0.6 ** (main + 1))
        if main % UPDATE == 0:
            p = naive_target(ema if name == "tep" else whole)
    return losses, whole


def run(name):
    """The same through the hooks."""
    backbone, method = make_backbone(), make_method(name)
    optimizer = torch.optim.SGD([*backbone.parameters(), *method.parameters()], 0.1, momentum=0.9)
    totals = []

    @torch.no_grad()
    def survey():
        return Survey(backbone(images(None, None, 0)), torch.full((ROWS,), -1))

    for epoch in range(EPOCHS):
        method.before_epoch(survey, Now(0, epoch, EPOCHS))
        for step, rows in enumerate(order(epoch)):
            now = Now(0, epoch, EPOCHS, step, 3)
            latents = [Latents(backbone(images(epoch, step, view)[rows])) for view in range(2)]
            batch = Batch([], torch.full((8,), -1), rows, {})
            loss = torch.stack(list(method(latents, batch, now).values())).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                method.after_step([Latents(v.z.detach()) for v in latents], batch, lambda view: None, now)
            totals.append(loss.item())
    return totals, method.logits(survey().features).detach().exp()


@every_variant
def test_a_run_through_the_hooks_is_the_authors_loop_sample_by_sample(name):
    (ours, q), (theirs, expected) = run(name), naive_run(name)
    assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-12)
    torch.testing.assert_close(q, expected, rtol=1e-7, atol=1e-9)


def test_the_four_variants_are_four_methods():
    ends = [run(name)[1] for name in VARIANTS]
    assert all((a - b).abs().max() > 1e-4 for i, a in enumerate(ends) for b in ends[:i])


# The ensemble


def test_the_ensemble_is_the_weighted_mean_of_all_that_was_said():
    ensemble, said = Ensemble(4, K).double(), {row: [] for row in range(4)}
    for visit in range(5):
        rows = torch.arange(4)[: 4 - visit % 3]  # some are seen less often than others
        q = rand(len(rows), K, key=f"visit {visit}").softmax(1)
        ensemble.absorb(q, rows)
        for row, saying in zip(rows.tolist(), q, strict=True):
            said[row].append(saying)
    mean = ensemble(torch.arange(4))
    for row, sayings in said.items():
        weights = [0.6**age for age in reversed(range(len(sayings)))]
        expected = sum(w * saying for w, saying in zip(weights, sayings, strict=True)) / sum(weights)
        torch.testing.assert_close(mean[row], expected, rtol=1e-12, atol=1e-12)


def test_the_ensemble_of_what_never_changes_is_that_from_the_first_visit_on():
    ensemble, q = Ensemble(3, K).double(), rand(2, K, key="q").softmax(1)
    for _ in range(4):
        ensemble.absorb(q, torch.tensor([2, 0]))
        torch.testing.assert_close(ensemble(torch.tensor([2, 0])), q, rtol=1e-12, atol=0)
    assert not ensemble(torch.tensor([1])).any()


# Before the epochs


def test_the_start_is_k_means_on_principal_components():
    method, survey = make_method("pi"), make_survey()
    now = Now(5, 0, EPOCHS)
    method.before_epoch(lambda: survey, now)
    x = principal(survey.features, K)
    centres = kmeans(x, K, now.random("dtc")).centres
    torch.testing.assert_close(method.centres, centres, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(method.targets, naive_target(naive_q(x, centres)), rtol=1e-10, atol=0)
    assert method.centres.requires_grad


def test_the_bottleneck_starts_at_the_principal_directions_of_the_unlabelled_images():
    labels = torch.full((ROWS,), -1)
    labels[::3] = 0  # labelled images would turn the directions
    features = torch.where(labels[:, None] < 0, 1.0, 10.0) * rand(ROWS, DIM, key="survey") + 100
    method, x = make_method("pi", make_problem(labelled=True)), features[labels < 0]
    method.before_epoch(lambda: Survey(features, labels), Now(5, 0, EPOCHS))
    torch.testing.assert_close(method.bottleneck(x), principal(x, K), rtol=1e-10, atol=1e-10)
    assert method.bottleneck.weight.requires_grad
    assert method.bottleneck.bias.requires_grad


def test_a_method_that_has_started_says_at_once_what_its_targets_sharpen():
    method, survey = make_method("pi"), make_survey()
    method.before_epoch(lambda: survey, Now(5, 0, EPOCHS))
    q = method.logits(survey.features).exp()
    torch.testing.assert_close(method.targets, naive_target(q.detach()), rtol=1e-10, atol=0)
    assert torch.equal(q.argmax(1), method.targets.argmax(1))


def test_only_the_start_sets_the_bottleneck():
    method = make_method("pi")
    for epoch in range(EPOCHS):
        before = method.bottleneck.weight.clone()
        method.before_epoch(make_survey, Now(0, epoch, EPOCHS))
        assert torch.equal(before, method.bottleneck.weight) == (epoch > 0)


@pytest.mark.parametrize(("name", "surveyed"), [("pi", [0, 2, 3, 6]), ("tep", [0, *range(2, EPOCHS)])])
def test_targets_are_made_anew_after_the_warm_up_and_after_every_third_epoch_from_its_first_on(name, surveyed):
    method, asked, renewed = make_method(name), set(), []

    def survey():
        asked.add(now.epoch)
        return make_survey()

    for epoch in range(EPOCHS):
        now, before = Now(0, epoch, EPOCHS), method.targets.clone()
        with torch.no_grad():
            method.bottleneck.bias += 0.1  # something was learnt
        method.before_epoch(survey, now)
        if not torch.equal(before, method.targets):
            renewed.append(epoch)
    assert renewed == [0, 2, 3, 6]
    assert sorted(asked) == surveyed


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 10, 16, 36, 49, 60, 110])
def test_runs_of_every_length_warm_up_then_renew_targets_after_the_first_epoch_and_at_intervals(epochs):
    problem, survey = make_problem(), make_survey()
    with seeded("dtc"):
        method = DTC(problem, Baseline(problem)).double()
    renewed = []
    for epoch in range(epochs):
        before = method.targets.clone()
        with torch.no_grad():
            method.bottleneck.bias += 0.1
        method.before_epoch(lambda: survey, Now(0, epoch, epochs))
        if not torch.equal(before, method.targets):
            renewed.append(epoch)
    main = max(1, math.ceil(epochs / 11))
    expected = [0, main, *range(main + 1, epochs, max(1, round(epochs * 5 / 110)))]
    assert renewed == [epoch for epoch in expected if epoch < epochs]
    assert method.warms_up(Now(0, 0, epochs))


# The losses


def started(name, epoch=0, **problem):
    method = make_method(name, make_problem(**problem))
    for e in range(epoch + 1):
        method.before_epoch(lambda: make_survey(method.problem.rows), Now(0, e, EPOCHS))
    return method


def make_batch(n=8, labels=None):
    latents = [Latents(rand(n, DIM, key=f"view {view}").requires_grad_()) for view in range(2)]
    rows = torch.randperm(ROWS, generator=generator("rows"))[:n]
    return latents, Batch([], torch.full((n,), -1) if labels is None else labels, rows, {})


@pytest.mark.parametrize("name", ["pi", "te"])
def test_consistency_is_0_in_the_warm_up_and_grows_to_its_top(name):
    latents, batch = make_batch()
    weights = []
    for epoch in range(EPOCHS):
        method = started(name)
        with torch.no_grad():
            loss = method(latents, batch, Now(0, epoch, EPOCHS))["consistency"].item()
            views = [method.logits(view.z).exp() for view in latents]
            weights.append(loss / method.variant(views, batch.rows)["consistency"].item())
    expected = [0, 0, *(TOP * math.exp(-5 * (1 - t / RISE) ** 2) for t in range(RISE)), TOP, TOP, TOP]
    assert weights == pytest.approx(expected)


def test_te_holds_unseen_images_to_zeros_and_seen_ones_to_what_was_said():
    method, now = started("te", WARM_EPOCHS), Now(0, WARM_EPOCHS, EPOCHS)
    latents, batch = make_batch()
    views = [method.logits(latents[0].z).exp()]
    squares = sum(value**2 for value in views[0].detach().flatten().tolist()) / views[0].numel()
    assert method.variant(views, batch.rows)["consistency"].item() == pytest.approx(squares)
    method(latents, batch, now)
    with torch.no_grad():
        method.after_step(latents, batch, lambda view: None, now)
    assert method.variant(views, batch.rows)["consistency"].item() == pytest.approx(0, abs=1e-20)
    others = torch.tensor([row for row in range(ROWS) if row not in batch.rows])
    assert not method.variant.ensemble(others).any()


def test_te_remembers_nothing_of_the_warm_up():
    method, now = started("te"), Now(0, 1, EPOCHS)
    latents, batch = make_batch()
    method(latents, batch, now)
    method.after_step(latents, batch, lambda view: None, now)
    assert not method.variant.ensemble.visits.any()


def test_tep_sharpens_the_ensemble_of_the_surveys():
    method, said = started("tep", WARM_EPOCHS), []
    for epoch in (3, 4, 5, 6):
        with torch.no_grad():
            method.bottleneck.bias += rand(K, key=f"learnt {epoch}")
            said.append(method.logits(make_survey().features).exp())
        method.before_epoch(make_survey, Now(0, epoch, EPOCHS))
    weights = [0.6**3, 0.6**2, 0.6, 1.0]
    mean = sum(w * q for w, q in zip(weights, said, strict=True)) / sum(weights)
    torch.testing.assert_close(method.targets, naive_target(mean), rtol=1e-10, atol=0)


@every_variant
def test_the_bottleneck_and_the_centres_learn_and_targets_do_not(name):
    method = started(name, WARM_EPOCHS)
    latents, batch = make_batch()
    torch.stack(list(method(latents, batch, Now(0, WARM_EPOCHS, EPOCHS)).values())).sum().backward()
    assert {n for n, p in method.named_parameters() if p.grad is not None and p.grad.any()} == {
        "bottleneck.weight",
        "bottleneck.bias",
        "centres",
    }
    assert latents[0].z.grad.any()
    assert (latents[1].z.grad is not None and bool(latents[1].z.grad.any())) == (name == "pi")


@pytest.mark.parametrize("name", ["baseline", "te", "tep"])
def test_one_view_is_enough_where_the_paper_has_one(name):
    method = started(name, WARM_EPOCHS)
    (first, _), batch = make_batch()
    assert all(loss.isfinite() for loss in method([first], batch, Now(0, WARM_EPOCHS, EPOCHS)).values())
    assert recipes[name].training.views == ("weak",)


def test_the_head_says_the_logarithm_of_the_assignment():
    method = started("pi")
    z = rand(7, DIM, key="z")
    torch.testing.assert_close(method.logits(z), naive_q(method.bottleneck(z), method.centres).log())


# Edges


def test_as_many_images_as_classes_have_one_class_each():
    method = started("pi", rows=K)
    assert sorted(method.targets.argmax(1).tolist()) == list(range(K))
    x = principal(make_survey(K).features, K)
    assert soft_assignment(x, method.centres).isfinite().all()  # each at its own centre


def test_fewer_images_than_classes_are_refused():
    with pytest.raises(ValueError, match="asked for 3 clusters of 2 points"):
        started("pi", rows=2)


def test_more_classes_than_dimensions_are_welcome():
    problem = Problem(dim=2, known=0, novel=5, labelled=False, rows=40)
    method = DTC(problem, PI(problem)).double()
    survey = Survey(rand(40, 2, key="flat"), torch.full((40,), -1))
    method.before_epoch(lambda: survey, Now(0, 0, EPOCHS))
    assert not method.centres[:, 2:].any()
    said = method.bottleneck(survey.features)
    torch.testing.assert_close(said[:, :2], principal(survey.features, 2), rtol=1e-10, atol=1e-10)
    assert not said[:, 2:].any()
    assert method.targets.sum(1).tolist() == pytest.approx([1.0] * 40)
    assert len(method.targets.argmax(1).unique()) == 5


@every_variant
@pytest.mark.parametrize("labelled", [0, 3, 8])
def test_labelled_rows_are_passed_over_where_they_take_part(name, labelled):
    labels = torch.full((8,), -1)
    labels[:labelled] = 1
    everything = torch.full((ROWS,), -1)
    everything[: ROWS // 2] = 0
    method, now = make_method(name, make_problem(labelled=True)), Now(0, 3, EPOCHS)
    for epoch in range(4):
        method.before_epoch(lambda: make_survey(labels=everything), now._replace(epoch=epoch))
    assert not method.targets[: ROWS // 2].any()
    assert method.targets[ROWS // 2 :].sum(1).tolist() == pytest.approx([1.0] * (ROWS // 2))

    latents, batch = make_batch(labels=labels)
    losses = method(latents, batch, now)
    torch.stack(list(losses.values())).sum().backward()
    assert not latents[0].z.grad[:labelled].any()
    kept = [Latents(view.z.detach()[labelled:]) for view in latents]
    alone = method(kept, Batch([], labels[labelled:], batch.rows[labelled:], {}), now)
    assert {n: loss.item() for n, loss in losses.items()} == pytest.approx(
        {n: loss.item() for n, loss in alone.items()}
    )
    assert batch.notes["dtc"].shape == (8, K)


def test_before_its_start_the_loss_is_0_with_a_gradient():
    latents, batch = make_batch()
    losses = make_method("pi")(latents, batch, Now(0, 0, EPOCHS))
    assert [loss.item() for loss in losses.values()] == [0, 0]
    torch.stack(list(losses.values())).sum().backward()
    assert latents[0].z.grad.isfinite().all()


def test_the_warm_up_makes_the_bottleneck_as_sure_as_k_means_targets():
    method, groups = make_method("pi"), torch.arange(ROWS) % K
    survey = Survey(
        4 * torch.eye(K, DIM, dtype=torch.float64)[groups] + rand(ROWS, DIM, key="x"), torch.full((ROWS,), -1)
    )
    now = Now(0, 0, EPOCHS)
    method.before_epoch(lambda: survey, now)
    batch, latents = Batch([], survey.labels, torch.arange(ROWS), {}), [Latents(survey.features)] * 2
    optimizer = torch.optim.SGD(method.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = method(latents, batch, now)["sharpening"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    said = method.logits(survey.features).argmax(1)
    assert torch.equal(said, method.targets.argmax(1))
    assert len({(int(a), int(b)) for a, b in zip(said, groups, strict=True)}) == K


def test_sharpening_targets_again_and_again_makes_them_sure():
    method = started("baseline")
    p = method.targets
    for _ in range(20):
        p = target_distribution(p)
    assert p.max(1).values.min() > 0.99


def test_the_recipes_train_as_the_authors_scripts_for_cifar_10():
    for name, recipe in recipes.items():
        training = recipe.training
        rates = [training.rate * training.schedule(Now(0, epoch, 110).progress) for epoch in range(110)]
        assert rates == pytest.approx([0.1] * 10 + [0.1 if name == "baseline" else 0.05] * 100)
        assert training.decay == (1e-4 if name == "pi" else 1e-5)
        assert (recipe.labelled, recipe.reading, recipe.stage_one) == ("unused", "head", ("supervised",))
