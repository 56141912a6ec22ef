"""Saved runs → figures: which runs are drawn, and what each panel is given."""

import numpy as np
import pytest
import torch

from newfound.discovery import figures
from newfound.discovery.result import Discovery
from newfound.discovery.trace import Trace
from newfound.errors import InputError
from newfound.training.moments import Moment
from newfound.types import generator
from tests.discovery.made import FIRST, make_found

N, DIM, CLASSES = 30, 6, 3
LABELS = torch.arange(N) % CLASSES


def rand(*shape, key):
    return torch.rand(*shape, generator=generator("figures", key))


def moment(key, spacing):
    rows = torch.arange(N)
    if not spacing:
        return Moment(rows, rand(N, DIM, key=key))
    parts = [rand(n, DIM, key=f"{key} {part}") for part, n in enumerate((N, CLASSES, CLASSES))]
    return Moment(rows, rand(N, DIM, key=key), *parts)


def save(folder, title="ncl", labels=LABELS, classes=("cat", "dog", "emu"), spacing=True):
    trace = Trace(title, classes, labels, moment(f"{title} before", spacing), moment(f"{title} after", spacing))
    trace.save(folder)
    return trace


@pytest.mark.parametrize("kind", ["tsne", "spacing"])
def test_a_saved_run_becomes_a_png_and_an_svg(tmp_path, kind):
    save(tmp_path / "run")
    png, svg = figures.draw(kind, [tmp_path / "run"], tmp_path / "figures" / "drawn")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert {png.name, svg.name} == {"drawn.png", "drawn.svg"}


def test_an_ending_that_was_given_is_not_doubled(tmp_path):
    save(tmp_path / "run")
    png, svg = figures.draw("spacing", [tmp_path / "run"], tmp_path / "drawn.png")
    assert {png.name, svg.name} == {"drawn.png", "drawn.svg"}


def test_a_place_that_cannot_be_written_in_is_refused_before_anything_is_drawn(tmp_path, monkeypatch):
    save(tmp_path / "run")
    (tmp_path / "file").touch()
    monkeypatch.setattr(figures, "tsne", lambda *words, **others: pytest.fail("this takes long"))
    with pytest.raises(InputError, match="Nothing can be written"):
        figures.draw("tsne", [tmp_path / "run"], tmp_path / "file" / "drawn")


def test_panels_are_before_and_after_of_the_first_run_then_after_of_the_others(tmp_path, monkeypatch):
    traces = [save(tmp_path / name, f"{name}, seed 0") for name in ("rs", "ncl", "uno")]
    given = {}

    def tsne(panels, classes, truth, seed, caption):
        given.update(panels=panels, classes=classes, truth=truth)

    monkeypatch.setattr(figures, "tsne", tsne)
    monkeypatch.setattr(figures, "save", lambda figure, output: (output, output))
    figures.draw("tsne", [tmp_path / name for name in ("rs", "ncl", "uno")], tmp_path / "drawn")
    titles, features = zip(*given["panels"], strict=True)
    assert titles == ("before", "after rs\nseed 0", "after ncl\nseed 0", "after uno\nseed 0")
    expected = [traces[0].before, *(trace.after for trace in traces)]
    for shown, kept in zip(features, expected, strict=True):
        assert np.array_equal(shown, kept.latents.numpy())
    assert given["classes"] == ("cat", "dog", "emu")
    assert given["truth"].tolist() == LABELS.tolist()


def test_a_spacing_figure_gives_each_image_to_its_nearest_prototype(tmp_path, monkeypatch):
    trace, given = save(tmp_path), []
    monkeypatch.setattr(figures, "spacing", lambda before, after: given.extend([before, after]))
    monkeypatch.setattr(figures, "save", lambda figure, output: (output, output))
    figures.draw("spacing", [tmp_path], tmp_path / "drawn")
    for shown, kept in zip(given, (trace.before, trace.after), strict=True):
        for row, z in enumerate(kept.spaced):
            away = [((z - prototype) ** 2).sum().item() for prototype in kept.prototypes]
            assert shown.assignment[row] == away.index(min(away))
        assert np.array_equal(shown.latents, kept.spaced.numpy())
        assert np.array_equal(shown.anchors, kept.anchors.numpy())


def test_runs_on_different_images_are_refused(tmp_path):
    save(tmp_path / "one")
    save(tmp_path / "labels", labels=(LABELS + 1) % CLASSES)
    save(tmp_path / "classes", classes=("cat", "dog", "fox"))
    for other in ("labels", "classes"):
        with pytest.raises(InputError, match="different images"):
            figures.draw("tsne", [tmp_path / "one", tmp_path / other], tmp_path / "drawn")


def test_a_run_without_spacing_has_no_spacing_figure(tmp_path):
    save(tmp_path, spacing=False)
    with pytest.raises(InputError, match=r"no Spacing in it.*\+spacing"):
        figures.draw("spacing", [tmp_path], tmp_path / "drawn")


def test_a_spacing_figure_shows_one_run(tmp_path):
    save(tmp_path)
    with pytest.raises(InputError, match="shows one run, and 2 came"):
        figures.draw("spacing", [tmp_path, tmp_path], tmp_path / "drawn")


def test_where_nobody_knows_the_truth_images_are_called_by_their_present_classes(tmp_path):
    moments = tuple(Moment(torch.arange(44), torch.zeros(44, 2)) for _ in range(2))
    run = Discovery(make_found(moments=moments))
    run.rename(FIRST, "sea pen")
    run.save(tmp_path)
    trace = figures.read_trace(tmp_path)
    expected = [run.classes.names[number] for number in run.classes.assignment.tolist()]
    assert [trace.classes[label] for label in trace.labels.tolist()] == expected
    assert "sea pen" in expected
