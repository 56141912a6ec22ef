"""Classifier: a model as people use it. It says what images are, finds what is new among them, and learns that."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import final

import pandas as pd
import torch

from newfound import methods
from newfound.console import Progress, silent
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.discovery.discover import discover
from newfound.discovery.edits import Classes, classes
from newfound.discovery.folder import is_model
from newfound.discovery.found import Clusters, Found
from newfound.discovery.judging import calibrate
from newfound.discovery.looking import predict, predict_in_parts
from newfound.discovery.outliers import fit_known
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run
from newfound.encoders import encoder_of
from newfound.encoders.known import points_from_statistics
from newfound.errors import InputError
from newfound.functional.geometry import means
from newfound.networks.model import ENOUGH, Model


@final
class Classifier:
    """A model as people use it: what `pretrain` and `learn` leave.

    Classes are recognised by the distance to their means. An image that is of none of them for sure is `unsure`.
    """

    def __init__(self, model: Model):
        self.model = model

    def __repr__(self) -> str:
        return f"Classifier of {len(self.model.classes)} classes with {encoder_of(self.model).name}"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of all classes that it knows."""
        return self.model.classes

    @staticmethod
    def load(folder: str | Path) -> "Classifier":
        """Read a model folder."""
        return Classifier(Model.from_pretrained(folder))

    def save(self, folder: str | Path) -> None:
        """Write a model folder (`Model.save_pretrained`)."""
        self.model.save_pretrained(folder)

    def predict(self, images: str | Path | Images) -> pd.DataFrame:
        """The class of images, as `Discovery.predict` has it. A folder, a list of images or one image is read; files
        that cannot be are left out, and named in the log.
        """
        return predict(self.now, images)

    def predictions(self, place: str | Path | Listing) -> Iterator[tuple[pd.DataFrame, tuple[str, ...]]]:
        """The same bit by bit, for any number of images; with each table the files that could not be read."""
        return predict_in_parts(self.now, place)

    def discover(
        self,
        unlabelled: str | Path | Images,
        *,
        classes: int | None = None,
        run: Run | None = None,
        output: str | Path | None = None,
        truth: bool = False,
        overwrite: bool = False,
        resume: bool = False,
        progress: Progress = silent,
    ) -> Discovery:
        """Find the classes among unlabelled images, known and new (`newfound.discover`, with this model)."""
        return discover(
            unlabelled=unlabelled,
            classes=classes,
            model=self.model,
            run=run,
            output=output,
            truth=truth,
            overwrite=overwrite,
            resume=resume,
            progress=progress,
        )

    @cached_property
    def now(self) -> Classes:
        """Its classes in the form that tables are made of."""
        return classes(recognise(self.model))


def open_folder(folder: str | Path) -> Discovery | Classifier:
    """What a folder holds that says what images are: a run, or a model."""
    folder = Path(folder).expanduser()
    return Classifier.load(folder) if is_model(folder) else Discovery.load(folder)


def recognise(model: Model) -> Found:
    """The classes that a model recognises, as a discovery among no images, which found nothing new."""
    if not model.recognisable:
        raise InputError(
            f"The model recognises none of its {len(model.classes)} classes, for it has the mean of none. Needed: one "
            f"that `newfound pretrain` or `newfound learn` made of {ENOUGH} images or more of a class, or a run folder."
        )
    encoder = encoder_of(model)
    model, _ = encoder.aim_for_reading(model)
    unit = methods.parse(encoder.default_method).reading == "unit k-means"
    points, labels, counts = points_from_statistics(encoder, model, unit=unit, seed=0)
    centres, _ = means(points, labels, len(counts))
    return Found(
        Listing.of([]),
        model,
        torch.zeros(0, model.backbone.dim),
        Clusters(torch.zeros(0, dtype=torch.long), centres, counts, unit),
        calibrate(model, encoder, len(counts)),
        threshold=0.5,
        fit=fit_known(encoder, model),
        known=model.recognisable,
        numbers=tuple(
            number for number, name in zip(model.numbers, model.classes, strict=True) if name in model.recognisable
        ),
    )
