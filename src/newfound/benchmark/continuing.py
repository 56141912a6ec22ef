"""What answers are worth: a simulated reviewer stops now and then, and the run learns from what was said so far.

Measured are the images that nobody has touched, before and after, each by the kind that its class is called by: known
classes have names, and the reviewer gives some. What has none is matched with the kinds that are left. Classes keep
their numbers, so what each is called before serves both. Who has looked at an image and let it be has touched it too:
it is likelier right than others. So this reviewer is in a hurry, and most images are never looked at.
"""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from newfound import files, parallel
from newfound.benchmark.piles import PILES
from newfound.benchmark.results import add, has, read
from newfound.benchmark.reviewer import Proposal, Reviewer, filled, show
from newfound.benchmark.reviewing import ABOUT
from newfound.benchmark.summary import NOT_RUN, markdown, spread
from newfound.console import Progress, silent
from newfound.discovery.answers import answers
from newfound.discovery.discover import discover
from newfound.discovery.edits import Classes
from newfound.discovery.facts import versions
from newfound.discovery.refine import ReviewLesson, encoder_for, read_anew, relearn
from newfound.discovery.result import Discovery
from newfound.discovery.settings import KMEANS, NO, Run, StageOne
from newfound.discovery.tables import number_truth
from newfound.errors import check_word
from newfound.functional import metrics
from newfound.report.curves import Curve
from newfound.review.views import Scene

log = logging.getLogger("newfound")

STOPS = (5, 10, 20, 40, 80, 160)
"""Actions after which the run learns."""

CONFIRM = 0.25
"""What the reviewer thinks that calling an image right is worth, beside putting one right."""

ROW = 10
"""Images of a class that somebody in a hurry looks at: the most typical, and the least sure."""

STAGE = StageOne(backbone="efficientnet-lite0", rehearse=NO)
SEEDS = (0, 1, 2)


class Hurried(Reviewer):
    """A reviewer who sees a row of each class's most typical images and one of its least sure, and others only once
    nothing is left to say of these. Splits, whose previews show much of a class, are left out.
    """

    def _glance(self, scene: Scene) -> None:
        for number in filled(scene.now):
            for order in ("typical", "doubtful"):
                self.look(show(scene, number, order)[:ROW].tolist())

    def _scroll(self, scene: Scene, *, to_the_end: bool) -> bool:
        if not to_the_end:
            return False
        before = len(self.kinds)
        for number in filled(scene.now):
            unseen = [row for row in show(scene, number, "doubtful").tolist() if row not in self.kinds]
            self.look(unseen[:ROW])
        return len(self.kinds) > before

    def _propose_splits(self, now: Classes, bar: float) -> Iterator[Proposal]:
        yield from ()


def continue_reviews(
    data: Path | None,
    output: Path,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    progress: Progress = silent,
) -> Path:
    """Make what is missing of some piles, or of all. Returns the file of results."""
    parallel.check_alone("Start the command several times, each with piles and seeds of its own.")
    for name in only:
        check_word("pile", name, PILES)
    files.check_writable(output)
    path = output / "continue.json"
    for name in only or PILES:
        for seed in seeds or SEEDS:
            if has(path, {"pile": name, "seed": seed}):
                continue
            log.info(f"{name}: seed {seed}.")
            with tempfile.TemporaryDirectory() as folder:
                known, unlabelled = PILES[name](data, seed, Path(folder))
                asked = Run(method="kmeans", read_by=KMEANS, seed=seed)
                run = discover(
                    known=known, unlabelled=unlabelled, run=asked, stage=STAGE, truth=True, progress=progress
                )
                add_points(path, [{"pile": name, "seed": seed} | point for point in follow(run)])
    return path


def follow(run: Discovery, stops: Sequence[int] = STOPS) -> list[dict[str, Any]]:
    """A row for every stop of a review: what was said so far, and accuracy on untouched images without and with it."""
    found, rows, left = run.found, list[dict[str, Any]](), [*stops]
    assert found.run is not None
    encoder = encoder_for(found, found.run)
    images, reviewer = encoder.encode(found.listing), Hurried(Discovery(found), confirm=CONFIRM)
    for step in reviewer.steps():
        if step.actions < left[0]:
            continue
        while left and step.actions >= left[0]:
            left.pop(0)
        lesson = ReviewLesson(found, answers(found, reviewer.run.edits), found.run, encoder, images, None)
        rows.append({"actions": step.actions, "looked": step.looked} | weigh(lesson, reviewer.kinds.keys()))
        log.info(f"After {step.actions} actions: {rows[-1]['before']:.3f} → {rows[-1]['after']:.3f}.")
        if not left:
            break
    return rows


def weigh(lesson: ReviewLesson, looked: Iterable[int]) -> dict[str, Any]:
    """Accuracy on the images that nobody has decided on or looked at, before and after the answers were learnt from."""
    found, told, free = lesson.found, lesson.answers, lesson.answers.free.clone()
    free[[*looked]] = False
    assert found.truth is not None
    truth, now = number_truth(told.classes, found.truth)[0], told.classes.assignment
    numbers, clusters = read_anew(lesson, relearn(lesson))
    after = torch.tensor(numbers)[clusters.assignment]
    row: dict[str, Any] = {
        "images": len(found),
        "vouched": int(told.vouched.sum()),
        "untouched": int(free.sum()),
        "classes": len(numbers),
        "changed": int((after != now)[free].sum()),
    }
    by_name, by_match = name_kinds(told.classes, found.truth), metrics.matching(truth, now)
    for some, when in ((now, "before"), (after, "after")):
        measures = {"": by_name, "matched ": by_match, "rematched ": metrics.matching(truth, some)}
        for measure, names in measures.items():
            row[measure + when] = round(metrics.right(truth, some, names)[free].double().mean().item(), 4)
    return row


def name_kinds(now: Classes, kinds: Sequence[str]) -> dict[int, int]:
    """What each class is: the kind that it is called by, as `number_truth` numbers them. What new ones without such a
    name are is said by the best matching of their images with the kinds that no class is called by.
    """
    truth, _ = number_truth(now, kinds)
    place = dict(zip(kinds, truth.tolist(), strict=True))
    named = {number: place[name] for number, name in now.names.items() if name in place}
    called, claimed = (torch.tensor([*some], dtype=torch.long) for some in (now.known | named.keys(), named.values()))
    rest = ~torch.isin(now.assignment, called) & ~torch.isin(truth, claimed)
    return named | (metrics.matching(truth[rest], now.assignment[rest]) if rest.any() else {})


def add_points(path: Path, points: Sequence[dict[str, Any]]) -> None:
    """Add rows to the results."""
    setting = {
        "piles": ABOUT,
        "discovery": "--method kmeans --read-by k-means, number of classes estimated, one stage, efficientnet-lite0",
        "review": f"somebody in a hurry, who sees {ROW} typical and {ROW} doubtful images of a class at a time, splits "
        f"nothing, and to whom calling an image right is worth {CONFIRM} of putting one right",
        "accuracy": "of images that nobody has looked at, by the kind that their class is called by before the run "
        "learns; a class without such a name is matched with the kinds that are left",
        "matched": "the same where all classes are matched with kinds before the run learns, whatever they are called",
        "rematched": "the same where they are matched before and after, each time anew",
        "command": "newfound benchmark continue",
        "versions": versions(),
    }
    add(path, setting, points, by=("pile", "seed", "actions"), lines=True)


def table(results: dict[str, Any]) -> pd.DataFrame:
    """A line for every pile and stop: answers, and accuracy on the untouched images before and after, over seeds."""
    rows = pd.DataFrame(results["rows"])
    rows["stop"] = [max(stop for stop in STOPS if stop <= actions) for actions in rows["actions"]]
    lines = []
    for (name, stop), some in rows.groupby(["pile", "stop"], sort=True):
        gained = 100 * (some["after"] - some["before"])
        lines.append(
            {
                "pile": ABOUT[str(name)].partition(":")[0],
                "actions": stop,
                "images vouched for": f"{some['vouched'].mean():.0f} of {some['images'].mean():.0f}",
                "untouched, before": spread(100 * some["before"], 1),
                "untouched, after": spread(100 * some["after"], 1),
                "gained": spread(gained, 1),
                "seeds": len(some),
            }
        )
    return pd.DataFrame(lines)


def tables(path: Path) -> str:
    """The same in Markdown."""
    if not (results := read(path))["rows"]:
        return NOT_RUN
    shown = table(results)
    return markdown(shown, shown.itertuples(index=False))


def curves(path: Path) -> list[tuple[str, list[Curve]]]:
    """What the figure shows of every pile: each seed's untouched images, once the run has learnt and before."""
    rows = pd.DataFrame(read(path)["rows"])
    panels = []
    for name in PILES if len(rows) else ():
        seeds = [some for _, some in rows[rows["pile"] == name].groupby("seed")]
        shown = [
            Curve(title, some["actions"].tolist(), some[when].tolist())
            for title, when in (("once the run has learnt from the answers", "after"), ("before", "before"))
            for some in seeds
        ]
        if shown:
            panels.append((ABOUT[name].partition(":")[0], shown))
    return panels
