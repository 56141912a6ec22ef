"""Images in memory: discovered in as they are, and what cannot work is refused before anything is learnt."""

import numpy as np
import pytest

import newfound
from newfound.data.datasets import load_doodles
from newfound.discovery.settings import Run, StageOne
from newfound.encoders import pixels as room
from newfound.errors import InputError

STAGE, RUN = StageOne(pretrain_epochs=1, width=4), Run(epochs=1, device="cpu")
EACH = 12


def drawings(group, kinds, size=28, **other):
    """Some drawings of some kinds, cut to a size."""
    images = load_doodles(group)
    rows = [label * 100 + i for label in range(kinds) for i in range(EACH)]
    pixels = images.pixels[rows, 0, :size].numpy()[:, :, : other.pop("width", size)]
    return newfound.arrays(pixels, **other)


def taught(size=28, **other):
    return drawings("known", 3, size, **({"labels": np.repeat(np.arange(3), EACH)} | other))


def pile(size=28, **other):
    return drawings("novel", 2, size, **other)


@pytest.fixture
def idle(monkeypatch):
    """Nothing may be learnt."""

    def learnt(*args, **settings):
        raise AssertionError("something was learnt before the input was refused")

    monkeypatch.setattr(room, "pretrain", learnt)


LABELS = np.repeat(np.arange(3), EACH)
BAD = {
    "not square": ({"known": taught(width=20), "unlabelled": pile(width=20)}, "28 × 20 pixels. Needed: square"),
    "two sizes": ({"known": taught(24), "unlabelled": pile()}, "24 × 24 and 28 × 28 pixels. Needed: one size"),
    "a label missing": (
        {"known": taught(labels=np.where(np.arange(36) == 3, -1, LABELS)), "unlabelled": pile()},
        "1 of 36 labelled images have the label -1",
    ),
    "an empty class": ({"known": taught(classes=list("abcd")), "unlabelled": pile()}, "without an image: 'd'"),
    "one name twice": ({"known": taught(classes=list("aba")), "unlabelled": pile()}, "classes are called 'a'"),
}


@pytest.mark.parametrize("case", BAD)
def test_images_that_cannot_be_learnt_from_are_refused_before_anything_is_learnt(idle, case):
    given, match = BAD[case]
    with pytest.raises(InputError, match=match):
        newfound.discover(**given, classes=2, stage=STAGE, run=RUN)


def test_images_of_another_size_than_the_model_s_are_refused_and_so_is_what_a_model_makes_useless(idle, monkeypatch):
    monkeypatch.undo()
    model = newfound.pretrain(taught(), stage=STAGE, device="cpu")
    with pytest.raises(InputError, match="24 × 24 pixels, the model sees 28 × 28"):
        newfound.discover(model=model, unlabelled=pile(24), classes=2, run=RUN)
    with pytest.raises(InputError, match=r"--pretrain-epochs, --width would change nothing"):
        newfound.discover(model=model, unlabelled=pile(), classes=2, run=RUN, stage=STAGE)


def test_a_method_that_begins_anew_counts_classes_in_a_network_that_was_taught(monkeypatch):
    """`joint` wants nothing learnt before it, but random latents would count nothing."""
    epochs = []
    learn = room.pretrain
    monkeypatch.setattr(
        room,
        "pretrain",
        lambda learner, images, budget, *a, **k: (
            epochs.append(budget.epochs) or learn(learner, images, budget, *a, **k)
        ),
    )
    given = {
        "known": taught(),
        "unlabelled": pile(),
        "stage": STAGE,
        "run": Run(epochs=1, method="joint", device="cpu"),
    }
    newfound.discover(**given)
    newfound.discover(**given, classes=2)
    assert epochs == [1, 0]


def test_a_network_that_begins_anew_without_labelled_images_recognises_nobody_and_says_so(caplog):
    """KCL's latents are those of another network than the known classes' means: they say nothing of one another."""
    model = newfound.pretrain(taught(), stage=STAGE, device="cpu", similarity=True)
    found = newfound.discover(model=model, unlabelled=pile(), classes=2, run=Run(epochs=1, method="kcl", device="cpu"))
    assert found.found.known == ()
    assert found.found.model.recognisable == ()
    assert found.found.model.known is found.found.model.head is None
    assert "nothing says where known classes lie" in caplog.text
    assert set(found.assignments()["kind"]) <= {"new", "unsure"}


def test_learning_which_images_share_a_class_goes_on_where_it_was_stopped(tmp_path):
    """Stopped after its second epoch, it trains the third alone, and ends with the weights of a run without a stop."""
    stage = StageOne(pretrain_epochs=3, width=4)
    given = {"known": taught(), "stage": stage, "similarity": True, "device": "cpu"}
    whole, seen = newfound.pretrain(**given), []

    def stop(name, epochs, row):
        if name == "similarity":
            seen.append(dict(row))
            if len(seen) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        newfound.pretrain(**given, output=tmp_path / "model", progress=stop)
    model = newfound.pretrain(**given, output=tmp_path / "model", progress=stop, resume=True)
    assert seen[2:4] == seen[:2]  # told again as they were, seconds and all
    assert [row["epoch"] for row in seen[2:]] == [1, 2, 3]
    for name, tensor in whole.similarity.state_dict().items():
        assert tensor.equal(model.similarity.state_dict()[name]), name
