"""Rows and labels as people give them: in any units, under any names."""

import itertools
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from newfound.errors import InputError
from newfound.functional.names import count_names


def scales(X: np.ndarray) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
    """Mean and standard deviation of each feature, also where squares would be beyond floating point.

    A feature that does not change has its size, or 1, instead of a deviation. Powers of two are taken out, which
    changes no digit.
    """
    X = X.astype(np.float64)
    power = np.frexp(np.abs(X).max(0))[1]
    small = np.ldexp(X, -power)
    mean, deviation = small.mean(0), small.std(0)
    mean, deviation = np.ldexp(mean, power), np.where(deviation > 1e-12 * np.abs(mean), np.ldexp(deviation, power), 0.0)
    return mean, np.where(deviation > 0, deviation, np.maximum(1.0, np.abs(mean)))


def standardised(
    X: np.ndarray, mean: Float[np.ndarray, " features"], scale: Float[np.ndarray, " features"]
) -> Float[np.ndarray, "n features"]:
    """x̂ = (x − mean) / scale, where differences may be beyond floating point and x̂ is not."""
    power = np.frexp(scale)[1]
    with np.errstate(over="ignore", invalid="ignore"):  # what is too far for it is ∞
        return (np.ldexp(X.astype(np.float64), -power) - np.ldexp(mean, -power)) / np.ldexp(scale, -power)


def gathered(y: Any) -> Any:
    """Labels in a list, each as it is: numpy would make text of 1 beside "1", and round 2⁶³ beside −1."""
    if not isinstance(y, list | tuple) or any(isinstance(label, list | tuple | np.ndarray) for label in y):
        return y  # an array has its type, and scikit-learn speaks of columns
    labels = np.empty(len(y), dtype=object)
    labels[:] = y
    return labels


def numbered(y: np.ndarray) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """The known labels, sorted, and which of them each row has, −1 where unlabelled."""
    unlabelled = np.zeros(len(y), dtype=bool)
    if y.dtype.kind == "O":
        if any(label is None or label != label for label in y):
            raise InputError("y has None or NaN among its labels. Mark unlabelled rows with -1.")
        unlabelled = np.array([label == -1 for label in y], dtype=bool)  # while -1.0 among strings is not yet text
        y = plain(y)
    y = y if y.dtype.kind in "biufO" else y.astype(str)
    unlabelled |= y == ("-1" if y.dtype.kind == "U" else -1)
    known, places = np.unique(y[~unlabelled], return_inverse=True)
    labels = np.full(len(y), -1)
    labels[~unlabelled] = places
    return known, labels


def plain(y: np.ndarray) -> np.ndarray:
    """Labels that came as objects: whole numbers of any size, other numbers, or else text.

    Of labels that are text some may be numbers, but not 1 beside "1".
    """
    if all(isinstance(label, Integral) for label in y):
        return whole_numbers(y)
    if all(isinstance(label, Real) for label in y):
        return np.array(y.tolist())
    written: dict[str, Any] = {}
    for label in y:
        if written.setdefault(str(label), label) != label and label not in (-1, "-1"):
            raise InputError(
                f"y has both {written[str(label)]!r} and {label!r} among its labels, which would be one class or two. "
                "Write them in one way."
            )
    return np.array([*map(str, y)])


def whole_numbers(values: Iterable[Any]) -> np.ndarray:
    """Whole numbers in a type that numpy counts with, or as they are where there is none for all of them."""
    exact = [*map(int, values)]
    least, most = min(exact, default=0), max(exact, default=0)
    rooms = (np.iinfo(kind) for kind in (np.int64, np.uint64))
    fitting = (room.dtype for room in rooms if room.min <= least and most <= room.max)
    return np.array(exact, dtype=next(fitting, np.dtype(object)))


def named(known: np.ndarray, novel: int) -> np.ndarray:
    """The known labels, then names for new classes that none of them has."""
    if known.dtype.kind == "U":
        counted = itertools.islice(count_names(known.tolist()), novel)
        return np.concatenate([known, np.array([*counted], dtype=str)])
    taken = known.tolist()  # Python's numbers: in int8 there is nothing above 127
    first = max([-1, *taken]) + 1
    new = [first + number for number in range(novel)]
    if known.dtype.kind != "f":
        return whole_numbers([*taken, *new])
    if len({*taken, *new}) < len(taken) + len(new):
        raise InputError(
            f"y has the label {max(taken)}, beyond which floating point does not count: new classes would have no "
            "numbers of their own. Give known classes smaller labels, or text."
        )
    return np.array([*taken, *new], dtype=float)
