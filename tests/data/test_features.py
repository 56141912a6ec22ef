"""Images as a backbone saw them: whose features are whose, small copies, views, and the store on disk."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from PIL import Image, ImageDraw

from newfound.data.decoding import Box
from newfound.data.duplicates import find_same
from newfound.data.features import ENTRY, KEY, FeatureDataset, FeatureImages, Store
from newfound.data.listing import Listing
from newfound.data.views import DRAWS, draw_numbers
from newfound.types import Now, Training, generator
from tests.data.pictures import save

RECORDS = torch.randn(9, 3, 4, generator=generator("records")).half()
"""What a store holds: of nine images a calm record and two views."""


def embedded(places, labels=None, records=RECORDS):
    names = [f"{place}.png" for place in places]
    listed = Listing.of(names) if labels is None else Listing.of(names, torch.tensor(labels), "ab")
    return FeatureImages(listed, records, torch.tensor(places), tuple(f"key {place}".encode() for place in places))


def test_features_are_the_calm_records_at_their_places():
    assert torch.equal(embedded([7, 2, 2, 0]).features(), RECORDS[[7, 2, 2, 0], 0].float())


def test_content_hashes_are_equal_where_images_are():
    assert embedded([7, 2, 2]).content_hashes() == (b"key 7", b"key 2", b"key 2")


def test_some_images_can_be_picked_and_a_discovery_set_be_labelled_anew():
    some = embedded([7, 2, 5]).pick(torch.tensor([2, 0]))
    assert (some.listing.names, some.keys) == (("5.png", "7.png"), (b"key 5", b"key 7"))
    assert torch.equal(some.features(), RECORDS[[5, 7], 0].float())
    data = some.discovery_set(None)
    again = data.relabel(torch.tensor([-1, 3]))
    assert (again.labels.tolist(), data.labels.tolist()) == ([-1, 3], [-1, -1])
    assert torch.equal(torch.cat([*again.plain(torch.arange(2))]), torch.cat([*data.plain(torch.arange(2))]))


def test_unlabelled_images_alone_are_seen_at_their_places_and_unlabelled_whatever_is_known_of_them():
    data = embedded([7, 2, 5], labels=[0, 1, 1]).discovery_set(None)
    assert data.labels.tolist() == [-1, -1, -1]
    assert torch.equal(torch.cat([*data.plain(torch.arange(3))]), RECORDS[[7, 2, 5], 0].float())


@pytest.mark.parametrize(("known", "new"), [(3, 9), (9, 3)])
def test_of_two_sets_the_one_that_was_seen_later_knows_the_records_of_both(known, new):
    """A store only grows: they differ in how many records it had."""
    labelled = embedded([known - 1, 0], [1, 0], RECORDS[:known])
    unlabelled = embedded([1, new - 1, 0], [0, 0, 1], RECORDS[:new])
    data = unlabelled.discovery_set(labelled)
    assert data.labels.tolist() == [1, 0, -1, -1, -1]
    expected = RECORDS[[known - 1, 0, 1, new - 1, 0], 0].float()
    assert torch.equal(torch.cat([*data.plain(torch.arange(5))]), expected)


def test_small_copies_are_of_the_rows_and_boxes_asked_for_and_grey_where_a_file_has_vanished(tmp_path):
    colours, box = ("red", "green", "blue", "black"), Box(20, 10, 10, 10)
    for colour in colours:
        image = Image.new("RGB", (60, 40), "white")
        image.paste(colour, (15, 5, 35, 25))
        save(tmp_path / f"{colour}.png", image)
    listed = Listing.of([f"{colour}.png" for colour in colours], root=tmp_path, boxes=[box] * 4)
    seen = FeatureImages(listed, RECORDS, torch.arange(4), tuple(map(bytes, range(4))))
    (tmp_path / "blue.png").unlink()
    copies = seen.thumbnails([1, 2, 3])
    assert list(copies) == [1, 2, 3]
    for row, colour in ((1, (0, 128, 0)), (2, (128, 128, 128)), (3, (0, 0, 0))):
        assert torch.equal(copies[row], torch.tensor(colour, dtype=torch.uint8)[:, None, None].expand(3, 96, 96)), row


def test_pictures_that_differ_at_an_end_alone_are_not_the_same(tmp_path):
    """The middle squares of two wide pictures are equal, and so is what a backbone that sees these says of them."""
    names = ("left.png", "right.png", "left again.png", "left smaller.png")
    for name in names:
        image = Image.new("RGB", (240, 80), "white")
        draw = ImageDraw.Draw(image)
        for line in range(10, 80, 15):
            draw.line((0, line, 240, line), "black", 2)
        draw.ellipse((5, 20, 35, 60) if name.startswith("left") else (200, 20, 235, 60), "black")
        image = image.resize((180, 60), Image.Resampling.BICUBIC) if "smaller" in name else image
        save(tmp_path / name, image, compress_level=1 if "again" in name else 6)
    records = RECORDS[:1].expand(4, -1, -1)
    seen = FeatureImages(Listing.of(names, root=tmp_path), records, torch.arange(4), tuple(map(bytes, range(4))))
    assert find_same(seen).tolist() == [[0, 2], [0, 3], [2, 3]]


CPU = torch.device("cpu")
IMAGES = 12


def make_maps(rows=None):
    """Every number of map v of image i is 10 i + v."""
    numbers = 10 * torch.arange(IMAGES)[:, None] + torch.arange(1 + DRAWS)
    maps = numbers[:, :, None, None, None].expand(-1, -1, 3, 2, 2).half()
    rows = torch.arange(IMAGES) if rows is None else torch.tensor(rows)
    return FeatureDataset(maps, torch.full((len(rows),), -1), rows)


def read(seen):
    """Which image and which map each row is, after checking that it is whole."""
    assert seen.dtype == torch.float32
    assert (seen == seen[:, :1, :1, :1]).all()
    number = seen[:, 0, 0, 0].long()
    return number // 10, number % 10


@pytest.mark.parametrize("views", [2, 4, DRAWS])
def test_views_of_one_image_in_one_look_are_different_maps_of_it(views):
    data, rows = make_maps(), torch.tensor([3, 0, 3, 7])
    numbers = [draw_numbers(len(rows), generator("draws", view)) for view in range(views)]
    seen = [read(view) for view in data.look(rows, ("weak",) * views, numbers, CPU)]
    for place, row in enumerate(rows.tolist()):
        assert all(image[place] == row for image, _ in seen)
        chosen = [view[place].item() for _, view in seen]
        assert len(set(chosen)) == views
        assert 0 not in chosen, "the plain map is no augmented view"


@pytest.mark.parametrize(("kept", "asked", "given"), [(2, 4, 2), (3, 4, 3), (1, 2, 2), (1, 4, 2), (2, 1, 1)])
def test_of_views_that_are_not_kept_none_comes_twice_but_two_come_at_least(kept, asked, given):
    maps = torch.arange(1.0 + kept).expand(5, -1)[:, :, None].half()
    data, rows = FeatureDataset(maps, torch.full((5,), -1), torch.arange(5)), torch.arange(5)
    seen = data.look(rows, ("weak",) * asked, [draw_numbers(5, generator("d", v)) for v in range(asked)], CPU)
    assert len(seen) == given
    for chosen in torch.cat(seen, dim=1).tolist():
        assert len(set(chosen)) == min(given, kept)


def test_every_augmented_map_is_drawn_about_equally_often():
    data, rows = make_maps(), torch.zeros(4000, dtype=torch.long)
    _, view = read(data.look(rows, ("weak",), [draw_numbers(len(rows), generator("often"))], CPU)[0])
    counts = view.bincount(minlength=1 + DRAWS)
    assert counts[0] == 0
    assert (counts[1:] - 4000 / DRAWS).abs().max() < 100


def test_the_same_draws_give_the_same_maps():
    data, rows = make_maps(), torch.arange(IMAGES)
    looks = [
        data.look(rows, ("weak", "weak"), [draw_numbers(IMAGES, generator("d", v)) for v in (0, 1)], CPU) for _ in "ab"
    ]
    assert all(torch.equal(a, b) for a, b in zip(*looks, strict=True))


def test_surveys_see_the_plain_image_of_the_rows_that_take_part():
    data = make_maps(rows=[8, 2, 11])
    image, view = read(torch.cat(list(data.plain(torch.arange(3), chunk=2))))
    assert image.tolist() == [8, 2, 11]
    assert not view.any()


def test_batches_hold_the_maps_of_their_own_rows():
    data, training = make_maps(rows=[5, 6, 1, 9]), Training(1, 2, 0.1)
    seen = set()
    for _, batch in data.batches(training, Now(0, 0, 1), CPU):
        first, second = (read(view) for view in batch.views)
        assert torch.equal(first[0], data.rows[batch.rows])
        assert torch.equal(second[0], first[0])
        assert (first[1] != second[1]).all()
        seen |= set(first[0].tolist())
    assert seen == {5, 6, 1, 9}


def test_maps_equal_themselves_alone():
    first, second = make_maps(), make_maps()
    assert first == first
    assert first != second


def keys(*words):
    return [hashlib.sha256(word.encode()).digest() for word in words]


def records(n, name="records"):
    return torch.randn(n, 2, 3, generator=generator(name)).half().float()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", views=2, dim=3)


def test_what_was_added_is_found_again_by_its_key(store):
    some = records(3)
    store.add(keys("a", "b", "c"), some)
    places = store.places(keys("c", "x", "a"))
    assert places.tolist() == [2, -1, 0]
    assert torch.equal(store.open()[places[[0, 2]]].float(), some[[2, 0]])


def test_another_store_of_the_same_folder_finds_it_too(store, tmp_path):
    other, another = (Store(tmp_path / "store", views=2, dim=3) for _ in "ab")
    store.add(keys("a"), records(1))
    assert other.places(keys("a")).tolist() == [0]
    assert torch.equal(another.open(), store.open())


def test_it_holds_what_was_added_and_what_was_there_when_it_was_opened(store, tmp_path):
    (a, b), late = keys("a", "b"), Store(tmp_path / "store", views=2, dim=3)
    store.add([a], records(1))
    assert a in store
    assert b not in store
    assert a not in late  # nobody asked the disk again
    assert late.places([a]).tolist() == [0]
    assert a in late
    assert a in Store(tmp_path / "store", views=2, dim=3)


def test_a_record_that_did_not_reach_the_disk_has_no_key(store, tmp_path, monkeypatch):
    store.add(keys("a"), records(1))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.add(keys("b"), records(1))
    again = Store(tmp_path / "store", views=2, dim=3)
    assert again.places(keys("a", "b")).tolist() == [0, -1]


def test_who_adds_waits_while_another_does(store, tmp_path):
    with FileLock(tmp_path / "store" / "lock"):
        adding = threading.Thread(target=store.add, args=(keys("a"), records(1)))
        adding.start()
        adding.join(0.3)
        assert adding.is_alive()
        assert not (tmp_path / "store" / "keys").read_bytes()
    adding.join(30)
    assert store.places(keys("a")).tolist() == [0]


def test_changing_what_was_opened_changes_nothing_on_the_disk(store):
    some = records(2)
    store.add(keys("a", "b"), some)
    store.open().zero_()
    assert torch.equal(store.open().float(), some)


def test_a_key_that_is_there_keeps_its_record(store):
    first, second = records(1), records(3, "others")
    store.add(keys("a"), first)
    store.add(keys("b", "a", "b"), second)
    assert store.places(keys("a", "b")).tolist() == [0, 1]
    assert torch.equal(store.open()[0].float(), first[0])
    assert len(store.open()) == 2


@pytest.mark.parametrize("shape", [(1, 2, 4), (1, 1, 3), (2, 2, 3)])
def test_records_of_another_shape_are_refused_and_harm_nothing(store, shape):
    some = records(1)
    store.add(keys("a"), some)
    with pytest.raises(ValueError, match=r"1 record of shape \(2, 3\)"):
        store.add(keys("b"), torch.zeros(shape))
    assert store.places(keys("a", "b")).tolist() == [0, -1]
    assert torch.equal(store.open().float(), some)


def test_an_empty_store_is_open_to_readers(store):
    assert store.open().shape == (0, 2, 3)
    assert store.places(keys("a")).tolist() == [-1]


@pytest.mark.parametrize("torn", ["records", "keys"])
def test_what_an_interruption_tore_is_written_over(store, tmp_path, torn):
    store.add(keys("a"), records(1))
    with (tmp_path / "store" / torn).open("ab") as file:
        file.write(b"half of it")  # shorter than a record and than a key
    again = Store(tmp_path / "store", views=2, dim=3)
    assert again.places(keys("a")).tolist() == [0]
    some = records(1, "later")
    again.add(keys("b"), some)
    fresh = Store(tmp_path / "store", views=2, dim=3)
    assert fresh.places(keys("a", "b")).tolist() == [0, 1]
    assert torch.equal(fresh.open()[1].float(), some[0])


def damage_record(folder):
    damaged = bytearray((folder / "records").read_bytes())
    damaged[7] ^= 1
    (folder / "records").write_bytes(damaged)


def cut_records(folder):
    (folder / "records").write_bytes((folder / "records").read_bytes()[:20])


def overwrite_keys(folder):
    (folder / "keys").write_bytes(os.urandom(3 * ENTRY))


def double_keys(folder):
    for name in ("keys", "records"):
        (folder / name).write_bytes(2 * (folder / name).read_bytes())


def swap_keys(folder):
    entries = (folder / "keys").read_bytes()
    (folder / "keys").write_bytes(entries[ENTRY:] + entries[:ENTRY])


def forget_checksums(folder):
    """As the first version wrote it."""
    entries = (folder / "keys").read_bytes()
    (folder / "keys").write_bytes(entries[:KEY] + entries[ENTRY : ENTRY + KEY])


@pytest.mark.parametrize(
    "damage", [damage_record, cut_records, overwrite_keys, double_keys, swap_keys, forget_checksums]
)
def test_a_damaged_store_is_made_anew_with_a_line_in_the_log(store, tmp_path, damage, caplog):
    store.add(keys("a", "b"), records(2))
    damage(tmp_path / "store")
    again = Store(tmp_path / "store", views=2, dim=3)
    assert again.places(keys("a", "b")).tolist() == [-1, -1]
    assert caplog.text.count("is damaged") == 1
    some = records(2, "again")
    again.add(keys("a", "b"), some)
    assert torch.equal(Store(tmp_path / "store", views=2, dim=3).open().float(), some)


def test_a_store_that_is_made_anew_has_its_files_all_the_time_for_others_read_it_unasked(store, tmp_path, monkeypatch):
    store.add(keys("a", "b"), records(2))
    damage_record(tmp_path / "store")
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: pytest.fail(f"{path.name} was away"))
    assert Store(tmp_path / "store", views=2, dim=3).places(keys("a")).tolist() == [-1]


def test_who_has_an_older_look_at_a_store_that_was_made_anew_looks_again(store, tmp_path, caplog):
    store.add(keys("a", "b"), records(2))
    damage_record(tmp_path / "store")
    Store(tmp_path / "store", views=2, dim=3).add(keys("c"), records(1, "c"))
    assert store.places(keys("a", "c")).tolist() == [-1, 0]


@pytest.mark.processes
def test_processes_that_add_at_once_lose_nothing(tmp_path):
    program = """
import hashlib, sys, torch
from pathlib import Path
from newfound.data.features import Store
store = Store(Path(sys.argv[1]), views=2, dim=3)
for number in range(int(sys.argv[2]), 60, 2):
    store.add([hashlib.sha256(str(number).encode()).digest()], torch.full((1, 2, 3), float(number)))
"""
    lines = [[sys.executable, "-c", program, str(tmp_path / "store"), str(first)] for first in (0, 1)]
    for process in [subprocess.Popen(line) for line in lines]:
        assert process.wait(120) == 0
    store = Store(tmp_path / "store", views=2, dim=3)
    places = store.places(keys(*map(str, range(60))))
    assert sorted(places.tolist()) == list(range(60))
    assert store.open()[places][:, 1, 2].tolist() == list(range(60))
