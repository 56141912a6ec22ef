"""What was discovered is learnt: by real commands on real drawings, and its laws on a discovery that is made."""

import itertools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from newfound import Classifier, Discovery, discover, files, pretrain
from newfound.cli import main
from newfound.discovery.edits import classes
from newfound.discovery.find import number_clusters
from newfound.discovery.found import Clusters
from newfound.discovery.learn import find_doubtful, group_known, learn, looked_at, plan_learning
from newfound.discovery.settings import Run, StageOne
from newfound.encoders.pixels import READING_SHRINK
from newfound.encoders.reading import read
from newfound.errors import InputError
from newfound.functional.geometry import whitening
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.networks.pretrained import LITE
from newfound.networks.resnet import OWN
from newfound.types import generator, seeded
from newfound.vision import vision
from tests.commands import newfound
from tests.data.pictures import write_doodles
from tests.discovery.made import make_found
from tests.discovery.test_killed import content, witnessed

STAGE = StageOne(backbone=LITE, size=64, rehearse="no")
OURS = StageOne(backbone=OWN, size=8, width=1, pretrain_epochs=1, rehearse="no")
RUN = Run(method="kmeans", device="cpu")
EACH = 20
KINDS = ["known", "first", "second"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Four kinds of drawings that are known, two piles with two new kinds each, and more drawings of all."""
    root = tmp_path_factory.mktemp("learn")
    write_doodles(root / "known", range(4), each=EACH, scale=2)
    for name, new, others in (("first", (4, 5), range(4)), ("second", (6, 7), range(6))):
        write_doodles(root / name, new, each=EACH, scale=2)
        write_doodles(root / name, others, each=5, first=60 + 5 * (name == "second"), scale=2)
    write_doodles(root / "more", range(8), each=10, first=80, scale=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        pretrain(root / "known", output=root / "model", stage=STAGE, device="cpu")
        yield root


@pytest.fixture(scope="module")
def first(place):
    """A run in the first pile, in the folder `run`; no test edits it."""
    return discover(
        model=place / "model", unlabelled=place / "first", classes=2, run=RUN, truth=True, output=place / "run"
    )


def name_all(run):
    """A person's review: every new class gets the name of what most of its images show."""
    for number in [number for number in run.classes.numbers if run.classes.kind(number) == "new"]:
        shown = pd.Series([Path(run.found.listing.names[row]).parent.name for row in run.classes.rows(number).tolist()])
        run.rename(number, shown.mode()[0])


def right(table):
    """The share of images whose class is that of their folder."""
    return (table["guess"] == table["path"].map(lambda path: path.split("/")[0])).mean()


def test_from_the_factory_through_two_rounds_of_discovery_review_and_learning(place, first, tmp_path):
    run = Discovery.load(place / "run", by="Ana")
    name_all(run)
    (doubtful, *_), named = run.classes.rows(5).tolist(), run.classes.names[5]
    run.set_aside([doubtful])
    shutil.copytree(place / "run", tmp_path / "run")
    run.save(tmp_path / "run", overwrite=True)
    done = newfound("learn", "run", "-o", "model2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Reviewed: Ana decided on 1 of 60 images" in done.stderr.replace("\n", " ")
    assert "6 classes" in done.stdout

    known, learnt = Model.from_pretrained(place / "model"), Classifier.load(tmp_path / "model2")
    assert learnt.classes == (*known.classes, *(run.classes.names[number] for number in (5, 6)))
    assert learnt.model.numbers == (1, 2, 3, 4, 5, 6)
    before, after = known.pretrained.statistics, learnt.model.pretrained.statistics
    assert torch.equal(before.means, after.means[:4])  # nothing moved, nothing is forgotten
    assert torch.equal(before.counts, after.counts[:4])
    assert after.counts[4] <= len(run.classes.rows(5))

    done = newfound("predict", "model2", place / "more", "-o", "more.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "more.csv")
    seen = table[table["path"].map(lambda path: path.split("/")[0] in learnt.classes)]
    assert right(seen) > 0.6  # a sixth would be chance
    assert right(seen[seen["path"].str.startswith(named)]) > 0.3
    assert {*table["kind"]} <= {"known", "unsure", "outlier"}
    pd.testing.assert_frame_equal(learnt.predict(place / "more"), table, check_dtype=False)

    again = learnt.discover(place / "second", classes=2, run=RUN)
    assert again.found.known == learnt.classes
    assert again.found.numbers == (1, 2, 3, 4, 5, 6, 7, 8)
    name_all(again)
    last = again.learn()
    assert last.classes == (*learnt.classes, *(again.classes.names[number] for number in (7, 8)))
    assert right(last.predict(place / "more")) > 0.5  # an eighth would be chance
    assert torch.equal(after.means, last.model.pretrained.statistics.means[:6])


def test_a_run_that_nobody_reviewed_is_learnt_as_it_is_and_that_is_said(first, caplog):
    with caplog.at_level(logging.INFO, "newfound"):
        model = first.learn().model
    assert "Nobody has reviewed this run" in caplog.text
    assert model.classes[:5] == (*first.found.model.classes, "new-1")
    for name in ("new-1", "new-2"):
        assert (f"Learnt: {name!r}" in caplog.text) == (name in model.classes)
        assert (f"in half of the images: {name!r}" in caplog.text) == (name not in model.classes)


def test_a_pile_with_nothing_new_adds_nothing_and_says_so(place, tmp_path, caplog):
    write_doodles(tmp_path / "pile", range(4), each=8, first=40, scale=2)
    run = discover(model=place / "model", unlabelled=tmp_path / "pile", classes=2, run=RUN)
    with caplog.at_level(logging.INFO, "newfound"):
        model = run.learn(tmp_path / "model").model
    assert "Nothing is new" in caplog.text
    assert "Not learnt" in caplog.text
    assert model.classes == run.found.model.classes
    assert Model.from_pretrained(tmp_path / "model").classes == model.classes


def test_all_that_was_new_and_merged_into_known_classes_teaches_these(first, caplog):
    run = Discovery(first.found)
    known = run.classes.names[1]
    for number in (5, 6):
        run.merge([1, number])
    with caplog.at_level(logging.INFO, "newfound"):
        model = run.learn().model
    assert "Nothing is new" in caplog.text
    assert model.classes == first.found.model.classes
    counts = model.pretrained.statistics.counts
    assert counts[0] > EACH
    assert counts[1:].tolist() == [EACH] * 3
    assert known == model.classes[0]


def test_images_that_have_moved_are_asked_for_and_found_where_they_are(place, first, tmp_path):
    moved = replace(first.found, listing=replace(first.found.listing, root=tmp_path / "gone"))
    with pytest.raises(InputError, match=r"60 of 60 images are not in .*--images"):
        Discovery(moved).learn(tmp_path / "model")
    assert not any(tmp_path.iterdir())
    model = Discovery(moved).learn(images=place / "first").model
    assert torch.equal(model.pretrained.statistics.means, first.learn().model.pretrained.statistics.means)


def test_images_or_a_model_that_are_not_those_of_the_run_are_refused(place, first, tmp_path):
    shutil.copytree(place / "first", tmp_path / "first")
    file = tmp_path / "first" / first.found.listing.names[0]
    other = next(path for path in (place / "second").rglob("*.png"))
    for path in (tmp_path / "first").rglob("*.png"):
        shutil.copy(other, path)
    with pytest.raises(InputError, match=r"images that would teach a class are not seen as they were.*backbone"):
        first.learn(images=tmp_path / "first")
    file.write_bytes(b"no image")
    with pytest.raises(InputError, match="1 of 60 images cannot be read any more"):
        first.learn(images=tmp_path / "first")


def test_a_model_folder_stays_private_and_grows_with_its_classes_alone(place, tmp_path):
    torch.manual_seed(0)
    files.write_tensors(tmp_path / "net.safetensors", vision("timm").create_model("test_resnet").state_dict())
    stage = StageOne(backbone="test_resnet", weights=str(tmp_path / "net.safetensors"), size=32, rehearse="no")
    pretrain(place / "known", output=tmp_path / "start", stage=stage, device="cpu")
    classifier, sizes, names = Classifier.load(tmp_path / "start"), [], set[str]()
    for step in range(5):
        pile = tmp_path / str(step)
        write_doodles(pile, (4 + step,), each=12 + 4 * step, first=10, scale=2)
        run = classifier.discover(pile, classes=1, run=RUN)
        run.rename(run.classes.numbers[-1], f"kind {step}")
        names |= {Path(name).name for name in run.found.listing.names}
        classifier = run.learn(tmp_path / "model", overwrite=step > 0)
        sizes.append({path.name: path.stat().st_size for path in (tmp_path / "model").iterdir()})
    assert sizes[-1].keys() == {path.name for path in (tmp_path / "start").iterdir()}
    statistics, dim = classifier.model.pretrained.statistics, classifier.model.backbone.dim
    assert len(statistics.means) == 9
    row = 4 * statistics.means.shape[1] + 8 + 4 * dim + 8 + 4 * dim + 4  # means and count twice, a row of the head
    for before, after in itertools.pairwise(sizes):
        grown = {name: after[name] - before[name] for name in after}
        assert grown["trunk.safetensors"] == 0
        assert abs(grown["model.safetensors"] - row) < 64  # however many images the class had
        assert grown["model.json"] + grown["README.md"] < 200
    held = b"".join(path.read_bytes() for path in (tmp_path / "model").iterdir())
    assert all(name.endswith(".png") for name in names)
    assert not [name for name in names if name.encode() in held]
    assert str(tmp_path).encode() not in held
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".md", ".safetensors", ".toml", ".txt"}


def test_classes_keep_their_order_names_and_numbers():
    run = Discovery(make_found())
    run.rename(1, "cats")
    run.merge([4, 5])
    run.rename(3, "dogs")
    run.undo()
    plan = plan_learning(run.classes)
    assert plan.lesson.classes == ("cats", "new-1", "new-2", "new-3")  # `new-1` is a known one's name here
    assert plan.numbers == (1, 2, 3, 4)
    assert plan.used == 5
    assert plan.lesson.parts == ((0,), (1,), (), ())
    model = learn(run.classes)
    assert (model.classes, model.numbers, model.used) == (plan.lesson.classes, plan.numbers, 5)
    assert number_clusters(model, model.recognisable, 2) == (
        3,
        4,
        6,
        7,
    )  # 5 was a class's, and the first two have no mean


def test_what_is_unsure_or_was_set_aside_teaches_nothing_and_what_a_person_says_does():
    run = Discovery(make_found())
    table = run.assignments()
    sure = table.index[(table["number"] == 3)].tolist()
    unsure = table.index[table["number"] == -1].tolist()
    assert sure
    assert unsure
    labels = plan_learning(run.classes).lesson.labels
    assert (labels[sure] == 2).all()
    assert (labels[unsure] == -1).all()
    assert (labels[:10] == -1).all()  # cats that were recognised as such
    run.set_aside([sure[0]])
    run.move([unsure[0]], to=3)
    run.move([sure[1]], to="cat")
    run.accept("cat", images=[0])
    labels = plan_learning(run.classes).lesson.labels
    assert labels[[sure[0], unsure[0], sure[1], 0]].tolist() == [-1, 2, 0, 0]
    run.merge([1, 3])
    assert (plan_learning(run.classes).lesson.labels[sure[1:]] == 0).all()


def test_two_known_classes_that_somebody_merged_are_one_from_then_on():
    run = Discovery(make_found())
    run.merge([1, 2], force=True)
    assert group_known(run.classes) == [(1, (0, 1))]
    plan = plan_learning(run.classes)
    assert plan.lesson.classes[0] == "cat"
    assert plan.lesson.parts[0] == (0, 1)
    assert plan.numbers == (1, 3, 4, 5)


def test_known_classes_that_were_not_looked_for_stay_and_new_ones_get_numbers_of_their_own():
    made = make_found()
    clusters = made.clusters._replace(centres=made.clusters.centres[2:], sizes=made.clusters.sizes[2:])
    clusters = clusters._replace(assignment=torch.cdist(made.features, clusters.centres).argmin(1))
    run = Discovery(make_found(known=(), numbers=(1, 2, 3), clusters=clusters))
    for number in (1, 2, 3):
        run.rename(number, f"kind {number}")
    plan = plan_learning(run.classes)
    assert plan.lesson.classes == ("cat", "new-1", "kind 1", "kind 2", "kind 3")
    assert plan.numbers == (1, 2, 4, 5, 3)
    assert plan.used == 5
    run.rename(3, "cat")
    with pytest.raises(InputError, match=r"A new class is called 'cat', as one that the model knows.*--merge"):
        run.learn()
    plan = plan_learning(run.classes, merge=True)
    assert plan.lesson.classes == ("cat", "new-1", "kind 1", "kind 2")
    assert (plan.lesson.labels == 0).sum() == (run.assignments()["number"] == 3).sum()
    assert learn(run.classes, merge=True).recognisable == ("cat", "kind 1", "kind 2")


def test_a_known_class_renamed_to_one_that_was_not_looked_for_is_refused_not_learnt_twice(tmp_path):
    run = Discovery(make_found(known=("cat",)))
    run.rename("cat", "new-1")  # which the model knows
    for merge in (False, True):
        with pytest.raises(InputError, match=r"is called 'new-1' now, .*Needed: a name for each\. Rename"):
            run.learn(tmp_path / "model", merge=merge)
    assert not [*tmp_path.iterdir()]
    run.rename("new-1", "lynx")
    run.learn(tmp_path / "model")
    assert Classifier.load(tmp_path / "model").classes[:2] == ("lynx", "new-1")


def test_a_name_that_a_known_class_has_asks_to_merge():
    with pytest.raises(InputError, match=r"'cat' is another class's name, of number 1.*merge\(\[1, 3\]\)"):
        Discovery(make_found()).rename(3, "cat")


def test_a_class_that_nobody_looked_at_must_hold_together_to_be_learnt():
    noise = torch.randn(90, 16, generator=generator("noise"))
    there = torch.randn(30, 16, generator=generator("there")) / 4 + 6
    features = torch.cat([noise, there])
    found = read(features, 5, None, 0)
    clusters = Clusters(found.assignment, found.centres, torch.full((5,), 10**6), unit=False)
    made = make_found(features=features, clusters=clusters, known=(), threshold=0.0)
    answers = torch.tensor(made.numbers)[clusters.assignment]
    real = int(answers[-1])
    assert (answers == real).sum() == 30
    assert find_doubtful(classes(made), answers).keys() == {1, 2, 3, 4, 5} - {real}
    plan = plan_learning(classes(made))
    assert plan.added == (made.names[real - 1],)
    for number in {1, 2, 3} - {real}:
        sure = f"{int((answers == number).sum())} sure images"
        assert re.search(rf"'{made.names[number - 1]}' \(\d+ % found again, {sure}\)", " ".join(plan.said))
    run, other = Discovery(made), next(number for number in (1, 2) if number != real)
    run.rename(other, "looked at")
    assert looked_at(run.classes) == {other}
    assert {*plan_learning(run.classes).added} == {made.names[real - 1], "looked at"}
    few = answers.masked_fill(answers == real, -1)
    few[-4:] = real
    assert real in find_doubtful(classes(made), few)


def test_of_a_proposal_that_nobody_looked_at_what_was_proposed_is_learnt(monkeypatch):
    monkeypatch.setattr("newfound.discovery.learn.find_doubtful", lambda now, answers: {})
    found = make_found()
    assert plan_learning(Discovery(found).classes).added == ("new-2", "new-3", "new-4")
    run = Discovery(replace(found, proposed=(4,)))
    plan = plan_learning(run.classes)
    assert plan.added == ("new-3",)
    assert "they were not proposed: 'new-2', 'new-4'" in " ".join(plan.said)
    run.rename(5, "squid")
    assert plan_learning(run.classes).added == ("new-3", "squid")


def test_a_class_of_few_images_is_named_and_not_recognised_and_that_is_said(caplog):
    run = Discovery(make_found())
    run.new_class([40, 41], "squid")
    with caplog.at_level(logging.INFO, "newfound"):
        model = learn(run.classes)
    assert model.classes[-1] == "squid"
    assert "squid" not in model.recognisable
    assert "fewer than 5 sure images, which the model cannot recognise: 'squid'" in caplog.text


@pytest.fixture
def kept(place, tmp_path):
    """A run of our own network that is learnt from, and a model folder that the model will replace."""
    pretrain(place / "known", output=tmp_path / "start", stage=OURS, device="cpu")
    run = Classifier.load(tmp_path / "start").discover(place / "first", classes=2, run=RUN)
    for number in (5, 6):
        run.rename(number, f"kind {number}")
    shutil.copytree(tmp_path / "start", tmp_path / "model")
    return run


def test_killed_at_any_write_the_old_model_is_whole_or_the_new_one_is(kept, tmp_path):
    old, states = content(tmp_path / "model"), []
    with witnessed(lambda: states.append(content(tmp_path / "model"))):
        kept.learn(tmp_path / "model", overwrite=True)
    new = content(tmp_path / "model")
    assert len(states) > 5
    assert all(state in (old, new) for state in states)
    assert json.loads(new["model.json"])["classes"][4:] == ["kind 5", "kind 6"]
    assert not [*tmp_path.glob(".*")]


def test_what_a_killed_learn_left_is_taken_away_by_the_next(kept, tmp_path):
    stale = tmp_path / f".model.{'0' * 16}.newfound"
    stale.mkdir()
    (stale / "model.json").write_text("half")
    old = content(tmp_path / "model")

    def full(*_):
        raise OSError("no room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "save_pretrained", full)
        with pytest.raises(OSError, match="no room"):
            kept.learn(tmp_path / "model", overwrite=True)
    assert content(tmp_path / "model") == old
    assert not [*tmp_path.glob(".*")]
    kept.learn(tmp_path / "model", overwrite=True)
    assert Classifier.load(tmp_path / "model").classes[4:] == ("kind 5", "kind 6")


PROGRAM = """
import os, signal, sys
from pathlib import Path
from newfound.cli import main
writes, sync = [], os.fsync
def last(handle):
    sync(handle)
    writes.append(handle)
    if len(writes) == int(os.environ["KILLED_AFTER"]):
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = last
main()
"""


@pytest.mark.processes
def test_killed_and_run_again_learn_ends_with_the_bytes_of_one_that_was_never_stopped(kept, tmp_path):
    kept.save(tmp_path / "run")
    shutil.copytree(tmp_path / "model", tmp_path / "twin" / "model")
    words = [sys.executable, "-c", PROGRAM, "learn", str(tmp_path / "run"), "-o", "model", "--overwrite"]

    def start(cwd, killed_after):
        about = os.environ | {"KILLED_AFTER": str(killed_after)}
        return subprocess.run(words, cwd=cwd, env=about, check=False, timeout=600).returncode

    old = content(tmp_path / "model")
    for writes in (1, 3):
        assert start(tmp_path, writes) == -signal.SIGKILL
        assert content(tmp_path / "model") == old
        assert [*tmp_path.glob(".model.*")], "it was killed while it was building"
    assert start(tmp_path, 0) == 0
    assert start(tmp_path / "twin", 0) == 0
    assert content(tmp_path / "model") == content(tmp_path / "twin" / "model") != old
    assert not [*tmp_path.glob(".model.*")]


def test_ctrl_c_says_that_learn_begins_again(tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Discovery, "load", stopped)
    monkeypatch.setattr(sys, "argv", ["newfound", "learn", str(tmp_path / "run"), "-o", str(tmp_path / "model")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert "the same command begins again, which takes seconds" in capsys.readouterr().err


def test_where_folders_cannot_change_names_at_once_one_follows_the_other(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    kept.learn(tmp_path / "model", overwrite=True)
    assert Classifier.load(tmp_path / "model").classes[4:] == ("kind 5", "kind 6")
    assert not [*tmp_path.glob(".*")]


def test_a_model_that_is_there_is_not_replaced_unless_asked_for(kept, tmp_path):
    with pytest.raises(
        InputError, match=r"already holds a model\. Give another place with -o, or replace it with --over"
    ):
        kept.learn(tmp_path / "model")
    with pytest.raises(InputError, match="holds other files"):
        kept.learn(tmp_path, overwrite=True)


def test_the_run_that_is_learnt_from_is_not_replaced_by_its_model_whoever_asks_for_it(tmp_path):
    run = Discovery(make_found())
    run.rename(3, "lynx")
    run.save(tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text("[discover]\nseed = 0\n", encoding="utf-8")  # as the command has it
    before = content(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "link"):
        with pytest.raises(InputError, match=r"is the run that is learnt from\. Needed: another place, .* Give -o"):
            run.learn(place, overwrite=True)
    assert content(tmp_path / "run") == before


def test_our_own_network_learns_by_its_latents_and_tells_the_new_kinds(kept, tmp_path):
    model = kept.learn().model
    assert model.pretrained is None
    assert model.known.counts.tolist()[:4] == [EACH] * 4
    assert torch.equal(model.known.means[:4], kept.found.model.known.means)
    assert model.head.out_features == 6
    sure = torch.tensor(kept.assignments()["number"].tolist()) == 5
    torch.testing.assert_close(model.known.means[4], kept.found.features[sure].mean(0))


def test_our_own_network_tells_images_by_latents_that_are_whitened_as_discovery_reads_them(kept, tmp_path):
    classifier = Classifier.load(tmp_path / "model")
    known, told = classifier.model.known, classifier.now.found.model
    whitens = whitening(known.within_covariance, READING_SHRINK)
    torch.testing.assert_close(told.backbone.metric, whitens)
    torch.testing.assert_close(told.known.means, known.means @ whitens)


def test_a_model_that_recognises_nothing_says_so(place, tmp_path):
    with seeded("nothing"):
        Classifier(Model(Adapter(4, 2), 28, 1, ("cat",))).save(tmp_path / "model")
    done = newfound("predict", "model", place / "more", cwd=tmp_path)
    assert done.returncode == 2
    assert "recognises none of its 1 classes" in done.stderr
