"""plan: every refusal, before any work."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from newfound import methods
from newfound.data.collection import Collection
from newfound.data.leaks import check_apart
from newfound.data.listing import Listing, label_by_folder, list_images, read_truth
from newfound.data.pixels import Images
from newfound.discovery.howmany import check_counting
from newfound.discovery.settings import YES, Run, StageOne, check_device
from newfound.encoders import Encoder, choose_encoder
from newfound.encoders.choose import explain_backbone
from newfound.errors import InputError, counted, shorten
from newfound.networks.backbone import Backbone
from newfound.networks.model import Model, kind_of

Source = str | Path | Images
Place = TypeVar("Place")


@dataclass(frozen=True, eq=False)
class PretrainPlan:
    """What stage one will do: learn known classes from labelled images."""

    labelled: Listing | Images
    encoder: Encoder
    stage: StageOne
    similarity: bool
    seed: int
    device: str
    settings: dict[str, Any]  # what `config.toml` will hold
    why: str = ""  # the backbone, and why it was chosen


@dataclass(frozen=True, eq=False)
class Plan:
    """What a discovery will do. All that a person could have got wrong was looked at."""

    place: Source  # of the unlabelled images, as it was given
    unlabelled: Listing | Images
    labelled: Listing | Images | None  # None: two-stage
    model: Model | None  # None: stage one comes first, if anything is known
    encoder: Encoder
    run: Run  # with its method
    asked: Run  # as it was asked for
    stage: StageOne
    classes: int | None  # None: they are counted
    truth: bool  # whether it is to be read, for the metrics alone
    settings: dict[str, Any]  # what `config.toml` will hold
    why: str = ""  # the backbone, and why it was chosen

    def read_truth(self, images: Collection) -> tuple[str, ...] | None:
        """The true class of every image, where it is wanted."""
        return truth_of(self.place, images.listing) if self.truth else None


def plan_pretrain(known: Source, stage: StageOne, *, similarity: bool, seed: int, device: str) -> PretrainPlan:
    """Look at all that stage one is asked for."""
    known = expand_home(known)
    check_device(device)
    labelled = list_source(known, labelled=True)
    check_labelled(labelled.listing)
    encoder = choose_encoder(stage, None, [labelled], labelled=True, device=device)
    if similarity:
        encoder.check_similarity()
    settings = {"known": path_of(known), "similarity": similarity, "seed": seed, "device": device} | asdict(stage)
    why = tell_backbone(encoder, stage, None, [labelled], labelled=True)
    return PretrainPlan(labelled, encoder, stage, similarity, seed, device, settings, why)


def plan_discovery(
    unlabelled: Source,
    known: Source | None,
    model: str | Path | Model | None,
    *,
    classes: int | None,
    run: Run,
    stage: StageOne,
    truth: bool,
) -> Plan:
    """Look at all that a discovery is asked for."""
    unlabelled, known, model = expand_home(unlabelled), expand_home(known), expand_home(model)
    check_folders(known, unlabelled)
    start = model if isinstance(model, Model | None) else Model.from_pretrained(model)
    new = list_source(unlabelled, labelled=False)
    labelled = None if known is None else list_source(known, labelled=True)
    sources = [new, *(() if labelled is None else (labelled,))]
    encoder = choose_encoder(stage, start, sources, labelled=labelled is not None, device=run.device)
    asked, run = run, run.suited(encoder.default_method)
    if labelled is not None:
        check_labelled(labelled.listing)
    if start is not None:
        check_model(start, labelled, stage)
    check_rehearsal(stage, start, known=labelled is not None)
    similarity = start is not None and start.similarity is not None
    check_method(run.method, encoder, labelled=labelled is not None, similarity=similarity)
    askable = labelled.listing.classes if labelled is not None else () if start is None else start.recognisable
    check_counting(run.count_by, classes, len(askable), mixed=run.mixed)
    if classes is not None:
        check_number(classes, len(new))
    if truth:
        truth_of(unlabelled, new.listing)
    settings = {"unlabelled": path_of(unlabelled), "known": path_of(known), "model": path_of(model)}
    settings |= {"classes": classes, "truth": truth} | asdict(asked) | asdict(stage)
    why = tell_backbone(encoder, stage, start, sources, labelled=labelled is not None)
    return Plan(unlabelled, new, labelled, start, encoder, run, asked, stage, classes, truth, settings, why)


def tell_backbone(
    encoder: Encoder, stage: StageOne, model: Model | None, sources: Sequence[Listing | Images], *, labelled: bool
) -> str:
    """The backbone, and why it was chosen, for the log, the settings and the report."""
    return f"{encoder.name}, since {explain_backbone(encoder.name, stage, model, sources, labelled=labelled)}"


def list_source(place: Source, *, labelled: bool) -> Listing | Images:
    """The images at a place; those in memory are listed already."""
    return list_images(place, labelled=labelled) if isinstance(place, str | Path) else place


def truth_of(place: Source, listing: Listing) -> tuple[str, ...]:
    """The real classes of unlabelled images, for the metrics alone."""
    if isinstance(place, str | Path):
        labels, names = read_truth(place, listing.names, listing.boxes)
    else:
        labels, names = label_by_folder(listing.names)
    return tuple(names[label] for label in labels.tolist())


def expand_home(place: Place) -> Place | Path:
    """A place with ~ in it as the shell would have written it; what is no place stays."""
    return Path(place).expanduser() if isinstance(place, str | Path) else place


def path_of(source: Any) -> str | None:
    """A folder as it is written into `config.toml`; images and models in memory have none."""
    return os.path.abspath(source) if isinstance(source, str | Path) else None  # noqa: PTH100 (keeps symlinks)


def check_folders(known: Source | None, unlabelled: Source) -> None:
    """Refuse two folders that share an image. What a list names, or one image, is compared once it is read."""
    folders = [Path(place) for place in (known, unlabelled) if isinstance(place, str | Path)]
    if len(folders) == 2 and not any(map(os.path.isfile, folders)):
        check_apart(*folders)


def check_output(model: str | Path | Model | None, output: str | Path | None) -> None:
    """Refuse to write over the model that is given, or over the folder that holds it."""
    if isinstance(model, str | Path):
        given = Path(model).expanduser().absolute()
        check_not_over(output, (given, given.parent), "holds the model that is given")


def check_backbone(model: Model | None, output: str | Path | None) -> None:
    """Refuse a backbone of somebody's own that could not be kept, or read with, before anything is trained."""
    if model is None:
        return
    if output is not None:
        kind_of(model.backbone)
    if model.known is not None and model.pretrained is None and type(model.backbone).turn is Backbone.turn:
        model.backbone.turn(torch.eye(model.backbone.dim))  # which refuses, and says what is needed


def check_not_over(output: str | Path | None, read: Iterable[Path], what: str) -> None:
    """Refuse to write over what is read: an interruption would leave nothing of it."""
    if output is not None and Path(output).expanduser().resolve() in {place.resolve() for place in read}:
        raise InputError(f"{output} {what}. Needed: another place, so that it stays. Give -o.")


def check_model(model: Model, labelled: Listing | Images | None, stage: StageOne) -> None:
    """Refuse a model beside images of other classes, or beside settings that would change nothing of it."""
    if labelled is not None and model.classes != (classes := labelled.listing.classes):
        raise InputError(
            f"The model knows {_few(model.classes)}; the labelled images are of {_few(classes)}. "
            "Give the labelled images that the model learnt from, or leave one of the two out."
        )
    if given := asdict(stage).items() - asdict(replace(StageOne(), rehearse=stage.rehearse)).items():
        flags = ", ".join(sorted(f"--{name.replace('_', '-')}" for name, _ in given))
        raise InputError(f"The model is taught already, so {flags} would change nothing. Leave it out, or the model.")


def check_rehearsal(stage: StageOne, model: Model | None, *, known: bool) -> None:
    """Refuse to rehearse where nothing can be hidden."""
    if stage.rehearse != YES:
        return
    if model is not None and model.rehearsal is None:
        raise InputError(
            "--rehearse yes, but the model has no rehearsal: it was made with --rehearse no, or by an older newfound. "
            "Make it anew with `newfound pretrain`, or leave --rehearse out."
        )
    if model is None and not known:
        raise InputError(
            "--rehearse yes hides known classes, and none are known. Give labelled images (--known), or leave it out."
        )


def check_labelled(listing: Listing) -> None:
    """Refuse labelled images that nothing can be learnt from: of a single class, with names or labels amiss."""
    classes = listing.classes
    if len(classes) < 2:
        found = counted(len(classes), "known class", "known classes")
        raise InputError(f"Found {found}; learning needs at least 2 (one folder each).")
    if twice := sorted({name for name in classes if classes.count(name) > 1}):
        raise InputError(f"Several known classes are called {shorten(map(repr, twice))}. Give each a name of its own.")
    if unlabelled := int((listing.labels < 0).sum()):
        raise InputError(
            f"{unlabelled} of {len(listing)} labelled images have the label -1. Needed: a class each. Leave them out, "
            "or put them among the unlabelled images."
        )
    there = set(listing.labels.tolist())
    if empty := [name for label, name in enumerate(classes) if label not in there]:
        raise InputError(f"Known classes without an image: {shorten(map(repr, empty))}. Add one, or leave them out.")


def check_number(classes: int, images: int) -> None:
    """Refuse a number of new classes that so many images cannot have."""
    if not 1 <= classes <= images:
        raise InputError(
            f"Asked for {counted(classes, 'class', 'classes')} in {counted(images, 'image')}; ask for at least 1 and "
            "at most one per image."
        )


def check_method(name: str, encoder: Encoder, *, labelled: bool, similarity: bool) -> None:
    """Refuse a method that cannot work: by whether labelled images take part, by what the encoder says of an image, and
    by whether a network says which images share a class.
    """
    recipe = methods.parse(name)
    if recipe.apart:
        raise InputError(
            f"{name} finds classes with a copy of the backbone and leaves the model as it was; a run has one model, "
            f"which must be the one that found its classes. Take {name.partition(':')[0]}; `newfound benchmark "
            f"continual` measures {name}."
        )
    if not labelled and not recipe.suits(labelled=False):
        raise InputError(
            f"{name} needs labelled images while it discovers; give them too (--known), "
            f"or take a method that does not: {methods.suitable(labelled=False, apart=False)}."
        )
    if labelled and not recipe.suits(labelled=True):
        raise InputError(
            f"{name} discovers in two stages, without the labelled images. Learn from them first with "
            "`newfound pretrain`, then give that model (--model) instead of them (--known)."
        )
    encoder.check_method(name)
    if not similarity and "similarity" in recipe.stage_one:
        raise InputError(f"{name} {methods.similarity.NEEDED}")


def _few(names: tuple[str, ...]) -> str:
    return f"{len(names)} classes ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
