"""The paper's claims, one by one: does our measurement bear them out?"""

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch

from newfound.benchmark.published import TWO_STAGE
from newfound.benchmark.summary import flat, interval, paired, read
from newfound.functional.geometry import distances, equidistant, even, guttman, simplex, smacof, stress
from newfound.methods import METHODS
from newfound.types import generator

Verdict = Literal["holds", "fails", "undecided", "not tested"]

SPLITS = ("5-5", "20-80", "80-20", "50-50")
HOSTS = ("rs", "ncl")
Results = dict[str, dict[str, Any]]


class Claim(NamedTuple):
    """What the paper says, what we find, the figure it rests on, and the command that made the figure."""

    text: str
    verdict: Verdict
    figure: str
    command: str


def gather(folder: Path, budget: str) -> Results:
    """All results at a budget, by the name of their table."""
    return {path.stem.removesuffix(f"-{budget}"): read(path) for path in folder.glob(f"*-stage-*-{budget}.json")}


def claims(results: Results) -> list[Claim]:
    """Every claim, the measured ones first."""
    found = [beats_two_stage(results, dataset, split) for dataset, split in (("cifar10", "5-5"), ("cifar100", "80-20"))]
    found += [helps(results, host, split) for split in SPLITS for host in HOSTS]
    found += [skewed(results, host) for host in HOSTS]
    found += [separates(results, host, split) for split in SPLITS for host in HOSTS]
    return [*found, equidistance(), apart(), crowded(), majorisation(), termination()]


def beats_two_stage(results: Results, dataset: str, split: str) -> Claim:
    """Is `pairs+spacing` above every other row of Table 2, each in its own headline reading?"""
    text = f"Spacing Loss beats the other two-stage methods ({dataset}, {split})"
    command = f"newfound benchmark two-stage --dataset {dataset}"
    table = results.get(f"two-stage-{dataset}-{split}")
    means = {} if table is None else headline(table)
    ours, others = means.pop("pairs+spacing", None), {name: means[name] for name in TWO_STAGE if name in means}
    if ours is None or len(others) < len(TWO_STAGE) - 1:
        return Claim(text, "not tested", "not all rows have been run", command)
    best = max(others, key=lambda name: others[name])
    figure = f"accuracy {100 * ours:.1f}; the best other row is {best} with {100 * others[best]:.1f}"
    return Claim(text, "holds" if ours > others[best] else "fails", figure, command)


def headline(table: dict[str, Any]) -> dict[str, float]:
    """Mean accuracy of each method in its own reading: that of the last method in its name."""
    scores = flat(table)
    readings = {name: METHODS[name.split("+")[-1]].reading for name in scores["method"].unique()}
    own = scores[scores["reading"] == scores["method"].map(readings)]
    return {str(name): float(mean) for name, mean in own.groupby("method")["accuracy"].mean().items()}


def helps(results: Results, host: str, split: str) -> Claim:
    """Does adding Spacing raise accuracy and NMI within every reading?"""
    dataset = "cifar10" if split == "5-5" else "cifar100"
    text = f"Added to {host.upper()}, Spacing improves it ({split})"
    command = f"newfound benchmark single-stage --dataset {dataset} --split {split} --methods {host} {host}+spacing"
    table = results.get(f"single-stage-{dataset}-{split}")
    gains = {} if table is None else {r: paired(table, f"{host}+spacing", host, r) for r in ("head", "unit k-means")}
    if not gains or any(len(gain) < 3 for gain in gains.values()):
        return Claim(text, "not tested", "fewer than three seeds of both", command)
    figure = "; ".join(
        f"{reading}: accuracy {interval(100 * gain['accuracy'], 1)}, NMI {interval(gain['nmi'], 3)}"
        for reading, gain in gains.items()
    )
    return Claim(
        text, verdict([gain[score] for gain in gains.values() for score in ("accuracy", "nmi")]), figure, command
    )


def verdict(differences: "list[pd.Series[Any]]") -> Verdict:
    """Holds where every interval lies above 0, fails where some mean is not even positive, else undecided."""
    if any(values.mean() <= 0 for values in differences):
        return "fails"
    return "holds" if all("[+" in interval(values, 6) for values in differences) else "undecided"


def skewed(results: Results, host: str) -> Claim:
    """Is the gain larger on the skewed splits of CIFAR-100 than on the even one?"""
    text = f"Spacing helps {host.upper()} more where the split is skewed (20-80 and 80-20 against 50-50)"
    command = "newfound benchmark single-stage --dataset cifar100 --split 20-80 (80-20, 50-50)"
    gains: dict[str, float] = {}
    for split in ("20-80", "80-20", "50-50"):
        table = results.get(f"single-stage-cifar100-{split}")
        gain = pd.DataFrame() if table is None else paired(table, f"{host}+spacing", host, "unit k-means")
        if len(gain) < 3:
            return Claim(text, "not tested", "not all three splits have three seeds", command)
        gains[split] = 100 * gain["accuracy"].mean()
    figure = "accuracy by unit k-means: " + ", ".join(f"{split} {gain:+.1f}" for split, gain in gains.items())
    holds = min(gains["20-80"], gains["80-20"]) > gains["50-50"] and gains["20-80"] > 0
    return Claim(text, "holds" if holds else "fails", figure, command)


def separates(results: Results, host: str, split: str) -> Claim:
    """Do novel classes lie further apart with Spacing than without, after the same training?"""
    dataset = "cifar10" if split == "5-5" else "cifar100"
    text = f"Spacing separates the latents of novel classes ({host.upper()}, {split})"
    command = f"newfound benchmark single-stage --dataset {dataset} --split {split} --methods {host} {host}+spacing"
    table = results.get(f"single-stage-{dataset}-{split}")
    values = {
        name: {
            row["seed"]: row["separation"]["after"] for row in (table or {"rows": []})["rows"] if row["method"] == name
        }
        for name in (host, f"{host}+spacing")
    }
    seeds = values[host].keys() & values[f"{host}+spacing"].keys()
    if len(seeds) < 3:
        return Claim(text, "not tested", "fewer than three seeds of both", command)
    differences = {
        what: pd.Series([values[f"{host}+spacing"][seed][what] - values[host][seed][what] for seed in seeds])
        for what in ("silhouette", "scatter")
    }
    figure = ", ".join(f"{what} {interval(difference, 3)}" for what, difference in differences.items())
    return Claim(text, verdict(list(differences.values())), figure, command)


def equidistance() -> Claim:
    """Are anchors equidistant where that is possible?"""
    worst = 0.0
    for classes, dim in ((5, 512), (10, 512), (100, 512), (10, 9)):
        apart = distances(equidistant(torch.rand(classes, dim, generator=generator("claims")).double(), 1.0))
        worst = max(worst, (apart[~torch.eye(classes, dtype=torch.bool)] - 1).abs().max().item())
    exact = worst < 1e-12
    figure = (
        f"relative error {'below' if exact else 'above'} 1e-12 for 5, 10 and 100 anchors in 512 dimensions, 10 in 9"
    )
    return Claim("Anchors are equidistant, where c ≤ z + 1", "holds" if exact else "fails", figure, COMMAND)


def apart() -> Claim:
    """Are anchors at least as far apart as the farthest prototypes?"""
    text = "Anchors are at least the largest prototype distance apart"
    figure = (
        "by construction, δ = α · p_dist with α > 1; the author's code has α = 1, "
        "and our cap of √2 for unit latents can undercut it"
    )
    return Claim(text, "holds", figure, "pytest tests/functional/test_geometry.py")


def crowded() -> Claim:
    """And where there are too many classes for the dimension?"""
    delta = even(100, 1.0)
    points = smacof(delta, 64, starts=1, steps=5000, generator=generator("claims")).points
    between = distances(points)
    least = between[~torch.eye(100, dtype=torch.bool)].min().item()
    figure = (
        f"100 anchors in 64 dimensions: smallest distance {least:.2f} δ, so not equidistant, "
        f"and below p_dist for α < {1 / least:.2f}"
    )
    text = "Anchors are equidistant for every number of classes and every dimension"
    return Claim(text, "fails", figure, COMMAND)


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
    return Claim(text, "holds" if rises == 0 else "fails", figure, COMMAND)


def termination() -> Claim:
    """Does Algorithm 1 end?"""
    text = "Algorithm 1 terminates by its own rule, ‖Y − P‖ ≤ ε"
    points, delta = torch.randn(10, 16, generator=generator("claims"), dtype=torch.float64), even(10, 1.0)
    for _ in range(1000):
        moved = -guttman(points, delta)  # Eq. 4 as printed
        step, points = (moved - points).norm().item(), moved
    radius = 2 * math.sqrt(10) * simplex(10, 16).norm(dim=1)[0].item()
    figure = (
        f"as printed it never does: after 1000 steps a step is still {step:.2f} long "
        f"(twice the points' norm is {radius:.2f}); with the sign mended it does"
    )
    return Claim(text, "fails", figure, "pytest tests/functional/test_geometry.py -k papers_sign")


COMMAND = "python scripts/tables.py"


def table(found: list[Claim]) -> str:
    """The claims in Markdown."""
    lines = ["| the paper says | verdict | figure | command |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {c.text} | **{c.verdict}** | {c.figure} | `{c.command}` |" for c in found)])
