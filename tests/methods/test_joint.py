"""Jia et al.: pairs and contrast at once."""

import pytest
import torch

from newfound.functional.losses import info_nce
from newfound.methods.joint import Contrast, WinnerTakesAll, build, recipe
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.types import Batch, Latents, Now, Problem, generator, seeded

NOW = Now(seed=1, epoch=3, epochs=10)
PROBLEM = Problem(dim=16, known=3, novel=4)
DRAWN = "methods.0.alike.drawn"


def make_latents(*shape, key):
    return Latents(torch.rand(*shape, generator=generator("joint", key), dtype=torch.float64))


def make_batch(labels):
    return Batch([], torch.tensor(labels, dtype=torch.long), torch.arange(len(labels)), {})


def make_model():
    with seeded("joint"):
        return Model(SmallResNet(width=2), 8, 3, ("a", "b", "c"), head=torch.nn.Linear(16, 3))


def make_method(key="method"):
    with seeded(key):
        return build(PROBLEM, make_model()).double()


def make_contrast():
    with seeded("contrast"):
        return Contrast(PROBLEM).double()


def test_contrast_pairs_views_of_an_image_and_labelled_images_of_a_class_and_no_others():
    labels = [0, 1, 0, -1, -1, 2]
    method, first, second = make_contrast(), make_latents(6, 16, key=0), make_latents(6, 16, key=1)
    same = torch.tensor([[a == b and a >= 0 for b in labels] for a in labels])
    expected = info_nce(method.projector(first.z), method.projector(second.z), same, 0.1)
    torch.testing.assert_close(method([first, second], make_batch(labels), NOW)["contrast"], expected)


def test_contrast_does_not_depend_on_the_names_of_the_known_classes():
    method, latents = make_contrast(), [make_latents(6, 16, key=key) for key in (0, 1)]
    batches = make_batch([0, 1, 0, -1, -1, 2]), make_batch([2, 0, 2, -1, -1, 1])
    torch.testing.assert_close(*(method(latents, batch, NOW)["contrast"] for batch in batches))


def test_a_batch_of_a_single_image_is_welcome():
    latents = [make_latents(1, 16, key=key) for key in (0, 1)]
    for label in (-1, 2):
        losses = make_method()(latents, make_batch([label]), NOW)
        assert all(loss.isfinite() for loss in losses.values())
        assert losses["contrast"].item() == 0  # the other view is the only one there is


def test_every_draw_holds_different_features_and_the_draws_are_as_many_as_dimensions():
    drawn = WinnerTakesAll(32).get_buffer("drawn")
    assert drawn.shape == (32, 4)
    assert all(len(set(row)) == 4 for row in drawn.tolist())
    assert drawn.min() >= 0
    assert drawn.max() < 32
    assert len({tuple(row) for row in drawn.tolist()}) > 28


def test_240_of_512_winners_make_a_pair_alike_and_239_do_not():
    guess = WinnerTakesAll(512)
    drawn = guess.get_buffer("drawn")
    drawn.copy_(torch.arange(4).expand(512, 4))
    for agree, alike in ((240, True), (239, False)):
        drawn[agree:] = torch.arange(4, 8)
        z = torch.zeros(2, 512)
        z[:, 0] = 1.0  # wins the first draws of both
        z[0, 4], z[1, 5] = 1.0, 1.0  # the others have different winners
        assert guess(z)[0, 1].item() is alike


def test_the_draws_are_a_function_of_the_seed():
    once, again, other = (make_method(key).get_buffer(DRAWN) for key in ("method", "method", "other"))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_the_draws_are_saved_and_loaded():
    method, other = make_method(), make_method("other")
    other.load_state_dict(method.state_dict())
    latents = [make_latents(9, 16, key=key) for key in (0, 1)]
    batch = make_batch([0, 1, 2, 0, -1, -1, -1, -1, -1])
    assert torch.equal(method.get_buffer(DRAWN), other.get_buffer(DRAWN))
    for name, loss in method(latents, batch, NOW).items():
        assert torch.equal(loss, other(latents, batch, NOW)[name])


def test_all_terms_reach_the_latents_of_both_views():
    latents = [Latents(make_latents(9, 16, key=key).z.requires_grad_()) for key in (0, 1)]
    losses = make_method()(latents, make_batch([0, 1, 2, 0, -1, -1, -1, -1, -1]), NOW)
    assert losses.keys() == {"cross-entropy", "pairs", "consistency", "contrast"}
    for name, loss in losses.items():
        gradients = torch.autograd.grad(loss, [view.z for view in latents], retain_graph=True, allow_unused=True)
        assert gradients[0].any()
        assert name == "cross-entropy" or gradients[1].any()


@pytest.mark.parametrize("labels", [[0, 1, 2, 0], [-1, -1, -1, -1]])
def test_batches_of_one_kind_are_welcome(labels):
    latents = [make_latents(4, 16, key=key) for key in (0, 1)]
    assert all(loss.isfinite() for loss in make_method()(latents, make_batch(labels), NOW).values())


def test_nothing_comes_before_it_and_nothing_is_taken_from_the_model():
    assert recipe.described
    assert recipe.stage_one == ()
    assert recipe.start == "new"
    model = make_model()
    learnt = [p for p in build(PROBLEM, model).parameters() if p.shape == model.head.weight.shape]
    assert learnt
    assert not any(torch.equal(p, model.head.weight) for p in learnt)
