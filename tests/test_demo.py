"""The demonstration, small."""

import json
import re

import pytest
import torch

from newfound import cli, demo
from newfound.data.datasets import load_doodles
from newfound.discovery.result import Discovery
from newfound.discovery.settings import StageOne
from newfound.errors import InputError


def first_of(images, each):
    """So many drawings of each category."""
    return images.pick(
        torch.cat([(images.listing.labels == label).nonzero()[:each, 0] for label in images.listing.labels.unique()])
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    output = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            demo, "load_doodles", lambda group: first_of(load_doodles(group), {"known": 5, "novel": 6}[group])
        )
        patch.setattr(demo, "STAGE", StageOne(size=28, width=2, pretrain_epochs=1))
        rows = demo.demonstrate(output, everything=True, command="newfound demo --all")
        demo.write_results(rows, output / "results.json", "newfound demo --all --seeds 1")
    return output, rows


def test_every_control_is_measured_in_both_readings(shown):
    _, rows = shown
    assert set(rows["method"]) == set(demo.TITLES)
    both = rows[rows["reading"] != "prototypes"]
    assert set(both["reading"]) == {"k-means", "unit k-means"}
    assert len(both) == 2 * len(demo.TITLES)
    assert set(rows[rows["reading"] == "prototypes"]["method"]) == {name for name in demo.TITLES if "spacing" in name}
    assert rows["nmi"].between(0, 1).all()


def test_the_help_names_every_control_and_no_other():
    """Of pairs with a preset of Spacing the preset's name."""
    said = re.search(r"everything: add the controls: (.*?)\.\n", cli.demo.__doc__, re.DOTALL)[1]
    words = {*re.findall(r"[a-z:+]+", said.replace("Spacing's", ""))} - {"and", "alone", "with", "presets"}
    assert words == {name.removeprefix("pairs+spacing:") for name in demo.MANY if name not in demo.FEW}


def test_the_table_is_the_mean_over_seeds_in_one_reading(shown):
    _, rows = shown
    doubled = [*rows.to_dict("records"), *rows.assign(seed=1, nmi=rows["nmi"] + 0.1).to_dict("records")]
    table = {title: nmi for title, _, nmi in demo.comparison(doubled)}
    expected = rows[(rows["method"] == "pairs") & (rows["reading"] == "unit k-means")]["nmi"].iloc[0] + 0.05
    assert table["pairs alone"] == pytest.approx(expected)
    assert list(table) == list(demo.TITLES.values())


def test_results_say_how_they_were_made(shown):
    output, rows = shown
    results = json.loads((output / "results.json").read_text())
    assert len(results["rows"]) == len(rows)
    needed = {"dataset", "split", "images", "classes", "stage one", "discovery", "seeds", "command", "versions"}
    assert needed <= results["setting"].keys()


def test_it_leaves_a_run_with_a_report(shown):
    output, _ = shown
    found = Discovery.load(output)
    assert len(found.found) == 60
    assert found.scores is not None
    assert "k-means on the pixels" in (output / "report.html").read_text()


def test_known_and_novel_drawings_share_no_category_and_the_pile_no_label(tmp_path, monkeypatch):
    given = []

    def find(model, pile, classes, **more):
        given.append((model, pile, classes))
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "find", find)
    monkeypatch.setattr(demo, "load_doodles", lambda group: first_of(load_doodles(group), 5))
    monkeypatch.setattr(demo, "STAGE", StageOne(size=28, width=2, pretrain_epochs=0))
    with pytest.raises(KeyboardInterrupt):
        demo.demonstrate(tmp_path / "shown")
    ((model, pile, classes),) = given
    novel = first_of(load_doodles("novel"), 5)
    assert not set(model.classes) & set(novel.listing.classes)
    assert (pile.listing.labels == -1).all()
    assert pile.listing.classes == ()
    assert torch.equal(pile.pixels, novel.pixels)
    assert classes == 10


def test_processes_that_train_together_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    with pytest.raises(InputError, match=r"one of 2 processes.*without torchrun"):
        demo.demonstrate(tmp_path / "shown")
    assert not (tmp_path / "shown").exists()


DAMAGED = (b"", b"{", b"\xff", b"[]", b"3", b"null", b"{}", b'{"facts": null}', b'{"facts": 3}')


@pytest.mark.parametrize("content", [*DAMAGED, b'{"facts": {}}'])
def test_a_folder_with_a_run_that_is_damaged_or_no_demonstration_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / "discovery.json").write_bytes(content)
    with pytest.raises(InputError, match=r"holds other files; .* -o"):
        demo.check_place(tmp_path)
    assert (tmp_path / "discovery.json").read_bytes() == content


def test_a_folder_with_other_files_is_refused_and_one_that_is_new_empty_or_a_demonstrations_is_not(shown, tmp_path):
    output, _ = shown
    for folder in (tmp_path / "new", tmp_path, output):
        demo.check_place(folder)
    (tmp_path / "letter.txt").touch()
    with pytest.raises(InputError, match="holds other files"):
        demo.check_place(tmp_path)
