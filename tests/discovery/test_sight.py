"""How images are looked at, and by what."""

import logging

import pytest
import torch
from safetensors.torch import save_file

from newfound.data.pictures import pictures
from newfound.data.sources import Images, doodles
from newfound.discovery import sight
from newfound.discovery.settings import StageOne
from newfound.discovery.sight import OWN, chosen, described, seen, width
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.networks.pretrained import LITE, rebuilt, trunk
from newfound.vision import vision
from tests.data.pictures import picture, save
from tests.data.test_manifests import write


@pytest.fixture(scope="module")
def lite():
    whole = trunk()
    return rebuilt(whole.settings() | {"size": 64}, whole.network.state_dict())


def listed(folder, *sides):
    for row, (across, down) in enumerate(sides):
        save(folder / f"{row}.png", picture(row, across, down))
    return pictures(folder, labelled=False)


def test_the_width_is_the_typical_shorter_side_of_boxes_and_of_images_that_can_be_read(tmp_path):
    listed(tmp_path, (90, 80), (300, 301))
    (tmp_path / "broken.png").write_bytes(b"nothing")
    place = write(
        tmp_path / "list.csv",
        ("path", "x", "y", "width", "height"),
        ("0.png", 70, 60, 10, 20),
        ("0.png", 70, 60, 20, 12),
        ("0.png", 60, 60, 31, 14),
        ("1.png", "", "", "", ""),
        ("1.png", 0, 0, 299, 299),
        ("broken.png", "", "", "", ""),
    )
    assert width([pictures(place, labelled=False)]) == 14


def test_the_width_is_that_of_all_sources_and_0_where_nothing_can_be_read(tmp_path):
    small, large = listed(tmp_path / "small", (9, 9)), listed(tmp_path / "large", *[(40, 50)] * 3)
    assert width([small, large]) == width([large, small]) == 40
    (tmp_path / "large" / "0.png").write_bytes(b"nothing")
    assert width([large.pick(torch.tensor([0]))]) == 0


def test_only_some_of_many_images_are_opened_to_choose_and_not_only_the_first(tmp_path, monkeypatch):
    many, looked = listed(tmp_path, *[(9, 9)] * 23), []
    monkeypatch.setattr(sight, "SAMPLE", 5)
    monkeypatch.setattr(sight, "side", lambda file: looked.append(file) or 9)
    width([many])
    assert looked == [many.files[row] for row in (0, 4, 8, 12, 16, 20)]


@pytest.mark.parametrize(("side", "own"), [(64, True), (65, False)])
def test_images_up_to_64_pixels_are_for_our_own_network(tmp_path, side, own):
    some = listed(tmp_path, (side, 99))
    found = chosen(StageOne(), None, [some], labelled=True)
    assert (found is None) == own


def test_a_backbone_has_the_size_and_the_weights_that_were_asked_for(tmp_path):
    some = listed(tmp_path / "some", (70, 70))
    assert chosen(StageOne(size=48), None, [some], labelled=False).size == 48
    network = vision("timm").create_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    given = StageOne(backbone="test_resnet", weights=str(tmp_path / "weights.safetensors"))
    found = chosen(given, None, [some], labelled=True)
    assert torch.equal(found.network.conv1[0].weight, network.conv1[0].weight)


@pytest.mark.parametrize("backbone", ["auto", OWN])
def test_images_in_memory_are_left_to_our_own_network(backbone):
    assert chosen(StageOne(backbone=backbone), None, [doodles("spare")], labelled=True) is None


def test_our_own_network_is_given_pixels_of_the_size_asked_for(tmp_path):
    found = seen(listed(tmp_path, (70, 60), (50, 50)), None, 24, "cpu", lambda *_: None)
    assert isinstance(found, Images)
    assert found.pixels.shape == (2, 3, 24, 24)


def test_looking_is_told_as_it_goes_on_with_what_and_how_many(tmp_path, monkeypatch, caplog, lite):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    for kind in ("a", "b"):
        listed(tmp_path / "all" / kind, (70, 60))
    told, devices, embed = [], [], sight.embed
    monkeypatch.setattr(sight, "embed", lambda *given, device, **how: [devices.append(device), embed(*given, **how)][1])
    with caplog.at_level(logging.INFO, "newfound"):
        for labelled in (True, False):
            source = pictures(tmp_path / "all", labelled=labelled)
            seen(source, lite, 64, "cpu", lambda stage, total, row: told.append((stage, total, row["epoch"])))
    assert [stage for stage, *_ in told] == ["look: labelled"] * 3 + ["look: unlabelled"] * 3
    assert {total for _, total, _ in told} == {2}
    assert told[2][2] == told[5][2] == 2
    assert devices == ["cpu", "cpu"]
    assert [record.getMessage() for record in caplog.records] == [
        f"Looking at 2 {kind} images with {LITE}, at 64 pixels." for kind in ("labelled", "unlabelled")
    ]


def test_people_are_told_what_others_have_taught(lite):
    model = Model(Adapter(4, 2), 32, 3, (), trunk=lite)
    assert described(model) == f"{LITE}, pretrained on other images, seen at 64 pixels"
    assert described(Model(Adapter(4, 2), 32, 3, ())) == f"{OWN}, learnt from the labelled images"
