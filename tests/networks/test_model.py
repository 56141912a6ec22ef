"""The model folder."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from newfound.errors import InputError
from newfound.networks.model import Frozen, Model
from newfound.networks.resnet import SmallResNet
from newfound.types import generator, seeded


@pytest.fixture
def model():
    with seeded("model"):
        backbone = SmallResNet(4, 2)
        head = torch.nn.Linear(32, 2)
    return Model(backbone, 28, 1, ("cat", "Öl"), head, means=torch.rand(2, 32), spread=torch.eye(32))


def test_a_saved_model_says_the_same_of_images(model, tmp_path):
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    x = torch.rand(3, 1, 28, 28, generator=generator("x"))
    assert torch.equal(model.backbone.eval()(x).z, loaded.backbone.eval()(x).z)
    assert torch.equal(model.head.weight, loaded.head.weight)
    assert torch.equal(model.means, loaded.means)
    assert torch.equal(model.spread, loaded.spread)
    assert (loaded.classes, loaded.size, loaded.channels) == (("cat", "Öl"), 28, 1)


def test_a_model_folder_holds_two_files_and_no_pickle(model, tmp_path):
    model.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"not a model folder.*newfound pretrain"):
        Model.load(tmp_path)


def test_a_model_of_another_version_is_refused(model, tmp_path):
    model.save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"version": 99}))
    with pytest.raises(InputError, match=r"version 99.*reads version 1"):
        Model.load(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "missing", "other weights", "broken json", "NaN"])
def test_a_damaged_model_is_refused(model, tmp_path, harm):
    model.save(tmp_path)
    weights, about = tmp_path / "model.safetensors", tmp_path / "model.json"
    if harm == "cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif harm == "missing":
        weights.unlink()
    elif harm == "other weights":
        about.write_text(about.read_text().replace('"width": 4', '"width": 8'))
    elif harm == "NaN":
        tensors = load_file(weights)
        save_file(tensors | {"means": tensors["means"] * torch.nan}, weights)
    else:
        about.write_text("{")
    with pytest.raises(InputError, match=r"damaged|cannot be read"):
        Model.load(tmp_path)


def test_a_frozen_backbone_is_a_copy_without_gradient_and_deaf_to_train(model):
    frozen = Frozen(model.backbone).train()
    x = torch.rand(2, 3, 28, 28, generator=generator("x"))
    before = frozen(x).z
    with torch.no_grad():
        model.backbone.stages[0][0].weight.zero_()
    assert torch.equal(frozen(x).z, before)
    assert not before.requires_grad
    assert not any(m.training for m in frozen.modules())
    assert not any(p.requires_grad for p in frozen.parameters())
