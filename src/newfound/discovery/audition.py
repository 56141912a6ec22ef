"""Which backbone suits a collection: a few that are here look at some of the known classes, hidden for a moment."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from newfound.console import Progress, silent
from newfound.data.decoding import measure_sides
from newfound.data.listing import Listing
from newfound.discovery.hidings import RehearsalSet
from newfound.discovery.rehearsal import HIDINGS, TRIED, plain_way, preferred_way, too_few
from newfound.discovery.settings import AUTO, KMEANS, MIDDLE, NO, WHOLE, StageOne
from newfound.encoders import Encoder, choose_encoder, embed
from newfound.encoders.choose import SAMPLE
from newfound.encoders.features import WHOLLY, FeatureEncoder
from newfound.encoders.pixels import PixelEncoder
from newfound.errors import InputError
from newfound.functional.axes import SHRINK
from newfound.functional.rehearsal import FEWEST, Hiding, Rehearsal, Trial, Way, choose
from newfound.networks.pretrained import BESIDE, LITE, LITES, is_installed
from newfound.networks.resnet import OWN
from newfound.types import generator

log = logging.getLogger("newfound")

SEEN = (f"{LITE}{BESIDE}{(LARGE := [*LITES][-1])}", LITE, LARGE)
"""Pretrained networks that are tried where they are installed: the smallest and the one that says most side by side,
which are taken unless another does clearly better, and each of them; decision 13.
"""

LONG, OBLONG = 1.25, 0.25
"""How many times as long as wide a picture is not square any more, and from which share of such pictures on they are
also looked at whole; decision 13.
"""

LOOKED, SHARE, CLASSES = 600, 5, 20
"""Images that each of them is shown: at most so many, one in so many of the labelled ones, of so many classes."""

FEW = 200
"""So many are shown in any case, where there are as many: less says nothing."""

LEARNT, TAUGHT, EPOCHS = 2, 4000, 2
"""Hidings that our own network learns for, images it learns from at most, and the part of its epochs it is given."""


@dataclass(frozen=True, eq=False)
class BackboneChoice:
    """The encoder that was taken, the settings that say so, and what was seen."""

    encoder: Encoder
    stage: StageOne
    rehearsal: Rehearsal | None

    def explain(self, unseen: str) -> str:
        """Which backbone, and why; `unseen` says it of the one that would be taken where nothing is tried."""
        if self.rehearsal is None or not self.rehearsal.backbones:
            return unseen
        return f"{self.encoder.name}, since it told hidden known classes apart best, or none did clearly better"


def rival_names(encoder: Encoder, stage: StageOne) -> list[str]:
    """The backbones that are tried: the one that would be taken unseen first. It alone where somebody has chosen one,
    or how it is to look or learn.
    """
    unseen = encoder.name.removesuffix(WHOLLY)
    if stage != replace(StageOne(), rehearse=stage.rehearse, framing=stage.framing) or stage.rehearse == NO:
        return [unseen]
    here = (name for name in sorted(SEEN, key=len) if all(map(is_installed, name.split(BESIDE))))
    return [unseen, *(name for name in here if name != unseen)]


def rival_framings(stage: StageOne, labelled: Listing) -> list[str]:
    """How pictures may be framed, the one first that is taken unless another does clearly better."""
    if stage.framing != AUTO or stage.rehearse == NO or stage.backbone == OWN:
        return [MIDDLE if stage.framing == AUTO else stage.framing]
    return [WHOLE, MIDDLE] if share_oblong(labelled) >= OBLONG else [MIDDLE]


@dataclass(frozen=True, eq=False)
class Audition:
    """Some labelled images, which backbones are shown in turn; all hide the same classes."""

    labelled: Listing  # all of them
    stage: StageOne
    seed: int
    device: str
    progress: Progress

    def rival(self, name: str, framing: str) -> BackboneChoice:
        """A backbone that sees so much of a picture; our own sees the middle square alone."""
        asked = replace(self.stage, backbone=name, framing=MIDDLE if name == OWN else framing)
        return BackboneChoice(choose_encoder(asked, None, [], labelled=True, device=self.device), asked, None)

    def hear(self, rivals: Iterable[BackboneChoice], some: Listing) -> tuple[list[Trial], list[Hiding], Listing]:
        """What each tells of some images; how classes were hidden, and the images that could be read."""
        scores: dict[Way, list[float]] = {}
        hidings: list[Hiding] = []
        for rival in sorted(rivals, key=lambda rival: rival.encoder.name == OWN):  # it is judged on what others read
            if isinstance(rival.encoder, FeatureEncoder):
                stage_set = RehearsalSet.of(rival.encoder.encode(some, self.progress), rival.encoder)
                some = stage_set.images.listing
                hidings = stage_set.hidings("eyes", HIDINGS, self.seed)
                scores |= _look(stage_set, hidings, self.seed)
            elif isinstance(rival.encoder, PixelEncoder) and hidings:
                scores |= _learn(
                    rival.encoder, self.labelled, some, hidings[:LEARNT], self.stage, self.seed, self.progress
                )
        return [Trial(way, tuple(theirs)) for way, theirs in scores.items()], hidings, some


def audition_backbones(
    encoder: Encoder,
    stage: StageOne,
    labelled: Any,
    seed: int,
    device: str,
    progress: Progress = silent,
    *,
    pixels: bool = False,
) -> BackboneChoice:
    """Let backbones look at some labelled images, and take the one whose features tell hidden classes apart best.

    Whoever is tried looks at the same images; what it costs is a matter of their number alone. Our own network, where
    it would be taken, learns the classes that are not hidden, from fewer images and in fewer epochs than in earnest.
    Of the one that is taken, where many pictures are not square, is asked then how much of these it should see. Where
    `pixels` are needed later, which a pretrained network does not hand on, there is nothing to choose.
    """
    if pixels or not isinstance(labelled, Listing):
        return BackboneChoice(encoder, stage, None)
    names, framings = rival_names(encoder, stage), rival_framings(stage, labelled)
    if len(names) * len(framings) < 2:
        return BackboneChoice(encoder, stage, None)
    some, known = labelled.pick(pick_some(labelled.labels, seed)), len(labelled.classes)
    if len(some.labels.unique()) < FEWEST:
        return BackboneChoice(encoder, stage, Rehearsal(known, 0, why=too_few(known)))
    log.info(f"Rehearsing on {len(some)} labelled images which backbone suits them: {', '.join(names)}.")
    audition = Audition(labelled, stage, seed, device, progress)
    rivals = {rival.encoder.name: rival for rival in (audition.rival(name, framings[0]) for name in names)}
    trials, hidings, some = audition.hear(rivals.values(), some)
    if not hidings:
        return BackboneChoice(encoder, stage, Rehearsal(known, 0, why=too_few(known)))
    taken = choose(trials, preferred_way(prefer(rivals)))
    for framing in framings[1:] if taken.backbone != OWN else ():
        log.info(f"Rehearsing how much {taken.backbone} should see of pictures that are not square.")
        rival = audition.rival(rivals[taken.backbone].stage.backbone, framing)
        rivals[rival.encoder.name] = rival
        more, *_ = audition.hear([rival], some)
        own = [trial for trial in trials if trial.way.backbone == taken.backbone]
        taken, trials = choose([*own, *more], taken), [*trials, *more]
    return replace(rivals[taken.backbone], rehearsal=Rehearsal(known, hidings[0].hidden, backbones=tuple(trials)))


def prefer(names: Iterable[str]) -> str:
    """The one of several backbones that is taken where no other does clearly better."""
    first = {name.removesuffix(WHOLLY): name for name in names}
    return next(first[name] for name in (*SEEN, *first) if name in first)


def share_oblong(listing: Listing) -> float:
    """Which share of some of the pictures, or of the boxes in them, is clearly not square."""
    rows = range(0, len(listing), max(1, len(listing) // SAMPLE))
    sides = [box[2:] if (box := listing.boxes[row]) else measure_sides(listing.files[row]) for row in rows]
    there = [found for found in sides if found]
    return sum(max(found) >= LONG * min(found) for found in there) / max(len(there), 1)


def _look(stage: RehearsalSet, hidings: list[Hiding], seed: int) -> dict[Way, list[float]]:
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
        scores.append(RehearsalSet.score(hiding, z[hiding.labelled], z[hiding.pile], KMEANS, seed))
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
