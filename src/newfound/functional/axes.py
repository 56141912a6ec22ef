"""Where the features of a pretrained network are compared: a few axes along which classes lie apart."""

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from newfound.functional.geometry import directions, whitening

SHRINK = 3.0
"""How much of its mean eigenvalue is added to a covariance before it is inverted; decision 7."""


class Axes(NamedTuple):
    """An affine map to few dimensions: x ↦ (x − centre) · matrix."""

    centre: Float[Tensor, " d"]
    matrix: Float[Tensor, "d few"]


def tempered(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Features without their length, and none so strong that it drowns the others.

    x̂ = t / ‖t‖,   t = sign(x) √|x|        (Tukey 1977)
    """
    return F.normalize(x.sign() * x.abs().sqrt(), dim=1)


def axes(x: Float[Tensor, "n d"], few: int, spread: Float[Tensor, "d d"] | None = None, shrink: float = SHRINK) -> Axes:
    """The principal axes of features, once what differs within a class is made small.

        A = W V,   W = (S + ρ s̄ I)^−½,   V: the first eigenvectors of W Cov(x) W

    S is the shared within-class covariance of the known classes, s̄ its mean eigenvalue and ρ `shrink`; without it
    W = I. Fewer axes are given where the features do not fill as many.
    """
    centre = x.mean(0)
    rest = (x - centre).double()
    if spread is None:
        return Axes(centre, directions(rest)[:, :few].to(x.dtype))
    white = whitening(spread.double(), shrink)
    return Axes(centre, (white @ directions(rest @ white)[:, :few]).to(x.dtype))
