"""How images are looked at: by a network that learns from them, or by one that others have taught."""

import logging
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from newfound.data.collection import Collection, check_read
from newfound.data.decoding import side
from newfound.data.pictures import Pictures
from newfound.data.sources import Images, load
from newfound.discovery.find import Progress
from newfound.discovery.result import in_memory
from newfound.discovery.settings import StageOne
from newfound.errors import InputError
from newfound.networks.model import Model
from newfound.networks.pretrained import LITE, Trunk, trunk
from newfound.networks.resnet import OWN
from newfound.training.embedding import embed

log = logging.getLogger("newfound")

SMALL, PIXELS = 64, 32
"""Images up to so many pixels wide are for our own network, which is shown so many."""

SAMPLE = 50
"""Images whose size is looked at to choose a backbone."""


def chosen(stage: StageOne, model: Model | None, sources: Sequence[Images | Pictures], labelled: bool) -> Trunk | None:
    """The pretrained network that looks first; None: our own learns from the images.

    Our own must be taught by labelled images; a model that was given has made the choice already.
    """
    pixels = [source for source in sources if isinstance(source, Images)]
    if pixels and model is not None and model.trunk is not None:
        raise InputError(in_memory(model.trunk.name))
    check_arrays(pixels, model)
    if model is not None:
        return model.trunk
    name = stage.backbone
    if pixels:
        if name not in ("auto", OWN):
            raise InputError(f"{in_memory(name)} Or take {OWN}.")
        name = OWN
    if name == "auto":
        wide = width(source for source in sources if isinstance(source, Pictures))
        name = OWN if wide <= SMALL and labelled else LITE
        why = (
            f"the images are about {wide} pixels wide" if labelled or wide > SMALL else "no labelled images were given"
        )
        log.info(f"Backbone: {name}, since {why}; --backbone takes another.")
    if name != OWN:
        return trunk(name, weights=None if stage.weights is None else Path(stage.weights), size=stage.size)
    if stage.weights is not None:
        raise InputError(
            f"--weights are for a pretrained backbone, and {OWN} learns from your images. Name the backbone that they "
            "are of (--backbone), or leave them out."
        )
    if not labelled:
        raise InputError(
            f"{OWN} learns from labelled images, and none were given. Give some (--known), or take a backbone that "
            "others have taught (`newfound backbones`)."
        )
    return None


def check_arrays(arrays: Sequence[Images], model: Model | None) -> None:
    """Refuse images in memory that our own network cannot see together: they are not resized."""
    sizes = sorted({tuple(images.pixels.shape[2:]) for images in arrays})
    shown = " and ".join(f"{height} × {width}" for height, width in sizes)
    if any(height != width for height, width in sizes):
        raise InputError(f"The images in memory are {shown} pixels. Needed: square ones. Pad or crop them.")
    if len(sizes) > 1:
        raise InputError(f"The images in memory are {shown} pixels. Needed: one size for all. Resize them.")
    if sizes and model is not None and sizes[0] != (model.size, model.size):
        raise InputError(
            f"The images in memory are {shown} pixels, the model sees {model.size} × {model.size}. Resize them."
        )


def width(sources: Iterable[Pictures]) -> int:
    """The typical shorter side of images, or of the boxes in them, in pixels."""
    sides: list[float] = []
    for source in sources:
        for row in range(0, len(source), max(1, len(source) // SAMPLE)):
            box = source.boxes[row]
            sides += [found for found in [min(box[2:]) if box else side(source.files[row])] if found is not None]
    return round(statistics.median(sides)) if sides else 0


def seen(source: Images | Pictures, eye: Trunk | None, size: int, device: str, progress: Progress) -> Collection:
    """Images as the backbone will be given them. Classes, or a pile, of which nothing can be read are refused."""
    kind = "labelled" if source.classes else "unlabelled"
    if isinstance(source, Images):
        return source
    if eye is None:
        found: Collection = load(source, size)
    else:
        log.info(f"Looking at {len(source)} {kind} images with {eye.name}, at {eye.size} pixels.")
        found = embed(
            source, eye, device=device, progress=lambda n: progress(f"look: {kind}", len(source), {"epoch": float(n)})
        )
    check_read(found, len(source))
    return found


def described(model: Model) -> str:
    """The backbone, for people; what others have taught it must be said."""
    if model.trunk is None:
        return f"{OWN}, learnt from the labelled images"
    return f"{model.trunk.name}, pretrained on other images, seen at {model.trunk.size} pixels"
