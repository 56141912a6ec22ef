"""What a person can mend."""

import difflib
from collections.abc import Iterable


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
