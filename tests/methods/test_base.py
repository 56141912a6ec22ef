"""Recipes, alone and in a chain."""

from itertools import product

import pytest
import torch

from newfound.methods.base import Method, Own, Recipe, Sum, chain
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Problem, Training, constant, seeded

PROBLEM = Problem(16, 2, 3)


class Drawn(Method):
    """Something that is drawn when it is built."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size))

    def forward(self, latents, batch, now):
        return {}


def make_recipe(**other):
    usual = {
        "paper": "Doe",
        "build": lambda problem, model: Drawn(3),
        "labelled": "optional",
        "training": Training(epochs=5, batch=8, rate=0.1),
        "reading": "head",
    }
    return Recipe(**usual | other)


def make_model():
    return Model(SmallResNet(2, 2), 32, 3, tuple("ab"))


def test_a_chain_of_one_is_that_recipe():
    recipe = make_recipe()
    assert chain(recipe) is recipe


def test_in_a_chain_the_first_gives_training_and_start_and_the_last_the_reading():
    training = Training(epochs=7, batch=4, rate=0.3, views=("strong", "small"))
    own = Own(9, 0.01, constant)
    host = make_recipe(training=training, stage_one=("rotation", "supervised"), start="new", own=own, reading="head")
    both = chain(host, make_recipe(paper="Roe", reading="unit k-means", joins=True))
    assert (both.training, both.stage_one, both.start, both.own) == (training, host.stage_one, "new", own)
    assert both.reading == "unit k-means"
    assert both.paper == "Doe + Roe"
    assert not both.joins


@pytest.mark.parametrize(("one", "other"), [*product(("needed", "optional", "unused"), repeat=2)])
def test_a_chain_suits_where_all_of_it_do(one, other):
    parts = make_recipe(labelled=one), make_recipe(labelled=other)
    if {one, other} == {"needed", "unused"}:
        with pytest.raises(ValueError, match="needs labelled images and another cannot have them"):
            chain(*parts)
        return
    for labelled in (True, False, None):
        assert chain(*parts).suits(labelled=labelled) == all(part.suits(labelled=labelled) for part in parts)


@pytest.mark.parametrize("needs", [{}, {"pixels": True}, {"maps": True}, {"described": True}])
@pytest.mark.parametrize("place", [0, 1])
def test_a_chain_needs_what_any_of_it_needs(needs, place):
    parts = [make_recipe(), make_recipe()]
    parts[place] = make_recipe(**needs)
    both = chain(*parts)
    assert {"pixels": both.pixels, "maps": both.maps, "described": both.described} == {
        "pixels": False,
        "maps": False,
        "described": False,
    } | needs
    assert both.suits(features=True) == all(part.suits(features=True) for part in parts)


def test_a_chain_builds_the_sum_of_its_parts_in_their_order():
    sizes = (2, 5, 3)
    recipes = [make_recipe(build=lambda problem, model, size=size: Drawn(size)) for size in sizes]
    with seeded("chain"):
        built = chain(*recipes).build(PROBLEM, make_model())
    with seeded("chain"):
        model = make_model()
        apart = [recipe.build(PROBLEM, model) for recipe in recipes]
    assert isinstance(built, Sum)
    assert [len(part.weight) for part in built.methods] == [*sizes]
    assert all(torch.equal(part.weight, other.weight) for part, other in zip(built.methods, apart, strict=True))
