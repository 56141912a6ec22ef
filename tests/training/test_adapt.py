"""What is measured of known classes, and adapters that look along the right axes."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from newfound.functional.axes import axes, moments, tempered
from newfound.functional.calibration import chance, lead, strangeness
from newfound.functional.cluster import semi_supervised_kmeans
from newfound.functional.metrics import matching
from newfound.networks.model import ENOUGH, Model, Statistics, card
from newfound.networks.pretrained import trunk
from newfound.training.adapt import (
    FEW,
    Scores,
    _adapter,
    aimed,
    measured,
    outcome,
    placed,
    plain,
    pretended,
    trusted,
)
from newfound.types import generator
from tests.training.features import embedded

CLASSES, EACH, OTHERS = 4, 12, range(10, 14)


@pytest.fixture(scope="module")
def lite():
    return trunk()


def latents(model, images):
    return model.backbone(images.features()).z.detach()


def test_means_and_spread_are_those_of_the_tempered_features(lite):
    images = embedded("known")
    statistics = measured(images, lite).statistics
    x = tempered(images.features()).double()
    rest = torch.zeros(1280, 1280, dtype=torch.float64)
    for label in range(CLASSES):
        members = x[images.labels == label]
        torch.testing.assert_close(statistics.means[label].double(), members.mean(0), atol=1e-6, rtol=1e-5)
        for row in members - members.mean(0):
            rest += torch.outer(row, row)
    torch.testing.assert_close(statistics.spread.double(), rest / (len(x) - CLASSES), atol=1e-8, rtol=1e-3)
    assert statistics.counts.tolist() == [EACH] * CLASSES


def test_a_class_of_few_images_has_no_mean(lite):
    images = embedded("known", each=ENOUGH - 1)
    statistics = measured(images, lite).statistics
    assert not statistics.means.any()
    assert not statistics.counts.any()
    model = measured(images, lite)
    assert not model.head(latents(model, images)).any(), "nothing speaks for a class of which nothing is told"
    assert measured(embedded("known", each=ENOUGH), lite).statistics.counts.tolist() == [ENOUGH] * CLASSES


def test_the_head_knows_the_classes_it_was_measured_on(lite):
    images = embedded("known")
    model = measured(images, lite)
    assert torch.equal(model.head(latents(model, images)).argmax(1), images.labels)


def test_what_differs_within_a_class_is_made_small(lite):
    images = embedded("known")
    z, raw = latents(measured(images, lite), images), F.normalize(tempered(images.features()), dim=1)

    def within(x):
        means = torch.stack([x[images.labels == label].mean(0) for label in range(CLASSES)])
        return (x - means[images.labels]).square().sum() / (means - means.mean(0)).square().sum()

    assert within(z) < 0.7 * within(raw)


def test_axes_are_those_of_the_pile_also_where_known_classes_do_not_differ(lite):
    model = measured(embedded("known"), lite)
    new = embedded("new", OTHERS, labelled=False)  # their classes differ in other features
    truth = torch.arange(CLASSES).repeat_interleave(EACH)

    def apart(model):
        z = latents(model, new)
        distances = torch.cdist(z, z)
        same = truth[:, None] == truth
        return (distances[~same].mean() / distances[same & ~torch.eye(len(z), dtype=torch.bool)].mean()).item()

    assert apart(aimed(model, new)) > 1.05 * apart(model)


@pytest.mark.parametrize("single", [True, False])
def test_known_classes_are_still_known_along_other_axes(lite, single):
    known, new = embedded("known"), embedded("new", OTHERS, labelled=False)
    model = aimed(measured(known, lite), new, known if single else None)
    assert torch.equal(model.head(latents(model, known)).argmax(1), known.labels)
    nearest = torch.cdist(latents(model, known), model.means).argmin(1)
    assert torch.equal(nearest, known.labels)


def test_aiming_leaves_the_model_given_as_it_was(lite):
    model = measured(embedded("known"), lite)
    before = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    aimed(model, embedded("new", labelled=False))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.backbone.state_dict().items())


def test_where_nothing_is_known_the_axes_are_the_pile_s(lite):
    model = plain(embedded("new", labelled=False), lite)
    assert model.classes == ()
    assert model.head is None
    assert model.backbone.dim <= FEW


def test_a_model_folder_holds_the_trunk_and_no_trace_of_an_image(lite, tmp_path):
    images = embedded("secret")
    model = measured(images, lite)
    model.save_pretrained(tmp_path)
    loaded = Model.from_pretrained(tmp_path)
    assert torch.equal(latents(loaded, images), latents(model, images))
    assert loaded.trunk.digest == lite.digest
    assert all(torch.equal(a, b) for a, b in zip(loaded.statistics, model.statistics, strict=True))
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"secret" not in content, "a file's name"
        rows = images.features()
        assert not any(row.numpy().tobytes() in content for row in rows), "an image's features"


def test_in_two_stages_the_axes_are_those_with_the_labelled_pictures(lite):
    known, new = embedded("known"), embedded("new", range(2, 8), labelled=False)
    model = measured(known, lite)
    single, two = aimed(model, new, known).backbone, aimed(model, new).backbone
    torch.testing.assert_close(two.centre, single.centre, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(two.matrix, single.matrix, atol=1e-3 * single.matrix.abs().max().item(), rtol=0)
    assert (two.centre - tempered(new.features()).mean(0)).norm() > 0.01, "the known ones are part of it"


def test_classes_that_are_not_told_have_no_say_in_the_axes(lite):
    new = embedded("new", OTHERS, labelled=False)
    model = measured(embedded("known"), lite)
    means, spread, counts = model.statistics
    more = Statistics(F.pad(means, (0, 0, 0, 1)), spread, F.pad(counts, (0, 1)))
    told = replace(model, classes=(*model.classes, "of three images"), statistics=more)
    torch.testing.assert_close(aimed(told, new).backbone.matrix, aimed(model, new).backbone.matrix)
    nobody = replace(model, statistics=Statistics(0 * means, spread, 0 * counts))
    torch.testing.assert_close(aimed(nobody, new).backbone.centre, tempered(new.features()).mean(0))


def test_one_picture_a_class_says_nothing_of_what_differs_within_a_class(lite):
    known, new = embedded("known", each=1), embedded("new", OTHERS, labelled=False)
    model = measured(known, lite)
    assert not model.statistics.spread.any()
    one = aimed(model, new)
    assert latents(one, new).isfinite().all()
    torch.testing.assert_close(one.backbone.matrix, plain(new, lite).backbone.matrix, atol=1e-5, rtol=1e-3)


def test_means_and_spread_are_about_those_of_the_latents(lite):
    known = embedded("known", range(8), each=20, strong=1.0)
    model = measured(known, lite)
    z = latents(model, known)
    rest = torch.zeros(len(z), z.shape[1])
    for label in range(8):
        members = z[known.labels == label]
        torch.testing.assert_close(model.means[label], members.mean(0), atol=0.02, rtol=0)
        assert model.means[label].norm() == pytest.approx(members.mean(0).norm().item(), rel=0.05)
        rest[known.labels == label] = members - members.mean(0)
    assert model.spread.trace() == pytest.approx(rest.square().sum().item() / (160 - 8), rel=0.1)
    assert torch.equal(model.counts, model.statistics.counts)


HARD = {"each": 20, "strong": 0.6}  # classes so faint that a tenth of the pictures are taken for others


@pytest.fixture(scope="module")
def doubtful(lite):
    return measured(embedded("known", range(20), **HARD), lite)


def test_chances_learnt_by_pretending_hold_for_fresh_pictures_of_known_and_new_classes(doubtful):
    known, pile = (embedded(name, some, **HARD) for name, some in (("known", range(20)), ("pile", range(10, 30))))
    truth = pile.labels + 10
    model = aimed(doubtful, pile, known)
    z, labels = torch.cat([latents(model, known), latents(model, pile)]), torch.cat([known.labels, 0 * truth - 1])
    found = semi_supervised_kmeans(F.normalize(z, dim=1), labels, 30, generator(0))
    cluster, apart = found.assignment[400:], torch.cdist(F.normalize(z[400:], dim=1), found.centres)
    names = matching(truth, cluster)
    right = torch.tensor([names.get(a) == b for a, b in zip(cluster.tolist(), truth.tolist(), strict=True)]).double()
    assert 0.8 < right.mean() < 0.97
    sure = chance(lead(apart, cluster, torch.eye(30, dtype=torch.bool)), doubtful.trust.right)
    new = chance(strangeness(apart, torch.arange(30) >= 20), doubtful.trust.new)
    for said, happened in ((sure, right), (new, (truth >= 20).double())):
        for some in (said >= 0, said > 0.9):
            assert some.sum() > 100
            assert said[some].mean().item() == pytest.approx(happened[some].mean().item(), abs=0.1)
    assert right[sure > 0.9].mean() > right[sure < 0.6].mean() + 0.2
    assert ((new > 0.5) == (truth >= 20)).double().mean() > 0.9


def test_the_head_says_ten_times_the_cosine_to_a_class_s_mean(doubtful):
    z = latents(doubtful, embedded("pile", range(2)))
    cosines = torch.stack([F.cosine_similarity(z, mean[None]) for mean in doubtful.means], 1)
    torch.testing.assert_close(doubtful.head(z).detach(), 10 * cosines)


def test_the_card_says_that_another_network_looks_first(doubtful):
    text = card(doubtful)
    assert f"{doubtful.trunk.name}, pretrained by others on other images, and a small adapter on its features" in text
    assert "learnt from labelled images" not in text
    assert "the means of 20 classes" in text


def test_a_class_that_is_not_told_moves_no_other_and_widens_none(doubtful):
    means, spread, counts = doubtful.statistics
    more = Statistics(F.pad(means, (0, 0, 0, 1)), spread, F.pad(counts, (0, 1)))
    found = placed(replace(doubtful, classes=(*doubtful.classes, "of three images"), statistics=more))
    torch.testing.assert_close(found.means, F.pad(doubtful.means, (0, 0, 0, 1)))
    torch.testing.assert_close(found.spread, doubtful.spread)
    assert not found.head.weight[-1].any()


def test_an_adapter_begins_to_learn_by_the_seed():
    seen = moments(torch.rand(20, 6, generator=generator("seen")))
    first, again, other = (_adapter(seen, None, seed).stages[0][0].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_pretending_equals_the_loop_along_all_directions_of_the_features():
    random, labels = generator("faint"), torch.arange(90) % 6
    kinds = torch.rand(6, 300, generator=random)
    x = tempered(torch.rand(90, 300, generator=random) + 0.25 * kinds[labels])
    scores = []
    for turn in range(4):
        random = generator(0, "pretend", turn)
        rows = torch.randperm(90, generator=random)
        y = torch.randperm(6, generator=random)[labels[rows]]
        taught = (y < 3) & (torch.rand(90, generator=random) < 0.5)
        seen, rest = x[rows].double(), torch.zeros(300, 300, dtype=torch.float64)
        for label in range(3):
            members = seen[taught & (y == label)]
            for row in members - members.mean(0):
                rest += torch.outer(row, row)
        found = axes(moments(seen), FEW, rest / (int(taught.sum()) - 3))
        u = F.normalize((seen - found.centre) @ found.matrix, dim=1).float()
        scores.append(outcome(u, y.where(taught, -1), y, random))
    expected, trust = trusted(scores), pretended(x, labels)
    assert trust.right == pytest.approx(expected.right, rel=1e-3)
    assert trust.new == pytest.approx(expected.new, rel=1e-3)


def test_scores_mean_something_also_where_all_was_right():
    score, always = torch.rand(100, generator=generator("score")) + 0.5, torch.ones(100, dtype=torch.bool)
    trust = trusted([Scores(score, always, -score, ~always)])
    halfway, clear = chance(torch.tensor([0.0, 1.0]), trust.right).tolist()
    assert halfway < 0.85  # it was 98 % where images were clear
    assert clear > 0.95
    assert chance(torch.tensor([0.0, -1.0]), trust.new).tolist() == pytest.approx([1 - halfway, 1 - clear], abs=1e-5)


def test_scores_that_few_images_have_or_that_say_nearer_is_worse_mean_nothing():
    score = torch.randn(200, generator=generator("score"))
    happened = torch.rand(200, generator=generator("happened")) < torch.sigmoid(3 * score)
    assert trusted([Scores(score, happened, score, happened)]) is not None
    few = Scores(score[:99], happened[:99], score[:99], happened[:99])
    assert trusted([few]) is None
    assert trusted([few, few]) is not None  # rounds speak together
    assert trusted([Scores(score, ~happened, score, happened)]) is None
    assert trusted([Scores(score, happened, score, ~happened)]) is None


@pytest.mark.parametrize(("classes", "each", "enough"), [(1, 30, False), (3, 30, False), (4, 30, True), (4, 1, False)])
def test_of_few_classes_or_pictures_nothing_is_learnt_by_pretending(classes, each, enough):
    images = embedded("few", range(classes), each=each)
    assert (pretended(tempered(images.features()), images.labels) is not None) == enough


def test_only_which_pictures_share_a_class_matters_to_pretending():
    images = embedded("known", range(6), **HARD)
    x, labels = tempered(images.features()), images.labels
    assert pretended(x, 7 * labels + 3) == pretended(x, labels)
    assert pretended(x, labels, seed=1) != pretended(x, labels)


def test_what_is_learnt_by_pretending_is_the_model_s_and_stays_when_it_is_aimed(doubtful):
    x = tempered(embedded("known", range(20), **HARD).features())
    assert doubtful.trust == pretended(x, torch.arange(20).repeat_interleave(20))
    assert aimed(doubtful, embedded("new", OTHERS, labelled=False)).trust == doubtful.trust
