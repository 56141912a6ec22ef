"""Images in memory as a pretrained network sees them, looked at once."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

from newfound import cache, files
from newfound.data.features import FeatureImages
from newfound.data.pixels import Images
from newfound.encoders.extraction import CHUNK, find_all, key, open_store, views
from newfound.networks.pretrained import PretrainedBackbone
from newfound.training.loop import accelerator


def look_at(
    images: Images, backbone: PretrainedBackbone, progress: Callable[[int], None] = lambda done: None
) -> FeatureImages:
    """What a pretrained network says of images in memory, each brought to its size; from the cache where it has seen
    them, and an interrupted call loses one chunk. `progress` is told how many are done.
    """
    eye, store = copy.deepcopy(backbone).to(accelerator().device).fold(), open_store(backbone)
    keys = tuple(key(pixels.tobytes(), None) for pixels in images.pixels.numpy())
    new = [row for row, name in enumerate(keys) if name not in store]
    for first in range(0, len(new), CHUNK):
        rows = new[first : first + CHUNK]
        large = enlarge(images.pixels[rows], backbone.size).permute(0, 2, 3, 1).numpy()
        records = views(eye, {keys[row]: picture for row, picture in zip(rows, large, strict=True)})
        with files.room_for(cache.root() / "features", 2 * records.numel()):
            store.add([*dict.fromkeys(keys[row] for row in rows)], records)
        progress(len(keys) - len(new) + first + len(rows))
    return FeatureImages(images.listing, store.open(), find_all(store, keys), keys)


def enlarge(pixels: UInt8[Tensor, "n channels height width"], size: int) -> UInt8[Tensor, "n channels {size} {size}"]:
    """Images brought to so many pixels of a side."""
    large = F.interpolate(pixels.float(), (size, size), mode="bicubic", antialias=True)
    return large.round().clamp(0, 255).to(torch.uint8)
