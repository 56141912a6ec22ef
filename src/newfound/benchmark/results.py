"""Files of results: a setting, and rows that are added as they are finished; what is done stays done."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from newfound import cache, files
from newfound.errors import InputError

Row = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    """The setting and the rows of a file; none where there is no file."""
    if not path.is_file():
        return {"setting": None, "rows": []}
    with _understanding(path):
        found = json.loads(path.read_text(encoding="utf-8"))
        return {"setting": dict(found["setting"]), "rows": [dict(row) for row in found["rows"]]}


def has(path: Path, values: Row, current: Callable[[Row], bool] = lambda row: True) -> bool:
    """Whether there is a row with these values that still counts."""
    return any(values.items() <= row.items() and current(row) for row in read(path)["rows"])


def add(
    path: Path,
    setting: dict[str, Any],
    rows: Iterable[Row],
    by: Sequence[str],
    *,
    current: Callable[[Row], bool] = lambda row: True,
    lines: bool = False,
) -> None:
    """Add those rows that are not there; the values called `by` tell rows apart. Another process may be adding some
    too. Rows that no longer count go. With `lines` each is one line of the file, in the order of `by`.
    """

    def own(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in by)

    with cache.lock(path.stem):
        kept = [row for row in read(path)["rows"] if current(row)]
        there = {own(row) for row in kept}
        kept += [row for row in rows if own(row) not in there]
        files.write(path, _in_lines(setting, sorted(kept, key=own)) if lines else _indented(setting, kept))


def check_setting(path: Path, setting: dict[str, Any], compare: Callable[[Row], Iterable[str]]) -> None:
    """Refuse a file that holds results of another setting. `compare` names what a row has otherwise than it would have
    now, and fails at a row that lacks something.
    """
    found, setting = read(path), json.loads(json.dumps(setting))
    with _understanding(path):
        differ = differing(found["setting"] or setting, setting)
        differ += [name for row in found["rows"] for name in compare(row)]
    if differ:
        raise InputError(
            f"{path} holds results of another setting ({', '.join(dict.fromkeys(differ))} differ). "
            "Move the file away, or write elsewhere with -o."
        )


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names under which two settings differ, those within a part behind its name."""
    names = []
    for name in sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)):
        parts = one.get(name), other.get(name)
        inside = differing(*parts) if all(isinstance(part, dict) for part in parts) else []  # type: ignore[arg-type]
        names += [f"{name}: {part}" for part in inside] or [name]
    return names


def _indented(setting: dict[str, Any], rows: list[Row]) -> str:
    return json.dumps({"setting": setting, "rows": rows}, indent=1, ensure_ascii=False) + "\n"


def _in_lines(setting: dict[str, Any], rows: list[Row]) -> str:
    lines = ",\n".join(f" {json.dumps(row, ensure_ascii=False)}" for row in rows)
    head = json.dumps(setting, indent=1, ensure_ascii=False).replace("\n", "\n ")
    return f'{{\n"setting": {head},\n"rows": [\n{lines}\n]\n}}\n'


@contextmanager
def _understanding(path: Path) -> Iterator[None]:
    """Say of a file that holds something else which one it is."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise InputError(
            f"{path} is no file of results that this version can add to ({type(error).__name__}: {error}). "
            "Move it away, or give another -o."
        ) from error
