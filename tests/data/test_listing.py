"""Folders and manifests as lists of files, picking from them, and their truth."""

from pathlib import Path

import pytest
import torch

from newfound.data.decoding import Box
from newfound.data.listing import Listing, check_folder, find_images, label_by_folder, list_images, read_truth
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
    listed = list_images(tmp_path, labelled=True)
    assert listed.names == ("crab/a.png", "crab/b/deep/1.png", "whelk/10.png", "whelk/2.png")
    assert listed.files == tuple(tmp_path / name for name in listed.names)
    assert listed.labels.tolist() == [0, 0, 1, 1]
    assert listed.classes == ("crab", "whelk")
    assert listed.boxes == (None,) * 4
    assert listed.groups == ("",) * 4
    assert listed.skipped == ("'stray.png': lies beside the class folders, not in one",)


def test_an_unlabelled_folder_is_all_that_lies_below_it(photos):
    listed = list_images(str(photos), labelled=False)
    assert listed.names == ("a.png", "b.png", "c/d.png")
    assert listed.labels.tolist() == [-1, -1, -1]
    assert listed.classes == ()
    assert len(listed) == 3


@pytest.mark.parametrize(("name", "found"), [("gone", "does not exist"), ("a.png", "is a file")])
def test_what_is_no_folder_is_refused_with_what_it_is(photos, name, found):
    with pytest.raises(InputError) as refusal:
        check_folder(photos / name)
    assert str(refusal.value) == f"{photos / name} {found}. Needed: a folder of images. Check the path."


def test_picking_takes_rows_in_their_order_from_every_column(photos):
    place = write(
        photos / "list.csv",
        ("path", "label", "x", "y", "width", "height", "group"),
        ("a.png", "crab", 1, 2, 3, 4, "dive 1"),
        ("b.png", "whelk", "", "", "", "", "dive 2"),
        ("gone.png", "whelk", "", "", "", "", ""),
    )
    some = list_images(place, labelled=True).pick(torch.tensor([1, 0, 1]))
    assert some.files == (photos / "b.png", photos / "a.png", photos / "b.png")
    assert some.names == ("b.png", "a.png", "b.png")
    assert some.labels.tolist() == [1, 0, 1]
    assert some.boxes == (None, Box(1, 2, 3, 4), None)
    assert some.groups == ("dive 2", "dive 1", "dive 2")
    assert some.classes == ("crab", "whelk")
    assert some.skipped == ()
    assert len(some.pick(torch.tensor([], dtype=torch.long))) == 0


def test_a_listing_of_names_alone_knows_nothing_else():
    listed = Listing.of(["a", "b"])
    assert listed.root is None
    assert listed.names == ("a", "b")
    assert listed.labels.tolist() == [-1, -1]
    assert (listed.classes, listed.boxes, listed.groups, listed.skipped) == ((), (None, None), ("", ""), ())
    with pytest.raises(InputError, match=r"2 images came from memory; they lie in no folder\. Needed"):
        _ = listed.files


def test_names_start_at_the_root_and_absolute_ones_stay_themselves(tmp_path):
    listed = Listing.of(["a.png", "/far/b.png", "../c.png"], root=tmp_path)
    assert listed.files == (tmp_path / "a.png", Path("/far/b.png"), tmp_path / "../c.png")
    assert listed.pick(torch.tensor([1])).files == (Path("/far/b.png"),)
    assert listed.pick(torch.tensor([0])).root == tmp_path


def test_a_listing_knows_the_folder_of_what_was_listed(photos):
    place = write(photos / "list.csv", ("path",), ("a.png",), (str(photos / "c/d.png"),))
    for source, files in (
        (photos / "c", (photos / "c/d.png",)),
        (photos / "c/d.png", (photos / "c/d.png",)),
        (place, (photos / "a.png", photos / "c/d.png")),
    ):
        listed = list_images(source, labelled=False)
        assert listed.root == (photos if source == place else photos / "c")
        assert listed.files == files


def test_rows_that_are_left_out_are_skipped_with_their_reasons():
    listed = Listing.of(
        "abc", torch.tensor([0, 1, 1]), "xy", boxes=[None, Box(1, 2, 3, 4), None], skipped=["'z': gone"]
    )
    kept = listed.without({1: "damaged", 0: "empty"})
    assert kept.names == ("c",)
    assert kept.labels.tolist() == [1]
    assert kept.classes == ("x", "y")
    assert kept.skipped == ("'a': empty", "'b' at x=1, y=2: damaged", "'z': gone")


@pytest.mark.parametrize(
    "columns", [{"labels": torch.tensor([0, 1, 1])}, {"boxes": [None]}, {"groups": ["dive", "dive", ""]}]
)
def test_columns_of_unequal_count_are_no_listing(columns):
    with pytest.raises(ValueError, match=r"Found 2 names, .*Needed: one of each for every image"):
        Listing.of(["a", "b"], **columns)


def test_labels_are_one_column():
    with pytest.raises(TypeError):
        Listing.of(["a", "b"], torch.zeros(2, 2, dtype=torch.long))


def test_the_truth_of_a_folder_is_the_first_folder(tmp_path):
    for name in ("whelk/1.png", "crab/deep/whelk/2.png", "crab/3.png", "eel/4.png"):
        save(tmp_path / name)
    listed = list_images(tmp_path, labelled=False)
    some = listed.pick(torch.tensor([3, 1]))
    answers, classes = read_truth(tmp_path, some.names, some.boxes)
    assert classes == ("crab", "whelk")
    assert answers.tolist() == [1, 0]


def test_there_is_no_truth_where_some_have_no_label(photos):
    listed = list_images(photos, labelled=False)
    with pytest.raises(InputError, match=r"'a\.png', 'b\.png'\. Needed, to know the truth"):
        read_truth(photos, listed.names, listed.boxes)
    with pytest.raises(InputError, match="does not exist"):
        read_truth(photos / "gone", listed.names, listed.boxes)
    place = write(photos / "list.csv", ("path", "label"), ("a.png", "crab"), ("b.png", " "), ("c/d.png", ""))
    with pytest.raises(InputError, match=r"'b\.png', 'c/d\.png'\. Needed, to know the truth: a label for each"):
        read_truth(place, ("a.png", "b.png", "c/d.png"), (None,) * 3)
    place = write(photos / "bare.csv", ("path",), ("a.png",))
    with pytest.raises(InputError, match="Needed: one with the labels, called label, class or concept"):
        read_truth(place, ("a.png",), (None,))


def test_a_locked_folder_is_told_and_the_rest_is_listed(tmp_path):
    for name in ("crab/1.png", "crab/dive/2.png", "eel/deep/3.png", "whelk/4.png"):
        save(tmp_path / name)
    reasons = tuple(f"{name!r}: cannot be opened: Permission denied" for name in ("crab/dive", "eel/deep", "whelk"))
    with locked(tmp_path, "crab/dive", "eel/deep", "whelk") as root:
        listed, loose = list_images(root, labelled=True), list_images(root, labelled=False)
    assert listed.names == loose.names == ("crab/1.png",)
    assert listed.classes == ("crab",)
    assert listed.skipped == loose.skipped == reasons


def test_a_link_into_a_locked_folder_is_no_class(tmp_path):
    for name in ("known/crab/1.png", "shut/whelk/2.png"):
        save(tmp_path / name)
    (tmp_path / "known" / "whelk").symlink_to("../shut/whelk")
    with locked(tmp_path, "shut") as root:
        assert list_images(root / "known", labelled=True).classes == ("crab",)


@pytest.mark.parametrize("name", ["shut/crab", "shut/list.csv"])
def test_what_lies_in_a_locked_folder_is_refused_with_that_reason(tmp_path, name):
    save(tmp_path / "shut" / "crab" / "1.png")
    (tmp_path / "shut" / "list.csv").write_text("path\ncrab/1.png\n")
    with locked(tmp_path, "shut") as root, pytest.raises(InputError) as refusal:
        list_images(root / name, labelled=False)
    assert str(refusal.value).startswith(f"{name} cannot be opened: Permission denied. Needed: a folder of images, or")


def test_where_every_folder_is_locked_nothing_is_left(tmp_path):
    for name in ("crab/1.png", "whelk/4.png"):
        save(tmp_path / name)
    with locked(tmp_path, "crab", "whelk") as root:
        with pytest.raises(InputError, match=r"class folders in \. can be opened.*Found: 'crab': cannot be opened"):
            list_images(root, labelled=True)
        with pytest.raises(InputError, match=r"holds no images.*Found: 'crab': cannot be opened"):
            list_images(root, labelled=False)


def test_images_are_labelled_by_their_first_folder(tmp_path):
    for name in ("whelk/1.png", "crab/deep/whelk/2.png", "crab/3.png"):
        save(tmp_path / name)
    truth, classes = label_by_folder(list_images(tmp_path, labelled=False).names)
    assert classes == ("crab", "whelk")
    assert truth.tolist() == [0, 0, 1]


def test_images_that_lie_in_no_folder_have_no_label(tmp_path):
    for name in ("whelk/1.png", "2.png"):
        save(tmp_path / name)
    with pytest.raises(InputError, match=r"'2\.png'\. Needed, to know the truth"):
        label_by_folder(list_images(tmp_path, labelled=False).names)


def test_image_files_are_found_by_their_ending_in_any_case_and_sorted(tmp_path):
    for name in ("b.PNG", "a/z.Jpg", "a-b.webp", "a/deep/er/1.tiff", "notes.txt", "jpg", "png.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_images(tmp_path) == (["a-b.webp", "a/deep/er/1.tiff", "a/z.Jpg", "b.PNG"], {})


def test_hidden_files_and_folders_do_not_count(tmp_path):
    for name in (".hidden/1.png", "._IMG.jpg", "IMG.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_images(tmp_path) == (["IMG.jpg"], {})


def test_links_are_followed_and_loops_end(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for path in (root / "a/1.png", elsewhere / "2.png"):
        path.parent.mkdir(parents=True)
        path.touch()
    (root / "a/up").symlink_to(root)
    (root / "a/self").symlink_to(root / "a/self")
    (root / "b").symlink_to(elsewhere)
    (root / "c").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root / "a")
    (root / "3.png").symlink_to(elsewhere / "2.png")
    assert find_images(root) == (["3.png", "a/1.png", "b/2.png"], {})


def test_a_folder_that_may_not_be_opened_is_told_and_the_others_are_listed(tmp_path):
    for name in ("a/1.png", "b/deep/2.png", "c/3.png"):
        save(tmp_path / name)
    with locked(tmp_path, "b/deep") as root:
        assert find_images(root) == (["a/1.png", "c/3.png"], {"b/deep": "cannot be opened: Permission denied"})


def test_the_folder_itself_must_be_one_that_may_be_opened(tmp_path):
    save(tmp_path / "photos/1.png")
    with locked(tmp_path, "photos") as root, pytest.raises(InputError) as refusal:
        find_images(root / "photos")
    assert str(refusal.value).startswith("The folder photos cannot be opened: Permission denied. Needed: the right")
