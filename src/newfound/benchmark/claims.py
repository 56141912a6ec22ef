"""The paper's claims, one by one: does our measurement bear them out?"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from newfound.benchmark import continual_tables
from newfound.benchmark.published import DATASETS, SINGLE_STAGE, TWO_STAGE
from newfound.benchmark.results import read
from newfound.benchmark.summary import READINGS, bounds, flat, interval, markdown, paired
from newfound.functional.geometry import distances, equidistant, even, guttman, smacof, stress
from newfound.methods import METHODS
from newfound.spacing.loss import SpacingLoss
from newfound.types import generator

Verdict = Literal["holds", "fails", "undecided", "not tested"]
Results = dict[str, dict[str, Any]]
EMPTY: dict[str, Any] = {"rows": []}

SPLITS = tuple(SINGLE_STAGE["rs"][1])
HOSTS = {"rs": "RS", "ncl": "NCL"}
COMMAND = "python scripts/tables.py"
RULE = "spacing:aligned"
"""The paper's rule as its rows here have it; ours, `spacing`, is no claim of the paper's."""

SEQUENCES = (
    "continual-cifar100-50-10x5-cpu-efficientnet-lite0",
    "continual-cifar100-80-10-10-cpu-efficientnet-lite0",
    "continual-cifar10-5+5@12-cpu",
)
"""Where the paper's fifth section is put to the test."""

CONTINUAL = "newfound benchmark continual --dataset cifar100"
"""What makes rows of it, where none was run."""

LOWER, UPPER = "finetune", "all-labels"
"""Rows of a sequence that ours lies between."""

SEEDS = 3
"""Fewer decide nothing."""


class Claim(NamedTuple):
    """What the paper says, what we find, the figure it rests on, and the command that made the figure."""

    text: str
    verdict: Verdict
    figure: str
    command: str


def gather(folder: Path, budget: str) -> Results:
    """All results at a budget, by the name of their table; those of continual discovery by that of their file."""
    tables = {path.stem.removesuffix(f"-{budget}"): read(path) for path in folder.glob(f"*-stage-*-{budget}.json")}
    return tables | continual_tables.gather(folder)


def claims(results: Results) -> list[Claim]:
    """Every claim, the measured ones first."""
    found = [beats_two_stage(results, split) for split in ("5-5", "80-20")]
    found += [helps(results, host, split) for split in SPLITS for host in HOSTS]
    found += [skewed(results, host) for host in HOSTS]
    found += [separates(results, "two-stage", "pairs", split) for split in ("5-5", "80-20")]
    found += [separates(results, "single-stage", host, split) for split in SPLITS for host in HOSTS]
    found += [learns_on(results, name) for name in SEQUENCES]
    return [*found, equidistance(), apart(), crowded(), majorisation(), termination()]


def beats_two_stage(results: Results, split: str) -> Claim:
    """Is `pairs+spacing:aligned`, in its headline reading, above every other row of Table 2 in every reading?

    The paper reads the others by their heads, which a short run hardly trains: to win against these proves nothing.
    """
    text = f"Spacing Loss beats the other two-stage methods ({DATASETS[split]}, {split})"
    command = f"newfound benchmark two-stage --dataset {DATASETS[split]}"
    scores = flat(results.get(f"two-stage-{DATASETS[split]}-{split}", EMPTY))
    seeds = scores.groupby("method")["seed"].nunique()
    few = {name: found for name in TWO_STAGE if (found := seeds.get(name, 0)) < SEEDS}
    if few:
        lacking = ", ".join(f"{name} {found}" for name, found in few.items())
        return Claim(text, "not tested", f"seeds, of {SEEDS} needed: {lacking}", command)
    own = METHODS[RULE].reading
    accuracy = accuracies(scores)
    ours = accuracy[f"pairs+{RULE}", own]
    others = [key for key in accuracy if key[0] in {*TWO_STAGE} - {f"pairs+{RULE}"}]
    differences = {key: (ours - accuracy[key]).dropna() for key in others}
    name, reading = min(others, key=lambda key: differences[key].mean())
    gain = interval(100 * differences[name, reading], 1)
    best = f"over the best other row, {name} with {100 * accuracy[name, reading].mean():.1f} ({reading}): {gain}"
    figure = f"accuracy {100 * ours.mean():.1f} ({own}); {best}"
    return Claim(text, verdict([*differences.values()]), figure, command)


def helps(results: Results, host: str, split: str) -> Claim:
    """Does adding Spacing raise accuracy and NMI within every reading?"""
    text = f"Added to {HOSTS[host]}, Spacing improves it ({split})"
    table = results.get(f"single-stage-{DATASETS[split]}-{split}", EMPTY)
    gains = {reading: paired(table, f"{host}+{RULE}", host, reading) for reading in READINGS}
    if any(len(gain) < SEEDS for gain in gains.values()):
        return _untested(text, "single-stage", host, split)
    figure = "; ".join(
        f"{reading}: accuracy {interval(100 * gain['accuracy'], 1)}, NMI {interval(gain['nmi'], 3)}"
        for reading, gain in gains.items()
    )
    before, after = (SINGLE_STAGE[name][1][split] for name in (host, f"{host}+{RULE}"))
    figure += f"; published: accuracy {after.accuracy - before.accuracy:+.1f}, NMI {after.nmi - before.nmi:+.3f}"
    gain, reading = (100 * accuracy.mean() for accuracy in read_as_published(table, host))
    figure += f"; read as published (the host by its head, Spacing by k-means): accuracy {gain:+.1f} here, "
    figure += f"{reading:+.1f} by the change of reading alone"
    differences = [gain[score] for gain in gains.values() for score in ("accuracy", "nmi")]
    return Claim(text, verdict(differences), figure, _command("single-stage", host, split))


def accuracies(scores: pd.DataFrame) -> "dict[tuple[str, str], pd.Series[Any]]":
    """Accuracy by seed of every method in every reading."""
    return {
        (str(name), str(reading)): rows.set_index("seed")["accuracy"]
        for (name, reading), rows in scores.groupby(["method", "reading"])
    }


def read_as_published(table: dict[str, Any], host: str) -> "tuple[pd.Series[Any], pd.Series[Any]]":
    """Accuracy of host and Spacing by k-means minus that of the host by its head, seed by seed; and what of it the
    host has without Spacing, as soon as it is read by k-means too.
    """
    accuracy = accuracies(flat(table))
    by_head = accuracy[host, "head"]
    return accuracy[f"{host}+{RULE}", "k-means"] - by_head, accuracy[host, "k-means"] - by_head


def verdict(differences: "list[pd.Series[Any]]") -> Verdict:
    """Holds where every interval lies above 0, fails where some interval lies below it, else undecided."""
    intervals = [bounds(values) for values in differences]
    if any(high < 0 for _, high in intervals):
        return "fails"
    return "holds" if all(low > 0 for low, _ in intervals) else "undecided"


def skewed(results: Results, host: str) -> Claim:
    """Is the gain larger on the skewed splits of CIFAR-100 than on the even one?"""
    text = f"Spacing helps {HOSTS[host]} more where the split is skewed (20-80 and 80-20 against 50-50)"
    gains: dict[str, pd.Series[Any]] = {}
    for split in ("20-80", "80-20", "50-50"):
        table = results.get(f"single-stage-cifar100-{split}", EMPTY)
        gain = paired(table, f"{host}+{RULE}", host, "unit k-means")
        if len(gain) < SEEDS:
            return _untested(text, "single-stage", host, split)
        gains[split] = gain["accuracy"]
    more = {split: (gains[split] - gains["50-50"]).dropna() for split in ("20-80", "80-20")}
    figure = "accuracy by unit k-means: " + ", ".join(f"{split} {100 * g.mean():+.1f}" for split, g in gains.items())
    figure += "; more than on 50-50: " + ", ".join(f"{split} {interval(100 * m, 1)}" for split, m in more.items())
    commands = (_command("single-stage", host, split) for split in gains)
    return Claim(text, verdict([gains["20-80"], *more.values()]), figure, " && ".join(commands))


def separates(results: Results, stages: str, host: str, split: str) -> Claim:
    """Do novel classes lie further apart with Spacing than without, after the same training?"""
    text = f"Spacing separates the latents of novel classes ({HOSTS.get(host, host)}, {stages}, {split})"
    rows = results.get(f"{stages}-{DATASETS[split]}-{split}", EMPTY)["rows"]
    without, with_it = (
        pd.DataFrame({row["seed"]: row["separation"]["after"] for row in rows if row["method"] == name}).T
        for name in (host, f"{host}+{RULE}")
    )
    differences = (with_it - without).dropna()
    if len(differences) < SEEDS:
        return _untested(text, stages, host, split)
    figure = ", ".join(f"{what} {interval(differences[what], 3)}" for what in ("silhouette", "scatter"))
    both = [differences[what] for what in ("silhouette", "scatter")]
    return Claim(text, verdict(both), figure, _command(stages, host, split))


def learns_on(results: Results, name: str) -> Claim:
    """Does a model that discovers classes by itself go on learning them, without forgetting? (The paper's Section 5.)

    Asked of all classes together, after the last step: ours must be above the first model, which never learns another
    class, and above fine-tuning where that has as many seeds; and at most 3 points may be forgotten, mean over groups.
    """
    where = name.removeprefix("continual-")
    text = f"Discovery lets continual learning go on without annotated tasks (Section 5; {where})"
    table = results.get(name)
    if table is None:
        return Claim(text, "not tested", "not run", CONTINUAL)
    setting, scores = table["setting"], continual_tables.flat(table).set_index("seed")
    method = ours_on(setting)
    ours = scores[scores["method"] == method]
    command = next((row["command"] for row in table["rows"] if row["method"] == method), CONTINUAL)
    command = command.partition(" --methods")[0]
    share = setting["classes"][0] / sum(setting["classes"])
    idle = pd.Series({r["seed"]: 100 * share * r["groups"][0][0] for r in table["rows"] if r["method"] == method})
    lower, upper = (scores[scores["method"] == other]["all"] for other in (LOWER, UPPER))
    gains = [(ours["all"] - other).dropna() for other in (idle, lower)]
    figure = f"all classes {ours['all'].mean():.1f}, {interval(gains[0], 1)} over never learning"
    figure += f", {interval(gains[1], 1)} over fine-tuning" if len(gains[1]) else ""
    figure += f", {100 * (ours['all'] / upper).dropna().mean():.0f} % of joint training" if len(upper) else ""
    lost = ours["forgetting"].mean()
    figure += f"; {lost:.1f} points forgotten on average, {ours['known lost'].mean():.1f} of the first classes"
    if len(ours) < SEEDS:
        return Claim(text, "not tested", f"fewer than {SEEDS} seeds; {figure}", command)
    decided = verdict([gain for gain in gains if len(gain) >= SEEDS])
    return Claim(text, "fails" if lost > FORGOTTEN else decided, figure, command)


def ours_on(setting: dict[str, Any]) -> str:
    """Which row of a sequence is ours: where our own network learns from pixels, the one on a copy (decision 19)."""
    return "anchored" if setting["backbone"] else "anchored:apart"


FORGOTTEN = 3.0
"""Points that may be forgotten, mean over groups of classes, where it is said that nothing is."""


def equidistance() -> Claim:
    """Are anchors equidistant where that is possible?"""
    worst = 0.0
    for classes, dim in ((5, 512), (10, 512), (100, 512), (10, 9)):
        anchors = equidistant(torch.rand(classes, dim, generator=generator("claims")).double(), 1.0)
        worst = max(worst, (_between(anchors) - 1).abs().max().item())
    exact = worst < 1e-12
    size = "below" if exact else "above"
    figure = f"relative error {size} 1e-12 for 5, 10 and 100 anchors in 512 dimensions, and 10 in 9"
    return Claim("Anchors are equidistant, where c ≤ z + 1", _held(exact), figure, COMMAND)


def apart() -> Claim:
    """Are anchors at least as far apart as the farthest prototypes? The paper's rule decides; ours are said beside."""
    latents = torch.rand(400, 128, generator=generator("claims"))
    ratios = {name: _spaced(name, latents) for name in ("paper", "author", "aligned")}
    opposite = torch.cat([axes := torch.eye(10, 128), -axes]).repeat(20, 1)
    figure = (
        "20 classes in 128 dimensions, smallest distance of anchors / largest of prototypes: "
        + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        + f"; ours stops at √2, and has "
        f"{_spaced('aligned', opposite):.2f} where prototypes lie opposite one another"
    )
    text = "Anchors are at least the largest prototype distance apart"
    return Claim(text, _held(ratios["paper"] >= 1), figure, COMMAND)


def crowded() -> Claim:
    """And where there are too many classes for the dimension?"""
    least = (
        _between(smacof(even(100, 1.0), 64, starts=1, steps=5000, generator=generator("claims")).points).min().item()
    )
    figure = (
        f"100 anchors in 64 dimensions: smallest distance {least:.2f} δ, so not equidistant, "
        f"and below p_dist for α < {1 / least:.2f}"
    )
    text = "Anchors are equidistant for every number of classes and every dimension"
    return Claim(text, _held(least > 1 - 1e-6), figure, COMMAND)


def majorisation() -> Claim:
    """Does a step never raise the stress, with the right sign and with the paper's?"""
    text = "Each step of Algorithm 1 lowers the stress (majorisation)"
    rises = 0
    for trial in range(100):
        points = torch.randn(10, 16, generator=generator("claims", trial), dtype=torch.float64)
        delta = even(10, 1.0)
        for _ in range(20):
            moved = guttman(points, delta)
            rises += int((stress(moved, delta) > stress(points, delta) + 1e-12).item())
            points = moved
    figure = f"{rises} rises in 2000 steps; with Eq. 4 as printed every step also turns all points to the other side"
    return Claim(text, _held(rises == 0), figure, COMMAND)


def termination() -> Claim:
    """Does Algorithm 1 end?"""
    text = "Algorithm 1 terminates by its own rule, ‖Y − P‖ ≤ ε"
    points, delta = torch.randn(10, 16, generator=generator("claims"), dtype=torch.float64), even(10, 1.0)
    printed, mended = (_last_step(points, delta, sign) for sign in (-1, 1))  # Eq. 4 as printed is the negative
    still = "below" if mended < 1e-6 else "above"
    figure = f"as printed a step is still {printed:.2f} long after 1000 of them; with the sign mended {still} 1e-6"
    return Claim(text, _held(printed < 1e-6), figure, COMMAND)


def table(found: list[Claim]) -> str:
    """The claims in Markdown."""
    lines = ([claim.text, f"**{claim.verdict}**", claim.figure, f"`{claim.command}`"] for claim in found)
    return markdown(("the paper says", "verdict", "figure", "command"), lines)


def _last_step(points: Float[Tensor, "c dim"], delta: Float[Tensor, "c c"], sign: int, steps: int = 1000) -> float:
    """How far the last of so many steps went."""
    before = points
    for _ in range(steps):
        before, points = points, sign * guttman(points, delta)
    return (points - before).norm().item()


def _between(points: Float[Tensor, "c dim"]) -> Float[Tensor, " pairs"]:
    """Distances of all pairs."""
    return distances(points)[~torch.eye(len(points), dtype=torch.bool)]


def _spaced(preset: str, latents: Float[Tensor, "n dim"]) -> float:
    """The smallest distance of 20 anchors over the largest of the prototypes they were made for."""
    loss = SpacingLoss(20, latents.shape[1], preset)
    loss.start(latents)
    return (_between(loss.anchors).min() / _between(loss.prototypes).max()).item()


def _command(stages: str, host: str, split: str) -> str:
    where = f"--dataset {DATASETS[split]} --split {split}"
    return f"newfound benchmark {stages} {where} --methods {host} {host}+{RULE}"


def _untested(text: str, stages: str, host: str, split: str) -> Claim:
    return Claim(text, "not tested", f"fewer than {SEEDS} seeds of both on {split}", _command(stages, host, split))


def _held(holds: bool) -> Verdict:
    return "holds" if holds else "fails"
