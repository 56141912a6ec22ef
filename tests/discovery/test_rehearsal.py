"""Known classes are hidden, on features that nobody extracted and on real drawings."""

import json
import math
from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import nn

from newfound import discover, pretrain
from newfound.data.decoding import Box
from newfound.data.features import FeatureDataset, FeatureImages
from newfound.data.listing import list_images
from newfound.discovery import audition as auditions
from newfound.discovery import discover as discovering
from newfound.discovery import hidings, rehearsal
from newfound.discovery.audition import audition_backbones, pick_some, relabel, rival_names
from newfound.discovery.find import plan_training, state_problem
from newfound.discovery.hidings import RehearsalSet
from newfound.discovery.pages import page
from newfound.discovery.rehearsal import (
    count_hidden,
    expect_of,
    plain_way,
    preferred_way,
    rehearse,
    rehearse_known,
    settle,
)
from newfound.discovery.result import Discovery
from newfound.discovery.settings import DISCRIMINANT, KMEANS, MIDDLE, NO, SHIFT, WHOLE, YES, Run, StageOne
from newfound.encoders.choose import choose_encoder, encoder_of
from newfound.encoders.features import FeatureEncoder
from newfound.encoders.pixels import PixelEncoder
from newfound.encoders.reading import read_by
from newfound.encoders.statistics import add_head, fit_statistics
from newfound.errors import InputError
from newfound.functional.axes import Axes, power_normalised
from newfound.functional.counting import Errors, Sweep, sweep
from newfound.functional.metrics import gcd_accuracy
from newfound.functional.rehearsal import (
    Expected,
    Hiding,
    Rehearsal,
    Trial,
    Way,
    choose,
    expect,
    tabulate,
    thin,
)
from newfound.methods import parse
from newfound.networks.adapter import Adapter, adapter_along
from newfound.networks.model import Model, Statistics
from newfound.networks.pretrained import LITE, LITES, PretrainedBackbone, load_pretrained
from newfound.networks.resnet import OWN
from newfound.training.loop import Learner
from newfound.training.train import train
from newfound.types import seeded
from tests.data.pictures import picture, save, write_doodles
from tests.encoders.features import embedded

STAGE = StageOne(backbone=LITE, size=64)


@pytest.fixture(scope="module")
def encoder():
    return FeatureEncoder(load_pretrained(size=64), "cpu")


@pytest.fixture
def quick(monkeypatch):
    """Fewer hidings, none of them trained on."""
    monkeypatch.setattr(rehearsal, "HIDINGS", 3)
    monkeypatch.setattr(rehearsal, "REPORTED", 2)
    monkeypatch.setattr(rehearsal, "COUNTED", 2)
    monkeypatch.setattr(rehearsal, "DEAR", 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Drawings of six known kinds and of three others, and a cache of their own."""
    root = tmp_path_factory.mktemp("files")
    write_doodles(root / "known", range(6), each=8, scale=4)
    write_doodles(root / "few", range(3), each=8, scale=4)
    write_doodles(root / "new", range(6, 9), each=8, scale=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        yield root


def test_what_kept_classes_are_placed_by_knows_nothing_of_the_hidden(encoder):
    images = embedded("laws", range(8))
    stage = RehearsalSet.of(images, encoder)
    (hiding,) = stage.hidings("choose", 1, 0)
    told, pile = stage.latents(hiding, 3.0)
    shuffled = hiding._replace(truth=hiding.truth.flip(0))
    assert all(map(torch.equal, stage.latents(shuffled, 3.0), (told, pile)))
    assert (told.shape[0], pile.shape[0]) == (len(hiding.labelled), len(hiding.pile))
    assert stage.score(hiding, told, pile, KMEANS, 0) > 0.9


def test_a_rehearsal_is_a_function_of_images_and_seed(encoder, quick):
    images = embedded("same", range(6), strong=0.6)
    first = rehearse(images, encoder, 0)
    assert rehearse(images, encoder, 0) == first
    assert rehearse(images, encoder, 1) != first
    assert {trial.way for trial in first.trials} == {
        Way(LITE, shrink, "kmeans", reading) for shrink in rehearsal.SHRINKS for reading in (KMEANS, DISCRIMINANT)
    }
    assert [trial.way for trial in first.apart] == [trial.way for trial in first.trials]
    assert (first.known, first.hidden, first.why) == (6, 3, "")
    assert first.mixed.least <= first.mixed.accuracy <= first.mixed.most


def test_what_is_trained_is_tried_as_find_trains_it(encoder, quick, monkeypatch):
    monkeypatch.setattr(rehearsal, "DEAR", 1)
    monkeypatch.setattr(rehearsal, "HIDINGS", 2)
    found = rehearse(embedded("trained", range(6)), encoder, 0)
    trained = [trial for trial in found.trials if trial.way.method == encoder.default_method]
    assert [trial.way.reading for trial in trained] == [KMEANS, DISCRIMINANT]
    assert all(len(trial.scores) == 1 and trial.scores[0] > 0.5 for trial in trained)


def test_what_is_trained_learns_from_some_images_and_is_read_off_all(encoder, monkeypatch):
    stage, taught = RehearsalSet.of(embedded("thinned", range(6)), encoder), []
    (hiding,) = stage.hidings("choose", 1, 0)

    def watch(learner, data, *rest, **how):
        taught.append(data.labels.tolist())
        return train(learner, data, *rest, **how)

    monkeypatch.setattr(hidings, "train", watch)
    monkeypatch.setattr(hidings, "TAUGHT", 9)
    told, pile = stage.trained(hiding, 3.0, encoder.default_method, 0)
    assert (len(told), len(pile)) == (len(hiding.labelled), len(hiding.pile))
    few = thin(hiding, 9, 0, "taught")
    assert taught == [[*few.labels.tolist(), *[-1] * len(few.pile)]]
    assert stage.score(hiding, told, pile, KMEANS, 0) > 0.5


def test_a_trial_is_silent_about_anchors_that_have_no_room(encoder):
    stage = RehearsalSet.of(embedded("crowded", range(60), each=6), encoder)
    (hiding,) = stage.hidings("choose", 1, 0)
    told, _ = stage.trained(hiding, 3.0, encoder.default_method, 0)  # warnings are errors here
    assert hiding.known + hiding.hidden > told.shape[1] + 1


def test_what_is_trained_along_the_axes_is_what_an_adapter_of_features_learns(encoder):
    images = embedded("along", range(6), strong=0.8)
    stage = RehearsalSet.of(images, encoder)
    (hiding,) = stage.hidings("choose", 1, 0)
    found, rows = stage.place(hiding, 3.0), torch.cat([hiding.labelled, hiding.pile])
    whole = Axes(stage.main.centre + stage.main.matrix @ found.centre, stage.main.matrix @ found.matrix)
    adapter, x = adapter_along(whole, 0), power_normalised(images.features())[hiding.labelled]
    statistics = Statistics.of(x, hiding.labels, hiding.known)
    model = add_head(Model(adapter, 64, 3, tuple(map(str, range(hiding.known)))), adapter, statistics)
    labels = torch.cat([hiding.labels, torch.full((len(hiding.pile),), -1)])
    data = FeatureDataset(images.records, labels, images.places[rows])
    problem = state_problem(model, hiding.hidden, True, len(data), mixed=True)
    with seeded(0, "method"):
        method = parse(TRAINED.method).build(problem, model)
    training = plan_training(Run(method=TRAINED.method), images)
    after = train(Learner(adapter, method, training.trains), data, training, 0, device="cpu").after
    told, pile = stage.trained(hiding, 3.0, TRAINED.method, 0)
    torch.testing.assert_close(told, after.labelled, atol=1e-3, rtol=0)
    torch.testing.assert_close(pile, after.unlabelled, atol=1e-3, rtol=0)
    before = torch.cat(stage.latents(hiding, 3.0))
    assert (torch.cat([told, pile]) - before).norm(dim=1).mean() > 0.1  # it did learn


def test_an_expectation_that_takes_training_takes_few_hidings_and_each_is_trained_on_once(encoder, monkeypatch):
    stage, seen = RehearsalSet.of(embedded("dear", range(8)), encoder), []

    def watch(hiding, *rest):
        seen.append(hiding.pile.tolist())
        return stage.latents(hiding, 3.0)

    monkeypatch.setattr(RehearsalSet, "trained", lambda self, *rest: watch(*rest))
    monkeypatch.setattr(rehearsal, "DEAR", 2)
    dear = Way(LITE, 3.0, encoder.default_method, KMEANS)
    found = rehearsal._report(stage, {True: dear, False: dear._replace(reading=DISCRIMINANT)}, 0)
    wanted = [stage.hidings(f"report {part}", 2, 0, part=part) for part in (1, 2)]
    assert seen == [hiding.pile.tolist() for some in wanted for hiding in some]
    assert None not in found


def test_what_is_reported_is_what_each_way_scores_with_known_classes_and_without(encoder, monkeypatch):
    stage = RehearsalSet.of(embedded("reported", range(8), strong=0.6), encoder)
    monkeypatch.setattr(rehearsal, "REPORTED", 3)
    taken = {True: PLAIN, False: SHIFTED._replace(shrink=1.0)}
    for mixed, way in taken.items():
        scores, miscounted, classes = [], [], []
        for part in (1, 2):
            for hiding in stage.hidings(f"report {part}", 3, 0, part=part):
                told, pile = stage.latents(hiding, way.shrink)
                scores.append(stage.score(hiding, told, pile, way.reading, 0, mixed=mixed))
                classes.append(hiding.hidden + hiding.known * mixed)
                for share in (0.8, 1.25):
                    number = max(1, round(share * (hiding.known + hiding.hidden)) - hiding.known)
                    assert number != hiding.hidden
                    miscounted += stage.scores(hiding, told, pile, way.reading, 0, [number], mixed=mixed)
        found, kind = rehearsal._report(stage, taken, 0)._asdict(), "mixed" if mixed else "alone"
        assert found[kind] == expect(scores, classes)
        counted = expect([*scores, *miscounted], [*classes, *(number for number in classes for _ in range(2))])
        assert found[f"{kind}_counted"] == pytest.approx(counted)
        assert found[f"{kind}_counted"].accuracy < found[kind].accuracy


def test_where_no_image_is_of_a_known_class_hidden_ones_are_scored_among_themselves(encoder):
    stage = RehearsalSet.of(embedded("among", range(8), strong=0.6), encoder)
    (hiding,) = stage.hidings("choose", 1, 0)
    told, pile = stage.latents(hiding, 3.0)
    new = hiding.truth >= hiding.known
    alone = stage.score(hiding, told, pile, KMEANS, 0, mixed=False)
    found = read_by(KMEANS, pile[new], hiding.hidden, None, 0)
    assert alone == gcd_accuracy(hiding.truth[new], found.assignment, 0).all
    elsewhere = pile.masked_fill(~new[:, None], 9.0)
    assert stage.score(hiding, 0 * told, elsewhere, KMEANS, 0, mixed=False) == alone


def test_expectations_come_from_other_hidings_than_the_choice(encoder, quick):
    stage = RehearsalSet.of(embedded("apart", range(8)), encoder)
    chosen, reported = (stage.hidings(purpose, 3, 0) for purpose in ("choose", "report 1"))
    assert all(a.pile.tolist() != b.pile.tolist() for a in chosen for b in reported)


def test_half_of_the_classes_can_take_part(encoder):
    stage = RehearsalSet.of(embedded("half", range(10)), encoder)
    (hiding,) = stage.hidings("report", 1, 0, part=2)
    labels = stage.labels[torch.cat([hiding.labelled, hiding.pile])]
    assert len(labels.unique()) == hiding.known + hiding.hidden == 5


def test_counting_errs_as_a_loop_over_hidings_says(encoder):
    stage = RehearsalSet.of(embedded("erred", range(8), strong=0.8), encoder)
    found = [*count_hidden(stage, 3)]
    hidings = stage.hidings("count", rehearsal.COUNTED, 3)
    assert len(found) == len(hidings) == rehearsal.COUNTED
    for errors, hiding in zip(found, hidings, strict=True):
        told, pile = stage.latents(hiding, 10.0)  # of four kept classes
        tops = sweep(pile, told, hiding.labels, most=24, starts=1, seed=3).tops
        assert len(stage.labels[torch.cat([hiding.labelled, hiding.pile])].unique()) == 8
        for name, error in errors._asdict().items():
            assert math.exp(error) == pytest.approx(math.exp(tops[name]) / 8)


@pytest.mark.parametrize(("classes", "most"), [(6, 18), (40, 100)])
def test_no_more_classes_are_looked_for_than_in_earnest(encoder, monkeypatch, classes, most):
    asked = []

    def tell(pile, told, labels, **how):
        asked.append(how)
        return Sweep(3, dict.fromkeys(("pairs", "accuracy", "silhouette"), 0.0), "pairs", 0.1, ())

    monkeypatch.setattr(rehearsal, "sweep", tell)
    found = [*count_hidden(RehearsalSet.of(embedded("many", range(classes), each=4), encoder), 0)]
    assert asked == [{"most": most, "starts": 1, "seed": 0}] * rehearsal.COUNTED
    assert found == [Errors(*(-math.log(classes),) * 3)] * rehearsal.COUNTED


def test_how_counting_errs_is_a_function_of_images_and_seed(encoder, monkeypatch):
    monkeypatch.setattr(rehearsal, "COUNTED", 2)
    stage = RehearsalSet.of(embedded("erred", range(6), strong=0.6), encoder)
    assert [*count_hidden(stage, 0)] == [*count_hidden(stage, 0)] != [*count_hidden(stage, 1)]


@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 8, 8, 2)])
def test_with_too_few_known_classes_nothing_is_rehearsed_and_it_is_said(encoder, caplog, sizes):
    images = embedded("few", range(len(sizes)), each=8)
    rows = torch.cat([(images.listing.labels == label).nonzero()[:n, 0] for label, n in enumerate(sizes)])
    images = FeatureImages(
        images.listing.pick(rows), images.records, images.places[rows], tuple(images.keys[row] for row in rows.tolist())
    )
    found = rehearse(images, encoder, 0)
    assert found.trials == found.counting == ()
    assert "needs 4 known classes" in found.why
    model = replace(fit_statistics(images, encoder.backbone), rehearsal=found)
    with caplog.at_level("INFO", "newfound"):
        settled = settle(model, encoder, Run(), given=False)
    assert settled.run == Run().suited(encoder.default_method)
    assert "No rehearsal: rehearsing needs 4 known classes" in caplog.text


def made(*trials, **more):
    """A model with a rehearsal, and nothing else that matters here."""
    return Model(Adapter(4, 2), 64, 3, ("a", "b", "c", "d"), rehearsal=Rehearsal(4, 2, trials=trials, **more))


PLAIN = plain_way(LITE)
SHIFTED = PLAIN._replace(reading=DISCRIMINANT)
TRAINED = PLAIN._replace(method="pairs+spacing:aligned")
TRIALS = Trial(PLAIN, (0.5,) * 4), Trial(SHIFTED, (0.6,) * 4), Trial(TRAINED, (0.55,) * 4)


def test_the_best_way_is_taken_and_what_was_asked_for_stays(encoder):
    model = made(*TRIALS)

    def taken(**asked):
        run = settle(model, encoder, Run(**asked), given=True).run
        return run.method, run.read_by

    assert taken() == ("kmeans", DISCRIMINANT)
    assert taken(read_by=KMEANS) == (TRAINED.method, KMEANS)
    assert taken(method="kmeans", read_by=KMEANS) == ("kmeans", KMEANS)
    assert taken(method=TRAINED.method) == (TRAINED.method, KMEANS)
    assert taken(epochs=3) == (TRAINED.method, KMEANS)  # who asks for epochs wants to train
    assert taken(method="uno") == ("uno", KMEANS)
    better = made(TRIALS[0], TRIALS[2]._replace(scores=(0.7,) * 4))
    untried = settle(better, encoder, Run(read_by=SHIFT), given=True).run
    assert (untried.method, untried.read_by) == (TRAINED.method, SHIFT)  # the rest is chosen all the same


def test_discriminants_are_read_by_unless_another_way_is_clearly_better(encoder):
    def taken(scores):
        return settle(made(Trial(PLAIN, scores), Trial(SHIFTED, FLAT)), encoder, Run(), given=True).way

    assert [taken(scores) for scores in (FLAT, LUCKY, BETTER)] == [SHIFTED, SHIFTED, PLAIN]


def test_where_no_image_is_of_a_known_class_the_choice_is_made_without_them(encoder, caplog):
    apart = Trial(PLAIN, (0.5,) * 4), Trial(SHIFTED, (0.5,) * 4), Trial(TRAINED, (0.7,) * 4)
    model = made(*TRIALS, apart=apart, alone=Expected(0.7, 0.6, 0.8, 2, 0.1))
    with caplog.at_level("INFO", "newfound"):
        runs = {mixed: settle(model, encoder, Run(mixed=mixed), given=True) for mixed in (True, False)}
    assert (runs[True].way, runs[False].way) == (SHIFTED, TRAINED)
    assert runs[False].expected.accuracy == 0.7
    tables = caplog.text.split("Rehearsal on")[1:]
    assert [" 70.0  " in table for table in tables] == [False, True]
    assert settle(made(*TRIALS), encoder, Run(mixed=False), given=True).way == SHIFTED  # made before there was a choice


def test_classes_that_are_all_alike_leave_the_defaults_and_it_is_said(encoder, quick, caplog):
    images = embedded("alike", range(6), each=20, strong=0.0)
    found = rehearse(images, encoder, 0)
    assert (found.trials, found.apart, found.mixed) == ((), (), None)
    assert "no better than drawing lots" in found.why
    model = replace(fit_statistics(images, encoder.backbone), rehearsal=found)
    with caplog.at_level("INFO", "newfound"):
        settled = settle(model, encoder, Run(), given=False)
    assert settled.run == Run().suited(encoder.default_method)
    assert "No rehearsal: efficientnet-lite0 tells hidden known classes apart no better" in caplog.text


def test_the_table_is_told_with_what_was_taken(encoder, caplog):
    with caplog.at_level("INFO", "newfound"):
        settled = settle(made(*TRIALS), encoder, Run(), given=True)
    assert "Rehearsal on 2 of 4 known classes at a time, hidden" in caplog.text
    assert f"{LITE}:" in caplog.text
    assert "  60.0  discriminant, shrunk by 3  ← taken" in caplog.text
    assert caplog.text.count("taken") == 1
    assert (settled.way, settled.why) == (SHIFTED, "")


def test_the_report_shows_the_table_of_a_run_that_is_read_again(place, quick, tmp_path):
    known, new, run = place / "known", place / "new", Run(device="cpu")
    made_here = discover(known=known, unlabelled=new, classes=3, stage=STAGE, run=run, output=tmp_path / "run")
    shown = page(Discovery.load(tmp_path / "run").classes)
    rehearsal, way = made_here.found.model.rehearsal, made_here.found.way
    assert shown.rehearsed == tabulate(rehearsal, way)
    (rows,) = shown.rehearsed.values()
    assert len(rows) == 4
    assert sum(taken for *_, taken in rows) == 1
    assert shown.rehearsal.startswith("Rehearsal on 3 of 6 known classes at a time, hidden, to choose")
    assert shown.expected == made_here.facts["expected accuracy"]
    assert "rehearsal" not in shown.facts


def test_an_expectation_is_that_of_the_way_which_is_used():
    mixed, alone = Expected(0.6, 0.5, 0.7, 4, 0.1), Expected(0.8, 0.7, 0.9, 2, 0.1)
    found, given = made(*TRIALS, mixed=mixed, alone=alone).rehearsal, {"counted": False}
    assert expect_of(found, SHIFTED, mixed=True, **given) == mixed
    assert expect_of(found, SHIFTED, mixed=False, **given) == alone
    assert expect_of(found, PLAIN, mixed=True, **given).accuracy == pytest.approx(0.5)
    assert expect_of(found, PLAIN, mixed=False, **given) is None
    assert expect_of(found, PLAIN._replace(method="uno"), mixed=True, **given) is None


def test_less_is_expected_where_the_number_of_classes_is_an_estimate(encoder):
    given, counted = Expected(0.6, 0.5, 0.7, 4, 0.1), Expected(0.5, 0.3, 0.7, 4, 0.1)
    model = made(*TRIALS, mixed=given, mixed_counted=counted)
    assert settle(model, encoder, Run(), given=True).expected == given
    assert settle(model, encoder, Run(), given=True, counted=True).expected == counted
    before = made(*TRIALS, mixed=given)  # nobody had seen yet what counting costs
    assert settle(before, encoder, Run(), given=True, counted=True).expected == given


def test_less_is_expected_of_a_way_that_somebody_chose_where_the_number_of_classes_is_an_estimate(encoder):
    given, counted = Expected(0.6, 0.5, 0.7, 4, 0.1), Expected(0.5, 0.3, 0.7, 4, 0.1)
    model, asked = made(*TRIALS, mixed=given, mixed_counted=counted), Run(read_by=PLAIN.reading)
    told, less = (settle(model, encoder, asked, given=True, counted=how).expected for how in (False, True))
    assert less.accuracy == pytest.approx(told.accuracy - 0.1)
    assert less.most - less.least == pytest.approx(told.most - told.least)


def test_many_classes_of_few_images_are_rehearsed(encoder, quick):
    found = rehearse(embedded("crowd", range(130), each=4), encoder, 0)
    assert found.alone_counted is not None


@pytest.mark.parametrize("mixed", [True, False])
def test_no_more_classes_are_looked_for_than_there_are_images_that_are_hidden(encoder, mixed):
    stage = RehearsalSet.of(embedded("crowd", range(6), each=4), encoder)
    (hiding,) = stage.hidings("choose", 1, 0)
    told, pile = stage.latents(hiding, rehearsal.SHRINKS[0])
    assert 0 < stage.scores(hiding, told, pile, DISCRIMINANT, 0, [999], mixed=mixed)[0] < 1


def test_a_discovery_that_counts_expects_what_counting_lets_expect(place, quick):
    run = Run(method="kmeans", device="cpu")
    found = discover(known=place / "known", unlabelled=place / "new", stage=STAGE, run=run).found
    told, number = found.model.rehearsal.expected(mixed=True, counted=True), len(found.numbers)
    assert found.expected == told.at(number)
    assert found.expected != found.model.rehearsal.expected(mixed=True, counted=False).at(number)


def test_nobody_rehearses_who_does_not_want_to(encoder):
    assert rehearse_known(encoder, embedded("no", range(6)), None, StageOne(rehearse=NO), 0) is None


def test_a_network_that_learns_all_known_classes_cannot_rehearse(place):
    own = choose_encoder(StageOne(backbone=OWN), None, [], labelled=True, device="cpu")
    found = rehearse_known(own, embedded("own", range(6)), None, StageOne(), 0)
    assert "learns all known classes" in found.why


def test_one_stage_and_two_take_the_same_way_and_keep_it(place, quick):
    model = pretrain(place / "known", output=place / "model", stage=STAGE)
    single = discover(known=place / "known", unlabelled=place / "new", classes=3, stage=STAGE, run=Run(device="cpu"))
    double = discover(model=place / "model", unlabelled=place / "new", classes=3, run=Run(device="cpu"))
    assert single.found.model.rehearsal == double.found.model.rehearsal == model.rehearsal is not None
    assert single.found.way == double.found.way is not None
    assert single.found.expected == double.found.expected is not None
    assert single.facts["method"] == double.facts["method"]
    assert single.facts["expected accuracy"] == double.facts["expected accuracy"]
    about = json.loads((place / "model" / "model.json").read_text())
    assert about["rehearsal"]["trials"]
    assert [*map(set, about["rehearsal"]["counting"])] == [{"pairs", "accuracy", "silhouette"}] * 2


def test_a_model_from_before_classes_were_counted_counts_as_it_did(place, quick, tmp_path):
    pretrain(place / "known", output=tmp_path / "model", stage=STAGE)
    asked = {"model": tmp_path / "model", "unlabelled": place / "new", "run": Run(method="kmeans", device="cpu")}
    new, path = discover(**asked).found.count, tmp_path / "model" / "model.json"
    about = json.loads(path.read_text())
    del about["rehearsal"]["counting"]
    path.write_text(json.dumps(about))
    old = discover(**asked).found.count
    assert (new.criterion, old.criterion) == ("rehearsed", "pairs")
    assert old.classes == old.estimates["pairs"]


def test_who_wants_no_rehearsal_has_nothing_decided_by_that_of_a_model(place, quick, tmp_path):
    pretrain(place / "known", output=tmp_path / "model", stage=STAGE)
    asked = {"model": tmp_path / "model", "unlabelled": place / "new", "run": Run(method="kmeans", device="cpu")}
    with_it, without = (discover(stage=StageOne(rehearse=how), **asked) for how in (YES, NO))
    assert (with_it.found.count.criterion, without.found.count.criterion) == ("rehearsed", "pairs")
    assert "rehearsal" not in without.facts
    assert "expected accuracy" not in without.facts
    assert without.found.run.read_by == "auto"
    assert without.found.model.rehearsal == with_it.found.model.rehearsal  # it stays for whoever asks later


def test_the_truth_of_unlabelled_images_has_no_part_in_it(place, quick, tmp_path):
    asked = {"known": place / "known", "stage": STAGE, "run": Run(device="cpu")}
    right = discover(unlabelled=place / "new", truth=True, **asked)
    for number, file in enumerate(sorted((place / "new").rglob("*.png"))):  # the same images, in the same order
        target = tmp_path / "new" / f"other kind {number // 5}" / f"{number:02}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    wrong = discover(unlabelled=tmp_path / "new", truth=True, **asked)
    assert right.found.model.rehearsal == wrong.found.model.rehearsal
    assert right.found.way == wrong.found.way is not None
    assert right.found.count == wrong.found.count
    assert right.found.count.criterion == "rehearsed"


def test_killed_while_it_rehearses_and_resumed_it_leaves_the_same(place, quick, tmp_path, monkeypatch):
    asked = {"known": place / "known", "unlabelled": place / "new", "classes": 3, "stage": STAGE}
    asked |= {"run": Run(device="cpu"), "command": "same"}
    discover(output=tmp_path / "whole", **asked)

    def stop(stage, epochs, row):
        if stage == "rehearse" and row["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        discover(output=tmp_path / "killed", progress=stop, **asked)
    discover(output=tmp_path / "killed", resume=True, **asked)
    for name in ("assignments.csv", "classes.csv", "model/model.json", "model/model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_to_ask_for_a_rehearsal_where_there_is_none_is_refused(place, tmp_path):
    pretrain(place / "few", output=tmp_path / "model", stage=replace(STAGE, rehearse=NO))
    with pytest.raises(InputError, match="the model has no rehearsal"):
        discover(model=tmp_path / "model", unlabelled=place / "new", classes=2, stage=StageOne(rehearse=YES))
    with pytest.raises(InputError, match="none are known"):
        discover(unlabelled=place / "new", classes=2, stage=StageOne(rehearse=YES))
    with pytest.raises(InputError, match="--rehearse is maybe"):
        StageOne(rehearse="maybe")


def test_backbones_are_rivals_only_where_nobody_has_chosen(encoder):
    both, large = f"{LITE}+{[*LITES][-1]}", [*LITES][-1]
    assert rival_names(encoder, StageOne()) == rival_names(encoder, StageOne(framing=WHOLE)) == [LITE, large, both]
    for chosen in (STAGE, StageOne(rehearse=NO), StageOne(width=8), StageOne(size=32)):
        assert rival_names(encoder, chosen) == [LITE]


def test_some_images_of_each_class_are_looked_at():
    labels = torch.arange(4).repeat_interleave(torch.tensor([300, 300, 300, 5]))
    rows = pick_some(labels, 0)
    assert torch.bincount(labels[rows]).tolist() == [50, 50, 50, 5]
    assert torch.equal(rows, pick_some(labels, 0))
    many = torch.arange(100).repeat_interleave(100)
    assert len(many[pick_some(many, 0)].unique()) == auditions.CLASSES
    assert len(pick_some(many, 0)) == auditions.LOOKED


def test_classes_are_counted_anew_among_some_images():
    images = embedded("anew", range(4))
    some = relabel(images.listing.pick((images.listing.labels != 1).nonzero()[:, 0]))
    assert some.classes == ("kind 0", "kind 2", "kind 3")
    assert some.labels.unique().tolist() == [0, 1, 2]


def test_the_backbone_that_tells_hidden_kinds_apart_is_taken(place, quick, monkeypatch):
    listed, taught = list_images(place / "known", labelled=True), StageOne()
    own = choose_encoder(replace(taught, backbone=OWN), None, [], labelled=True, device="cpu")
    monkeypatch.setattr(auditions, "SEEN", (LITE,))
    monkeypatch.setattr(auditions, "LEARNT", 1)
    monkeypatch.setitem(LITES, LITE, 64)
    found = audition_backbones(own, taught, listed, 0, "cpu")
    assert {trial.way.backbone for trial in found.rehearsal.backbones} == {LITE, OWN}
    means = {trial.way.backbone: trial.mean for trial in found.rehearsal.backbones if trial.way.reading == KMEANS}
    assert found.encoder.name == found.stage.backbone == max(means, key=means.get)
    trials = found.rehearsal.backbones
    assert {choose(some, preferred_way(LITE)).backbone for some in (trials, trials[::-1])} == {found.encoder.name}
    assert found.explain("small-resnet-18, since images are small").startswith(f"{found.encoder.name}, since it told")


def test_images_in_memory_leave_no_choice(encoder):
    assert audition_backbones(encoder, StageOne(), None, 0, "cpu").rehearsal is None
    assert audition_backbones(encoder, StageOne(), None, 0, "cpu").explain("lite0, since …") == "lite0, since …"


class ReachedError(Exception):
    """Images are about to be read."""


@pytest.mark.parametrize("asked", ["openmix", "similarity"])
def test_what_needs_pixels_leaves_no_choice_and_is_not_refused_after_long_work(tmp_path, monkeypatch, asked):
    write_doodles(tmp_path / "known", range(6), each=8, scale=1)
    write_doodles(tmp_path / "new", range(6, 9), each=8, scale=1)
    monkeypatch.setattr(auditions.Audition, "hear", lambda *told: pytest.fail("backbones were tried"))

    def read(encoder, *told):
        assert encoder.name == OWN
        raise ReachedError

    monkeypatch.setattr(discovering, "encode_source", read)
    monkeypatch.setattr(discovering, "_encode", lambda plan, progress: read(plan.encoder))
    known, new = tmp_path / "known", tmp_path / "new"
    begin = {
        "similarity": lambda: pretrain(known, similarity=True),
        "openmix": lambda: discover(known=known, unlabelled=new, classes=3, run=Run(method="openmix")),
    }
    with pytest.raises(ReachedError):
        begin[asked]()


LARGE = [*LITES][-1]
BOTH = f"{LITE}+{LARGE}"


def stub(name, framing=MIDDLE):
    """An encoder that only has a name."""
    if name == OWN:
        return PixelEncoder(32, "cpu")
    blind = PretrainedBackbone(name, nn.Identity(), 64, [0.0] * 3, [1.0] * 3, whole=framing == WHOLE)
    return FeatureEncoder(blind, "cpu")


@pytest.fixture
def audition(monkeypatch, tmp_path):
    """Choose among backbones whose scores are made up: by name, what clusters read off along discriminants score."""

    def choose_by(scores, unseen=LITE, sides=(30, 30), stage=None):
        folder, heard = tmp_path / "x".join(map(str, sides)), []
        for label in range(5):
            for number in range(4):
                save(folder / f"{label}" / f"{number}.png", picture(number, *sides))

        def rival(self, name, framing):
            return auditions.BackboneChoice(
                stub(name, framing), replace(self.stage, backbone=name, framing=framing), None
            )

        def hear(self, rivals, some):
            names = [rival.encoder.name for rival in rivals]
            heard.extend(names)
            ways = {name: preferred_way(name) if name != OWN else Way(OWN, 0.0, "spacing", KMEANS) for name in names}
            hiding = Hiding(*[torch.arange(2)] * 4, 3, 2)
            return [Trial(ways[name], scores[name]) for name in names], [hiding], some

        monkeypatch.setattr(auditions.Audition, "rival", rival)
        monkeypatch.setattr(auditions.Audition, "hear", hear)
        labelled = list_images(folder, labelled=True)
        found = audition_backbones(stub(unseen), stage or StageOne(), labelled, 0, "cpu")
        return found.encoder.name, heard, found

    return choose_by


FLAT = (0.6, 0.5, 0.7, 0.6)
BETTER, LUCKY = tuple(score + 0.05 for score in FLAT), (0.9, 0.5, 0.7, 0.6)


@pytest.mark.parametrize(
    ("scores", "taken"),
    [
        ({BOTH: FLAT, LITE: FLAT, LARGE: FLAT}, BOTH),
        ({BOTH: FLAT, LITE: LUCKY, LARGE: FLAT}, BOTH),
        ({BOTH: FLAT, LITE: BETTER, LARGE: FLAT}, LITE),
        ({BOTH: FLAT, LITE: FLAT, LARGE: BETTER}, LARGE),
        ({BOTH: BETTER, LITE: FLAT, LARGE: FLAT}, BOTH),
    ],
)
def test_both_networks_look_unless_hidden_classes_speak_clearly_for_one(audition, scores, taken):
    assert audition(scores)[0] == taken
    own = {OWN: tuple(score - 0.1 for score in FLAT[:2])}
    assert audition(scores | own, unseen=OWN)[0] == taken


def test_our_own_network_is_taken_where_it_is_clearly_better(audition):
    rest = {BOTH: FLAT, LITE: FLAT, LARGE: FLAT}
    assert audition(rest | {OWN: (0.7, 0.6)}, unseen=OWN)[0] == OWN
    assert audition(rest | {OWN: (0.9, 0.5)}, unseen=OWN)[0] == BOTH


def test_the_smallest_network_is_the_first_where_no_other_is_installed(audition, monkeypatch):
    monkeypatch.setattr(auditions, "is_installed", lambda name: name == LITE)
    assert audition({LITE: FLAT, OWN: FLAT[:2]}, unseen=OWN)[:2] == (LITE, [OWN, LITE])


def test_pictures_that_are_not_square_are_seen_whole_unless_their_middle_is_clearly_better(audition):
    whole = {f"{name} on whole pictures": FLAT for name in (BOTH, LITE, LARGE)}
    for middle, framing in ((FLAT, WHOLE), (LUCKY, WHOLE), (BETTER, MIDDLE)):
        taken, heard, found = audition(whole | {BOTH: middle}, sides=(40, 30))
        assert found.stage == StageOne(backbone=BOTH, framing=framing)
        assert taken == (BOTH if framing == MIDDLE else f"{BOTH} on whole pictures")
        assert [*heard[3:]] == [BOTH]  # the one that was taken, and no other, is asked again
        assert len(found.rehearsal.backbones) == 4


def test_how_much_is_seen_is_tried_only_where_it_matters_and_nobody_has_said(audition):
    scores = {BOTH: FLAT, LITE: FLAT, LARGE: FLAT}
    scores |= {f"{name} on whole pictures": BETTER for name in scores}
    assert audition(scores, sides=(36, 30))[0] == BOTH  # nearly square
    assert audition(scores, sides=(40, 30), stage=StageOne(framing=MIDDLE))[0] == BOTH
    assert audition(scores | {BOTH: BETTER}, sides=(30, 40), stage=StageOne(framing=WHOLE))[1] == [
        f"{name} on whole pictures" for name in (LITE, LARGE, BOTH)
    ]
    assert audition(scores, sides=(40, 30), stage=StageOne(rehearse=NO))[1] == []
    one = audition(scores, sides=(40, 30), stage=StageOne(backbone=LITE))
    assert one[:2] == (f"{LITE} on whole pictures", [f"{LITE} on whole pictures", LITE])
    assert audition(scores, unseen=OWN, sides=(40, 30), stage=StageOne(backbone=OWN))[1] == []


def test_the_share_of_pictures_that_are_not_square_counts_boxes_and_leaves_out_what_cannot_be_read(tmp_path):
    for number, sides in enumerate([(40, 30), (30, 40), (30, 30), (37, 30)]):
        save(tmp_path / f"{number}.png", picture(0, *sides))
    (tmp_path / "broken.png").write_bytes(b"nothing")
    listed = list_images(tmp_path, labelled=False)
    assert auditions.share_oblong(listed) == 2 / 4
    boxed = replace(listed, boxes=(Box(0, 0, 20, 10),) * len(listed))
    assert auditions.share_oblong(boxed) == 1
    assert auditions.share_oblong(listed.pick(torch.tensor([], dtype=torch.long))) == 0


def test_how_pictures_are_seen_travels_in_the_model_folder(place, quick, tmp_path, monkeypatch):
    monkeypatch.setattr(auditions, "HIDINGS", 3)
    for part in ("known", "new"):
        for file in (place / part).rglob("*.png"):
            save(tmp_path / file.relative_to(place), Image.open(file).resize((84, 56)))
    asked = {"unlabelled": tmp_path / "new", "classes": 3, "run": Run(device="cpu", method="kmeans")}
    model = pretrain(tmp_path / "known", output=tmp_path / "model", stage=STAGE)
    found = discover(model=tmp_path / "model", output=tmp_path / "run", **asked)
    assert {trial.way.backbone for trial in model.rehearsal.backbones} == {LITE, f"{LITE} on whole pictures"}
    assert found.found.model.rehearsal == model.rehearsal
    kept, whole = Model.from_pretrained(tmp_path / "run" / "model"), model.pretrained.backbone.whole
    assert encoder_of(kept).name == encoder_of(model).name == f"{LITE}{' on whole pictures' if whole else ''}"
    other = replace(STAGE, framing=MIDDLE if whole else WHOLE, rehearse=NO)
    pretrain(tmp_path / "known", output=tmp_path / "other", stage=other)
    assert Model.from_pretrained(tmp_path / "other").pretrained.backbone.whole != whole
    with pytest.raises(InputError, match="so --framing would change nothing"):
        discover(model=tmp_path / "model", stage=StageOne(framing=WHOLE), **asked)
