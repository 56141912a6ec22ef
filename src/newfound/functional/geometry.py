"""Prototypes, anchors and the distances between them.

    K. J. Joseph, S. Paul, G. Aggarwal, S. Biswas, P. Rai, K. Han, V. N. Balasubramanian:
    Spacing Loss for Discovering Novel Categories. CVPR Workshops 2022.

Anchors are found once in a run, so their geometry is worked out in float64 on the CPU, whatever dtype and device the
answer is handed back in. Stress, surrogate and SMACOF follow de Leeuw; X, Y are c × dim configurations, Δ and W are
symmetric and hollow.

Long, for anchors (Algorithm 1) are read together with the distances, means and axes that they are made of.
"""

import math
import warnings
from typing import Literal, NamedTuple

import scipy.linalg
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor

from newfound.errors import InputError
from newfound.types import Scalar

STEPS, FEWEST_STEPS, PAIRS = 1000, 20, 10**8
"""SMACOF's steps, at most; for so many anchors that it would look at more than `PAIRS` pairs fewer, but some."""


def distances(points: Float[Tensor, "n dim"], others: Float[Tensor, "m dim"] | None = None) -> Float[Tensor, "n m"]:
    """Euclidean distances, from differences: exact also where points nearly coincide, 0 exactly where they do."""
    others = points if others is None else others
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")


def nearest(z: Float[Tensor, "n dim"], prototypes: Float[Tensor, "c dim"]) -> Int[Tensor, " n"]:
    """Index of each latent's nearest prototype.

        a(i) = argmin_k ‖z_i − p_k‖² = argmin_k ‖p_k‖² − 2 z_i·p_k        (Algorithm 2, line 7)

    ‖z_i‖² is the same for every prototype, so one matrix product finds the order without the distances.
    """
    return torch.addmm(prototypes.square().sum(1), z, prototypes.T, alpha=-2).argmin(1)


def means(
    z: Float[Tensor, "n dim"], assignment: Int[Tensor, " n"], classes: int
) -> tuple[Float[Tensor, "{classes} dim"], Int[Tensor, " {classes}"]]:
    """Mean and number of the latents assigned to each class; an empty class has mean 0 and count 0."""
    counts = torch.bincount(assignment, minlength=classes)
    sums = z.new_zeros(classes, z.shape[1]).index_add_(0, assignment, z)
    return sums / counts.clamp(min=1)[:, None], counts


def covariance(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], centres: Float[Tensor, "c d"]
) -> Float[Tensor, "d d"]:
    """Shared within-class covariance: Σ_i (z_i − μ_y(i)) (z_i − μ_y(i))ᵀ / (n − c)."""
    rest = features - centres[labels]
    return rest.T @ rest / max(1, len(features) - len(centres))


def drift(
    centres: Float[Tensor, "c d"], before: Float[Tensor, "n d"], after: Float[Tensor, "n d"], width: float
) -> Float[Tensor, "c d"]:
    """How far classes whose images are gone have moved, guessed by how far images near them have.

        Δ_k = Σ_i w_ik (z′_i − z_i) / Σ_i w_ik,   w_ik = exp(−‖z_i − μ_k‖² / 2σ²)        (Yu et al. 2020)

    z are latents of other images before the backbone moved, z′ after; σ is `width`.
    """
    weights = (-torch.cdist(centres, before).square() / (2 * width**2)).softmax(1)
    return weights @ (after - before)


def whitening(within_covariance: Float[Tensor, "dim dim"], shrink: float) -> Float[Tensor, "dim dim"]:
    """The symmetric W that makes a covariance round, as far as it can be trusted.

    W = (S + ρ s̄ I)^−½,   s̄ = Tr S / dim        (ρ is `shrink`; without it directions of no spread would explode)

    A covariance of 0, as one image a class has it, says nothing: W = I.
    """
    size = within_covariance.shape[0]
    if not within_covariance.any():
        return torch.eye(size).to(within_covariance)
    strengths, directions = _eigh(_exact(within_covariance))
    scales = (strengths.clamp(min=0) + shrink * strengths.sum() / size).rsqrt()
    return (directions * scales @ directions.T).to(within_covariance)


def covariance_root(within_covariance: Float[Tensor, "dim dim"]) -> Float[Tensor, "dim dim"]:
    """What takes standard normal draws to draws of a covariance, in double precision.

    S = R Rᵀ,   R = V √Λ        (S = V Λ Vᵀ; what rounding left below 0 is 0)
    """
    values, vectors = _eigh(within_covariance.double())
    return vectors * values.clamp(min=0).sqrt()


def affine_fit(
    before: Float[Tensor, "n dim"], after: Float[Tensor, "n dim"], shrink: float
) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
    """The affine map that takes latents to what they have become, as far as they can tell; no gradient.

        A, b = argmin Σ_i ‖z′_i − z_i A − b‖² + ρ s̄ ‖A − I‖²,   s̄ = Tr XᵀX / dim        (ρ is `shrink`)
             = I + (XᵀX + ρ s̄ I)⁻¹ Xᵀ(Y − X),   z̄′ − z̄ A

    X, Y are the centred z, z′. Along directions that the latents do not fill nothing is known, and A changes nothing.
    """
    X, Y = _exact(before), _exact(after)
    centre, moved = X.mean(0), Y.mean(0)
    X, Y = X - centre, Y - moved
    S, eye = X.T @ X, torch.eye(X.shape[1], dtype=torch.float64)
    ridge = shrink * S.trace() / len(S)
    A = eye + torch.linalg.lstsq(S + ridge * eye, X.T @ (Y - X), driver="gelsd").solution
    return A.to(before), (moved - centre @ A).to(before)


def principal(x: Float[Tensor, "n dim"], k: int) -> Float[Tensor, "n {k}"]:
    """Coordinates along the k directions of largest variance (PCA), the widest first; no gradient.

    (X − x̄) V        (`principal_axes`)
    """
    centre, V = principal_axes(x, k)
    return ((_exact(x) - centre) @ V).to(x)


def principal_axes(x: Float[Tensor, "n dim"], k: int) -> tuple[Float64[Tensor, " dim"], Float64[Tensor, "dim {k}"]]:
    """The mean x̄, and as columns the k directions V of largest variance about it, the widest first; no gradient.

        V the first k eigenvectors of (X − x̄)ᵀ(X − x̄)

    Where X fills fewer directions the columns beyond are 0.
    """
    X = _exact(x)
    centre = X.mean(0)
    X = X - centre
    V = directions(X.T @ X)[:, :k]
    return centre, F.pad(V, (0, k - V.shape[1]))


def directions(scatter: Float[Tensor, "dim dim"]) -> Float[Tensor, "dim filled"]:
    """Eigenvectors of a scatter matrix, the widest first, each turned so that its largest entry is positive.

    Those along which nothing is scattered are left out, but one is given at least.
    """
    values, V = _eigh(scatter)
    filled = max(1, int((values > values[-1] * 1e-12).sum()))
    V = V.flip(1)[:, :filled]
    return V * V.gather(0, V.abs().argmax(0, keepdim=True)).sign()


def _eigh(matrix: Float[Tensor, "dim dim"]) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim dim"]]:
    """Eigenvalues and eigenvectors of a symmetric matrix. LAPACK's quick way gives up where a few images leave most of
    a thousand directions empty; its sure way does not.
    """
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        exact = scipy.linalg.eigh(matrix.double().numpy(force=True), driver="evr")
        values, vectors = (torch.from_numpy(found).to(matrix) for found in exact)
    return values, vectors


def target_distance(prototypes: Float[Tensor, "c dim"], alpha: float, cap: float | None = None) -> float:
    """How far apart the anchors shall be.

    δ = min(α · max_{i<j} ‖p_i − p_j‖, cap)        (Algorithm 1, lines 1–2)

    The cap is ours.
    """
    if alpha <= 1:
        warnings.warn(
            f"alpha = {alpha:g} sets the anchors no further apart than the prototypes already are; "
            "the paper asks for alpha > 1.",
            stacklevel=2,
        )
    distance = alpha * distances(_exact(prototypes)).max().item()
    return distance if cap is None else min(distance, cap)


def even(classes: int, distance: float) -> Float64[Tensor, "{classes} {classes}"]:
    """The dissimilarities Δ of equidistant points: δ everywhere, 0 on the diagonal (Algorithm 1, line 2)."""
    return torch.full((classes, classes), distance, dtype=torch.float64).fill_diagonal_(0.0)


def stress(
    X: Float[Tensor, "c dim"], delta: Float[Tensor, "c c"], weights: Float[Tensor, "c c"] | None = None
) -> Scalar:
    """How far a configuration is from the distances asked of it.

        σ(X) = Σ_{i<j} w_ij (d_ij(X) − δ_ij)²        (Eq. 1)

    Without weights every pair counts alike, w_ij = 1; here and below.
    """
    return _stress(distances(X), delta, weights)


def surrogate(
    X: Float[Tensor, "c dim"],
    Y: Float[Tensor, "c dim"],
    delta: Float[Tensor, "c c"],
    weights: Float[Tensor, "c c"] | None = None,
) -> Scalar:
    """The quadratic in X that lies above the stress everywhere and touches it at Y.

        τ(X, Y) = Tr XᵀVX + Σ_{i<j} w_ij δ_ij² − 2 Tr XᵀB(Y)Y        (Eq. 5)
        v_ij = −w_ij,   b_ij = −w_ij δ_ij / d_ij(Y), or 0 where d_ij(Y) = 0;   rows of V and of B sum to 0

    The paper's Eq. 4 prints B with the opposite sign: τ would touch the stress at −Y, and every step flip the points.
    """
    weights = torch.ones_like(delta) if weights is None else weights
    V, B = _laplacian(weights), _b(distances(Y), weights * delta)
    return (X * (V @ X)).sum() + (weights * delta.square()).sum() / 2 - 2 * (X * (B @ Y)).sum()


def guttman(
    Y: Float[Tensor, "c dim"], delta: Float[Tensor, "c c"], weights: Float[Tensor, "c c"] | None = None
) -> Float[Tensor, "c dim"]:
    """The Guttman transform, which minimises the surrogate and so never raises the stress.

        G(Y) = argmin_X τ(X, Y) = V⁺ B(Y) Y        (Algorithm 1, line 6)
        with equal weights  g_i = (1/c) Σ_{j≠i} δ_ij (y_i − y_j) / ‖y_i − y_j‖

    Points that coincide do not push each other.
    """
    return _guttman(Y, distances(Y), delta if weights is None else weights * delta, _inverse(weights))


class Configuration(NamedTuple):
    """Points found by SMACOF, the stress they are left with, and the Guttman transforms it took."""

    points: Float[Tensor, "c dim"]
    stress: float
    steps: int


def smacof(
    delta: Float[Tensor, "c c"],
    dim: int,
    *,
    weights: Float[Tensor, "c c"] | None = None,
    start: Float[Tensor, "c {dim}"] | None = None,
    starts: int = 4,
    generator: torch.Generator | None = None,
    steps: int = STEPS,
    tolerance: float = 1e-12,
    move: float | None = None,
) -> Configuration:
    """Points whose distances are as near Δ as majorisation brings them, in delta's dtype.

        Y ← X,  X ← G(Y)   until   σ(Y) − σ(X) ≤ tolerance · Σ_{i<j} w_ij δ_ij²,  or `steps` are taken
                                   ‖Y − X‖ ≤ move, where that is given        (Algorithm 1, lines 3–7)

    From `start` if given, else from `starts` Gaussian draws, of which the lowest stress wins. Rows of X are
    combinations of the rows of Y: points that coincide never part, and a flat start stays flat.
    """
    draws = (torch.randn(len(delta), dim, dtype=torch.float64, generator=generator) for _ in range(starts))
    begins = draws if start is None else [_exact(start)]
    W = None if weights is None else _exact(weights)
    found = (_descend(begin, _exact(delta), W, steps, tolerance, move) for begin in begins)
    best = min(found, key=lambda configuration: configuration.stress)
    return best._replace(points=best.points.to(delta))


def simplex(classes: int, dim: int) -> Float64[Tensor, "{classes} {dim}"]:
    """The regular simplex of unit edge about the origin, in its first classes − 1 coordinates.

        X = H / √2,   h_ir = (1 if i < r,  −r if i = r,  else 0) / √(r (r + 1)),   i = 0 … c − 1,  r = 1 … c − 1

    H is Helmert's: orthonormal columns, each summing to 0, so HHᵀ = I − 11ᵀ/c. Exists iff c ≤ dim + 1.
    """
    if classes > dim + 1:
        raise ValueError(
            f"{classes} equidistant points need at least {classes - 1} dimensions, found {dim}. "
            "Use fewer points or more dimensions; smacof() gets as near as it can."
        )
    i, r = torch.arange(classes)[:, None], torch.arange(1, classes)
    H = ((i < r).double() - r * (i == r)) / (r * (r + 1)).double().sqrt()
    return F.pad(H / math.sqrt(2), (0, dim - classes + 1))


def equidistant(
    prototypes: Float[Tensor, "c dim"],
    distance: float,
    orientation: Literal["aligned", "random"] = "aligned",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "c dim"]:
    """One anchor per prototype, all `distance` apart and centred on the origin; no gradient.

        E = δ S Q,   S the regular simplex,   QQᵀ = I
        aligned:  Q minimises Σ_k ‖(p_k − p̄) − e_k‖²,  so E = (δ/√2) · polar factor of P − p̄
        random:   Q is uniformly distributed, as Algorithm 1's random start leaves it

    Prototypes may coincide. For c > dim + 1 no points are equidistant: S is then SMACOF's best, started at the
    prototypes (aligned) or at random, and a warning tells the smallest distance.
    """
    c, dim = prototypes.shape
    P = _exact(prototypes)
    P = P - P.mean(0)
    if c <= dim + 1:
        S = simplex(c, c - 1)
    else:
        # Random starts beside the prototypes would often win, by a per cent or two of stress, and lose the alignment.
        start = _nudged(P, generator) if orientation == "aligned" else None
        steps = max(FEWEST_STEPS, min(STEPS, PAIRS // c**2))
        S = smacof(even(c, 1.0), dim, start=start, generator=generator, steps=steps).points
        least = torch.pdist(S).min().item()
        warnings.warn(
            f"{c} anchors cannot be equidistant in {dim} dimensions, where at most {dim + 1} points can: the nearest "
            f"two are {least * distance:.4g} apart, {least:.1%} of the distance {distance:.4g} asked for.",
            stacklevel=2,
        )
    Q = _procrustes(S, P) if orientation == "aligned" else _rotation(S.shape[1], dim, generator)
    return (distance * S @ Q).to(prototypes)


def orthonormal(prototypes: Float[Tensor, "c dim"]) -> Float[Tensor, "c dim"]:
    """One unit anchor per prototype, orthogonal to all others, and as near the prototypes as such can be; no gradient.

        E = argmin_{EEᵀ = I} Σ_k ‖p_k − e_k‖² = UVᵀ,   P = UΣVᵀ        (the polar factor of P)

    So all are √2 apart. Prototypes may coincide. For c > dim no points are orthogonal: the rows of UVᵀ, then a tight
    frame (EᵀE = I), are made unit vectors.
    """
    U, _, Vh = torch.linalg.svd(_exact(prototypes), full_matrices=False)
    return F.normalize(U @ Vh, dim=1).to(prototypes)


def extend(
    anchors: Float[Tensor, "c dim"], more: int, towards: Float[Tensor, "{more} dim"] | None = None
) -> Float[Tensor, "all dim"]:
    """The given equidistant anchors, untouched, and `more` after them at the same distance from all and each other.

        e_new = ē + Y Q Nᵀ,   Y: `more` points at the right distances,   Q minimises ‖Y Q − (P − ē) N‖,   QQᵀ = I

    N is a basis of what is orthogonal to the old anchors about their mean ē, in which alone the new ones may be turned;
    P are the points `towards` which they are turned, where such are given.

    Needs c ≥ 2, to tell the distance, and c + more ≤ dim + 1. The new ones stand to one side of the old, so the
    centroid moves: subtract the mean where anchors must be origin-centred.
    """
    c, dim = anchors.shape
    if c < 2:
        raise ValueError(f"extend needs two anchors at least, found {c}: fewer do not tell the distance to keep.")
    if c + more > dim + 1:
        raise InputError(
            f"{c} anchors cannot be extended by {more} in {dim} dimensions: found {c + more} equidistant points, and "
            f"there is room for {dim + 1}. Take a backbone of {c + more - 1} dimensions or more, or add fewer classes."
        )
    A = _exact(anchors)
    S = torch.pdist(A).mean() * simplex(c + more, dim)[:, : c + more - 1]
    S, middle = S - S[:c].mean(0), A.mean(0)
    added = S[c:] @ _procrustes(S[:c], A - middle)
    if towards is not None:
        N = torch.linalg.svd(A - middle).Vh[c - 1 :].T
        added = added @ N @ _procrustes(added @ N, (_exact(towards) - middle) @ N) @ N.T
    return torch.cat([anchors.detach(), (middle + added).to(anchors)])


def _exact(x: Float[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    return x.detach().cpu().double()


def _laplacian(W: Float[Tensor, "c c"]) -> Float[Tensor, "c c"]:
    """diag(W1) − W, blind to the diagonal of W: V is that of w_ij, B(Y) that of w_ij δ_ij / d_ij(Y)."""
    return torch.diag(W.sum(1)) - W


def _b(D: Float[Tensor, "c c"], push: Float[Tensor, "c c"]) -> Float[Tensor, "c c"]:
    """B(Y) from the distances in Y and from w_ij δ_ij."""
    return _laplacian((push / D).masked_fill(D == 0, 0.0))


def _inverse(weights: Float[Tensor, "c c"] | None) -> Float[Tensor, "c c"] | None:
    """V⁺; None where weights are equal, since V⁺ then divides the centred B(Y)Y by c."""
    return None if weights is None else torch.linalg.pinv(_laplacian(weights), hermitian=True)


def _stress(D: Float[Tensor, "c c"], delta: Float[Tensor, "c c"], weights: Float[Tensor, "c c"] | None) -> Scalar:
    squares = (D - delta).square()
    return (squares if weights is None else weights * squares).sum() / 2


def _guttman(
    Y: Float[Tensor, "c dim"],
    D: Float[Tensor, "c c"],
    push: Float[Tensor, "c c"],
    inverse: Float[Tensor, "c c"] | None,
) -> Float[Tensor, "c dim"]:
    pushed = _b(D, push) @ Y
    return pushed / len(Y) if inverse is None else inverse @ pushed


def _descend(
    start: Float64[Tensor, "c dim"],
    delta: Float64[Tensor, "c c"],
    weights: Float64[Tensor, "c c"] | None,
    steps: int,
    tolerance: float,
    move: float | None,
) -> Configuration:
    """SMACOF from one start, in coordinates of the start's own row space: min(c, dim) of them suffice."""
    basis, coordinates = torch.linalg.qr(start.T)
    push, inverse = delta if weights is None else weights * delta, _inverse(weights)
    negligible = tolerance * _stress(torch.zeros_like(delta), delta, weights).item()

    D, done = distances(coordinates.T), False
    here = Configuration(coordinates.T, _stress(D, delta, weights).item(), 0)
    while not done and here.steps < steps:
        X = _guttman(here.points, D, push, inverse)
        D = distances(X)
        there = Configuration(X, _stress(D, delta, weights).item(), here.steps + 1)
        fall, moved = here.stress - there.stress, (X - here.points).norm().item()
        done = fall <= negligible if move is None else moved <= move
        here = there
    return here._replace(points=here.points @ basis.T)


def _procrustes(S: Float64[Tensor, "c k"], P: Float64[Tensor, "c dim"]) -> Float64[Tensor, "k dim"]:
    """The Q with orthonormal rows that minimises ‖SQ − P‖, for k ≤ dim: the polar factor of SᵀP.

    Where SᵀP lacks rank the singular vectors are orthonormal all the same, and complete Q.
    """
    U, _, Vh = torch.linalg.svd(S.T @ P, full_matrices=False)
    return U @ Vh


def _rotation(k: int, dim: int, generator: torch.Generator | None) -> Float64[Tensor, "{k} {dim}"]:
    """Uniformly distributed orthonormal rows; without the signs, QR's own convention would favour some."""
    Q, R = torch.linalg.qr(torch.randn(dim, k, dtype=torch.float64, generator=generator))
    return (Q * R.diagonal().sign()).T


def _nudged(P: Float64[Tensor, "c dim"], generator: torch.Generator | None) -> Float64[Tensor, "c dim"]:
    """P moved by a thousandth of its size, for SMACOF never parts points that coincide nor leaves a flat."""
    size = P.square().mean().sqrt().item() or 1.0
    return P + 1e-3 * size * torch.randn(P.shape, dtype=torch.float64, generator=generator)
