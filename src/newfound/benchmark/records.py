"""The file that holds the rows of a sequence: each is added as it is finished, and what is done stays done."""

import json
from pathlib import Path
from typing import Any

from newfound import cache, files
from newfound.benchmark.run import differing
from newfound.benchmark.sequences import Sequence
from newfound.errors import InputError


def read(path: Path) -> dict[str, Any]:
    """The setting and the rows of a file of results; none where there is no file."""
    if not path.is_file():
        return {"setting": None, "rows": []}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        for row in found["rows"]:
            _ = (
                row["method"],
                row["seed"],
                row["training"],
                row["groups"],
                row["last"]["all"],
                row["forgetting"]["mean"],
            )
        return {"setting": dict(found["setting"]), "rows": list(found["rows"])}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(
            f"{path} is no file of results that this version can add to ({type(error).__name__}: {error}). Move it "
            "away, or give another -o."
        ) from error


def check_results(which: Sequence, found: dict[str, Any]) -> None:
    """Refuse results of another setting."""
    setting = json.loads(json.dumps(which.setting()))
    differ = differing(found["setting"] or setting, setting)
    differ += [
        f"training of {row['method']}"
        for row in found["rows"]
        if row["training"] != which.training(row["method"]).settings()
    ]
    if differ:
        raise InputError(
            f"{which.name}.json holds results of another setting ({', '.join(dict.fromkeys(differ))} differ). Move the "
            "file away, or write elsewhere with -o."
        )


def has(path: Path, name: str, seed: int) -> bool:
    """Whether this row is done."""
    return any(row["method"] == name and row["seed"] == seed for row in read(path)["rows"])


def add(path: Path, row: dict[str, Any], which: Sequence) -> None:
    """Add a row, if it is not there; another process may be adding one too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with cache.lock(path.stem):
        if not has(path, row["method"], row["seed"]):
            rows = [*read(path)["rows"], row]
            text = json.dumps({"setting": which.setting(), "rows": rows}, indent=1, ensure_ascii=False)
            files.write(path, text + "\n")
