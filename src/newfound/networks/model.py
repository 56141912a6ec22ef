"""Model: all that stage one leaves behind, and the folder it travels in."""

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from newfound import files
from newfound.errors import InputError
from newfound.functional.calibration import Line, Trust
from newfound.functional.geometry import covariance, means
from newfound.networks.adapter import Adapter
from newfound.networks.backbone import Backbone, still
from newfound.networks.pretrained import Trunk, rebuilt
from newfound.networks.resnet import OWN, SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.types import Latents

VERSION = 1
BACKBONES: dict[str, type[SmallResNet] | type[Adapter]] = {OWN: SmallResNet, "adapter": Adapter}


class Statistics(NamedTuple):
    """Where the known classes lie among a trunk's tempered features. Features, not images, and means of them at that.

    A class of fewer than `ENOUGH` images has no mean of its own: its row is 0, and so is its count.
    """

    means: Float[Tensor, "known features"]
    spread: Float[Tensor, "features features"]  # shared within-class covariance
    counts: Int[Tensor, " known"]  # images that each mean is of

    @staticmethod
    def of(x: Float[Tensor, "n features"], labels: Int[Tensor, " n"], classes: int) -> "Statistics":
        """Those of labelled rows."""
        centres, counts = means(x, labels, classes)
        spread, enough = covariance(x, labels, centres), counts >= ENOUGH
        return Statistics(centres * enough[:, None], spread, (counts * enough).long())


ENOUGH = 5
"""Images below which a mean would be too close to one of them to be given away."""


@dataclass
class Model:
    """All that stage one leaves: no image, no file name, no path."""

    backbone: Backbone
    size: int  # pixels of a side
    channels: int
    classes: tuple[str, ...]  # names of the known classes, in the order of the head's outputs
    head: nn.Linear | None = None
    means: Float[Tensor, "known dim"] | None = None  # of the known classes' latents
    spread: Float[Tensor, "dim dim"] | None = None  # their shared within-class covariance
    counts: Int[Tensor, " known"] | None = None  # images that each mean is of; 0: the mean is not told
    similarity: PairNet | None = None  # KCL's and MCL's: do two images share a class?
    trunk: Trunk | None = None  # what looks at images first, where the backbone is an adapter
    statistics: Statistics | None = None  # of its features
    trust: Trust | None = None  # what distances to centres mean, where known classes could tell

    @property
    def told(self) -> tuple[str, ...]:
        """The known classes whose mean it has: those that can be told without their images."""
        if self.means is None or self.spread is None or self.counts is None:
            return ()
        return tuple(name for name, count in zip(self.classes, self.counts.tolist(), strict=True) if count)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `model.safetensors`, `model.json` and a card, and the trunk's weights, so that no hub is needed to load
        it.
        """
        folder = Path(folder).expanduser()
        about = {
            "format": "newfound model",
            "version": VERSION,
            "backbone": _settings(self.backbone),
            "size": self.size,
            "channels": self.channels,
            "classes": list(self.classes),
        }
        tensors = {f"backbone.{name}": tensor for name, tensor in self.backbone.state_dict().items()}
        if self.head is not None:
            tensors |= {f"head.{name}": tensor for name, tensor in self.head.state_dict().items()}
        if self.similarity is not None:
            about["similarity"] = _settings(self.similarity.backbone)
            # cloned: its backbone may be the model's own, and safetensors refuses shared memory
            tensors |= {f"similarity.{name}": tensor.clone() for name, tensor in self.similarity.state_dict().items()}
        given = {"means": self.means, "spread": self.spread, "counts": self.counts}
        tensors |= {name: tensor for name, tensor in given.items() if tensor is not None}
        if self.trust is not None:
            about["trust"] = self.trust._asdict()
        if self.statistics is not None:
            tensors |= {f"statistics.{name}": tensor for name, tensor in self.statistics._asdict().items()}
        if self.trunk is not None:
            about["trunk"] = self.trunk.settings()
            files.write_tensors(folder / "trunk.safetensors", self.trunk.network.state_dict())
        files.write_tensors(folder / "model.safetensors", tensors)
        files.write(folder / "README.md", card(self))
        files.write(folder / "model.json", json.dumps(about, indent=1, ensure_ascii=False))

    @staticmethod
    def from_pretrained(folder: str | Path) -> "Model":
        """Read a model folder; a folder that is none, another version's or damaged is refused."""
        folder = Path(folder).expanduser()
        about = _about(folder)
        try:
            tensors = load_file(folder / "model.safetensors")
            if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
                raise ValueError(f"NaN or infinite numbers in {broken[0]}, which give NaN or infinite features")
            backbone = _backbone(about["backbone"])
            backbone.load_state_dict(_below("backbone.", tensors))
            head = None
            if weights := _below("head.", tensors):
                head = nn.Linear(backbone.dim, len(about["classes"]))
                head.load_state_dict(weights)
            similarity = None
            if "similarity" in about:
                looks = _backbone(about["similarity"])
                similarity = PairNet(looks, PairHead(looks.dim))
                similarity.load_state_dict(_below("similarity.", tensors))
            trunk = None
            if "trunk" in about:
                trunk = rebuilt(about["trunk"], load_file(folder / "trunk.safetensors"))
            statistics = _below("statistics.", tensors)
            return Model(
                backbone.eval(),
                size=about["size"],
                channels=about["channels"],
                classes=tuple(about["classes"]),
                head=head,
                means=tensors.get("means"),
                spread=tensors.get("spread"),
                counts=tensors.get("counts"),
                similarity=similarity,
                trunk=trunk,
                statistics=Statistics(**statistics) if statistics else None,
                trust=Trust(*(Line(*about["trust"][name]) for name in Trust._fields)) if "trust" in about else None,
            )
        except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"The model in {folder} is damaged ({type(error).__name__}: {str(error).splitlines()[0]}). "
                "Copy the folder again, or make it anew with `newfound pretrain`."
            ) from error


def card(model: Model) -> str:
    """What a model folder holds and what it does not, for whoever is given it."""
    told = 0 if model.counts is None else int((model.counts > 0).sum())
    names = "".join(f"* {name}\n" for name in map(_line, model.classes)) or "None.\n"
    looks = "A small ResNet that learnt from labelled images"
    if model.trunk is not None:
        looks = f"{model.trunk.name}, pretrained by others on other images, and a small adapter on its features"
    trust = "measured on these classes, some pretended to be new" if model.trust else "measured on other images"
    return f"""# A newfound model

Made by `newfound pretrain` or `newfound discover`; used by

    newfound discover --model FOLDER --unlabelled IMAGES -o run/

**Network.** {looks}, at {model.size} × {model.size} pixels.

**What is inside.** Weights, the names below, the means of {told} classes and the classes' shared covariance: features,
not images, leave the house. A class has a mean only where it had at least {ENOUGH} images. No image and no file name is
inside. Means of features can still tell something of the images they are of: share the folder as you would a summary.

**Confidence.** What distances mean was {trust}.

**Known classes**

{names}"""


def _line(name: str) -> str:
    """A name on one line of Markdown, with nothing in it that Markdown reads."""
    return re.sub(r"([\\`*_<>\[\]#|])", r"\\\1", " ".join(name.split()))


def _about(folder: Path) -> dict:
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(
            f"{folder} is not a model folder: it has no model.json. "
            "Give the folder that `newfound pretrain` wrote, or a run folder's `model`."
        )
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        version = about["version"] if about["format"] == "newfound model" else None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}). Copy the folder again, or make it anew.") from error
    if version != VERSION:
        raise InputError(
            f"{path} has format version {version}; this newfound reads version {VERSION}. "
            "Use the newfound that wrote it, or make the model anew with `newfound pretrain`."
        )
    return about


def _settings(backbone: Backbone) -> dict[str, Any]:
    """What `_backbone` builds it from."""
    kind = next(kind for kind, cls in BACKBONES.items() if type(backbone) is cls)
    return {"kind": kind} | backbone.settings()


def _backbone(settings: dict[str, Any]) -> Backbone:
    return BACKBONES[settings["kind"]](**{name: value for name, value in settings.items() if name != "kind"})


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


@final
class Frozen(nn.Module):
    """A copy of a network that only looks: no gradient, deaf to `train()`.

    Its BatchNorm uses the statistics it has learnt, or each batch's own, without remembering them.
    """

    def __init__(self, network: nn.Module, statistics: Literal["learnt", "batch"] = "learnt"):
        super().__init__()
        self.network, self.statistics = copy.deepcopy(network).requires_grad_(False), statistics
        self.eval()

    def train(self, mode: bool = True) -> "Frozen":
        """Stay in eval mode, whatever is asked."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, seen: Float[Tensor, " n *rest"]) -> Latents | Tensor:
        """What the network says, without gradient; one row alone has no statistics, and is given the learnt ones."""
        for module in self.network.modules():
            if isinstance(module, _BatchNorm):
                module.train(self.statistics == "batch" and len(seen) > 1)
        with still(self.network):
            return self.network(seen)
