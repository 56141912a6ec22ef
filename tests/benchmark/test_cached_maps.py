"""The frozen trunk, against the backbone asked image by image."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from newfound.benchmark.cached_maps import VIEWS, adapt_batch_norm, adapt_model, carried, recall, remember
from newfound.data.features import FeatureDataset
from newfound.data.pixels import PixelDataset
from newfound.data.views import DRAWS, plain, weak
from newfound.methods import parse
from newfound.networks.backbone import Backbone, Tail
from newfound.networks.model import Model, Statistics
from newfound.networks.resnet import SmallResNet
from newfound.training.loop import Learner, fit, survey
from newfound.types import Batch, Latents, Now, Problem, Training, generator, seeded

SEED = 3


def make_pixels(n):
    return torch.randint(0, 256, (n, 3, 12, 12), generator=generator("pixels", n), dtype=torch.uint8)


def make_backbone():
    with seeded("trunk"):
        backbone = SmallResNet(width=2, stride=2)
    backbone.normalise(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3]))
    adapt_batch_norm(backbone, make_pixels(40), "weak", SEED)
    return backbone


def trunk(backbone, images):
    """What the last stage is given, stage by stage."""
    x = (images - backbone.mean[:, None, None]) / backbone.std[:, None, None]
    for stage in backbone.stages[:-1]:
        x = stage(x)
    return x


def make_method(backbone):
    with seeded("method"):
        return parse("pairs").build(Problem(16, 3, 4, labelled=False), Model(backbone, 12, 3, ("a", "b", "c")))


def make_tail(backbone):
    tail = Tail(backbone)
    return tail, make_method(tail)


def norms(backbone):
    return [module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)]


def state(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize(("n", "batches"), [(30, 1), (600, 2)])
def test_settled_statistics_are_the_mean_over_batches_whatever_they_were(n, batches):
    backbone, given = make_backbone(), []
    for norm in norms(backbone):
        norm.running_mean.fill_(100)
        norm.running_var.fill_(7)
        norm.register_forward_hook(lambda norm, inputs, _: given.append((norm, inputs[0].double())))
    adapt_batch_norm(backbone, make_pixels(n), "weak", SEED)
    for norm in norms(backbone):
        own = [x for which, x in given if which is norm]
        assert sum(map(len, own)) == batches * min(n, 256)
        means, spreads = [], []
        for x in own:
            columns = [x[:, channel].flatten() for channel in range(x.shape[1])]
            means.append(torch.stack([c.sum() / len(c) for c in columns]))
            spreads.append(torch.stack([((c - c.sum() / len(c)) ** 2).sum() / (len(c) - 1) for c in columns]))
        torch.testing.assert_close(norm.running_mean.double(), sum(means) / len(own), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var.double(), sum(spreads) / len(own), rtol=1e-4, atol=1e-5)
        assert norm.momentum == nn.BatchNorm2d(1).momentum


def test_settling_learns_nothing_but_statistics():
    backbone = make_backbone()
    before = state(backbone)
    adapt_batch_norm(backbone, make_pixels(50), "weak", SEED)
    moved = {name for name, value in state(backbone).items() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.endswith(("running_mean", "running_var")) for name in moved)


# What a settled model tells of known classes

LABELS = torch.tensor([0] * 30 + [1] * 30 + [2] * 3)  # the last are too few for a mean to be told


class Flat(Backbone):
    """Latents that are an affine function of the images, whatever BatchNorm has seen."""

    def __init__(self):
        super().__init__()
        self.dim, self.norm = 6, nn.BatchNorm1d(5)
        self.stages = nn.ModuleList([nn.Linear(3 * 12 * 12, 5), self.norm, nn.Linear(5, 6)])

    def forward(self, images):
        x = images.flatten(1)
        for stage in self.stages:
            x = stage(x)
        return Latents(x)

    def settings(self):
        return {}


def make_known():
    """Of three classes, each a little brighter than the one before."""
    return (make_pixels(len(LABELS)).float() * (0.5 + LABELS[:, None, None, None] / 4)).to(torch.uint8)


def measure(backbone):
    """Means, spread and counts of the known classes as the backbone sees them now."""
    return Statistics.of(survey(backbone, PixelDataset(make_known(), LABELS)).features, LABELS, 3)


def make_model(backbone):
    adapt_batch_norm(backbone, make_known(), "weak", SEED)
    return Model(backbone.eval(), 12, 3, ("a", "b", "c"), known=measure(backbone))


def make_flat():
    with seeded("flat"):
        return Flat()


def test_where_settling_is_an_affine_map_the_statistics_carried_along_are_those_measured_anew():
    model = make_model(make_flat())
    settled = adapt_model(model, make_pixels(200), "weak", SEED, shrink=0.0)
    anew = measure(settled.backbone)
    assert (anew.means - model.known.means).abs().max() > 0.1
    torch.testing.assert_close(settled.known.means, anew.means, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(settled.known.within_covariance, anew.within_covariance, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(settled.known.within_covariance, model.known.within_covariance, rtol=0.1)


def test_where_it_is_none_they_are_far_nearer_than_those_left_behind():
    model = make_model(make_backbone())
    pile = (make_pixels(400).float() * torch.linspace(0.4, 1.0, 400)[:, None, None, None]).to(torch.uint8)
    settled = adapt_model(model, pile, "weak", SEED)
    anew = measure(settled.backbone)
    for name in ("means", "within_covariance"):
        left, now, here = getattr(model.known, name), getattr(anew, name), getattr(settled.known, name)
        assert (here - now).norm() < (left - now).norm() / 2


def test_statistics_are_carried_class_by_class_by_the_map_that_took_the_images():
    model, before = make_model(make_flat()), torch.randn(50, 6, generator=generator("before"))
    M, shift = (torch.randn(*shape, generator=generator("map", *shape)) for shape in ((6, 6), (6,)))
    moved = carried(model, before, before @ M + shift, shrink=0.0)
    for k in range(2):
        expected = [sum(model.known.means[k, i] * M[i, j] for i in range(6)) + shift[j] for j in range(6)]
        torch.testing.assert_close(moved.known.means[k], torch.stack(expected), rtol=1e-3, atol=1e-3)
    known = survey(model.backbone, PixelDataset(make_known(), LABELS)).features @ M
    torch.testing.assert_close(
        moved.known.within_covariance, Statistics.of(known, LABELS, 3).within_covariance, rtol=1e-3, atol=1e-3
    )


def test_a_class_whose_mean_is_not_told_stays_untold():
    model = make_model(make_flat())
    settled = adapt_model(model, make_pixels(200), "weak", SEED)
    assert settled.known.counts.tolist() == [30, 30, 0]
    assert not settled.known.means[2].any()
    assert settled.known.means[:2].any(1).all()
    assert settled.recognisable == ("a", "b")


def test_a_settled_model_has_the_settled_backbone_and_leaves_the_given_one_alone():
    model = make_model(make_backbone())
    before, means = state(model.backbone), model.known.means.clone()
    expected = copy.deepcopy(model.backbone)
    adapt_batch_norm(expected, make_pixels(50), "weak", SEED)
    settled = adapt_model(model, make_pixels(50), "weak", SEED)
    for name, value in state(settled.backbone).items():
        assert torch.equal(value, expected.state_dict()[name])
    assert all(torch.equal(value, before[name]) for name, value in state(model.backbone).items())
    assert torch.equal(model.known.means, means)
    assert not model.backbone.training
    assert (settled.classes, settled.size, settled.head) == (model.classes, model.size, model.head)


def test_a_model_that_tells_nothing_of_known_classes_settles_and_tells_nothing():
    model, looks = Model(make_backbone(), 12, 3, ("a", "b", "c")), []
    expected = copy.deepcopy(model.backbone)
    adapt_batch_norm(expected, make_pixels(50), "weak", SEED)
    model.backbone.register_forward_hook(lambda backbone, *_: looks.append(backbone.training))
    settled = adapt_model(model, make_pixels(50), "weak", SEED)
    assert looks == [True]  # nobody surveys what nobody needs
    assert settled.known is None
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in state(settled.backbone).items())
    z = torch.randn(9, 16, generator=generator("z"))
    assert carried(model, z, 2 * z) is model


@pytest.fixture(scope="module")
def remembered(tmp_path_factory):
    """A backbone, images, and the folder with their maps."""
    backbone, pixels, folder = make_backbone(), make_pixels(20), tmp_path_factory.mktemp("maps")
    remember(backbone, pixels, folder / "maps.npy", "weak", SEED)
    return backbone, pixels, folder


def test_remembered_maps_are_the_trunk_of_the_plain_image_then_of_its_views(remembered):
    backbone, pixels, folder = remembered
    maps = recall(folder / "maps.npy")
    assert maps.dtype == torch.float16
    assert len(maps[0]) == 1 + VIEWS
    backbone.eval()
    for number in range(1 + VIEWS):
        draws = torch.rand(len(pixels), DRAWS, generator=generator(SEED, number, "trunk"))
        for row in range(len(pixels)):
            look = plain if number == 0 else weak
            with torch.no_grad():
                expected = trunk(backbone, look(pixels[row : row + 1], draws[row : row + 1]))[0]
            torch.testing.assert_close(maps[row, number].float(), expected, rtol=2e-3, atol=2e-3)


def test_views_of_one_image_differ_and_images_are_not_seen_alike(remembered):
    maps = recall(remembered[2] / "maps.npy").float()
    assert len({tuple(view.flatten().tolist()) for view in maps[0]}) > VIEWS // 2
    assert not torch.equal(maps[0], maps[1])


def test_remembering_is_a_function_of_the_seed(remembered, tmp_path):
    backbone, pixels, folder = remembered
    for name, seed in (("again", SEED), ("other", SEED + 1)):
        remember(backbone, pixels, tmp_path / name, "weak", seed)
    assert (tmp_path / "again").read_bytes() == (folder / "maps.npy").read_bytes()
    again, other = recall(tmp_path / "again"), recall(tmp_path / "other")
    assert torch.equal(other[:, 0], again[:, 0])
    assert not torch.equal(other, again)


def test_maps_are_whole_or_not_there(remembered, tmp_path):
    backbone, pixels, folder = remembered
    assert [path.name for path in folder.iterdir()] == ["maps.npy"]
    calls, broken = [], copy.deepcopy(backbone)

    def fail(*_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    broken.stages[0].register_forward_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        remember(broken, pixels, tmp_path / "maps.npy", "weak", SEED)
    assert not (tmp_path / "maps.npy").exists()


def test_what_is_recalled_cannot_change_the_file(remembered):
    path = remembered[2] / "maps.npy"
    before, maps = path.read_bytes(), recall(path)
    maps[:] = 0
    assert path.read_bytes() == before
    assert np.load(path).any()


def test_a_tail_of_maps_is_the_backbone_of_images():
    backbone = make_backbone().eval()
    images = make_pixels(6).float() / 255
    whole = backbone(images)
    torch.testing.assert_close(Tail(backbone)(trunk(backbone, images)).z, whole.z)
    torch.testing.assert_close(whole.map, trunk(backbone, images))


def test_training_a_tail_moves_the_last_stage_of_the_whole_and_nothing_else(remembered):
    _, pixels, folder = remembered
    backbone = make_backbone()
    before = state(backbone)
    tail, method = make_tail(backbone)
    data = FeatureDataset(recall(folder / "maps.npy"), torch.full((len(pixels),), -1), torch.arange(len(pixels)))
    fit(Learner(tail, method, trains=1), data, Training(2, 10, 0.1), seed=0, device="cpu")
    moved = {name for name, value in state(backbone).items() if not torch.equal(value, before[name])}
    last = {name for name in before if name.startswith("stages.4.")}
    assert moved == last


def test_losses_on_maps_are_those_on_images(remembered):
    _, pixels, folder = remembered
    maps, images, now = recall(folder / "maps.npy")[:, 0].float(), pixels.float() / 255, Now(0, 0, 1)
    losses = []
    for cut, seen in ((True, maps), (False, images)):
        backbone = make_backbone().eval()
        part, method = make_tail(backbone) if cut else (backbone, make_method(backbone))
        batch = Batch([seen, seen], torch.full((len(pixels),), -1), torch.arange(len(pixels)), {})
        learner = Learner(part, method, trains=1).eval()
        losses.append(learner(method.prepare(batch, now), now)[0])
    assert losses[0].keys() == losses[1].keys()
    for name in losses[0]:
        torch.testing.assert_close(losses[0][name], losses[1][name], rtol=5e-3, atol=5e-3)
