"""Verdicts follow from numbers, and from nothing else."""

from dataclasses import replace

import pandas as pd
import pytest

from newfound.benchmark import claims
from newfound.benchmark.claims import beats_two_stage, helps, separates, skewed, verdict
from newfound.benchmark.published import TWO_STAGE
from newfound.benchmark.summary import READINGS
from newfound.spacing.presets import PRESETS


def row(method, seed, accuracy, nmi=0.5, apart=0.1):
    scores = {reading: {"accuracy": accuracy, "nmi": nmi} for reading in READINGS}
    after = {"silhouette": apart, "scatter": 2 * apart}
    return {"method": method, "seed": seed, "train": scores, "separation": {"after": after}}


def table(*rows):
    return {"setting": {}, "rows": list(rows)}


def two_stage(ours):
    means = dict.fromkeys(TWO_STAGE, 0.5) | {"pairs+spacing:aligned": ours}
    rows = [row(name, seed, mean) for name, mean in means.items() for seed in range(3)]
    return {"two-stage-cifar10-5-5": table(*rows)}


def single_stage(gain, split="20-80", seeds=(0, 1, 2), noise=0.001):
    rows = [row("ncl", seed, 0.4) for seed in seeds]
    rows += [
        row("ncl+spacing:aligned", seed, 0.4 + gain + noise * seed, 0.5 + gain, 0.1 + gain + noise * seed)
        for seed in seeds
    ]
    return {f"single-stage-cifar100-{split}": table(*rows)}


@pytest.mark.parametrize(("ours", "expected"), [(0.6, "holds"), (0.4, "fails")])
def test_spacing_beats_two_stage_methods_when_it_is_above_the_best_of_them(ours, expected):
    claim = beats_two_stage(two_stage(ours), "5-5")
    assert claim.verdict == expected
    assert f"{100 * ours:.1f}" in claim.figure


def test_nothing_is_said_before_all_rows_are_there():
    assert beats_two_stage({}, "5-5").verdict == "not tested"
    some = two_stage(0.9)
    some["two-stage-cifar10-5-5"]["rows"].pop()
    claim = beats_two_stage(some, "5-5")
    assert claim.verdict == "not tested"
    assert claim.figure.endswith("mcl 2")


@pytest.mark.parametrize(
    ("method", "reading", "expected"),
    [
        ("dtc", "unit k-means", "fails"),
        ("dtc", "head", "fails"),
        ("pairs+spacing:aligned", "head", "fails"),
        ("pairs+spacing:aligned", "unit k-means", "holds"),
    ],
)
def test_spacing_is_judged_by_its_own_reading_and_every_other_by_its_best(method, reading, expected):
    results = two_stage(0.4)
    for each in results["two-stage-cifar10-5-5"]["rows"]:
        if each["method"] == method:
            each["train"][reading]["accuracy"] = 0.9
    claim = beats_two_stage(results, "5-5")
    assert claim.verdict == expected
    assert (f"dtc with 90.0 ({reading})" in claim.figure) == (method == "dtc")


def test_a_lead_smaller_than_its_spread_beats_nobody():
    results = two_stage(0.51)
    for each in results["two-stage-cifar10-5-5"]["rows"]:
        if (each["method"], each["seed"]) == ("rs", 2):
            for scores in each["train"].values():
                scores["accuracy"] = 0.52
    claim = beats_two_stage(results, "5-5")
    assert claim.verdict == "undecided"
    assert "rs with 50.7" in claim.figure
    assert "+0.3 [-2.5, +3.2]" in claim.figure


@pytest.mark.parametrize(("gain", "noise", "expected"), [(0.1, 0.001, "holds"), (-0.1, 0.001, "fails")])
def test_a_host_is_helped_when_every_interval_lies_above_zero(gain, noise, expected):
    claim = helps(single_stage(gain, noise=noise), "ncl", "20-80")
    assert claim.verdict == expected
    assert "published: accuracy +15.8, NMI +0.049" in claim.figure


def test_a_gain_that_is_only_the_reading_s_is_told_apart():
    """Heads at 10, k-means at 40 with and without Spacing: as the paper reads it Spacing gains 30 points."""
    results = single_stage(0.0, noise=0)
    for each in results["single-stage-cifar100-20-80"]["rows"]:
        each["train"]["head"] = {"accuracy": 0.1, "nmi": 0.1}
    claim = helps(results, "ncl", "20-80")
    assert claim.verdict == "undecided"
    assert claim.figure.endswith("accuracy +30.0 here, +30.0 by the change of reading alone")
    for each in results["single-stage-cifar100-20-80"]["rows"]:
        if each["method"] == "ncl+spacing:aligned":
            each["train"]["k-means"]["accuracy"] = 0.5
    assert helps(results, "ncl", "20-80").figure.endswith("accuracy +40.0 here, +30.0 by the change of reading alone")


def test_a_gain_smaller_than_its_spread_is_undecided():
    assert verdict([pd.Series([0.1, 0.11, 0.12]), pd.Series([-0.1, 0.1, 0.1])]) == "undecided"


def test_a_loss_smaller_than_its_spread_is_undecided_too():
    assert verdict([pd.Series([0.1, 0.11, 0.12]), pd.Series([0.1, -0.1, -0.1])]) == "undecided"
    assert verdict([pd.Series([0.1, 0.11, 0.12]), pd.Series([-0.1, -0.11, -0.12])]) == "fails"


def test_an_interval_that_only_touches_zero_is_not_above_it():
    assert verdict([pd.Series([0.1, 0.1, 0.1])]) == "holds"
    assert verdict([pd.Series([1e-9, 1e-9, 1e-7])]) == "undecided"


@pytest.mark.parametrize("reading", READINGS)
def test_a_host_is_not_helped_when_one_reading_falls(reading):
    results = single_stage(0.1)
    for each in results["single-stage-cifar100-20-80"]["rows"]:
        if each["method"] == "ncl+spacing:aligned":
            each["train"][reading] = {"accuracy": 0.3, "nmi": 0.5}
    assert helps(results, "ncl", "20-80").verdict == "fails"


def test_two_seeds_decide_nothing():
    assert helps(single_stage(0.1, seeds=(0, 1)), "ncl", "20-80").verdict == "not tested"
    assert separates(single_stage(0.1, seeds=(0, 1)), "single-stage", "ncl", "20-80").verdict == "not tested"


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "holds"), (-0.1, "fails")])
def test_latents_are_separated_when_both_measures_rise(gain, expected):
    assert separates(single_stage(gain), "single-stage", "ncl", "20-80").verdict == expected


def test_skewed_splits_are_helped_more_only_when_both_are():
    results = single_stage(0.3) | single_stage(0.2, "80-20") | single_stage(0.1, "50-50")
    assert skewed(results, "ncl").verdict == "holds"
    assert skewed(results | single_stage(0.05, "80-20"), "ncl").verdict == "fails"
    assert skewed(results | single_stage(0.11, "80-20", noise=0.05), "ncl").verdict == "undecided"
    assert skewed(single_stage(0.3), "ncl").verdict == "not tested"


def test_the_claims_about_anchors_and_the_proof_are_computed():
    assert claims.equidistance().verdict == "holds"
    assert claims.majorisation().figure.startswith("0 rises")
    assert claims.apart().verdict == "holds"
    assert claims.crowded().verdict == "fails"
    assert claims.termination().verdict == "fails"


def test_the_claims_about_the_proof_turn_with_what_they_measure(monkeypatch):
    monkeypatch.setattr(claims, "guttman", lambda points, delta: points)
    assert claims.termination().verdict == "fails"  # the sign still flips every step
    monkeypatch.setattr(claims, "guttman", lambda points, delta: 0 * points)
    assert claims.termination().verdict == "holds"
    monkeypatch.setattr(claims, "guttman", lambda points, delta: 2 * points)
    assert claims.majorisation().verdict == "fails"


def test_anchors_that_start_closer_than_prototypes_would_show(monkeypatch):
    assert "paper 1.10, author 1.00, aligned 1.10" in claims.apart().figure
    assert "0.71 where" in claims.apart().figure
    monkeypatch.setitem(PRESETS, "paper", lambda: replace(PRESETS["author"](), alpha=0.9))
    with pytest.warns(UserWarning, match=r"alpha = 0\.9"):
        assert claims.apart().verdict == "fails"


def test_every_claim_is_one_line_of_the_table():
    found = [claims.equidistance(), claims.apart()]
    lines = claims.table(found).splitlines()
    assert len(lines) == 4
    assert all(line.count("|") == 5 for line in lines)
