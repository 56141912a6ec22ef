"""One file, one paper. `METHODS` lists them; `a+b` adds one to another."""

from newfound.errors import InputError
from newfound.methods import spacing
from newfound.methods.base import Method, Recipe, Sum
from newfound.networks.model import Model
from newfound.types import Problem, Training

METHODS: dict[str, Recipe] = {
    "kmeans": Recipe(
        "the baseline", lambda problem, model: Sum(), "unused", Training(epochs=0, batch=128, rate=0.0), "k-means"
    ),
    "pairs": spacing.pairs,
    "spacing": spacing.recipes["aligned"],
} | {f"spacing:{name}": recipe for name, recipe in spacing.recipes.items()}


def parse(name: str) -> list[Recipe]:
    """The recipes of `a+b+…`; the host comes first, and gives training and views."""
    unknown = [part for part in name.split("+") if part not in METHODS]
    if unknown:
        raise InputError(
            f"There is no method called {unknown[0]!r}. There are: {', '.join(METHODS)}; add one to another with +."
        )
    return [METHODS[part] for part in name.split("+")]


def build(name: str, problem: Problem, model: Model) -> Method:
    """A method from its name, such as `pairs+spacing:author`."""
    parts = [recipe.build(problem, model) for recipe in parse(name)]
    return parts[0] if len(parts) == 1 else Sum(*parts)
