"""Near-duplicates: the same picture again, shifted a little, recompressed or resized. Chosen in decision 12."""

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

SIDE, FINE = 32, 64
"""Pixels of a side of the small copies that are compared, and of those by which what they say is confirmed."""

ENOUGH = 48
"""Pixels of a side from which on a picture is confirmed: it has more to show than `SIDE`."""

NEIGHBOURS = 8
"""Pictures that each is compared with, at most: those that look most like it from afar."""

FAR = 0.65
"""The cosine from afar below which two pictures are not compared."""

REACH = 1 / 16
"""How far one picture may be shifted against the other, as a share of its side, in whole pixels."""

NUDGE = 0.75
"""How many pixels farther, across and down."""

ALL_OVER, WORST = 0.07, 0.2
"""How far two copies may differ, as a share of their contrast: over all their pixels, and at any place of 4 × 4."""

FINE_WORST = 0.12
"""The latter for copies of `FINE` pixels, in which 4 × 4 are less of the picture."""

SLACK = 1.0
"""By how many pixels of the smaller picture each side may differ from that of the larger one, scaled to its size."""

PLAIN = 4.0
"""Grey levels: copies of so little contrast show nothing to tell them by, and none is called another's duplicate."""

ROWS = 1024
"""Pictures, or pairs, that are looked at together."""


def find_pairs(
    copies: UInt8[Tensor, "n channels side side"], others: UInt8[Tensor, "m channels side side"] | None = None
) -> Int[Tensor, "pairs 2"]:
    """Rows of pictures that show the same: of one set, the smaller row first, or of a set and another.

    Every picture is compared (`show_same`) with those that look most like it from afar, by the cosine of coarse copies;
    so the work grows with n² by a product of matrices alone, in blocks of rows.
    """
    if not len(copies) or (others is not None and not len(others)):
        return torch.empty(0, 2, dtype=torch.long)
    pairs = torch.cat([*_candidates(coarse(copies), None if others is None else coarse(others))])
    if not len(pairs):
        return pairs
    pairs = pairs.unique(dim=0)  # of two in one set, each may have named the other
    right = copies if others is None else others
    same = [show_same(copies[some[:, 0]], right[some[:, 1]]) for some in pairs.split(ROWS)]
    return pairs[torch.cat(same)]


def _candidates(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"] | None) -> Iterator[Int[Tensor, "pairs 2"]]:
    """Of each row of x those rows, of y or of its own set, that are nearest by cosine, and near enough."""
    to = x if y is None else y
    for rows in torch.arange(len(x)).split(ROWS):
        cosines = x[rows] @ to.T
        if y is None:
            cosines[torch.arange(len(rows)), rows] = -1.0
        near, which = cosines.topk(min(NEIGHBOURS, len(to)), 1)
        pairs = torch.stack([rows[:, None].expand_as(which), which], 2)[near >= FAR]
        yield pairs if y is not None else pairs.sort(1).values


def coarse(copies: UInt8[Tensor, "n channels side side"]) -> Float[Tensor, "n look"]:
    """What pictures look like from afar: blurred (two boxes of 5 × 5), at 8 × 8, about their mean, of length 1.

    A shift by two pixels of 32 hardly changes it. The last number is a constant: plain pictures have a direction too.
    """
    found = []
    for some in copies.split(ROWS):
        blurred = some.float()
        for _ in range(2):
            blurred = F.avg_pool2d(blurred, 5, 1, padding=2, count_include_pad=False)
        small = F.adaptive_avg_pool2d(blurred, 8).flatten(1)
        found.append(F.normalize(F.pad(small - small.mean(1, keepdim=True), (0, 1), value=2 * PLAIN), dim=1))
    return torch.cat(found)


def show_same(
    copies: UInt8[Tensor, "n channels side side"],
    others: UInt8[Tensor, "n channels side side"],
    bound: float | None = None,
) -> Bool[Tensor, " n"]:
    """Whether each picture and the one beside it are the same, wherever within `REACH` one lies against the other. A
    `bound` takes the place of `WORST`.

        r = what differs where they overlap (`difference`);   v = ½ (var a + var b) + PLAIN²,  of blurred a and b
        same ⇔ mean r² ≤ ALL_OVER · v  and  max over 4 × 4 of mean r² ≤ WORST · v

    The worst place tells a picture from another of its series, which differs in one sign alone. Plain pictures are
    nobody's duplicates.
    """
    a, b = copies.float(), others.float()
    least = torch.full((len(a),), torch.inf)
    worst, shifts = least.clone(), find_shifts(a, b)
    for shift in shifts.unique(dim=0):
        rows = (shifts == shift).all(1).nonzero()[:, 0]
        here, there = blur(_overlap(a[rows], *shift.tolist())), blur(_overlap(b[rows], *(-shift).tolist()))
        scale = (contrast(here) + contrast(there)) / 2 + PLAIN**2
        apart = difference(here, there).square().mean(1, keepdim=True)
        least[rows] = apart.flatten(1).mean(1) / scale
        worst[rows] = F.avg_pool2d(apart, min(4, *apart.shape[2:]), 2).flatten(1).amax(1) / scale
    plain = torch.minimum(contrast(blur(a)), contrast(blur(b))) < PLAIN**2
    return (least <= ALL_OVER) & (worst <= (WORST if bound is None else bound)) & ~plain


def find_shifts(a: Float[Tensor, "n c s s"], b: Float[Tensor, "n c s s"]) -> Int[Tensor, "n 2"]:
    """By how many pixels, down and across, each picture lies against the one beside it: where they differ least.

    A shift under which half of a picture's contrast would be out of sight does not count.
    """
    soft_a, soft_b, reach = blur(a), blur(b), round(REACH * a.shape[-1])
    whole_a, whole_b = contrast(soft_a), contrast(soft_b)
    least, found = torch.full((len(a),), torch.inf), torch.zeros(len(a), 2, dtype=torch.long)
    for shift in itertools.product(range(-reach, reach + 1), repeat=2):
        back = [-pixels for pixels in shift]
        seen_a, seen_b = contrast(_overlap(soft_a, *shift)), contrast(_overlap(soft_b, *back))
        apart = blur(_overlap(a, *shift) - _overlap(b, *back)).square().flatten(1).mean(1)
        apart = apart / ((seen_a + seen_b) / 2 + PLAIN**2)
        better = (apart < least) & (seen_a >= whole_a / 2) & (seen_b >= whole_b / 2)
        least, found[better] = torch.where(better, apart, least), torch.tensor(shift)
    return found


def difference(a: Float[Tensor, "n c h w"], b: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """What differs between pictures once one is moved against the other by less than a pixel.

        r = (a − b) − u ∂ₓm − v ∂ᵧm,   m = ½ (a + b),   (u, v) = argmin Σ r²,  at most NUDGE        (Lucas, Kanade 1981)

    A drawing of fifty pixels that was shifted by one lies between the pixels of a copy of 32, and thin lines would be
    another picture's.
    """
    apart, m = a - b, F.pad((a + b) / 2, (1, 1, 1, 1), mode="replicate")
    across, down = (m[..., 1:-1, 2:] - m[..., 1:-1, :-2]) / 2, (m[..., 2:, 1:-1] - m[..., :-2, 1:-1]) / 2
    slopes = torch.stack([across.flatten(1), down.flatten(1)], 1)
    square = slopes @ slopes.mT
    ridge = 1e-3 * square.diagonal(dim1=1, dim2=2).sum(1) + 1e-6  # stripes say nothing of a shift along them
    along = slopes @ apart.flatten(1)[:, :, None]
    moved = torch.linalg.solve(square + ridge[:, None, None] * torch.eye(2), along).clamp(-NUDGE, NUDGE)
    return apart - (moved.mT @ slopes).reshape(apart.shape)


def confirm(
    copies: UInt8[Tensor, "n channels fine fine"], others: UInt8[Tensor, "n channels fine fine"]
) -> Bool[Tensor, " n"]:
    """Whether pictures that look the same at `SIDE` do so at `FINE` pixels too: a star on a flag is lost at 32."""
    same = [
        show_same(a, b, FINE_WORST)
        for a, b in zip(copies.split(ROWS // 4), others.split(ROWS // 4), strict=True)
        if len(a)
    ]
    return torch.cat(same) if same else torch.zeros(0, dtype=torch.bool)


def share_shape(sides: Int[Tensor, "n 2"], others: Int[Tensor, "n 2"]) -> Bool[Tensor, " n"]:
    """Whether each picture and the one beside it, of such sides, may be one at two sizes: copies are squeezed to a
    square, and a j would be a J.

        |a b′ − a′ b| ≤ SLACK · max(a + a′, b + b′),   a and a′, b and b′ the shorter and the longer side of the two

    So much comes of rounding each side of the smaller to whole pixels and dropping one. Unknown sides (0) may be any.
    """
    apart = (sides[:, 0] * others[:, 1] - sides[:, 1] * others[:, 0]).abs()
    return apart <= SLACK * torch.maximum(sides.sum(1), others.sum(1))


def _overlap(x: Float[Tensor, "n c h w"], down: int, across: int) -> Float[Tensor, "n c H W"]:
    """The part of pictures that others cover which lie so far below them and to their right."""
    height, width = x.shape[2:]
    return x[:, :, max(down, 0) : height + min(down, 0), max(across, 0) : width + min(across, 0)]


def blur(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Each pixel among its neighbours, by ¼ (1, 2, 1) across and down: what half a pixel of a shift does not move."""
    x = F.pad(x, (1, 1, 1, 1), mode="replicate")
    x = (x[..., :-2] + 2 * x[..., 1:-1] + x[..., 2:]) / 4
    return (x[..., :-2, :] + 2 * x[..., 1:-1, :] + x[..., 2:, :]) / 4


def contrast(x: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
    """The variance over places, mean over channels: a plain red has none."""
    return x.flatten(2).var(2, correction=0).mean(1)


def group(pairs: Int[Tensor, "pairs 2"], order: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """For each picture the first, in `order`, of all that it is joined with by pairs; its own row where it is alone.

    What shows the same as a duplicate is a duplicate of that one's first: a burst has one first.
    """
    rank = order.argsort()
    first = rank.clone()
    while True:  # the least rank spreads along pairs, and jumps to the rank that its holder already has
        low = first[pairs].amin(1)
        after = first.clone().scatter_reduce_(0, pairs.flatten(), low.repeat_interleave(2), "amin")
        after = torch.minimum(after, after[order[after]])
        if torch.equal(after, first):
            return order[first]
        first = after
