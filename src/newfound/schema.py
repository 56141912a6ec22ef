"""What a file must hold, said once and checked whole before anything of it is used.

A schema is a function that is given a value and where it stands, and raises `DamagedError` where the value does not
fit. Those of tensors name their axes: axes of one name are equally long.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from newfound.errors import InputError

Schema = Callable[[Any, str], None]

LARGEST = 2**30
"""Bytes of a JSON file, at most: as many as a million images could need."""

MOST = 2**53
"""A whole number that every reader of JSON can hold."""


class DamagedError(ValueError):
    """What is wrong, and where in the file."""


def needs(fits: bool, where: str, found: object, needed: str) -> None:
    """Refuse what does not fit."""
    if not fits:
        raise DamagedError(f"{where} is {str(found)[:60]!s}; needed: {needed}")


def text(value: Any, where: str) -> None:
    """A text that can be written."""
    needs(isinstance(value, str), where, value, "text")
    needs(value.isprintable() or value.encode(errors="replace").decode() == value, where, repr(value), "text")


def flag(value: Any, where: str) -> None:
    """True or false."""
    needs(isinstance(value, bool), where, value, "true or false")


def anything(value: Any, where: str) -> None:
    """What nobody reads."""


def number(least: float = -math.inf, most: float = math.inf) -> Schema:
    """A finite number from least to most."""

    def check(value: Any, where: str) -> None:
        real = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
        needs(real and least <= value <= most, where, value, f"a number from {least:g} to {most:g}")

    return check


def whole(least: int = 0, most: int = MOST) -> Schema:
    """A whole number from least to most."""

    def check(value: Any, where: str) -> None:
        needs(type(value) is int and least <= value <= most, where, value, f"a whole number from {least} to {most}")

    return check


def one_of(*words: Any) -> Schema:
    """One of these."""

    def check(value: Any, where: str) -> None:
        needs(type(value) in map(type, words) and value in words, where, value, " or ".join(map(repr, words)))

    return check


def maybe(inner: Schema) -> Schema:
    """The same, or null."""
    return lambda value, where: None if value is None else inner(value, where)


def each(inner: Schema, length: int | None = None, *, least: int = 0, distinct: bool = False) -> Schema:
    """A list of such, of this length or of so many at least, or with none twice."""

    def check(value: Any, where: str) -> None:
        needs(isinstance(value, list | tuple), where, value, "a list")
        needs(length in (None, len(value)), where, f"a list of {len(value)}", f"one of {length}")
        needs(len(value) >= least, where, f"a list of {len(value)}", f"one of {least} at least")
        for place, item in enumerate(value):
            inner(item, f"{where}[{place}]")
        needs(not distinct or len({*value}) == len(value), where, value, "each once")

    return check


def row(*inner: Schema) -> Schema:
    """A list of as many values, each of its own kind."""

    def check(value: Any, where: str) -> None:
        each(anything, len(inner))(value, where)
        for place, (one, item) in enumerate(zip(inner, value, strict=True)):
            one(item, f"{where}[{place}]")

    return check


def table(inner: Schema) -> Schema:
    """Any names, each with such a value."""

    def check(value: Any, where: str) -> None:
        needs(isinstance(value, dict), where, value, "names with values")
        for name, item in value.items():
            text(name, where)
            inner(item, f"{where}[{name!r}]")

    return check


def record(fields: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """These names, each with its own kind of value; others are left alone."""

    def check(value: Any, where: str) -> None:
        needs(isinstance(value, dict), where or "it", value, "names with values")
        for name, inner in fields.items():
            if name in value:
                inner(value[name], f"{where}.{name}" if where else name)
            else:
                needs(name in optional, where or "it", "without " + name, "all of it")

    return check


class TensorSpec(NamedTuple):
    """A tensor: its type, its axes by name, and for whole numbers from where to below which axis' length they go."""

    dtype: torch.dtype
    axes: tuple[str, ...]
    below: str | None = None
    distinct: bool = False


def check_tensors(tensors: Mapping[str, Tensor], schema: Mapping[str, TensorSpec], lengths: dict[str, int]) -> None:
    """Refuse tensors that are missing, of another type or of other lengths than `lengths` and each other, or that hold
    what cannot be. Whole numbers are never negative.
    """
    for name, (dtype, axes, below, distinct) in schema.items():
        needs(name in tensors, name, "not there", "a tensor")
        tensor = tensors[name]
        needs(tensor.dtype == dtype, name, tensor.dtype, str(dtype))
        needs(tensor.ndim == len(axes), name, f"a tensor of {tensor.ndim} axes", str(len(axes)))
        for axis, length in zip(axes, tensor.shape, strict=True):
            needs(lengths.setdefault(axis, length) == length, name, f"of {length} {axis}", str(lengths[axis]))
        check_finite(tensor, name)
        if not tensor.is_floating_point() and tensor.numel():
            top = lengths[below] - 1 if below else MOST
            needs(int(tensor.min()) >= 0 and int(tensor.max()) <= top, name, "out of range", f"numbers from 0 to {top}")
            needs(not distinct or len(tensor.unique()) == tensor.numel(), name, "doubled", "each number once")


def check_weights(weights: Mapping[str, Tensor], network: Mapping[str, Tensor], where: str = "") -> None:
    """Refuse weights that are not a network's own: of other names, types or lengths, or with variances below 0."""
    for name in sorted(weights.keys() | network.keys()):
        found, needed = (
            f"a tensor of {state[name].dtype} {tuple(state[name].shape)}" if name in state else "nothing"
            for state in (weights, network)
        )
        needs(found == needed, where + name, found, needed)
        check_finite(weights[name], where + name)
        variances = name.endswith("running_var") and weights[name].numel()
        needs(not variances or float(weights[name].min()) >= 0, where + name, "below 0", "variances")


def check_finite(tensor: Tensor, name: str, needed: str = "numbers") -> None:
    """Refuse NaN and ∞: the least and the largest number are one, if any is, and finding them takes no room."""
    finite = not tensor.is_floating_point() or not tensor.numel() or all(end.isfinite() for end in tensor.aminmax())
    needs(finite, name, "NaN or infinite", needed)


def read_json(path: Path, mend: str) -> dict[str, Any]:
    """An object of JSON without NaN, doubled names or bottomless depth; what is none is refused."""
    try:
        needs(path.stat().st_size <= LARGEST, "its size", path.stat().st_size, f"at most {LARGEST} bytes")
        value = parse_json(path.read_text(encoding="utf-8"))
        needs(isinstance(value, dict), "it", value, "names with values")
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error, mend) from error
    return value


def parse_json(text: str) -> Any:
    """What JSON says; ValueError where it says it badly."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        needs(len(dict(pairs)) == len(pairs), "a name", "there twice", "each once")
        return dict(pairs)

    def never(word: str) -> None:
        raise DamagedError(f"{word} is no number")

    return json.loads(text, object_pairs_hook=once, parse_constant=never)


def read_tensors(path: Path, mend: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and the words in its header; what is none is refused."""
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise damaged(path, error, mend) from error


def damaged(path: Path, error: BaseException, mend: str) -> InputError:
    """What is wrong with a file, where, and what to do."""
    told = str(error).strip().splitlines() or [type(error).__name__]
    return InputError(f"{path} is damaged: {told[0][:300]}. {mend}")
