"""Images are told as they arrive: each once, whatever happens; what fits nothing is proposed where it is a class."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image

from newfound import Discovery, pretrain
from newfound.console import silent
from newfound.data.datasets import load_doodles
from newfound.data.listing import Listing
from newfound.discovery import classifier, result, watch
from newfound.discovery.found import Clusters
from newfound.discovery.learn import find_doubtful
from newfound.discovery.settings import StageOne
from newfound.discovery.watch import GROWN, LEAST, due, pool, settled
from newfound.discovery.watched import Stamp, State, end_of_lines, read_state
from newfound.encoders.known import weigh
from newfound.encoders.reading import read
from newfound.errors import InputError
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.networks.pretrained import LITE
from newfound.networks.resnet import OWN
from newfound.types import generator, seeded
from tests.commands import newfound
from tests.data.pictures import write_doodles
from tests.discovery.made import make_found
from tests.discovery.test_killed import content, witnessed

OURS = StageOne(backbone=OWN, size=8, width=1, pretrain_epochs=1, rehearse="no")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Drawings of three known kinds, and a small model of our own network that has learnt them."""
    root = tmp_path_factory.mktemp("watch")
    write_doodles(root / "known", range(3), each=20, scale=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        pretrain(root / "known", output=root / "model", stage=OURS, device="cpu")
        yield root


def look(place, cwd, model="model"):
    """One look, as cron has it; the lines that are there then."""
    done = newfound("watch", place / model, "camera", "-o", "state", "--once", "--settle", 0, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(cwd / "state" / "images.csv"), done.stderr.replace("\n", " ")


def test_every_image_that_arrives_becomes_one_line(place, tmp_path):
    write_doodles(tmp_path / "camera", range(2), each=3, first=30)
    table, said = look(place, tmp_path)
    assert len(table) == table["path"].nunique() == 6
    assert {*table["kind"]} <= {"known", "unsure"}
    assert "Told 6 images" in said
    write_doodles(tmp_path / "camera", (2,), each=2, first=30)
    (tmp_path / "camera" / "no.png").write_bytes(b"no image")
    table, said = look(place, tmp_path)
    assert len(table) == table["path"].nunique() == 9
    assert table.set_index("path")["kind"]["no.png"] == "unreadable"
    assert "Told 3 images" in said
    before = (tmp_path / "state" / "images.csv").read_bytes()
    _, said = look(place, tmp_path)
    assert "Told" not in said
    assert (tmp_path / "state" / "images.csv").read_bytes() == before
    shutil.copy(tmp_path / "camera" / table["path"][0], tmp_path / "camera" / "no.png")
    table, _ = look(place, tmp_path)
    assert [*table["kind"][table["path"] == "no.png"]][1] in ("known", "unsure")
    assert (tmp_path / "state" / "images.csv").read_bytes().startswith(before)


def test_what_cannot_be_read_is_told_too_and_all_lines_have_the_same_columns(place, tmp_path):
    (tmp_path / "camera").mkdir()
    (tmp_path / "camera" / "no.png").write_bytes(b"no image")
    table, _ = look(place, tmp_path)
    assert [*table["kind"]] == ["unreadable"]
    assert [*table.columns] == watch.LINE
    write_doodles(tmp_path / "camera", (0,), each=1, first=30)
    table, _ = look(place, tmp_path)
    assert [*table.columns] == watch.LINE
    assert table["kind"].iloc[1] in ("known", "unsure")
    assert 0 <= table["confidence"].iloc[1] <= 1
    assert table["size"].iloc[1] == (tmp_path / "camera" / table["path"].iloc[1]).stat().st_size


def test_a_name_that_is_no_text_is_told_once_and_stops_nothing(place, tmp_path, monkeypatch):
    write_doodles(tmp_path / "camera", (0,), each=2, first=30)
    odd = tmp_path / "camera" / "\udcffodd.png"
    shutil.copy(next((tmp_path / "camera").rglob("*.png")), odd)
    nameless: set[str] = set()
    assert len(watch.scan(tmp_path / "camera", nameless)) == 2
    assert nameless == {odd.name}
    table, said = look(place, tmp_path)
    assert len(table) == 2
    assert said.count("is not valid text") == 1
    odd.unlink()
    odd.mkdir()
    with pytest.raises(InputError, match=r"udcff.* is not valid text"):
        watch.watch(place / "model", odd, tmp_path / "elsewhere", once=True)


@pytest.mark.parametrize("how", [{"settle": float("inf")}, {"every": 1e300}, {"settle": -1.0}, {"every": float("nan")}])
def test_nobody_waits_longer_than_clocks_go(place, tmp_path, how):
    with pytest.raises(InputError, match="no more than a year"):
        watch.watch(place / "model", place / "known", tmp_path / "state", once=True, **how)


def test_a_file_that_somebody_is_writing_is_waited_for(place, tmp_path, monkeypatch):
    write_doodles(tmp_path / "camera", (0,), each=2, first=30)
    whole = (tmp_path / "camera" / "half.png", next((tmp_path / "camera").rglob("*.png")).read_bytes())
    whole[0].write_bytes(whole[1][:50])
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: whole[0].write_bytes(whole[1]))
    table, _ = look(place, tmp_path)
    assert "half.png" not in {*table["path"]}
    assert len(table) == 2
    monkeypatch.undo()
    monkeypatch.setenv("NEWFOUND_CACHE", str(place / "cache"))
    table, _ = look(place, tmp_path)
    assert [*table["path"]].count("half.png") == 1
    assert table["kind"].iloc[-1] in ("known", "unsure")


PROGRAM = """
import os, signal, sys
from newfound.cli import main
from newfound.discovery import watch
watch.TOGETHER, syncs, sync = 2, [], os.fsync
def last(handle):
    sync(handle)
    if os.path.exists("state/images.csv"):
        syncs.append(handle)
        if len(syncs) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
os.fsync = last
main()
"""


@pytest.mark.processes
def test_killed_in_the_middle_and_run_again_nothing_is_told_twice_and_nothing_is_lost(place, tmp_path, monkeypatch):
    write_doodles(tmp_path / "camera", range(3), each=4, first=30)
    words = ["watch", str(place / "model"), "camera", "-o", "state", "--every", "0.1", "--settle", "0"]
    killed = subprocess.run([sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, check=False, timeout=600)
    assert killed.returncode == -signal.SIGKILL
    path = tmp_path / "state" / "images.csv"
    told = pd.read_csv(path)
    assert 0 < len(told) < 12
    for cut in (0, 7):  # a line may have been half written
        path.write_bytes(path.read_bytes()[: -cut or None])
        table, _ = look(place, tmp_path)
        assert sorted(table["path"]) == sorted(str(p.relative_to(tmp_path / "camera")) for p in drawings(tmp_path))


def drawings(root):
    return [*(root / "camera").rglob("*.png")]


def test_files_count_once_they_are_the_same_as_a_while_ago_and_nobody_was_told_of_them():
    one, two = Stamp(1, 1), Stamp(2, 1)
    state = State(told={"told": (one, "known"), "changed": (one, "unsure")})
    now = {"told": one, "changed": two, "new": one, "grows": two}
    assert settled(now | {"grows": one}, now, state) == ["changed", "new"]
    assert settled({}, now, state) == []


def test_the_pool_is_what_is_there_and_fits_nothing_and_was_not_proposed():
    stamp, other = Stamp(1, 1), Stamp(1, 2)
    kinds = {
        "a": "known",
        "b": "unsure",
        "c": "outlier",
        "d": "unreadable",
        "e": "unsure",
        "f": "unsure",
        "g": "unsure",
    }
    state = State({name: (stamp, kind) for name, kind in kinds.items()}, proposed={("e", stamp)})
    now = dict.fromkeys("abcdef", stamp) | {"f": other}
    assert pool(now, state) == ["b", "c"]


def test_a_pool_is_looked_at_when_it_is_large_enough_and_has_grown():
    assert not due(LEAST - 1, State())
    assert due(LEAST, State())
    assert not due(int(GROWN * 40) - 1, State(tried=40))
    assert due(int(GROWN * 40), State(tried=40))


@pytest.mark.parametrize(
    ("data", "whole"),
    [(b"", 0), (b"path", 0), (b"path\n", 5), (b"path\na,1\nb,", 9), (b'path\n"a\nb",1\n"c\n', 13), (b'"a\n', 0)],
)
def test_a_line_ends_where_no_quoted_name_does(data, whole):
    assert end_of_lines(data) == whole


def test_a_state_folder_is_one_model_s_one_folder_s_and_one_watcher_s(place, tmp_path):
    write_doodles(tmp_path / "camera", (0,), each=1, first=30)
    look(place, tmp_path)
    shutil.copytree(place / "model", tmp_path / "other")
    about = (tmp_path / "other" / "model.json").read_text()
    (tmp_path / "other" / "model.json").write_text(about.replace('"used": 3', '"used": 4'))
    with pytest.raises(InputError, match="begun with another model"):
        watch.watch(tmp_path / "other", tmp_path / "camera", tmp_path / "state", once=True)
    shutil.copytree(tmp_path / "camera", tmp_path / "elsewhere")
    with pytest.raises(InputError, match="begun with another folder"):
        watch.watch(place / "model", tmp_path / "elsewhere", tmp_path / "state", once=True)
    with pytest.raises(InputError, match="holds other files"):
        watch.watch(place / "model", tmp_path / "camera", tmp_path, once=True)
    with (
        watch.hold(tmp_path / "state", place / "model", tmp_path / "camera"),
        pytest.raises(InputError, match="Somebody else is watching"),
    ):
        watch.watch(place / "model", tmp_path / "camera", tmp_path / "state", once=True)


@pytest.fixture(scope="module")
def seeing(place):
    """A model that sees enough to tell an unseen kind."""
    pretrain(place / "known", output=place / "seeing", stage=StageOne(backbone=LITE, size=64, rehearse="no"))
    return place


@pytest.fixture
def unsure(monkeypatch):
    """As if the model were sure of nothing; and few classes are looked for."""
    was = classifier.recognise
    monkeypatch.setattr(classifier, "recognise", lambda model: replace(was(model), threshold=2.0))
    monkeypatch.setattr("newfound.discovery.howmany.MOST", 4)


def test_an_unseen_kind_in_the_pool_is_proposed_once_and_never_added(seeing, tmp_path, unsure):
    write_doodles(tmp_path / "camera", (4,), each=24, first=30, scale=2)
    before = content(seeing / "seeing")
    _, said = look(seeing, tmp_path, "seeing")
    assert "Proposed: new-1" in said
    run = Discovery.load(tmp_path / "state" / "proposal-1")
    assert len(run.found) == 24
    assert run.found.proposed == tuple(pd.read_csv(tmp_path / "state" / "proposals.csv")["number"].unique())
    assert all(Path(name).is_absolute() for name in run.found.listing.names)
    tries, proposed = (pd.read_csv(tmp_path / "state" / name) for name in ("tries.csv", "proposals.csv"))
    assert [*tries["folder"]] == ["proposal-1"]
    assert {*proposed["path"]} <= {*pd.read_csv(tmp_path / "state" / "images.csv")["path"]}
    assert len(proposed) >= 10
    assert content(seeing / "seeing") == before
    state = read_state(tmp_path / "state")
    assert (state.proposals, len(state.proposed), state.tried) == (1, len(proposed), 24 - len(proposed))
    _, said = look(seeing, tmp_path, "seeing")
    assert "Proposed" not in said
    run.rename(run.classes.numbers[-1], "unseen")
    assert run.learn().classes[-1] == "unseen"


def gathered(away):
    """A discovery in a pool of forty points, so far from the first of two known classes, which lie 10 apart."""
    points = 0.3 * torch.randn(40, 3, generator=generator("gathered"))
    points[:, 1] += away
    return make_found(features=points, clusters=clusters_of(points, 1), thumbnails={}, threshold=0.0)


def clusters_of(points, new):
    """Those of two known classes and so many new ones."""
    places, held = torch.tensor([[0.0, 0.0, 0.0], [10.0, 0.0, 0.0]]), torch.tensor([1000, 1000])
    found = read(points, new, weigh(places, held), 0)
    sizes = torch.bincount(found.assignment, minlength=2 + new)
    sizes[:2] += held
    return Clusters(found.assignment, found.centres, sizes, unit=False)


def test_killed_at_any_write_of_a_proposal_the_same_images_are_told_and_proposed_once(
    place, tmp_path, monkeypatch, unsure
):
    monkeypatch.setattr(watch, "LEAST", 8)
    monkeypatch.setattr(
        watch, "supported", lambda run: [n for n in run.classes.numbers if run.classes.kind(n) == "new"]
    )
    monkeypatch.setattr(result, "render_report", lambda now: "")
    write_doodles(tmp_path / "camera", (4,), each=12, first=30)
    lives = []

    def die():
        lives.append(tmp_path / str(len(lives)))
        shutil.copytree(tmp_path / "whole", lives[-1])

    def run(state):
        return watch.watch(place / "model", tmp_path / "camera", state, once=True, settle=0.0)

    (tmp_path / "whole").mkdir()
    with witnessed(die):
        whole = run(tmp_path / "whole")
    assert (whole.proposals, len(whole.told)) == (1, 12)
    assert len(lives) > 12
    for life in lives:
        assert run(life) == read_state(life) == whole, f"killed at write {life.name}"
        lines = pd.read_csv(life / "images.csv")["path"], pd.read_csv(life / "proposals.csv")["path"]
        assert not any(paths.duplicated().any() for paths in lines)
        assert sorted(path.name for path in life.glob("proposal-*")) == ["proposal-1"]
        assert len(Discovery.load(life / "proposal-1").found) == 12


@pytest.mark.parametrize(("away", "numbers"), [(4.0, []), (7.0, [3])])
def test_a_class_that_comes_back_is_proposed_only_where_counting_agrees(away, numbers):
    found = gathered(away)
    run = Discovery(found)
    answers = torch.tensor(run.assignments()["number"].tolist())
    assert (answers == 3).sum() == 40
    assert find_doubtful(run.classes, answers) == {}, "it comes back in every half"
    assert watch.agreed(found) == {*numbers}
    assert watch.supported(run) == numbers


def test_a_class_that_counting_agrees_to_is_not_proposed_where_it_does_not_come_back(monkeypatch):
    monkeypatch.setattr(watch, "find_doubtful", lambda now, answers: {3: 0.4})
    assert watch.supported(Discovery(gathered(7.0))) == []


@pytest.mark.parametrize(
    ("holds", "chosen"),
    [
        ({3: [3], 2: [3], 1: [3]}, 1),  # one class each time, and the more images the fewer there are
        ({3: [3, 4], 2: [3, 4], 1: [3]}, 2),
        ({3: [3, 4, 5], 2: [3, 4], 1: [3]}, 3),
        ({3: [3], 2: [], 1: []}, 3),
        ({3: [], 2: [], 1: []}, 3),
    ],
)
def test_as_many_classes_are_proposed_as_hold_and_of_these_the_most_images(tmp_path, monkeypatch, holds, chosen):
    """Three are counted: whoever looks for too many cuts a class in pieces, which no half of the images shows again."""
    found, written = gathered(7.0), []

    def discovered(*, classes, output, overwrite, **_):
        assert overwrite == (output is not None)
        if output is not None:
            written.append(classes or 3)
        return Discovery(replace(found, clusters=clusters_of(found.features, classes or 3), numbers=()))

    monkeypatch.setattr(watch, "discover", discovered)
    monkeypatch.setattr(watch, "supported", lambda run: holds[len(run.found.numbers) - 2])
    teller = classifier.Classifier(found.model)
    run, numbers = watch.look_for_classes(teller, tmp_path / "pool.csv", tmp_path / "proposal", watch.FROZEN, silent)
    assert (len(run.found.numbers) - 2, numbers) == (chosen, holds[chosen])
    assert written[-1] == chosen


def test_killed_at_any_write_while_it_proposes_and_run_again_it_has_proposed_once(tmp_path, monkeypatch):
    found, images = gathered(7.0), {f"{number}.png": Stamp(number, number) for number in range(40)}
    with seeded("proposes"):
        found = replace(found, model=Model(Adapter(4, 3), 28, 1, found.model.classes))
    teller = classifier.Classifier(found.model)

    def discovered(*, unlabelled, output, overwrite, **_):
        run = Discovery(replace(found, listing=Listing.of(pd.read_csv(unlabelled)["path"].tolist())))
        run.save(output, overwrite=overwrite)
        return run

    def go_on(place):
        state = read_state(place)
        if not state.proposed:
            watch.propose(teller, tmp_path / "camera", images, place, state, watch.FROZEN, silent)
        return read_state(place)

    monkeypatch.setattr(watch, "discover", discovered)
    monkeypatch.setattr("newfound.discovery.result.render_report", lambda now: str(now.names))
    lives, place = [], tmp_path / "state"
    place.mkdir()
    with witnessed(lambda: lives.append(shutil.copytree(place, tmp_path / str(len(lives))))):
        go_on(place)
    assert len(lives) > 20
    for life in [*lives, place]:
        state = go_on(life)
        assert (state.proposals, len(state.proposed), state.tried) == (1, 40, 0)
        assert [path.name for path in sorted(life.glob("proposal-*"))] == ["proposal-1"]
        assert Discovery.load(life / "proposal-1").found.proposed == (3,)


def test_a_pool_of_all_sorts_is_not_proposed(seeing, tmp_path, unsure):
    sorts = load_doodles("known")
    (tmp_path / "camera").mkdir()
    for kind in range(24):  # one drawing each
        Image.fromarray(sorts.pixels[100 * kind, 0].numpy()).resize((56, 56)).save(tmp_path / "camera" / f"{kind}.png")
    _, said = look(seeing, tmp_path, "seeing")
    assert "hold no new one yet" in said
    assert not [*(tmp_path / "state").glob("proposal-*")]
    assert pd.read_csv(tmp_path / "state" / "tries.csv")["classes"].tolist() == [0]
    _, said = look(seeing, tmp_path, "seeing")
    assert "hold no new" not in said
    assert os.listdir(tmp_path / "camera")  # noqa: PTH208  (nothing is taken away)
