"""Guesses, from latents or scores alone: which images share a class, and which class that is."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from newfound.functional.geometry import distances
from newfound.types import Scalar


def ranking_statistics(z: Float[Tensor, "n d"], k: int = 5) -> Bool[Tensor, "n n"]:
    """Two images are alike when their k strongest features are the same set.

        s_ij = 1[top_k(z_i) = top_k(z_j)]        (Han et al. 2020, Eq. 2)

    Which of equal features is the stronger is up to `topk`: a latent with fewer than k features above 0, as dead ReLUs
    leave it, is alike to others by chance.
    """
    top = torch.zeros_like(z).scatter_(1, z.topk(k, dim=1).indices, 1.0)
    return top @ top.T == k


def cosine(z: Float[Tensor, "n d"], threshold: float = 0.95) -> Bool[Tensor, "n n"]:
    """Two images are alike when their latents point the same way.

        s_ij = 1[z_iᵀz_j / ‖z_i‖‖z_j‖ > threshold]        (Zhong et al. 2021, Neighborhood Contrastive Learning)

    A latent of zeros points nowhere and is alike to none, itself included.
    """
    unit = F.normalize(z)
    return unit @ unit.T > threshold


@torch.no_grad()
def neighbourhood(similarity: Float[Tensor, "n m"], k: int, own: float = 0.2) -> Float[Tensor, "n m"]:
    """The other view of an image (column 0), and the k entries most similar to it, share its class.

        t_i0 = own,   t_ij = (1 − own)/k  where j is among the k largest of row i,   else 0
                                                (Zhong et al. 2021, Neighborhood Contrastive Learning)

    All columns compete for the k places, as in the published code: where the other view takes one, its row sums to
    1 − (1 − own)/k, else to 1.
    """
    target = torch.zeros_like(similarity).scatter_(1, similarity.topk(k, dim=1).indices, (1 - own) / k)
    target[:, 0] = own
    return target


def hard_negatives(
    q: Float[Tensor, "n d"],
    unlabelled: Float[Tensor, "u d"],
    labelled: Float[Tensor, "l d"],
    drawn: Int[Tensor, "n draws far"],
    kept: int,
) -> Float[Tensor, "n kept"]:
    """Cosines of latents with the `kept` most similar of blends that are surely of another class.

        b ∝ u + 2l  and  b ∝ 2u + l        (Zhong et al. 2021, Neighborhood Contrastive Learning)

    The j-th of the `far` unlabelled entries least similar to q_i is blended with the labelled entries
    `drawn[i, :, j]`. q, u, l are of unit length, and no blend is ever formed:

        qᵀb = (qᵀu + 2 qᵀl) / √(5 + 4 uᵀl)
    """
    to_unlabelled, to_labelled = q @ unlabelled.T, q @ labelled.T
    away, far = to_unlabelled.topk(drawn.shape[2], dim=1, largest=False)
    used, place = far.unique(return_inverse=True)  # latents share most of what is far from them
    at = place[:, None] * len(labelled) + drawn  # in one list: torch reads pairs of indices ten times slower
    between = (unlabelled[used] @ labelled.T).flatten().index_select(0, at.flatten()).view_as(at)
    u, l = away[:, None], to_labelled.gather(1, drawn.flatten(1)).view_as(between)  # noqa: E741
    blends = torch.stack([u + 2 * l, 2 * u + l], dim=1) * (5 + 4 * between).rsqrt()[:, None]
    return blends.flatten(1).topk(kept, dim=1).values


def part_distances(
    descriptors: Float[Tensor, "n locations d"], parts: Float[Tensor, "m d"]
) -> Float[Tensor, "n locations m"]:
    """Squared distances ‖d_il − v_m‖² from what an image shows at its locations to the parts of a dictionary."""
    # all locations of all images as one list: cdist would copy the dictionary once for each image of a batch
    return torch.cdist(descriptors.flatten(0, 1), parts).square().unflatten(0, descriptors.shape[:2])


def part_codes(far: Float[Tensor, "n locations m"], sharpness: Scalar) -> Float[Tensor, "n m"]:
    """How much of each part an image shows, given the squared distances to the parts.

        c_im = mean_l softmax_m(−β ‖d_il − v_m‖²)        (Zhao & Han 2021)

    Not negative, and of sum 1: the L1-normalisation that follows in the authors' code changes nothing.
    """
    return (-sharpness * far).softmax(2).mean(1)


def winner_codes(z: Float[Tensor, "n d"], drawn: Int[Tensor, "hashes k"]) -> Int[Tensor, "n hashes"]:
    """Which of a few drawn features is the strongest, for each draw.

        code_h(z) = argmax_{m<k} z[θ_h(m)]        (Yagnik et al. 2011, The Power of Comparative Reasoning)

    with `drawn[h]` the first k entries of the permutation θ_h. Only the order of features matters. Of equal features
    the first wins.
    """
    return z[:, drawn].argmax(2)


def winner_takes_all(
    z: Float[Tensor, "n d"], drawn: Int[Tensor, "hashes k"], least: float = 240 / 512
) -> Bool[Tensor, "n n"]:
    """Two images are alike when the same features win in at least this share of the draws.

        s_ij = 1[#{h : code_h(z_i) = code_h(z_j)} ≥ least · H]        (Jia et al. 2021)

    1/k of the draws agree by chance; more do where dead ReLUs leave many features at 0, and the first of them wins.
    """
    hashes, k = drawn.shape
    codes = F.one_hot(winner_codes(z, drawn), k).flatten(1).to(z.dtype)
    return codes @ codes.T >= least * hashes


@torch.no_grad()
def sharpen(p: Float[Tensor, "n c"], temperature: float = 0.5) -> Float[Tensor, "n c"]:
    """Guessed class probabilities made surer of what they say.

        p_ic^(1/T) / Σ_c p_ic^(1/T)        (Berthelot et al. 2019, MixMatch, Eq. 7)

    At T = 1 they stay as they are; towards 0 the likeliest class takes all.
    """
    return (p.log() / temperature).softmax(1)


def soft_assignment(z: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], alpha: float = 1.0) -> Float[Tensor, "n k"]:
    """How much of each latent belongs to each centre, as a logarithm; gradient flows to both.

        log q_ik,   q_ik ∝ (1 + ‖z_i − μ_k‖²/α)^(−(α + 1)/2),   Σ_k q_ik = 1        (Xie et al. 2016, DEC, Eq. 1)

    Student's t falls so slowly that q is never 0, however far a latent is.
    """
    apart = distances(z, centres).square() / alpha
    return (-(alpha + 1) / 2 * apart.log1p()).log_softmax(1)


def target_distribution(q: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The same assignment, surer of itself, and without favour for large clusters.

        p_ik ∝ q_ik² / Σ_j q_jk,   Σ_k p_ik = 1        (Xie et al. 2016, DEC, Eq. 3)

    A cluster that nobody belongs to at all, or a row of zeros, stays at 0.
    """
    least = torch.finfo(q.dtype).tiny
    p = q.square() / q.sum(0).clamp(min=least)
    return p / p.sum(1, keepdim=True).clamp(min=least)


@torch.no_grad()
def sinkhorn(
    logits: Float[Tensor, "*heads n k"],
    epsilon: float = 0.05,
    rounds: int = 3,
    shares: Float[Tensor, " k"] | None = None,
) -> Float[Tensor, "*heads n k"]:
    """Shares of classes for each image that follow the logits, while each class gets about its share of all images.

        Q ← exp(logits/ε),   then `rounds` times   Q_ic ← s_c Q_ic / Σ_j Q_jc,   Q_ic ← Q_ic / Σ_c' Q_ic'
                                                                (Cuturi 2013; Caron et al. 2020, SwAV)

    Rows sum to 1, columns to n s_c when the rounds are many, and nearly so after a few; without `shares` all classes
    get equally much. In logarithms, and in float32 at least: exp(1/0.05) is beyond half precision, exp(5/0.05) beyond
    float32.
    """
    log_q = logits.to(torch.promote_types(logits.dtype, torch.float32)) / epsilon
    offset = 0.0 if shares is None else shares.clamp(min=torch.finfo(shares.dtype).tiny).log()
    for _ in range(rounds):
        log_q = (log_q.log_softmax(-2) + offset).log_softmax(-1)
    return log_q.exp()
