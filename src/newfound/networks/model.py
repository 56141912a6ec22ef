"""Model: all that stage one leaves behind, and the folder it travels in.

Long, for what each file of that folder must hold stands beside what reads it.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from newfound import files
from newfound.console import printable
from newfound.errors import InputError, counted
from newfound.functional.calibration import LINES, Calibration
from newfound.functional.geometry import covariance, means
from newfound.functional.rehearsal import Rehearsal
from newfound.networks.adapter import Adapter
from newfound.networks.backbone import Backbone
from newfound.networks.pretrained import PretrainedBackbone, rebuild
from newfound.networks.resnet import OWN, SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.schema import (
    TensorSpec,
    anything,
    check_finite,
    check_tensors,
    check_weights,
    damaged,
    each,
    flag,
    maybe,
    needs,
    number,
    one_of,
    read_json,
    read_tensors,
    record,
    row,
    table,
    text,
    whole,
)

VERSION = 1
STORED = {"means": "means", "within_covariance": "spread", "counts": "counts"}
"""What a file calls each of `Statistics`; it calls a pretrained backbone `trunk`, and a calibration `trust`."""
ENOUGH = 5
"""Images below which a mean would be too close to one of them to be given away."""
MEND = "Copy the folder again, or make it anew with `newfound pretrain`."

OURS = record(
    {"kind": one_of(OWN), "width": whole(1, 4096), "stride": one_of(1, 2), "turned": flag}, optional=("turned",)
)
ADAPTER = record(
    {"kind": one_of("adapter"), "inputs": whole(1, 2**20), "dim": whole(1, 2**20), "hidden": whole(1, 2**20)}
)
KINDS = {OWN: OURS, "adapter": ADAPTER}
"""What is known of a backbone's settings, by its kind."""


def check_backbone(value: Any, where: str) -> None:
    """The settings of one of `BACKBONES`; of somebody's own its class says what it needs, when it is built."""
    record({"kind": one_of(*BACKBONES)})(value, where)
    KINDS.get(value["kind"], anything)(value, where)


MEANT = dict.fromkeys(LINES, row(number(), number()))  # of a Calibration
MAYBE = ("outlier", "counted")
COLOURS = each(number(), 3)
NETWORK = {"name": text, "size": whole(1, 2**14), "mean": COLOURS, "std": each(number(1e-6, 1e6), 3), "whole": flag}
WAY = {"backbone": text, "shrink": number(0), "method": text, "reading": text}
TRIALS = each(record(WAY | {"scores": each(number(0, 1), least=1)}))
EXPECTED = maybe(row(number(0, 1), number(0, 1), number(0, 1), whole(1), number()))
PLAIN = record(
    {
        "backbone": check_backbone,
        "size": whole(1, 2**14),
        "channels": one_of(1, 3),
        "classes": each(text, distinct=True),
        "numbers": each(whole(1), distinct=True),
        "used": whole(),
        "similarity": OURS,
        "trust": record(MEANT | {"readings": table(record(MEANT, optional=MAYBE))}, optional=(*MAYBE, "readings")),
        "trunk": record(NETWORK | {"parts": each(record(NETWORK, optional=("whole",)))}, optional=("parts", "whole")),
        "rehearsal": record(
            {
                "known": whole(),
                "hidden": whole(),
                "backbones": TRIALS,
                "trials": TRIALS,
                "mixed": EXPECTED,
                "alone": EXPECTED,
                "why": text,
                "counting": each(record({"pairs": number(), "accuracy": number(), "silhouette": number()})),
                "apart": TRIALS,
                "mixed_counted": EXPECTED,
                "alone_counted": EXPECTED,
            },
            optional=("counting", "apart", "mixed_counted", "alone_counted"),
        ),
    },
    optional=("numbers", "used", "similarity", "trust", "trunk", "rehearsal"),
)
"""What `model.json` holds."""

MEASURED = {
    "means": TensorSpec(torch.float32, ("classes", "dimensions")),
    "spread": TensorSpec(torch.float32, ("dimensions", "dimensions")),
    "counts": TensorSpec(torch.int64, ("classes",)),
}
"""What `model.safetensors` holds of the known classes, among latents and again among features (`statistics.`); beside
it the weights of the backbone, the head and the similarity, each as its network says.
"""

BACKBONES: dict[str, type[Backbone]] = {OWN: SmallResNet, "adapter": Adapter}
"""By what a model folder calls each. A line more, and it holds one of your own."""


class Statistics(NamedTuple):
    """Where the known classes lie. Latents or features, not images, and means of them at that.

    A class of fewer than `ENOUGH` images has no mean of its own: its row is 0, and so is its count.
    """

    means: Float[Tensor, "known dim"]
    within_covariance: Float[Tensor, "dim dim"]  # shared within-class covariance
    counts: Int[Tensor, " known"]  # images that each mean is of

    @staticmethod
    def of(x: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], classes: int) -> "Statistics":
        """Those of labelled rows."""
        centres, counts = means(x, labels, classes)
        within_covariance, enough = covariance(x, labels, centres), counts >= ENOUGH
        return Statistics(centres * enough[:, None], within_covariance, (counts * enough).long())

    def turn(self, metric: Float[Tensor, "dim dim"]) -> "Statistics":
        """Those of the same rows times a matrix."""
        return self._replace(means=self.means @ metric, within_covariance=metric.T @ self.within_covariance @ metric)


class Pretrained(NamedTuple):
    """What looks at images first, where the backbone is an adapter."""

    backbone: PretrainedBackbone
    statistics: Statistics | None = None  # of the known classes among its power-normalised features


@dataclass
class Model:
    """All that stage one leaves: no image, no file name, no path."""

    backbone: Backbone
    size: int  # pixels of a side
    channels: int
    classes: tuple[str, ...]  # names of the known classes, in the order of the head's outputs
    head: nn.Linear | None = None
    known: Statistics | None = None  # where the known classes' latents lie
    similarity: PairNet | None = None  # KCL's and MCL's: do two images share a class?
    pretrained: Pretrained | None = None  # what looks at images first, where the backbone is an adapter
    calibration: Calibration | None = None  # what distances to centres mean, where known classes could tell
    rehearsal: Rehearsal | None = None  # how new classes are best found, where known ones, hidden, could tell
    numbers: tuple[int, ...] = ()  # of the known classes, by which runs call them; left out: 1, 2, 3, …
    used: int = 0  # the largest number that a class ever had, merged ones too

    def __post_init__(self) -> None:
        self.numbers = self.numbers or tuple(range(1, len(self.classes) + 1))
        self.used = max((self.used, *self.numbers))

    def __repr__(self) -> str:
        return f"Model of {counted(len(self.classes), 'class', 'classes')}: {self.network} at {self.size} pixels"

    @property
    def network(self) -> str:
        """What looks, as people call it; of a kind that no model folder has a word for its class."""
        if self.pretrained is not None:
            return self.pretrained.backbone.name
        return _word_for(self.backbone) or type(self.backbone).__name__

    @property
    def recognisable(self) -> tuple[str, ...]:
        """The known classes whose mean it has: those that can be told without their images."""
        if self.known is None:
            return ()
        return tuple(name for name, count in zip(self.classes, self.known.counts.tolist(), strict=True) if count)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `model.safetensors`, `model.json` and a card, and the pretrained weights, so that no hub is needed to
        load it.
        """
        folder = Path(folder).expanduser()
        about = {
            "format": "newfound model",
            "version": VERSION,
            "backbone": _settings(self.backbone),
            "size": self.size,
            "channels": self.channels,
            "classes": list(self.classes),
            "numbers": list(self.numbers),
            "used": self.used,
        }
        tensors = {f"backbone.{name}": tensor for name, tensor in self.backbone.state_dict().items()}
        if self.head is not None:
            tensors |= {f"head.{name}": tensor for name, tensor in self.head.state_dict().items()}
        if self.similarity is not None:
            about["similarity"] = _settings(self.similarity.backbone)
            # cloned: its backbone may be the model's own, and safetensors refuses shared memory
            tensors |= {f"similarity.{name}": tensor.clone() for name, tensor in self.similarity.state_dict().items()}
        tensors |= _stored(self.known)
        if self.calibration is not None:
            about["trust"] = self.calibration.asdict()
        if self.rehearsal is not None:
            about["rehearsal"] = self.rehearsal.asdict()
        if self.pretrained is not None:
            about["trunk"] = self.pretrained.backbone.settings()
            tensors |= {f"statistics.{name}": tensor for name, tensor in _stored(self.pretrained.statistics).items()}
            files.write_tensors(folder / "trunk.safetensors", self.pretrained.backbone.network.state_dict())
        files.write_tensors(folder / "model.safetensors", tensors)
        files.write(folder / "README.md", card(self))
        files.write(folder / "model.json", json.dumps(about, indent=1, ensure_ascii=False))

    @staticmethod
    def from_pretrained(folder: str | Path) -> "Model":
        """Read a model folder; a folder that is none, another version's or damaged is refused."""
        folder = Path(folder).expanduser()
        about = _about(folder)
        tensors, _ = read_tensors(folder / "model.safetensors", MEND)
        try:
            return _built(about, tensors, folder)
        except (ValueError, RuntimeError, TypeError) as error:  # a network says RuntimeError of weights that do not fit
            if isinstance(error, InputError):
                raise
            raise damaged(folder / "model.safetensors", error, MEND) from error


def card(model: Model) -> str:
    """What a model folder holds and what it does not, for whoever is given it."""
    told = len(model.recognisable)
    names = "".join(f"* {name}\n" for name in map(_line, model.classes)) or "None.\n"
    looks = f"{model.network}, which learnt from labelled images"
    if model.pretrained is not None:
        looks = f"{model.network}, pretrained by others on other images, and a small adapter on its features"
    calibration = (
        "measured on these classes, some pretended to be new" if model.calibration else "measured on other images"
    )
    return f"""# A newfound model

Made by `newfound pretrain`, `newfound discover` or `newfound learn`; used by

    newfound predict FOLDER IMAGES -o classes.csv
    newfound discover --model FOLDER --unlabelled IMAGES -o run/

**Network.** {looks}, at {model.size} × {model.size} pixels.

**What is inside.** Weights, the names below, the means of {told} classes and the classes' shared covariance: features,
not images, leave the house. A class has a mean only where it had at least {ENOUGH} images. No image and no file name is
inside. Means of features can still tell something of the images they are of: share the folder as you would a summary.

**Confidence.** What distances mean was {calibration}.

**Known classes**

{names}"""


def _built(about: dict[str, Any], tensors: dict[str, Tensor], folder: Path) -> Model:
    """The model that a folder's words and tensors make, once they fit each other."""
    for name, tensor in tensors.items():
        check_finite(tensor, name, "numbers; others give NaN or infinite features")
    backbone = _backbone(about["backbone"], _below("backbone.", tensors))
    known, lengths = len(about["classes"]), {"classes": len(about["classes"]), "dimensions": backbone.dim}
    head = None
    if weights := _below("head.", tensors):
        needs(known > 0, "head", "there", "none, for no class is known")
        head = nn.Linear(backbone.dim, known)
        check_weights(weights, head.state_dict(), "head.")
        head.load_state_dict(weights)
    similarity = None
    if "similarity" in about:
        theirs = _below("similarity.", tensors)
        looks = _backbone(about["similarity"], _below("backbone.", theirs))
        similarity = PairNet(looks, PairHead(looks.dim))
        check_weights(theirs, similarity.state_dict(), "similarity.")
        similarity.load_state_dict(theirs)
    pretrained = None
    if "trunk" in about:
        network = _trunk(about["trunk"], folder / "trunk.safetensors")
        needs(network.dim == about["backbone"].get("inputs"), "backbone.inputs", about["backbone"], str(network.dim))
        inner = {"classes": known, "dimensions": network.dim}
        pretrained = Pretrained(network, _statistics(_below("statistics.", tensors), inner))
    for part, said in (("similarity.", "similarity"), ("statistics.", "trunk")):
        needs(said in about or not _below(part, tensors), part, "there", f"nothing, for model.json has no {said}")
    calibration = None
    if "trust" in about:
        calibration = Calibration.of(about["trust"])
    return Model(
        backbone.eval(),
        size=about["size"],
        channels=about["channels"],
        classes=tuple(about["classes"]),
        head=head,
        known=_statistics(tensors, lengths),
        similarity=similarity,
        pretrained=pretrained,
        calibration=calibration,
        rehearsal=Rehearsal.of(about["rehearsal"]) if "rehearsal" in about else None,
        numbers=tuple(about.get("numbers", ())),
        used=about.get("used", 0),
    )


def _trunk(settings: dict[str, Any], path: Path) -> PretrainedBackbone:
    weights, _ = read_tensors(path, MEND)
    try:
        return rebuild(settings, weights)
    except (ValueError, RuntimeError, TypeError, KeyError, AssertionError) as error:
        raise damaged(path, error, MEND) from error


def _line(name: str) -> str:
    """A name on one line of Markdown, with nothing in it that Markdown reads, or a terminal obeys."""
    return re.sub(r"([\\`*_<>\[\]#|])", r"\\\1", printable(" ".join(name.split())))


def _about(folder: Path) -> dict:
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(
            f"{folder} is not a model folder: it has no model.json. "
            "Give the folder that `newfound pretrain` wrote, or a run folder's `model`."
        )
    about = read_json(path, MEND)
    version = about.get("version") if about.get("format") == "newfound model" else None
    if version != VERSION:
        raise InputError(
            f"{path} has format version {version}; this newfound reads version {VERSION}. "
            "Use the newfound that wrote it, or make the model anew with `newfound pretrain`."
        )
    try:
        PLAIN(about, "")
        needs("trunk" not in about or about["channels"] == 3, "channels", about["channels"], "3")
        numbers, known = about.get("numbers"), len(about["classes"])
        needs(numbers is None or len(numbers) == known, "numbers", numbers, f"{known} of them, one a class")
    except ValueError as error:
        raise damaged(path, error, MEND) from error
    return about


def kind_of(backbone: Backbone) -> str:
    """What a model folder calls such a backbone; refused where it has no word for it."""
    if (kind := _word_for(backbone)) is None:
        raise InputError(
            f"A model folder has no word for a backbone of the class {type(backbone).__name__}. Needed: one of "
            f"{', '.join(BACKBONES)}. Give it a line in newfound.networks.model.BACKBONES."
        )
    return kind


def _word_for(backbone: Backbone) -> str | None:
    return next((kind for kind, cls in BACKBONES.items() if type(backbone) is cls), None)


def _settings(backbone: Backbone) -> dict[str, Any]:
    """What `_backbone` builds it from."""
    return {"kind": kind_of(backbone)} | backbone.settings()


def _backbone(settings: dict[str, Any], weights: dict[str, Tensor]) -> Backbone:
    """The backbone of these settings with its weights; no memory is taken before they fit each other."""
    kind, how = BACKBONES[settings["kind"]], {name: value for name, value in settings.items() if name != "kind"}
    with torch.device("meta"):
        check_weights(weights, kind(**how).state_dict(), "backbone.")
    backbone = kind(**how)
    backbone.load_state_dict(weights)
    return backbone


def _stored(statistics: Statistics | None) -> dict[str, Tensor]:
    """Statistics under a file's names; nothing where there are none."""
    return {} if statistics is None else {STORED[name]: tensor for name, tensor in statistics._asdict().items()}


def _statistics(tensors: dict[str, Tensor], lengths: dict[str, int]) -> Statistics | None:
    """Statistics from a file's tensors; None where there are none. The first folders had no counts: none is told."""
    if not {*STORED.values()} & tensors.keys():
        return None
    check_tensors(tensors, {name: MEASURED[name] for name in MEASURED if name != "counts" or name in tensors}, lengths)
    nobody = {"counts": torch.zeros(len(tensors["means"]), dtype=torch.long)}
    return Statistics(**{name: (nobody | tensors)[stored] for name, stored in STORED.items()})


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
