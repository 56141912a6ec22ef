"""Found: what a run measured. It is whole when it is made, and never edited."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from newfound.data.listing import Listing, describe_box
from newfound.discovery.settings import Run
from newfound.encoders.known import compare
from newfound.errors import counted
from newfound.functional.calibration import Calibration, leave_one_out, reach
from newfound.functional.counting import Count
from newfound.functional.geometry import distances
from newfound.functional.names import count_names
from newfound.functional.rehearsal import Expected, Way
from newfound.networks.model import Model
from newfound.training.loop import Row
from newfound.training.moments import Moment

TOGETHER = 4096
"""Images whose distances to all centres are in memory at once."""


class Clusters(NamedTuple):
    """Groups of images as they were read off; those of known classes come first."""

    assignment: Int[Tensor, " n"]
    centres: Float[Tensor, "clusters dim"]
    sizes: Int[Tensor, " clusters"]  # images that each centre is the mean of, labelled ones too
    unit: bool  # whether latents are compared on the unit sphere


class Fit(NamedTuple):
    """Where images and clusters lie among a pretrained network's features, along axes and beside them (`coordinates`).

    Training draws every image to some centre, and latents have no length: what fits no class shows here.
    """

    along: Float[Tensor, "n axes"]
    beside: Float[Tensor, " n"]
    centres: Float[Tensor, "clusters axes"]


def fit_latents(latents: Float[Tensor, "n dim"], clusters: Clusters) -> Fit:
    """The same among latents, where they are all there is."""
    return Fit(latents, latents.new_zeros(len(latents)), clusters.centres)


def reach_centres(place: Fit, clusters: Clusters) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """From every image to the nearest centre, and to the others, as if it drew no centre to itself; some images at a
    time.
    """
    (along, beside, centres), (assignment, _, sizes, _) = place, clusters
    parts = []
    for rows in torch.arange(len(along)).split(TOGETHER):
        away = leave_one_out(distances(along[rows], centres), assignment[rows], sizes)
        parts.append(reach(torch.hypot(away, beside[rows, None]).masked_fill(sizes == 0, torch.inf)))
    nearest, others = zip(*parts, strict=True)
    return torch.cat(nearest), torch.cat(others)


class Compared(NamedTuple):
    """How well another method did on the same images."""

    title: str
    accuracy: float
    nmi: float


@dataclass(frozen=True, eq=False)
class Found:
    """What a run measured.

    Clusters are what k-means read off and never change; classes are what people make of them (`edits.classes`).
    """

    listing: Listing  # the unlabelled images
    model: Model  # with the backbone as discovery left it
    features: Float[Tensor, "n dim"]
    clusters: Clusters
    calibration: Calibration  # what distances to centres mean
    threshold: float  # below this naming score an image is unsure
    fit: Fit | None = None  # where outliers show; None: among latents
    known: tuple[str, ...] = ()  # the known classes that were looked for: the first clusters are theirs
    numbers: tuple[int, ...] = ()  # the class that each cluster is at first; left out: 1, 2, 3, …
    duplicates: Mapping[int, int] = field(
        default_factory=dict
    )  # row of a near-duplicate → row of what it nearly equals
    thumbnails: Mapping[int, UInt8[Tensor, "channels height width"]] = field(default_factory=dict)  # of some rows
    references: Mapping[int, UInt8[Tensor, "some channels height width"]] = field(
        default_factory=dict
    )  # place in `known` → small copies of labelled images of it, where these took part
    history: tuple[Row, ...] = ()  # what was written down after every epoch
    count: Count | None = None  # how the number of classes was estimated; None: it was given
    truth: tuple[str, ...] | None = None  # the true class of every image; metrics and captions only
    moments: tuple[Moment, Moment] | None = None  # before and after training, for figures
    comparison: tuple[Compared, ...] = ()  # other methods on the same images
    facts: Mapping[str, str] = field(default_factory=dict)  # how it was made, for people
    run: Run | None = None  # the settings it was made with; None: an older newfound made it
    called: tuple[str, ...] = ()  # what each cluster's class is called at first; left out: known names, new-1, new-2, …
    used: int = 0  # the largest number that a class had in runs before this one
    way: Way | None = None  # what was taken after a rehearsal (`model.rehearsal`), or by default; None: nobody asked
    expected: Expected | None = None  # the accuracy that the rehearsal lets expect
    proposed: tuple[int, ...] = ()  # the new classes that `watch` proposes; left out: nobody watched

    def __post_init__(self) -> None:
        if not self.numbers:
            object.__setattr__(self, "numbers", tuple(range(1, len(self.clusters.centres) + 1)))

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"Found: {counted(len(self.numbers), 'cluster')} in {counted(len(self), 'image')}"

    @property
    def names(self) -> tuple[str, ...]:
        """What each cluster's class is called at first: known ones by their names, others new-1, new-2, …; or as in the
        run that this one goes on from.
        """
        if self.called:
            return self.called
        new = itertools.islice(count_names(self.model.classes), len(self.numbers) - len(self.known))
        return (*self.known, *new)

    @cached_property
    def latents(self) -> Float[Tensor, "n dim"]:
        """Features in the space where they are compared."""
        return self.compare(self.features)

    @cached_property
    def distances(self) -> Float[Tensor, "n clusters"]:
        """From every image to every centre, computed once."""
        return distances(self.latents, self.clusters.centres)

    @property
    def place(self) -> Fit:
        """Where outliers show."""
        return self.fit or fit_latents(self.latents, self.clusters)

    @cached_property
    def reach(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """`reach_centres`, computed once."""
        return reach_centres(self.place, self.clusters)

    def compare(self, features: Float[Tensor, "m dim"]) -> Float[Tensor, "m dim"]:
        """Features as they are compared here: by direction, or as they are."""
        return compare(features, self.clusters.unit)

    def caption(self, row: int) -> str:
        """What a person recognises an image by: its name, and the box where it is but a part."""
        return self.listing.names[row] + describe_box(self.listing.boxes[row])
