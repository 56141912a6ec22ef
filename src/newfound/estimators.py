"""Clustering and novel class discovery in scikit-learn's manner, on features of any kind.

What discovery does with a pretrained network's features happens here to the rows of an array. A row has no other views:
every view of it is the row itself.

Long, for parameters and attributes stand in the docstring of either estimator, as scikit-learn's users look for them.
"""

from numbers import Integral, Real
from typing import Any, final, no_type_check

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from newfound import methods
from newfound.data.features import FeatureDataset
from newfound.discovery.settings import DEVICES
from newfound.encoders.statistics import add_head
from newfound.errors import InputError, check_word
from newfound.functional.axes import FEW, Axes, axes, moments, squared
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.geometry import covariance, means, nearest
from newfound.functional.rows import gathered, named, numbered, scales, standardised
from newfound.networks.adapter import adapter_along
from newfound.networks.model import Model, Statistics
from newfound.spacing.prototypes import silent_about_room
from newfound.training.loop import Learner
from newfound.training.train import train
from newfound.types import Problem, generator, seeded

RandomState = int | np.random.RandomState | None

FLOATS = (np.float64, np.float32)

ROOM = 8
"""Latents have at least so many dimensions: ranking statistics compare the five strongest."""

WIDE = 64
"""Latents have no more dimensions than this unless features have: with one for every class, as equidistant anchors
would need, all work would grow with the square of the classes. On 250 known classes nothing was lost."""

FAR = 1e75
"""Deviations from the mean within which rows can be compared: their fourth powers must be numbers."""

INERTIA = 2
"""Prototypes start as heavy as this many runs over all rows. Where features are few, some classes lie between others,
and anchors would pull prototypes away from them before latents can follow."""


class _OnFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """What both estimators share: an adapter that learns places rows, and k-means reads classes off.

        z = unit(adapter(x̂, 1)),   x̂ = (x − mean) / deviation

    The adapter starts as a linear map. The 1 keeps apart what lies in one direction at several distances; beside many
    features it weighs little, and directions are all that counts.
    """

    epochs: int
    rate: float
    batch_size: int
    random_state: RandomState
    device: str

    def transform(self, X: Any) -> Float[np.ndarray, "n dim"]:
        """Unit latents of rows: where `cluster_centers_` lie."""
        X = self._checked(X)
        return self._latents(X).numpy().astype(X.dtype)

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=FLOATS, reset=False)

    def _nearest(self, X: np.ndarray) -> Int[np.ndarray, " n"]:
        """Which centre each row is nearest to."""
        return nearest(self._latents(X), torch.as_tensor(self.cluster_centers_)).numpy()

    @torch.no_grad()
    def _latents(self, X: np.ndarray) -> Float[Tensor, "n dim"]:
        """In double precision: so it makes no difference whether rows come alone or together."""
        return F.normalize(self.adapter_(squared(self._lifted(X))).z, dim=1)

    def _lifted(self, X: np.ndarray) -> Float[Tensor, "n inputs"]:
        """(x̂, 1)."""
        x = standardised(X, self.mean_, self.scale_)
        if (lost := np.flatnonzero(~(np.abs(x) < FAR).all(1))).size:
            raise InputError(
                f"Row {lost[0]} lies more than {FAR:g} deviations from what was fitted, and cannot be compared. "
                "Needed: the features, in the units, that the estimator was fitted on."
            )
        return F.pad(torch.as_tensor(x), (0, 1), value=1.0)

    @torch.inference_mode(False)  # gradients too, whatever mode the caller is in
    def _learn(self, X: np.ndarray, labels: Int[np.ndarray, " n"], novel: int, name: str) -> None:
        """Train the method of this name, and read classes off, known ones first.

        Labels count known classes from 0 and are −1 where unlabelled. Where nothing is novel, nothing is trained.
        """
        whole("epochs", self.epochs, 0)
        whole("batch_size", self.batch_size, 1)
        positive("rate", self.rate)
        check_word("device", self.device, DEVICES)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        order = canonical(X, labels)
        X, y = X[order], torch.as_tensor(labels[order])
        known = int(y.max()) + 1
        self.mean_, self.scale_ = scales(X)
        rows = self._lifted(X)
        model = beginning(rows, y, min(max(known + novel - 1, ROOM), WIDE), seed)
        self.adapter_ = model.backbone
        self.n_iter_ = 0
        if novel:
            self.n_iter_ = self._train(model, rows, y, Problem(model.backbone.dim, known, novel), name, seed)
        self.adapter_.double().eval()
        found = semi_supervised_kmeans(self._latents(X), y, known + novel, generator(seed, "reading"))
        self.cluster_centers_ = found.centres[ordered(found.assignment, known, novel)].numpy()
        self._n_features_out = len(self.cluster_centers_[0])

    def _train(
        self,
        model: Model,
        rows: Float[Tensor, "n inputs"],
        labels: Int[Tensor, " n"],
        problem: Problem,
        name: str,
        seed: int,
    ) -> int:
        """Train the model's adapter; the number of epochs. Two-stage methods see unlabelled rows alone."""
        recipe = methods.parse(name)
        single = problem.known > 0 and recipe.suits(labelled=True)
        part = torch.arange(len(rows)) if single else (labels < 0).nonzero()[:, 0]
        room = len(part) >= problem.classes  # with fewer rows not every class could be placed
        problem = problem._replace(labelled=single, rows=len(part), mixed=problem.known > 0 and room)
        training = recipe.training.at(self.epochs, self.rate, self.batch_size)
        preset = recipe.spacing  # of which some start as light as they say, and some forget on their own
        heavy = preset is not None and preset.initial is None and preset.swap is None
        inertia = INERTIA * training.epochs * len(part) / problem.classes if heavy else None
        with seeded(seed, "method"):
            method = methods.parse(name, initial=inertia).build(problem, model)
        data = FeatureDataset(squared(rows).float()[:, None].expand(-1, 2, -1), labels[part], part)
        with silent_about_room():  # beyond WIDE, as we chose
            learner = Learner(model.backbone, method, training.trains)
            return len(train(learner, data, training, seed, device=self.device).history)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@final
class SpacingClustering(_OnFeatures):
    """Clusters the rows of X by Spacing Loss (Joseph et al., CVPR-W 2022).

        z = unit(adapter(x̂, 1)),   L = mean_i ‖z_i − p_a(i)‖²,   anchors push the prototypes p apart

    Features are standardised: neither units nor offsets matter. Clusters are read by k-means on z, and the largest is
    number 0. Permuted rows have permuted labels, to the bit.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters to find.
    epochs : int, default=15
        Passes over the rows. With 0 nothing is trained.
    rate : float, default=0.02
        The learning rate.
    batch_size : int, default=128
        Rows a step.
    random_state : int, RandomState instance or None, default=0
        What every draw is a function of; None takes another each time.
    device : {"auto", "cpu"}, default="auto"
        Where the adapter is trained: on an accelerator, if there is one, or on the CPU.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The cluster of each row that was fitted.
    cluster_centers_ : ndarray of shape (n_clusters, n_latents)
        The centres, among what `transform` gives.
    n_iter_ : int
        The epochs trained.
    n_features_in_ : int
        The features of a row.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where X had such.
    mean_, scale_ : ndarray of shape (n_features_in_,)
        Mean and deviation of each feature.
    adapter_ : Adapter
        The network, in double precision.
    """

    n_clusters: int

    @no_type_check  # scikit-learn asks that anything can be stored; `fit` refuses
    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epochs: int = 15,
        rate: float = 0.02,
        batch_size: int = 128,
        random_state: RandomState = 0,
        device: str = "auto",
    ):
        self.n_clusters = n_clusters
        self.epochs = epochs
        self.rate = rate
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> "SpacingClustering":
        """Find the clusters of rows; y is ignored."""
        X = validate_data(self, X, dtype=FLOATS)
        clusters = whole("n_clusters", self.n_clusters, 1)
        if len(X) < clusters:
            raise InputError(
                f"n_samples={len(X)} should be >= n_clusters={clusters}: give more rows, or ask for fewer clusters."
            )
        self._learn(X, np.full(len(X), -1), clusters, "spacing:aligned")
        self.labels_ = self._nearest(X)
        return self

    def predict(self, X: Any) -> Int[np.ndarray, " n"]:
        """The cluster of each row; of the rows that were fitted, `labels_`."""
        return self._nearest(self._checked(X))


@final
class NovelClassDiscovery(_OnFeatures):
    """Recognises known classes among unlabelled rows, and finds new ones beside them.

    In y unlabelled rows are −1, among strings also "-1"; they may be of known classes, of new ones or of both. Where
    nothing is labelled all classes are new. Classes are read by semi-supervised k-means on unit latents: labelled rows
    stay in their class. `predict` knows no row's label, and may place such a row elsewhere.

    Where labels are numbers new classes are called max(y) + 1, …, else "new-1", …, the largest first. Of fewer
    unlabelled rows than `n_new` each may be a class of its own; where there are none, nothing is new.

    Parameters
    ----------
    n_new : int, default=8
        How many new classes there are.
    method : str, default="pairs+spacing:aligned"
        Any of `newfound.METHODS` that needs no images; a+b adds b to a.
    epochs : int, default=15
        Passes over the rows. With 0 nothing is trained.
    rate : float, default=0.02
        The learning rate.
    batch_size : int, default=128
        Rows a step.
    random_state : int, RandomState instance or None, default=0
        What every draw is a function of; None takes another each time.
    device : {"auto", "cpu"}, default="auto"
        Where the adapter is trained: on an accelerator, if there is one, or on the CPU.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The class of each row that was fitted; a labelled row's own.
    classes_ : ndarray of shape (n_classes,)
        The known labels, sorted, then the new ones.
    cluster_centers_ : ndarray of shape (n_classes, n_latents)
        The centre of each of these, among what `transform` gives.
    n_iter_ : int
        The epochs trained.
    n_features_in_ : int
        The features of a row.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where X had such.
    mean_, scale_ : ndarray of shape (n_features_in_,)
        Mean and deviation of each feature.
    adapter_ : Adapter
        The network, in double precision.
    """

    n_new: int
    method: str

    @no_type_check  # scikit-learn asks that anything can be stored; `fit` refuses
    def __init__(
        self,
        n_new: int = 8,
        *,
        method: str = "pairs+spacing:aligned",
        epochs: int = 15,
        rate: float = 0.02,
        batch_size: int = 128,
        random_state: RandomState = 0,
        device: str = "auto",
    ):
        self.n_new = n_new
        self.method = method
        self.epochs = epochs
        self.rate = rate
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> "NovelClassDiscovery":
        """Learn from labelled rows, if there are any, and from unlabelled ones."""
        if y is None:
            X = validate_data(self, X, dtype=FLOATS)
            y = np.full(len(X), -1)
        else:
            X, y = validate_data(self, X, gathered(y), dtype=FLOATS)
        known, labels = numbered(y)
        check(self.method, labelled=len(known) > 0)
        novel = min(whole("n_new", self.n_new, 1), int((labels < 0).sum()))
        self._learn(X, labels, novel, self.method)
        self.classes_ = named(known, novel)
        self.labels_ = self.classes_[np.where(labels < 0, self._nearest(X), labels)]
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """`labels_` of the rows given."""
        return self.fit(X, y).labels_

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row, known or new; of unlabelled rows that were fitted, `labels_`."""
        found = self._nearest(self._checked(X))
        return self.classes_[found]


def whole(name: str, value: Any, least: int) -> int:
    """The value of a parameter that counts something."""
    if not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} is {value!r}; give a whole number of at least {least}.")
    return int(value)


def positive(name: str, value: Any) -> float:
    """The value of a parameter that measures something."""
    if not isinstance(value, Real) or not float(value) > 0:
        raise InputError(f"{name} is {value!r}; give a number above 0.")
    return float(value)


def check(name: Any, *, labelled: bool) -> None:
    """Refuse a method that cannot work on rows, or not without labelled ones."""
    if not isinstance(name, str):
        able = methods.suitable(labelled=None if labelled else False, features=True)
        raise InputError(f"method is {name!r}; give the name of one, such as pairs+spacing. There are: {able}.")
    recipe = methods.parse(name)
    if not recipe.suits(features=True):
        able = methods.suitable(features=True)
        raise InputError(f"{name} needs images; these are features. Take one that does not: {able}.")
    if not labelled and not recipe.suits(labelled=False):
        able = methods.suitable(labelled=False, features=True)
        raise InputError(f"{name} needs labelled rows; y has none. Give labels, or take one that does not: {able}.")


def ordered(assignment: Int[Tensor, " n"], known: int, novel: int) -> Int[Tensor, " classes"]:
    """Known classes as they are, then novel ones: the largest before, of equal ones that with the earliest row."""
    size = torch.bincount(assignment, minlength=known + novel)
    first = torch.full_like(size, len(assignment))
    first.scatter_reduce_(0, assignment, torch.arange(len(assignment)), "amin")
    return torch.as_tensor([*range(known), *(known + np.lexsort((first[known:], -size[known:])))])


def canonical(X: np.ndarray, labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """An order of rows that depends neither on how they came nor on units: by label, then feature by feature."""
    return np.lexsort((*np.ascontiguousarray(X.T)[::-1], labels))


def beginning(rows: Float[Tensor, "n inputs"], labels: Int[Tensor, " n"], room: int, seed: int) -> Model:
    """What is known before training: an adapter that looks along the axes of all rows, and where known classes lie.

        u = unit(x̂ A, s),   s² = Σ_i ‖x̂_i A‖² / Σ_i ‖x̂_i‖²

    A are principal axes, whitened by the known classes' spread, and s is the 1 beside x̂ on that scale. Latents have
    at least `room` dimensions, so that anchors can be apart; those beyond start at 0.
    """
    x, taught, known = rows[:, :-1], labels >= 0, int(labels.max()) + 1
    centres, counts = means(rows[taught], labels[taught], known)
    within_covariance = covariance(rows[taught], labels[taught], centres)
    found = axes(moments(x), FEW, within_covariance[:-1, :-1]).matrix.to(x)
    scale = (x @ found).norm() / x.norm()
    matrix = torch.block_diag(found, scale.nan_to_num(1.0))  # where all rows are equal it is 0/0
    matrix = F.pad(matrix, (0, max(0, room - matrix.shape[1]))).float()
    adapter = adapter_along(Axes(torch.zeros(len(matrix)), matrix), seed)
    model = Model(adapter, 0, 0, tuple(map(str, range(known))))
    if not known:
        return model
    with seeded(seed, "head"):  # torch draws weights before they are set; the caller's own draws stay as they were
        return add_head(model, adapter, Statistics(centres.float(), within_covariance.float(), counts))
