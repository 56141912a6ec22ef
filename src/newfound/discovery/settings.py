"""The settings a person may choose. Plain values: the command line reads them without loading torch."""

from dataclasses import dataclass, replace

from newfound.errors import InputError

AUTO = "auto"

AGREEMENT, GCD, DTC = "agreement", "gcd", "dtc"
"""How classes are counted: our own way, and the published two."""

READINGS = KMEANS, SHIFT, DISCRIMINANT = "k-means", "mean-shift", "discriminant"
"""How clusters are read off latents: by k-means, as they are, after mean shift over neighbours, or along the
discriminants of clusters that were found so.
"""

FRAMINGS = MIDDLE, WHOLE = "middle", "whole"
"""What is seen of a picture that is not square: its middle square, or all of it, on white."""

YES, NO = "yes", "no"

FAST, WIDE = 1000, 2048
"""The highest learning rate, and the most pixels or channels, that are taken: beyond them is nothing but overflow."""

MOST = 2**53
"""The largest whole number that is taken: a run's own file holds no larger one, nor does anybody's JSON."""

DEVICES = (AUTO, "cpu")
"""Where is trained: on an accelerator, if there is one, or on the CPU."""


def needed(flag: str, value: object, fits: bool, what: str) -> None:
    """Refuse a value that does not fit."""
    if not fits:
        raise InputError(f"--{flag} is {value}. Needed: {what}.")


def check_device(device: str) -> None:
    """Refuse a device that is none."""
    needed("device", device, device in DEVICES, "auto (accelerator, if any) or cpu")


@dataclass(frozen=True)
class StageOne:
    """How the known classes are learnt."""

    pretrain_epochs: int = 20
    """small-resnet-18's passes over images."""
    pretrain_rate: float = 0.2
    """small-resnet-18's peak learning rate."""
    backbone: str = "auto"
    """See newfound backbones."""
    weights: str | None = None
    """File with the pretrained network's weights."""
    size: int | None = None
    """Pixels of a side; default: 32, or the network's own."""
    framing: str = AUTO
    """Oblong pictures: middle or whole."""
    width: int = 16
    """small-resnet-18's; the paper: 64."""
    stride: int = 2
    """small-resnet-18's; the paper: 1."""
    rehearse: str = AUTO
    """Try on hidden known classes; or no."""

    def __post_init__(self) -> None:
        needed("pretrain-epochs", self.pretrain_epochs, self.pretrain_epochs >= 0, "0 or more passes")
        needed("pretrain-rate", self.pretrain_rate, 0 < self.pretrain_rate <= FAST, f"a rate above 0, at most {FAST}")
        needed("size", self.size, self.size is None or 8 <= self.size <= WIDE, f"8 to {WIDE} pixels")
        needed("framing", self.framing, self.framing in (AUTO, *FRAMINGS), f"{AUTO}, {' or '.join(FRAMINGS)}")
        needed("width", self.width, 1 <= self.width <= WIDE, f"1 to {WIDE} channels")
        needed("stride", self.stride, self.stride in (1, 2), "1 or 2")
        needed("rehearse", self.rehearse, self.rehearse in (AUTO, YES, NO), "auto (where it can be), yes or no")


@dataclass(frozen=True)
class Run:
    """How new classes are found."""

    method: str = AUTO
    """See newfound methods."""
    epochs: int | None = None
    """Passes over the images; default: the method's."""
    rate: float | None = None
    """Learning rate; default: the method's."""
    batch: int = 128
    """Images per step."""
    read_by: str = AUTO
    """k-means, mean-shift or discriminant."""
    count_by: str = AGREEMENT
    """Count by agreement, gcd or dtc."""
    mixed: bool = True
    """Images may be of known classes too."""
    unsure: float | None = None
    """Share called unsure; default: those likelier wrong."""
    seed: int = 0
    """Same seed, same result."""
    device: str = "auto"
    """auto (accelerator, if any) or cpu."""

    def __post_init__(self) -> None:
        needed("epochs", self.epochs, self.epochs is None or 0 <= self.epochs <= MOST, "0 or more passes, at most 2⁵³")
        needed("rate", self.rate, self.rate is None or 0 < self.rate <= FAST, f"a rate above 0, at most {FAST}")
        needed("batch", self.batch, 2 <= self.batch <= MOST, "at least 2 images per step, at most 2⁵³")
        needed("seed", self.seed, abs(self.seed) <= MOST, "a whole number of at most 2⁵³, above or below 0")
        needed(
            "read-by", self.read_by, self.read_by in (AUTO, *READINGS), f"{AUTO}, {KMEANS}, {SHIFT} or {DISCRIMINANT}"
        )
        needed("count-by", self.count_by, self.count_by in (AGREEMENT, GCD, DTC), f"{AGREEMENT}, {GCD} or {DTC}")
        needed("unsure", self.unsure, self.unsure is None or 0 <= self.unsure <= 1, "a share, from 0 to 1")
        check_device(self.device)

    def suited(self, default: str) -> "Run":
        """With a method, where none was chosen."""
        return replace(self, method=default) if self.method == AUTO else self

    def unit(self, reading: str) -> bool:
        """Whether latents are compared on the unit sphere, where the method's reading is this."""
        return reading == "unit k-means" or self.read_by in (SHIFT, DISCRIMINANT)
