"""From image files to classes with a pretrained backbone: the real one, on drawings that lie in folders."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image

from newfound import discover, pretrain
from newfound.cli import predict
from newfound.data.datasets import load_doodles
from newfound.data.listing import list_images
from newfound.discovery.edits import classes
from newfound.discovery.find import find
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.tables import judge, tabulate_assignments
from newfound.encoders import encoder_of
from newfound.errors import InputError
from newfound.networks.model import Model
from newfound.networks.resnet import OWN
from tests.commands import newfound
from tests.data.pictures import write_doodles
from tests.needs import need

STAGE = StageOne(backbone="efficientnet-lite0", size=64)
PHOTOGRAPHS = StageOne(backbone="efficientnet-lite0", size=96)
RUN = Run(epochs=2, device="cpu")
KNOWN, NOVEL, EACH = range(3), range(3, 6), 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders of drawings, and a cache of their own for all tests here."""
    root = tmp_path_factory.mktemp("files")
    write_doodles(root / "known", KNOWN, each=EACH, scale=4)
    write_doodles(root / "new", NOVEL, each=EACH, scale=4)
    write_doodles(root / "more", NOVEL, each=2, first=50, scale=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        pretrain(root / "known", output=root / "model", stage=STAGE)
        yield root


@pytest.fixture(scope="module")
def ran(place):
    """A run from the model folder, which no test edits; its folder is `run`."""
    return discover(model=place / "model", unlabelled=place / "new", classes=3, run=RUN, output=place / "run")


@pytest.fixture(scope="module")
def looked_at(place):
    """A model that is aimed at the unlabelled files, the labelled images, and the unlabelled ones."""
    encoder = encoder_of(model := Model.from_pretrained(place / "model"))
    known, new = (encoder.encode(list_images(place / name, labelled=name == "known")) for name in ("known", "new"))
    return encoder.aim(model, new, known, 0), known, new


@pytest.fixture(scope="module")
def stamps(place):
    """Debian's stamps of Tux Paint, photographs and drawings of real things; half of the known kinds are hidden in the
    pile, new kinds lie there alone too.
    """
    source, root = Path("/usr/share/tuxpaint/stamps"), place / "stamps"
    need(source.is_dir(), "Debian's tuxpaint-stamps-default is not installed")
    known, new = ("animals/birds", "food/fruit", "town/houses"), ("animals/insects", "symbols/money")
    for kind in known + new:
        for number, file in enumerate(sorted((source / kind).rglob("*.png"))[:32]):
            parts = ("new", "pile") if kind in new else (("pile", "known")[number % 2],)
            for part in parts:
                copy = root / part / Path(kind).name / file.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.read_bytes())
    pretrain(root / "known", output=root / "model", stage=PHOTOGRAPHS)
    return root


def test_all_ways_to_discover_find_the_kinds_of_real_pictures(stamps):
    given = {"unlabelled": stamps / "new", "classes": 2, "run": Run(mixed=False, device="cpu"), "truth": True}
    single = discover(known=stamps / "known", stage=PHOTOGRAPHS, **given)
    two = discover(model=stamps / "model", **given)
    alone = discover(stage=PHOTOGRAPHS, **given)
    for found, known in ((single, 3), (two, 3), (alone, 0)):
        assert found.found.listing.names == tuple(sorted(found.found.listing.names))
        assert len(found.found.model.classes) == known
        assert found.scores["accuracy"] > 0.7  # half would be chance
        assert "pretrained" in found.facts["backbone"]
    assert "single-stage" in single.facts["setting"]
    assert "two-stage" in two.facts["setting"]
    assert "no class is known" in alone.facts["setting"]


@pytest.mark.parametrize("single", [True, False])
def test_known_kinds_of_real_pictures_are_recognised_in_a_mixed_pile(stamps, single):
    given = {"known": stamps / "known", "stage": PHOTOGRAPHS} if single else {"model": stamps / "model"}
    found = discover(unlabelled=stamps / "pile", classes=2, run=Run(device="cpu"), truth=True, **given)
    assert found.scores["named accuracy"] > 0.5  # a fifth would be chance
    assert found.scores["known accuracy"] > 0.4
    assert found.scores["novel accuracy"] > 0.5
    table = found.assignments()
    new = table["path"].str.contains("insects|money")
    assert table.loc[new, "newness"].mean() > table.loc[~new, "newness"].mean() + 0.1
    assert {"birds", "fruit", "houses"} >= set(table.loc[table["kind"] == "known", "class"])


@pytest.mark.parametrize("by", ["gcd", "dtc"])
def test_classes_are_counted_in_the_way_that_was_asked_for_and_the_run_says_so(place, monkeypatch, tmp_path, by):
    monkeypatch.setattr("newfound.discovery.howmany.MOST", 6)
    run = Run(method="kmeans", count_by=by, mixed=False, device="cpu")
    found = discover(model=place / "model", unlabelled=place / "new", run=run, output=tmp_path / "run")
    assert found.found.count.criterion == {"gcd": "accuracy", "dtc": "dtc"}[by]
    assert len(found.found.clusters.centres) == found.found.count.novel
    assert "estimated: " in found.facts["classes"]
    assert f'count_by = "{by}"' in (tmp_path / "run" / "config.toml").read_text()
    loaded = Discovery.load(tmp_path / "run").found.count
    assert loaded[:-1] == found.found.count[:-1]
    assert [candidate.accuracy for candidate in loaded.curve] == [each.accuracy for each in found.found.count.curve]


def test_a_published_way_to_count_is_refused_where_nothing_is_labelled_before_any_work(place, monkeypatch):
    monkeypatch.setattr(
        "newfound.discovery.discover.encode_source", lambda *words: pytest.fail("pictures were looked at")
    )
    with pytest.raises(InputError, match=r"--count-by gcd asks labelled images; found 0 known classes"):
        discover(unlabelled=place / "new", stage=STAGE, run=Run(count_by="gcd", device="cpu"))


def test_a_run_folder_predicts_files_it_has_never_seen(place, ran):
    loaded = Discovery.load(place / "run")
    assert loaded.predict(place / "new")["guess"].tolist() == ran.assignments()["guess"].tolist()
    pd.testing.assert_frame_equal(loaded.assignments(), ran.assignments())
    table = loaded.predict(place / "more")
    assert len(table) == 6
    assert set(table["guess"]) <= {"new-1", "new-2", "new-3", *ran.found.model.classes}
    assert torch.equal(*(judge(run.classes).confidence for run in (loaded, ran)))
    assert loaded.found.threshold == ran.found.threshold


def test_the_model_of_a_run_discovers_again_as_one_that_was_pretrained_does(place, ran):
    """What training left of the adapter is not asked for: known classes are remembered among features."""
    assert ran.found.model.head is Model.from_pretrained(place / "run" / "model").head is None
    again = discover(model=place / "run" / "model", unlabelled=place / "new", classes=3, run=RUN)
    assert torch.equal(again.found.features, ran.found.features)
    assert again.found.known == ran.found.known


def test_the_model_that_is_given_is_never_written_over_by_the_run_that_needs_it(place, ran):
    for model, output in (("model", "model"), ("run/model", "run"), ("run/model", "run/model")):
        with pytest.raises(InputError, match=r"holds the model that is given\. Needed: another place, .* Give -o"):
            discover(model=place / model, unlabelled=place / "new", run=RUN, output=place / output, overwrite=True)
        assert Model.from_pretrained(place / model).classes
    assert Discovery.load(place / "run").summary().equals(ran.summary())


def test_predictions_come_bit_by_bit_and_tell_what_was_left_out_once(ran, monkeypatch, tmp_path):
    monkeypatch.setattr("newfound.discovery.looking.TOGETHER", 4)
    write_doodles(tmp_path, NOVEL, each=3, scale=4)
    (tmp_path / "broken.png").write_bytes(b"nothing")
    tables, skipped = zip(*ran.predictions(tmp_path), strict=True)
    assert [len(table) for table in tables] == [3, 4, 2]  # the broken one is among the first four
    assert [len(some) for some in skipped] == [1, 0, 0]
    pd.testing.assert_frame_equal(pd.concat(tables, ignore_index=True), ran.predict(tmp_path))


def test_a_table_of_predictions_has_one_header_though_the_first_images_be_broken(place, ran, monkeypatch, tmp_path):
    monkeypatch.setattr("newfound.discovery.looking.TOGETHER", 2)
    write_doodles(tmp_path / "more", NOVEL, each=1, scale=4)
    for name in ("0.png", "1.png"):
        (tmp_path / "more" / name).write_bytes(b"nothing")
    predict(place / "run", tmp_path / "more", output=tmp_path / "more.csv")
    lines = (tmp_path / "more.csv").read_text().splitlines()
    assert lines[0].startswith("path,class,")
    assert len(lines) == 1 + len(NOVEL)
    assert sum(line.startswith("path,") for line in lines) == 1


def test_a_list_with_boxes_keeps_paths_and_boxes_in_what_comes_out(place, tmp_path):
    names = sorted((place / "new").rglob("*.png"))
    lines = [f"{path},{x},0,56,112,{path.parent.name}" for path in names for x in (0, 56)]
    (tmp_path / "list.csv").write_text("\n".join(["path,x,y,width,height,label", *lines]) + "\n")
    found = discover(
        unlabelled=tmp_path / "list.csv", classes=3, run=RUN, stage=STAGE, truth=True, output=tmp_path / "run"
    )
    table = pd.read_csv(tmp_path / "run" / "assignments.csv")
    assert list(table)[:6] == ["path", "x", "y", "width", "height", "class"]
    assert table["path"].tolist() == [str(path) for path in names for _ in "ab"]
    assert table["x"].tolist() == [0, 56] * len(names)
    assert found.found.truth == tuple(path.parent.name for path in names for _ in "ab")
    assert Discovery.load(tmp_path / "run").found.listing.boxes == found.found.listing.boxes


@pytest.mark.parametrize("method", ["openmix", "dual", "openmix+spacing"])
def test_a_method_that_needs_more_than_features_is_refused_before_anything_is_looked_at(place, method, monkeypatch):
    monkeypatch.setattr("newfound.encoders.features.extract_features", None)
    with pytest.raises(InputError, match=r"needs more of an image than .* features.*rs.*--backbone small-resnet-18"):
        discover(known=place / "known", unlabelled=place / "new", classes=3, stage=STAGE, run=Run(method=method))


@pytest.mark.parametrize("method", ["rs+spacing", "ncl", "uno", "dtc", "joint", "kmeans"])
def test_every_kind_of_method_that_begins_at_latents_runs_on_features(looked_at, method):
    model, known, new = looked_at
    run = Run(method=method, epochs=1, device="cpu")
    found = find(model, new, 3, labelled=None if method == "dtc" else known, run=run)
    assert found.features.isfinite().all()
    assert len(tabulate_assignments(classes(found))) == len(NOVEL) * EACH


def test_labelled_pictures_may_not_lie_in_the_pile_under_another_name(place, tmp_path):
    write_doodles(tmp_path / "new", NOVEL, each=EACH, scale=4)
    copy = next((place / "known").rglob("*.png"))
    (tmp_path / "new" / "copy.png").write_bytes(
        copy.read_bytes() + b"\0"
    )  # other bytes, which hide it from a look at files
    with pytest.raises(InputError, match="share no image"):
        discover(known=place / "known", unlabelled=tmp_path / "new", classes=3, run=RUN, stage=StageOne(backbone=OWN))
    (tmp_path / "new" / "copy.png").write_bytes(copy.read_bytes())
    with pytest.raises(InputError, match="share no image"):
        discover(known=place / "known", unlabelled=tmp_path / "new", classes=3, run=RUN, stage=STAGE)


def test_one_image_is_searched_beside_labelled_ones_as_with_a_model_and_its_copy_is_refused(place, tmp_path):
    (image, *_), (labelled, *_) = (sorted((place / name).rglob("*.png")) for name in ("new", "known"))
    run = Run(method="kmeans", device="cpu")
    quick = StageOne(backbone="efficientnet-lite0", size=64, rehearse="no")
    found = discover(known=place / "known", unlabelled=image, classes=1, run=run, stage=quick).found
    assert found.listing.names == (image.name,)
    with pytest.raises(InputError, match="both labelled and unlabelled"):
        discover(known=place / "known", unlabelled=labelled, classes=1, run=run, stage=quick)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"is a file\. Needed: a folder of images, or a list of them ending in \.csv"):
        discover(known=place / "known", unlabelled=tmp_path / "notes.txt", classes=1, run=run, stage=quick)


def test_the_model_folder_holds_no_pixel_and_no_file_name(place):
    names = [path.stem for path in (place / "known").rglob("*.png")]
    assert names
    for path in (place / "model").iterdir():
        content = path.read_bytes()
        assert b".png" not in content
        for file in (place / "known").rglob("*.png"):
            with Image.open(file) as image:
                row = image.convert("L").tobytes()[56 * 112 : 57 * 112]  # the middle line of the drawing
            assert len(set(row)) == 1 or row not in content
    assert Model.from_pretrained(place / "model").pretrained.statistics is not None


def test_our_own_network_cannot_learn_without_labels(place):
    with pytest.raises(InputError, match=r"learns from labelled images.*--known"):
        discover(unlabelled=place / "new", classes=3, run=RUN, stage=StageOne(backbone=OWN))


def test_images_in_memory_are_for_our_own_network(place):
    with pytest.raises(InputError, match="in memory"):
        discover(unlabelled=load_doodles("novel"), known=load_doodles("spare"), classes=3, run=RUN, stage=STAGE)
    with pytest.raises(InputError, match="in memory"):
        discover(model=place / "model", unlabelled=load_doodles("novel"), classes=3, run=RUN)
    with pytest.raises(InputError, match="learns from labelled images"):
        discover(unlabelled=load_doodles("novel"), classes=3, run=RUN)


def test_a_run_refuses_images_in_memory_where_a_pretrained_backbone_looked(ran):
    with pytest.raises(InputError, match="in memory"):
        ran.predict(load_doodles("novel"))


def test_a_pile_of_which_nothing_can_be_read_is_refused(place, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match="None of the 1 images can be read"):
        discover(unlabelled=tmp_path, classes=1, run=RUN, stage=STAGE)


def test_a_class_of_which_nothing_can_be_read_is_refused(place, tmp_path):
    write_doodles(tmp_path / "known", KNOWN, each=2, scale=4)
    for file in ("broken/1.png", "another/1.png", "another/2.png", "another/3.png", "another/4.png"):
        (tmp_path / "known" / file).parent.mkdir(exist_ok=True)
        (tmp_path / "known" / file).write_bytes(b"nothing")
    write_doodles(tmp_path / "known/another", [0], each=1, scale=4)
    with pytest.raises(InputError, match=r"Classes without a readable image: 'broken'.*Found: 'broken/1\.png'"):
        pretrain(tmp_path / "known", stage=STAGE)


def test_the_commands_say_which_backbone_they_took(place):
    words = "discover", "--model", "model", "--unlabelled", "new", "--classes", 3, "--epochs", 1, "-o", "said"
    done = newfound(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "efficientnet-lite0" in done.stderr
    assert "efficientnet-lite0" in (place / "said" / "report.html").read_text()
    listed = newfound("backbones", cwd=place)
    assert listed.returncode == 0, listed.stderr
    assert "efficientnet-lite0" in listed.stdout
    examined = newfound("doctor", cwd=place)
    assert examined.returncode == 0, examined.stderr
    assert "efficientnet-lite0" in examined.stdout
    assert "amiss" not in examined.stdout


def test_the_same_settings_give_the_same_latents(place):
    runs = [discover(stage=STAGE, unlabelled=place / "new", classes=3, run=RUN) for _ in "ab"]
    assert torch.equal(runs[0].found.features, runs[1].found.features)
