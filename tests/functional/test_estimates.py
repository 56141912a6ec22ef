"""How many classes there are, by the two published rules."""

import pytest
import torch

from newfound.functional import estimates
from newfound.functional.cluster import kmeans, semi_supervised_kmeans
from newfound.functional.estimates import estimate_dtc, estimate_gcd
from newfound.functional.metrics import accuracy, silhouette
from newfound.types import generator


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """On a busy machine threads wait for one another, fifty times longer than points this few take."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def classes_apart(known, novel, sizes=15, mixed=False, apart=30.0, seed=0):
    """Labelled points, their labels and unlabelled points of well separated round classes."""
    random = generator("apart", known, novel, seed)
    each = torch.as_tensor(sizes).expand(known + novel) if isinstance(sizes, int) else torch.tensor(sizes)
    truth = torch.arange(known + novel).repeat_interleave(each)
    centres = apart * torch.nn.functional.normalize(torch.randn(known + novel, 12, generator=random))
    x = centres[truth] + torch.randn(len(truth), 12, generator=random)
    labelled = truth < known
    if mixed:  # half of the images of known classes are among the unlabelled
        labelled &= torch.rand(len(truth), generator=random) < 0.5
    return x[labelled], truth[labelled], x[~labelled]


IMBALANCED = [60, 8, 25, 12, 40, 90, 10, 45, 20]


@pytest.mark.parametrize("mixed", [False, True], ids=["apart", "mixed"])
@pytest.mark.parametrize(("known", "novel", "sizes"), [(4, 1, 15), (5, 4, 15), (3, 9, 15), (5, 4, IMBALANCED)])
def test_gcd_finds_the_number_of_novel_classes(known, novel, sizes, mixed):
    found = estimate_gcd(*classes_apart(known, novel, sizes, mixed), most=14)
    assert found.novel == novel
    assert (found.known, found.criterion) == (known, "accuracy")
    tried = [c.classes for c in found.curve]
    assert tried == sorted(set(tried))
    best = max(found.curve, key=lambda candidate: candidate.accuracy)
    assert found.curve[tried.index(known + novel)].accuracy == best.accuracy == 1


@pytest.mark.parametrize(("known", "novel", "sizes"), [(5, 2, 15), (5, 4, 15), (4, 9, 15), (5, 4, IMBALANCED)])
def test_dtc_finds_the_number_of_novel_classes(known, novel, sizes):
    found = estimate_dtc(*classes_apart(known, novel, sizes), most=14)
    assert found.novel == novel
    assert (found.known, found.criterion) == (known, "dtc")
    assert [c.classes - known for c in found.curve] == list(range(15))


def test_candidates_of_gcd_score_as_kmeans_does():
    labelled, labels, unlabelled = classes_apart(3, 3, apart=5.0)
    x = torch.cat([labelled, unlabelled])
    curve = estimate_gcd(labelled, labels, unlabelled, most=6, seed=4).curve
    assert len(curve) == 7  # so few are all tried
    for classes, _, right, apart in curve:
        assignment = kmeans(x, classes, generator(4, "classes", classes - 3), starts=3).assignment
        assert right == accuracy(labels, assignment[: len(labels)])
        assert apart == silhouette(x, assignment)


def test_a_part_of_the_numbers_leads_where_all_of_them_lead():
    labelled, labels, unlabelled = classes_apart(5, 6, 12, mixed=True, apart=8.0)
    x = torch.cat([labelled, unlabelled])
    found = estimate_gcd(labelled, labels, unlabelled, most=40, starts=1)
    every = {}
    for m in range(41):
        assignment = kmeans(x, 5 + m, generator(0, "classes", m), starts=1).assignment
        every[m] = accuracy(labels, assignment[: len(labels)]), silhouette(x, assignment)
    assert len(found.curve) < 30
    assert found.novel == max(every, key=every.get)


def naive_dtc(curve):
    """The paper's rule over a curve, by hand: where silhouette peaks, where accuracy peaks, and half way up."""
    apart = [k for k, _, _, s in curve if s == max(s for _, _, _, s in curve)][-1]
    top = [(s, k) for k, _, a, s in curve if a == max(a for _, _, a, _ in curve)]
    return -(-(apart + max(top)[1]) // 2)


def test_dtc_counts_the_clusters_half_way_between_silhouette_and_accuracy():
    for seed in range(2):
        probe, labels, unlabelled = classes_apart(5, 4, apart=4.0, seed=seed)
        found = estimate_dtc(probe, labels, unlabelled, most=10, seed=seed, starts=1)
        order = torch.randperm(5, generator=generator(seed, "anchors"))
        own = [int(order[label]) for label in labels]  # three of five are anchors
        clamped = torch.tensor([k if k < 3 else -1 for k in own] + [-1] * len(unlabelled))
        x = torch.cat([probe, unlabelled])
        for k, _, right, apart in found.curve:
            random = generator(seed, "classes", k - 5)
            assignment = semi_supervised_kmeans(x, clamped, k, random, starts=1).assignment
            rows = [i for i, k in enumerate(own) if k >= 3]
            assert right == accuracy(torch.tensor(own)[rows], assignment[rows])
            assert apart == pytest.approx(silhouette(x[clamped < 0], assignment[clamped < 0]))
            if k == naive_dtc(found.curve):
                sizes = torch.bincount(assignment[len(probe) :]).tolist()
                assert found.novel == sum(size > 0.01 * max(sizes) for size in sizes)


def test_dtc_does_not_count_clusters_of_a_few_strays():
    probe, labels, unlabelled = classes_apart(5, 3, [15] * 5 + [120] * 3)
    stray = torch.full((1, 12), 100.0)
    crowded = torch.cat([unlabelled, stray])
    assert estimate_dtc(probe, labels, crowded, most=6).novel == 3
    assert estimate_dtc(probe, labels, crowded, most=6, small=0.0).novel == 4


def test_when_accuracy_ties_the_silhouette_decides():
    """With well separated probes many numbers are perfect; the largest of them would be far too many."""
    estimate = estimate_dtc(*classes_apart(4, 9), most=14)
    perfect = [c.classes - 4 for c in estimate.curve if c.accuracy == 1]
    assert 9 in perfect
    assert max(perfect) > 9
    assert estimate.novel == 9


@pytest.mark.parametrize("estimate", [estimate_dtc, estimate_gcd])
def test_names_of_labels_do_not_matter_to_an_estimate(estimate):
    labelled, labels, unlabelled = classes_apart(4, 3, apart=5.0)
    assert estimate(labelled, 7 + 10 * labels, unlabelled, most=5) == estimate(labelled, labels, unlabelled, most=5)


@pytest.mark.parametrize("estimate", [estimate_dtc, estimate_gcd])
def test_an_estimate_from_a_sample_is_as_good_and_the_seed_decides_it(estimate):
    images = classes_apart(5, 4, 60)
    one, same, other = (estimate(*images, most=6, rows=200, seed=seed) for seed in (0, 0, 1))
    assert one.novel == other.novel == 4
    assert one == same != other


def test_a_sample_keeps_proportions_but_never_less_than_a_tenth_of_either_part():
    x, labels = torch.arange(1000.0)[:, None], torch.arange(1000)
    few, theirs, others = estimates._sample(x, labels, x[:500], 300, seed=0)
    assert (len(few), len(others)) == (200, 100)
    assert torch.equal(few[:, 0].long(), theirs)
    few, _, others = estimates._sample(x[:20], labels[:20], x, 100, seed=0)
    assert (len(few), len(others)) == (10, 98)
    whole = estimates._sample(x, labels, x, 2000, seed=0)
    assert all(torch.equal(part, given) for part, given in zip(whole, (x, labels, x), strict=True))


@pytest.mark.parametrize("estimate", [estimate_dtc, estimate_gcd])
def test_an_estimate_needs_images_of_both_parts_and_tries_no_more_clusters_than_images(estimate):
    labelled, labels, unlabelled = classes_apart(3, 1, 3)
    assert estimate(labelled, labels, unlabelled, most=500).curve[-1].classes <= len(labelled) + len(unlabelled)
    for some, theirs, others in ((labelled[:0], labels[:0], unlabelled), (labelled, labels, unlabelled[:0])):
        with pytest.raises(ValueError, match="give some of each"):
            estimate(some, theirs, others)


def test_gcd_finds_no_more_novel_classes_than_there_are_unlabelled_images():
    labelled, labels, unlabelled = classes_apart(20, 1, 6, apart=2.0)
    for images in (1, 2, 3):
        found = estimate_gcd(labelled, labels, unlabelled[:images])
        assert found.novel <= found.curve[-1].classes - 20 == images


def test_dtc_needs_two_probe_classes():
    probe, labels, unlabelled = classes_apart(1, 3)
    with pytest.raises(ValueError, match="found 1 probe classes"):
        estimate_dtc(probe, labels, unlabelled)


@pytest.mark.parametrize("estimate", [estimate_dtc, estimate_gcd])
def test_an_estimate_has_no_interval_and_says_where_both_curves_have_their_tops(estimate):
    found = estimate(*classes_apart(5, 4, apart=4.0), most=8)
    assert found.least == found.most == found.classes
    tops = {name: max(getattr(c, name) for c in found.curve) for name in ("accuracy", "silhouette")}
    at = {candidate.classes: candidate for candidate in found.curve}
    assert {name: getattr(at[classes], name) for name, classes in found.estimates.items()} == tops
