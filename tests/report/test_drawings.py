from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text
from PIL import Image
from sklearn.decomposition import PCA

from newfound.report import drawings
from newfound.report.drawings import ARROW, Snapshot, main_plane, save, shapes, spacing, tsne, turned
from newfound.report.figures import colours


def blobs(classes: int, each: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Groups far apart, in class order, and their truth."""
    rng = np.random.default_rng(classes)
    truth = np.repeat(np.arange(classes), each)
    return rng.normal(size=(classes, 8))[truth] * 20 + rng.normal(size=(len(truth), 8)), truth


def snapshot(classes: int, dim: int = 6, push: float = 0.0, anchored: bool = True) -> Snapshot:
    """Random prototypes amid their latents, pushed along equidistant anchors."""
    rng = np.random.default_rng(classes)
    anchors = np.eye(classes, dim) - np.eye(classes, dim).mean(axis=0) if anchored else np.zeros((classes, dim))
    prototypes = rng.normal(size=(classes, dim)) + push * anchors
    assignment = np.arange(20 * classes) % classes
    latents = prototypes[assignment] + 0.1 * rng.normal(size=(len(assignment), dim))
    return Snapshot("later" if push else "sooner", latents, assignment, prototypes, anchors)


def words(figure: Figure) -> str:
    """All that can be read in a figure."""
    return " ".join(" ".join(text.get_text().split()) for text in figure.findobj(Text) if text.get_text())


def points(figure: Figure, panel: int) -> dict[tuple[float, ...], str]:
    """Place → colour, of every dot of a t-SNE panel."""
    return {
        tuple(place): to_hex(colour)
        for dots in figure.axes[panel].collections
        for place, colour in zip(dots.get_offsets().tolist(), dots.get_facecolors(), strict=True)
    }


def spots(figure: Figure, panel: int, size: int) -> list[np.ndarray]:
    """Places of the marks of one size, in the order they were drawn."""
    return [np.asarray(each.get_offsets()) for each in marks(figure, panel) if each.get_sizes().tolist() == [size]]


def marks(figure: Figure, panel: int) -> list[PathCollection]:
    return [each for each in figure.axes[panel].collections if isinstance(each, PathCollection)]


PROTOTYPE, SMALL = 60, 26
"""Sizes; small are anchors and, in the second panel, where prototypes were."""


@pytest.fixture(scope="module")
def trio() -> Figure:
    features, truth = blobs(4)
    panels = [("start", features), ("host\n51.0%", features[:, :5]), ("host + Spacing", 2 * features)]
    return tsne(panels, ["cat", "$5 & <b>", "_dog", "sea\npen"], truth, 0, "CIFAR-10, novel classes.")


def test_both_files_can_be_opened(trio, tmp_path):
    png, svg = save(trio, tmp_path / "new" / "seed0.tsne")
    assert (png.name, svg.name) == ("seed0.tsne.png", "seed0.tsne.svg")
    with Image.open(png) as image:
        image.load()
        assert image.size == tuple(int(300 * inches) for inches in trio.get_size_inches())
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert sorted(path.name for path in png.parent.iterdir()) == [png.name, svg.name]


def test_titles_names_and_caption_are_words_in_the_svg(trio, tmp_path):
    _, svg = save(trio, tmp_path / "trio")
    read = ["".join(text.itertext()) for text in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("start", "host + Spacing", "cat", "$5 & <b>", "_dog", "sea?pen", "CIFAR-10, novel classes."):
        assert expected in read
    assert any("51.0%" in line for line in read)


def test_equal_figures_give_equal_bytes(tmp_path):
    features, truth = blobs(3)

    def once(name: str) -> list[bytes]:
        figures = tsne([("a", features)], ["x", "y", "z"], truth, 5), spacing(snapshot(3), snapshot(3, push=1))
        return [path.read_bytes() for i, figure in enumerate(figures) for path in save(figure, tmp_path / f"{name}{i}")]

    assert once("first") == once("again")


def test_a_figure_saved_twice_is_the_same(trio, tmp_path):
    once, again = save(trio, tmp_path / "once"), save(trio, tmp_path / "again")
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


def test_the_settings_of_the_user_neither_matter_nor_change(tmp_path):
    def svg(name: str) -> bytes:
        return save(spacing(snapshot(3), snapshot(3, push=1)), tmp_path / name)[1].read_bytes()

    calm = svg("calm")
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.facecolor": "black"}):
        theirs = dict(matplotlib.rcParams)
        assert svg("odd") == calm
        assert dict(matplotlib.rcParams) == theirs


def test_every_panel_is_a_square_of_the_same_size(trio):
    assert [axis.get_title() for axis in trio.axes] == ["start", "host\n51.0%", "host + Spacing"]
    for axis in trio.axes:
        assert axis.get_aspect() == 1
        assert np.diff(axis.get_xlim()) == pytest.approx(np.diff(axis.get_ylim()))
        box = axis.get_window_extent()
        assert (box.width, box.height) == pytest.approx((trio.axes[0].get_window_extent().width,) * 2)
        assert not len(axis.get_xticks())


@pytest.mark.parametrize("classes", [1, 10, 30])
def test_colours_and_shapes_are_those_of_the_legend(classes):
    features, truth = blobs(classes, each=2)
    figure = tsne([("one", features), ("two", features)], [f"class {i}" for i in range(classes)], truth, 0)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"class {i}" for i in range(classes)]
    keys = legend.get_lines()
    assert [key.get_color() for key in keys] == colours(classes)
    assert [key.get_marker() for key in keys] == shapes(classes)

    _, places = drawings.flatten(features, 0)
    for panel in (0, 1):
        drawn = points(figure, panel)
        assert len(drawn) == len(truth)
        for place, own in zip(places - places.mean(axis=0), truth, strict=True):
            nearest = min(drawn, key=lambda spot: np.linalg.norm(np.array(spot) - place))
            np.testing.assert_allclose(nearest, place, atol=1e-6)
            assert drawn[nearest] == keys[own].get_color()


@pytest.mark.parametrize("classes", [30, 100])
def test_classes_near_in_colour_differ_in_shape(classes):
    rgb = [np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) for colour in colours(classes)]
    drawn = shapes(classes)
    gaps = {(i, j): np.linalg.norm(rgb[i] - rgb[j]) for i in range(classes) for j in range(i)}
    assert min(gap for (i, j), gap in gaps.items() if drawn[i] == drawn[j]) > 3 * min(gaps.values())


def test_too_many_classes_are_not_named_and_the_caption_says_so():
    features, truth = blobs(31, each=2)
    figure = tsne([("a", features)], [f"class {i}" for i in range(31)], truth, 0, "Many.")
    assert not figure.legends
    assert "31 classes, too many to name" in words(figure)
    assert len(points(figure, 0)) == 62


def test_of_too_many_images_some_are_shown_and_the_caption_says_so(trio, monkeypatch):
    monkeypatch.setattr(drawings, "MOST", 20)
    features, truth = blobs(4)
    figure = tsne([("a", features)], list("abcd"), truth, 0)
    assert len(points(figure, 0)) == 20
    assert "20 of 48 images are shown." in words(figure)
    assert "20 of 40 latents are shown." in words(spacing(snapshot(2), snapshot(2)))
    assert "are shown" not in words(trio)


def test_many_points_are_pixels_in_the_svg(monkeypatch, tmp_path):
    def images(limit: int) -> int:
        monkeypatch.setattr(drawings, "SVG_POINTS", limit)
        return save(spacing(snapshot(3), snapshot(3)), tmp_path / "figure")[1].read_text().count("<image")

    assert images(limit=120) == 0
    assert images(limit=119) > 0


def test_a_map_is_turned_and_mirrored_to_lie_as_another():
    like = np.random.default_rng(0).normal(size=(9, 2))
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    np.testing.assert_allclose(turned(like @ turn + 7, like), like - like.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 7, 20])
def test_the_plane_is_that_of_the_main_directions_of_the_prototypes(classes):
    before, after = snapshot(classes, dim=24), snapshot(classes, dim=24, push=2)
    after = replace(after, prototypes=after.prototypes + 100)  # a shift of all is no spread
    plane = main_plane(before, after)
    stacked = np.concatenate([each.prototypes - each.prototypes.mean(axis=0) for each in (before, after)])
    expected = PCA(2).fit(stacked)
    V = plane.directions
    np.testing.assert_allclose(V.T @ V, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(V @ V.T, expected.components_.T @ expected.components_, atol=1e-5)
    assert plane.share == pytest.approx(expected.explained_variance_ratio_.sum(), abs=1e-6)


def test_latents_settle_what_one_prototype_leaves_open():
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(50, 4)) * [1, 9, 2, 5]
    one = Snapshot("one", latents, np.zeros(50, int), latents[:1], np.zeros((1, 4)))
    expected = PCA(2).fit(latents).components_.T
    V = main_plane(one, one).directions
    np.testing.assert_allclose(V @ V.T, expected @ expected.T, atol=1e-9)


def test_both_panels_show_one_plane_at_one_scale():
    before, after = snapshot(5), snapshot(5, push=3)
    figure = spacing(before, after)
    first, last = figure.axes
    assert (first.get_xlim(), first.get_ylim()) == (last.get_xlim(), last.get_ylim())

    V = main_plane(before, after).directions
    middle = before.prototypes.mean(axis=0)
    for panel, each in enumerate((before, after)):
        (prototypes,) = spots(figure, panel, PROTOTYPE)
        anchors, *trail = spots(figure, panel, SMALL)
        (arrows,) = (part for part in figure.axes[panel].collections if isinstance(part, Quiver))
        latents = np.asarray(marks(figure, panel)[0].get_offsets())
        for k in range(5):
            np.testing.assert_allclose(prototypes[k], V.T @ (each.prototypes[k] - middle), atol=1e-12)
            np.testing.assert_allclose(anchors[k], V.T @ each.anchors[k], atol=1e-12)
            np.testing.assert_allclose([arrows.U[k], arrows.V[k]], ARROW * V.T @ each.anchors[k], atol=1e-12)
            np.testing.assert_allclose(arrows.XY[k], prototypes[k], atol=1e-12)
            for start in trail:
                np.testing.assert_allclose(start[k], V.T @ (before.prototypes[k] - middle), atol=1e-12)
        assert len(trail) == panel
        expected = (each.latents - middle) @ V
        np.testing.assert_allclose(np.sort(latents, axis=0), np.sort(expected, axis=0), atol=1e-12)


def test_everything_drawn_lies_inside_the_panels():
    figure = spacing(snapshot(5), snapshot(5, push=3))
    for panel, axis in enumerate(figure.axes):
        (low_x, high_x), (low_y, high_y) = axis.get_xlim(), axis.get_ylim()
        for each in marks(figure, panel):
            places = np.asarray(each.get_offsets())
            assert ((places > [low_x, low_y]) & (places < [high_x, high_y])).all()


def test_every_pair_of_anchors_is_joined():
    figure = spacing(snapshot(6), snapshot(6, push=1))
    simplex = next(part for part in figure.axes[0].collections if isinstance(part, LineCollection))
    (anchors,) = spots(figure, 0, SMALL)
    pairs = [np.stack([anchors[i], anchors[j]]) for i in range(6) for j in range(i + 1, 6)]
    np.testing.assert_allclose(simplex.get_segments(), pairs)


def test_the_caption_tells_what_a_plane_cannot_show():
    before, after = snapshot(5), snapshot(5, push=1)  # edges of unit vectors: √2
    told = words(spacing(before, after, "Sea life, one seed."))
    assert "Sea life, one seed." in told
    assert "any two anchors are 1.41 apart" in told
    assert "a plane cannot show more than three equidistant points" in told
    assert "cannot" not in words(spacing(snapshot(3), snapshot(3)))
    assert f"holds {main_plane(before, after).share:.0%} of their spread" in told


def test_the_caption_counts_prototypes_that_hold_none_of_the_latents():
    before, after = snapshot(5), snapshot(5, push=1)
    assert "hold none" not in words(spacing(before, after))
    after = replace(after, assignment=np.where(after.assignment > 2, 0, after.assignment))
    assert "Of 5 prototypes 0 before and 2 after hold none of these latents" in words(spacing(before, after))


def test_anchors_that_are_not_equidistant_are_not_said_to_be():
    rough = snapshot(5)
    rough.anchors[0] *= 2
    told = words(spacing(rough, rough))
    assert "any two anchors are 1.41 to 2.19 apart" in told  # √2, and √4.8 = ‖2e₀ − e_k‖ where e₀e_k = −0.2


def test_without_anchors_none_are_drawn_or_spoken_of():
    figure = spacing(snapshot(4, anchored=False), snapshot(4, anchored=False))
    assert "anchor" not in words(figure)
    assert not spots(figure, 0, SMALL)


@pytest.mark.parametrize(("classes", "dim"), [(1, 6), (1, 1), (2, 1), (40, 64)])
def test_any_number_of_prototypes_and_dimensions_can_be_drawn(classes, dim):
    figure = spacing(snapshot(classes, dim), snapshot(classes, dim, push=1))
    told = words(figure)
    assert ("of the latents" in told) == (classes == 1)
    (prototypes,) = spots(figure, 1, PROTOTYPE)
    assert prototypes.shape == (classes, 2)
    assert np.isfinite(prototypes).all()


def test_panels_may_be_empty(tmp_path):
    nothing = np.zeros((0, 8))
    save(tsne([("none", nothing)], ["a"], np.zeros(0, int), 0), tmp_path / "none")
    bare = replace(snapshot(3), latents=np.zeros((0, 6)), assignment=np.zeros(0, int))
    save(spacing(bare, bare), tmp_path / "bare")
