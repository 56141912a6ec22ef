"""Which backbone suits a collection: a few that are here look at some of the known classes, hidden for a moment."""

import logging
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.console import Progress, silent
from newfound.data.listing import Listing
from newfound.discovery.rehearsal import HIDINGS, TRIED, Stage, plain_way, too_few
from newfound.discovery.settings import KMEANS, NO, StageOne
from newfound.encoders import Encoder, choose_encoder, embed
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.pixels import PixelEncoder
from newfound.errors import InputError
from newfound.functional.axes import SHRINK
from newfound.functional.rehearsal import FEWEST, Hiding, Rehearsal, Trial, Way, choose
from newfound.networks.pretrained import BESIDE, LITE, LITES, installed
from newfound.networks.resnet import OWN
from newfound.types import generator

log = logging.getLogger("newfound")

SEEN = (LITE, LARGE := [*LITES][-1], f"{LITE}{BESIDE}{LARGE}")
"""Pretrained networks that are tried where they are installed: the smallest, the one that says most, and both."""

LOOKED, SHARE, CLASSES = 600, 5, 20
"""Images that each of them is shown: at most so many, one in so many of the labelled ones, of so many classes."""

FEW = 200
"""So many are shown in any case, where there are as many: less says nothing."""

LEARNT, TAUGHT, EPOCHS = 2, 4000, 2
"""Hidings that our own network learns for, images it learns from at most, and the part of its epochs it is given."""


@dataclass(frozen=True, eq=False)
class Eyes:
    """The encoder that was taken, the settings that say so, and what was seen."""

    encoder: Encoder
    stage: StageOne
    rehearsal: Rehearsal | None

    def explain(self, unseen: str) -> str:
        """Which backbone, and why; `unseen` says it of the one that would be taken where nothing is tried."""
        if self.rehearsal is None or not self.rehearsal.eyes:
            return unseen
        return f"{self.encoder.name}, since it told hidden known classes apart best, or none did clearly better"


def rival_names(encoder: Encoder, stage: StageOne) -> list[str]:
    """The backbones that are tried: the one that would be taken unseen first. It alone where somebody has chosen one,
    or how it is to look or learn.
    """
    if stage != replace(StageOne(), rehearse=stage.rehearse) or stage.rehearse == NO:
        return [encoder.name]
    here = (name for name in SEEN if all(map(installed, name.split(BESIDE))))
    return [encoder.name, *(name for name in here if name != encoder.name)]


def choose_eyes(
    encoder: Encoder, stage: StageOne, labelled: Any, seed: int, device: str, progress: Progress = silent
) -> Eyes:
    """Let backbones look at some labelled images, and take the one whose features tell hidden classes apart best.

    Whoever is tried looks at the same images; what it costs is a matter of their number alone. Our own network, where
    it would be taken, learns the classes that are not hidden, from fewer images and in fewer epochs than in earnest.
    """
    names = rival_names(encoder, stage)
    if len(names) < 2 or not isinstance(labelled, Listing):
        return Eyes(encoder, stage, None)
    some = labelled.pick(pick_some(labelled.labels, seed))
    known = len(labelled.classes)
    if len(some.labels.unique()) < FEWEST:
        return Eyes(encoder, stage, Rehearsal(known, 0, why=too_few(known)))
    log.info(f"Rehearsing on {len(some)} labelled images which backbone suits them: {', '.join(names)}.")
    asked = {name: replace(stage, backbone=name) for name in names}
    rivals = {name: choose_encoder(asked[name], None, [], labelled=True, device=device) for name in names}
    scores: dict[Way, list[float]] = {}
    hidings: list[Hiding] = []
    for name in sorted(names, key=lambda name: name == OWN):  # it is judged on what the others could read
        rival = rivals[name]
        if isinstance(rival, FeatureEncoder):
            stage_set = Stage.of(rival.encode(some, progress), rival)
            some = stage_set.images.listing
            hidings = stage_set.hidings("eyes", HIDINGS, seed)
            scores |= _look(stage_set, hidings, seed)
        elif isinstance(rival, PixelEncoder) and hidings:
            scores |= _learn(rival, labelled, some, hidings[:LEARNT], stage, seed, progress)
    trials = tuple(Trial(way, tuple(theirs)) for way, theirs in scores.items())
    taken = choose_by(trials, encoder) if hidings else plain_way(encoder.name)
    found = Rehearsal(known, hidings[0].hidden if hidings else 0, eyes=trials, why="" if hidings else too_few(known))
    return Eyes(rivals[taken.backbone], asked[taken.backbone], found)


def choose_by(trials: tuple[Trial, ...], encoder: Encoder) -> Way:
    """The best of the backbones: the best pretrained one, or our own where that is not worse on the hidings it saw."""
    others = [trial for trial in trials if trial.way.backbone != OWN]
    best = choose(others, plain_way(encoder.name if encoder.name != OWN else LITE))
    own = [trial for trial in trials if trial.way.backbone == OWN]
    return choose([*own, *(trial for trial in others if trial.way == best)], own[0].way) if own else best


def _look(stage: Stage, hidings: list[Hiding], seed: int) -> dict[Way, list[float]]:
    """What a pretrained network's features tell, before anything is trained."""
    scores: dict[Way, list[float]] = {}
    for hiding in hidings:
        told, pile = stage.latents(hiding, SHRINK)
        for reading in TRIED:
            way = plain_way(stage.encoder.name)._replace(reading=reading)
            scores.setdefault(way, []).append(stage.score(hiding, told, pile, reading, seed))
    return scores


def _learn(
    encoder: PixelEncoder,
    labelled: Listing,
    some: Listing,
    hidings: list[Hiding],
    stage: StageOne,
    seed: int,
    progress: Progress,
) -> dict[Way, list[float]]:
    """What our own network tells once it has learnt the classes that are not hidden."""
    shown = encoder.encode(some)
    if len(shown) < len(some):
        raise InputError("Images changed while they were looked at. Run the same command again.")
    way, scores = Way(OWN, 0.0, encoder.default_method, KMEANS), []
    short = replace(stage, pretrain_epochs=max(1, stage.pretrain_epochs // EPOCHS))
    for turn, hiding in enumerate(hidings):
        hidden = set(some.labels[hiding.pile[hiding.truth >= hiding.known]].tolist())
        piled = {(some.names[row], some.boxes[row]) for row in hiding.pile.tolist()}
        rows = [row for row, label in enumerate(labelled.labels.tolist()) if label not in hidden]
        rows = [row for row in rows if (labelled.names[row], labelled.boxes[row]) not in piled]
        order = torch.randperm(len(rows), generator=generator(seed, "learn", turn))[:TAUGHT].sort().values
        taught = encoder.encode(relabel(labelled.pick(torch.tensor(rows)[order])))
        model = encoder.fit_known(taught, short, seed, progress=progress)
        z = embed(model, shown)
        scores.append(Stage.score(hiding, z[hiding.labelled], z[hiding.pile], KMEANS, seed))
    return {way: scores}


def relabel(listing: Listing) -> Listing:
    """The same images with classes counted among themselves."""
    there, labels = listing.labels.unique(return_inverse=True)
    return replace(listing, labels=labels, classes=tuple(listing.classes[label] for label in there.tolist()))


def pick_some(labels: Int[Tensor, " n"], seed: int) -> Int[Tensor, " some"]:
    """Rows of as many images of each of some classes."""
    random = generator(seed, "eyes")
    classes = torch.randperm(int(labels.max()) + 1, generator=random)
    sizes = torch.bincount(labels)
    classes = classes[sizes[classes] > 0][:CLASSES]
    total = min(LOOKED, max(len(labels) // SHARE, FEW))
    each = max(1, total // len(classes))
    order = torch.randperm(len(labels), generator=random)
    return torch.cat([order[labels[order] == label][:each] for label in classes.tolist()]).sort().values
