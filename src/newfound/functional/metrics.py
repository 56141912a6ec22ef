"""How well clusters agree with the truth. Labels are names: they need not count from 0, nor be the same in both."""

import math
from typing import Literal

import torch
from jaxtyping import Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def scores(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], k: int) -> dict[str, float | str]:
    """Every number we report of one clustering into at most k clusters, with NMI's normaliser beside it."""
    return {
        "accuracy": accuracy(truth, guess),
        "nmi": nmi(truth, guess),
        "nmi normaliser": "arithmetic",
        "ari": ari(truth, guess),
        "balance": balance(guess, k),
    }


def accuracy(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]) -> float:
    """Share of images in the right class once clusters are matched to classes in the best way.

        max_π (1/n) Σ_i 1[y_i = π(ŷ_i)],   π one-to-one        (Hungarian method, Kuhn 1955)

    Where there are more clusters than classes, images of a cluster left over are wrong.
    """
    _, _, table = _table(truth, guess)
    rows, columns = linear_sum_assignment(table.numpy(), maximize=True)
    return table[rows, columns].sum().item() / len(truth)


def matching(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]) -> dict[int, int]:
    """The map π from cluster to class that `accuracy` uses; a cluster left over is not in it."""
    clusters, classes, table = _table(truth, guess)
    rows, columns = linear_sum_assignment(table.numpy(), maximize=True)
    return dict(zip(clusters[rows].tolist(), classes[columns].tolist(), strict=True))


def nmi(
    truth: Int[Tensor, " n"],
    guess: Int[Tensor, " n"],
    average: Literal["arithmetic", "geometric"] = "arithmetic",
) -> float:
    """What clusters tell about classes, as a share of what there is to tell: normalised mutual information.

        I(y; ŷ) / ½ (H(y) + H(ŷ))   or   I(y; ŷ) / √(H(y) H(ŷ)),   I(y; ŷ) = H(y) + H(ŷ) − H(y, ŷ)

    (Strehl & Ghosh 2002.) One class in one cluster is perfect, 1, as in scikit-learn. Repositories before 2020 used the
    geometric mean, scikit-learn's default at the time; the two differ when clusters are much fewer than classes.
    """
    _, _, table = _table(truth, guess)
    if 1 in table.shape:
        return float(table.numel() == 1)
    guessed, true = _entropy(table.sum(1)), _entropy(table.sum(0))
    information = max(0.0, guessed + true - _entropy(table))
    return information / ((guessed + true) / 2 if average == "arithmetic" else math.sqrt(guessed * true))


def ari(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]) -> float:
    """Pairs of images on which clusters and classes agree, corrected for chance: adjusted Rand index.

        (S − E) / (½ (A + B) − E),   E = A B / C(n, 2)        (Hubert & Arabie 1985, Eq. 5)

    with S, A, B the pairs that share cluster and class, cluster, class: S = Σ_kc C(n_kc, 2), A = Σ_k C(n_k, 2), …
    """
    _, _, table = _table(truth, guess)
    both, cluster, label, all_pairs = (_pairs(n) for n in (table, table.sum(1), table.sum(0), table.sum()))
    if both == cluster == label:  # the same partition, down to the trivial ones where the formula is 0/0
        return 1.0
    chance = cluster * label / all_pairs
    return (both - chance) / ((cluster + label) / 2 - chance)


def balance(guess: Int[Tensor, " n"], k: int) -> float:
    """How evenly images are spread over k clusters: 1 when all are of one size, 0 when one holds everything.

        H(ŷ) / ln k

    A single cluster, k = 1, is even.
    """
    sizes = guess.unique(return_counts=True)[1].cpu()
    if not 1 <= len(sizes) <= k:
        raise ValueError(f"found {len(sizes)} clusters where 1 to {k} were expected: give the k that made the clusters")
    return _entropy(sizes) / math.log(k) if k > 1 else 1.0


def _table(
    truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]
) -> tuple[Int[Tensor, " clusters"], Int[Tensor, " classes"], Int[Tensor, "clusters classes"]]:
    """Names of clusters and classes, ascending, and how many images of each class are in each cluster."""
    if not len(truth):
        raise ValueError("found no images to score: give at least one")
    clusters, row = guess.cpu().unique(return_inverse=True)
    classes, column = truth.cpu().unique(return_inverse=True)
    shape = len(clusters), len(classes)
    return clusters, classes, torch.bincount(row * shape[1] + column, minlength=math.prod(shape)).view(shape)


def _entropy(counts: Int[Tensor, "..."]) -> float:
    """−Σ p ln p of the shares p that counts make."""
    return torch.special.entr(counts.double() / counts.sum()).sum().item()


def _pairs(counts: Int[Tensor, "..."]) -> int:
    """Σ C(n, 2); a Python integer, for products of two of these exceed 64 bits."""
    return int((counts * (counts - 1) // 2).sum())
