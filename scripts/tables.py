"""Write the tables of README.md and docs/ from results/*.json, between `<!-- NAME -->` and `<!-- end -->`; figures.

python scripts/tables.py
"""

import importlib
import json
import re
import sys
from pathlib import Path

import pandas as pd

from newfound.benchmark import claims, continual_tables, continuing, evidence, reviewing, summary
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


def weights() -> str:
    """NMI by preset and λ, mean over the classes held out."""
    results = json.loads((ROOT / "results/choice.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(results["weights"])
    means = rows.groupby("method")["nmi"].mean()
    split = {tuple(name.removeprefix("pairs+").split("@")): value for name, value in means.items() if "@" in name}
    sizes = sorted({weight for _, weight in split}, key=float)
    lines = ["| preset | " + " | ".join(f"λ = {size}" for size in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    lines += [
        f"| {preset} | " + " | ".join(f"{split[preset, size]:.3f}" for size in sizes) + " |"
        for preset in dict.fromkeys(name for name, _ in split)
    ]
    lines.append(f"\nk-means on the start features {means['kmeans']:.3f}, pairs alone {means['pairs']:.3f}.")
    return "\n".join(lines)


def stage() -> str:
    """NMI by stage one's rate, mean over the classes held out."""
    results = json.loads((ROOT / "results/choice.json").read_text(encoding="utf-8"))
    means = pd.DataFrame(results["stage"]).groupby("rate")["nmi"].mean()
    head, line = " | ".join(f"rate {rate}" for rate in means.index), " | ".join(f"{nmi:.3f}" for nmi in means)
    return f"| {head} |\n{'|---' * len(means)}|\n| {line} |"


def whiten() -> str:
    """NMI of k-means on start features by how far whitening is shrunk, mean over two models and two sets of classes."""
    results = json.loads((ROOT / "results/choice.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(results["whiten"])
    means = rows["nmi"].groupby(["none" if pd.isna(shrink) else str(shrink) for shrink in rows["shrink"]]).mean()
    names = ["none", *sorted((name for name in means.index if name != "none"), key=float)]
    head, line = " | ".join(names), " | ".join(f"{means[name]:.3f}" for name in names)
    return f"| {head} |\n{'|---' * len(means)}|\n| {line} |"


def results(part: str, name: str) -> str:
    """A part of one table of the benchmark; what was not run is said."""
    path = ROOT / f"results/{name}.json"
    return getattr(summary, part)(summary.read(path)) if path.is_file() else "Not run yet."


def continual(part: str, name: str) -> str:
    """A part of one table of continual discovery, and its curve beside."""
    path = ROOT / f"results/{name}.json"
    if not path.is_file():
        return "Not run yet."
    found = summary.read(path)
    (ROOT / f"docs/figures/{name}.svg").write_text(continual_tables.draw(found), encoding="utf-8")
    (ROOT / f"docs/figures/{name}-groups.svg").write_text(continual_tables.draw_groups(found), encoding="utf-8")
    return CONTINUAL[part](found)


def all_claims() -> str:
    """Verdicts on the paper's claims."""
    return claims.table(claims.claims(claims.gather(ROOT / "results", "cpu")))


def method_list() -> str:
    """Every method, as `newfound methods` prints it."""
    rows = summary.listing()
    lines = [f"| {' | '.join(rows.columns)} |", "|---" * len(rows.columns) + "|"]
    return "\n".join([*lines, *(f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in rows.itertuples(index=False))])


def chosen() -> str:
    """Pretend-novel NMI by preset, rate and λ."""
    found = json.loads((ROOT / "results/choice-cifar.json").read_text(encoding="utf-8"))
    lines = ["| method | rate | λ | accuracy | NMI, unit k-means | NMI, k-means |", "|---|---|---|---|---|---|"]
    for row in (row for name, section in found.items() for row in section if name not in ("heads", "setting")):
        scores = f"{100 * row['accuracy']:.1f} | {row['nmi']:.3f} | {row['raw nmi']:.3f}"
        lines.append(f"| `{row['method']}` | {row['rate']} | {row['weight']} | {scores} |")
    return "\n".join(lines)


def swapped() -> str:
    """What each part of our rule is worth on pretend-novel classes: accuracy and NMI, and the mean change of NMI."""
    found = json.loads((ROOT / "results/choice-swapped.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(found["rows"])
    rows = rows[rows["reading"] == "unit k-means"]
    sets = list(dict.fromkeys(rows["set"]))
    ours = rows[rows["method"] == "swapped"].set_index(["set", "seed"])["nmi"]
    lines = [f"| arm | {' | '.join(sets)} | NMI minus ours | runs |", "|---" * (len(sets) + 3) + "|"]
    for arm in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == arm]
        cells = [summary.cell(own[own["set"] == name]) for name in sets]
        less = (own.set_index(["set", "seed"])["nmi"] - ours).dropna()
        lines.append(f"| {arm} | {' | '.join(cells)} | {summary.interval(less, 3)} | {len(own)} |")
    return "\n".join(lines)


def heads() -> str:
    """What the novel head is worth, by the rule of pairs and the rate."""
    found = json.loads((ROOT / "results/choice-cifar.json").read_text(encoding="utf-8"))
    lines = ["| method | alike | pairs found | of them right | rate | head | unit k-means |", "|---" * 7 + "|"]
    for row in found["heads"]:
        what = f"{row['alike']} features" if row["method"] == "rs" else f"cosine > {row['alike']}"
        cells = [f"{100 * row['recall']:.2f} %", f"{100 * row['precision']:.0f} %", f"{row['rate']}"]
        cells += [f"{100 * row[f'{of}accuracy']:.1f} / {row[f'{of}nmi']:.3f}" for of in ("head ", "")]
        lines.append(f"| `{row['method']}` | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def axes() -> str:
    """Accuracy by the way features are compared, mean over class splits."""
    found = json.loads((ROOT / "results/choice-axes.json").read_text(encoding="utf-8"))
    lines = ["| features | stamps | CIFAR-100 |", "|---|---|---|"]
    for row in found["rows"]:
        cells = " | ".join(f"{100 * sum(row[name]) / len(row[name]):.1f}" for name in ("stamps", "cifar100"))
        lines.append(f"| {row['arm']} | {cells} |")
    return "\n".join(lines)


def rehearsed() -> str:
    """What a rehearsal let expect, and what came out, beside k-means on unit features."""
    found = json.loads((ROOT / "results/rehearsal.json").read_text(encoding="utf-8"))
    lines = [
        "| set | split | images a class | k-means on unit features | newfound | expected |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = " | ".join(f"{100 * row[name]:.1f}" for name in ("unit k-means", "accuracy"))
        lines.append(f"| {row['set']} | {row['split']} | {row['images a class']} | {cells} | {row['expected']} |")
    return "\n".join(lines)


def counting() -> str:
    """Estimated over true number of classes, by set and shrinkage."""
    found = json.loads((ROOT / "results/choice-counting.json").read_text(encoding="utf-8"))
    lines = ["| images | known + new | shrunk by | pairs | accuracy | silhouette |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        shrink = "not whitened" if row["shrink"] is None else f"{row['shrink']:g}"
        cells = [
            " ".join(f"{value:.2f}" for value in row[criterion]) for criterion in ("pairs", "accuracy", "silhouette")
        ]
        lines.append(f"| {row['set']} | {row['known']} + {row['novel']} | {shrink} | {' | '.join(cells)} |")
    return "\n".join(lines)


def trust() -> str:
    """The lines that turn distances into chances."""
    found = json.loads((ROOT / "results/choice-counting.json").read_text(encoding="utf-8"))
    lines = ["| fitted on | chance of being right | of being new |", "|---|---|---|"]
    titles = {
        "features": "stamps and CIFAR-100, pretrained features",
        "learnt": "drawings, a network that learnt 60 kinds",
    }
    for name, (right, new) in ((name, found["lines"][name].values()) for name in titles):
        cells = [f"σ({slope:.1f} s {'+' if offset >= 0 else '−'} {abs(offset):.1f})" for slope, offset in (right, new)]
        lines.append(f"| {titles[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(name: str, part: str = "table") -> str:
    """What a script in docs found, as it prints it, or a part of that."""
    found = json.loads((ROOT / f"results/{name}.json").read_text(encoding="utf-8"))
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
    "continue": lambda: continuing.markdown(ROOT / "results/continue.json"),
}
EVIDENCE = {
    "overview": evidence.overview,
    "small": evidence.small_tables,
    "large": evidence.large_tables,
    "verdicts": evidence.verdicts,
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
    if panels := continuing.curves(ROOT / "results/continue.json"):
        save(draw_curves(panels, "actions"), ROOT / "docs/figures/continue")
