"""A small discovery that is made, not trained: the laws of edits and tables are tested on it."""

from contextlib import contextmanager

import pytest
import torch

from newfound.data.listing import Listing
from newfound.discovery.found import Clusters, Found
from newfound.discovery.journal import Journal
from newfound.functional.calibration import Calibration, Logistic
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.types import generator, seeded

CALIBRATION = Calibration(right=Logistic(3.0, -0.5), new=Logistic(2.0, 0.25))
KNOWN = ("cat", "new-1")
PLACES = torch.tensor([[9.0, 9.0], [30.0, 30.0], [0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
BETWEEN = torch.tensor([[4.4, 0.1], [0.2, 4.6], [4.5, 4.4], [8.8, 4.3]])
CAT, ABSENT, FIRST, SECOND, THIRD = 1, 2, 3, 4, 5


def make_model() -> Model:
    with seeded("made"):
        return Model(Adapter(4, 2), 28, 1, KNOWN)


def make_found(**other) -> Found:
    """Ten points each of a known class and of three new ones, and some between them; of the class 2 there is none."""
    there = PLACES[[0, 2, 3, 4]]
    noise = torch.randn(4, 10, 2, generator=generator("made"))
    features = torch.cat([(there[:, None] + noise).flatten(0, 1), BETWEEN])
    sizes = torch.full((5,), 10**9)  # so many that no image moves its centre
    made = {
        "listing": Listing.of([f"{row}.png" for row in range(len(other.get("features", features)))]),
        "model": make_model(),
        "features": features,
        "clusters": Clusters(torch.cdist(features, PLACES).argmin(1), PLACES, sizes, unit=False),
        "calibration": CALIBRATION,
        "threshold": 0.6,
        "known": KNOWN,
        "thumbnails": {0: torch.zeros(1, 4, 4, dtype=torch.uint8)},
    }
    return Found(**made | other)


@contextmanager
def counted_made(kind):
    """A list with an entry for every value of a kind that is made meanwhile."""
    made, begin = [], kind.__init__

    def counted(self, *given, **named):
        made.append(type(self))
        begin(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__init__", counted)
        yield made


def add_edits(folder, edits) -> None:
    """Somebody else writes these down in a folder's journal, after all that is there."""
    journal = Journal(folder)
    with journal.adding():
        journal.append(edits)
