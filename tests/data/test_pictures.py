"""Folders and manifests as lists of files, picking from them, and their truth."""

import pytest
import torch

from newfound.data.decoding import Box
from newfound.data.pictures import Pictures, existing, pictures, truth
from newfound.errors import InputError
from tests.data.pictures import locked, save
from tests.data.test_manifests import write


@pytest.fixture
def photos(tmp_path):
    """Three photos, and a folder in which to put what lists them."""
    for name in ("a.png", "b.png", "c/d.png"):
        save(tmp_path / name)
    return tmp_path


def test_each_folder_is_a_class_and_no_file_is_opened(tmp_path):
    for name in ("whelk/2.png", "crab/b/deep/1.png", "crab/a.png", "whelk/10.png", "stray.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listed = pictures(tmp_path, labelled=True)
    assert listed.names == ("crab/a.png", "crab/b/deep/1.png", "whelk/10.png", "whelk/2.png")
    assert listed.files == tuple(tmp_path / name for name in listed.names)
    assert listed.labels.tolist() == [0, 0, 1, 1]
    assert listed.classes == ("crab", "whelk")
    assert listed.boxes == (None,) * 4
    assert listed.groups == ("",) * 4
    assert listed.skipped == ("'stray.png': lies beside the class folders, not in one",)


def test_an_unlabelled_folder_is_all_that_lies_below_it(photos):
    listed = pictures(str(photos), labelled=False)
    assert listed.names == ("a.png", "b.png", "c/d.png")
    assert listed.labels.tolist() == [-1, -1, -1]
    assert listed.classes == ()
    assert len(listed) == 3


@pytest.mark.parametrize(("name", "found"), [("gone", "does not exist"), ("a.png", "is a file")])
def test_what_is_no_folder_is_refused_with_what_it_is(photos, name, found):
    with pytest.raises(InputError) as refusal:
        existing(photos / name)
    assert str(refusal.value) == f"{photos / name} {found}. Needed: a folder of images. Check the path."


def test_picking_takes_rows_in_their_order_from_every_column(photos):
    place = write(
        photos / "list.csv",
        ("path", "label", "x", "y", "width", "height", "group"),
        ("a.png", "crab", 1, 2, 3, 4, "dive 1"),
        ("b.png", "whelk", "", "", "", "", "dive 2"),
        ("gone.png", "whelk", "", "", "", "", ""),
    )
    some = pictures(place, labelled=True).pick(torch.tensor([1, 0, 1]))
    assert some.files == (photos / "b.png", photos / "a.png", photos / "b.png")
    assert some.names == ("b.png", "a.png", "b.png")
    assert some.labels.tolist() == [1, 0, 1]
    assert some.boxes == (None, Box(1, 2, 3, 4), None)
    assert some.groups == ("dive 2", "dive 1", "dive 2")
    assert some.classes == ("crab", "whelk")
    assert some.skipped == ()
    assert len(some.pick(torch.tensor([], dtype=torch.long))) == 0


def test_columns_of_unequal_count_are_not_labels():
    with pytest.raises(TypeError):
        Pictures((), (), torch.zeros(2, 2, dtype=torch.long), (), (), ())


def test_the_truth_of_a_folder_is_the_first_folder(tmp_path):
    for name in ("whelk/1.png", "crab/deep/whelk/2.png", "crab/3.png", "eel/4.png"):
        save(tmp_path / name)
    listed = pictures(tmp_path, labelled=False)
    some = listed.pick(torch.tensor([3, 1]))
    answers, classes = truth(tmp_path, some.names, some.boxes)
    assert classes == ("crab", "whelk")
    assert answers.tolist() == [1, 0]


def test_there_is_no_truth_where_some_have_no_label(photos):
    listed = pictures(photos, labelled=False)
    with pytest.raises(InputError, match=r"'a\.png', 'b\.png'\. Needed, to know the truth"):
        truth(photos, listed.names, listed.boxes)
    with pytest.raises(InputError, match="does not exist"):
        truth(photos / "gone", listed.names, listed.boxes)
    place = write(photos / "list.csv", ("path", "label"), ("a.png", "crab"), ("b.png", " "), ("c/d.png", ""))
    with pytest.raises(InputError, match=r"'b\.png', 'c/d\.png'\. Needed, to know the truth: a label for each"):
        truth(place, ("a.png", "b.png", "c/d.png"), (None,) * 3)
    place = write(photos / "bare.csv", ("path",), ("a.png",))
    with pytest.raises(InputError, match="Needed: one with the labels, called label, class or concept"):
        truth(place, ("a.png",), (None,))


def test_a_locked_folder_is_told_and_the_rest_is_listed(tmp_path):
    for name in ("crab/1.png", "crab/dive/2.png", "eel/deep/3.png", "whelk/4.png"):
        save(tmp_path / name)
    reasons = tuple(f"{name!r}: cannot be opened: Permission denied" for name in ("crab/dive", "eel/deep", "whelk"))
    with locked(tmp_path, "crab/dive", "eel/deep", "whelk") as root:
        listed, loose = pictures(root, labelled=True), pictures(root, labelled=False)
    assert listed.names == loose.names == ("crab/1.png",)
    assert listed.classes == ("crab",)
    assert listed.skipped == loose.skipped == reasons


def test_a_link_into_a_locked_folder_is_no_class(tmp_path):
    for name in ("known/crab/1.png", "shut/whelk/2.png"):
        save(tmp_path / name)
    (tmp_path / "known" / "whelk").symlink_to("../shut/whelk")
    with locked(tmp_path, "shut") as root:
        assert pictures(root / "known", labelled=True).classes == ("crab",)


@pytest.mark.parametrize("name", ["shut/crab", "shut/list.csv"])
def test_what_lies_in_a_locked_folder_is_refused_with_that_reason(tmp_path, name):
    save(tmp_path / "shut" / "crab" / "1.png")
    (tmp_path / "shut" / "list.csv").write_text("path\ncrab/1.png\n")
    with locked(tmp_path, "shut") as root, pytest.raises(InputError) as refusal:
        pictures(root / name, labelled=False)
    assert str(refusal.value).startswith(f"{name} cannot be opened: Permission denied. Needed: a folder of images, or")


def test_where_every_folder_is_locked_nothing_is_left(tmp_path):
    for name in ("crab/1.png", "whelk/4.png"):
        save(tmp_path / name)
    with locked(tmp_path, "crab", "whelk") as root:
        with pytest.raises(InputError, match=r"class folders in \. can be opened.*Found: 'crab': cannot be opened"):
            pictures(root, labelled=True)
        with pytest.raises(InputError, match=r"holds no images.*Found: 'crab': cannot be opened"):
            pictures(root, labelled=False)
