"""Pixels or pretrained features: decided here, and nowhere else."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from newfound.data.collection import Collection
from newfound.data.decoding import measure_side
from newfound.data.listing import Listing
from newfound.data.pixels import Images
from newfound.encoders.base import Choices, Encoder
from newfound.encoders.features import FeatureEncoder, in_memory
from newfound.encoders.pixels import PIXELS, PixelEncoder
from newfound.errors import InputError
from newfound.networks.model import Model
from newfound.networks.pretrained import LITE, load_pretrained
from newfound.networks.resnet import OWN
from newfound.training.loop import survey

SMALL = 64
"""Images up to so many pixels wide are for our own network."""

SAMPLE = 50
"""Images whose size is looked at to choose a backbone."""

WHOLE = "whole"
"""The framing in which all of a picture is seen."""


def encoder_of(model: Model, device: str = "auto") -> Encoder[Any]:
    """The encoder that a model was made with."""
    if model.pretrained is None:
        return PixelEncoder(model.size, device)
    return FeatureEncoder(model.pretrained.backbone, device)


def choose_encoder(
    stage: Choices,
    model: Model | None,
    sources: Sequence[Images | Listing],
    *,
    labelled: bool,
    device: str = "auto",
) -> Encoder[Any]:
    """The encoder for images, some of them `labelled`; a model that was given has made the choice already."""
    arrays = [source for source in sources if isinstance(source, Images)]
    if model is not None:
        encoder = encoder_of(model, device)
    elif (name := choose_backbone(stage, sources, labelled=labelled, arrays=len(arrays) > 0)) == OWN:
        encoder = PixelEncoder(arrays[0].pixels.shape[-1] if arrays else stage.size or PIXELS, device)
    else:
        weights = None if stage.weights is None else Path(stage.weights)
        encoder = FeatureEncoder(
            load_pretrained(name, weights=weights, size=stage.size, whole=stage.framing == WHOLE), device
        )
    encoder.check_images(arrays)
    return encoder


def choose_backbone(stage: Choices, sources: Sequence[Images | Listing], *, labelled: bool, arrays: bool) -> str:
    """The name of what looks at images, some of them `labelled`, some perhaps in memory (`arrays`).

    Our own network must be taught by labelled images; a pretrained one must be shown files.
    """
    name = stage.backbone
    if arrays:
        if name not in ("auto", OWN):
            raise InputError(f"{in_memory(name)} Or take {OWN}.")
        name = OWN
    if name == "auto":
        wide = width(source.listing for source in sources)
        name = OWN if wide <= SMALL and labelled and stage.framing != WHOLE else LITE
    if name == OWN and stage.weights is not None:
        raise InputError(
            f"--weights are for a pretrained backbone, and {OWN} learns from your images. Name the backbone that they "
            "are of (--backbone), or leave them out."
        )
    if name == OWN and stage.framing == WHOLE:
        raise InputError(
            f"--framing {WHOLE} is for a pretrained backbone, and {OWN} sees the middle square of each picture. Name "
            "another backbone (--backbone), or leave it out."
        )
    if name == OWN and not labelled:
        raise InputError(
            f"{OWN} learns from labelled images, and none were given. Give some (--known), or take a backbone that "
            "others have taught (`newfound backbones`)."
        )
    return name


def explain_backbone(
    name: str, stage: Choices, model: Model | None, sources: Sequence[Images | Listing], *, labelled: bool
) -> str:
    """Why this backbone was chosen, after its name: a clause for people."""
    if model is not None:
        return "the model was made with it"
    if any(isinstance(source, Images) for source in sources):
        return "the images are in memory"
    if stage.backbone != "auto":
        return "it was asked for"
    wide = width(source.listing for source in sources)
    if stage.framing == WHOLE and wide <= SMALL:
        return "it can see pictures whole; --backbone takes another"
    if name == OWN or labelled or wide > SMALL:
        return f"the images are about {wide} pixels wide; --backbone takes another"
    return "no labelled images were given; --backbone takes another"


def width(sources: Iterable[Listing]) -> int:
    """The typical shorter side of images, or of the boxes in them, in pixels."""
    sides: list[float] = []
    for source in sources:
        for row in range(0, len(source), max(1, len(source) // SAMPLE)):
            box = source.boxes[row]
            found = min(box[2:]) if box else measure_side(source.files[row])
            sides += [] if found is None else [found]
    return round(statistics.median(sides)) if sides else 0


def embed(model: Model, images: Collection) -> Float[Tensor, "n dim"]:
    """Latents of images, in eval mode; what the model cannot see is refused, and latents that are not finite."""
    encoder_of(model).check_images([images])
    if not len(images):
        return torch.empty(0, model.backbone.dim)
    features = survey(model.backbone, images.discovery_set(None)).features.cpu()
    bad = (~features.isfinite().all(dim=1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"The model gives NaN or infinite features for {len(bad)} of {len(features)} images (first: "
            f"{images.listing.names[bad[0]]!r}); clustering needs finite ones. The model is likely damaged or its "
            "training diverged: make it anew with `newfound pretrain`."
        )
    return features
