"""The paper's two tables: which rows, in which order, and what they said."""

from typing import NamedTuple

from newfound.data import datasets


class Published(NamedTuple):
    """Accuracy in per cent and NMI, as printed; the paper gives neither seeds nor deviations."""

    accuracy: float
    nmi: float


TWO_STAGE: dict[str, tuple[str, dict[str, Published]]] = {
    "kmeans": ("K-means", {"5-5": Published(65.5, 0.422), "80-20": Published(66.2, 0.555)}),
    "pairs+spacing:aligned": ("Spacing Loss", {"5-5": Published(90.5, 0.787), "80-20": Published(80.62, 0.719)}),
    "rs": ("RS*", {"5-5": Published(84.6, 0.658), "80-20": Published(69.5, 0.581)}),
    "ncl": ("NCL*", {"5-5": Published(60.5, 0.479), "80-20": Published(59.5, 0.428)}),
    "dtc": ("DTC", {"5-5": Published(87.5, 0.735), "80-20": Published(72.8, 0.634)}),
    "kcl": ("KCL", {"5-5": Published(66.5, 0.438), "80-20": Published(27.4, 0.151)}),
    "mcl": ("MCL", {"5-5": Published(64.2, 0.398), "80-20": Published(32.7, 0.202)}),
}
"""Table 2: title and numbers by split. Spacing is the paper's rule with aligned anchors. The published K-means, KCL,
MCL and DTC are those of the DTC paper.
"""

SINGLE_STAGE: dict[str, tuple[str, dict[str, Published]]] = {
    "rs": (
        "RS",
        {
            "5-5": Published(89.72, 0.7724),
            "20-80": Published(16.63, 0.4493),
            "80-20": Published(69.39, 0.6934),
            "50-50": Published(47.72, 0.5666),
        },
    ),
    "rs+spacing:aligned": (
        "RS + Spacing Loss",
        {
            "5-5": Published(89.90, 0.7764),
            "20-80": Published(26.37, 0.4562),
            "80-20": Published(73.16, 0.7252),
            "50-50": Published(48.20, 0.5712),
        },
    ),
    "ncl": (
        "NCL",
        {
            "5-5": Published(92.70, 0.8233),
            "20-80": Published(19.82, 0.4570),
            "80-20": Published(81.01, 0.7883),
            "50-50": Published(56.71, 0.6355),
        },
    ),
    "ncl+spacing:aligned": (
        "NCL + Spacing Loss",
        {
            "5-5": Published(93.32, 0.8364),
            "20-80": Published(35.60, 0.5064),
            "80-20": Published(85.11, 0.7896),
            "50-50": Published(57.36, 0.6432),
        },
    ),
}
"""Table 1: title and numbers by split."""

TABLES = {"two-stage": TWO_STAGE, "single-stage": SINGLE_STAGE}

DATASETS = {split: name for name in ("cifar10", "cifar100") for split in datasets.DATASETS[name].splits}
"""Which of the paper's two datasets a split is of."""

CONTROLS = {
    "two-stage": (
        "spacing",
        "spacing:unanchored",
        "uno",
        "pairs+spacing",
        "pairs",
        "pairs+spacing:dcn",
        "pairs+spacing:paper",
        "ncl:author+spacing:author-two-stage",
    ),
    "single-stage": (
        "kmeans",
        "ncl+spacing:dcn",
        "ncl+spacing:paper",
        "ncl+spacing:author",
        "rs+spacing:dcn",
        "rs+spacing:paper",
        "rs+spacing:author",
    ),
}
"""Our own rule, and what a Spacing row must be held against: the same without anchors, to the letter, and as its author
ran it."""
