"""Pictures become features, with the real trunk at a small size."""

import os
import time

import numpy as np
import pytest
import torch
from PIL import Image

from newfound.data.datasets import load_doodles
from newfound.data.decoding import Box, decode
from newfound.data.features import ENTRY
from newfound.data.listing import list_images
from newfound.encoders import extraction
from newfound.encoders.extraction import AUGMENTED, ahead, extract_features, key
from newfound.errors import InputError
from newfound.networks.pretrained import load_pretrained, rebuild
from newfound.schema import DamagedError


@pytest.fixture(scope="module")
def lite():
    whole = load_pretrained()
    return rebuild(whole.settings() | {"size": 64}, whole.network.state_dict())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ten drawings in two folders, and a cache of their own."""
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    drawings = load_doodles("spare")
    for row in range(10):
        path = tmp_path / "new" / "ab"[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawings.pixels[100 * row, 0].numpy()).save(path)
    return tmp_path / "new"


def counting(lite, monkeypatch):
    """How many pictures the trunk looks at."""
    seen, views = [], extraction.views

    def counted(trunk, pictures):
        seen.extend(pictures)
        return views(trunk, pictures)

    monkeypatch.setattr(extraction, "views", counted)
    return seen


def test_features_are_the_trunk_s_in_the_order_of_the_names(lite, folder, monkeypatch):
    monkeypatch.setattr(extraction, "CHUNK", 3)  # several chunks, the last one uneven
    listed = list_images(folder, labelled=False)
    found = extract_features(listed, lite)
    assert found.listing.names == listed.names
    assert found.records[found.places].shape == (10, 1 + AUGMENTED, 1280)
    for row, file in enumerate(listed.files):
        pixels = torch.from_numpy(np.array(decode(file.read_bytes(), 64))).permute(2, 0, 1)[None] / 255
        augmented = found.records[found.places[row], 1:].float()
        calm = (lite(pixels) + augmented.sum(0)) / (1 + AUGMENTED)
        torch.testing.assert_close(found.features()[row], calm[0], atol=5e-3, rtol=5e-3)  # kept in half precision


def test_a_trunk_that_sees_pictures_whole_keeps_what_it_says_apart(lite, folder, monkeypatch):
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 60, 3), np.uint8))
    wide.save(folder / "a" / "wide.png")
    listed = list_images(folder / "a", labelled=False)
    whole = rebuild(lite.settings() | {"whole": True}, lite.network.state_dict())
    seen, shown = counting(lite, monkeypatch), []
    monkeypatch.setattr(extraction, "decode", lambda *how: shown.append(how[-1]) or decode(*how))
    first, other = (extract_features(listed, trunk) for trunk in (lite, whole))
    assert len(seen) == 2 * len(listed)
    assert shown == ["middle"] * len(listed) + ["whole"] * len(listed)
    row = listed.names.index("wide.png")
    assert torch.cosine_similarity(first.features()[row], other.features()[row], dim=0) < 0.95
    square = [number for number in range(len(listed)) if number != row]
    assert torch.equal(first.features()[square], other.features()[square])


def test_views_of_a_picture_differ_from_one_another_and_little_from_it(lite, folder):
    found = extract_features(list_images(folder, labelled=False), lite)
    calm, first, second = found.records[found.places].float().unbind(1)
    assert not torch.equal(first, second)
    own = torch.cosine_similarity(first, calm).mean()
    others = torch.cosine_similarity(first, calm.roll(1, 0)).mean()
    assert own > others + 0.1


def test_views_are_drawn_by_the_key_whatever_stands_beside_it(lite):
    pixels = np.array(Image.fromarray(load_doodles("spare").pixels[0, 0].numpy()).convert("RGB").resize((64, 64)))
    a, b = (key(content, None) for content in (b"a", b"b"))
    first, second = extraction.views(lite, {a: pixels, b: pixels})
    torch.testing.assert_close(extraction.views(lite, {b: pixels})[0], second, atol=1e-4, rtol=1e-4)
    apart = (first - second).norm(dim=1) / second.norm(dim=1)
    assert (apart > 0.05).all()  # the same picture, but cut out otherwise


def test_another_trunk_looks_anew(lite, folder):
    listed = list_images(folder, labelled=False)
    before = extract_features(listed, lite).features()
    other = extract_features(listed, rebuild(lite.settings() | {"size": 96}, lite.network.state_dict())).features()
    assert ((before - other).norm(dim=1) > 0.05 * before.norm(dim=1)).all()
    assert torch.equal(extract_features(listed, lite).features(), before)


def test_another_number_of_views_is_kept_apart(lite, folder, monkeypatch):
    listed = list_images(folder, labelled=False)
    before = extract_features(listed, lite)
    monkeypatch.setattr(extraction, "AUGMENTED", 1)
    fewer = extract_features(listed, lite)
    assert fewer.records[fewer.places].shape == (10, 2, 1280)
    assert torch.equal(fewer.records[fewer.places, 1], before.records[before.places, 1])


def test_what_was_seen_is_not_looked_at_again_under_whatever_name(lite, folder, monkeypatch):
    first = extract_features(list_images(folder, labelled=False), lite)
    seen = counting(lite, monkeypatch)
    (folder / "a" / "0.png").rename(folder / "b" / "another name.png")
    again = extract_features(list_images(folder, labelled=False), lite)
    assert not seen
    assert sorted(first.places.tolist()) == sorted(again.places.tolist())
    row, before = again.listing.names.index("b/another name.png"), first.listing.names.index("a/0.png")
    assert again.keys[row] == first.keys[before]
    assert torch.equal(again.features()[row], first.features()[before])


def test_a_file_that_changed_is_looked_at_again(lite, folder, monkeypatch):
    extract_features(list_images(folder, labelled=False), lite)
    seen = counting(lite, monkeypatch)
    Image.new("RGB", (40, 30), "red").save(folder / "a" / "0.png")
    extract_features(list_images(folder, labelled=False), lite)
    assert len(seen) == 1


def test_the_same_file_under_two_names_is_looked_at_once(lite, folder, monkeypatch):
    (folder / "copy.png").write_bytes((folder / "a" / "0.png").read_bytes())
    seen = counting(lite, monkeypatch)
    found = extract_features(list_images(folder, labelled=False), lite)
    assert len(found) == 11
    assert len(seen) == len(set(found.keys)) == 10


def test_an_interrupted_call_keeps_what_was_done(lite, folder, monkeypatch):
    monkeypatch.setattr(extraction, "CHUNK", 2)

    def stop(done):
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(list_images(folder, labelled=False), lite, progress=stop)
    seen = counting(lite, monkeypatch)
    extract_features(list_images(folder, labelled=False), lite)
    assert len(seen) == 4


def test_progress_grows_to_the_whole_and_counts_only_what_is_kept(lite, folder, monkeypatch):
    monkeypatch.setattr(extraction, "CHUNK", 4)
    told, kept = [], []

    def progress(done):
        told.append(done)
        kept.append(sum(path.stat().st_size for path in folder.parent.glob("cache/features/*/keys")) // ENTRY)

    extract_features(list_images(folder, labelled=False), lite, progress=progress)
    assert told == kept
    assert sorted(set(told)) == [0, 4, 8, 10]


def test_what_cannot_be_read_is_told_and_no_row_is_mistaken_for_another(lite, folder):
    whole = extract_features(list_images(folder, labelled=False), lite)
    (folder / "a" / "1 empty.png").touch()
    (folder / "a" / "4 broken.png").write_bytes((folder / "a" / "4.png").read_bytes()[:60])
    found = extract_features(list_images(folder, labelled=False), lite)
    assert found.listing.names == whole.listing.names
    assert torch.equal(found.features(), whole.features())
    assert len(found.listing.skipped) == 2
    assert "1 empty" in found.listing.skipped[0]


def test_a_file_that_vanishes_meanwhile_is_told(lite, folder):
    listed = list_images(folder, labelled=False)
    (folder / "b" / "3.png").unlink()
    found = extract_features(listed, lite)
    assert len(found) == 9
    assert "'b/3.png'" in found.listing.skipped[0]


def test_a_file_whose_name_is_no_text_is_told(lite, folder):
    (folder / os.fsdecode(b"\xff.png")).write_bytes((folder / "a" / "0.png").read_bytes())
    found = extract_features(list_images(folder, labelled=False), lite)
    assert len(found) == 10
    assert "not valid text" in found.listing.skipped[0]


def test_odd_metadata_does_not_cost_the_picture(lite, folder):
    Image.new("RGB", (9, 9), "red").save(folder / "odd.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x09" + bytes(5))
    found = extract_features(list_images(folder, labelled=False), lite)
    assert len(found) == 11
    assert not found.listing.skipped


def test_boxes_of_one_picture_are_pictures_of_their_own(lite, folder):
    (folder / "list.csv").write_text("path,x,y,width,height\na/0.png,0,0,14,14\na/0.png,14,14,14,14\na/0.png,,,,\n")
    found = extract_features(list_images(folder / "list.csv", labelled=False), lite)
    assert len(set(found.keys)) == 3
    content = (folder / "a" / "0.png").read_bytes()
    for records, box in zip(found.records[found.places].float(), found.listing.boxes, strict=True):
        pixels = torch.from_numpy(np.array(decode(content, 64, box))).permute(2, 0, 1)[None] / 255
        plain = (1 + AUGMENTED) * records[0] - records[1:].sum(0)  # the first is the mean over all
        torch.testing.assert_close(plain, lite(pixels)[0], atol=0.02, rtol=0.02)


def test_keys_tell_contents_and_boxes_apart():
    keys = {key(b"a", None), key(b"b", None), key(b"a", Box(0, 0, 1, 1)), key(b"a", Box(0, 0, 1, 2))}
    assert len(keys) == 4
    assert key(b"a", Box(0, 0, 1, 1)) == key(b"a", Box(0.0, 0.0, 1.0, 1.0))


def test_the_discovery_set_is_the_labelled_pictures_then_the_others_with_hidden_labels(lite, folder):
    labelled = extract_features(list_images(folder, labelled=True), lite)
    Image.new("RGB", (9, 9), "red").save(folder / "a" / "new.png")
    unlabelled = extract_features(list_images(folder, labelled=False), lite)
    data = unlabelled.discovery_set(labelled)
    assert data.labels.tolist() == [0] * 5 + [1] * 5 + [-1] * 11
    seen = torch.cat([*data.plain(torch.arange(21))])
    assert torch.equal(seen, torch.cat([labelled.features(), unlabelled.features()]))


def test_a_damaged_trunk_is_refused(lite, folder):
    state = {name: tensor.clone() for name, tensor in lite.network.state_dict().items()}
    blind = rebuild(lite.settings(), state)
    blind.network.state_dict()["conv_stem.weight"].fill_(float("nan"))
    with pytest.raises(InputError, match="NaN or infinite"):
        extract_features(list_images(folder, labelled=False), blind)
    state["conv_stem.weight"].fill_(float("nan"))
    with pytest.raises(DamagedError, match=r"conv_stem\.weight is NaN or infinite"):
        rebuild(lite.settings(), state)


def test_threads_run_ahead_only_so_far_and_keep_the_order():
    items = iter(range(100))
    results = ahead(lambda item: 2 * item, items, 5)
    assert next(results) == 0
    assert next(results) == 2
    assert next(items) == 6  # 0 was replaced by 5
    assert list(results) == [2 * item for item in range(2, 100) if item != 6]


def test_who_stops_does_not_wait_for_what_was_to_come():
    begun = []

    def work(item):
        begun.append(item)
        time.sleep(0.01)

    results = ahead(work, range(1000), 500)
    next(results)
    results.close()
    assert len(begun) < 500
