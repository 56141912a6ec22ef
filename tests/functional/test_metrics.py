import math
from itertools import permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from newfound.functional.metrics import (
    ByKind,
    accuracy,
    ari,
    balance,
    calibration_gaps,
    forgetting,
    forward_transfer,
    gcd_accuracy,
    group_accuracy,
    macro_accuracy,
    matching,
    nmi,
    novel_names,
    scatter,
    scores,
    silhouette,
    silhouettes,
    task_agnostic,
    task_aware,
)
from newfound.types import generator

AGREEMENTS = [accuracy, macro_accuracy, nmi, ari]
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


def naive_macro_accuracy(truth, guess, size=5):
    """Every permutation is tried; the most images right, then the most recall, decide."""
    pairs = list(zip(truth.tolist(), guess.tolist(), strict=True))
    classes = sorted({t for t, _ in pairs})

    def recalls(order):
        of = {c: [order[g] == c for t, g in pairs if t == c] for c in classes}
        return sum(sum(hits) / len(hits) for hits in of.values()) / len(classes)

    return max((sum(order[g] == t for t, g in pairs), recalls(order)) for order in permutations(range(size)))[1]


@settings(unhurried, max_examples=30)
@given(st.one_of(labellings(), labellings(classes=2, clusters=5), labellings(classes=5, clusters=2)))
def test_macro_accuracy_is_the_mean_recall_of_the_best_permutation(labelling):
    assert macro_accuracy(*labelling) == pytest.approx(naive_macro_accuracy(*labelling))


def test_macro_accuracy_keeps_the_matching_of_accuracy_and_weighs_classes_alike():
    truth = torch.tensor([0] * 8 + [1] * 2)
    guess = torch.tensor([0] * 6 + [1] * 2 + [0] * 2)  # recall alone would rather call cluster 0 class 1
    assert accuracy(truth, guess) == pytest.approx(6 / 10)
    assert macro_accuracy(truth, guess) == pytest.approx((6 / 8 + 0 / 2) / 2)


def test_of_equal_matchings_the_one_with_the_best_recall_is_taken():
    truth = torch.tensor([0, 0, 0, 1])
    for clusters in ([4, 5, 6, 4], [6, 5, 4, 6]):  # cluster of the last may stand for either class
        guess = torch.tensor(clusters)
        assert matching(truth, guess)[clusters[-1]] == 1
        assert macro_accuracy(truth, guess) == pytest.approx((1 / 3 + 1) / 2)


def test_accuracy_and_macro_accuracy_agree_where_classes_are_of_one_size():
    random = generator("even")
    truth, guess = torch.arange(120) % 6, torch.randint(6, (120,), generator=random)
    assert macro_accuracy(truth, guess) == pytest.approx(accuracy(truth, guess))


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
        "macro accuracy": macro_accuracy(truth, guess),
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


KNOWN, NOVEL = 2, 3


@st.composite
def jointly(draw):
    """Truth and guesses over two known and three novel classes."""
    return draw(labellings(classes=KNOWN + NOVEL, clusters=KNOWN + NOVEL))


def share(hits):
    return sum(hits) / len(hits) if hits else math.nan


def naive_task_agnostic(truth, guess):
    """Every naming of the novel outputs is tried; the best on novel images is kept, for all three numbers."""
    pairs = list(zip(truth.tolist(), guess.tolist(), strict=True))

    def by_kind(order):
        names = [*range(KNOWN), *order]
        known = [names[g] == t for t, g in pairs if t < KNOWN]
        novel = [names[g] == t for t, g in pairs if t >= KNOWN]
        return share(known + novel), share(known), share(novel)

    return max(map(by_kind, permutations(range(KNOWN, KNOWN + NOVEL))))


@settings(unhurried, max_examples=25)
@given(jointly())
def test_task_agnostic_accuracy_is_the_best_over_namings_of_novel_outputs(labelling):
    assert task_agnostic(*labelling, KNOWN) == pytest.approx(naive_task_agnostic(*labelling), nan_ok=True)


@settings(unhurried, max_examples=25)
@given(jointly(), st.permutations(range(KNOWN, KNOWN + NOVEL)))
def test_names_of_novel_outputs_do_not_matter(labelling, order):
    truth, guess = labelling
    expected = pytest.approx(task_agnostic(truth, guess, KNOWN), nan_ok=True)
    assert task_agnostic(truth, torch.tensor([*range(KNOWN), *order])[guess], KNOWN) == expected


def test_names_of_known_outputs_matter():
    truth = torch.tensor([0, 1, 2, 3])
    assert task_agnostic(truth, torch.tensor([1, 0, 3, 2]), KNOWN) == ByKind(all=0.5, known=0.0, novel=1.0)


def test_novel_images_on_known_outputs_gain_nothing():
    """The inflation trap: matched alone, images on the wrong outputs look perfectly sorted."""
    truth = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    guess = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    novel = truth >= 2
    assert accuracy(truth[novel], guess[novel]) == 1
    assert task_agnostic(truth, guess, known=2) == ByKind(all=0.5, known=1.0, novel=0.0)
    assert novel_names(truth, guess, known=2) == {}


def test_known_images_on_novel_outputs_have_no_say_in_their_names():
    truth = torch.tensor([0, 0, 0, 2, 3, 3])
    guess = torch.tensor([2, 2, 2, 2, 3, 3])
    assert novel_names(truth, guess, known=2) == {2: 2, 3: 3}
    assert task_agnostic(truth, guess, known=2) == (pytest.approx(0.5), 0.0, 1.0)


def test_one_naming_serves_all_images():
    """Of two novel outputs that swap their classes between train and test, none is right on test."""
    train = torch.tensor([2, 2, 3, 3]), torch.tensor([3, 3, 2, 2])
    names = novel_names(*train, known=2)
    assert names == {3: 2, 2: 3}
    truth, guess = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 2, 3])
    assert task_agnostic(truth, guess, 2, names) == ByKind(all=0.25, known=0.5, novel=0.0)
    assert task_agnostic(truth, guess, 2).novel == 1


def test_an_output_without_a_name_is_wrong():
    truth, guess = torch.tensor([2, 3]), torch.tensor([2, 5])
    assert task_agnostic(truth, guess, 2, names={2: 2}).novel == 0.5


def test_task_aware_chooses_among_the_outputs_of_the_own_kind():
    random = generator("aware")
    truth, logits = torch.randint(5, (60,), generator=random), torch.randn(60, 5, generator=random)
    told = []
    for label, row in zip(truth.tolist(), logits.tolist(), strict=True):
        outputs = range(KNOWN) if label < KNOWN else range(KNOWN, 5)
        told.append(max(outputs, key=lambda output: row[output]))
    assert task_aware(truth, logits, KNOWN) == pytest.approx(naive_task_agnostic(truth, torch.tensor(told)))
    novel = truth >= KNOWN
    assert task_aware(truth, logits, KNOWN).novel == pytest.approx(
        accuracy(truth[novel], logits[novel, KNOWN:].argmax(1))
    )


def test_being_told_the_kind_helps_where_kinds_are_mixed_up():
    truth = torch.tensor([0, 1, 2, 3])
    logits = torch.eye(4) + 3 * torch.tensor([0.0, 0, 1, 1])  # everything looks novel
    assert task_aware(truth, logits, 2) == ByKind(1.0, 1.0, 1.0)
    assert task_agnostic(truth, logits.argmax(1), 2).known == 0


@settings(unhurried, max_examples=25)
@given(jointly())
def test_gcd_accuracy_uses_one_matching_for_all_kinds(labelling):
    truth, guess = labelling
    found = gcd_accuracy(truth, guess, KNOWN)
    assert found.all == pytest.approx(accuracy(truth, guess))
    names = matching(truth, guess)
    for kind, score in ((truth < KNOWN, found.known), (truth >= KNOWN, found.novel)):
        pairs = list(zip(truth[kind].tolist(), guess[kind].tolist(), strict=True))
        assert score == pytest.approx(share([names.get(g) == t for t, g in pairs]), nan_ok=True)
        assert not pairs or score <= accuracy(truth[kind], guess[kind]) + 1e-12  # its own matching reads higher


def test_one_cluster_cannot_stand_for_a_known_and_a_novel_class():
    truth, guess = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([7, 7, 7, 7, 7])
    assert gcd_accuracy(truth, guess, known=2) == ByKind(pytest.approx(0.6), 1.0, 0.0)


def test_the_harmonic_mean_is_low_when_either_kind_is():
    assert ByKind(0.5, 0.9, 0.1).harmonic == pytest.approx(2 / (1 / 0.9 + 1 / 0.1))
    assert ByKind(0.5, 1.0, 0.0).harmonic == ByKind(0.0, 0.0, 0.0).harmonic == 0


def test_a_kind_without_images_has_no_accuracy():
    novel_alone = task_agnostic(torch.tensor([2, 3]), torch.tensor([3, 2]), 2)
    assert novel_alone.novel == novel_alone.all == 1
    assert math.isnan(novel_alone.known)


def some_features(n=40, classes=4, dtype=torch.float64):
    random = generator("features", n, classes)
    labels = torch.randint(classes, (n,), generator=random)
    return torch.randn(n, 3, generator=random, dtype=dtype) + labels[:, None], labels


def naive_silhouette(features, labels):
    values = []
    for i, own in enumerate(labels.tolist()):
        to = {}
        for j, other in enumerate(labels.tolist()):
            if i != j:
                to.setdefault(other, []).append(math.dist(features[i].tolist(), features[j].tolist()))
        a, b = to.pop(own, []), min(sum(far) / len(far) for far in to.values())
        values.append((b - sum(a) / len(a)) / max(b, sum(a) / len(a)) if a else 0.0)
    return sum(values) / len(values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_silhouette_equals_the_loop_over_pairs(dtype):
    features, labels = some_features(dtype=dtype)
    labels[labels == 3] = 2
    labels[5] = 3  # alone in its class
    assert silhouette(features, labels) == pytest.approx(naive_silhouette(features, labels))


def test_silhouette_of_many_images_is_that_of_a_sample_which_the_seed_decides():
    features, labels = some_features(n=600)
    whole = silhouette_score(features.numpy(), labels.numpy())
    sampled = silhouette(features, labels, rows=300)
    assert silhouette(features, labels, rows=600) == pytest.approx(whole)
    assert sampled == pytest.approx(whole, abs=0.05)
    assert sampled == silhouette(features, labels, rows=300) != silhouette(features, labels, rows=300, seed=1)


def test_several_divisions_of_the_same_images_are_each_measured_as_if_alone():
    features, labels = some_features(n=90)
    several = [labels, labels.flip(0), torch.zeros_like(labels), torch.arange(90) // 2]
    alone = [silhouette(features, some, rows=60, seed=3) for some in several]
    assert silhouettes(features, several, rows=60, seed=3) == alone
    assert len({*alone}) == 4


def test_images_all_in_one_place_have_a_silhouette_of_0():
    assert silhouette(torch.full((6, 2), 0.1), torch.arange(6) % 2) == 0


def test_silhouette_is_1_far_apart_and_below_0_when_labels_are_swapped():
    features = torch.cat([torch.randn(20, 2, generator=generator(i)) + 1000 * i for i in range(2)])
    labels = torch.arange(40) // 20
    assert silhouette(features, labels) > 0.99
    assert silhouette(features, torch.where(torch.arange(40) % 20 < 1, 1 - labels, labels)) < 0.9
    assert silhouette(features, torch.arange(40) % 2) < 0


@pytest.mark.parametrize("labels", [[3, 3, 3], [0, 1, 2], [0]])
def test_silhouette_of_one_class_or_of_single_images_is_0(labels):
    assert silhouette(torch.eye(3)[: len(labels)], torch.tensor(labels)) == 0


def naive_scatter(features, labels):
    rows = list(zip(features.tolist(), labels.tolist(), strict=True))

    def middle(points):
        return [sum(axis) / len(points) for axis in zip(*points, strict=True)]

    centre, between, within = middle([x for x, _ in rows]), 0.0, 0.0
    for label in {label for _, label in rows}:
        members = [x for x, own in rows if own == label]
        between += len(members) * math.dist(middle(members), centre) ** 2
        within += sum(math.dist(x, middle(members)) ** 2 for x in members)
    return between / within


def test_scatter_equals_the_loop_over_classes():
    features, labels = some_features()
    assert scatter(features, labels) == pytest.approx(naive_scatter(features, labels))
    assert scatter(features, 10 - 3 * labels) == pytest.approx(scatter(features, labels))


def test_scatter_does_not_see_place_or_size_and_grows_as_classes_part():
    features, labels = some_features()
    assert scatter(7 * features + 1e4, labels) == pytest.approx(scatter(features, labels))
    assert scatter(features + labels[:, None], labels) > scatter(features, labels)


def test_scatter_of_one_class_or_one_place_is_0_and_of_points_apart_infinite():
    features, labels = some_features()
    assert scatter(features, torch.zeros_like(labels)) == 0
    assert scatter(torch.full((7, 3), 0.1), torch.arange(7) % 3) == 0
    assert scatter(torch.tensor([[0.1], [0.1], [0.3]]), torch.tensor([0, 0, 1])) == math.inf


def test_nothing_cannot_be_scored_by_kind_or_in_features():
    nothing, nowhere = torch.zeros(0, dtype=torch.long), torch.zeros(0, 3)
    for measure in (silhouette, scatter):
        with pytest.raises(ValueError, match="found no images"):
            measure(nowhere, nothing)
    for measure in (task_agnostic, gcd_accuracy):
        with pytest.raises(ValueError, match="found no images"):
            measure(nothing, nothing, 2)
    with pytest.raises(ValueError, match="found no images"):
        task_aware(nothing, nowhere, 2)


def chances(n=400):
    random = generator("chances", n)
    chance = torch.rand(n, generator=random, dtype=torch.float64)
    return chance, torch.rand(n, generator=random, dtype=torch.float64) < chance


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_calibration_gaps_equal_the_loop_over_bins(bins):
    chance, happened = chances(60)
    chance[0] = 1.0
    expected = []
    for b in range(bins):
        inside = [i for i in range(60) if b / bins <= chance[i] < (b + 1) / bins or (b == bins - 1 and chance[i] == 1)]
        expected.append(sum(chance[i].item() for i in inside) - sum(happened[i].item() for i in inside))
    assert calibration_gaps(chance, happened, bins).tolist() == pytest.approx(expected)


def calibration_error(chance, happened):
    """Σ_b (n_b / n) |mean chance in b − share that happened in b| (Naeini et al. 2015), by the gaps."""
    return calibration_gaps(chance, happened).abs().sum().item() / len(happened)


def test_chances_that_are_true_are_off_by_luck_alone_and_by_less_of_more_images():
    few, many = (calibration_error(*chances(n)) for n in (300, 30_000))
    assert many < 0.01 < few < 0.1
    chance, happened = chances(30_000)
    assert calibration_error((chance + 0.2).clamp(max=1), happened) == pytest.approx(0.18, abs=0.02)
    sure = torch.tensor([1.0, 0.0, 1.0])
    assert calibration_error(sure, sure > 0.5) == 0
    assert calibration_error(sure, sure < 0.5) == 1


def test_gaps_of_parts_add_up_to_those_of_the_whole():
    chance, happened = chances()
    parts = calibration_gaps(chance[:150], happened[:150]) + calibration_gaps(chance[150:], happened[150:])
    torch.testing.assert_close(parts, calibration_gaps(chance, happened))


def test_accuracy_of_groups_equals_the_loop_over_images():
    random = generator("groups")
    truth, guess = (torch.randint(0, 7, (80,), generator=random) for _ in range(2))
    names, sizes = {0: 0, 1: 1, 2: 2, 3: 4, 4: 3, 6: 5}, (3, 2, 2)
    right, seen = [0] * 3, [0] * 3
    for label, output in zip(truth.tolist(), guess.tolist(), strict=True):
        group = 0 if label < 3 else 1 if label < 5 else 2
        seen[group] += 1
        right[group] += names.get(output) == label
    assert group_accuracy(truth, guess, names, sizes) == pytest.approx(
        [r / n for r, n in zip(right, seen, strict=True)]
    )


def test_names_that_were_found_on_training_images_are_not_mended_on_test_images():
    truth = torch.tensor([0, 0, 1, 1, 2, 2])
    swapped = torch.tensor([0, 0, 2, 2, 1, 1])  # perfect clusters, whose names were found the other way round
    assert group_accuracy(truth, swapped, {0: 0, 1: 1, 2: 2}, (1, 2)) == [1.0, 0.0]
    assert group_accuracy(truth, swapped, {0: 0, 1: 2, 2: 1}, (1, 2)) == [1.0, 1.0]


def test_accuracy_by_groups_is_the_re_assigned_accuracy_by_kind():
    truth, guess = torch.tensor([0, 1, 1, 2, 3, 3, 2]), torch.tensor([0, 1, 0, 3, 2, 2, 0])
    names = novel_names(truth, guess, 2)
    known, novel = group_accuracy(truth, guess, names | {0: 0, 1: 1}, (2, 2))
    assert (known, novel) == task_agnostic(truth, guess, 2, names)[1:]


def test_forgetting_is_accuracy_when_learnt_minus_at_the_end():
    assert forgetting([[0.9], [0.8, 0.6], [0.7, 0.65, 0.5]]) == pytest.approx([0.2, -0.05, 0.0])
    assert forgetting([[0.9]]) == [0.0]


def test_forward_transfer_is_the_mean_gain_over_the_first_model():
    assert forward_transfer([0.5, 0.7], [0.4, 0.75]) == pytest.approx(0.025)
    assert math.isnan(forward_transfer([], []))
