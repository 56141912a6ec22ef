"""One file, one paper. `METHODS` lists them; `a+b` adds one to another."""

from newfound.errors import InputError, choices
from newfound.methods import dtc, dual, joint, ncl, openmix, rs, simgcd, similarity, spacing, uno
from newfound.methods.base import Method, Recipe, Sum
from newfound.networks.model import Model
from newfound.types import Problem, Training

kmeans = Recipe(
    "the baseline",
    lambda problem, model: Sum(),
    "optional",
    Training(epochs=0, batch=128, rate=0.0),
    "k-means",
    stage_one=("rotation", "supervised"),
)

METHODS: dict[str, Recipe] = {
    "kmeans": kmeans,
    "kcl": similarity.kcl,
    "mcl": similarity.mcl,
    "dtc": dtc.recipes["pi"],
    **{f"dtc:{name}": recipe for name, recipe in dtc.recipes.items()},
    "rs": rs.recipe,
    "rs-il": rs.incremental,
    "ncl": ncl.recipe,
    "ncl:plain": ncl.plain,
    "ncl:author": ncl.author,
    "pairs": spacing.pairs,
    "pairs:teacher": spacing.taught_pairs,
    "spacing": spacing.recipes["swapped"],
    **{f"spacing:{name}": recipe for name, recipe in spacing.recipes.items()},
    "uno": uno.recipe,
    "dual": dual.recipe,
    "openmix": openmix.recipe,
    "joint": joint.recipe,
    "simgcd": simgcd.recipe,
}


def parse(name: str) -> list[Recipe]:
    """The recipes of `a+b+…`; the host comes first, and gives training and views."""
    host, *others = parts = name.split("+")
    for part in parts:
        if part not in METHODS:
            raise InputError(f"There is no method called {part!r}. {choices(part, METHODS)} Add one to another with +.")
    for part in others:
        if not METHODS[part].joins:
            able = ", ".join(other for other, recipe in METHODS.items() if recipe.joins)
            raise InputError(f"{part} has a head of its own and cannot be added to another method. What can: {able}.")
    if others and (METHODS[host].joins or METHODS[host].training.epochs == 0):
        why = (
            "comes after the method it is added to" if METHODS[host].joins else "trains nothing that could be added to"
        )
        raise InputError(f"{host} {why}. A sum is written like pairs+spacing.")
    if len(others) > 1:
        raise InputError(f"{name} adds {len(others)} methods to {host}; add one.")
    return [METHODS[part] for part in parts]


def suitable(*, labelled: bool | None = None, features: bool = False) -> str:
    """The names of all that suit (`Recipe.suits`), for messages."""
    return ", ".join(name for name, r in METHODS.items() if r.suits(labelled=labelled, features=features))


def build(name: str, problem: Problem, model: Model) -> Method:
    """A method from its name, such as `pairs+spacing:author`."""
    parts = [recipe.build(problem, model) for recipe in parse(name)]
    return parts[0] if len(parts) == 1 else Sum(*parts)
