"""The scores of a discovery in every reading."""

from dataclasses import replace

import pytest
import torch

from newfound.discovery.find import find
from newfound.discovery.scoring import score_discovery, score_features, table_rows
from newfound.discovery.settings import Run
from newfound.encoders.reading import read
from newfound.functional.metrics import accuracy, scores
from newfound.types import generator
from tests.discovery.test_find import UNLABELLED, make_model

TRUTH = torch.arange(len(UNLABELLED)) % 3


@pytest.fixture(scope="module")
def found():
    return find(make_model("one"), UNLABELLED, 3, run=Run(method="spacing", epochs=1, batch=8, device="cpu"))


def test_features_are_read_as_they_are_and_by_direction():
    x = torch.randn(len(TRUTH), 4, generator=generator("features")) + 2 * torch.eye(3, 4)[TRUTH]
    x *= torch.rand(len(TRUTH), 1, generator=generator("lengths")) ** 2
    said = score_features(x, TRUTH, 3, seed=2)
    unit = torch.stack([row / row.norm() for row in x])
    assert said["k-means"] == scores(TRUTH, read(x, 3, None, 2).assignment, 3)
    assert said["unit k-means"] == scores(TRUTH, read(unit, 3, None, 2).assignment, 3)
    assert said["k-means"] != said["unit k-means"]


def test_where_a_method_has_prototypes_the_nearest_one_is_a_reading_too(found):
    said, last = score_discovery(found, TRUTH, 3, seed=2), found.moments[1]
    assert said.keys() == {"k-means", "unit k-means", "prototypes"}
    naive = [min(range(3), key=lambda k: (z - last.prototypes[k]).norm().item()) for z in last.spaced]
    assert said["prototypes"]["accuracy"] == accuracy(TRUTH, torch.tensor(naive))
    assert {name: said[name] for name in ("k-means", "unit k-means")} == score_features(found.features, TRUTH, 3, 2)


def test_without_prototypes_or_with_some_images_alone_there_is_no_such_reading(found):
    first, last = found.moments
    some = replace(last, rows=last.rows[:5], spaced=last.spaced[:5], latents=last.latents[:5])
    for moments in (None, (first, some), (first, replace(last, spaced=None, prototypes=None))):
        assert "prototypes" not in score_discovery(replace(found, moments=moments), TRUTH, 3, seed=2)


def test_a_table_has_a_row_for_each_reading_with_numbers_rounded():
    said = {"one": {"accuracy": 0.123456, "nmi normaliser": "arithmetic"}, "two": {"accuracy": 1.0}}
    assert table_rows("uno", 3, 1.26, said) == [
        {"method": "uno", "seed": 3, "reading": "one", "seconds": 1.3, "accuracy": 0.1235},
        {"method": "uno", "seed": 3, "reading": "two", "seconds": 1.3, "accuracy": 1.0},
    ]
