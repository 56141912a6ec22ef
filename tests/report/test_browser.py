"""The page in a real browser, on a desk and on a telephone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from newfound.report.page import render
from tests.report.example import HOSTILE, example, found


class Visit:
    """A page opened in the browser, with everything it asked for and every error it met."""

    def __init__(self, context: BrowserContext, path: Path):
        self.page = context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.querySelector('#map .annotation-text')")

    def check(self) -> None:
        """Nothing left this machine, nothing went wrong."""
        assert [url for url in self.requests if not url.startswith(("data:", "blob:"))] == [self.page.url.split("#")[0]]
        assert not self.errors


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    long = "a/very/long/path/" * 9 + "photo.png"
    page = example(
        classes=4,
        points=80,
        curves={"loss": [3.0, 2.0, 1.0], "a value with a rather long name": [0.1, 0.2, 0.15]},
        metrics={"accuracy": 0.8, "nmi": 0.7},
        measured="On all images.",
        comparison=[("k-means", 0.5, 0.4)],
        facts={"command": f"newfound discover --unlabelled {long}", "seed": "0"},
        skipped=[long],
    )
    page.classes[3] = found(HOSTILE, 7, {long: 4, "dog": 3})
    page.captions[0], page.points[0] = HOSTILE, -9.0  # away from the others
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(page), "utf-8")
    return path


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")])
def visit(browser, path, request) -> Iterator[Visit]:
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    yield Visit(context, path)
    context.close()


def test_the_page_draws_itself_fits_and_asks_for_nothing(visit):
    assert visit.page.locator("#map .point").count() == 80
    assert visit.page.evaluate("document.documentElement.scrollWidth") == visit.page.viewport_size["width"]
    assert visit.page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    visit.check()


def test_the_page_is_dark_where_the_reader_wants_it_and_light_on_paper(visit):
    def lightness() -> list[int]:
        colour = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]

    wants_dark = visit.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert max(lightness()) < 50 if wants_dark else min(lightness()) > 200
    visit.page.emulate_media(media="print")
    assert lightness() == [255, 255, 255]
    visit.page.emulate_media(media="screen")


def test_a_pressed_class_stands_out_until_all_are_shown(visit):
    def opacities() -> list[float]:
        return visit.page.evaluate("document.getElementById('map').data.map(trace => trace.opacity ?? 1)")

    visit.page.click("[data-class='1']")
    assert opacities() == [0.08, 1, 0.08, 0.08]
    assert visit.page.get_attribute("[data-class='1']", "aria-pressed") == "true"
    visit.page.click("[data-class='2']")
    assert opacities() == [0.08, 1, 1, 0.08]
    visit.page.click("#everything")
    assert opacities() == [1, 1, 1, 1]
    visit.page.click("[data-class='0']")
    visit.page.click("[data-class='0']")
    assert opacities() == [1, 1, 1, 1]
    visit.check()


def test_a_point_tells_its_name_and_class_as_plain_words(visit):
    visit.page.locator("#map .trace").nth(0).locator(".point").nth(0).hover(force=True)
    visit.page.wait_for_function("document.querySelector('.hoverlayer').textContent")
    told = visit.page.text_content(".hoverlayer")
    assert "new-1" in told
    assert "<script>alert('1')</script>" in told
    assert '<a href="https://evil.example/">&amp; %{x}</a> 海星 نجم.png' in told
    assert visit.page.locator("#map a").count() == 0
    visit.check()


def test_no_button_sends_anything_anywhere(visit):
    titles = visit.page.evaluate("[...document.querySelectorAll('.modebar-btn')].map(button => button.dataset.title)")
    assert titles == ["Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]
    with visit.page.expect_download() as download:
        visit.page.click(".modebar-btn", force=True)
    assert download.value.suggested_filename == "map.png"
    visit.check()


def test_the_browser_refuses_what_would_leave(visit):
    refused = visit.page.evaluate(
        """new Promise(answer => {
            addEventListener("securitypolicyviolation", event => answer(event.effectiveDirective));
            setTimeout(() => answer("nothing"), 2000);
            fetch("https://example.org/").catch(() => {});
        })"""
    )
    assert refused == "connect-src"
    visit.errors.clear()  # the refusal is one


@pytest.mark.parametrize("kind", ["scattergl", "scatter"])
def test_a_large_map_is_drawn_with_and_without_webgl(browser, tmp_path, kind):
    (tmp_path / "large.html").write_text(render(example(points=3001)), "utf-8")
    with browser.new_context() as context:
        if kind == "scatter":
            context.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
        visit = Visit(context, tmp_path / "large.html")
        drawn = visit.page.evaluate("document.getElementById('map')._fullData.map(trace => trace.type)")
        assert drawn == [kind] * 3
        assert visit.page.locator("#map .point").count() == (3001 if kind == "scatter" else 0)
        visit.check()


def test_names_on_the_map_do_not_overlap(browser, tmp_path):
    page = example(classes=8, points=80)
    page = replace(page, points=page.points - 5 * page.assignments[:, None])  # all in one place
    (tmp_path / "crowded.html").write_text(render(page), "utf-8")
    with browser.new_context() as context:
        visit = Visit(context, tmp_path / "crowded.html")
        visit.page.wait_for_function("document.getElementById('map').layout.annotations.some(label => label.yshift)")
        boxes = visit.page.evaluate(
            """[...document.querySelectorAll('#map .annotation-text-g')].map(text => {
                const { left, right, top, bottom } = text.getBoundingClientRect();
                return [left, right, top, bottom];
            })"""
        )
        assert len(boxes) >= 6
        for i, (left, right, top, bottom) in enumerate(boxes):
            for other in boxes[:i]:
                apart = right <= other[0] or other[1] <= left or bottom <= other[2] + 0.5 or other[3] <= top + 0.5
                assert apart
        visit.check()
