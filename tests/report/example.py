"""A page of made-up classes, as small or as hostile as a test wants it."""

import numpy as np

from newfound.report.page import Exemplar, FoundClass, Page

HOSTILE = '"><script>alert(\'1\')</script></script>\n<a href="https://evil.example/">&amp; %{x}</a> 海星 نجم.png'


def exemplar(name: str, confidence: float = 0.5, shape: tuple[int, int, int] = (28, 28, 1)) -> Exemplar:
    pixels = np.random.default_rng(len(name)).integers(0, 256, shape, dtype=np.uint8)
    return Exemplar(name, pixels, confidence)


def found(name: str, size: int = 100, truth: dict[str, int] | None = None) -> FoundClass:
    typical = [exemplar(f"{name}-{i}.png", 0.91) for i in range(3)]
    return FoundClass(name, size, 0.62, typical, [exemplar(f"{name}-odd.png", 0.13)], truth)


def example(classes: int = 3, points: int = 60, **more) -> Page:
    """A page with a map, and no more on it than is asked for."""
    places = np.random.default_rng(0).normal(size=(points, 2))
    assignments = np.arange(points) % classes
    return Page(
        title="New kinds in the trawl",
        lead="Some kinds were found.",
        classes=[found(f"new-{i + 1}") for i in range(classes)],
        points=places + 5 * assignments[:, None],
        assignments=assignments,
        captions=[f"photo-{i}.png" for i in range(points)],
        **more,
    )


def full(word: str) -> Page:
    """A page with everything on it, every word of which is the same."""
    return Page(
        title=word,
        lead=word,
        classes=[FoundClass(word, 1, 0.5, [exemplar(word)], [exemplar(word)], {word: 1})],
        points=np.zeros((1, 2)),
        assignments=np.zeros(1, int),
        captions=[word],
        curves={word: [1.0]},
        rehearsal=word,
        rehearsed={word: [(word, 0.5, True)]},
        expected=word,
        metrics={word: 0.5},
        measured=word,
        comparison=[(word, 0.5, 0.5)],
        facts={"command": word, word: word},
        skipped=[word],
    )
