import base64
import io
import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from newfound.report.figures import PETROFF, colours, thumbnail
from newfound.report.page import FoundClass, Page, render
from tests.report.example import HOSTILE, example, exemplar, found, full


class Reader(HTMLParser):
    """What a browser would make of a page: its words, its tags with their attributes, its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.words, self.scripts, self.tags, self.inside = "", [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts.append(data)
        elif self.inside != "style":
            self.words += data

    def handle_endtag(self, tag):
        self.inside = ""

    def values(self) -> dict:
        return json.loads(self.scripts[0])

    def attributes(self, tag: str, name: str) -> list[str]:
        return [attributes[name] for each, attributes in self.tags if each == tag and name in attributes]


def test_every_value_lands_in_the_page():
    page = example(
        classes=2,
        curves={"spacing": [2.5, 1.25, 0.625]},
        metrics={"accuracy": 0.8125, "nmi": 0.7071},
        measured="On all 200 images.",
        comparison=[("k-means alone", 0.4375, 0.3333)],
        facts={"command": "newfound discover -o run/", "seed": "17"},
        skipped=["broken.jpg"],
    )
    page.classes[1] = found("sea pen", 1234, {"pen": 1000, "crab": 200, "ray": 20, "eel": 10, "cod": 4})
    words = Reader(render(page)).words
    for value in (
        *("New kinds in the trawl", "Some kinds were found.", "sea pen", "1,234", "0.62", "0.91", "0.13"),
        *("sea pen-0.png", "sea pen-odd.png", "truly 81% pen", "pen 1,000, crab 200, ray 20, others 14"),
        *("spacing", "2.5", "0.625", "81.2%", "NMI", "0.707", "On all 200 images.", "k-means alone", "43.8%", "0.333"),
        *("newfound discover -o run/", "seed", "17", "Files skipped: 1", "broken.jpg"),
    ):
        assert value in words, value


def test_the_map_holds_every_point_under_its_class():
    page = example(classes=3, points=7)
    traces = Reader(render(page)).values()["traces"]
    assert [trace["name"] for trace in traces] == ["new-1", "new-2", "new-3"]
    assert traces[0]["text"] == ["photo-0.png", "photo-3.png", "photo-6.png"]
    np.testing.assert_allclose(np.array([traces[1]["x"], traces[1]["y"]]).T, page.points[[1, 4]], atol=1e-3)


@pytest.mark.parametrize(("points", "kind"), [(3000, "scatter"), (3001, "scattergl")])
def test_only_large_maps_need_webgl(points, kind):
    assert {trace["type"] for trace in Reader(render(example(points=points))).values()["traces"]} == {kind}


def test_a_map_of_some_of_the_images_says_so():
    assert "60 of the 300 images are shown" in render(example())
    assert "images are shown" not in render(example(points=300))


def test_hostile_names_are_words_and_nothing_else():
    read, calm = Reader(render(full(HOSTILE))), Reader(render(full("calm")))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in calm.tags]
    assert read.words.lower().count(HOSTILE.lower()) == calm.words.lower().count("calm")
    assert read.attributes("img", "alt") == [alt.replace("calm", HOSTILE) for alt in calm.attributes("img", "alt")]
    assert "<" not in read.scripts[0]
    assert "&lt;script&gt;" in read.values()["traces"][0]["text"][0], "plotly reads tags in its texts"


def test_names_that_are_not_utf8_can_be_written():
    assert "caf?.png" in render(example(1, 1, skipped=["caf\udce9.png"])).encode().decode()


def test_nothing_is_fetched():
    read = Reader(render(full("calm")))
    assert not [tag for tag, _ in read.tags if tag in ("link", "iframe", "base", "form")]
    assert all(source.startswith("data:image/webp;base64,") for source in read.attributes("img", "src"))
    assert all(target.startswith("#") for target in read.attributes("a", "href"))
    assert not read.attributes("script", "src")


def test_every_link_leads_somewhere():
    read = Reader(render(full("calm")))
    places = {f"#{attributes['id']}" for _, attributes in read.tags if "id" in attributes}
    assert set(read.attributes("a", "href")) <= places


def test_without_the_truth_there_is_no_accuracy():
    words = Reader(render(example(measured="On all images."))).words.lower()
    for word in ("accuracy", "nmi", "truth", "truly", "measured"):
        assert word not in words


@pytest.mark.parametrize("curves", [{}, {"loss": []}])
def test_zero_epochs_leave_no_curves(curves):
    assert "Training" not in Reader(render(example(curves=curves))).words


def test_curves_survive_one_epoch_and_values_that_are_not_finite():
    words = Reader(
        render(example(curves={"one": [0.25], "broken": [1.5, math.nan, 0.5, math.inf], "lost": [math.nan]}))
    )
    assert all(word in words.words for word in ("one", "0.25", "1.5", "0.5", "inf", "nan"))
    assert "nan" not in "".join(words.attributes("path", "d"))


def test_a_curve_that_was_not_measured_in_the_last_epoch_shows_the_last_value_that_was():
    words = Reader(render(example(curves={"late": [math.nan, 0.125, math.nan]}))).words
    assert "0.125" in words
    assert "nan" not in words


def test_a_page_without_a_map_carries_no_plotly():
    text = render(Page("Nothing", "Nothing was found.", []))
    assert len(text) < 20_000
    assert not Reader(text).scripts


@pytest.mark.parametrize("classes", [1, 200])
def test_any_number_of_classes(classes):
    read = Reader(render(example(classes=classes, points=2 * classes)))
    assert len(read.values()["traces"]) == classes
    assert len(read.attributes("button", "data-class")) == classes
    assert len(read.attributes("article", "id")) == classes


def test_an_empty_class_is_shown():
    assert "ghost" in Reader(render(Page("Few", "One.", [FoundClass("ghost", 0, 0.0, [], [])]))).words


def test_colours_are_all_different():
    assert colours(3) == list(PETROFF[:3])
    assert len(set(colours(200))) == 200


@pytest.mark.parametrize("shape", [(28, 28, 1), (8, 8, 3), (64, 40, 3)])
def test_small_images_keep_every_pixel(shape):
    pixels = exemplar("a", shape=shape).pixels
    kept = np.asarray(decode(thumbnail(pixels, "a")))
    np.testing.assert_array_equal(kept, np.broadcast_to(pixels, (*shape[:2], 3)))


def test_photographs_are_shrunk_and_keep_their_proportions():
    text = thumbnail(np.full((600, 900, 3), 200, np.uint8), "a")
    assert decode(text).size == (160, 107)
    assert 'width="104" height="69"' in text


def decode(img: str) -> Image.Image:
    source = Reader(img).attributes("img", "src")[0]
    return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))


def test_a_rehearsal_is_a_table_with_what_was_taken_marked():
    rows = {"A first look": [("lite0, k-means", 0.7512, False)], "lite2": [("discriminant", 0.8024, True)]}
    text = render(example(rehearsal="On 4 of 8 known classes.", rehearsed=rows, expected="67 % (56 to 77)"))
    words = Reader(text).words
    assert "On 4 of 8 known classes." in words
    assert "A first looklite0, k-means75.1%lite2discriminant taken80.2%" in words
    assert "67 % (56 to 77)" in words
    assert text.count("<strong>taken</strong>") == 1
    assert "Rehearsal" not in Reader(render(example())).words


def test_a_warning_stands_in_the_masthead_and_notes_below_the_classes():
    text = render(example(warnings=["Half is <unsure>."], notes=["No image is of 2 (eel)."]))
    assert text.index("Half is &lt;unsure&gt;.") < text.index('id="classes"') < text.index("No image is of 2 (eel).")
    assert 'class="caution"' not in render(example())
