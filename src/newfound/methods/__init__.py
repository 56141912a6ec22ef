"""One file, one paper. `METHODS` lists them; `a+b` adds one to another."""

from newfound.errors import InputError, choices
from newfound.methods import (
    anchored,
    dtc,
    dual,
    finetune,
    frost,
    frozen,
    icarl,
    joint,
    lwf,
    ncdwf,
    ncl,
    openmix,
    rs,
    simgcd,
    similarity,
    spacing,
    uno,
)
from newfound.methods.base import Recipe, Sum, chain
from newfound.types import Training

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
    "pairs:teacher": spacing.teacher_pairs,
    "spacing": spacing.recipes["swapped"],
    **{f"spacing:{name}": recipe for name, recipe in spacing.recipes.items()},
    "uno": uno.recipe,
    "dual": dual.recipe,
    "openmix": openmix.recipe,
    "joint": joint.recipe,
    "simgcd": simgcd.recipe,
    "finetune": finetune.recipe,
    "lwf": lwf.recipe,
    "frost": frost.recipe,
    "frozen": frozen.recipe,
    "ncdwf": ncdwf.recipe,
    "icarl": icarl.recipe,
    "anchored": anchored.recipe,
    "anchored:apart": anchored.apart,
}


def parse(name: str, *, weight: float | None = None, initial: float | None = None) -> Recipe:
    """The recipe of a name, such as `rs` or `pairs+spacing:author`: in `a+b` the host a comes first (`chain`).

    λ and v₀ of the Spacing in it, `weight` and `initial`, are those of its preset where none is given.
    """
    parts = name.split("+")
    check_sum(parts)
    recipes = [METHODS[part] for part in parts]
    if weight is None and initial is None:
        return chain(*recipes)
    if all(recipe.spacing is None for recipe in recipes):
        raise InputError(
            f"{name} was given a weight or an initial count, and has no Spacing that these are of. Leave them out, or "
            "add Spacing, as in pairs+spacing."
        )
    return chain(*(spacing.adjust(recipe, weight=weight, initial=initial) for recipe in recipes))


def check_sum(parts: list[str]) -> None:
    """Refuse names that are none, and sums that cannot be trained."""
    host, *others = parts
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
        raise InputError(f"{'+'.join(parts)} adds {len(others)} methods to {host}; add one.")


def suitable(*, labelled: bool | None = None, features: bool = False, apart: bool = True) -> str:
    """The names of all that suit (`Recipe.suits`), for messages; with those that discover `apart` or without."""
    able = (name for name, r in METHODS.items() if r.suits(labelled=labelled, features=features) and r.apart <= apart)
    return ", ".join(able)
