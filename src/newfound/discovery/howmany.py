"""How many new classes there are among unlabelled images, before anything is trained."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from newfound.console import Progress, silent
from newfound.data.collection import Collection
from newfound.discovery.settings import AGREEMENT, DTC, GCD
from newfound.encoders import embed, encoder_of
from newfound.encoders.known import STAND
from newfound.errors import InputError, counted
from newfound.functional.counting import Count, count
from newfound.functional.estimates import estimate_dtc, estimate_gcd
from newfound.networks.model import Model

FEWEST = 4
"""Images among which classes can be counted, where none is known."""

MOST = 100
"""New classes that are looked for, at most."""


def check_counting(by: str, classes: int | None, known: int, *, mixed: bool) -> None:
    """Refuse a way to count that cannot work, or that nobody would ask, before any long work.

    `classes` is their number where it is given, `known` how many known ones can be asked, with or without their images.
    """
    if by == AGREEMENT:
        return
    if classes is not None:
        raise InputError(
            f"--classes {classes} says how many new classes there are, so --count-by {by} would change nothing. Leave "
            "out one of the two."
        )
    if known < 2:
        raise InputError(
            f"--count-by {by} asks labelled images; found {counted(known, 'known class', 'known classes')}, needed are "
            "2 or more. Give labelled images (--known) or a model that has learnt from them (--model), leave "
            "--count-by out, or say how many classes there are (--classes)."
        )
    if by == DTC and mixed:
        raise InputError(
            "--count-by dtc takes every class among the unlabelled images to be new. Say that no known one is there "
            "(--no-mixed), or count by agreement or gcd."
        )


@torch.no_grad()
def how_many(
    model: Model,
    unlabelled: Collection,
    labelled: Collection | None,
    seed: int,
    by: str = AGREEMENT,
    progress: Progress = silent,
) -> Count:
    """Count the classes of known and unlabelled images together.

    In two stages points drawn about the known classes' means, as wide as their spread, stand for their images. Where
    known classes were hidden and counted before, what was seen then corrects the estimate. One new class at least is
    counted, also where a published way finds none.
    """
    if labelled is None and not model.recognisable and len(unlabelled) < FEWEST:
        raise InputError(
            f"Found {len(unlabelled)} images, and no known class beside them; counting classes needs at least {FEWEST} "
            "images. Give more, or say how many classes there are (--classes)."
        )
    model, metric = encoder_of(model).aim_for_counting(model, unlabelled, labelled, seed)

    def seen(latents: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        return F.normalize(latents @ metric, dim=1)

    points, labels = known_points(model, labelled, seed)
    new, known = seen(embed(model, unlabelled)), seen(points)

    def tell(done: int, of: int) -> None:
        progress("count", of, {"epoch": float(done)})

    if by == AGREEMENT:
        errors = () if model.rehearsal is None else model.rehearsal.counting
        return count(new, known, labels, most=MOST, seed=seed, errors=errors, progress=tell)
    estimate = estimate_gcd if by == GCD else estimate_dtc
    found = estimate(known, labels, new, most=MOST, seed=seed, progress=tell)
    one = max(found.classes, found.known + 1)
    return found._replace(classes=one, least=one, most=one)


def known_points(
    model: Model, labelled: Collection | None, seed: int
) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Latents of the known classes with their labels: of their images, or what stands for these where they are not at
    hand.
    """
    if labelled is not None:
        return embed(model, labelled), labelled.listing.labels
    if model.known is None or not model.recognisable:
        return torch.zeros(0, model.backbone.dim), torch.zeros(0, dtype=torch.long)
    return encoder_of(model).sample_known(model, model.known.counts.clamp(max=STAND), seed)


def explain(count: Count) -> str:
    """The estimate in a sentence, with its reason."""
    found, tried = count.classes, [tried.classes for tried in count.curve]
    clusters = f"{found} clusters" + (" in all" if count.known else "")
    reason = {
        "pairs": f"with {clusters}, as many pairs of labelled images share a cluster as a class",
        "silhouette": f"{clusters} lie farthest apart",
        "accuracy": f"with {clusters}, labelled images find their classes again best",
        "dtc": "half way between two other estimates, without clusters of a few images",
        "rehearsed": "three ways of counting, each weighed and corrected by how it erred on known classes that were "
        "hidden",
    }[count.criterion]
    if count.criterion == "accuracy" and count.estimates["accuracy"] < found:
        reason = "labelled images find their classes again best with no new class, and one is looked for at least"
    elif count.criterion == "pairs" and min(one.pairs for one in count.curve) > 0:
        reason = f"even with {tried[-1]} clusters, the most that were tried, labelled classes share some"
    elif count.criterion == "pairs" and count.curve[0].pairs <= 0:
        reason = f"even {tried[0]} clusters, the fewest that were tried, cut labelled classes in pieces"
    others = [f"by {name} {n - count.known}" for name, n in count.estimates.items() if name != count.criterion]
    beside = f"; {' and '.join(others)}" if others else ""
    if count.least == count.most:  # the published ways know no interval
        return f"{count.novel} new, estimated: {reason}{beside}"
    bounds = f"{count.least - count.known} to {count.most - count.known}"
    if count.known:
        bounds += f"; {count.least} to {count.most} with the {count.known} known"
    return f"{count.novel} new, estimated ({bounds}): {reason}{beside}"
