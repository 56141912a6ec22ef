"""Write the tables of README.md and docs/ from results/*.json, between `<!-- NAME -->` and `<!-- end -->`; figures.

python scripts/tables.py
"""

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from newfound.benchmark import claims, continual_tables, continuing, evidence, reviewing, summary
from newfound.benchmark.results import read
from newfound.benchmark.summary import NOT_RUN, markdown
from newfound.report.curves import draw_curves
from newfound.report.drawings import save

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/claims.md",
    "docs/evidence.md",
    "docs/reviewing.md",
    "docs/continual.md",
    "docs/methods.md",
    "docs/decisions/0005-weights.md",
    "docs/decisions/0006-cpu-budget.md",
    "docs/decisions/0007-axes.md",
    "docs/decisions/0008-counting-and-doubt.md",
    "docs/decisions/0009-swapped.md",
    "docs/decisions/0013-rehearsal.md",
    "docs/guide.md",
    "docs/robot.md",
    "docs/review.md",
)


def load(name: str) -> dict[str, Any]:
    """A file of results, as it is."""
    return json.loads((ROOT / f"results/{name}.json").read_text(encoding="utf-8"))


def weights() -> str:
    """NMI by preset and λ, mean over the classes held out."""
    rows = pd.DataFrame(load("choice")["weights"])
    means = rows.groupby("method")["nmi"].mean()
    split = {tuple(name.removeprefix("pairs+").split("@")): value for name, value in means.items() if "@" in name}
    sizes = sorted({weight for _, weight in split}, key=float)
    presets = dict.fromkeys(name for name, _ in split)
    lines = ([preset, *(f"{split[preset, size]:.3f}" for size in sizes)] for preset in presets)
    table = markdown(["preset", *(f"λ = {size}" for size in sizes)], lines)
    return f"{table}\n\nk-means on the start features {means['kmeans']:.3f}, pairs alone {means['pairs']:.3f}."


def stage() -> str:
    """NMI by stage one's rate, mean over the classes held out."""
    means = pd.DataFrame(load("choice")["stage"]).groupby("rate")["nmi"].mean()
    return markdown((f"rate {rate}" for rate in means.index), [[f"{nmi:.3f}" for nmi in means]])


def whiten() -> str:
    """NMI of k-means on start features by how far whitening is shrunk, mean over two models and two sets of classes."""
    rows = pd.DataFrame(load("choice")["whiten"])
    means = rows["nmi"].groupby(["none" if pd.isna(shrink) else str(shrink) for shrink in rows["shrink"]]).mean()
    names = ["none", *sorted((name for name in means.index if name != "none"), key=float)]
    return markdown(names, [[f"{means[name]:.3f}" for name in names]])


def results(part: str, name: str) -> str:
    """A part of one table of the benchmark; what was not run is said."""
    path = ROOT / f"results/{name}.json"
    return getattr(summary, part)(read(path)) if path.is_file() else NOT_RUN


def continual(part: str, name: str) -> str:
    """A part of one table of continual discovery, and its curve beside."""
    path = ROOT / f"results/{name}.json"
    if not path.is_file():
        return NOT_RUN
    found = read(path)
    (ROOT / f"docs/figures/{name}.svg").write_text(continual_tables.draw(found), encoding="utf-8")
    (ROOT / f"docs/figures/{name}-groups.svg").write_text(continual_tables.draw_groups(found), encoding="utf-8")
    return CONTINUAL[part](found)


def all_claims() -> str:
    """Verdicts on the paper's claims."""
    return claims.table(claims.claims(claims.gather(ROOT / "results", "cpu")))


def method_list() -> str:
    """Every method, as `newfound methods` prints it."""
    rows = summary.listing()
    return markdown(rows, ([f"`{name}`", *cells] for name, *cells in rows.itertuples(index=False)))


def chosen() -> str:
    """Pretend-novel NMI by preset, rate and λ."""
    sections, lines = load("choice-cifar").items(), []
    for row in (row for name, section in sections for row in section if name not in ("heads", "setting")):
        scores = f"{100 * row['accuracy']:.1f}", f"{row['nmi']:.3f}", f"{row['raw nmi']:.3f}"
        lines.append([f"`{row['method']}`", row["rate"], row["weight"], *scores])
    return markdown(("method", "rate", "λ", "accuracy", "NMI, unit k-means", "NMI, k-means"), lines)


def swapped() -> str:
    """What each part of our rule is worth on pretend-novel classes: accuracy and NMI, and the mean change of NMI."""
    rows = pd.DataFrame(load("choice-swapped")["rows"])
    rows = rows[rows["reading"] == "unit k-means"]
    sets = list(dict.fromkeys(rows["set"]))
    ours = rows[rows["method"] == "swapped"].set_index(["set", "seed"])["nmi"]
    lines = []
    for arm in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == arm]
        cells = [summary.cell(own[own["set"] == name]) for name in sets]
        less = (own.set_index(["set", "seed"])["nmi"] - ours).dropna()
        lines.append([arm, *cells, summary.interval(less, 3), len(own)])
    return markdown(["arm", *sets, "NMI minus ours", "runs"], lines)


def heads() -> str:
    """What the novel head is worth, by the rule of pairs and the rate."""
    lines = []
    for row in load("choice-cifar")["heads"]:
        what = f"{row['alike']} features" if row["method"] == "rs" else f"cosine > {row['alike']}"
        cells = [f"{100 * row['recall']:.2f} %", f"{100 * row['precision']:.0f} %", f"{row['rate']}"]
        cells += [f"{100 * row[f'{of}accuracy']:.1f} / {row[f'{of}nmi']:.3f}" for of in ("head ", "")]
        lines.append([f"`{row['method']}`", what, *cells])
    return markdown(("method", "alike", "pairs found", "of them right", "rate", "head", "unit k-means"), lines)


def axes() -> str:
    """Accuracy by the way features are compared, mean over class splits."""
    sets = ("stamps", "cifar100")
    rows = load("choice-axes")["rows"]
    lines = ([row["arm"], *(f"{100 * sum(row[name]) / len(row[name]):.1f}" for name in sets)] for row in rows)
    return markdown(("features", "stamps", "CIFAR-100"), lines)


def rehearsed() -> str:
    """What a rehearsal let expect, and what came out, beside k-means on unit features."""
    lines = []
    for row in load("rehearsal")["rows"]:
        cells = (f"{100 * row[name]:.1f}" for name in ("unit k-means", "accuracy"))
        lines.append([row["set"], row["split"], row["images a class"], *cells, row["expected"]])
    return markdown(("set", "split", "images a class", "k-means on unit features", "newfound", "expected"), lines)


def counting() -> str:
    """Estimated over true number of classes, by set and shrinkage."""
    criteria, lines = ("pairs", "accuracy", "silhouette"), []
    for row in load("choice-counting")["rows"]:
        shrink = "not whitened" if row["shrink"] is None else f"{row['shrink']:g}"
        cells = (" ".join(f"{value:.2f}" for value in row[criterion]) for criterion in criteria)
        lines.append([row["set"], f"{row['known']} + {row['novel']}", shrink, *cells])
    return markdown(("images", "known + new", "shrunk by", *criteria), lines)


def trust() -> str:
    """The lines that turn distances into chances."""
    found, lines = load("choice-counting")["lines"], []
    titles = {
        "features": "stamps and CIFAR-100, pretrained features",
        "learnt": "drawings, a network that learnt 60 kinds",
    }
    for name, (right, new) in ((name, found[name].values()) for name in titles):
        cells = [f"σ({slope:.1f} s {'+' if offset >= 0 else '−'} {abs(offset):.1f})" for slope, offset in (right, new)]
        lines.append([titles[name], *cells])
    return markdown(("fitted on", "chance of being right", "of being new"), lines)


def shown(name: str, part: str = "table") -> str:
    """What a script in docs found, as it prints it, or a part of that."""
    found = load(name)
    sys.path.append(str(ROOT / "docs"))
    return str(getattr(importlib.import_module(name), part)(pd.DataFrame(found["rows"])))


TABLES = {
    "weights": weights,
    "stage": stage,
    "whiten": whiten,
    "claims": all_claims,
    "methods": method_list,
    "chosen": chosen,
    "heads": heads,
    "swapped": swapped,
    "axes": axes,
    "rehearsed": rehearsed,
    "shrunk": counting,
    "lines": trust,
    "clipart": lambda: shown("clipart"),
    "counting": lambda: shown("counting"),
    "backbones": lambda: shown("backbones"),
    "candidates": lambda: shown("candidates"),
    "brief": lambda: shown("candidates", "brief"),
    "robot": lambda: shown("robot"),
    "continue": lambda: continuing.tables(ROOT / "results/continue.json"),
}
EVIDENCE = {
    "overview": evidence.overview,
    "small": evidence.small_tables,
    "large": evidence.large_tables,
    "verdicts": evidence.verdicts,
    "means": evidence.means,
    "hours": evidence.hours_table,
    "added": evidence.added_gains,
}
REVIEWING = {
    "verdict": reviewing.verdict,
    "way": reviewing.milestones,
    "spending": reviewing.spending,
    "seeds": reviewing.tables,
}
CONTINUAL = {"steps": continual_tables.table, "groups": continual_tables.groups}
PARTS = ("comparison", "published", "gains", "separation", "costs")


def filled(text: str) -> str:
    """A page with its tables made anew."""
    pattern = re.compile(r"(<!-- (\w+)(?: ([\w+@-]+))? -->\n).*?(<!-- end -->)", re.DOTALL)

    def made(match: re.Match[str]) -> str:
        if match[2] == "evidence":
            table = EVIDENCE[match[3]](ROOT / "results")
        elif match[2] == "reviewing":
            table = REVIEWING[match[3]](ROOT / "results")
        elif match[2] in CONTINUAL:
            table = continual(match[2], match[3])
        else:
            table = results(match[2], match[3]) if match[2] in PARTS else TABLES[match[2]]()
        return f"{match[1]}{table}\n{match[4]}"

    return pattern.sub(made, text)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    if panels := reviewing.curves(ROOT / "results"):
        save(draw_curves(panels, "actions per 1000 images", reviewing.GOAL), ROOT / "docs/figures/reviewing")
    if panels := evidence.hours_curves(ROOT / "results"):
        save(draw_curves(panels, "minutes, stage one among them", 0.905), ROOT / "docs/figures/hours")
    if panels := continuing.curves(ROOT / "results/continue.json"):
        save(draw_curves(panels, "actions"), ROOT / "docs/figures/continue")
