"""Which images of a class are shown."""

import torch

from newfound.functional.exemplars import pick_examples
from newfound.types import generator


def test_examples_are_each_cluster_s_most_typical_sure_images_and_its_least_typical_without_duplicates():
    random = generator("examples")
    away, cluster, lone = torch.rand(80, generator=random), torch.arange(80) % 3, torch.rand(80, generator=random) < 0.7
    sure, expected = torch.rand(80, generator=random) < 0.5, set()
    for number in range(3):
        members = [row for row in range(80) if cluster[row] == number and lone[row]]
        members.sort(key=lambda row: away[row].item())
        expected |= {*[row for row in members if sure[row]][:4], *members[-2:]}
    assert pick_examples(away, cluster, lone, sure, 4, 2) == sorted(expected)


def test_of_few_images_each_is_an_example_once():
    away, lone = torch.tensor([0.3, 0.1, 0.2, 0.4]), torch.tensor([True, True, False, True])
    assert pick_examples(away, torch.tensor([0, 0, 0, 2]), lone, lone, 24, 6) == [0, 1, 3]
