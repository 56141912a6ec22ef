from itertools import permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from newfound.functional.metrics import accuracy, ari, balance, matching, nmi, scores
from newfound.types import generator

AGREEMENTS = [accuracy, nmi, ari]
unhurried = settings(deadline=None, max_examples=60)  # on a busy machine


def labels(most):
    return st.lists(st.integers(0, most - 1), min_size=1, max_size=30)


@st.composite
def labellings(draw, classes=4, clusters=4):
    rows = draw(st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, clusters - 1)), min_size=1, max_size=30))
    return tuple(torch.tensor(column) for column in zip(*rows, strict=True))


def naive_accuracy(truth, guess, size=5):
    pairs = list(zip(truth.tolist(), guess.tolist(), strict=True))
    best = max(sum(order[g] == t for t, g in pairs) for order in permutations(range(size)))
    return best / len(pairs)


@unhurried
@given(labellings())
def test_accuracy_is_the_best_over_all_permutations(labelling):
    assert accuracy(*labelling) == pytest.approx(naive_accuracy(*labelling))


@unhurried
@given(st.one_of(labellings(classes=2, clusters=5), labellings(classes=5, clusters=2)))
def test_accuracy_is_the_best_also_when_clusters_and_classes_differ_in_number(labelling):
    assert accuracy(*labelling) == pytest.approx(naive_accuracy(*labelling))


def test_images_of_a_cluster_left_over_are_wrong():
    truth, guess = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 0, 0, 2, 1, 1])
    assert accuracy(truth, guess) == pytest.approx(5 / 6)
    assert matching(truth, guess) == {0: 0, 1: 1}


def test_a_class_without_a_cluster_is_wrong():
    assert accuracy(torch.tensor([0, 0, 1, 2]), torch.tensor([7, 7, 7, 7])) == 0.5
    assert matching(torch.tensor([0, 0, 1, 2]), torch.tensor([7, 7, 7, 7])) == {7: 0}


@unhurried
@given(st.one_of(labellings(), labellings(classes=2, clusters=5), labellings(classes=5, clusters=2)))
def test_matching_is_one_to_one_and_reaches_the_accuracy(labelling):
    truth, guess = labelling
    matched = matching(truth, guess)
    assert len(set(matched.values())) == len(matched) == min(len(truth.unique()), len(guess.unique()))
    hits = sum(matched.get(g) == t for t, g in zip(truth.tolist(), guess.tolist(), strict=True))
    assert hits / len(truth) == pytest.approx(accuracy(truth, guess))


@unhurried
@given(labellings(classes=5, clusters=3), st.sampled_from(["arithmetic", "geometric"]))
def test_nmi_is_that_of_scikit_learn(labelling, average):
    expected = normalized_mutual_info_score(*(column.numpy() for column in labelling), average_method=average)
    assert nmi(*labelling, average=average) == pytest.approx(expected, abs=1e-7)


def test_nmi_of_collapsed_clusters_depends_on_the_normaliser():
    truth, guess = torch.arange(100) % 5, torch.arange(100) % 5 // 4
    assert nmi(truth, guess, "geometric") > nmi(truth, guess, "arithmetic") + 0.05


@unhurried
@given(labellings(classes=5, clusters=3))
def test_ari_is_that_of_scikit_learn(labelling):
    assert ari(*labelling) == pytest.approx(adjusted_rand_score(*(column.numpy() for column in labelling)))


def test_ari_of_a_million_images_does_not_overflow():
    truth = torch.arange(1_000_000) % 2
    guess = truth.clone()
    guess[:1000] = 0
    assert ari(truth, guess) == pytest.approx(adjusted_rand_score(truth.numpy(), guess.numpy()))


@pytest.mark.parametrize("measure", AGREEMENTS)
@unhurried
@given(labelling=labellings(), shuffle=st.permutations(range(4)))
def test_permuting_clusters_does_not_change_the_agreement(measure, labelling, shuffle):
    truth, guess = labelling
    assert measure(truth, torch.tensor(shuffle)[guess]) == pytest.approx(measure(truth, guess))


@pytest.mark.parametrize("measure", AGREEMENTS)
@unhurried
@given(labelling=labellings(), shuffle=st.permutations([-1, 80, 93, 1000]))
def test_labels_are_names_and_need_not_count_from_0(measure, labelling, shuffle):
    truth, guess = labelling
    assert measure(truth, torch.tensor(shuffle)[guess]) == pytest.approx(measure(truth, guess))
    assert measure(torch.tensor(shuffle)[truth], guess) == pytest.approx(measure(truth, guess))


@pytest.mark.parametrize("measure", AGREEMENTS)
@unhurried
@given(labelling=labellings())
def test_the_truth_agrees_fully_with_itself(measure, labelling):
    truth, _ = labelling
    assert measure(truth, truth) == pytest.approx(1)


def test_nmi_of_unrelated_labels_is_never_below_0():
    for rows, columns in product(range(2, 12), repeat=2):
        table = torch.arange(rows * columns)
        assert 0 <= nmi(table // columns, table % columns) < 1e-12


@pytest.mark.parametrize("measure", [nmi, ari])
def test_chance_has_no_agreement(measure):
    random = generator("chance")
    truth, guess = (torch.randint(5, (20_000,), generator=random) for _ in range(2))
    assert measure(truth, guess) == pytest.approx(0, abs=2e-3)


@unhurried
@given(labels(6))
def test_balance_is_a_share_and_does_not_see_names(guess):
    guess = torch.tensor(guess)
    assert 0 <= balance(guess, 6) <= 1 + 1e-12
    assert balance(guess, 6) == pytest.approx(balance(5 - guess, 6))


def test_balance_is_1_for_equal_sizes_and_0_for_one_cluster():
    assert balance(torch.arange(12) % 4, 4) == pytest.approx(1)
    assert balance(torch.zeros(12, dtype=torch.long), 4) == 0
    assert balance(torch.zeros(12, dtype=torch.long), 1) == 1


def test_balance_of_half_the_clusters_in_equal_use_is_the_ratio_of_logarithms():
    assert balance(torch.arange(12) % 2, 4) == pytest.approx(0.5)


def test_balance_refuses_more_clusters_than_there_were():
    with pytest.raises(ValueError, match="found 3 clusters where 1 to 2 were expected"):
        balance(torch.arange(3), 2)


def test_scores_hold_every_number_and_the_normaliser():
    truth, guess = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([4, 4, 4, 1, 0, 0])
    assert scores(truth, guess, k=5) == {
        "accuracy": accuracy(truth, guess),
        "nmi": nmi(truth, guess),
        "nmi normaliser": "arithmetic",
        "ari": ari(truth, guess),
        "balance": balance(guess, 5),
    }


@pytest.mark.parametrize("measure", [*AGREEMENTS, matching])
def test_no_images_cannot_be_scored(measure):
    nothing = torch.zeros(0, dtype=torch.long)
    with pytest.raises(ValueError, match="found no images"):
        measure(nothing, nothing)
    with pytest.raises(ValueError, match="found 0 clusters"):
        balance(nothing, 3)
