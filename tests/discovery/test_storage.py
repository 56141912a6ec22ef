"""The run folder: what is written is what is read, also what earlier versions wrote."""

import json
import math
import shutil
from dataclasses import fields, replace

import pandas as pd
import pytest
import tomli_w
import torch

from newfound.discovery import storage
from newfound.discovery.edits import Edit, classes
from newfound.discovery.found import Compared, Found
from newfound.discovery.settings import Run
from newfound.discovery.storage import locate, read_run, write_found, write_tables
from newfound.discovery.tables import read_csv, tabulate_assignments, tabulate_classes
from newfound.errors import InputError
from newfound.functional.counting import Candidate
from newfound.functional.rehearsal import Expected, Way
from newfound.schema import MOST
from newfound.training.moments import Moment
from tests.discovery.made import CALIBRATION, FIRST, KNOWN, SECOND, add_edits, make_found
from tests.discovery.version_3 import COUNT, write_version_3


def make_whole(**other):
    """A discovery in which nothing is left out."""
    moments = [
        Moment(torch.arange(5), torch.zeros(5, 2), torch.ones(5, 2), torch.zeros(3, 2), torch.ones(3, 2))
        for _ in range(2)
    ]
    return make_found(
        duplicates={3: 1},
        history=({"epoch": 1.0, "spacing": 0.5, "seconds": 2.0},),
        count=COUNT,
        truth=tuple("ab"[row % 2] for row in range(44)),
        moments=tuple(moments),
        comparison=(Compared("k-means", 0.5, 0.25),),
        facts={"method": "spacing", "seed": "0"},
        way=Way("eye", 0.5, "spacing", "discriminant"),
        expected=Expected(0.5, 0.25, 0.75, 4, 0.125),
        proposed=(SECOND,),
        **other,
    )


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.name != "model")
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def test_all_that_was_found_is_read_again(tmp_path):
    found = make_whole()
    write_found(found, tmp_path)
    loaded, edits, written = read_run(tmp_path)
    assert same(loaded, found)
    assert loaded.model.classes == KNOWN
    assert (edits, written) == ([], True)


def test_every_setting_that_is_taken_is_read_again_however_large(tmp_path):
    for place, run in (
        ("large", Run(seed=MOST, batch=MOST, epochs=MOST)),
        ("small", Run(seed=-MOST, batch=2, rate=1e-300)),
    ):
        write_found(make_whole(run=run), tmp_path / place)
        assert read_run(tmp_path / place)[0].run == run
    for name, value in (("seed", MOST + 1), ("seed", -MOST - 1), ("batch", MOST + 1), ("epochs", MOST + 1)):
        with pytest.raises(InputError, match=rf"--{name} is {value}\. Needed: .* at most 2⁵³"):
            Run(**{name: value})


def test_names_are_made_a_few_times_however_many_images_there_are(tmp_path, monkeypatch):
    asked, names = [], Found.names.fget
    monkeypatch.setattr(Found, "names", property(lambda found: asked.append(found) or names(found)))
    write_found(replace(make_whole(), truth=None), tmp_path)
    assert 0 < len(asked) < 5


def test_what_people_said_is_read_again_and_tables_are_of_that(tmp_path):
    found, said = make_whole(), [Edit("merge", (FIRST, SECOND)), Edit("rename", (FIRST,), names=("sea pen",), by="Ada")]
    write_found(found, tmp_path)
    add_edits(tmp_path, said)
    write_tables(classes(found, said), tmp_path)
    loaded, edits, _ = read_run(tmp_path)
    assert edits == said
    now = classes(loaded, edits)
    for name, table in ((storage.ASSIGNMENTS, tabulate_assignments(now)), (storage.CLASSES, tabulate_classes(now))):
        pd.testing.assert_frame_equal(read_csv(tmp_path / name), table)


def test_nan_in_what_spoke_for_a_number_is_read_again(tmp_path):
    unlabelled = Candidate(2, math.nan, math.nan, 0.1)
    write_found(replace(make_whole(), count=COUNT._replace(curve=(unlabelled,))), tmp_path)
    loaded, _, _ = read_run(tmp_path)
    assert [math.isnan(value) for value in loaded.count.curve[0]] == [False, True, True, False]
    assert "NaN" not in (tmp_path / storage.DISCOVERY).read_text()


def test_every_file_that_is_written_is_one_that_a_new_run_clears(tmp_path):
    found = make_whole()
    write_found(found, tmp_path)
    add_edits(tmp_path, [Edit("undo")])
    write_tables(classes(found), tmp_path)
    written = {path.name for path in tmp_path.iterdir() if path.is_file() and not path.name.endswith(".lock")}
    assert written <= {*storage.RESULTS}


@pytest.mark.parametrize("version", [2, 99, None])
def test_a_run_of_another_version_is_refused(tmp_path, version):
    write_found(make_whole(), tmp_path)
    path = tmp_path / storage.DISCOVERY
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    with pytest.raises(InputError, match=f"version {version}"):
        read_run(tmp_path)


def test_a_folder_of_runs_is_refused_and_says_where_they_are(tmp_path):
    with pytest.raises(InputError, match=r"has no discovery\.json\. Give a folder"):
        read_run(tmp_path)
    write_found(make_whole(), tmp_path / "proposal-1")
    with pytest.raises(InputError, match=r"Runs are in .*proposal-1\. Give a folder"):
        read_run(tmp_path)


def test_a_damaged_run_is_refused(tmp_path):
    write_found(make_whole(), tmp_path)
    path = tmp_path / storage.DISCOVERY
    text = path.read_text()
    path.write_text(text[:100])
    with pytest.raises(InputError, match="damaged"):
        read_run(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="no finished run"):
        read_run(tmp_path)


def test_a_run_of_version_3_is_read_with_its_numbers(tmp_path):
    found = make_found()
    names = {"1": "new-2", "2": "new-3", "3": "new-4", "4": "cat", "5": "new-1"}
    write_version_3(tmp_path, found, [1, 2, 3, 4, 5], names)
    loaded, edits, written = read_run(tmp_path)
    assert (edits, written) == ([], False)
    assert same(loaded.clusters, found.clusters)
    assert loaded.numbers == (4, 5, 1, 2, 3)
    assert loaded.count == COUNT
    assert (loaded.calibration, loaded.threshold, loaded.duplicates) == (CALIBRATION, 0.6, {3: 1})
    now = classes(loaded, edits)
    assert now.names == {int(number): name for number, name in names.items()}
    assert [now.kind(number) for number in (1, 2, 3, 4, 5)] == ["new", "new", "new", "known", "known"]
    ours, theirs = tabulate_assignments(classes(found)), tabulate_assignments(now)
    pd.testing.assert_frame_equal(ours.drop(columns="number"), theirs.drop(columns=["number"]).assign(duplicate_of=""))


def test_what_was_merged_and_renamed_in_version_3_is_told_by_edits_and_can_be_undone(tmp_path):
    write_version_3(tmp_path, make_found(), [1, 2, 3, 2, 5], {"1": "crab", "2": "cat", "3": "new-4", "5": "new-1"})
    found, edits, _ = read_run(tmp_path)
    now = classes(found, edits)
    assert now.names == {1: "crab", 2: "cat", 3: "new-4", 5: "new-1"}
    assert now.kind(2) == "known"
    assert {edit.action for edit in edits} == {"merge", "rename"}
    assert classes(found, [*edits, *[Edit("undo")] * len(edits)]).names[4] == "cat"


def test_of_version_3_the_settings_say_where_the_images_are(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    names = {"1": "new-2", "2": "new-3", "3": "new-4", "4": "cat", "5": "new-1"}
    write_version_3(tmp_path / "run", make_found(), [1, 2, 3, 4, 5], names)
    (tmp_path / "run" / "config.toml").write_text(tomli_w.dumps({"discover": {"unlabelled": str(images)}}))
    assert read_run(tmp_path / "run")[0].listing.root == images


def make_on_disk(folder):
    """A discovery whose images lie in a folder."""
    folder.mkdir(parents=True)
    found = make_found()
    for name in found.listing.names:
        (folder / name).touch()
    return replace(found, listing=replace(found.listing, root=folder))


def test_a_run_finds_its_images_again_where_both_have_moved_together(tmp_path):
    found = make_on_disk(tmp_path / "trip" / "images")
    write_found(found, tmp_path / "trip" / "run")
    shutil.move(tmp_path / "trip", tmp_path / "archive")
    loaded, _, _ = read_run(tmp_path / "archive" / "run")
    assert loaded.listing.root == tmp_path / "archive" / "images"
    assert locate(loaded).listing.files[3] == tmp_path / "archive" / "images" / "3.png"


def test_and_where_the_run_alone_has_moved(tmp_path):
    found = make_on_disk(tmp_path / "images")
    write_found(found, tmp_path / "runs" / "run")
    (tmp_path / "far" / "away").mkdir(parents=True)
    shutil.move(tmp_path / "runs" / "run", tmp_path / "far" / "away" / "run")
    loaded, _, _ = read_run(tmp_path / "far" / "away" / "run")
    assert loaded.listing.root == tmp_path / "images"
    locate(loaded)


def test_images_that_have_moved_are_missed_until_somebody_says_where_they_are(tmp_path):
    found = make_on_disk(tmp_path / "images")
    shutil.move(tmp_path / "images", tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"44 of 44 images are not in .*images any more \(first: '0\.png'\)"):
        locate(found)
    assert locate(found, tmp_path / "elsewhere").listing.root == tmp_path / "elsewhere"
    (tmp_path / "elsewhere" / "7.png").unlink()
    with pytest.raises(InputError, match=r"1 of 44 images .* \(first: '7\.png'\)"):
        locate(found, tmp_path / "elsewhere")


def test_images_from_memory_lie_in_no_folder():
    with pytest.raises(InputError, match="were in memory"):
        locate(make_found())
