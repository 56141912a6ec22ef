"""The loop: every draw a function of seed, epoch and step; stopping changes nothing."""

import dataclasses
import re
import time

import pytest
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState

from newfound.data.listing import Listing
from newfound.data.pixels import Images, PixelDataset
from newfound.errors import InputError
from newfound.methods import parse
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.training import loop
from newfound.training.checkpoint import load_checkpoint, save_checkpoint
from newfound.training.loop import Learner, _step, accelerator, estimate, fit, optimiser, survey, tell_length
from newfound.types import Now, Problem, Training, generator, seeded

TRAINING = Training(epochs=3, batch=16, rate=0.05)


def make_data(n=48, labelled=True):
    pixels = torch.randint(0, 256, (n, 1, 12, 12), generator=generator("pixels"), dtype=torch.uint8)
    labels = torch.arange(n) % 3
    labels[n // 2 :] = -1
    return PixelDataset(pixels, labels if labelled else torch.full((n,), -1))


def make_learner(name="pairs+spacing", labelled=True, trains=99, rows=48):
    with seeded("learner"):
        model = Model(SmallResNet(2, 2), 12, 1, ("a", "b", "c"), torch.nn.Linear(16, 3))
        method = parse(name).build(Problem(16, 3, 4, labelled, rows), model)
    return Learner(model.backbone, method, trains)


def state(learner):
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_time(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("name", ["pairs+spacing", "pairs+spacing:paper", "pairs+spacing:author"])
def test_stopped_and_resumed_equals_never_stopped(tmp_path, name, optimiser):
    training = dataclasses.replace(TRAINING, optimiser=optimiser, rate=0.01)
    whole, stopped, resumed = make_learner(name), make_learner(name), make_learner(name)
    rows = fit(whole, make_data(), training, seed=3, device="cpu")

    def interrupt(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(stopped, make_data(), training, seed=3, device="cpu", progress=interrupt, checkpoint=checkpoint)
    again = fit(resumed, make_data(), training, seed=3, device="cpu", checkpoint=checkpoint, resume=True)
    assert equal(state(whole), state(resumed))
    assert without_time(again) == without_time(rows)


def test_scaled_losses_too_go_on_as_if_never_stopped(tmp_path, monkeypatch):
    """In half precision a scale that overflows is halved and the step left out: one forgotten would be halved anew."""
    engines = []

    def halved(device):
        engines.append(accelerator(device))
        engines[-1].scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)
        return engines[-1]

    monkeypatch.setattr(loop, "accelerator", halved)
    whole, stopped, resumed = make_learner(), make_learner(), make_learner()
    fit(whole, make_data(), TRAINING, seed=3, device="cpu")
    scaled = engines[0].scaler.state_dict()
    assert 0 < scaled["scale"] < 2.0**127
    assert scaled["_growth_tracker"] > 0

    def interrupt(row):
        raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(stopped, make_data(), TRAINING, seed=3, device="cpu", progress=interrupt, checkpoint=checkpoint)
    fit(resumed, make_data(), TRAINING, seed=3, device="cpu", checkpoint=checkpoint, resume=True)
    assert engines[2].scaler.state_dict() == scaled
    assert equal(state(whole), state(resumed))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    learners = [make_learner() for _ in range(3)]
    for learner, seed in zip(learners, (1, 1, 2), strict=True):
        fit(learner, make_data(), TRAINING, seed=seed, device="cpu")
    assert equal(state(learners[0]), state(learners[1]))
    assert not equal(state(learners[0]), state(learners[2]))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    fit(make_learner(), make_data(), TRAINING, seed=1, device="cpu", checkpoint=checkpoint)
    with pytest.raises(InputError, match="another run"):
        fit(make_learner(), make_data(), TRAINING, seed=2, device="cpu", checkpoint=checkpoint, resume=True)
    other = dataclasses.replace(TRAINING, rate=0.5)
    with pytest.raises(InputError, match="another run"):
        fit(make_learner(), make_data(), other, seed=1, device="cpu", checkpoint=checkpoint, resume=True)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_checkpoint_whose_weights_are_no_numbers_is_refused(tmp_path, number):
    checkpoint, learner = tmp_path / "checkpoint.safetensors", make_learner()
    name, weight = next(learner.named_parameters())
    save_checkpoint(checkpoint, learner, optimiser(learner, TRAINING), 1, TRAINING, [{"epoch": 1.0}])
    load_checkpoint(checkpoint, make_learner(), optimiser(learner, TRAINING), 1, TRAINING)
    weight.data[0] = number
    save_checkpoint(checkpoint, learner, optimiser(learner, TRAINING), 1, TRAINING, [{"epoch": 1.0}])
    with pytest.raises(InputError, match=rf"{checkpoint.name} cannot be read \({re.escape(name)} .*begin anew"):
        load_checkpoint(checkpoint, make_learner(), optimiser(learner, TRAINING), 1, TRAINING)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    fit(make_learner(), make_data(), TRAINING, seed=1, device="cpu", checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be read"):
        fit(make_learner(), make_data(), TRAINING, seed=1, device="cpu", checkpoint=checkpoint, resume=True)


def test_only_the_last_stages_train_when_asked():
    learner = make_learner(trains=1)
    before = state(learner)
    fit(learner, make_data(), TRAINING, seed=0, device="cpu")
    moved = {name for name, value in learner.named_parameters() if not torch.equal(value, before[name])}
    backbone = {name for name in moved if name.startswith("backbone")}
    assert backbone
    assert all(name.startswith("backbone.stages.4.") for name in backbone)


def test_the_rate_follows_the_schedule(monkeypatch):
    rates, step = [], torch.optim.SGD.step

    def noting(self, *words):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *words)

    monkeypatch.setattr(torch.optim.SGD, "step", noting)
    training = Training(epochs=2, batch=24, rate=0.1, schedule=lambda progress: 1 - progress)
    fit(make_learner(), make_data(), training, seed=0, device="cpu")
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_moved_backbone_is_asked_in_the_precision_of_the_step(precision):
    engine, learner, seen = accelerator("cpu"), make_learner("pairs+spacing:paper").train(), []
    engine.autocast = lambda: torch.autocast("cpu", precision, enabled=precision != torch.float32)
    now, batch = next(iter(make_data().batches(TRAINING, Now(0, 0, 3), engine.device)))

    def noting(latents, whole, embed, now):
        assert not torch.is_autocast_enabled("cpu"), "state moves in full precision"
        with engine.autocast(), torch.no_grad():
            expected = learner.backbone(batch.views[0]).z
        seen.append(torch.equal(embed(0).z, expected.float()))

    learner.method.after_step = noting
    _step(learner, learner, engine, optimiser(learner, TRAINING), TRAINING, batch, now)
    assert seen == [True]


def test_a_training_in_bfloat16_computes_the_backbone_so_and_everything_else_in_full_precision(monkeypatch):
    """The step, what is asked of the moved backbone, and the surveys on the way; not state, losses or weights."""
    training, learner = dataclasses.replace(TRAINING, precision="bfloat16"), make_learner("pairs+spacing:paper")
    inside, outside = [], []
    head = learner.backbone.stages[-1]
    head.register_forward_hook(lambda module, given, out: inside.append(out.dtype))
    for hook in ("forward", "after_step", "before_epoch"):
        whole = getattr(learner.method, hook)

        def noting(*given, whole=whole):
            outside.append(torch.is_autocast_enabled("cpu"))
            return whole(*given)

        monkeypatch.setattr(learner.method, hook, noting)
    fit(learner, make_data(), training, seed=0, device="cpu")
    assert set(inside) == {torch.bfloat16}
    assert not any(outside)
    assert {p.dtype for p in learner.parameters()} == {torch.float32}


def test_a_precision_is_a_setting_that_a_checkpoint_knows(tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    fit(make_learner(), make_data(), TRAINING, seed=1, device="cpu", checkpoint=checkpoint)
    half = dataclasses.replace(TRAINING, precision="bfloat16")
    with pytest.raises(InputError, match="another run"):
        fit(make_learner(), make_data(), half, seed=1, device="cpu", checkpoint=checkpoint, resume=True)


def test_a_survey_is_the_backbone_in_eval_mode_image_by_image():
    learner, data = make_learner(), make_data()
    learner.train()
    features, labels = survey(learner.backbone, data)
    assert learner.backbone.training
    learner.eval()
    assert torch.equal(survey(learner.backbone, data).features, features)
    assert not learner.backbone.training
    one_by_one = torch.cat([learner.backbone(image[None].float() / 255).z for image in data.pixels])
    torch.testing.assert_close(features, one_by_one)
    assert torch.equal(labels, data.labels)


def test_permuting_the_truth_of_unlabelled_images_cannot_change_training():
    """Images may come with it, for the metrics; the discovery set and its batches say −1."""
    known, pile = (make_data().pixels[rows] for rows in (slice(24), slice(24, 48)))
    names, classes, truth, learnt = tuple(map(str, range(24))), ("a", "b", "c"), torch.arange(24) % 3, []
    labelled = Images(known, Listing.of(names, truth, classes))
    for told in (truth, truth.roll(1)):
        data, learner = Images(pile, Listing.of(names, told, classes)).discovery_set(labelled), make_learner()
        for _, batch in data.batches(TRAINING, Now(0, 0, 1), torch.device("cpu")):
            assert torch.equal(batch.labels, torch.where(batch.rows < 24, batch.rows % 3, -1))
        fit(learner, data, TRAINING, seed=0, device="cpu")
        learnt.append(state(learner))
    assert equal(*learnt)


def test_every_image_is_seen_once_an_epoch_in_an_order_of_its_own():
    data = make_data()
    orders = [
        torch.cat([batch.rows for _, batch in data.batches(TRAINING, Now(0, epoch, 2), torch.device("cpu"))])
        for epoch in (0, 1)
    ]
    assert all(order.sort().values.equal(torch.arange(48)) for order in orders)
    assert not orders[0].equal(orders[1])


def test_fewer_images_than_a_batch_are_one_batch():
    batches = list(make_data(10).batches(TRAINING, Now(0, 0, 1), torch.device("cpu")))
    assert [len(batch.labels) for _, batch in batches] == [10]


def test_training_that_diverges_says_so():
    training = Training(epochs=5, batch=16, rate=1e12)
    with pytest.raises(InputError, match=r"diverged.*--rate"):
        fit(make_learner("pairs"), make_data(), training, seed=0, device="cpu")


def test_the_time_that_training_will_take_grows_with_its_epochs():
    short, long = (
        estimate(make_learner(), make_data(), dataclasses.replace(TRAINING, epochs=epochs), device="cpu")
        for epochs in (1, 1000)
    )
    assert 0 < short < long  # far enough apart for a busy machine
    assert estimate(make_learner(), make_data(), dataclasses.replace(TRAINING, epochs=0), device="cpu") == 0


def test_estimating_leaves_the_learner_as_it_was():
    learner = make_learner("pairs+spacing:paper", trains=1).eval()
    before, learns = state(learner), [parameter.requires_grad for parameter in learner.parameters()]
    estimate(learner, make_data(), TRAINING, device="cpu")
    assert equal(state(learner), before)
    assert not learner.training
    assert [parameter.requires_grad for parameter in learner.parameters()] == learns
    assert all(parameter.grad is None for parameter in learner.parameters())


def test_estimating_waits_for_the_device_before_it_looks_at_the_clock(monkeypatch):
    """A device is told what to do and does it later; a number read from it is there when all is done."""
    events, step, item, clock = [], loop._step, torch.Tensor.item, time.perf_counter

    def noting(event, function):
        def noted(*words):
            result = function(*words)
            events.append(event)
            return result

        return noted

    monkeypatch.setattr(loop, "_step", noting("step", step))
    monkeypatch.setattr(torch.Tensor, "item", noting("number", item))
    monkeypatch.setattr(time, "perf_counter", noting("clock", clock))
    estimate(make_learner(), make_data(), TRAINING, device="cpu")
    after = [events[place + 1 : place + 3] for place, event in enumerate(events) if event == "step"]
    assert after == [["number", "clock"]] * 3


@pytest.fixture
def gpu(monkeypatch):
    """A machine whose accelerator is only known by name, and accelerate before it was ever asked."""
    kept = [dict(kind._shared_state) for kind in (AcceleratorState, PartialState)]
    monkeypatch.setattr(PartialState, "default_device", torch.device("meta"))
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    for kind, state in zip((AcceleratorState, PartialState), kept, strict=True):
        kind._shared_state.update(state)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("choices", ["auto cpu auto auto", "cpu cpu auto cpu"])
def test_every_call_may_choose_its_device(choices):
    for choice in choices.split():
        assert accelerator(choice).device.type == {"auto": "meta", "cpu": "cpu"}[choice]


@pytest.mark.usefixtures("gpu")
def test_what_is_chosen_again_is_not_made_anew():
    for choice in ("auto", "cpu"):
        engine = accelerator(choice)
        engine.state.mark = choice  # it would be forgotten
        assert accelerator(choice).state.mark == choice


@pytest.mark.usefixtures("gpu")
def test_a_launcher_that_says_cpu_is_heard(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    for choice in ("auto", "cpu", "auto"):
        assert accelerator(choice).device.type == "cpu"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("first", "second"), [("auto", "cpu"), ("cpu", "auto")])
def test_several_processes_are_told_that_they_cannot_change_their_device(first, second):
    accelerator(first)
    PartialState().num_processes = 2
    assert accelerator(first).device.type
    with pytest.raises(InputError, match=f"Asked for the device {second}, where 2 processes work on"):
        accelerator(second)


def test_a_resumed_run_says_what_is_restored_and_no_longer_announces_all(tmp_path, monkeypatch):
    learner, data, training = make_learner(), make_data(), dataclasses.replace(TRAINING, epochs=4)
    monkeypatch.setattr(loop, "estimate", lambda *_, **__: 400.0)
    place = tmp_path / "checkpoint.safetensors"
    length = f"4 epochs of {len(data)} images"
    assert tell_length(learner, data, training, checkpoint=place) == f"{length}, about 7 min"
    for rows, told in ((1, f"{length}, 1 of them restored, about 5 min to go"), (4, f"{length}, restored")):
        save_checkpoint(place, learner, optimiser(learner, training), 0, training, [{"epoch": 1.0}] * rows)
        assert tell_length(learner, data, training, checkpoint=place) == told


def test_a_backbone_of_which_no_stage_learns_stays_as_it_is_with_its_running_statistics():
    model = Model(SmallResNet(2, 2), 12, 1, ("a", "b"), torch.nn.Linear(16, 2))
    method = parse("frozen").build(Problem(16, 2, 3, False, 48), model)
    before = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    fit(Learner(model.backbone, method, trains=0), make_data(labelled=False), TRAINING, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.backbone.state_dict().items())
