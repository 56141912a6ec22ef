"""What rehearsals are played on: features of known classes, some of which are taken for unlabelled images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound import methods
from newfound.data.features import FeatureDataset, FeatureImages
from newfound.discovery.find import plan_training, state_problem
from newfound.discovery.settings import Run
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.known import KnownPoints
from newfound.encoders.reading import read_numbers
from newfound.encoders.statistics import add_head
from newfound.functional.axes import FEW, Axes, axes, main_axes, moments, power_normalised, squared
from newfound.functional.geometry import covariance, means
from newfound.functional.metrics import gcd_accuracy
from newfound.functional.rehearsal import Hiding, hide, thin
from newfound.networks.adapter import adapter_along
from newfound.networks.model import Model, Statistics
from newfound.spacing.prototypes import silent_about_room
from newfound.training.loop import Learner, survey
from newfound.training.train import train
from newfound.types import generator, seeded

TAUGHT = 400
"""Images of either kind that are trained on, at most; all are read. Training costs most; decision 13."""

MAIN, SAMPLE = 256, 3000
"""Directions that hold nearly all of features, and images that they are taken from: quicker to turn and whiten."""


@dataclass(frozen=True, eq=False)
class RehearsalSet:
    """Features of known classes on which hidings are played, along their main directions."""

    images: FeatureImages
    labels: Int[Tensor, " n"]
    x: Float[Tensor, "n main"]  # power-normalised, along the main directions
    main: Axes
    encoder: FeatureEncoder

    @staticmethod
    def of(images: FeatureImages, encoder: FeatureEncoder) -> "RehearsalSet":
        """Those of labelled images."""
        x, labels = power_normalised(images.features()), images.listing.labels
        random = generator("main directions")
        main = main_axes(x[torch.randperm(len(x), generator=random)[:SAMPLE]], MAIN, random)
        return RehearsalSet(images, labels, (x.double() - main.centre) @ main.matrix, main, encoder)

    def hidings(self, purpose: str, number: int, seed: int, *, part: int = 1) -> list[Hiding]:
        """So many, of all classes or of one in `part`; none where too few classes are known."""
        return [*filter(None, (self._hide(part, seed, "rehearsal", purpose, turn) for turn in range(number)))]

    def _hide(self, part: int, *key: int | str) -> Hiding | None:
        classes = int(self.labels.max()) + 1
        some = torch.randperm(classes, generator=generator(*key, "part"))[: -(-classes // part)]
        rows = torch.isin(self.labels, some).nonzero()[:, 0]
        found = hide(self.labels[rows].unique(return_inverse=True)[1], *key)
        return found and found._replace(labelled=rows[found.labelled], pile=rows[found.pile])

    def place(self, hiding: Hiding, shrink: float) -> Axes:
        """Axes, along the main directions, that know the kept classes alone."""
        told, pile = self.x[hiding.labelled], self.x[hiding.pile]
        centres, _ = means(told, hiding.labels, hiding.known)
        share = shrink * self.x.shape[1] / len(self.main.centre)  # of the mean over all directions, as everywhere
        return axes(moments(torch.cat([told, pile])), FEW, covariance(told, hiding.labels, centres), share)

    def latents(self, hiding: Hiding, shrink: float) -> tuple[Float[Tensor, "m dim"], Float[Tensor, "n dim"]]:
        """Latents of labelled and of unlabelled images before anything is trained."""
        found = self.place(hiding, shrink)
        told, pile = (F.normalize((self.x[rows] - found.centre) @ found.matrix, dim=1).float() for rows in hiding[:3:2])
        return told, pile

    def trained(
        self, hiding: Hiding, shrink: float, method: str, seed: int
    ) -> tuple[Float[Tensor, "m dim"], Float[Tensor, "n dim"]]:
        """The same once a method has been trained, as `find` does it.

        The axes of an adapter never move. So features are brought to them once, and what learns begins there.
        """
        found, names = self.place(hiding, shrink), tuple(map(str, range(hiding.known)))
        few = found.matrix.shape[1]
        adapter = adapter_along(Axes(torch.zeros(few), torch.eye(few)), seed)
        told = (self.x[hiding.labelled] - found.centre) @ found.matrix
        statistics = Statistics.of(told.float(), hiding.labels, hiding.known)
        model = add_head(Model(adapter, self.encoder.size, 3, names), adapter, statistics)
        some = thin(hiding, TAUGHT, seed, "taught")
        taught = _join(some, self._turn(self._views(torch.cat([some.labelled, some.pile])), found))
        problem = state_problem(model, hiding.hidden, True, len(taught), mixed=True)
        with seeded(seed, "method"):
            built = methods.parse(method).build(problem, model)
        training = plan_training(Run(method=method), self.images)
        learner = Learner(adapter, built, training.trains)
        with silent_about_room():  # of a trial; the run itself will say it
            train(learner, taught, training, seed, device=self.encoder.device)
        plain = self.x[torch.cat([hiding.labelled, hiding.pile]), None]
        after = survey(adapter, _join(hiding, self._turn(plain, found)))
        return after.labelled, after.unlabelled

    def _views(self, rows: Int[Tensor, " some"]) -> Float[Tensor, "some views main"]:
        """All that is kept of some images, along the main directions."""
        records = power_normalised(self.images.records[self.images.places[rows]].float().flatten(0, 1))
        return ((records.double() - self.main.centre) @ self.main.matrix).unflatten(0, (len(rows), -1))

    @staticmethod
    def _turn(x: Float[Tensor, "some views main"], along: Axes) -> Float[Tensor, "some views few"]:
        """What an adapter that looks along no axes of its own takes for unit latents along these."""
        return squared(F.normalize((x - along.centre) @ along.matrix, dim=2).float())

    @staticmethod
    def score(
        hiding: Hiding,
        told: Float[Tensor, "m dim"],
        pile: Float[Tensor, "n dim"],
        reading: str,
        seed: int,
        *,
        mixed: bool = True,
    ) -> float:
        """Accuracy on the images that were taken for unlabelled, by one assignment of clusters to classes; or on those
        of hidden classes, where no image is of a known one (not `mixed`). As many classes are looked for as are hidden.
        """
        (found,) = RehearsalSet.scores(hiding, told, pile, reading, seed, (hiding.hidden,), mixed=mixed)
        return found

    @staticmethod
    def scores(
        hiding: Hiding,
        told: Float[Tensor, "m dim"],
        pile: Float[Tensor, "n dim"],
        reading: str,
        seed: int,
        numbers: Sequence[int],
        *,
        mixed: bool = True,
    ) -> list[float]:
        """The same where so many classes are looked for, for each of some numbers; never more than there are images."""
        z, truth, known = F.normalize(pile, dim=1), hiding.truth, None
        if mixed:
            counts = torch.bincount(hiding.labels, minlength=hiding.known)
            known = KnownPoints(F.normalize(told, dim=1), hiding.labels, counts)
        else:
            new = truth >= hiding.known
            z, truth = z[new], truth[new]
        found = read_numbers(reading, z, [min(number, len(z)) for number in numbers], known, seed)
        return [gcd_accuracy(truth, one.assignment, hiding.known if mixed else 0).all for one in found]


def _join(hiding: Hiding, records: Float[Tensor, "n views few"]) -> FeatureDataset:
    """The images of a hiding, as they are trained on: labelled ones, then the pile."""
    labels = torch.cat([hiding.labels, torch.full((len(hiding.pile),), -1)])
    return FeatureDataset(records, labels, torch.arange(len(labels)))
