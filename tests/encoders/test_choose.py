"""Which encoder looks at images: the choice between pixels and pretrained features."""

from functools import partial

import pytest
import torch
from safetensors.torch import save_file

from newfound.data.datasets import load_doodles
from newfound.data.listing import Listing, list_images
from newfound.data.pixels import Images
from newfound.discovery.settings import StageOne
from newfound.encoders import Encoder, choose, choose_encoder, embed, encoder_of
from newfound.encoders.choose import width
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.pixels import PixelEncoder
from newfound.errors import InputError
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model, Pretrained
from newfound.networks.pretrained import LITE, load_pretrained, rebuild
from newfound.networks.resnet import OWN, SmallResNet
from newfound.vision import vision
from tests.data.pictures import picture, save, write_doodles
from tests.data.test_manifests import write


@pytest.fixture(scope="module")
def lite():
    whole = load_pretrained()
    return rebuild(whole.settings() | {"size": 64}, whole.network.state_dict())


def listed(folder, *sides):
    for row, (across, down) in enumerate(sides):
        save(folder / f"{row}.png", picture(row, across, down))
    return list_images(folder, labelled=False)


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
    assert width([list_images(place, labelled=False)]) == 14


def test_the_width_is_that_of_all_sources_and_0_where_nothing_can_be_read(tmp_path):
    small, large = listed(tmp_path / "small", (9, 9)), listed(tmp_path / "large", *[(40, 50)] * 3)
    assert width([small, large]) == width([large, small]) == 40
    (tmp_path / "large" / "0.png").write_bytes(b"nothing")
    assert width([large.pick(torch.tensor([0]))]) == 0


def test_only_some_of_many_images_are_opened_to_choose_and_not_only_the_first(tmp_path, monkeypatch):
    many, looked = listed(tmp_path, *[(9, 9)] * 23), []
    monkeypatch.setattr(choose, "SAMPLE", 5)
    monkeypatch.setattr(choose, "measure_side", lambda file: looked.append(file) or 9)
    width([many])
    assert looked == [many.files[row] for row in (0, 4, 8, 12, 16, 20)]


@pytest.mark.parametrize(("side", "kind"), [(64, PixelEncoder), (65, FeatureEncoder)])
def test_images_up_to_64_pixels_are_for_our_own_network(tmp_path, side, kind):
    some = listed(tmp_path, (side, 99))
    assert type(choose_encoder(StageOne(), None, [some], labelled=True)) is kind


def test_small_images_are_for_our_own_network_where_it_can_learn(tmp_path):
    write_doodles(tmp_path / "small", range(3), each=2, scale=1)
    write_doodles(tmp_path / "large", range(3), each=2, scale=4)
    small, large = (list_images(tmp_path / name, labelled=True) for name in ("small", "large"))
    assert (width([small]), width([large])) == (28, 112)
    assert choose_encoder(StageOne(), None, [small], labelled=True).name == OWN
    assert choose_encoder(StageOne(), None, [small], labelled=False).name == LITE
    assert choose_encoder(StageOne(), None, [large], labelled=True).name == LITE
    assert choose_encoder(StageOne(backbone=OWN), None, [large], labelled=True).name == OWN


def test_a_backbone_has_the_size_and_the_weights_that_were_asked_for(tmp_path):
    some = listed(tmp_path / "some", (70, 70))
    assert choose_encoder(StageOne(size=48), None, [some], labelled=False).size == 48
    assert choose_encoder(StageOne(size=48, backbone=OWN), None, [some], labelled=True).size == 48
    assert choose_encoder(StageOne(backbone=OWN), None, [some], labelled=True).size == 32
    network = vision("timm").create_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    given = StageOne(backbone="test_resnet", weights=str(tmp_path / "weights.safetensors"))
    found = choose_encoder(given, None, [some], labelled=True).backbone
    assert torch.equal(found.network.conv1[0].weight, network.conv1[0].weight)


def test_our_own_network_has_no_weights_that_others_made(tmp_path):
    some = listed(tmp_path / "some", (70, 70))
    with pytest.raises(InputError, match="--weights are for a pretrained backbone"):
        choose_encoder(StageOne(backbone=OWN, weights="some file"), None, [some], labelled=True)


def test_pictures_are_seen_whole_by_a_pretrained_network_where_somebody_asks_for_it(tmp_path):
    small = listed(tmp_path, (40, 30))
    found = choose_encoder(StageOne(framing="whole"), None, [small], labelled=True)
    assert (found.name, found.backbone.whole) == (f"{LITE} on whole pictures", True)
    told = choose.explain_backbone(found.name, StageOne(framing="whole"), None, [small], labelled=True)
    assert told == "it can see pictures whole; --backbone takes another"
    assert choose_encoder(StageOne(framing="middle"), None, [small], labelled=True).name == OWN
    with pytest.raises(InputError, match="--framing whole is for a pretrained backbone"):
        choose_encoder(StageOne(backbone=OWN, framing="whole"), None, [small], labelled=True)
    with pytest.raises(InputError, match="Needed: auto, middle or whole"):
        StageOne(framing="wide")


@pytest.mark.parametrize("backbone", ["auto", OWN])
def test_images_in_memory_are_left_to_our_own_network_which_sees_them_as_they_are(backbone):
    found = choose_encoder(StageOne(backbone=backbone), None, [load_doodles("spare")], labelled=True)
    assert found == PixelEncoder(28)


def test_images_in_memory_decide_how_large_files_beside_them_are_read(tmp_path):
    both = [load_doodles("spare"), listed(tmp_path, (90, 90))]
    assert choose_encoder(StageOne(), None, both, labelled=True) == PixelEncoder(28)


@pytest.fixture(params=["pixels", "features"])
def model(request, lite):
    """A model of either kind, that knows nothing."""
    pretrained = Pretrained(lite) if request.param == "features" else None
    return Model(SmallResNet(2, 2) if pretrained is None else Adapter(4, 2), 28, 3, (), pretrained=pretrained)


def test_a_model_has_chosen_already(model, tmp_path):
    found = choose_encoder(StageOne(), model, [listed(tmp_path, (90, 90))], labelled=False, device="cpu")
    assert isinstance(found, Encoder)
    assert (type(found), found.size) == ((PixelEncoder, 28) if model.pretrained is None else (FeatureEncoder, 64))
    assert (found.name, found.device) == (encoder_of(model).name, "cpu")


def test_images_in_memory_that_a_model_cannot_see_are_refused_before_anything_is_done(model):
    match = "24 × 24 pixels, the model sees 28 × 28" if model.pretrained is None else f"in memory, and {LITE}"
    images = Images(torch.zeros(1, 3, 24, 24, dtype=torch.uint8), Listing.of(["a"]))
    for work in (partial(choose_encoder, StageOne(), model, [images], labelled=False), partial(embed, model, images)):
        with pytest.raises(InputError, match=match):
            work()
