"""A run that learns from what people said of it: the real backbone, on drawings that lie in folders."""

import shutil
from dataclasses import replace

import pytest
import torch

from newfound import arrays, discover, rediscover
from newfound.cli import app
from newfound.data.datasets import load_doodles
from newfound.discovery.answers import answers
from newfound.discovery.changes import explain_changes, tabulate_changes
from newfound.discovery.found import Found
from newfound.discovery.rediscover import next_place
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.tables import ASIDE, UNSURE, answer_images
from newfound.encoders import embed
from newfound.encoders.pixels import READING_SHRINK
from newfound.errors import InputError
from newfound.functional.geometry import whitening
from newfound.functional.metrics import matching, right
from newfound.networks.resnet import OWN
from tests.commands import newfound
from tests.data.pictures import write_doodles
from tests.discovery.made import counted_made, make_found

STAGE = StageOne(backbone="efficientnet-lite0", size=112, rehearse="no")
RUN = Run(method="kmeans", read_by="k-means", device="cpu")
EACH, FEW = 10, 6
KINDS = load_doodles("spare").listing.classes[3:6]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Drawings of three known kinds and of three others, a cache of their own, and a run that was told of one new kind
    where there are three.
    """
    root = tmp_path_factory.mktemp("files")
    write_doodles(root / "known", range(3), each=EACH, scale=4)
    write_doodles(root / "new", range(3, 6), each=EACH, scale=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        discover(
            known=root / "known",
            unlabelled=root / "new",
            classes=1,
            run=RUN,
            stage=STAGE,
            truth=True,
            output=root / "run",
        )
        yield root


@pytest.fixture
def run(place, tmp_path):
    """A copy of that run that a test may edit."""
    shutil.copytree(place / "run", tmp_path / "run")
    return Discovery.load(tmp_path / "run", by="Ana")


def rows_of(found, kind):
    """The images of a true kind."""
    return [row for row, name in enumerate(found.truth) if name == kind]


def score(run, *several):
    """The share of images that nobody touched which are right, once classes of a run are matched to kinds."""
    free = answers(run.found, run.edits).free
    kinds = sorted(set(run.found.truth))
    truth = torch.tensor([kinds.index(name) for name in run.found.truth])
    names = matching(truth, run.classes.assignment)
    return [right(truth, each.classes.assignment, names)[free].double().mean().item() for each in several]


def review(run):
    """What somebody says who finds one class for three kinds: a few images of each stay or make a class of their own.
    Returns the number of the last.
    """
    (only,) = [number for number in run.classes.numbers if run.classes.kind(number) == "new"]
    run.rename(only, "the first")
    run.move(rows_of(run.found, KINDS[0])[:FEW], only)
    run.new_class(rows_of(run.found, KINDS[1])[:FEW])
    return run.new_class(rows_of(run.found, KINDS[2])[:FEW], "the third")


def test_answers_raise_the_accuracy_of_images_that_nobody_touched(run):
    review(run)
    before, after = score(run, run, rediscover(run))
    assert after > before + 0.2


def test_answered_images_are_in_their_classes_and_numbers_names_and_deciders_stay(run):
    made = review(run)
    merged = run.merge([*run.found.known[:2]], force=True)
    run.set_aside([0])
    before, told = run.classes, answers(run.found, run.edits)
    after = rediscover(run).classes
    assert after.assignment[told.vouched].tolist() == before.assignment[told.vouched].tolist()
    assert after.aside.nonzero().tolist() == [[0]]
    assert after.names == {number: before.names[number] for number in told.numbers}
    assert (after.names[made], merged in after.known) == ("the third", True)
    assert after.decided == before.decided
    assert set(after.decided.values()) == {"Ana"}
    assert after.used == before.used
    assert [after.kind(number) for number in after.numbers] == [before.kind(number) for number in after.numbers]


def test_parts_of_a_split_stay_apart(run):
    number = next(n for n in run.classes.numbers if run.classes.kind(n) == "new" and len(run.classes.rows(n)) > 5)
    rows = run.classes.rows(number).tolist()
    _, made = run.split(number, [rows[::2], rows[1::2]])  # not as k-means would
    after = rediscover(run).classes
    parts = [run.classes.rows(part) for part in (number, made)]
    assert not (after.assignment[parts[0]] == made).any()
    assert not (after.assignment[parts[1]] == number).any()


def test_merged_classes_share_a_centre(run):
    review(run)
    new = [number for number in run.classes.numbers if run.classes.kind(number) == "new"]
    merged = run.merge(new)
    after = rediscover(run)
    assert list(after.found.numbers).count(merged) == 1
    assert {*new} & {*after.classes.numbers} == {merged}
    assert after.classes.used == run.classes.used == max(new) > max(after.classes.numbers)
    assert len(after.found.clusters.centres) == len(run.found.clusters.centres)


def test_a_run_goes_on_and_on(run):
    review(run)
    once = rediscover(run)
    once.by = "Bo"
    once.set_aside([5])
    twice = rediscover(once)
    assert twice.classes.aside.nonzero().tolist() == [[5]]
    assert {*twice.classes.decided.values()} == {"Ana", "Bo"}
    assert twice.classes.names == once.classes.names


def test_what_was_found_does_not_change_and_neither_does_its_folder(run, tmp_path):
    review(run)
    run.save(tmp_path / "run")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}
    centres = run.found.clusters.centres.clone()
    rediscover(tmp_path / "run", output=tmp_path / "next")
    assert {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()} == before
    assert torch.equal(run.found.clusters.centres, centres)


def test_a_folder_is_written_read_back_and_reviewed_further(run, tmp_path, caplog):
    made = review(run)
    run.save(tmp_path / "run")
    with caplog.at_level("INFO", "newfound"):
        after = rediscover(tmp_path / "run", output=tmp_path / "next")
    loaded = Discovery.load(tmp_path / "next", by="Bo")
    assert loaded.edits == after.edits
    assert loaded.classes.names == after.classes.names
    assert torch.equal(loaded.classes.assignment, after.classes.assignment)
    assert (loaded.found.run, loaded.found.used) == (after.found.run, after.found.used)
    assert loaded.new_class([1, 2]) == made + 1
    loaded.save(tmp_path / "next")
    log = (tmp_path / "next" / "log.txt").read_text()
    assert "Answers: 18 images of 3 classes vouched for" in log
    assert f"What changed: {after.facts['changed']}." in log
    assert "changed class: " in after.facts["changed"]
    assert after.facts["changed"] in (tmp_path / "next" / "report.html").read_text()


def test_labelled_images_may_take_part_again(run, place):
    review(run)
    told = answers(run.found, run.edits)
    after = rediscover(run, known=place / "known")
    assert "single-stage" in after.facts["setting"]
    assert "two-stage" in rediscover(run).facts["setting"]
    assert after.classes.assignment[told.vouched].tolist() == run.classes.assignment[told.vouched].tolist()


def test_a_method_that_trains_is_trained_with_answers_as_labels(place, run, monkeypatch):
    seen = []
    from newfound.discovery import refine

    train = refine.train_run

    def watched(learner, data, *given, **how):
        seen.append(data.labels)
        return train(learner, data, *given, **how)

    monkeypatch.setattr(refine, "train_run", watched)
    review(run)
    run.set_aside([0])
    found = replace(run.found, run=replace(RUN, method="pairs+spacing:aligned", epochs=1, batch=8))
    after = rediscover(Discovery(found, run.edits))
    told = answers(run.found, run.edits)
    assert len(seen[0]) == len(run.found) - 1
    assert torch.equal(seen[0] >= 0, told.vouched[~told.aside])
    assert len(after.found.history) == 1
    assert after.found.moments[1].rows.tolist() == list(range(1, len(run.found)))
    assert after.classes.assignment[told.vouched].tolist() == run.classes.assignment[told.vouched].tolist()


def test_our_own_network_goes_on_from_where_the_run_left_it():
    drawings = load_doodles("spare")
    known, new = (drawings.pick(torch.arange(100 * first, 100 * first + 300, 15)) for first in (0, 3))
    known = arrays(
        known.pixels[:, 0].numpy(), known.listing.labels.numpy(), drawings.listing.classes[:3], known.listing.names
    )
    new = arrays(new.pixels[:, 0].numpy(), names=new.listing.names)
    stage = StageOne(backbone=OWN, width=2, pretrain_epochs=1)
    run = Run(method="spacing", epochs=1, batch=8, device="cpu")
    first = discover(known=known, unlabelled=new, classes=3, run=run, stage=stage)
    first.accept(first.classes.numbers[-1])
    first.move([0, 1], first.classes.numbers[-2])
    with pytest.raises(InputError, match="in memory"):
        rediscover(first)
    after = rediscover(first, images=new)
    told = answers(first.found, first.edits)
    assert after.classes.assignment[told.vouched].tolist() == first.classes.assignment[told.vouched].tolist()
    moved = [
        not torch.equal(one, other)
        for one, other in zip(
            first.found.model.backbone.parameters(), after.found.model.backbone.parameters(), strict=True
        )
    ]
    assert any(moved)
    whitens = whitening(first.found.model.known.within_covariance, READING_SHRINK)
    torch.testing.assert_close(after.found.model.backbone.metric, first.found.model.backbone.metric @ whitens)
    torch.testing.assert_close(after.found.features, embed(after.found.model, new))
    with pytest.raises(InputError, match=r"The run is of 20 images.*given are 5"):
        rediscover(first, images=new.pick(torch.arange(5)))


@pytest.mark.parametrize("unsure", [0.0, 0.4])
def test_what_is_found_anew_is_made_once_and_says_what_changed_as_tables_do(run, unsure):
    review(run)
    run.set_aside([rows_of(run.found, KINDS[2])[-1]])
    run = Discovery(replace(run.found, run=replace(run.found.run, unsure=unsure)), run.edits)
    with counted_made(Found) as made:
        after = rediscover(run)
    assert made == [Found]
    table = tabulate_changes(run.classes, after.classes)
    assert after.facts["changed"] == explain_changes(table)
    assert ("unsure" in set(table["to"])) == (unsure > 0)


def test_changes_are_counted_from_class_to_class(run):
    before = run.classes
    sure = next(row for row, number in enumerate(answer_images(before).tolist()) if number not in (UNSURE, ASIDE))
    number = int(before.assignment[sure])
    to = next(other for other in before.numbers if other != number)
    run.move([sure], to)
    table = tabulate_changes(before, run.classes)
    assert table.to_numpy().tolist() == [[before.names[number], before.names[to], 1]]
    assert explain_changes(table) == f"1 image changed class: 1 from {before.names[number]} to {before.names[to]}"
    assert explain_changes(tabulate_changes(before, before)) == "no image changed class"
    assert list(tabulate_changes(before, before).columns) == ["from", "to", "images"]


def test_the_rest_of_many_changes_is_counted(run):
    import pandas as pd

    table = pd.DataFrame([("a", str(number), 9 - number) for number in range(7)], columns=["from", "to", "images"])
    assert explain_changes(table).endswith("5 from a to 4 and 7 otherwise")


def test_nothing_to_learn_from_is_refused_with_what_to_do(run):
    with pytest.raises(InputError, match=r"Nobody has said anything.*newfound review"):
        rediscover(run)
    run.rename(run.classes.numbers[0], "other")
    with pytest.raises(InputError, match="names alone"):
        rediscover(run)
    run.accept(run.classes.numbers[-1])
    run.undo()
    with pytest.raises(InputError, match="what was undone"):
        rediscover(run)
    for number in run.classes.numbers:
        run.accept(number)
    with pytest.raises(InputError, match="nothing is left to find"):
        rediscover(run)


def test_a_run_whose_images_are_gone_or_that_an_older_newfound_made_is_refused(run, place, tmp_path):
    review(run)
    with pytest.raises(InputError, match="made by an older newfound"):
        rediscover(Discovery(replace(run.found, run=None), run.edits))
    shutil.copytree(place / "new", tmp_path / "moved")
    listing = replace(run.found.listing, root=tmp_path / "nowhere")
    lost = Discovery(replace(run.found, listing=listing), run.edits)
    with pytest.raises(InputError, match=r"images are not in .*--images"):
        rediscover(lost)
    assert len(rediscover(lost, images=tmp_path / "moved").found) == len(run.found)
    (tmp_path / "moved" / run.found.listing.names[3]).write_bytes(b"no image")
    with pytest.raises(InputError, match="1 image of this run cannot be read any more"):
        rediscover(lost, images=tmp_path / "moved")


def test_a_run_is_not_written_over_itself(run, tmp_path):
    review(run)
    run.save(tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "run" / ".." / "run"):
        with pytest.raises(InputError, match="is the run that is learnt from"):
            rediscover(tmp_path / "run", output=place, overwrite=True)
        with pytest.raises(InputError, match="is the run that is learnt from"):
            rediscover(Discovery.load(tmp_path / "run"), output=place, overwrite=True)
    rediscover(tmp_path / "run", output=tmp_path / "next")
    with pytest.raises(InputError, match="already holds a run"):
        rediscover(tmp_path / "run", output=tmp_path / "next")


def test_answers_given_since_are_not_mixed_into_a_run_that_is_resumed(run, tmp_path):
    review(run)
    run.save(tmp_path / "run")
    rediscover(tmp_path / "run", output=tmp_path / "next")
    (tmp_path / "next" / "discovery.json").unlink()  # as if it had been interrupted
    said = len(run.edits)
    run.set_aside([4])
    run.save(tmp_path / "run")
    with pytest.raises(InputError, match=r"other settings \(edits\)"):
        rediscover(tmp_path / "run", output=tmp_path / "next", resume=True)
    again = rediscover(tmp_path / "run", output=tmp_path / "next", resume=True, edits=said)
    assert not again.classes.aside.any()
    with pytest.raises(InputError, match=f"Asked for the first 99 edits; the run has {said + 1}"):
        rediscover(tmp_path / "run", edits=99)


def test_labelled_images_are_refused_where_no_known_class_was_looked_for(place, run):
    without = Discovery(replace(run.found, known=()))
    without.accept(without.classes.numbers[-1], images=without.classes.rows(without.classes.numbers[-1])[:2].tolist())
    with pytest.raises(InputError, match="looked for no known class"):
        rediscover(without, known=place / "known")


def test_the_next_place_is_free_and_counts_on(tmp_path):
    assert next_place(tmp_path / "run") == tmp_path / "run-2"
    (tmp_path / "run-2").mkdir()
    assert next_place(tmp_path / "run") == next_place(tmp_path / "run-2") == tmp_path / "run-3"


def test_the_command_says_so_where_answers_change_nothing(tmp_path, monkeypatch, capsys):
    same = Discovery(make_found())
    monkeypatch.setattr("newfound.discovery.rediscover.rediscover", lambda *told, **more: same)
    monkeypatch.setattr(Discovery, "load", lambda folder: same)
    app(["discover", "--continue", str(tmp_path / "run")], result_action="return_value")
    said = capsys.readouterr().out
    assert "Nothing changed" in said
    assert "What changed" not in said


def test_the_command_learns_tells_and_repeats(run, tmp_path):
    review(run)
    run.save(tmp_path / "run")
    done = newfound("discover", "--continue", "run", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "What changed" in done.stdout
    assert "newfound review" in done.stdout
    again = newfound("discover", "--config", "run-2/config.toml", "-o", "same", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    for name in ("assignments.csv", "classes.csv", "edits.jsonl", "discovery.safetensors"):
        assert (tmp_path / "same" / name).read_bytes() == (tmp_path / "run-2" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--continue", "run", "--method", "uno"), "--method would change nothing"),
        (
            ("--continue", "run", "--unlabelled", "new", "--classes", "3"),
            "--classes, --unlabelled would change nothing",
        ),
        (("--continue", "run", "--resume"), "Say which (-o)"),
        (("--continue", "nowhere"), "holds no finished run"),
        (("--unlabelled", "new"), "--output requires an argument"),
        (("-o", "run"), "--unlabelled requires an argument"),
        (("--unlabelled", "new", "-o", "run", "--edits", "2"), "--edits would change nothing"),
        (("--unlabelled", "new", "-o", "run", "--images", "new"), "--images would change nothing"),
    ],
)
def test_words_that_cannot_be_are_refused(words, said, tmp_path):
    done = newfound("discover", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
