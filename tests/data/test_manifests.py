"""Manifests as lists of files; and what people write into them instead."""

import csv
import json
import os
import random
from io import StringIO
from pathlib import Path

import pytest
import torch
from PIL import Image

from newfound.data.decoding import Box
from newfound.data.listing import list_images, read_truth
from newfound.data.pixels import load_images
from newfound.errors import InputError
from tests.data.pictures import locked, picture, save
from tests.data.test_pixels import AWKWARD


def write(path, *rows, separator=",", start="", end="\n"):
    """A table, as a spreadsheet would save it."""
    content = StringIO()
    csv.writer(content, delimiter=separator, lineterminator=end).writerows(rows)
    path.write_bytes((start + content.getvalue()).encode())
    return path


def write_lines(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def write_json(path, content):
    path.write_text(json.dumps(content))
    return path


def refusal(place, labelled=True):
    with pytest.raises(InputError) as error:
        list_images(place, labelled=labelled)
    assert str(place) in str(error.value)
    return str(error.value)


@pytest.fixture
def photos(tmp_path):
    """Three photos, and a folder in which to put what lists them."""
    for name in ("a.png", "b.png", "c/d.png"):
        save(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("path", ["path", "file_name", "image", "filename", " Path "])
@pytest.mark.parametrize("label", ["label", "class", "concept", "Label"])
def test_a_table_may_call_its_columns_by_several_names(photos, path, label):
    place = write(photos / "list.csv", (label, "notes", path), ("whelk", "x", "b.png"), ("crab", "", "a.png"))
    listed = list_images(place, labelled=True)
    assert listed.names == ("b.png", "a.png")
    assert listed.files == (photos / "b.png", photos / "a.png")
    assert [listed.classes[label] for label in listed.labels] == ["whelk", "crab"]


def test_the_first_name_of_a_column_counts(photos):
    place = write(photos / "list.csv", ("image", "concept", "path", "label"), ("?", "?", "a.png", "crab"))
    listed = list_images(place, labelled=True)
    assert listed.names == ("a.png",)
    assert listed.classes == ("crab",)


def test_fathomnet_s_table_is_read_as_it_is(photos):
    rows = (
        "concept,image,x,y,width,height",
        "Sebastes,a.png,1,2.5,3,4",
        "Anoplopoma,a.png,5,6,7,8",
        "Sebastes,b.png,,,,",
    )
    place = photos / "fathomnet.csv"
    place.write_text("\n".join(rows))
    listed = list_images(place, labelled=True)
    assert listed.names == ("a.png", "a.png", "b.png")
    assert listed.boxes == (Box(1, 2.5, 3, 4), Box(5, 6, 7, 8), None)
    assert listed.classes == ("Anoplopoma", "Sebastes")
    assert listed.labels.tolist() == [1, 0, 1]
    assert listed.skipped == ()


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("CSV", ","), ("tsv", "\t")])
def test_excel_s_marks_and_line_ends_are_fine(photos, ending, separator, start, end):
    rows = ("path", "label"), ("a.png", "crab"), ("", ""), ("b.png", "whelk")
    listed = list_images(
        write(photos / f"list.{ending}", *rows, separator=separator, start=start, end=end), labelled=True
    )
    assert listed.names == ("a.png", "b.png")
    assert listed.classes == ("crab", "whelk")
    assert listed.skipped == ()


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json"])
def test_names_labels_and_groups_may_hold_anything(tmp_path, ending):
    for name in AWKWARD:
        save(tmp_path / name)
    place, rows = tmp_path / f"list.{ending}", [(name, name[::-1], name * 2) for name in AWKWARD]
    match ending:
        case "json":
            write_coco(place, [(name, None, label, group) for name, label, group in rows])
        case "jsonl":
            write_lines(place, *[dict(zip(("path", "label", "group"), row, strict=True)) for row in rows])
        case _:
            write(place, ("path", "label", "group"), *rows, separator="\t" if ending == "tsv" else ",", end="\r\n")
    listed = list_images(place, labelled=True)
    assert listed.names == AWKWARD
    assert [listed.classes[label] for label in listed.labels] == [name[::-1] for name in AWKWARD]
    assert listed.groups == tuple(name * 2 for name in AWKWARD)
    assert not load_images(listed, 4).listing.skipped


def test_a_column_without_a_name_is_no_label(photos):
    place = write(photos / "list.csv", ("", "path"), (0, "a.png"), (1, "b.png"), (2, "./a.png"))
    listed = list_images(place, labelled=False)
    assert listed.names == ("a.png", "b.png")
    assert listed.skipped == ("'./a.png' in row 4: the same as row 2",)


def test_paths_start_at_the_manifest_or_at_the_root(photos, tmp_path_factory, monkeypatch):
    far = save(tmp_path_factory.mktemp("elsewhere") / "far.png")
    (photos / "lists").mkdir()
    place = write(photos / "lists/list.csv", ("path",), ("../a.png",), (far,), ("../c/./d.png",))
    monkeypatch.chdir(photos / "c")
    listed = list_images(place, labelled=False)
    assert listed.names == ("../a.png", str(far), "../c/./d.png")
    assert [file.resolve() for file in listed.files] == [photos / "a.png", far, photos / "c/d.png"]
    assert list_images("../lists/list.csv", labelled=False).names == listed.names


def test_a_tilde_means_home(photos, monkeypatch):
    monkeypatch.setenv("HOME", str(photos))
    monkeypatch.setenv("USERPROFILE", str(photos))
    write(photos / "list.csv", ("path", "label"), ("a.png", "crab"))
    listed = list_images("~/list.csv", labelled=False)
    assert listed.files == (photos / "a.png",)
    assert read_truth("~/list.csv", listed.names, listed.boxes)[1] == ("crab",)


def test_lines_of_json_may_lack_columns_and_hold_numbers(photos):
    place = write_lines(
        photos / "list.jsonl",
        {"file_name": "a.png", "label": 7, "x": 1, "y": 2, "width": 3, "height": 4.5, "group": 12},
        {"label": "crab", "file_name": "b.png", "group": None, "more": [{"deep": 1}]},
        {"file_name": "c/d.png", "label": "crab\u2028 or\x85 not "},
    )
    place.write_text(place.read_text().replace("\n", "\r\n\n").replace(r"\u2028", "\u2028").replace(r"\u0085", "\x85"))
    listed = list_images(place, labelled=True)
    assert listed.boxes == (Box(1, 2, 3, 4.5), None, None)
    assert [listed.classes[label] for label in listed.labels] == ["7", "crab", "crab\u2028 or\x85 not"]
    assert listed.groups == ("12", "", "")


def write_coco(place, rows, **more):
    """A COCO file of (name, box, label, group)."""
    names, labels = list(dict.fromkeys(row[0] for row in rows)), list(dict.fromkeys(row[2] for row in rows))
    groups = {name: group for name, _, _, group in rows}
    images = [{"id": f"i{place}", "file_name": name, "group": groups[name]} for place, name in enumerate(names)]
    annotations = [
        {"id": place, "image_id": f"i{names.index(name)}", "category_id": labels.index(label)}
        | ({} if box is None else {"bbox": list(box)})
        for place, (name, box, label, _) in enumerate(rows)
    ]
    categories = [{"id": place, "name": label} for place, label in enumerate(labels)]
    return write_json(place, {"images": images, "annotations": annotations, "categories": categories} | more)


COCO = {
    "info": {"year": 2024},
    "images": [
        {"id": 30, "file_name": "b.png", "width": 12, "height": 12, "seq_id": "burst 3", "seq_num_frames": 2},
        {"id": 10, "file_name": "a.png", "width": 12, "height": 12, "sequence": 8},
        {"id": 20, "file_name": "c/d.png", "width": 12, "height": 12},
    ],
    "annotations": [
        {"id": 1, "image_id": 10, "category_id": 5, "bbox": [1, 2, 3, 4], "iscrowd": 0},
        {"id": 2, "image_id": 30, "category_id": 2},
        {"id": 3, "image_id": 10, "category_id": 2, "bbox": [5.5, 0, 2, 2]},
    ],
    "categories": [{"id": 2, "name": "whelk"}, {"id": 5, "name": "crab"}, {"id": 9, "name": "never seen"}],
}


def test_a_coco_file_has_a_picture_for_each_annotation(photos):
    listed = list_images(write_json(photos / "coco.json", COCO), labelled=True)
    assert listed.names == ("a.png", "b.png", "a.png")
    assert listed.files == tuple(photos / name for name in listed.names)
    assert listed.boxes == (Box(1, 2, 3, 4), None, Box(5.5, 0, 2, 2))
    assert listed.classes == ("crab", "whelk")
    assert listed.labels.tolist() == [0, 1, 1]
    assert listed.groups == ("8", "burst 3", "8")
    assert listed.skipped == ("'c/d.png' in images[2]: no label",)


def test_an_image_without_annotation_counts_where_labels_do_not(photos):
    listed = list_images(write_json(photos / "coco.json", COCO), labelled=False)
    assert listed.names == ("a.png", "b.png", "a.png", "c/d.png")
    assert listed.boxes[3] is None
    assert listed.labels.tolist() == [-1] * 4
    assert listed.classes == ()
    alone = write_json(photos / "images.json", {"images": COCO["images"]})
    assert list_images(alone, labelled=False).names == ("b.png", "a.png", "c/d.png")
    assert "None of the 3 entries" in refusal(alone, labelled=True)


def annotated(**changes):
    """COCO with its first annotation changed."""
    first, *others = COCO["annotations"]
    return COCO | {"annotations": [first | changes, *others]}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"image_id": 99}, "annotations[0]: no image has the id 99"),
        ({"image_id": [10]}, "annotations[0]: no image has the id [10]"),
        ({"category_id": 99}, "'a.png' in annotations[0]: no label"),
        ({"bbox": [1, 2, 3]}, "'a.png' in annotations[0]: a list where text or a number is needed"),
        ({"bbox": []}, "'a.png' in annotations[0]: a list where text or a number is needed"),
        ({"bbox": {"x": 1}}, "'a.png' in annotations[0]: a dict where text or a number is needed"),
        ({"bbox": [1, 2, 3, 4, 0.5]}, "'a.png' in annotations[0]: a list where text or a number is needed"),
        (
            {"bbox": [1, 2, 3, "wide"]},
            "'a.png' in annotations[0]: x, y, width, height are '1', '2', '3', 'wide'; needed",
        ),
        (
            {"bbox": [1, 2, 3, float("nan")]},
            "'a.png' in annotations[0]: x, y, width, height are '1', '2', '3', ''; needed",
        ),
    ],
)
def test_an_annotation_that_cannot_be_used_is_told(photos, changes, told):
    listed = list_images(write_json(photos / "coco.json", annotated(**changes)), labelled=True)
    assert len(listed) == 2
    assert listed.skipped[0].startswith(told)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([{"path": "a.png"}], "has no list of objects called images. Needed: a COCO file"),
        ({"a.png": "crab"}, "has no list of objects called images"),
        ({"images": {"1": "a.png"}}, "has no list of objects called images"),
        ({"images": ["a.png"]}, "has no list of objects called images"),
        (COCO | {"annotations": {"1": {}}}, "has no list of objects called annotations"),
        (COCO | {"categories": ["crab"]}, "has no list of objects called categories"),
        ({"images": [{"file_name": "a.png"}]}, "images[0] of "),
        ({"images": [{"id": 1, "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}]}, "has the id 1. Needed: an id"),
        (COCO | {"categories": [{"id": 2, "name": "crab"}] * 2}, "categories[1] of "),
        ({"images": []}, "lists no images. Needed: one or more"),
        ({"images": [{"id": 1}]}, "Found: images[0]: no path."),
    ],
)
def test_json_that_is_not_coco_is_refused(photos, content, found):
    assert found in refusal(write_json(photos / "coco.json", content), labelled=False)


BOXES = ("path", "label", "x", "y", "width", "height")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("gone.png", "crab"), "'gone.png' in row 3: does not exist"),
        (("a.png/b.png", "crab"), "'a.png/b.png' in row 3: does not exist"),
        (("https://x.org/a.png", "crab"), "'https://x.org/a.png' in row 3: does not exist"),
        (("c", "crab"), "'c' in row 3: is a folder, not an image"),
        (("x" * 300, "crab"), f"{'x' * 300!r} in row 3: File name too long"),
        (("a\0.png", "crab"), "'a\\x00.png' in row 3: embedded null byte"),
        (("", "crab"), "row 3: no path"),
        (("a.png",), "'a.png' in row 3: no label"),
        (("a.png", "  "), "'a.png' in row 3: no label"),
        (
            ("a.png", "crab", "1", "2", "3", "many"),
            "'a.png' in row 3: x, y, width, height are '1', '2', '3', 'many'; needed",
        ),
        (("a.png", "crab", "1", "2", "3"), "'a.png' in row 3: x, y, width, height are '1', '2', '3', ''; needed: four"),
        (("a.png", "crab", "nan", "2", "3", "4"), "'a.png' in row 3: x, y, width, height are 'nan', '2', '3', '4'"),
        (("a.png", "crab", "1", "-inf", "3", "4"), "'a.png' in row 3: x, y, width, height are '1', '-inf', '3', '4'"),
        (("a.png", "crab", "1", "2", "0", "4"), "'a.png' in row 3: x, y, width, height are '1', '2', '0', '4'"),
        (("a.png", "crab", "1", "2", "3", "-4"), "'a.png' in row 3: x, y, width, height are '1', '2', '3', '-4'"),
        (("a.png", "crab", "1", "2", "3", "1e400"), "'a.png' in row 3: x, y, width, height are '1', '2', '3', '1e400'"),
        (("a.png", "crab", "1", "2", "3", "4", "5"), "'a.png' in row 3: 7 values for 6 columns; put quotes"),
        (("b.png", "whelk"), "'b.png' in row 3: the same as row 2"),
        (("./c/../b.png", "whelk"), "'./c/../b.png' in row 3: the same as row 2"),
    ],
)
def test_a_row_that_cannot_be_used_is_told_with_its_number_and_the_others_stay(photos, row, told):
    place = write(photos / "list.csv", BOXES, ("b.png", "whelk"), row, ("c/d.png", "eel", -1, 0, 3.5, "4 ", ""))
    listed = list_images(place, labelled=True)
    assert listed.names == ("b.png", "c/d.png")
    assert listed.boxes == (None, Box(-1, 0, 3.5, 4))
    assert listed.classes == ("eel", "whelk")
    assert listed.labels.tolist() == [1, 0]
    assert len(listed.skipped) == 1
    assert listed.skipped[0].startswith(told)


@pytest.mark.parametrize("value", ["\ud800.png", "a.png\udce9"])
@pytest.mark.parametrize("column", ["path", "label", "group"])
def test_what_is_no_text_is_told(photos, column, value):
    rows = {"path": "a.png", "label": "crab", column: value}, {"path": "b.png", "label": "crab"}
    listed = list_images(write_lines(photos / "list.jsonl", *rows), labelled=True)
    assert listed.names == ("b.png",)
    assert listed.skipped[0].endswith("not valid text; rename it")
    "".join(listed.skipped).encode()


def test_rows_count_as_in_a_spreadsheet_though_a_name_holds_a_line_end(photos):
    save(photos / "two\nlines.png")
    rows = ("path",), (), ("two\nlines.png",), (" ",), ("gone.png",)
    assert list_images(write(photos / "list.csv", *rows), labelled=False).skipped == (
        "'gone.png' in row 5: does not exist",
    )


def raw(name, content):
    """A file with just these bytes."""

    def make(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return make


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (
            lambda folder: folder / "gone.csv",
            "does not exist. Needed: a folder of images, or a list of them ending in .csv",
        ),
        (raw("list.xlsx", b"PK"), "is a file. Needed: a folder of images, or a list of them ending in .csv .json"),
        (raw("list", b"a.png"), "is a file. Needed: a folder of images, or a list"),
        (raw("list.csv", b""), "is empty. Needed: a list of images. Check"),
        (raw("list.json", b"\xef\xbb\xbf"), "is empty. Needed"),
        (raw("list.jsonl", b"\r\n\n"), "is empty. Needed"),
        (raw("list.csv", b"path,label\n"), "lists no images. Needed: one or more"),
        (raw("list.csv", b"path,label\na.png,crab\nb.png,caf\xe9\n"), "Line 3 of "),
        (raw("list.csv", "path\na.png".encode("utf-16")), "is not UTF-8. Needed: text in UTF-8. Save it so; Excel"),
        (raw("list.csv", b"photo,label\na.png,crab\n"), "has the columns 'photo', 'label'. Needed: one with the paths"),
        (raw("list.csv", b"photo\na.png\n"), "called path, file_name, image or filename. Rename it so"),
        (raw("list.csv", b"path;label\na.png;crab\n"), "has the columns 'path;label'. Needed: one with the paths"),
        (raw("list.tsv", b"path,label\na.png,crab\n"), "columns are separated by commas in a .csv, by tabs in a .tsv"),
        (
            raw("list.csv", b"path,kind\na.png,crab\n"),
            "has the columns 'path', 'kind'. Needed: one with the labels, called",
        ),
        (raw("list.csv", b"path,label,label\na.png,crab,eel\n"), "has several columns called 'label'. Needed: each"),
        (raw("list.csv", b"path,label,width,height\na.png,crab,4,4\n"), "rename width and height"),
        (raw("list.csv", b'path,label\n"a.png,crab\nb.png,eel\n'), "Row 2 of "),
        (raw("list.csv", b'path,label\n"a.png"x,crab\n'), "Write a quote within quotes twice"),
        (raw("list.csv", b"path,label\nx.png,a\ny.png,b\na.png,\n1.png,\n"), "None of the 4 entries of "),
        (
            raw("list.csv", b"path,label\nx.png,a\ny.png,b\na.png,\n1.png,\n"),
            "'x.png' in row 2: does not exist, 'y.png'",
        ),
        (raw("list.jsonl", b'{"path": "a.png"}\n{"path": "b.p'), "Line 2 of "),
        (raw("list.jsonl", b'{"path": "a.png"}\n"b.png"\n'), "holds a str. Needed: an object, such as"),
        (raw("list.jsonl", b'{"name": "a.png"}\n'), "has the columns 'name'. Needed: one with the paths"),
        (raw("list.jsonl", b'{"path": "a.png"}\n'), "has the columns 'path'. Needed: one with the labels"),
        (raw("list.json", b'{"images":\n [{"id": 1},]}'), "Line 2 of "),
        (raw("list.json", b'{"images": ' + b"[" * 99_999), "is not JSON: "),
        (raw("list.json", b'{"images": ' + b"9" * 5000 + b"}"), "is not JSON: "),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_what_was_found(photos, make, found):
    assert found in refusal(make(photos))


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_manifest_of_five_gigabytes_that_take_no_room_is_not_read(photos, ending, monkeypatch):
    place = photos / f"list.{ending}"
    place.touch()
    os.truncate(place, 5 << 30)
    monkeypatch.setattr(Path, "read_bytes", None)
    assert "has 5.0 GiB. Needed: a list of 512.0 MiB at most" in refusal(place)


@pytest.mark.parametrize("box", [("", "", "", ""), (1, 2, 3, 4)])
def test_two_labels_for_the_same_pixels_are_refused(photos, box):
    rows = BOXES, ("a.png", "crab", *box), ("b.png", "crab", *box), ("c/../a.png", "eel", *box)
    place = write(photos / "list.csv", *rows)
    assert "has 'c/../a.png' twice: 'crab' in row 2, 'eel' in row 4. Needed: one label" in refusal(place)
    unlabelled = list_images(place, labelled=False)
    assert unlabelled.names == ("a.png", "b.png")
    with pytest.raises(InputError, match="twice"):
        read_truth(place, unlabelled.names, unlabelled.boxes)


def test_two_boxes_of_an_image_may_have_two_labels(photos):
    rows = BOXES, ("a.png", "crab", 1, 2, 3, 4), ("a.png", "eel", 1, 2, 3, 5), ("a.png", "whelk")
    listed = list_images(write(photos / "list.csv", *rows), labelled=True)
    assert listed.names == ("a.png",) * 3
    assert [listed.classes[label] for label in listed.labels] == ["crab", "eel", "whelk"]


def scene(seed):
    """A picture of four grey squares of 4 × 4, and the boxes around them with what is in each."""
    image, boxes = Image.new("L", (8, 8)), []
    for place, (x, y) in enumerate(((0, 0), (4, 0), (0, 4), (4, 4))):
        image.paste(4 * seed + place, (x, y, x + 4, y + 4))
        boxes.append(((x, y, 4, 4), 4 * seed + place))
    return image, boxes


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json"])
def test_however_rows_are_shuffled_each_keeps_its_file_label_box_and_group(tmp_path, ending):
    rows = []
    for seed in range(30):
        image, boxes = scene(seed)
        save(tmp_path / f"{seed % 7}/{seed}.png", image)
        rows += [(f"{seed % 7}/{seed}.png", box, f"grey {grey}", f"dive {seed}") for box, grey in boxes]
    rows += [(f"gone/{seed}.png", (0, 0, 1, 1), "grey 0", "") for seed in range(20)]
    rows += [(rows[seed][0], (0, 0, 1, 0), "grey 0", rows[seed][3]) for seed in range(20)]
    save(tmp_path / "small.png", picture(0, 2, 2))
    rows.append(("small.png", (5, 5, 2, 2), "grey 0", ""))
    random.Random(0).shuffle(rows)

    place, columns = tmp_path / f"list.{ending}", (*BOXES, "group")
    flat = [(name, label, *box, group) for name, box, label, group in rows]
    match ending:
        case "json":
            write_coco(place, rows)
        case "jsonl":
            write_lines(place, *[dict(zip(columns, row, strict=True)) for row in flat])
        case _:
            write(place, columns, *flat, separator="\t" if ending == "tsv" else ",")

    good = [row for row in rows if (tmp_path / row[0]).exists() and row[1][3] > 0]
    listed = list_images(place, labelled=True)
    assert [*zip(listed.names, listed.boxes, listed.groups, strict=True)] == [(n, b, g) for n, b, _, g in good]
    assert [listed.classes[label] for label in listed.labels] == [row[2] for row in good]
    assert listed.files == tuple(tmp_path / row[0] for row in good)
    assert len(listed.skipped) == 40

    order = torch.randperm(len(listed), generator=torch.Generator().manual_seed(0))
    images = load_images(listed.pick(order), 4)
    assert images.listing.skipped == ("'small.png' at x=5, y=5: the box lies outside the image",)
    assert len(images) == 120
    for pixels, label in zip(images.pixels, images.listing.labels, strict=True):
        assert (pixels == int(images.listing.classes[label].removeprefix("grey "))).all()

    unlabelled = list_images(place, labelled=False)
    assert unlabelled.names == listed.names
    some = unlabelled.pick(order)
    answers, classes = read_truth(place, some.names, some.boxes)
    assert torch.equal(answers, listed.labels[order])
    assert classes == listed.classes


def test_an_unlabelled_manifest_does_not_let_its_labels_through(photos):
    secret = "a secret"
    place = write(photos / "list.csv", ("path", "label"), ("a.png", secret), ("b.png", ""))
    listed = list_images(place, labelled=False)
    assert listed.names == ("a.png", "b.png")
    assert secret not in repr(listed)


def test_what_a_manifest_names_in_a_locked_folder_is_told(photos):
    write(photos / "list.csv", ("path",), ("a.png",), ("c/d.png",))
    with locked(photos, "c") as root:
        listed = list_images(root / "list.csv", labelled=False)
    assert listed.names == ("a.png",)
    assert listed.skipped == ("'c/d.png' in row 3: Permission denied",)


def test_a_locked_manifest_is_refused(photos):
    write(photos / "list.csv", ("path",), ("a.png",))
    with locked(photos, "list.csv") as root, pytest.raises(InputError, match=r"list\.csv cannot be opened: Permission"):
        list_images(root / "list.csv", labelled=False)
