"""How well clusters agree with the truth. Labels are names: they need not count from 0, nor be the same in both.

Four functions look at known and novel classes together, and there known classes count from 0 and novel ones follow:
`task_agnostic`, `task_aware`, `group_accuracy` and `gcd_accuracy`. `forgetting` and `forward_transfer` look at several
steps, each of which adds classes. `silhouette` and `scatter` ask how far apart classes lie in features. NMI, ARI and
silhouette are own code: scikit-learn's numbers sooner, without its 1.4 s and 124 MB (decision 2).
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from newfound.functional.geometry import means
from newfound.types import generator

ROWS = 4000
"""Images whose silhouette is taken: half a second of distances, and ±0.01 about the silhouette of all."""


def scores(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], k: int) -> dict[str, float | str]:
    """Every number we report of one clustering into at most k clusters, with NMI's normaliser beside it."""
    return {
        "accuracy": accuracy(truth, guess),
        "macro accuracy": macro_accuracy(truth, guess),
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
    rows, columns = _match(table)
    return table[rows, columns].sum().item() / len(truth)


def macro_accuracy(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]) -> float:
    """`accuracy` in which every class weighs the same, however few its images: the mean recall of a class.

        (1/C) Σ_c |{i : y_i = c = π(ŷ_i)}| / |{i : y_i = c}|,   π the matching of `accuracy`

    π is still the one that puts most images right, not the one with the best recall; a class without a cluster has
    recall 0.
    """
    _, _, table = _table(truth, guess)
    rows, columns = _match(table)
    return (table[rows, columns] / table.sum(0)[columns].double()).sum().item() / table.shape[1]


def matching(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]) -> dict[int, int]:
    """The map π from cluster to class that `accuracy` uses; a cluster left over is not in it.

    Of several maps that put equally many images right it is the one with the highest mean recall.
    """
    clusters, classes, table = _table(truth, guess)
    rows, columns = _match(table)
    return dict(zip(clusters[rows].tolist(), classes[columns].tolist(), strict=True))


def right(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], names: dict[int, int]) -> Bool[Tensor, " n"]:
    """Which images are of the class that their cluster is named after; one without a name is always wrong."""
    return torch.tensor(
        [names.get(cluster) == label for cluster, label in zip(guess.tolist(), truth.tolist(), strict=True)],
        dtype=torch.bool,
    )


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


class ByKind(NamedTuple):
    """Accuracy on all images, on those of known and on those of novel classes; NaN where there are no such images."""

    all: float
    known: float
    novel: float

    @property
    def harmonic(self) -> float:
        """Harmonic mean of known and novel, which a model that gives up either cannot have."""
        total = self.known + self.novel
        return 2 * self.known * self.novel / total if total else 0.0


def task_agnostic(
    truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], known: int, names: dict[int, int] | None = None
) -> ByKind:
    """Accuracy of a head over all classes that is not told whether an image is of a known or of a novel class.

        (1/|S|) Σ_{i∈S} 1[y_i = π(ŷ_i)],   S all, known or novel images
        π(k) = k for k < C_l,   π from novel outputs to novel classes one-to-one        (Roy et al. 2022)

    `guess` is the argmax over C_l + C_u outputs. The names of known outputs were learnt and are fixed; the names of
    novel ones are found once, by `novel_names`, and the same map serves all three numbers. They are found on these
    images unless they are given: to measure test images, give those of the unlabelled training images.

    The trap: `accuracy` on the novel images alone matches whatever outputs they went to, known ones too. A head that
    calls every truck a car and every ship a plane is then right, though it has found nothing. Here it has 0.
    """
    names = novel_names(truth, guess, known) if names is None else names
    return _by_kind(right(truth, guess, names | {output: output for output in range(known)}), truth, known)


def task_aware(
    truth: Int[Tensor, " n"], logits: Float[Tensor, "n outputs"], known: int, names: dict[int, int] | None = None
) -> ByKind:
    """Accuracy of a head over all classes that is told of each image whether its class is known or novel.

        ŷ_i = argmax_{k < C_l} logits_ik  or  argmax_{k ≥ C_l} logits_ik,   then as in `task_agnostic`

    The easier question, and the usual one: `novel` is the accuracy of the novel outputs alone on novel images.
    """
    own = (torch.arange(logits.shape[1], device=logits.device) < known) == (truth < known).to(logits.device)[:, None]
    return task_agnostic(truth, logits.masked_fill(~own, -math.inf).argmax(1), known, names)


def novel_names(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], known: int) -> dict[int, int]:
    """The novel class each novel output stands for: `matching` among novel images that went to novel outputs.

    An output that no novel image went to has no name, and whatever image goes there is wrong.
    """
    truth, guess = truth.cpu(), guess.cpu()
    novel = (truth >= known) & (guess >= known)
    return matching(truth[novel], guess[novel]) if novel.any() else {}


def group_accuracy(
    truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], names: dict[int, int], sizes: Sequence[int]
) -> list[float]:
    """Plain accuracy of a head over all classes on the images of each group of classes that was learnt together.

        A_g = (1/|S_g|) Σ_{i∈S_g} 1[y_i = π(ŷ_i)],   S_g the images of group g's classes

    Classes are numbered in the order in which they were learnt, `sizes` of them at a time, known ones first. π names
    every output: a known one its own class, a novel one the class that it was matched to when it was learnt
    (`novel_names` of the unlabelled training images of that step). Test images are never matched (Roy et al. 2022).
    NaN for a group without an image.
    """
    _some(truth)
    ends = torch.tensor([*sizes]).cumsum(0)
    group, hit = torch.bucketize(truth.cpu(), ends, right=True), right(truth, guess, names).double()
    return [hit[group == place].mean().item() for place in range(len(ends))]


def forgetting(table: Sequence[Sequence[float]]) -> list[float]:
    """How much of each group of classes was lost: its accuracy right after it was learnt minus at the end.

        F_g = A_gg − A_Tg

    Row t of the table are the accuracies A_tg of the groups learnt so far, after step t (`group_accuracy`); the last
    group, just learnt, has lost nothing.
    """
    last = table[-1]
    return [table[group][group] - last[group] for group in range(len(last))]


def forward_transfer(own: Sequence[float], first: Sequence[float]) -> float:
    """What the steps between were worth for finding further classes: mean accuracy of discovery at each step with the
    model of the step before, minus with the model of step 0. NaN where there is no such step.

        (1/|T|) Σ_t (a_t − b_t)
    """
    gains = [a - b for a, b in zip(own, first, strict=True)]
    return sum(gains) / len(gains) if gains else math.nan


def gcd_accuracy(truth: Int[Tensor, " n"], guess: Int[Tensor, " n"], known: int) -> ByKind:
    """Accuracy of clusters that have no names yet, on unlabelled images of known and novel classes together.

        π = argmax Σ_i 1[y_i = π(ŷ_i)] over all images,   then all, known, novel under this π        (Vaze et al. 2022)

    For k-means and the like, where known classes must be matched too. Matching known and novel images each for
    themselves would let one cluster stand for two classes, and reads higher.
    """
    return _by_kind(right(truth, guess, matching(truth, guess)), truth, known)


def calibration_gaps(
    chance: Float[Tensor, " n"], happened: Bool[Tensor, " n"], bins: int = 10
) -> Float[Tensor, " bins"]:
    """By how many images more than happened was promised, in each of so many equal parts of 0 … 1.

        Σ_{i∈b} p_i − 1[it happened],   b = ⌊bins · p_i⌋

    Gaps of several sets of images add up.
    """
    place = (bins * chance.double()).long().clamp(max=bins - 1)
    return torch.zeros(bins, dtype=torch.float64).index_add_(0, place, chance.double() - happened.double())


def silhouette(
    features: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], *, rows: int = ROWS, seed: int = 0
) -> float:
    """How much nearer images lie to their own class than to the next: 1 far apart, 0 touching, below 0 mixed.

        mean_i (b_i − a_i) / max(a_i, b_i)        (Rousseeuw 1987)

    with a_i the mean distance to the other images of its class, b_i to those of the nearest other class; an image alone
    in its class counts 0. Of more than `rows` images a sample is taken, the same for the same seed, and distances are
    those within it. One class alone has none to be apart from: 0.
    """
    return silhouettes(features, [labels], rows=rows, seed=seed)[0]


def silhouettes(
    features: Float[Tensor, "n dim"], several: Sequence[Int[Tensor, " n"]], *, rows: int = ROWS, seed: int = 0
) -> list[float]:
    """`silhouette` of several ways to divide the same images, whose distances are taken once."""
    _some(several[0])
    x, divided = features.detach().cpu().double(), [labels.cpu() for labels in several]
    if len(x) > rows:
        sample = torch.randperm(len(x), generator=generator(seed, "silhouette"))[:rows]
        x, divided = x[sample], [labels[sample] for labels in divided]
    away = torch.cdist(x - x.mean(0), x - x.mean(0)).fill_diagonal_(0)
    return [_stand_apart(away, labels) for labels in divided]


def _stand_apart(away: Float[Tensor, "n n"], labels: Int[Tensor, " n"]) -> float:
    """The silhouette of images that lie so far from one another."""
    classes, place, sizes = labels.unique(return_inverse=True, return_counts=True)
    if not 2 <= len(classes) < len(labels):
        return 0.0
    total, own = away @ one_hot(place).double(), place[:, None]
    a = total.gather(1, own)[:, 0] / (sizes[place] - 1).clamp(min=1)
    b = (total / sizes).scatter(1, own, math.inf).amin(1)
    values = ((b - a) / torch.maximum(a, b)).nan_to_num(0.0)  # images all in one place
    return values.where(sizes[place] > 1, 0.0).mean().item()


def scatter(features: Float[Tensor, "n dim"], labels: Int[Tensor, " n"]) -> float:
    """How far apart class means are, measured by the width of the classes.

        Σ_k n_k ‖μ_k − μ‖² / Σ_i ‖x_i − μ_y(i)‖²

    the trace of the between-class over that of the within-class scatter. One class alone, or images all in one place,
    have 0; classes without width, apart, have ∞.
    """
    _some(labels)
    x = features.detach().cpu().double()
    x = x - x[0]  # so that equal rows are 0 exactly, and large offsets cost no digits
    classes, assignment = labels.cpu().unique(return_inverse=True)
    centres, sizes = means(x, assignment, len(classes))
    between = (sizes * (centres - x.mean(0)).square().sum(1)).sum().item() if len(classes) > 1 else 0.0
    within = (x - centres[assignment]).square().sum().item()
    return between / within if within else math.inf if between else 0.0


def _table(
    truth: Int[Tensor, " n"], guess: Int[Tensor, " n"]
) -> tuple[Int[Tensor, " clusters"], Int[Tensor, " classes"], Int[Tensor, "clusters classes"]]:
    """Names of clusters and classes, ascending, and how many images of each class are in each cluster."""
    _some(truth)
    clusters, row = guess.cpu().unique(return_inverse=True)
    classes, column = truth.cpu().unique(return_inverse=True)
    shape = len(clusters), len(classes)
    return clusters, classes, torch.bincount(row * shape[1] + column, minlength=math.prod(shape)).view(shape)


def _match(table: Int[Tensor, "clusters classes"]) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Clusters and the classes they are matched to: most images right, and among such matchings the best recall.

        max_π Σ_c n_π(c)c + (Σ_c n_π(c)c / n_c) / (C + 1)

    The second sum is below 1 and counts are whole, so it only breaks ties: names of clusters then never matter.
    """
    from scipy.optimize import linear_sum_assignment  # late: 30 MB, which the server of a review need not hold

    recall = table / table.sum(0).double()
    rows, columns = linear_sum_assignment((table + recall / (table.shape[1] + 1)).numpy(), maximize=True)
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _by_kind(right: Bool[Tensor, " n"], truth: Int[Tensor, " n"], known: int) -> ByKind:
    """Shares of what is right: of all images, of those of known classes, of those of novel ones."""
    _some(truth)
    of_known = truth.cpu() < known
    return ByKind(*(kind.double().mean().item() for kind in (right, right[of_known], right[~of_known])))


def _some(labels: Int[Tensor, " n"]) -> None:
    """Refuse to score nothing."""
    if not len(labels):
        raise ValueError("found no images to score: give at least one")


def _entropy(counts: Int[Tensor, "..."]) -> float:
    """−Σ p ln p of the shares p that counts make."""
    return torch.special.entr(counts.double() / counts.sum()).sum().item()


def _pairs(counts: Int[Tensor, "..."]) -> int:
    """Σ C(n, 2); a Python integer, for products of two of these exceed 64 bits."""
    return int((counts * (counts - 1) // 2).sum())
