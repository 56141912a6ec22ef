"""KCL and MCL against loops over pairs."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from newfound.data.pixels import PixelDataset
from newfound.errors import InputError
from newfound.functional import losses
from newfound.functional.metrics import accuracy
from newfound.methods import similarity
from newfound.methods.similarity import SIMILARITY_TRAINING, FromSimilarity, Similarity
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.training.loop import Learner, fit
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

NOW = Now(seed=1, epoch=3, epochs=10)
PROBLEM = Problem(dim=6, known=3, novel=4, labelled=False)
RECIPES = {"kcl": similarity.kcl, "mcl": similarity.mcl}


def make_model():
    """A model whose similarity network is smaller than the new one: their latents have nothing in common."""
    with seeded("model"):
        network = PairNet(SmallResNet(1, 2), PairHead(8))
        network(torch.rand(9, 3, 8, 8))  # some running statistics
        return Model(SmallResNet(1, 2), 8, 3, ("a", "b", "c"), similarity=network)


def make_method(name):
    with seeded("method"):
        return RECIPES[name].build(PROBLEM, make_model()).train()


def make_batch(method, n):
    random = generator("batch", n)
    views = [torch.rand(n, 3, 8, 8, generator=random) for _ in range(2)]
    z = [Latents(torch.rand(n, 6, generator=random).requires_grad_()) for _ in views]
    return z, method.prepare(Batch(views, torch.full((n,), -1), torch.arange(n), {}), NOW)


def state_of(module):
    return copy.deepcopy(module.state_dict())


# --- stage one


def test_similarity_equals_the_loop_over_ordered_pairs_of_labelled_images():
    with seeded("similarity"):
        method = Similarity(Problem(6, 3, 0))
    z, labels = torch.rand(7, 6, generator=generator("z")), torch.tensor([2, 0, -1, 2, 1, -1, 0])
    loss = method([Latents(z)], Batch([], labels, torch.arange(7), {}), NOW)["similarity"]
    rows = [i for i in range(7) if labels[i] >= 0]
    scores = copy.deepcopy(method.pairs)(z[rows]).tolist()
    total = 0.0
    for a, i in enumerate(rows):
        for b, j in enumerate(rows):
            different, same = scores[a][b]
            right = same if labels[i] == labels[j] else different
            total -= math.log(math.exp(right) / (math.exp(different) + math.exp(same)))
    assert loss.item() == pytest.approx(total / 25, rel=1e-5)


def test_similarity_does_not_depend_on_what_the_classes_are_called():
    with seeded("similarity"):
        method = Similarity(Problem(6, 3, 0))
    z, labels = [Latents(torch.rand(6, 6, generator=generator("z")))], torch.tensor([0, 1, 2, 0, 1, 2])
    one, other = (
        method(z, Batch([], names[labels], torch.arange(6), {}), NOW)["similarity"]
        for names in (torch.tensor([0, 1, 2]), torch.tensor([7, 0, 3]))
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("labelled", [0, 1])
def test_similarity_of_no_or_one_labelled_image_is_finite_with_a_gradient(labelled):
    method, z = Similarity(Problem(6, 3, 0)), torch.rand(4, 6, requires_grad=True)
    labels = torch.full((4,), -1)
    labels[:labelled] = 2
    loss = method([Latents(z)], Batch([], labels, torch.arange(4), {}), NOW)["similarity"]
    loss.backward()
    assert loss.isfinite()
    assert (loss.item() == 0) == (labelled == 0)
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert all(tensor.isfinite().all() for tensor in method.state_dict().values())


def test_what_was_learnt_of_known_classes_holds_for_novel_ones():
    """Stage one through the loop: flat images of eight greys, every other one known."""
    grey = torch.arange(96) % 8
    pixels = (20 + 28 * grey).to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8)
    pixels = pixels + torch.randint(0, 8, (96, 1, 8, 8), generator=generator("grain"), dtype=torch.uint8)
    known = grey % 2 == 0
    with seeded("stage one"):
        learner = Learner(SmallResNet(2, 2), Similarity(Problem(16, 4, 0)))
    training = replace(SIMILARITY_TRAINING, epochs=60, batch=16, classes_per_batch=4, rate=0.01)
    fit(learner, PixelDataset(pixels[known], grey[known] // 2), training, seed=0, device="cpu")
    network = PairNet(learner.backbone, learner.method.pairs)
    guess = network(pixels[~known].float() / 255).argmax(2) == 1
    alike = grey[~known][:, None] == grey[~known]
    assert guess[alike].double().mean() > 0.9
    assert guess[~alike].double().mean() < 0.2


# --- discovery


@pytest.mark.parametrize("name", RECIPES)
def test_pairs_are_guessed_by_the_similarity_network_with_the_statistics_of_the_batch(name):
    method, network = make_method(name), make_model().similarity.train()
    z, batch = make_batch(method, 7)
    guess = [[same > different for different, same in row] for row in network(batch.views[0]).tolist()]
    assert 0 < sum(map(sum, guess)) < 49
    p = method.novel(z[0].z).softmax(1).tolist()
    total = 0.0
    for i in range(7):
        for j in range(7):
            together = sum(a * b for a, b in zip(p[i], p[j], strict=True))
            apart = sum(b * math.log(b / a) for a, b in zip(p[i], p[j], strict=True))
            if name == "kcl":
                total += apart if guess[i][j] else max(0.0, 2.0 - apart)
            else:
                total -= math.log(together if guess[i][j] else 1 - together)
    assert method(z, batch, NOW)["pairs"].item() == pytest.approx(total / 49, rel=1e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_the_similarity_network_remembers_nothing_and_learns_nothing(name):
    method = make_method(name)
    before = state_of(method)
    z, batch = make_batch(method, 7)
    first, second = (method(z, batch, NOW)["pairs"] for _ in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(state_of(method), before, rtol=0, atol=0)
    assert {name for name, parameter in method.named_parameters() if parameter.requires_grad} == {
        "novel.weight",
        "novel.bias",
    }


@pytest.mark.parametrize("name", RECIPES)
def test_the_model_keeps_its_similarity_network_to_itself(name):
    model = make_model()
    method = RECIPES[name].build(PROBLEM, model)
    own = {parameter.data_ptr() for parameter in method.parameters()}
    assert own.isdisjoint(parameter.data_ptr() for parameter in model.similarity.parameters())
    assert all(parameter.requires_grad for parameter in model.similarity.parameters())


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", RECIPES)
def test_no_or_one_image_is_enough(name, n):
    method = make_method(name)
    before = state_of(method)
    z, batch = make_batch(method, n)
    loss = method(z, batch, NOW)["pairs"]
    loss.backward()
    assert loss.isfinite()
    assert n == 1 or loss.item() == 0
    assert z[0].z.grad is not None
    assert z[0].z.grad.isfinite().all()
    torch.testing.assert_close(state_of(method), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", RECIPES)
def test_a_labelled_row_is_refused(name):
    method = make_method(name)
    z, batch = make_batch(method, 5)
    with pytest.raises(ValueError, match="labelled row"):
        method(z, batch._replace(labels=torch.tensor([-1, -1, 0, -1, -1])), NOW)


@pytest.mark.parametrize("name", RECIPES)
def test_a_model_without_a_similarity_network_is_refused(name):
    model = make_model()
    model.similarity = None
    with pytest.raises(InputError, match=rf"{name} asks a network which images share a class.*the model has none"):
        RECIPES[name].build(PROBLEM, model)


class Oracle(nn.Module):
    """A pair head whose latents are the truth."""

    def forward(self, z):
        same = (z == z.T).double()
        return torch.stack([1 - same, same], dim=2)


@pytest.mark.parametrize("loss", [losses.kcl, similarity.likelihood])
def test_with_a_network_that_knows_all_pairs_the_head_learns_the_classes(loss):
    truth = torch.arange(24) % 4
    with seeded("oracle"):
        method = FromSimilarity(PROBLEM, make_model().similarity, loss)
        method.pairs = Oracle()
        z = torch.randn(24, 6)
    notes = {"similarity": truth[:, None].double()}
    batch = Batch([], torch.full((24,), -1), torch.arange(24), notes)
    z = nn.Parameter(z)
    optimizer = torch.optim.Adam([z, *method.novel.parameters()], 0.03)
    for _ in range(200):
        optimizer.zero_grad()
        method([Latents(z)], batch, NOW)["pairs"].backward()
        optimizer.step()
    assert accuracy(truth, method.logits(z).argmax(1)) == 1
