"""The commands. Nothing heavy is imported before one of them runs.

Long, for each stands here with its help, and little else.
"""

import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
from cyclopts.config import Toml

from newfound import console
from newfound.discovery.settings import Run, StageOne
from newfound.errors import InputError, counted, sized

if TYPE_CHECKING:
    from newfound.discovery.result import Discovery

app = App(
    name="newfound",
    help="Finds the new categories among unlabelled images.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
app.meta.group_parameters = "Common"
app.meta.suppress_keyboard_interrupt = False

LONGEST = 1 << 20
"""Bytes of a settings file, at most."""

Folder = Annotated[Path, Parameter(name=["--output", "-o"])]
Many = Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False, negative=())]
Flag = Annotated[bool, Parameter(show_default=False, negative=())]
Settings = Annotated[Run, Parameter(name="*")]
First = Annotated[StageOne, Parameter(name="*", group="Stage one, when no model is given")]


@app.command
def demo(
    *,
    everything: Annotated[bool, Parameter(name="--all", show_default=False, negative=())] = False,
    seeds: int = 1,
    output: Folder = Path("runs/demo"),
) -> None:
    """Find ten kinds of drawings among a thousand that nobody labelled: real images, two minutes on two cores.

    Example: newfound demo

    Args:
        everything: add the controls: spacing:unanchored, uno, uno+spacing, and pairs, alone and with Spacing's presets
            aligned, paper, author and dcn.
        seeds: repeat with that many seeds, and write results/demo.json.
        output: where everything goes.
    """
    import pandas as pd

    from newfound.demo import comparison, demonstrate, write_results

    with console.show_progress() as progress:
        rows = demonstrate(output, everything=everything, seeds=seeds, command=_command(), progress=progress)
    if seeds > 1:
        command = f"newfound demo{' --all' * everything} --seeds {seeds}"  # where the run went does not matter
        write_results(rows, Path("results/demo.json"), command)
    columns = ["1000 drawings of 10 unknown kinds", "accuracy", "NMI"]
    console.table(
        pd.DataFrame(comparison(rows.to_dict("records")), columns=columns), f"mean of {counted(seeds, 'seed')}"
    )
    console.say(f"Report: {output / 'report.html'}")


@app.command
def pretrain(
    *,
    known: Path,
    output: Folder,
    stage: Annotated[StageOne, Parameter(name="*")] = StageOne(),
    similarity: Flag = False,
    seed: int = 0,
    device: str = "auto",
    overwrite: Flag = False,
    resume: Flag = False,
) -> None:
    """Stage one: learn from labelled images; leaves a model folder without any image in it.

    Example: newfound pretrain --known photos/known -o model/

    Args:
        known: folder of labelled images, one folder per class; or a list of them (CSV, COCO).
        output: the model folder to write.
        similarity: learn too which images share a class, which kcl and mcl must be told.
        seed: same seed, machine and threads: same weights, to the byte.
        device: auto (accelerator, if any) or cpu.
        overwrite: replace a model that is already there.
        resume: go on where an interrupted run stopped.
    """
    from newfound.discovery.discover import pretrain as run

    with console.show_progress() as progress:
        run(
            known,
            output=output,
            stage=stage,
            similarity=similarity,
            seed=seed,
            device=device,
            overwrite=overwrite,
            resume=resume,
            progress=progress,
        )
    console.say(f"The model is in {output}. Next: newfound discover --model {output} --unlabelled DIR -o run/")


@app.command
def discover(
    *,
    unlabelled: Path | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    again: Annotated[Path | None, Parameter(name="--continue")] = None,
    images: Annotated[Path | None, Parameter(show=False)] = None,
    edits: Annotated[int | None, Parameter(show=False)] = None,
    classes: Annotated[Literal["auto"] | int, Parameter(show_choices=False)] = "auto",
    known: Path | None = None,
    model: Path | None = None,
    run: Settings = Run(),
    stage: First = StageOne(),
    truth: Flag = False,
    overwrite: Flag = False,
    resume: Flag = False,
) -> None:
    """Find the classes among unlabelled images, or go on from a reviewed run.

    newfound discover --known photos/known --unlabelled photos/new -o run/
    newfound discover --model model/ --unlabelled photos/new --classes 5 -o run/

    Args:
        unlabelled: folder of images, or a list (CSV, COCO).
        output: the run folder to write.
        again: a reviewed run to learn from, instead.
        images: where that run's images are now, if they have moved.
        edits: how many of its edits count; default: all.
        classes: new classes; auto: estimated.
        known: labelled images, one folder per class; or a list.
        model: what newfound pretrain wrote, instead of --known.
        truth: folders are true classes, for the metrics alone.
        overwrite: replace a run that is already there.
        resume: go on where an interrupted run stopped.
    """
    number = None if classes == "auto" else classes
    if again is None:
        if lone := [f"--{name}" for name, value in (("images", images), ("edits", edits)) if value is not None]:
            raise InputError(
                f"{' and '.join(lone)} would change nothing without a reviewed run to go on from. Say which "
                "(--continue), or leave that out; images to search are --unlabelled."
            )
        _discover(unlabelled, output, number, known, model, run, stage, truth=truth, overwrite=overwrite, resume=resume)
        return
    given: dict[str, object] = {"unlabelled": unlabelled, "model": model, "classes": number, "truth": truth or None}
    given |= _changed(run, Run(device=run.device)) | _changed(stage, StageOne())
    _rediscover(again, output, known, images, edits, run.device, given, overwrite=overwrite, resume=resume)


def _discover(
    unlabelled: Path | None,
    output: Path | None,
    classes: int | None,
    known: Path | None,
    model: Path | None,
    run: Run,
    stage: StageOne,
    *,
    truth: bool,
    overwrite: bool,
    resume: bool,
) -> None:
    """Begin a discovery."""
    from newfound.discovery.discover import discover as start

    if unlabelled is None or output is None:
        missing = "--unlabelled" if unlabelled is None else "--output"
        raise InputError(
            f"{missing} requires an argument. Needed: images to search, and a folder for what is found (-o). "
            "See newfound discover --help."
        )
    with console.show_progress() as progress:
        found = start(
            unlabelled=unlabelled,
            classes=classes,
            known=known,
            model=model,
            output=output,
            run=run,
            stage=stage,
            truth=truth,
            overwrite=overwrite,
            resume=resume,
            progress=progress,
            command=_command(),
        )
    _tell(found)
    console.say(f"Report: {output / 'report.html'}")


def _changed(settings: Run | StageOne, default: Run | StageOne) -> dict[str, object]:
    """The settings that are not as by default."""
    return {name: value for name, value in vars(settings).items() if value != vars(default)[name]}


def _rediscover(
    run: Path,
    output: Path | None,
    known: Path | None,
    images: Path | None,
    edits: int | None,
    device: str,
    given: Mapping[str, object],
    *,
    overwrite: bool,
    resume: bool,
) -> None:
    """Go on from a reviewed run. What that run has settled is refused, where it is `given`."""
    from newfound.discovery.changes import tabulate_changes
    from newfound.discovery.rediscover import next_place, rediscover
    from newfound.discovery.result import Discovery

    if more := sorted(f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None):
        raise InputError(
            f"--continue goes on as the run was made, so {', '.join(more)} would change nothing. Leave it out."
        )
    if output is None and (overwrite or resume):
        raise InputError("--overwrite and --resume are of a folder. Say which (-o).")
    output = next_place(run) if output is None else output
    with console.show_progress() as progress:
        found = rediscover(
            run,
            output=output,
            known=known,
            images=images,
            device=None if device == "auto" else device,
            edits=edits,
            overwrite=overwrite,
            resume=resume,
            progress=progress,
            command=_command(),
        )
    _tell(found)
    before = Discovery.load(run)
    before = Discovery(before.found, before.edits[:edits])
    changes = tabulate_changes(before.classes, found.classes)  # the log has it as a sentence
    console.table(changes, "What changed" if len(changes) else "Nothing changed")
    console.say(f"Report: {output / 'report.html'}. Go on: newfound review {output}")


def _tell(found: "Discovery") -> None:
    """What was found, in a screen."""
    from newfound.discovery.summary import explain_gaps

    summary = found.summary()
    narrow = summary.drop(columns=["share", "newness", "reviewed"])  # they are in classes.csv
    title = f"{counted(len(summary), 'class', 'classes')} in {counted(len(found.found), 'image')}"
    console.table(narrow, title, names=("class", "nearest", "exemplar"), spare=("exemplar", "nearest", "coherence"))
    for line in explain_gaps(found.classes):
        console.say(line)
    if "classes" in found.facts:
        console.say(f"Classes: {found.facts['classes']}.")
    if found.scores:
        console.say("Against the truth: " + ", ".join(f"{name} {value:.3f}" for name, value in found.scores.items()))


@app.command
def learn(
    run: Path, *, output: Folder, images: Path | None = None, merge: Flag = False, overwrite: Flag = False
) -> None:
    """Fold the classes that were discovered into the model; leaves a model folder without any image in it.

    newfound learn run/ -o model2/
    newfound discover --model model2/ --unlabelled photos/next -o next/

    Known classes stay as they are, and their images are not needed. Of new ones, images that are sure, or that a
    person has accepted, are learnt; classes that nobody has looked at only where they hold together. Stopped or killed,
    it leaves what was there; the same command begins again, which takes seconds.

    Args:
        run: run folder that newfound discover wrote, reviewed or not.
        output: the model folder to write.
        images: where the images are now, if they have moved.
        merge: a new class that has a known one's name is that one.
        overwrite: replace a model that is already there, once the new one is whole.
    """
    from newfound.discovery.result import Discovery

    with console.show_progress():
        model = Discovery.load(run).learn(images=images, merge=merge, output=output, overwrite=overwrite).model
    known = counted(len(model.classes), "class", "classes")
    console.say(f"The model of {known} is in {output}. Next: newfound predict {output} DIR")


@app.command
def predict(run: Path, images: Path, *, output: Folder = Path("predictions.csv"), overwrite: Flag = False) -> None:
    """Say which class, known or discovered, new images belong to; writes path, class, kind, confidence and more.

    newfound predict run/ photos/more -o more.csv
    newfound predict model2/ photos/more -o more.csv

    Args:
        run: run folder that newfound discover wrote, or a model folder.
        images: folder of new images, a list of them (CSV, COCO), or one image.
        output: the CSV file to write.
        overwrite: replace a file that is already there.
    """
    from newfound import files
    from newfound.discovery.classifier import open_folder
    from newfound.discovery.tables import format_csv

    if output.is_dir():
        raise InputError(f"{output} is a folder; the classes are written to a CSV file. Give its name with -o.")
    if output.exists() and not overwrite:
        raise InputError(f"{output} exists. Give another place with -o, or replace it with --overwrite.")
    files.check_writable(output.parent)
    found, count, left = open_folder(run), 0, list[str]()
    with files.writing(output) as file:
        for number, (table, skipped) in enumerate(found.predictions(images)):
            file.write(format_csv(table, header=number == 0).encode())
            count, left = count + len(table), [*left, *skipped]
    console.say(f"The {'class' if count == 1 else 'classes'} of {counted(count, 'image')}: {output}")
    for name in left:
        console.say(f"left out: {name}")


@app.command
def watch(
    model: Path, folder: Path, *, output: Folder, once: Flag = False, every: float = 10.0, settle: float = 2.0
) -> None:
    """Tell the class of images as they arrive in a folder, and propose new classes among those that fit none.

    newfound watch model/ camera/ -o state/
    newfound watch model/ camera/ -o state/ --once

    Each image becomes a line of images.csv. A new class is proposed as a run folder, proposal-1, for newfound review
    and newfound learn; the model learns nothing by itself. Stopped or killed, the same command goes on.

    Args:
        model: model folder that newfound pretrain or newfound learn wrote.
        folder: where images arrive.
        output: the folder for the tables and proposals.
        once: look once, then stop: for cron.
        every: seconds between two looks.
        settle: seconds that a file must stay as it is to be taken for whole.
    """
    from newfound.discovery.watch import watch as run

    with console.show_progress() as progress:
        state = run(model, folder, output, once=once, every=every, settle=settle, progress=progress)
    console.say(f"{counted(len(state.told), 'image')} told: {output / 'images.csv'}")


@app.command
def report(run: Path) -> None:
    """Write the report of a run anew: one HTML file that needs nothing else.

    Example: newfound report run/

    Args:
        run: run folder that newfound discover wrote.
    """
    from newfound.discovery.pages import write_report
    from newfound.discovery.result import Discovery

    write_report(Discovery.load(run).classes, run / "report.html")
    console.say(f"Report: {run / 'report.html'}")


@app.command
def review(
    run: Path,
    *,
    by: Annotated[str, Parameter(name="--as", show_default=False)] = "",
    images: Path | None = None,
    port: Annotated[int, Parameter(show_default=False)] = 0,
    no_open: Flag = False,
) -> None:
    """Open a page in the browser to look at classes, name, merge and split them, and move images. Nothing leaves this
    machine; what you say is written down at once, and can be undone.

    Example: newfound review run/ --as Ana

    Args:
        run: run folder that newfound discover wrote.
        by: your name, which will stand beside what you decide.
        images: where the images are now, if they have moved.
        port: the port to serve at; default: one that is free.
        no_open: only print the address.
    """
    from newfound.review.serve import review as serve

    serve(run, by=by, images=images, port=port, open_browser=not no_open)


@app.command
def export(
    run: Path,
    *,
    to: str,
    output: Folder,
    images: Path | None = None,
    link: Flag = False,
    preview: Flag = False,
) -> None:
    """Write a run's classes for other tools: who identified what, with confidence. Nothing is overwritten.

    newfound export run/ --to csv -o classes.csv
    newfound export run/ --to folders -o sorted/ --link

    Args:
        run: run folder that newfound discover wrote.
        to: csv, parquet, folders (a folder per class, with its images in it), coco, fathomnet or darwin-core.
        output: the file or folder to write.
        images: where the images are now, if they have moved.
        link: make links instead of copies (folders).
        preview: only say what would be in which folder (folders).
    """
    import pandas as pd

    from newfound.discovery.export import plan_folders
    from newfound.discovery.result import Discovery

    if preview and to != "folders":
        raise InputError(f"--preview is of folders, and {to} is one file. Leave it out, or export to folders.")
    discovery = Discovery.load(run)
    if preview:
        rows = [(len(members), name) for name, members in plan_folders(discovery.classes).items()]
        shown = pd.DataFrame(rows, columns=["images", "folder"])
        console.table(shown, f"What would be written to {output}", names=("folder",))
        return
    console.say(f"Written: {discovery.export(to, output, images=images, link=link)}")


@app.command
def benchmark(
    stages: str,
    *,
    dataset: str | None = None,
    split: str | None = None,
    methods: Many = (),
    parts: Many = (),
    seeds: Annotated[tuple[int, ...], Parameter(consume_multiple=True, show_default=False, negative=())] = (),
    budget: str | None = None,
    data: Annotated[Path | None, Parameter(env_var="NEWFOUND_DATA")] = None,
    output: Folder = Path("results"),
    keep: Path | None = None,
    backbone: str | None = None,
) -> None:
    """Make the rows of the paper's tables, ours beside the published numbers.

    newfound benchmark two-stage --dataset cifar10
    newfound benchmark continual --dataset cifar100 --backbone efficientnet-lite0
    newfound benchmark evidence --parts doodles

    Finished rows stay: the same command again goes on. Started twice, the two share the work.

    Args:
        stages: two-stage, single-stage, or continual, where classes come in steps; evidence: whether the default wins;
            review: actions that a simulated reviewer needs; continue: what its answers teach.
        dataset: cifar10 or cifar100.
        split: known and novel classes: 5-5; 80-20 (default), 50-50, 20-80, 80-10; 5-5@11: in another order. Continual:
            5+5; 50-10x5 (default), 80-10-10.
        methods: the rows to make; default: the paper's, then controls.
        parts: of the evidence, or piles to review (cifar10, clip-art); default: all.
        seeds: one row each; default: 0 1 2, or those of the evidence.
        budget: smoke (minutes), cpu (default: hours on two cores), hours (for one row) or paper (published, for a GPU).
        data: folder with CIFAR's Python files.
        output: folder of results/*.json.
        keep: folder for each row's latents, which newfound figure draws.
        backbone: pretrained network that continual rows begin with; default: our own, taught the first classes.
    """
    from newfound.benchmark.kinds import check_flags

    asked: dict[str, object] = {"dataset": dataset, "split": split, "methods": methods, "parts": parts}
    asked |= {"budget": budget, "keep": keep, "backbone": backbone}
    check_flags(stages, [name for name, value in asked.items() if value not in (None, ())])
    others = {"evidence": _evidence, "review": _review, "continue": _continue}
    if stages in others:
        return others[stages](data, output, parts, seeds)
    words, seeds = (dataset, split, "cpu" if budget is None else budget), seeds or (0, 1, 2)
    if stages == "continual":
        return _continual((*words, backbone), data, output, methods, seeds)
    return _table((stages, *words), data, output, methods, seeds, keep)


def _table(
    words: tuple[str, str | None, str | None, str],
    data: Path | None,
    output: Path,
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    keep: Path | None,
) -> None:
    """The rows of one of the paper's tables."""
    from newfound.benchmark.run import benchmark as run
    from newfound.benchmark.run import locate_data, table

    which = table(*words)
    place = locate_data(which.dataset, data)
    with console.show_progress() as progress:
        path = run(which, place, output, only=methods, seeds=seeds, keep=keep, progress=progress)
    _tell_rows(path, which.name)


def _tell_rows(path: Path, name: str) -> None:
    """The rows of a table that are finished."""
    from newfound.benchmark.summary import summary

    if not path.is_file():
        console.say("No row is finished: another process is at them.")
        return
    console.table(summary(path), f"{name}: mean over seeds, unlabelled training images")
    console.say(f"Results: {path}")


def _continual(
    words: tuple[str | None, str | None, str, str | None],
    data: Path | None,
    output: Path,
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
) -> None:
    """The rows of a sequence."""
    from newfound.benchmark.continual import benchmark
    from newfound.benchmark.continual_tables import summary
    from newfound.benchmark.results import read
    from newfound.benchmark.run import locate_data
    from newfound.benchmark.sequences import sequence

    which = sequence(*words)
    place = locate_data(which.dataset, data)
    with console.show_progress() as progress:
        path = benchmark(which, place, output, only=methods, seeds=seeds, progress=progress)
    if not path.is_file():
        console.say("No row is finished: another process is at them.")
        return
    console.table(summary(read(path)), f"{which.name}: per cent of test images after the last step, mean over seeds")
    console.say(f"Results: {path}")


def _evidence(data: Path | None, output: Path, parts: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """The rows of the evidence, and the tables of its small sets."""
    from newfound.benchmark.evidence import evidence, table
    from newfound.benchmark.results import read

    with console.show_progress() as progress:
        paths = evidence(data, output, only=parts, seeds=seeds, progress=progress)
    for path in paths:
        if path.name.startswith("evidence-") and (results := read(path))["rows"]:
            console.table(table(results), f"{results['setting']['set']}: mean over seeds, by unit k-means")
        console.say(f"Results: {path}")


def _review(data: Path | None, output: Path, parts: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """What the simulated reviewer needs, pile by pile."""
    from newfound.benchmark.results import read
    from newfound.benchmark.reviewing import ABOUT, review, table

    with console.show_progress() as progress:
        paths = review(data, output, only=parts, seeds=seeds, progress=progress)
    for path in paths:
        console.table(table(read(path)), f"{ABOUT[path.stem.removeprefix('review-')]}. Actions per 1000 images to 95 %")
        console.say(f"Results: {path}")


def _continue(data: Path | None, output: Path, parts: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """What the simulated reviewer's answers are worth to images that nobody touched."""
    from newfound.benchmark.continuing import continue_reviews, table
    from newfound.benchmark.results import read

    with console.show_progress() as progress:
        path = continue_reviews(data, output, only=parts, seeds=seeds, progress=progress)
    console.table(table(read(path)), "Accuracy on images that nobody touched, before and after the run learns, in %")
    console.say(f"Results: {path}")


@app.command
def data(dataset: str, *, output: Folder = Path("data")) -> None:
    """Get CIFAR, where there is a network.

    Example: newfound data cifar10 -o data/

    Args:
        dataset: cifar10 or cifar100.
        output: folder to put its files into; then set NEWFOUND_DATA to it.
    """
    from newfound.data.datasets import fetch_dataset

    place = fetch_dataset(dataset, output)
    console.say(f"{dataset} is in {place}. Next: newfound benchmark two-stage --dataset {dataset} --data {output}")


@app.command
def methods() -> None:
    """List every method: its paper, whether it discovers in one stage or two, and what it needs.

    Example: newfound methods
    """
    from newfound.benchmark.summary import listing

    console.table(listing().drop(columns="before"), "Methods; add one to another with +, as in ncl+spacing")


@app.command
def backbones() -> None:
    """List the backbones that can be used here and now.

    Example: newfound backbones
    """
    import pandas as pd

    from newfound.networks.pretrained import list_usable
    from newfound.networks.resnet import OWN

    rows = [(OWN, "learns from your labelled images", 32), *list_usable()]
    console.table(
        pd.DataFrame(rows, columns=["backbone", "weights", "pixels"]), "Backbones whose weights are on this machine"
    )
    console.say(
        "Any pretrained network of timm's works too: by its name where there is a network, or with --weights FILE."
    )


@app.command
def doctor() -> None:
    """Say what this machine has: versions, backbones, cores, memory, folders. Look here first when something fails.

    Example: newfound doctor
    """
    import pandas as pd

    from newfound.discovery.doctor import examine

    rows = [("ok" if finding.fine else "amiss", finding.what, finding.found) for finding in examine(Path.cwd())]
    console.table(pd.DataFrame(rows, columns=["", "what", "found"]), "This machine")


@app.command
def cache(*, clear: Flag = False) -> None:
    """Say where features and stages that need not be computed twice are kept, and how large they are.

    newfound cache
    newfound cache --clear

    Args:
        clear: throw them away; what is needed again is computed again. Runs and models are elsewhere.
    """
    from newfound import cache as kept

    if clear:
        console.say(f"{sized(kept.clear())} thrown away: {kept.root()}")
    else:
        console.say(f"{sized(kept.measure())} in {kept.root()}. newfound cache --clear empties it.")


@app.command
def figure(kind: Literal["tsne", "spacing"], run: Path, *others: Path, output: Folder = Path("figure")) -> None:
    """Draw the paper's figures from a saved run, as PNG and SVG.

    newfound figure tsne run/ -o novel          latents of novel classes, before and after
    newfound figure spacing run/ -o moved       latents, prototypes and anchors, before and after

    Args:
        kind: tsne or spacing.
        run: folder that newfound discover wrote, or newfound benchmark --keep.
        others: more runs on the same images, one panel each (tsne).
        output: where to write, without the ending.
    """
    from newfound.discovery.figures import draw

    console.say(" and ".join(str(path) for path in draw(kind, [run, *others], output)))


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
) -> None:
    """Read settings from a file first, if one is named.

    Args:
        config: settings, such as a run's config.toml; flags win.
    """
    if config is not None:
        try:
            with config.open("rb") as file:
                content = file.read(LONGEST + 1)  # some files never end
            if len(content) > LONGEST:
                raise ValueError(f"it has more than {sized(LONGEST)}")
            tomllib.loads(content.decode())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                f"The settings file {config} cannot be read ({error}). Check the path and the file."
            ) from error
    app.config = None if config is None else [Toml(config)]
    app([_at_home(word) for word in tokens], exit_on_error=False, print_error=False, result_action="return_value")


def main() -> None:
    """Run a command. Exit code 2 with one message for what a person can mend, 130 when interrupted."""
    try:
        app.meta(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
    except KeyboardInterrupt:
        resumed = {"benchmark": "goes on", "pretrain": "goes on with --resume", "discover": "goes on with --resume"}
        resumed |= {"watch": "goes on", "learn": "begins again, which takes seconds"}
        again = next((resumed[word] for word in sys.argv[1:] if word in resumed), "begins anew")
        _fail(f"stopped. What is finished is kept; the same command {again}.", 130)
    except CycloptsError as error:
        idle = error.unused_tokens if isinstance(error, MissingArgumentError) else None
        found = f" Nothing takes: {shlex.join(idle)}." if idle else ""
        _fail(f"{error}{found} See {shlex.join(['newfound', *(error.command_chain or ())])} --help.", 2)
    except InputError as error:
        _fail(str(error), 2)
    except OSError as error:  # the disk is full, a folder was taken away
        _fail(f"a file cannot be read or written: {error}", 2)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):  # torch's word for it
            raise
        _fail(f"there is not enough memory ({error}). Take fewer images, a smaller --size or a smaller --batch.", 2)
    else:
        if parallel := sys.modules.get("newfound.parallel"):  # loaded only where training was
            parallel.leave()


def _fail(message: str, code: int) -> None:
    print(f"newfound: {console.printable(message)}", file=sys.stderr)
    sys.exit(code)


def _at_home(word: str) -> str:
    """A word of the command line with its ~ as some shells would have written it, others not: after `=`, in quotes."""
    flag, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return f"{flag}{equals}{Path(value).expanduser()}" if f"{value}/".startswith("~/") else word


def _command() -> str:
    """What was typed, as text that can be written: a path may be none."""
    return shlex.join(["newfound", *sys.argv[1:]]).encode("utf-8", "backslashreplace").decode()
