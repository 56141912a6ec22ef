"""Methods train as their papers say."""

import pytest

from newfound.methods import METHODS
from newfound.types import ALL

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
    **{name: (*STAGE_FOUR[:6], ("weak",), 1) for name in METHODS if name.startswith("spacing") and name not in OURS},
    **dict.fromkeys(OURS, (*STAGE_FOUR[:5], OUR_RATE, ("strong", "strong", "small", "small"), ALL)),
    "uno": (
        *(500, 512, 0.4, "sgd", 1.5e-4, f"warm_cosine(warm={10 / 500}, start={0.001 / 0.4}, end={0.001 / 0.4})"),
        *(("strong", "strong", "small", "small"), ALL),
    ),
    "dual": STAGE_FOUR,
    "openmix": STAGE_FOUR,
    "joint": (200, 256, 0.1, "sgd", 1e-4, "cosine", WEAK, ALL),
    **dict.fromkeys(
        ("finetune", "lwf", "frost", "icarl"),
        (300, 128, 0.1, "sgd", 1e-4, f"steps(at=({170 / 300},))", WEAK, 3),  # FRoST's
    ),
    "simgcd": (200, 128, 0.1, "sgd", 5e-5, "cosine(end=0.001)", WEAK, 1),
}
"""Epochs, batch, rate, optimiser, decay, schedule, views, stages that train: the papers' and their code's, CIFAR-10."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_method_trains_as_its_paper_says(name):
    training = METHODS[name].training.settings()
    keys = ("epochs", "batch", "rate", "optimiser", "decay", "schedule", "views", "trains")
    assert tuple(tuple(training[key]) if key == "views" else training[key] for key in keys) == PUBLISHED[name]
    assert training["few"] == 0
