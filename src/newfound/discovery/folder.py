"""The folder of a run or of a model: who may write to it, how work in it goes on, and what is left when it is done."""

import itertools
import logging
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from newfound import files, parallel
from newfound.console import PrintableFormatter
from newfound.discovery.storage import CHECKPOINT, CONFIG, LOG, MODEL, RESULTS
from newfound.errors import InputError, shorten
from newfound.schema import damaged, needs

log = logging.getLogger("newfound")

TASKS = ("pretrain", "discover", "learn")
"""Whose settings `config.toml` may hold: one of these, which it names."""

PLACES = ("known", "weights", "run", "images")
"""Settings that say where something lies on this machine; those of a finished model, which may travel, forget them."""


@contextmanager
def working(
    output: str | Path | None, task: str, settings: dict[str, Any], *, overwrite: bool, resume: bool, note: str = ""
) -> Iterator[Path | None]:
    """Claim the folder, write `config.toml`, keep `log.txt`, and drop checkpoints when all is done. A `note` is said,
    and stands above the settings.
    """
    if output is None:
        if note:
            log.info(note)
        yield None
        return
    folder = Path(output)
    if not parallel.first():  # the first process speaks for all
        yield folder
        return
    refuse(output, task, settings, overwrite=overwrite, resume=resume)
    if overwrite:
        for old in (*folder.glob(f"*{CHECKPOINT}"), *(folder / name for name in RESULTS)):
            old.unlink(missing_ok=True)
    sweep(folder)
    above = "".join(f"# {line}\n" for line in note.splitlines())
    files.write(folder / CONFIG, above + tomli_w.dumps(config(task, settings)))
    handler = logging.FileHandler(folder / LOG, mode="a" if resume else "w", encoding="utf-8")
    handler.setFormatter(PrintableFormatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        if note:
            log.info(note)
        yield folder
    finally:
        log.removeHandler(handler)
        handler.close()
    finish(folder, task, settings)


def finished(output: str | Path | None, task: str, settings: dict[str, Any], *, last: str, resume: bool) -> Path | None:
    """The folder of a run that is to be resumed and has nothing left to do: the last of its files is there."""
    folder = None if output is None else Path(output)
    if not resume or folder is None or not (folder / last).is_file():
        return None
    log.info(f"The run in {folder} is finished already.")
    if parallel.first():  # whoever made it may have been stopped before all was put away
        sweep(folder)
        finish(folder, task, settings)
    return folder


def finish(folder: Path, task: str, settings: dict[str, Any]) -> None:
    """Let a finished model forget where it was made, and drop the checkpoints."""
    if is_model(folder):
        files.write(folder / CONFIG, _note(folder / CONFIG) + tomli_w.dumps(config(task, portable(settings))))
    for checkpoint in folder.glob(f"*{CHECKPOINT}"):
        checkpoint.unlink()


def _note(path: Path) -> str:
    """What stands above settings."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), lines))


def sweep(folder: Path) -> None:
    """Take away what writes that were cut off have left."""
    for place in (folder, folder / MODEL):
        files.clear_stale(place)


def refuse(output: str | Path | None, task: str, settings: dict[str, Any], *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that cannot be written in or holds something else, or a run that nobody asked to overwrite or
    resume.
    """
    if overwrite and resume:
        raise InputError("--overwrite begins anew, --resume goes on with what is there. Give one of the two.")
    if output is None or not parallel.first():
        return
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; the result needs a folder. Give another place with -o.")
    files.check_writable(folder)
    if overwrite or resume:
        sweep(folder)
    if not folder.exists() or all(files.TEMPORARY.fullmatch(path.name) for path in folder.iterdir()):
        return
    before = _written(folder)
    if before is None:
        raise InputError(f"{folder} holds other files; a run needs a folder of its own. Give another place with -o.")
    if overwrite:
        return
    if not resume:
        instead = " or replace it with --overwrite." if task == "learn" else ""  # which is never half done
        raise InputError(
            f"{folder} already holds a {'model' if is_model(folder) else 'run'}. Give another place with -o,"
            + (instead or " replace it with --overwrite, or go on with an interrupted one with --resume.")
        )
    ((was_task, was),), asked = before.items(), config(task, settings)[task]
    if is_model(folder):  # from wherever; one that was just finished still says where it was made
        was, asked = portable(was), portable(asked)
    if (was_task, was) != (task, asked):
        differs = sorted(key for key in was.keys() | asked.keys() if was.get(key) != asked.get(key))
        raise InputError(
            f"The run in {folder} had other settings ({', '.join(differs) or 'another command'}). "
            "Resume with the same ones (--config), or begin anew with --overwrite."
        )


def is_model(folder: Path) -> bool:
    """Whether a folder is a finished model's."""
    return (folder / "model.json").is_file()


def portable(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without what tells of the machine they were used on."""
    return {key: value for key, value in settings.items() if key not in PLACES}


def config(task: str, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What `config.toml` holds."""
    return {task: {key: value for key, value in settings.items() if value is not None}}


def _written(folder: Path) -> dict[str, dict[str, Any]] | None:
    """The settings of the run in a folder; None where it is no run's. Beside other files of ours they are damaged."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        ours = [isinstance(found.get(task), dict) for task in TASKS]
        needs(len(found) == sum(ours) == 1, "it", shorten([*found]), f"the settings of one of {', '.join(TASKS)}")
    except (OSError, ValueError, RecursionError) as error:
        if any((folder / name).exists() for name in (LOG, *RESULTS)):
            raise damaged(path, error, "Take it from a backup, or give another place with -o.") from error
        return None
    return found
