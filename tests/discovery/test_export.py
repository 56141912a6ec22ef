"""What leaves a discovery for other tools."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
from PIL import ExifTags, Image

from newfound.cli import app
from newfound.data.decoding import Box
from newfound.discovery.edits import Edit, classes
from newfound.discovery.export import FORMATS, export, plan_folders
from newfound.discovery.result import Discovery
from newfound.discovery.tables import UNSURE, read_csv, tabulate_assignments
from newfound.errors import InputError
from tests.discovery.made import CAT, FIRST, SECOND, THIRD, make_found
from tests.discovery.test_killed import content, witnessed


@pytest.fixture
def found(tmp_path):
    """A discovery whose images are really there, each of a colour of its own, some in folders and of one name."""
    made = make_found()
    names = tuple(f"{row % 2}/{row // 2}.png" for row in range(44))
    for row, name in enumerate(names):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), (row, 0, 0)).save(path)
    return replace(made, listing=replace(made.listing, root=tmp_path / "images", names=names))


def colours(folder):
    """Which images, told by their colour, lie in every folder."""
    return {
        place.name: {look(file, lambda image: image.getpixel((0, 0))[0]) for file in place.iterdir()}
        for place in folder.iterdir()
    }


def look(file, how):
    with Image.open(file) as image:
        return how(image)


def expected(now):
    table = tabulate_assignments(now)
    return {name: set(rows) for name, rows in table.groupby("class").groups.items()}


@pytest.mark.parametrize("link", [False, True])
def test_folders_hold_the_images_of_their_classes(found, tmp_path, link):
    now = classes(found, [Edit("rename", (FIRST,), names=("sea pen",)), Edit("set aside", rows=(0,))])
    out = export(now, "folders", tmp_path / "out", link=link)
    assert colours(out) == expected(now)
    assert {"sea pen", "set aside", "unsure"} <= {*expected(now)}
    assert all(file.is_symlink() == link for folder in out.iterdir() for file in folder.iterdir())


KILLED = """
import os, shutil, signal, sys
from newfound import Discovery

copied = []

def copy(*names):
    copied.append(names)
    if len(copied) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

shutil.copy2 = copy
Discovery.load(sys.argv[1]).export("folders", sys.argv[2])
"""


def test_a_killed_export_to_folders_leaves_none_and_the_next_is_whole(found, tmp_path):
    run, now = Discovery(found), classes(found)
    run.save(tmp_path / "run")
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "run", tmp_path / "out"], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "out").exists()
    out = run.export("folders", tmp_path / "out")
    assert {name: set(rows) for name, rows in plan_folders(now).items()} == colours(out)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_the_plan_of_folders_is_what_is_written(found, tmp_path):
    now = classes(found)
    out = export(now, "folders", tmp_path / "out")
    assert {name: set(rows) for name, rows in plan_folders(now).items()} == colours(out)


def test_names_that_no_folder_can_have_are_mended_and_stay_apart(found, tmp_path):
    now = classes(
        found,
        [
            Edit("rename", (CAT,), names=("../a/b",)),
            Edit("rename", (FIRST,), names=("..?a?b",)),
            Edit("rename", (SECOND,), names=("...",)),
        ],
    )
    out = export(now, "folders", tmp_path / "out")
    assert sorted(path.name for path in out.iterdir()) == ["_", "_a_b", "_a_b (new)", "new-4", "unsure"]
    assert sum(map(len, colours(out).values())) == 44
    assert {path.name for path in tmp_path.iterdir()} == {"images", "out"}


def test_classes_that_only_differ_in_signs_that_folders_cannot_have_lie_in_folders_of_their_own(found):
    called = dict(zip((CAT, FIRST, SECOND, THIRD), ("a?b", "a*b", "a|b", "A:B"), strict=True))
    now = classes(found, [Edit("rename", (number,), names=(name,)) for number, name in called.items()])
    table = tabulate_assignments(now)
    assert sorted(plan_folders(now).values()) == sorted(list(rows) for rows in table.groupby("number").groups.values())


def test_a_class_that_is_called_unsure_does_not_lie_with_unsure_images(found):
    now = classes(found, [Edit("rename", (FIRST,), names=("unsure",))])
    table = tabulate_assignments(now)
    assert plan_folders(now)["unsure"] == [*table.index[table["number"] == UNSURE]]
    assert plan_folders(now)["unsure (new)"] == [*table.index[table["number"] == FIRST]]


def test_long_names_are_cut_where_a_file_system_ends(found, tmp_path):
    now = classes(found, [Edit("rename", (FIRST,), names=("ä" * 300,)), Edit("rename", (SECOND,), names=("ä" * 301,))])
    assert len(colours(export(now, "folders", tmp_path / "out"))) == len(expected(now))


def test_images_of_one_name_that_is_as_long_as_can_be_lie_side_by_side(found, tmp_path):
    long, root = f"{'ä' * 125}x.png", found.listing.root
    names = [*found.listing.names]
    for row in (0, 1):
        (root / names[row]).rename(root / f"{row}" / long)
        names[row] = f"{row}/{long}"
    found = replace(found, listing=replace(found.listing, names=tuple(names)))
    now = classes(found, [Edit("move", (CAT,), rows=(0, 1))])
    there = {path.name for path in (export(now, "folders", tmp_path / "out") / "cat").iterdir()}
    assert {long, f"{'ä' * 124}-2.png"} <= there
    assert len(there) == len(now.rows(CAT))


def test_where_an_image_cannot_be_written_nothing_is_left(found, tmp_path):
    (tmp_path / "images" / "1" / "21.png").write_text("no image")
    boxes = (None,) * 43 + (Box(1, 2, 3, 4),)
    with pytest.raises(InputError, match="can be read no more: not an image"):
        export(classes(replace(found, listing=replace(found.listing, boxes=boxes))), "folders", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_boxes_are_measured_in_the_upright_image_and_cut_off_where_that_ends(found, tmp_path):
    turned = Image.new("CMYK", (8, 6))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # upright it is 6 wide and 8 high
    names = ("turned.jpg", *found.listing.names[1:])
    turned.save(tmp_path / "images" / "turned.jpg", exif=exif)
    for box, size in ((Box(0, 2, 6, 6), (6, 6)), (Box(4, 6, 9, 9), (2, 2)), (Box(2.6, 3, 0.2, 0.3), (1, 1))):
        boxed = replace(found, listing=replace(found.listing, names=names, boxes=(box, *(None,) * 43)))
        out = export(classes(boxed), "folders", tmp_path / f"{box.x}")
        (cut,) = out.glob("*/turned.png")
        assert look(cut, lambda image: image.size) == size
        coco = json.loads(export(classes(boxed), "coco", tmp_path / f"{box.x}.json").read_text())
        assert (coco["images"][0]["width"], coco["images"][0]["height"]) == (6, 8)


def test_of_boxes_what_is_in_them_is_written(found, tmp_path):
    boxes = tuple(Box(1, 2, 3, 4) if row == 0 else None for row in range(44))
    out = export(
        classes(replace(found, listing=replace(found.listing, boxes=boxes))), "folders", tmp_path / "out", link=True
    )
    cut = [file for folder in out.iterdir() for file in folder.iterdir() if not file.is_symlink()]
    assert [look(file, lambda image: image.size) for file in cut] == [(3, 4)]


@pytest.mark.parametrize("mode", ["LAB", "CMYK", "RGBX", "I;16", "1", "P", "LA"])
def test_whatever_colours_a_file_has_what_is_in_a_box_is_a_picture(found, tmp_path, mode):
    Image.new(mode, (8, 6)).save(tmp_path / "images" / "odd.tif")
    names, boxes = ("odd.tif", *found.listing.names[1:]), (Box(1, 2, 3, 4), *(None,) * 43)
    out = export(
        classes(replace(found, listing=replace(found.listing, names=names, boxes=boxes))), "folders", tmp_path / "out"
    )
    (cut,) = out.glob("*/odd.png")
    assert look(cut, lambda image: image.size) == (3, 4)


@pytest.mark.parametrize("to", FORMATS)
def test_killed_at_any_write_an_export_is_not_there_or_whole_and_the_next_one_is(found, tmp_path, to):
    now, place, lives = classes(found), tmp_path / "whole" / "out", []

    def die():
        lives.append(tmp_path / str(len(lives)))
        shutil.copytree(tmp_path / "whole", lives[-1])

    (tmp_path / "whole").mkdir()
    with witnessed(die):
        export(now, to, place)
    expected = content(tmp_path / "whole")
    assert {name.split("/")[0] for name in expected} == {"out"}
    assert lives
    for life in lives:
        assert (life / "out").exists() in (False, content(life) == expected)
        if not (life / "out").exists():
            export(now, to, life / "out")
        assert content(life) == expected, f"killed at write {life.name}"


def test_a_table_says_who_identified_what(found, tmp_path):
    now = classes(found, [Edit("accept", (CAT,), rows=(1, 2), by="Ada")])
    table = pd.read_csv(export(now, "csv", tmp_path / "out.csv"))
    assert table.loc[[1, 2], "identified_by"].tolist() == ["Ada", "Ada"]
    assert table.loc[[1, 2, 3], "verification"].tolist() == ["verified", "verified", "unverified"]
    assert list(table["path"]) == list(found.listing.names)


def test_coco_has_a_category_a_class_and_an_annotation_for_what_has_one(found, tmp_path):
    boxes = tuple(Box(1, 2, 3, 4) if row == 0 else None for row in range(44))
    boxed = replace(found, listing=replace(found.listing, boxes=boxes))
    now = classes(boxed, [Edit("set aside", rows=(43,))])
    coco = json.loads(export(now, "coco", tmp_path / "out.json").read_text())
    assert {each["id"]: each["name"] for each in coco["categories"]} == now.names
    names = {each["id"]: each["file_name"] for each in coco["images"]}
    table = tabulate_assignments(now)
    table = table[table["number"] > 0]
    said = {names[each["image_id"]]: each["category_id"] for each in coco["annotations"]}
    assert said == dict(zip(table["path"], table["number"], strict=True))
    shown = {names[each["image_id"]]: each["bbox"] for each in coco["annotations"]}
    assert shown["0/0.png"] == [1, 2, 3, 4]
    assert shown["1/0.png"] == [0, 0, 8, 6]


@pytest.fixture
def boxed(found):
    """One image is a box in its file, one of a dive; one was moved by a person, one set aside."""
    boxes = tuple(Box(1, 2, 3, 4) if row == 0 else None for row in range(44))
    groups = tuple("dive 7" if row == 2 else "" for row in range(44))
    listing = replace(found.listing, boxes=boxes, groups=groups)
    edits = [Edit("move", (FIRST,), rows=(1,), by="Ana"), Edit("set aside", rows=(43,), by="Ana")]
    return classes(replace(found, listing=listing), edits)


def test_parquet_holds_the_table_of_csv(boxed, tmp_path):
    table = pd.read_parquet(export(boxed, "parquet", tmp_path / "out.parquet"))
    csv = pd.read_csv(export(boxed, "csv", tmp_path / "out.csv"), keep_default_na=False, na_values={"x": "", "y": ""})
    assert [*table] == [*csv]
    for column in ("path", "class", "identified_by", "verification", "group"):
        assert table[column].tolist() == csv[column].tolist()


def test_parquet_without_its_library_says_what_to_install(boxed, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pip install pyarrow"):
        export(boxed, "parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_fathomnet_has_a_row_for_what_has_a_class_with_its_box_or_the_whole_frame(boxed, tmp_path):
    table = pd.read_csv(export(boxed, "fathomnet", tmp_path / "out.csv")).set_index("image")
    said = tabulate_assignments(boxed).set_index("path")
    said = said[said["number"] > 0]
    assert table["concept"].to_dict() == said["class"].to_dict()
    assert table["observer"].to_dict() == said["identified_by"].to_dict()
    assert table.loc["1/0.png", "verification"] == "verified"
    assert table.loc["0/0.png", ["x", "y", "width", "height"]].tolist() == [1, 2, 3, 4]
    assert table.loc["1/0.png", ["x", "y", "width", "height"]].tolist() == [0, 0, 8, 6]
    assert table.loc["0/1.png", "group"] == "dive 7"


def test_darwin_core_says_who_identified_what_and_whether_a_person_verified_it(boxed, tmp_path):
    table = pd.read_csv(export(boxed, "darwin-core", tmp_path / "out.csv")).set_index("associatedMedia")
    said = tabulate_assignments(boxed).set_index("path")
    said = said[said["number"] > 0]
    assert table["verbatimIdentification"].to_dict() == said["class"].to_dict()
    assert table.loc["1/0.png", ["identifiedBy", "identificationVerificationStatus"]].tolist() == ["Ana", "verified"]
    assert {*table["identifiedBy"]} == {"Ana", "newfound"}
    more = json.loads(table.loc["0/0.png", "dynamicProperties"])
    assert more["boundingBox"] == [1, 2, 3, 4]
    assert more["confidence"] == said.loc["0/0.png", "confidence"]
    assert table.loc["0/1.png", "eventID"] == "dive 7"
    assert table["occurrenceID"].is_unique


@pytest.mark.parametrize(
    ("to", "column"), [("csv", "class"), ("fathomnet", "concept"), ("darwin-core", "verbatimIdentification")]
)
def test_every_exported_table_is_read_back_with_the_very_names(found, tmp_path, to, column):
    now = classes(found, [Edit("rename", (FIRST,), names=("=1+1",)), Edit("rename", (SECOND,), names=("007",))])
    back = read_csv(export(now, to, tmp_path / "out.csv"))
    called = set(tabulate_assignments(now)["class"])
    assert {"=1+1", "007"} < {*back[column]} <= called


@pytest.mark.parametrize("to", ["fathomnet", "darwin-core"])
def test_tables_of_nothing_have_their_columns(boxed, tmp_path, to):
    now = classes(boxed.found, [Edit("set aside", rows=tuple(range(44)))])
    table = pd.read_csv(export(now, to, tmp_path / "out.csv"))
    assert len(table) == 0
    assert [*table] == [*pd.read_csv(export(boxed, to, tmp_path / "full.csv"))]


def test_coco_says_the_group_and_whether_a_person_verified_it(boxed, tmp_path):
    told = json.loads(export(boxed, "coco", tmp_path / "out.json").read_text())["annotations"]
    assert {each["id"]: each["group"] for each in told if "group" in each} == {3: "dive 7"}
    assert [each["id"] for each in told if each["verification"] == "verified"] == [2]


def test_coco_of_images_from_memory_has_all_but_their_sizes(found, tmp_path):
    whole = json.loads(export(classes(found), "coco", tmp_path / "whole.json").read_text())
    loose = classes(replace(found, listing=replace(found.listing, root=None)))
    told = json.loads(export(loose, "coco", tmp_path / "out.json").read_text())
    assert told["images"] == [{"id": each["id"], "file_name": each["file_name"]} for each in whole["images"]]
    frame = {"bbox": [0, 0, 0, 0], "area": 0}
    assert told["annotations"] == [each | frame for each in whole["annotations"]]


@pytest.mark.parametrize("to", FORMATS)
def test_what_is_there_is_never_overwritten(found, tmp_path, to):
    place = tmp_path / "there"
    place.mkdir()
    (place / "precious").touch()
    with pytest.raises(InputError, match="nothing is overwritten"):
        export(classes(found), to, place)
    with pytest.raises(InputError, match="nothing is overwritten"):
        export(classes(found), to, place / "precious")


@pytest.mark.parametrize("to", sorted({*FORMATS} - {"folders"}))
def test_a_file_is_not_written_in_place_of_an_empty_folder(found, tmp_path, to):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nothing is overwritten"):
        export(classes(found), to, tmp_path / "empty")


def test_formats_that_are_not_there_and_links_in_a_file_are_refused(found, tmp_path):
    with pytest.raises(InputError, match=r"no format called 'folder'.*Did you mean folders\?"):
        export(classes(found), "folder", tmp_path / "out")
    with pytest.raises(InputError, match="--link"):
        export(classes(found), "csv", tmp_path / "out", link=True)


def test_images_that_have_moved_are_missed_before_anything_is_written(found, tmp_path):
    (tmp_path / "images").rename(tmp_path / "moved")
    with pytest.raises(InputError, match="44 of 44 images"):
        export(classes(found), "folders", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    out = export(classes(found), "folders", tmp_path / "out", images=tmp_path / "moved")
    assert sum(map(len, colours(out).values())) == 44


def command(*words):
    app(["export", *map(str, words)], result_action="return_value", exit_on_error=False)


def test_the_command_says_what_it_would_write_and_then_writes_it(found, tmp_path, capsys):
    Discovery(found).save(tmp_path / "run")
    out = tmp_path / f"a name that leaves no room beside it, {'x' * 60} [1]"
    command(tmp_path / "run", "--to", "folders", "-o", out, "--preview")
    said = capsys.readouterr().out
    assert {"new-2", "unsure"} <= {*said.split()}
    assert "[1]" in said
    with pytest.raises(InputError, match="--preview"):
        command(tmp_path / "run", "--to", "csv", "-o", out, "--preview")
    assert not out.exists()
    command(tmp_path / "run", "--to", "folders", "-o", out)
    assert colours(out) == expected(classes(found))


def test_the_command_exports_classes_as_people_left_them(found, tmp_path):
    run = Discovery(found)
    run.rename(FIRST, "sea pen")
    run.save(tmp_path / "run")
    command(tmp_path / "run", "--to", "csv", "-o", tmp_path / "out.csv")
    assert "sea pen" in set(pd.read_csv(tmp_path / "out.csv")["class"])
