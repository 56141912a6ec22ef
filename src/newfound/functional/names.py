"""What new classes are called before anybody names them: new-1, new-2, …"""

import itertools
import re
from collections.abc import Container, Iterator


def count_names(taken: Container[str]) -> Iterator[str]:
    """new-1, new-2, … without end, but for the names that are taken."""
    return (name for number in itertools.count(1) if (name := f"new-{number}") not in taken)


def is_counted(name: str) -> bool:
    """Whether a name was given by counting; else somebody chose it."""
    return re.fullmatch(r"new-\d+", name) is not None
