"""Losses: each is one number, and 0 with a gradient when there is nothing to look at."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.types import Scalar

EPSILON = 1e-7
"""Least probability whose logarithm is taken; the value of all repositories since MCL (Hsu et al. 2019)."""


def mean(values: Float[Tensor, "..."]) -> Scalar:
    """Mean that is 0, and passes gradient, when there are no values."""
    return values.sum() / max(values.numel(), 1)


def cross_entropy(logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"], smoothing: float = 0.0) -> Scalar:
    """How surprised the head is by the labels.

        −mean_i Σ_c t_ic log softmax(logits_i)_c,   t_ic = (1 − smoothing) 1[c = y_i] + smoothing / C

    Rows without a label are left out by the caller.
    """
    return mean(F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing))


def self_training(logits: Float[Tensor, "n classes"], novel: Float[Tensor, "n novel"], known: int) -> Scalar:
    """How surprised a head over known and novel classes is by what a head over the novel ones says, which is not moved.

        −mean_i log softmax(logits_i)_c,   c = C_l + argmax_k novel_ik        (Han et al. 2021, AutoNovel)

    0 where there is no novel class: then nobody says anything.
    """
    if novel.shape[1] == 0:
        return mean(logits[:0])
    return cross_entropy(logits, known + novel.argmax(1))


def soft_cross_entropy(logits: Float[Tensor, "n c"], target: Float[Tensor, "n c"]) -> Scalar:
    """How surprised the head is by shares of classes.

        −mean_i Σ_c t_ic log softmax(logits_i)_c

    Moves the logits, never the target; a target need not sum to 1.
    """
    return -mean((target.detach() * logits.log_softmax(1)).sum(1))


def swapped_cross_entropy(
    logits: Float[Tensor, "views *heads n c"], targets: Float[Tensor, "large *heads n c"]
) -> Float[Tensor, "*heads n"]:
    """How surprised the views of an image are by the targets that its other views give, for every head and image.

        ℓ_hi = −mean_{v ≤ large, w ≠ v} Σ_c t_vhic log softmax(logits_whi)_c        (Caron et al. 2020, SwAV)

    The first views are large and give targets; the mean is over pairs of views, so a large view learns from the other
    large ones, a small view from all large ones. 0 where there is but one view.
    """
    surprise = -torch.einsum("v...c,w...c->vw...", targets.detach(), logits.log_softmax(-1))
    others = ~torch.eye(len(targets), len(logits), dtype=torch.bool, device=logits.device)
    return surprise[others].sum(0) / others.sum().clamp(min=1)


def pairwise_bce(p: Float[Tensor, "n c"], q: Float[Tensor, "n c"], alike: Bool[Tensor, "n n"]) -> Scalar:
    """How surprised two views' class probabilities are by which images are alike.

        −mean_ij [ s_ij log ŝ_ij + (1 − s_ij) log(1 − ŝ_ij) ],   ŝ_ij = p_iᵀq_j        (Hsu et al. 2019, MCL)

    over all ordered pairs, i = j among them. The probability of what is the case, ŝ or 1 − ŝ, counts as at least 1e-7:
    a pair that is surely wrong costs 16.1 and gives no gradient. (The repositories add 1e-7 instead; behind a softmax
    their gradient fades there as ŝ/(ŝ + 1e-7).)
    """
    together = p @ q.T
    return -mean(torch.where(alike, together, 1 - together).clamp(min=EPSILON).log())


def kcl(p: Float[Tensor, "n c"], alike: Bool[Tensor, "n n"], margin: float = 2.0) -> Scalar:
    """How far from one another alike images' class probabilities are, and how near those of others.

        mean_ij [ s_ij D_ij + (1 − s_ij) max(0, margin − D_ij) ],   D_ij = KL(sg(p_j) ‖ p_i)        (Hsu et al. 2018)

    over all ordered pairs, so that each of two images is moved towards or away from the other; an image and itself,
    alike, cost nothing. To every probability 1e-7 is added. A pair that is not alike and further apart than the margin
    gives no gradient.
    """
    p = p + EPSILON
    fixed = p.detach()
    apart = (fixed * fixed.log()).sum(1) - p.log() @ fixed.T
    return mean(torch.where(alike, apart, (margin - apart).relu()))


def consistency(p: Float[Tensor, "n c"], q: Float[Tensor, "n c"]) -> Scalar:
    """How differently two views of an image are judged: mean over images and classes of (p_ic − q_ic)²."""
    return mean((p - q).square())


def pull(z: Float[Tensor, "n d"], targets: Float[Tensor, "n d"]) -> Scalar:
    """How far latents are from where they should be; moves the latents, never the targets.

        mean_i ‖z_i − sg(t_i)‖²        (Spacing Loss, Algorithm 2)

    Summed over dimensions, averaged over images, so that a weight means the same at every batch size.
    """
    return F.mse_loss(z, targets.detach(), reduction="sum") / max(len(z), 1)


def symmetric_kl(logits: Float[Tensor, "n c"], others: Float[Tensor, "n c"]) -> Scalar:
    """How far apart two judgements of the same images are; each is moved towards the other.

        mean_i ½ [KL(p_i‖q_i) + KL(q_i‖p_i)] = mean_i ½ Σ_c (p_ic − q_ic)(log p_ic − log q_ic)

    with p = softmax(logits), q = softmax(others). Zhao & Han 2021 call it sKLD; the half is their code's.
    """
    p, q = logits.log_softmax(1), others.log_softmax(1)
    return mean(((p.exp() - q.exp()) * (p - q)).sum(1)) / 2


def info_nce(
    a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], alike: Bool[Tensor, "n n"], temperature: float
) -> Scalar:
    """How hard it is to tell the views that belong with a view from all others.

        −mean_i mean_{p ∈ P(i)} log [ exp(v_iᵀv_p/τ) / Σ_{j≠i} exp(v_iᵀv_j/τ) ]        (Khosla et al. 2020, Eq. 2)

    i runs over the 2n views v = [a, b], made unit vectors. P(i) holds the other view of the same image and both views
    of images alike to it. Where no two images are alike this is InfoNCE (van den Oord et al. 2018).
    """
    v, n = F.normalize(torch.cat([a, b]), dim=1), len(a)
    itself = torch.eye(2 * n, dtype=torch.bool, device=v.device)
    positive = (alike | itself[:n, :n]).repeat(2, 2) & ~itself
    surprise = -(v @ v.T / temperature).masked_fill(itself, -torch.inf).log_softmax(1)
    return mean(surprise.masked_fill(~positive, 0.0).sum(1) / positive.sum(1))


def divergence(log_q: Float[Tensor, "n c"], p: Float[Tensor, "n c"]) -> Scalar:
    """How far an assignment, given as a logarithm, is from its target.

        mean_ic p_ic (log p_ic − log q_ic),   0 log 0 = 0        (Han et al. 2019, DTC)

    Averaged over images and classes, as their code does: 1/c of the mean of KL(p_i ‖ q_i).
    """
    return mean(F.kl_div(log_q, p, reduction="none"))


def distillation(logits: Float[Tensor, "n c"], old: Float[Tensor, "n c"], temperature: float = 2.0) -> Scalar:
    """How far a head has gone from what an old one says of the same images; the old one is never moved.

        T² · mean_i KL(q_i ‖ p_i),   q = softmax(old / T),  p = softmax(logits / T)        (Hinton et al. 2015)

    T² keeps the gradient's size whatever the temperature. Li & Hoiem 2016 (Learning without Forgetting, Eq. 2) take the
    cross-entropy of q and p, which differs by what no gradient sees, and leave T² out.
    """
    p, q = (logits / temperature).log_softmax(1), (old.detach() / temperature).log_softmax(1)
    return temperature**2 * mean(F.kl_div(p, q, reduction="none", log_target=True).sum(1))


def feature_distillation(z: Float[Tensor, "n d"], old: Float[Tensor, "n d"]) -> Scalar:
    """How far latents have gone from where an old backbone had them, as one direction for the whole batch.

        ‖ Z/‖Z‖ − Z_old/‖Z_old‖ ‖,   ‖·‖ over all entries        (Roy et al. 2022, FRoST; so in their code)

    From 0 to 2, whatever the batch size. Where nothing has moved it is 0, with a gradient of 0.
    """
    apart = F.normalize(z.flatten(), dim=0) - F.normalize(old.detach().flatten(), dim=0)
    return apart.square().sum().clamp(min=1e-24).sqrt() if len(z) else z.sum()


def mutual_information(p: Float[Tensor, "n a"], q: Float[Tensor, "n b"]) -> Scalar:
    """How much one judgement of images tells about another one of the same images, in nats; to be made large.

        I(P) = Σ_ab P_ab log P_ab / (P_a· P_·b),   P = mean_i p_i q_iᵀ        (Ji et al. 2019, IIC, Eq. 3)

    0 where the two have nothing to do with each other, or either says the same of all images.
    """
    joint = torch.einsum("na,nb->ab", p, q) / max(len(p), 1)
    apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return (joint * (joint.clamp(min=EPSILON).log() - apart.clamp(min=EPSILON).log())).sum()
