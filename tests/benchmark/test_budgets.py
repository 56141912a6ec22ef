"""What a benchmark may cost."""

import json
from dataclasses import replace

import pytest
import torch

from newfound import methods
from newfound.benchmark.budgets import BUDGETS
from newfound.data.batches import Data
from newfound.methods.spacing_loss import PRESETS
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, fit
from newfound.types import ALL, Problem, generator, seeded

NAMES = list(methods.METHODS)


WEAK = ("weak", "weak")
STAGE_FOUR = (200, 128, 0.1, "sgd", 1e-4, "steps(at=(0.85,))", WEAK, 1)
OURS = ("spacing", "spacing:swapped", "spacing:unanchored")
OUR_RATE = "warm_cosine(warm=0.1, start=0.01, end=0.01)"
PUBLISHED = {
    "kcl": (150, 100, 1e-3, "adam", 0.0, f"steps(at=({100 / 150},))", ("weak",), ALL),
    "mcl": (150, 100, 1e-3, "adam", 0.0, f"steps(at=({100 / 150},))", ("weak",), ALL),
    "dtc:baseline": (110, 128, 0.1, "sgd", 1e-5, "constant", ("weak",), ALL),
    "dtc:pi": (110, 128, 0.1, "sgd", 1e-4, f"steps(at=({10 / 110},), factor=0.5)", WEAK, ALL),
    "dtc:te": (110, 128, 0.1, "sgd", 1e-5, f"steps(at=({10 / 110},), factor=0.5)", ("weak",), ALL),
    "dtc:tep": (110, 128, 0.1, "sgd", 1e-5, f"steps(at=({10 / 110},), factor=0.5)", ("weak",), ALL),
    "rs": STAGE_FOUR,
    "rs-il": STAGE_FOUR,
    "ncl": STAGE_FOUR,
    "ncl:plain": STAGE_FOUR,
    "ncl:author": (50, 512, 0.1, "sgd", 1e-4, "steps(at=(0.6,))", WEAK, 1),
    "pairs": STAGE_FOUR,
    "pairs:teacher": STAGE_FOUR,
    **{name: (*STAGE_FOUR[:6], ("weak",), 1) for name in NAMES if name.startswith("spacing") and name not in OURS},
    **dict.fromkeys(OURS, (*STAGE_FOUR[:5], OUR_RATE, ("strong", "strong", "small", "small"), ALL)),
    "uno": (
        *(500, 512, 0.4, "sgd", 1.5e-4, f"warm_cosine(warm={10 / 500}, start={0.001 / 0.4}, end={0.001 / 0.4})"),
        *(("strong", "strong", "small", "small"), ALL),
    ),
    "dual": STAGE_FOUR,
    "openmix": STAGE_FOUR,
    "joint": (200, 256, 0.1, "sgd", 1e-4, "cosine", WEAK, ALL),
    "simgcd": (200, 128, 0.1, "sgd", 5e-5, "cosine(end=0.001)", WEAK, 1),
}
"""Epochs, batch, rate, optimiser, decay, schedule, views, stages that train: the papers' and their code's, CIFAR-10."""


def summed_up(training):
    values = training.settings()
    return tuple(tuple(values[key]) if key == "views" else values[key] for key in values if key != "few")


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_paper_budget_trains_as_published(name):
    assert summed_up(BUDGETS["paper"].training(name)) == PUBLISHED[name]


def test_every_method_is_in_the_table_of_what_was_published():
    assert {*PUBLISHED, "kmeans", "dtc"} == {*NAMES}
    assert methods.METHODS["dtc"] is methods.METHODS["dtc:pi"]


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
    assert (small.epochs == 0) == (name == "kmeans")


def test_epochs_depend_on_how_much_of_the_network_learns():
    budget = replace(BUDGETS["smoke"], last=3, whole=5, fresh=7)
    kinds = {3: set(), 5: set(), 7: set()}
    for name, recipe in methods.METHODS.items():
        if recipe.training.epochs:
            kinds[budget.training(name).epochs].add(name)
    assert kinds[7] == {"kcl", "mcl", "joint"}
    for name in kinds[3] | kinds[5]:
        recipe = methods.METHODS[name]
        assert (name in kinds[5]) == (recipe.training.trains == ALL or recipe.pixels)
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


def test_the_weight_of_a_preset_is_the_budgets_where_it_has_one_else_its_own():
    budget = replace(BUDGETS["smoke"], weights={"paper": 0.25, "aligned": 0.5})
    assert budget.weight("ncl+spacing:aligned") == budget.weight("spacing:aligned") == 0.5
    assert budget.weight("spacing:paper") == 0.25
    assert budget.weight("rs+spacing:author") == PRESETS["author"]().weight
    assert budget.weight("ncl") is None


def test_a_step_at_the_paper_budget_runs_and_moves_the_last_stage():
    budget = BUDGETS["paper"]
    training = replace(budget.training("ncl+spacing"), epochs=1, batch=8)
    pixels = torch.randint(0, 256, (8, 3, 32, 32), generator=generator("cifar"), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 2, 3, -1, -1, -1, -1])
    with seeded("paper"):
        model = Model(SmallResNet(budget.width, budget.stride), 32, 3, tuple("abcde"))
        method = methods.build("ncl+spacing", Problem(model.backbone.dim, 5, 3, rows=8), model)
    learner = Learner(model.backbone, method, training.trains)
    before = {name: value.clone() for name, value in model.backbone.named_parameters()}
    (row,) = fit(learner, Data(pixels, labels), training, seed=0, device="cpu")
    assert {"pairs", "cross-entropy", "neighbours", "spacing"} <= row.keys()
    moved = {name for name, value in model.backbone.named_parameters() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("stages.4.") for name in moved)
    assert sum(value.numel() for value in model.backbone.parameters()) == pytest.approx(11e6, rel=0.05)
