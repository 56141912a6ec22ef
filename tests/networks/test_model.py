"""The model folder."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import newfound
from newfound.errors import InputError
from newfound.functional.calibration import Calibration, Logistic
from newfound.methods.stage_one import Supervised
from newfound.networks.adapter import Adapter
from newfound.networks.backbone import Backbone
from newfound.networks.model import BACKBONES, Model, Pretrained, Statistics, card
from newfound.networks.pretrained import PretrainedBackbone
from newfound.networks.resnet import SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.training.loop import Learner
from newfound.training.pretrain import pretrain
from newfound.types import Latents, Problem, Training, generator, seeded
from newfound.vision import vision


@pytest.fixture
def model():
    with seeded("model"):
        backbone = SmallResNet(4, 2)
        head = torch.nn.Linear(32, 2)
        known = Statistics(torch.rand(2, 32), torch.eye(32), torch.tensor([17, 0]))
    return Model(backbone, 28, 1, ("cat", "Öl"), head, known)


@pytest.fixture(scope="module")
def eye():
    """A small network as if others had taught it."""
    network = vision("timm").create_model("test_resnet", num_classes=0)
    return PretrainedBackbone("test_resnet", network, 32, [0.5] * 3, [0.25] * 3)


def test_a_saved_model_says_the_same_of_images(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    x = torch.rand(3, 1, 28, 28, generator=generator("x"))
    assert torch.equal(model.backbone.eval()(x).z, loaded.backbone.eval()(x).z)
    assert torch.equal(model.head.weight, loaded.head.weight)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.known, loaded.known, strict=True))
    assert (loaded.classes, loaded.size, loaded.channels) == (("cat", "Öl"), 28, 1)


class Flat(Backbone):
    """A backbone of one's own: a layer, and what turns its latents."""

    def __init__(self, dim=8):
        super().__init__()
        self.dim = dim
        self.stages = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, dim))])
        self.register_buffer("metric", torch.eye(dim))

    def forward(self, images):
        return Latents(self.stages[0](images.expand(-1, 3, -1, -1)) @ self.metric)

    def turn(self, metric):
        self.metric = self.metric @ metric

    def settings(self):
        return {"dim": self.dim}


def test_a_backbone_of_ones_own_that_has_a_line_is_taught_discovers_and_travels(tmp_path, monkeypatch):
    monkeypatch.setitem(BACKBONES, "flat", Flat)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), np.uint8)
    known, new = newfound.arrays(pixels[:30], np.arange(30) % 3), newfound.arrays(pixels[30:])
    learner = Learner(Flat(), Supervised(Problem(8, known=3, novel=0)))
    model = pretrain(learner, known, Training(1, 16, 0.01), device="cpu")
    settings = newfound.Run(method="pairs", epochs=1, device="cpu")
    run = newfound.discover(model=model, unlabelled=new, classes=2, run=settings)
    run.save(tmp_path / "run")
    loaded = Model.from_pretrained(tmp_path / "run" / "model")
    assert isinstance(loaded.backbone, Flat)
    seen = torch.from_numpy(pixels[30:]).permute(0, 3, 1, 2) / 255
    assert torch.allclose(loaded.backbone(seen).z, run.found.features, atol=1e-5)


class Stiff(Flat):
    """One that cannot turn its latents."""

    turn = Backbone.turn


@pytest.mark.parametrize(("kind", "named", "said"), [(Flat, False, "no word for.*Flat"), (Stiff, True, "cannot turn")])
def test_a_backbone_that_could_not_be_kept_or_read_with_is_refused_before_anything_is_trained(
    tmp_path, monkeypatch, kind, named, said
):
    if named:
        monkeypatch.setitem(BACKBONES, "own", kind)
    monkeypatch.setattr(newfound.discovery.discover, "find", pytest.fail)
    new = newfound.arrays(np.zeros((9, 8, 8, 3), np.uint8))
    model = Model(kind(), 8, 3, ("a", "b"), known=Statistics(torch.zeros(2, 8), torch.eye(8), torch.tensor([9, 9])))
    with pytest.raises(InputError, match=said):
        newfound.discover(model=model, unlabelled=new, classes=2, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_is_called_by_what_looks(monkeypatch):
    assert "Model of 0 classes: Flat at 8 pixels" in repr(Model(Flat(), 8, 3, ()))
    monkeypatch.setitem(BACKBONES, "flat", Flat)
    model = Model(Flat(), 8, 3, ())
    assert "flat at 8 pixels" in repr(model)
    assert "flat, which learnt from labelled images, at 8 × 8 pixels." in card(model)


def test_a_backbone_that_no_line_names_is_neither_saved_nor_loaded(tmp_path, monkeypatch):
    model = Model(Flat(), 8, 3, ())
    with pytest.raises(InputError, match=r"no word for.*Flat.*small-resnet-18, adapter.*BACKBONES"):
        model.save_pretrained(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(BACKBONES, "flat", Flat)
        model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"backbone.kind is flat; needed: 'small-resnet-18' or 'adapter'"):
        Model.from_pretrained(tmp_path)


def test_what_distances_mean_and_how_many_images_a_mean_is_of_are_saved_to_the_last_digit(model, tmp_path):
    model.calibration = Calibration(right=Logistic(6.523073229434098, -1 / 3), new=Logistic(1e-13, 0.1 + 0.2))
    model.save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert loaded.calibration == model.calibration
    assert (loaded.calibration.right.offset, loaded.calibration.new.slope) == (-1 / 3, 1e-13)
    assert loaded.known.counts.tolist() == [17, 0]
    assert loaded.known.counts.dtype == torch.long


def test_a_model_that_could_not_tell_what_distances_mean_or_where_classes_lie_loads_without(model, tmp_path):
    replace(model, known=None).save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert (loaded.calibration, loaded.known) == (None, None)


def test_what_lies_where_among_latents_and_among_a_pretrained_network_s_features_is_kept_apart(eye, tmp_path):
    adapter, latents, features = Adapter(96, 2), (torch.rand(1, 2), torch.eye(2)), (torch.rand(1, 96), torch.eye(96))
    counts = torch.tensor([9])
    known, statistics = Statistics(*latents, counts), Statistics(*features, counts.clone())
    Model(adapter, 32, 3, ("a",), known=known, pretrained=Pretrained(eye, statistics)).save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert loaded.pretrained.backbone.digest == eye.digest
    for found, expected in ((loaded.known, known), (loaded.pretrained.statistics, statistics)):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    Model(adapter, 32, 3, (), pretrained=Pretrained(eye)).save_pretrained(tmp_path / "nobody")
    loaded = Model.from_pretrained(tmp_path / "nobody")
    assert (loaded.known, loaded.pretrained.statistics) == (None, None)


def write_first_layout(folder, backbone, settings, more=(), tensors=(), classes=("cat", "dog")):
    """A folder as the first version wrote it, name by name."""
    about = {"format": "newfound model", "version": 1, "backbone": settings, "size": 32, "channels": 3}
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(about | {"classes": [*classes]} | dict(more)))
    weights = {f"backbone.{name}": tensor.contiguous() for name, tensor in backbone.state_dict().items()}
    save_file(weights | dict(tensors), folder / "model.safetensors")


def test_a_folder_of_the_first_layout_is_read_with_a_network_of_our_own(tmp_path):
    backbone, means, spread = SmallResNet(2, 2), torch.rand(2, 16), torch.eye(16)
    head = {"head.weight": torch.rand(2, 16), "head.bias": torch.rand(2)}
    told = {"means": means, "spread": spread, "counts": torch.tensor([7, 0])}
    trust = {"trust": {"right": [2.0, -1.0], "new": [3.0, 0.5]}}
    write_first_layout(
        tmp_path / "own", backbone, {"kind": "small-resnet-18", "width": 2, "stride": 2}, trust, head | told
    )
    model = Model.from_pretrained(tmp_path / "own")
    x = torch.rand(2, 3, 32, 32, generator=generator("x"))
    assert torch.equal(model.backbone(x).z, backbone.eval()(x).z)
    assert torch.equal(model.head.weight, head["head.weight"])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.known, told.values(), strict=True))
    assert model.calibration == Calibration(right=Logistic(2.0, -1.0), new=Logistic(3.0, 0.5))
    assert model.pretrained is model.similarity is None
    assert model.recognisable == ("cat",)


def test_a_folder_of_the_first_layout_is_read_with_what_a_pretrained_network_said(eye, tmp_path):
    told = {"means": torch.rand(2, 96), "spread": torch.eye(96), "counts": torch.tensor([7, 5])}
    more = {f"statistics.{name}": tensor for name, tensor in told.items()}
    more |= {"means": torch.rand(2, 3), "spread": torch.eye(3), "counts": torch.tensor([7, 5])}
    kind = {"kind": "adapter", "inputs": 96, "dim": 3, "hidden": 256}
    write_first_layout(tmp_path / "eye", Adapter(96, 3), kind, {"trunk": eye.settings()}, more)
    weights = {name: tensor.contiguous() for name, tensor in eye.network.state_dict().items()}
    save_file(weights, tmp_path / "eye" / "trunk.safetensors")
    model = Model.from_pretrained(tmp_path / "eye")
    assert model.pretrained.backbone.digest == eye.digest
    assert all(torch.equal(ours, more[name]) for ours, name in zip(model.known, told, strict=True))
    assert all(
        torch.equal(ours, theirs) for ours, theirs in zip(model.pretrained.statistics, told.values(), strict=True)
    )


def test_a_folder_from_before_images_were_counted_tells_no_class(tmp_path):
    told = {"means": torch.rand(2, 16), "spread": 3 * torch.eye(16)}
    settings = {"kind": "small-resnet-18", "width": 2, "stride": 2}
    write_first_layout(tmp_path / "old", SmallResNet(2, 2), settings, tensors=told)
    model = Model.from_pretrained(tmp_path / "old")
    assert model.recognisable == ()
    assert torch.equal(model.known.within_covariance, told["spread"])


LINES = {"right": [1.0, 2.0], "new": [1.0, 2.0]}


@pytest.mark.parametrize(
    "calibration",
    [
        *({"right": [1.0, 2.0]}, {"right": [1.0], "new": [1.0, 2.0]}, 7),
        *(LINES | {"readings": wrong} for wrong in ([LINES], {"k": {"right": [1.0, 2.0]}}, {"k": LINES | {"new": 1}})),
    ],
)
def test_a_damaged_meaning_of_distances_is_refused(model, tmp_path, calibration):
    model.save_pretrained(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"trust": calibration}))
    with pytest.raises(InputError, match="damaged"):
        Model.from_pretrained(tmp_path)


def test_a_saved_similarity_network_says_the_same_of_pairs(model, tmp_path):
    with seeded("similarity"):
        model.similarity = PairNet(SmallResNet(2, 1), PairHead(16))  # a backbone of its own kind and size
    x = torch.rand(5, 1, 28, 28, generator=generator("x"))
    model.similarity(x)  # running statistics that are not the initial ones
    model.save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert loaded.similarity is not None
    assert torch.equal(model.similarity.eval()(x), loaded.similarity.eval()(x))
    assert torch.equal(model.backbone.eval()(x).z, loaded.backbone.eval()(x).z)


def test_a_similarity_network_on_the_model_s_own_backbone_is_saved_too(model, tmp_path):
    model.similarity = PairNet(model.backbone, PairHead(32))
    model.save_pretrained(tmp_path)
    x = torch.rand(3, 1, 28, 28, generator=generator("x"))
    loaded = Model.from_pretrained(tmp_path).similarity
    assert loaded is not None
    assert torch.equal(model.similarity.eval()(x), loaded.eval()(x))


def test_a_folder_without_a_similarity_network_loads_without_one(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert "similarity" not in json.loads((tmp_path / "model.json").read_text())
    assert Model.from_pretrained(tmp_path).similarity is None


def test_a_folder_whose_similarity_network_is_lost_is_refused(model, tmp_path):
    model.similarity = PairNet(SmallResNet(2, 1), PairHead(16))
    model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    save_file({name: t for name, t in load_file(weights).items() if not name.startswith("similarity.")}, weights)
    with pytest.raises(InputError, match="damaged"):
        Model.from_pretrained(tmp_path)


def test_a_model_folder_holds_tensors_json_and_a_card_and_no_pickle(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "model.json", "model.safetensors"]


def test_the_card_lists_known_classes_a_line_each_and_counts_those_whose_mean_is_inside(model):
    text = card(replace(model, classes=("cat", "*Öl*\n# new <b>")))
    assert text.endswith("**Known classes**\n\n* cat\n* \\*Öl\\* \\# new \\<b\\>\n")
    assert "the means of 1 classes" in text
    assert "* \\\\x1b\\[2Jcat\n" in card(replace(model, classes=("\x1b[2Jcat", "b"))), "no name steers a terminal"
    assert "at least 5 images" in text
    nobody = card(replace(model, classes=(), known=None))
    assert nobody.endswith("**Known classes**\n\nNone.\n")
    assert "the means of 0 classes" in nobody


def test_the_card_says_what_looks_at_images_and_where_doubt_was_measured(model):
    text = card(model)
    assert "small-resnet-18, which learnt from labelled images, at 28 × 28 pixels." in text
    assert "What distances mean was measured on other images." in text
    text = card(replace(model, calibration=Calibration(right=Logistic(1.0, 0.0), new=Logistic(2.0, 0.0))))
    assert "What distances mean was measured on these classes, some pretended to be new." in text


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"not a model folder.*newfound pretrain"):
        Model.from_pretrained(tmp_path)


def test_a_model_of_another_version_is_refused(model, tmp_path):
    model.save_pretrained(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"version": 99}))
    with pytest.raises(InputError, match=r"version 99.*reads version 1"):
        Model.from_pretrained(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "missing", "other weights", "broken json", "NaN", "infinite"])
def test_a_damaged_model_is_refused(model, tmp_path, harm):
    model.save_pretrained(tmp_path)
    weights, about = tmp_path / "model.safetensors", tmp_path / "model.json"
    if harm == "cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif harm == "missing":
        weights.unlink()
    elif harm == "other weights":
        about.write_text(about.read_text().replace('"width": 4', '"width": 8'))
    elif harm in ("NaN", "infinite"):
        tensors = load_file(weights)
        save_file(tensors | {"means": tensors["means"] / (0 if harm == "infinite" else torch.nan)}, weights)
    else:
        about.write_text("{")
    with pytest.raises(InputError, match=r"damaged|cannot be read"):
        Model.from_pretrained(tmp_path)


def test_numbers_of_classes_are_kept_and_those_that_were_used_too(model, tmp_path):
    assert (model.numbers, model.used) == ((1, 2), 2)
    replace(model, numbers=(3, 7), used=9).save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert (loaded.numbers, loaded.used) == ((3, 7), 9)
    path = tmp_path / "model.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in about.items() if name not in ("numbers", "used")}))
    assert Model.from_pretrained(tmp_path).numbers == (1, 2)  # as folders were before
    path.write_text(json.dumps(about | {"numbers": [3]}))
    with pytest.raises(InputError, match="2 of them, one a class"):
        Model.from_pretrained(tmp_path)
