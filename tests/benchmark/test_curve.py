"""How good a run was on its way."""

import torch
import torch.nn.functional as F

from newfound.benchmark.curve import Curve, against_minutes, draw
from newfound.functional.metrics import accuracy, nmi
from newfound.types import Now, Survey, generator

TRUTH = torch.arange(60) % 3


def heaps(noise):
    """Three heaps of latents, and two labelled rows before them."""
    z = F.one_hot(TRUTH, 4) + noise * torch.randn(60, 4, generator=generator("curve"))
    return Survey(torch.cat([torch.ones(2, 4), z]), torch.cat([torch.tensor([0, 1]), torch.full((60,), -1)]))


def run(points, epochs, noise=0.0):
    curve, looked = Curve(60, 3, points), []
    for epoch in range(epochs):
        curve.before_epoch(lambda epoch=epoch: looked.append(epoch) or heaps(noise), Now(0, epoch, epochs))
    return curve, looked


def test_the_images_are_looked_at_as_often_as_there_are_points_at_equal_shares_of_the_run():
    assert run(4, 8)[1] == [0, 2, 4, 6]
    assert run(4, 10)[1] == [0, 3, 5, 8]


def test_a_run_shorter_than_its_points_has_one_an_epoch():
    curve, looked = run(4, 2)
    assert looked == [0, 1]
    assert [row["epoch"] for row in draw(curve, TRUTH, 0.0, [1.0, 1.0])] == [0, 1]


def test_it_measures_unlabelled_images_and_counts_the_minutes_that_were_over():
    curve, _ = run(2, 4, noise=0.8)
    first, second = draw(curve, TRUTH, 120.0, [60.0, 30.0, 30.0, 60.0])
    assert (first["epoch"], first["minutes"]) == (0, 2.0)
    assert (second["epoch"], second["minutes"]) == (2, 3.5)
    assert first["accuracy"] == accuracy(TRUTH, curve.found[0]) < 1
    assert second["nmi"] == nmi(TRUTH, curve.found[1]) < 1
    assert [row["accuracy"] for row in draw(run(2, 4)[0], TRUTH, 0.0, [0.0] * 4)] == [1.0, 1.0]


def test_it_is_kept_with_a_run_that_is_interrupted():
    curve, again = run(4, 8, noise=0.5)[0], Curve(60, 3, 4)
    again.load_state_dict(curve.state_dict())
    assert draw(again, TRUTH, 0.0, [1.0] * 8) == draw(curve, TRUTH, 0.0, [1.0] * 8)


def test_a_figure_shows_a_row_from_stage_one_to_its_last_epoch_and_no_row_without_points():
    points = [{"epoch": 0, "minutes": 2.0, "accuracy": 0.5, "nmi": 0.1}]
    row = {"method": "uno", "seconds": 180.0, "stage one seconds": 120.0}
    row |= {"train": {"unit k-means": {"accuracy": 0.9}}, "curve": points}
    other = {name: value for name, value in row.items() if name != "curve"}
    assert against_minutes([row, other], {"uno": "UNO"}) == [("UNO", (2.0, 5.0), (0.5, 0.9))]
