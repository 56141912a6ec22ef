"""Axes along which classes lie apart."""

import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from newfound.functional.axes import axes, class_moments, coordinates, main_axes, moments, power_normalised, together
from newfound.functional.geometry import whitening
from newfound.types import generator


def features(n=60, dim=12, name="features"):
    return torch.randn(n, dim, generator=generator(name)).abs().double()


def test_power_normalised_features_are_square_roots_of_unit_length():
    x = torch.tensor([[4.0, -9.0, 0.0], [0.0, 0.0, 0.0]])
    expected = torch.tensor([[2.0, -3.0, 0.0]]) / 13**0.5
    torch.testing.assert_close(power_normalised(x)[:1], expected)
    assert torch.equal(power_normalised(x)[1], torch.zeros(3))  # what has no direction keeps none


def test_a_feature_s_unit_does_not_matter():
    torch.testing.assert_close(power_normalised(7.3 * features()), power_normalised(features()))


def test_without_a_spread_they_are_the_principal_axes():
    x = features()
    found = axes(moments(x), 4)
    ours = (x - found.centre) @ found.matrix
    theirs = torch.from_numpy(PCA(4).fit_transform(x.numpy()))
    torch.testing.assert_close(ours.abs(), theirs.abs())  # an axis may point either way


def test_the_widest_axis_comes_first_and_none_sees_another():
    x = features()
    found = axes(moments(x), 5)
    covariance = torch.cov(((x - found.centre) @ found.matrix).T)
    assert (covariance.diagonal().diff() <= 0).all()
    torch.testing.assert_close(covariance, covariance.diagonal().diag(), atol=1e-10, rtol=0)


def test_a_direction_in_which_classes_are_wide_counts_less():
    x = features()
    spread = torch.eye(12).double()
    wide = spread.clone()
    wide[0, 0] = 1e4
    assert (axes(moments(x), 12, wide).matrix[0].norm() / axes(moments(x), 12, spread).matrix[0].norm()) < 0.02


def test_where_little_is_added_to_the_spread_they_span_what_linear_discriminants_span():
    labels = torch.arange(90) % 3
    centres = 8 * torch.randn(3, 6, generator=generator("centres"), dtype=torch.float64)
    noise = torch.randn(90, 6, generator=generator("noise"), dtype=torch.float64) @ torch.diag(
        torch.arange(1.0, 7).double()
    )
    x = centres[labels] + noise
    rest = x - torch.stack([x[labels == k].mean(0) for k in range(3)])[labels]
    found = axes(moments(x), 2, rest.T @ rest / 87, shrink=1e-9)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(x.numpy(), labels.numpy())
    theirs = torch.from_numpy(lda.scalings_[:, :2])
    ours = torch.linalg.qr(found.matrix).Q
    torch.testing.assert_close(ours @ (ours.T @ theirs), theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("n", "few"), [(4, 3), (1, 1)])
def test_few_images_fill_few_axes(n, few):
    assert axes(moments(features(n)), 10).matrix.shape == (12, few)


def test_float32_is_enough():
    x = features()
    spread = torch.cov(features(name="known").T)
    double, single = axes(moments(x), 4, spread), axes(moments(x.float()), 4, spread.float())
    angles = torch.cosine_similarity(double.matrix, single.matrix, dim=0)
    torch.testing.assert_close(angles.abs(), torch.ones(4).double())


def test_moments_are_number_mean_and_scatter():
    x = features()
    found = moments(x)
    assert found.n == 60
    torch.testing.assert_close(found.mean, x.mean(0))
    torch.testing.assert_close(found.scatter, 59 * torch.cov(x.T))


def test_moments_of_two_sets_are_those_of_both_at_once():
    a, b = features(7), features(30, name="others") + 3
    for found, expected in zip(together(moments(a), moments(b)), moments(torch.cat([a, b])), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected))


def test_class_means_and_their_shared_spread_have_the_moments_of_the_features():
    x, labels = features(), torch.arange(60) % 7
    means = torch.stack([x[labels == k].mean(0) for k in range(7)])
    counts = torch.bincount(labels)
    rest = x - means[labels]
    nothing = torch.zeros(1, 12).double()  # of one more class nothing is known
    found = class_moments(torch.cat([means, nothing]), torch.cat([counts, torch.zeros(1)]), rest.T @ rest / (60 - 7))
    for ours, expected in zip(found, moments(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(expected))


@pytest.mark.parametrize("shrink", [0.3, 3.0, None])
def test_what_lies_beside_axes_is_what_whitened_features_have_left(shrink):
    random = generator("beside")
    x = torch.randn(50, 12, generator=random) @ torch.randn(12, 12, generator=random)
    within = None if shrink is None else torch.cov(torch.randn(30, 12, generator=random).T).double()
    found = axes(moments(x), 4, within, shrink or 1.0)
    along, beside = coordinates(x, found, within)
    white = torch.eye(12, dtype=torch.float64) if within is None else whitening(within, shrink)
    apart = (x.double() - found.centre) @ white
    assert torch.allclose(along.double(), (x.double() - found.centre) @ found.matrix, atol=1e-4)
    assert torch.allclose(apart.square().sum(1), (along.square().sum(1) + beside.square()).double(), rtol=1e-4)
    inside = (found.centre + along.double() @ torch.linalg.pinv(found.matrix)).float()
    if within is None:
        assert coordinates(inside, found).beside.max() < 1e-2 * beside.max()
    assert coordinates(x[:0], found, within).along.shape == (0, 4)


def test_main_axes_of_many_features_hold_nearly_all_that_the_principal_ones_do():
    random = generator("wide")
    wide = torch.arange(1, 301) ** -0.5  # how fast variance falls off among features of photographs
    x = power_normalised((torch.randn(700, 300, generator=random) * wide) @ torch.randn(300, 300, generator=random))
    found, exact = main_axes(x, 40, generator("begin")), axes(moments(x), 40)
    held, most = (((x - some.centre) @ some.matrix).square().sum() for some in (found, exact))
    assert 0.999 * most <= held <= most * (1 + 1e-9)
    torch.testing.assert_close(found.matrix.T @ found.matrix, torch.eye(40).double(), atol=1e-6, rtol=0)
    strengths = ((x - found.centre) @ found.matrix).square().sum(0)
    assert (strengths.diff() < 1e-6).all()  # the widest first
    assert torch.equal(main_axes(x, 40, generator("begin")).matrix, found.matrix)


def test_main_axes_of_few_features_or_images_are_the_principal_ones():
    for x in (features(60, 12).float(), features(12, 60).float()):
        for mine, theirs in zip(main_axes(x, 6, generator("begin")), axes(moments(x), 6), strict=True):
            assert torch.equal(mine, theirs)
