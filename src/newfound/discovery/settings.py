"""The settings a person may choose. Plain values: the command line reads them without loading torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StageOne:
    """How the known classes are learnt."""

    pretrain_epochs: int = 10
    """Passes over the labelled images in stage one."""
    pretrain_rate: float = 0.2
    """Its peak learning rate."""
    backbone: str = "auto"
    """auto, small-resnet-18, efficientnet-lite0, or a pretrained network of timm's."""
    weights: str | None = None
    """File with the pretrained network's weights."""
    size: int | None = None
    """Pixels of a side that images are brought to; default: 32, or the pretrained network's own."""
    width: int = 16
    """small-resnet-18's width (the paper: 64)."""
    stride: int = 2
    """small-resnet-18's stride (the paper: 1)."""


@dataclass(frozen=True)
class Run:
    """How new classes are found."""

    method: str = "pairs+spacing"
    """How classes are found; a+b adds b to a."""
    epochs: int = 15
    """Passes over the discovery set."""
    rate: float = 0.02
    """Learning rate."""
    batch: int = 128
    """Images a step."""
    mixed: bool = True
    """The pile may hold known classes too; --no-mixed: every image is of a new one."""
    unsure: float | None = None
    """Share of images called unsure; default: those that are more likely wrong than right."""
    seed: int = 0
    """Same seed, machine and threads: same bytes."""
    device: str = "auto"
    """auto (accelerator, if any) or cpu."""
