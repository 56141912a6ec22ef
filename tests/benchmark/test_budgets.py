"""What a benchmark may cost."""

import json
from dataclasses import replace

import pytest
import torch

from newfound import methods
from newfound.benchmark.budgets import BUDGETS
from newfound.data.pixels import PixelDataset
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.spacing.presets import PRESETS
from newfound.training.loop import Learner, fit
from newfound.types import ALL, Problem, generator, seeded

NAMES = list(methods.METHODS)


def summed_up(training):
    values = training.settings()
    return tuple(tuple(values[key]) if key == "views" else values[key] for key in values if key != "few")


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_budget_trains_as_published(name):
    assert BUDGETS["paper"].training(name) == methods.METHODS[name].training


def test_the_stages_before_discovery_are_the_authors_at_the_paper_budget():
    budget = BUDGETS["paper"]
    tenths = tuple(n / 10 for n in range(1, 10))
    assert summed_up(budget.rotation) == (
        *(200, 128, 0.1, "sgd", 5e-4, "steps(at=(0.3, 0.6, 0.8), factor=0.2)", ("weak",), ALL),
    )
    assert summed_up(budget.finishing) == (
        *(100, 128, 0.1, "sgd", 1e-4, f"steps(at={tenths}, factor=0.5)", ("weak",), 1),
    )
    assert summed_up(budget.supervised) == (
        *(200, 128, 0.1, "sgd", 1e-4, "steps(at=(0.15, 0.3, 0.45, 0.6, 0.75, 0.9))", ("weak",), ALL),
    )
    assert (budget.turns, budget.smoothing, budget.width, budget.stride) == (4, 0.0, 64, 1)
    assert budget.similarity.epochs == 50


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_of_hours_counts_in_half_of_the_digits_and_changes_nothing_else_that_is_published(name):
    published, ours = methods.METHODS[name].training, BUDGETS["hours"].training(name)
    kept = {name: getattr(published, name) for name in ("epochs", "batch", "rate", "precision")}
    assert replace(ours, **kept) == published
    assert ours.precision == ("bfloat16" if published.epochs else "full")


def test_the_host_of_a_sum_gives_the_training():
    for budget in BUDGETS.values():
        assert budget.training("ncl+spacing:author") == budget.training("ncl")


@pytest.mark.parametrize("budget", ["cpu", "smoke"])
@pytest.mark.parametrize("name", NAMES)
def test_a_small_budget_changes_epochs_batch_and_rate_alone(name, budget):
    published, small = methods.METHODS[name].training, BUDGETS[budget].training(name)
    assert replace(small, epochs=published.epochs, batch=published.batch, rate=published.rate) == published
    assert small.epochs <= published.epochs
    assert small.batch <= published.batch
    assert (small.epochs == 0) == (published.epochs == 0)


def test_a_budget_trains_nothing_longer_than_was_published(monkeypatch):
    recipe = methods.METHODS["rs"]
    monkeypatch.setitem(methods.METHODS, "brief", replace(recipe, training=replace(recipe.training, epochs=4)))
    assert [BUDGETS[name].training("brief").epochs for name in ("paper", "cpu", "smoke")] == [4, 4, 2]


def test_epochs_depend_on_how_much_of_the_network_learns():
    budget = replace(BUDGETS["smoke"], last=3, whole=5, fresh=7)
    kinds = {3: set(), 5: set(), 7: set()}
    for name, recipe in methods.METHODS.items():
        if recipe.training.epochs:
            kinds[budget.training(name).epochs].add(name)
    for name, recipe in methods.METHODS.items():
        assert (name in kinds[7]) == (recipe.start == "new")
        whole = recipe.training.trains == ALL or recipe.pixels
        assert (name in kinds[5]) == (whole and recipe.start == "model" and recipe.training.epochs > 0)
    assert {"kcl", "mcl", "joint"} <= kinds[7]
    assert {"rs", "ncl"} <= kinds[3]
    assert "uno" in kinds[5]


def test_the_rate_of_sgd_shrinks_with_the_batch_and_that_of_adam_does_not():
    budget = replace(BUDGETS["smoke"], batch=32, rate=None)
    for name, recipe in methods.METHODS.items():
        published, small = recipe.training, budget.training(name)
        if published.optimiser == "adam" or published.epochs == 0:
            assert small.rate == published.rate
        else:
            assert small.rate / published.rate == pytest.approx(small.batch / published.batch)


def test_a_rate_of_the_budget_is_for_methods_that_train_the_last_stage():
    budget = replace(BUDGETS["smoke"], rate=0.123)
    assert budget.training("rs").rate == 0.123
    assert budget.training("kcl").rate == methods.METHODS["kcl"].training.rate
    assert budget.training("uno").rate != 0.123


@pytest.mark.parametrize("name", BUDGETS)
def test_settings_are_values_that_json_can_hold(name):
    settings = BUDGETS[name].settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["supervised"] == BUDGETS[name].supervised.settings()
    assert settings["width"] == BUDGETS[name].width


def test_only_finishing_trains_a_part_of_the_network_before_discovery():
    for budget in BUDGETS.values():
        assert budget.finishing.trains == 1
        assert all(stage.trains == ALL for stage in (budget.supervised, budget.rotation, budget.similarity))


def test_the_weight_of_spacing_is_the_budgets_where_it_has_one_else_its_own():
    budget = replace(
        BUDGETS["smoke"], weights={"spacing:paper": 0.25, "spacing:aligned": 0.5, "ncl+spacing:paper": 0.75}
    )
    assert budget.weight("ncl+spacing:aligned") == budget.weight("spacing:aligned") == 0.5
    assert budget.weight("spacing:paper") == budget.weight("rs+spacing:paper") == 0.25
    assert budget.weight("ncl+spacing:paper") == 0.75
    assert budget.weight("rs+spacing:author") == PRESETS["author"]().weight
    assert budget.weight("ncl") is None


@pytest.mark.parametrize("name", sorted({name for budget in BUDGETS.values() for name in budget.weights}))
def test_a_weight_of_a_budget_is_of_a_method_with_spacing(name):
    assert methods.parse(name).spacing is not None


def test_a_step_at_the_paper_budget_runs_and_moves_the_last_stage():
    budget = BUDGETS["paper"]
    training = replace(budget.training("ncl+spacing"), epochs=1, batch=8)
    pixels = torch.randint(0, 256, (8, 3, 32, 32), generator=generator("cifar"), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 2, 3, -1, -1, -1, -1])
    with seeded("paper"):
        model = Model(SmallResNet(budget.width, budget.stride), 32, 3, tuple("abcde"))
        method = methods.parse("ncl+spacing").build(Problem(model.backbone.dim, 5, 3, rows=8), model)
    learner = Learner(model.backbone, method, training.trains)
    before = {name: value.clone() for name, value in model.backbone.named_parameters()}
    (row,) = fit(learner, PixelDataset(pixels, labels), training, seed=0, device="cpu")
    assert {"pairs", "cross-entropy", "neighbours", "spacing"} <= row.keys()
    moved = {name for name, value in model.backbone.named_parameters() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("stages.4.") for name in moved)
    assert sum(value.numel() for value in model.backbone.parameters()) == pytest.approx(11e6, rel=0.05)
