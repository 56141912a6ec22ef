"""What a person should see of a discovery, and the one HTML file that shows it.

Long, for its sections are read together with the values that they show.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy import ndarray
from plotly.offline import get_plotlyjs

from newfound.report.figures import colours, curve, scatter, thumbnail


@dataclass(frozen=True, eq=False)
class Exemplar:
    """One image of a class. It equals itself alone: two boxes of a picture may share a name, and be of one class."""

    name: str
    pixels: UInt8[ndarray, "h w c"]  # c is 1 or 3
    confidence: float | None = None  # the chance that its class is right; None of an image that is labelled


@dataclass(frozen=True)
class FoundClass:
    """One class."""

    name: str
    size: int  # images that are of it for sure
    coherence: float  # mean confidence
    exemplars: list[Exemplar]  # most typical first
    doubtful: list[Exemplar]  # least typical first
    truth: dict[str, int] | None = None  # true class → images; None where the truth is not known
    unsure: int = 0  # images that would be of it if they had to be of any
    outliers: int = 0  # images that fit no class, and this one best
    known: bool = False  # whether it was known before
    number: int = 0  # what tables call it by; 0: nothing
    nearest: str = ""  # of a new class, the known one that lies nearest
    references: list[Exemplar] = field(default_factory=list)  # labelled images of it, or of the nearest known class


@dataclass(frozen=True)
class Page:
    """All that the page shows. What is empty or None leaves no trace on it."""

    title: str
    lead: str  # one sentence: what was found
    classes: list[FoundClass]
    warnings: list[str] = field(default_factory=list)  # sentences: why little of it should be believed
    notes: list[str] = field(default_factory=list)  # sentences about classes that are not shown
    points: Float[ndarray, "n 2"] = field(default_factory=lambda: np.zeros((0, 2)))
    assignments: Int[ndarray, " n"] = field(default_factory=lambda: np.zeros(0, int))  # places in `classes`
    captions: list[str] = field(default_factory=list)  # one per point
    curves: dict[str, list[float]] = field(default_factory=dict)  # one value per epoch
    counting: dict[str, list[float]] = field(default_factory=dict)  # one value per number of classes that was tried
    tried: list[int] = field(default_factory=list)  # these numbers
    chosen: int = 0  # the number that was taken, where it was estimated
    reason: str = ""  # one sentence: why
    rehearsal: str = ""  # one sentence: on which known classes ways were tried
    rehearsed: dict[str, list[tuple[str, float, bool]]] = field(default_factory=dict)
    """Below each heading: way, mean accuracy, whether it was taken."""
    expected: str = ""  # the accuracy that it lets expect
    metrics: dict[str, float] | None = None  # only where the truth is known
    measured: str = ""  # one sentence: on which images, against what
    comparison: list[tuple[str, float, float]] = field(default_factory=list)  # method, accuracy, NMI
    facts: dict[str, str] = field(default_factory=dict)  # "command" is set apart
    skipped: list[str] = field(default_factory=list)  # files that could not be used

    @property
    def images(self) -> int:
        """How many images are in the classes."""
        return sum(found.size + found.unsure + found.outliers for found in self.classes)


MEANINGS = {
    "accuracy": "Share of images in the right class, after the best one-to-one match of found and true classes.",
    "macro accuracy": "The same with every true class counting alike, however few its images.",
    "nmi": "Normalised mutual information of found and true classes: 0 is unrelated, 1 is the same grouping.",
    "ari": "Adjusted Rand index, agreement over pairs of images: 0 is what chance gives, 1 is the same grouping.",
    "known accuracy": "Accuracy on images of known classes, by the same match.",
    "novel accuracy": "Accuracy on images of new classes, by the same match.",
    "named accuracy": "Share of images in the right class, where known classes must be called by their own names.",
    "unsure": "Share of images that are called unsure.",
    "outlier": "Share of images that are said to fit no class.",
    "sure accuracy": "Accuracy on the other images.",
    "balance": "How even the found classes are in size: 1 is all of one size, 0 is everything in one class.",
}
"""What a metric says, for somebody who meets it here first."""

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' 'unsafe-eval'"  # plotly compiles WebGL scatters
)
"""The browser itself refuses every request to the outside."""


def render(page: Page) -> str:
    """The page as one HTML file that asks nothing of the network."""
    sections = {
        "Classes": overview(page),
        "Images": gallery(page),
        "How many": counting(page),
        "Rehearsal": rehearsal(page),
        "Measured": measures(page),
        "Training": training(page),
        "This run": particulars(page),
    }
    shown = {name: body for name, body in sections.items() if body}
    links = "".join(f'<a href="#{anchor(name)}">{name}</a>' for name in shown)
    bodies = "".join(f'<section id="{anchor(name)}">{body}</section>\n' for name, body in shown.items())
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>{asset("page.css")}</style>
</head>
<body>
<header>
{masthead(page)}
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{bodies}</main>
<footer>Made by newfound. This file is complete in itself: it loads nothing from elsewhere and sends nothing.</footer>
{scripts(page)}</body>
</html>
"""
    return text.encode("utf-8", "replace").decode()  # file names that are not UTF-8 hold what no file can


def masthead(page: Page) -> str:
    """Title, lead, what is wrong with the run, and the first numbers."""
    numbers = [
        ("new classes", sum(not found.known for found in page.classes)),
        ("known classes", sum(found.known and found.size > 0 for found in page.classes)),
        ("images", page.images),
        ("files skipped", len(page.skipped)),
    ]
    figures = "".join(f"<div><dt>{name}</dt><dd>{count:,}</dd></div>" for name, count in numbers if count)
    return (
        f'<p class="kind">Discovery report</p><h1>{escape(page.title)}</h1>'
        f'<p class="lead">{escape(page.lead)}</p>{caution(page.warnings)}<dl class="numbers">{figures}</dl>'
    )


def caution(warnings: list[str]) -> str:
    """Why little should be believed of what follows; nothing where nothing speaks against it."""
    if not warnings:
        return ""
    said = "".join(f"<p>{escape(words)}</p>" for words in warnings)
    return f'<div class="caution" role="note"><p><b>Take this run with care.</b></p>{said}</div>'


def overview(page: Page) -> str:
    """The list of classes beside the map."""
    largest = max((found.size for found in page.classes), default=0)
    mapped = len(page.points) > 0
    rows = "".join(
        row(i, found, colour, found.size / max(largest, 1), mapped) for i, found, colour in coloured(page.classes)
    )
    press = "Press a class to pick it out on the map; press its picture to go to its images." if mapped else ""
    return (
        "<h2>Classes</h2>"
        '<p class="note">Each class is a group of images that look alike to the program. It cannot know what they '
        "show: take a class as a proposal to look at, not as an identification. Confidence is the estimated chance "
        f"that an image is in the right class; images with little of it are unsure, and those that lie farther out "
        f"than six in seven of a class. {press}</p>"
        f'<div class="overview"><ol class="classes">{rows}</ol>{chart(page) if mapped else ""}</div>'
        + "".join(f'<p class="note">{escape(words)}</p>' for words in page.notes)
    )


def row(i: int, found: FoundClass, colour: str, share: float, mapped: bool) -> str:
    """One line of the list: picture, name, size as a bar, confidence; a button where there is a map to act on."""
    tag, state = ("button", f' type="button" aria-pressed="false" data-class="{i}"') if mapped else ("div", "")
    shown = found.exemplars or found.doubtful
    picture = thumbnail(shown[0].pixels, f"Images of {found.name}") if shown else ""
    truth = ""
    if found.truth:
        name, count = most(found.truth)[0]
        truth = f", truly {count / sum(found.truth.values()):.0%} <bdi>{escape(name)}</bdi>"
    return (
        f'<li style="--colour:{colour}"><a class="picture" href="#class-{i}">{picture}</a>'
        f'<{tag} class="line"{state}><bdi class="name">{escape(found.name)}</bdi>'
        f'<span class="count">{found.size:,}</span>'
        f'<span class="bar" style="--share:{share:.1%}"></span>'
        f'<span class="small">{remarks(found)}confidence {found.coherence:.2f}{truth}</span></{tag}></li>'
    )


def chart(page: Page) -> str:
    """The place of the map, and how to read it."""
    part = f" {len(page.points):,} of the {page.images:,} images are shown." if len(page.points) < page.images else ""
    return (
        '<figure class="map"><button type="button" id="everything" hidden>Show all classes</button>'
        '<div id="map" role="group" aria-label="Map of the images, coloured by class">'
        "<noscript>The map needs JavaScript.</noscript></div>"
        "<figcaption>Each dot is an image; dots that lie close look alike to the program. Directions, and distances "
        f"between groups that are far apart, carry no meaning.{part}</figcaption></figure>"
    )


def gallery(page: Page) -> str:
    """Every class with its images."""
    articles = "".join(article(i, found, colour) for i, found, colour in coloured(page.classes))
    return (
        '<h2>Images</h2><p class="note">The most typical of the sure images of each class, then the most doubtful '
        "ones: mistakes are most likely among those. Below each image stands its confidence. Where labelled images "
        "took part, some of the known class, or of the known class nearest to a new one, stand first: compare them."
        f"</p>{articles}"
    )


def article(i: int, found: FoundClass, colour: str) -> str:
    """One class: how large and how clear it is, its typical and its doubtful images, and their names."""
    listed = "".join(
        f"<tr><td><bdi>{escape(shown.name)}</bdi></td><td>{sureness(shown)}</td></tr>"
        for shown in found.exemplars + found.doubtful
    )
    names = (
        f"<details><summary>Names of these images</summary><table><thead><tr><th>image</th><th>confidence</th></tr>"
        f"</thead><tbody>{listed}</tbody></table></details>"
    )
    return (
        f'<article id="class-{i}" style="--colour:{colour}"><h3><bdi>{escape(found.name)}</bdi></h3>'
        f'<p class="small">{found.size:,} {"image" if found.size == 1 else "images"}; '
        f"{remarks(found)}mean confidence {found.coherence:.2f}{mixture(found.truth)}</p>"
        f'<div class="strips">{compared(found)}{strip("Most typical", found.exemplars)}'
        f"{strip('Most doubtful', found.doubtful)}</div>"
        f"{names if listed else ''}</article>\n"
    )


def compared(found: FoundClass) -> str:
    """The labelled images that a class is to be compared with, under what they are of."""
    if not found.references:
        return f'<p class="small near">Nearest known class: <bdi>{escape(found.nearest)}</bdi></p>' * bool(
            found.nearest
        )
    of = f"Nearest known class: <bdi>{escape(found.nearest)}</bdi>" if found.nearest else "Labelled images of it"
    return strip(of, found.references).replace("<div>", '<div class="near">', 1)


def remarks(found: FoundClass) -> str:
    """A class's number, that it was known before, and how many images may be of it too."""
    said = [f"number {found.number}"] * (found.number > 0) + ["known before"] * found.known
    said += [f"{found.unsure:,} more are unsure"] * (found.unsure > 0)
    said += [f"{found.outliers:,} fit no class, and this one best"] * (found.outliers > 0)
    return "".join(f"{words}; " for words in said)


def strip(heading: str, shown: list[Exemplar]) -> str:
    """Some images of a class in a row, each over its confidence; the heading is HTML."""
    tiles = "".join(f"<li>{thumbnail(each.pixels, each.name)}<span>{sureness(each)}</span></li>" for each in shown)
    return f'<div><h4>{heading}</h4><ul class="tiles">{tiles}</ul></div>' if shown else ""


def sureness(shown: Exemplar) -> str:
    """The confidence of an image in figures, where it has one."""
    return "" if shown.confidence is None else f"{shown.confidence:.2f}"


def mixture(truth: dict[str, int] | None) -> str:
    """What a class truly holds, most first: three by name, the others together."""
    if not truth:
        return ""
    counts = most(truth)
    others = sum(count for _, count in counts[3:])
    parts = [f"<bdi>{escape(name)}</bdi> {count:,}" for name, count in counts[:3]]
    return "; truly " + ", ".join(parts + [f"others {others:,}"] * (others > 0))


def most(truth: dict[str, int]) -> list[tuple[str, int]]:
    """True classes and their counts, the most frequent first."""
    return sorted(truth.items(), key=lambda pair: -pair[1])


def coloured(classes: list[FoundClass]) -> Iterator[tuple[int, FoundClass, str]]:
    """Each class with its place and its colour."""
    return zip(range(len(classes)), classes, colours(len(classes)), strict=True)


def counting(page: Page) -> str:
    """How the number of classes was estimated: the sentence, and a curve for each way of asking."""
    if not page.reason:
        return ""
    ends = f"{page.tried[0]} classes", f"{page.tried[-1]}"
    mark = min(range(len(page.tried)), key=lambda place: abs(page.tried[place] - page.chosen))
    figures = "".join(curve(name, values, ends, mark) for name, values in page.counting.items())
    note = "One value for each number of classes that was tried, known and new together; the dot is near the one taken."
    return (
        f"<h2>How many classes</h2><p>{escape(page.reason)}.</p>"
        f'<p class="note">{note}</p><div class="curves">{figures}</div>'
    )


def rehearsal(page: Page) -> str:
    """What was tried on known classes that were hidden, and what was taken."""
    if not page.rehearsed:
        return ""
    bodies = "".join(
        f'<tbody><tr><th scope="rowgroup" colspan="2">{escape(heading)}</th></tr>{"".join(map(_tried, rows))}</tbody>'
        for heading, rows in page.rehearsed.items()
    )
    hoped = f"<p>Expected accuracy on the images of this run: {escape(page.expected)}.</p>" if page.expected else ""
    return (
        f'<h2>Rehearsal</h2><p class="note">{escape(page.rehearsal)}</p>'
        '<table class="comparison"><thead><tr><th scope="col">Way</th><th scope="col">Mean accuracy</th></tr></thead>'
        f"{bodies}</table>{hoped}"
    )


def _tried(row: tuple[str, float, bool]) -> str:
    """One way, its accuracy and its bar."""
    way, accuracy, taken = row
    return (
        f'<tr><th scope="row">{escape(way)}{" <strong>taken</strong>" if taken else ""}</th>'
        f'<td><span class="bar" style="--share:{accuracy:.1%}"></span>{accuracy:.1%}</td></tr>'
    )


def measures(page: Page) -> str:
    """Agreement with the truth, and the same measures for other methods."""
    if not page.metrics and not page.comparison:
        return ""
    tiles = "".join(
        f"<div><dt>{escape(title(name))}</dt><dd>{score(name, value)}</dd>"
        f"<dd>{MEANINGS.get(name.lower(), '')}</dd></div>"
        for name, value in (page.metrics or {}).items()
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(method)}</th>'
        + "".join(
            f'<td><span class="bar" style="--share:{max(value, 0):.1%}"></span>{score(name, value)}</td>'
            for name, value in (("accuracy", accuracy), ("NMI", nmi))
        )
        + "</tr>"
        for method, accuracy, nmi in page.comparison
    )
    table = (
        '<table class="comparison"><thead><tr><th scope="col">Method</th><th scope="col">Accuracy</th>'
        f'<th scope="col">NMI</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    return (
        f'<h2>Measured against the truth</h2><p class="note">{escape(page.measured)}</p>'
        f'<dl class="metrics">{tiles}</dl>{table if rows else ""}'
    )


def title(name: str) -> str:
    """A metric's name as it stands in a table: NMI, ARI, Accuracy."""
    return name.upper() if len(name) <= 3 else name[:1].upper() + name[1:]


def score(name: str, value: float) -> str:
    """Accuracies in per cent, all else with three decimals, as papers print them."""
    return f"{value:.1%}" if "accuracy" in name.lower() else f"{value:.3f}"


def training(page: Page) -> str:
    """One small curve per logged value."""
    figures = "".join(curve(name, values) for name, values in page.curves.items() if values)
    note = "One value per epoch, the last one in figures. Every curve fills its box, from lowest to highest value."
    return f'<h2>Training</h2><p class="note">{note}</p><div class="curves">{figures}</div>' if figures else ""


def particulars(page: Page) -> str:
    """How to do it again, and what was left out."""
    command = page.facts.get("command", "")
    again = f'<p class="note">The command that made it:</p><pre><code>{escape(command)}</code></pre>' if command else ""
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in page.facts.items()
        if name != "command"
    )
    names = "".join(f"<li><bdi>{escape(name)}</bdi></li>" for name in page.skipped)
    skipped = f"<details><summary>Files skipped: {len(page.skipped):,}</summary><ul>{names}</ul></details>"
    body = again + (f'<dl class="facts">{facts}</dl>' if facts else "") + (skipped if names else "")
    return f"<h2>This run</h2>{body}" if body else ""


def scripts(page: Page) -> str:
    """Plotly as its wheel carries it, the map's values, and what draws them; nothing where there is no map."""
    if not len(page.points):
        return ""
    values = scatter(page.points, page.assignments, page.captions, [found.name for found in page.classes])
    data = json.dumps(values, separators=(",", ":")).replace("<", r"\u003c")  # no name can end the script
    return (
        f'<script type="application/json" id="map-values">{data}</script>\n'
        f"<script>{plotly_script()}</script>\n<script>{asset('page.js')}</script>\n"
    )


def plotly_script() -> str:
    """Plotly's JavaScript, as its wheel carries it."""
    return str(get_plotlyjs())


def asset(name: str) -> str:
    """A file that lies beside this one."""
    return Path(__file__).with_name(name).read_text("utf-8")


def anchor(name: str) -> str:
    """A section's name as an id."""
    return name.lower().replace(" ", "-")
