"""The methods that tests ask: all there are, each once, alone and with Spacing added."""

from newfound.methods import METHODS, parse


def distinct() -> list[str]:
    """Names of methods that train something; of several names of one recipe the first."""
    first: dict[int, str] = {}
    for name, recipe in METHODS.items():
        if recipe.training.epochs:
            first.setdefault(id(recipe), name)
    return [*first.values()]


def with_spacing() -> list[str]:
    """Those that Spacing can be added to, with it."""
    return [f"{name}+spacing" for name in distinct() if not METHODS[name].joins]


def staged(names: list[str]) -> list[tuple[str, bool]]:
    """Each with labelled images beside it and without, where it can."""
    return [(name, labelled) for name in names for labelled in (True, False) if parse(name).suits(labelled=labelled)]
