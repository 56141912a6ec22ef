"""Known and novel classes: labelled images of the ones, unlabelled images of the others, and the truth kept apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from newfound.data.pixels import Images
from newfound.errors import InputError, shorten


class SplitClasses(NamedTuple):
    """Which classes of a dataset are known, and which are novel."""

    known: tuple[int, ...]
    novel: tuple[int, ...]

    def permute(self, count: int, seed: int) -> "SplitClasses":
        """The same split of a dataset's classes, so many, in another order: `numpy.random.default_rng(seed)`'s."""
        order = np.random.default_rng(seed).permutation(count).tolist()
        known, novel = (tuple(order[place] for place in part) for part in self)
        return SplitClasses(known, novel)


@dataclass(frozen=True, eq=False)
class Split:
    """Images of known classes with their labels, images of novel classes without, and the truth kept apart."""

    known: Images
    novel: Images  # labels all −1, classes ()
    truth: Int[Tensor, " n"]  # of the novel images, for metrics alone
    novel_classes: tuple[str, ...]


def split_by_class(images: Images, known: Sequence[int], novel: Sequence[int]) -> Split:
    """Split labelled images by class; labels and truth count from 0 in the order in which the classes are given."""
    chosen = [*known, *novel]
    if not known or not novel or len(set(chosen)) < len(chosen):
        raise InputError(
            f"The known classes are {list(known)}, the novel ones {list(novel)}. "
            "Needed: one or more of each, and none twice. Give two lists that share no class."
        )
    if absent := sorted(set(chosen) - (set(images.listing.labels.tolist()) - {-1})):
        raise InputError(
            f"Classes without an image: {shorten(map(str, absent))}. Needed: labels that occur among the "
            f"{len(images.listing.classes)} classes, counted from 0. Leave these out, or add images of them."
        )
    truth = select_classes(images, novel)
    return Split(select_classes(images, known), truth.unlabel(), truth.listing.labels, truth.listing.classes)


def select_classes(images: Images, classes: Sequence[int]) -> Images:
    """The images of some classes, which are numbered anew in the order given."""
    names = images.listing.classes
    numbers = torch.full((len(names) + 1,), -1)  # one more: the label −1 finds −1 in the last place
    numbers[list(classes)] = torch.arange(len(classes))
    labels = numbers[images.listing.labels]
    rows = (labels >= 0).nonzero().squeeze(1)
    return images.pick(rows).relabel(labels[rows], [names[label] for label in classes])
