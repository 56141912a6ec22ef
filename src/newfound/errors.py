"""What a person can mend."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class InputError(ValueError):
    """Something a person gave us cannot be used. Says what was found, what was needed, what to do."""


class NoRoomError(InputError):
    """A disk is full."""


def choices(word: object, possible: Iterable[str]) -> str:
    """The words that would have worked, for an error about one that does not; the nearest is named."""
    words = [*possible]
    near = difflib.get_close_matches(str(word), words, n=1)
    return f"There are: {', '.join(words)}." + (f" Did you mean {near[0]}?" if near else "")


def check_word(what: str, word: object, possible: Iterable[str]) -> None:
    """Refuse a word that is none of those that exist."""
    words = [*possible]
    if word not in words:
        raise InputError(f"There is no {what} called {word!r}. {choices(word, words)}")


def is_text(name: str) -> bool:
    """Whether a name of the file system is text, and can be written down; others hold bytes that are none."""
    return not any("\ud800" <= sign <= "\udfff" for sign in name)


def check_name(place: Path, instead: str) -> None:
    """Refuse a place whose name is no text: it could be neither written down nor read back."""
    if not is_text(name := str(place.absolute())):
        raise InputError(f"The name {name!r} is not valid text. Needed: names in UTF-8 all the way. {instead}")


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 image, 2 images."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def sized(size: float) -> str:
    """A number of bytes in the unit that people read it in: 0 bytes, 1.5 MiB."""
    if size < 1024:
        return counted(round(size), "byte")
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            break
    return f"{size:.1f} {unit}"


def shorten(items: Iterable[str]) -> str:
    """The first three, and how many more there are."""
    items = list(items)
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
