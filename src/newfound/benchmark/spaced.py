"""Methods with Spacing in them: which preset, on which host, with which λ."""

from dataclasses import replace

from newfound import methods
from newfound.methods.base import Method
from newfound.methods.spacing import recipes, spacing_of
from newfound.networks.model import Model
from newfound.types import Problem


def preset_of(name: str) -> str | None:
    """The preset of Spacing in a method, where there is one: `dcn` of `pairs+spacing:dcn`."""
    parts = methods.parse(name)
    return next((preset for preset, recipe in recipes.items() if recipe in parts), None)


def host_of(name: str) -> str | None:
    """The method that Spacing was added to, where it was: `pairs` of `pairs+spacing:dcn`."""
    host, added, _ = name.rpartition("+")
    return host if added and preset_of(name) else None


def build(name: str, weight: float | None, problem: Problem, model: Model) -> Method:
    """A method from its name, the Spacing in it with this λ."""
    method = methods.build(name, problem, model)
    if weight is not None:
        loss = spacing_of(method)
        assert loss is not None
        loss.preset = replace(loss.preset, weight=weight)
    return method
