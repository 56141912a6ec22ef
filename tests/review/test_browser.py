"""The page in a real browser, on real drawings that were really discovered in: by clicks, by keys, by two at once."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from newfound import discover
from newfound.data.decoding import configure_pillow
from newfound.discovery.journal import read_edits
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.functional.calibration import Logistic
from newfound.review import places
from newfound.review.desk import Desk
from newfound.review.serve import HERE, configure, guarded, listen
from tests.data.pictures import write_doodles
from tests.discovery.made import CALIBRATION
from tests.review.made import write_run

HOSTILE = "<img src=x onerror=\"document.title='bad'\"> <b>&amp; 海星"
TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Path:
    """Drawings of three known kinds, and a run on drawings of two of them and of three more."""
    root = tmp_path_factory.mktemp("found")
    write_doodles(root / "known", range(3), 12)
    write_doodles(root / "new", range(1, 6), 14, first=30)
    discover(
        known=root / "known",
        unlabelled=root / "new",
        classes=3,
        output=root / "run",
        run=Run(method="kmeans", device="cpu"),
        stage=StageOne(size=28, width=4, pretrain_epochs=2),
    )
    return root


@pytest.fixture
def folder(found, tmp_path) -> Path:
    shutil.copytree(found / "run", tmp_path / "run")
    return tmp_path / "run"


@contextlib.contextmanager
def serving(folder: Path, by: str = "Ana") -> Iterator[str]:
    """The address of a server on this machine, in a thread."""
    desk = Desk(folder, by=by)
    with listen(0) as place, configure_pillow():
        port = place.getsockname()[1]
        server = uvicorn.Server(configure(guarded(desk, None, TOKEN, port)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            yield f"http://{HERE}:{port}/#token={TOKEN}"
        finally:
            server.should_exit = True
            thread.join()


class Visit:
    """A page in a browser of its own, with everything it asked for and every error it met."""

    def __init__(self, browser: Browser, address: str, **how):
        context = browser.new_context(viewport={"width": 1280, "height": 720}, **how)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(10_000)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(address)
        self.ready()

    def ready(self) -> None:
        self.page.wait_for_selector("html[data-ready]", timeout=15_000)

    def says(self, words: str) -> None:
        """Wait until the page has confirmed something."""
        expect(self.page.locator("#toast")).to_contain_text(words, timeout=8_000)
        self.rests()

    def rests(self) -> None:
        """Wait until the grid shows what was said."""
        expect(self.page.locator("#grid[aria-busy=true]")).to_have_count(0, timeout=8_000)

    def until(self, expression: str, seconds: float = 8) -> None:
        """Wait until something holds; playwright's own way is forbidden by the page's security policy."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, expression
            self.page.wait_for_timeout(50)

    def key(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def title(self, words: str) -> None:
        expect(self.page.locator("#title")).to_have_text(words, timeout=8_000)
        self.rests()

    def open(self, name: str) -> None:
        self.page.locator(".class", has=self.page.get_by_text(name, exact=True)).first.click()
        self.title(name)

    def tiles(self) -> list[int]:
        """Rows of the images in the grid that are in sight, in order."""
        return self.page.evaluate(
            """[...document.querySelectorAll('.tile:not([hidden])')]
               .sort((a, b) => a.dataset.index - b.dataset.index)
               .map(tile => Number(tile.firstElementChild.src.match(/thumb.(\\d+)/)[1]))"""
        )

    def selects(self, count: int) -> None:
        """Wait until so many images in sight are shown as selected."""
        expect(self.page.locator(".tile[aria-selected=true]")).to_have_count(count)

    def draw_around(self) -> Iterator[None]:
        """Draw a line about the left half of the map; something else may be done at each of its corners."""
        area = self.page.locator("#map").bounding_box()
        left, top = area["x"] + 8, area["y"] + 8
        right, bottom = left + area["width"] / 2 - 8, top + area["height"] - 16
        self.page.mouse.move(left, top)
        self.page.mouse.down()
        for x, y in ((right, top), (right, bottom), (left, bottom), (left, top)):
            self.page.mouse.move(x, y, steps=4)
            yield
        self.page.mouse.up()

    def check(self) -> None:
        """Nothing left this machine, nothing went wrong."""
        assert {url.split("/")[2].split(":")[0] for url in self.requests if not url.startswith("data:")} == {HERE}
        assert not self.errors


@pytest.fixture
def address(folder) -> Iterator[str]:
    with serving(folder) as address:
        yield address


def actions(folder: Path) -> list[str]:
    return [edit.action for edit in read_edits(folder)]


def sizes(folder: Path) -> dict[str, int]:
    now = Discovery.load(folder).classes
    return {name: len(now.rows(number)) for number, name in now.names.items()}


def test_a_person_with_a_mouse_names_merges_splits_moves_undoes_and_exports(browser, address, folder):
    visit = Visit(browser, address)
    page, before = visit.page, sizes(folder)
    visit.open("new-1")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.get_by_label("Name", exact=True).fill(HOSTILE)
    page.get_by_role("button", name="Save").click()
    visit.title(HOSTILE)
    assert page.evaluate("document.images.length") > 0
    assert not page.locator("img[src=x]").count()
    assert not page.locator("#title b, #classes b b").count()

    page.get_by_role("button", name="Merge …").click()
    page.locator(".picks .class", has_text="new-2").click()
    visit.says("are one class")
    assert sizes(folder)[HOSTILE] == before["new-1"] + before["new-2"]

    page.get_by_role("button", name="Split …").click()
    page.get_by_label("Parts", exact=True).fill("3")
    expect(page.locator(".parts section")).to_have_count(3, timeout=8_000)
    page.get_by_role("button", name="Split", exact=True).click()
    visit.says("is now 3 classes")
    assert len(sizes(folder)) == len(before) + 1

    others = {name: size for name, size in sizes(folder).items() if name != HOSTILE}
    visit.open(max(others, key=others.__getitem__))
    rows = visit.tiles()
    page.locator("#tile-0").click()
    page.locator("#tile-2").click(modifiers=["Shift"])
    visit.selects(3)
    page.locator("#tile-1").click(modifiers=["Control"])
    visit.selects(2)
    page.get_by_role("button", name="Move to …").click()
    page.get_by_role("dialog").get_by_role("combobox").fill("eel")
    page.locator(".picks .class", has_text="New class “eel”").click()
    visit.says("moved to “eel”")
    assert sorted(read_edits(folder)[-1].rows) == sorted([rows[0], rows[2]])
    page.locator("#tile-0").click()
    page.get_by_role("button", name="Set aside").click()
    visit.says("set aside")
    page.get_by_role("button", name="Undo").click()
    visit.says("Undone")
    page.get_by_role("button", name="Redo").click()
    visit.says("Done again")
    assert actions(folder) == ["rename", "merge", "split", "move", "set aside", "undo", "redo"]

    page.reload()
    visit.ready()
    assert page.locator(".class", has_text="eel").count()
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Write").click()
    place = page.locator("dialog code").text_content(timeout=8_000)
    table = pd.read_csv(place)
    assert {"eel", "set aside"} <= {*table["class"]}
    assert (table["identified_by"] == "Ana").sum() == 3
    assert page.title() != "bad"
    visit.check()


def test_ranges_are_added_to_what_is_selected_with_ctrl_by_mouse_and_by_keys(browser, address):
    visit = Visit(browser, address)
    tile = visit.page.locator
    visit.title("new-1")
    tile("#tile-0").click()
    tile("#tile-2").click(modifiers=["Shift"])
    tile("#tile-4").click(modifiers=["Control"])
    tile("#tile-6").click(modifiers=["Control", "Shift"])
    visit.selects(6)  # 0 to 2 and 4 to 6
    tile("#tile-5").click(modifiers=["Control", "Shift"])
    visit.selects(5)  # the range that was added ends sooner, and the other one stays
    tile("#tile-7").click(modifiers=["Shift"])
    visit.selects(4)  # without Ctrl it is the only one
    visit.key("Escape", "Home", "Space", "ArrowRight", "ArrowRight", "Control+Shift+ArrowRight")
    visit.selects(3)  # 0, and 2 to 3
    visit.check()


def test_a_person_with_a_keyboard_does_all_of_it(browser, address, folder):
    visit = Visit(browser, address, color_scheme="dark")
    page = visit.page
    visit.title("new-1")
    visit.key("r")
    page.keyboard.type("sea pen")
    visit.key("Enter")
    visit.title("sea pen")
    visit.key("ArrowRight", "Space", "Shift+ArrowRight")
    visit.selects(2)
    rows = visit.tiles()[1:3]
    visit.key("n")
    page.keyboard.type("squid")
    visit.key("Enter")
    visit.says("are now “squid”")
    assert sorted(read_edits(folder)[-1].rows) == sorted(rows)
    visit.key("ArrowRight", "c")
    visit.says("accepted")
    assert len(read_edits(folder)[-1].rows) == 4  # the focus stays at its place
    visit.key("x")
    visit.says("1 image set aside")
    visit.key("t")
    page.keyboard.type("squid")
    visit.key("Enter")
    visit.says("moved to “squid”")
    visit.key("u")
    visit.says("Undone")
    visit.key("Shift+U")
    visit.says("Done again")
    visit.key("s")
    expect(page.locator(".parts section")).to_have_count(2, timeout=8_000)
    visit.key("Enter")
    visit.says("is now 2 classes")
    visit.key("m")
    expect(page.locator(".picks .class").first).to_be_visible(timeout=8_000)
    visit.key("ArrowDown", "Enter")
    visit.says("are one class")
    visit.key("Shift+A")
    expect(page.get_by_label("Confidence", exact=True)).to_be_focused()
    visit.key("Home", "Enter")
    visit.says("accepted")
    visit.key("o")
    expect(page.locator("#order")).to_have_value("doubtful")
    visit.key("j")
    visit.key("a")
    visit.says("All images of")
    visit.key("g", "Enter")
    expect(page.locator(".facts dl")).to_be_visible(timeout=8_000)
    visit.key("ArrowRight", "Escape")
    visit.key("?")
    expect(page.get_by_role("dialog")).to_contain_text("undo")
    visit.key("Escape", "e")
    expect(page.get_by_label("Format", exact=True)).to_be_focused(timeout=8_000)
    page.keyboard.type("darwin")
    visit.key("Enter")
    table = pd.read_csv(page.locator("dialog code").text_content(timeout=8_000))
    assert {"newfound", "Ana"} >= {*table["identifiedBy"]}
    said = ["rename", "move", "accept", "set aside", "move", "undo", "redo", "split", "merge", "accept", "accept"]
    assert actions(folder) == said
    visit.check()


def test_what_is_drawn_around_on_the_map_or_boxed_in_the_grid_is_one_selection(browser, address, folder):
    visit = Visit(browser, address)
    page = visit.page
    page.wait_for_selector("#map-note[data-ready=yes]", state="attached", timeout=15_000)
    for _ in visit.draw_around():
        pass
    expect(page.locator("#title")).to_contain_text("on the map", timeout=8_000)
    chosen = int(page.locator("#title").text_content().split()[0])
    assert 0 < chosen < 70
    expect(page.locator("#selected")).to_contain_text(f"{chosen} selected")
    visit.key("x")
    visit.says("set aside")
    (edit,) = read_edits(folder)
    assert len(edit.rows) == chosen
    visit.key("u")
    visit.says("Undone")
    visit.open("new-1")
    grid = page.locator("#grid").bounding_box()
    tile = page.locator("#tile-1").bounding_box()
    page.mouse.move(grid["x"] + 2, grid["y"] + 2)
    page.mouse.down()
    page.mouse.move(tile["x"] + 20, tile["y"] + 20, steps=5)
    page.mouse.up()
    visit.selects(2)
    visit.key("l")
    expect(page.locator("#title")).to_contain_text("More like 2 images", timeout=8_000)
    visit.key("Escape")
    visit.title("new-1")
    visit.check()


def test_a_line_that_somebody_draws_on_the_map_outlasts_what_comes_meanwhile(browser, address, folder, monkeypatch):
    """Better places, and another's edit: the map waits with them until the hand is off it."""
    ready, flatten = threading.Event(), places.flatten_apart
    monkeypatch.setattr(places, "flatten_apart", lambda *given, **how: ready.wait(60) and flatten(*given, **how))
    visit = Visit(browser, address)
    page = visit.page
    page.wait_for_selector("#map-note[data-ready=no]", state="attached", timeout=15_000)
    for corner, _ in enumerate(visit.draw_around()):
        if corner == 1:
            ready.set()
            with (other := Discovery.load(folder, by="Bo")).together():
                other.rename(4, "crab")
            expect(page.locator("#class-list")).to_contain_text("crab", timeout=8_000)
            while sum(url.endswith("/api/map/classes") for url in visit.requests) < 3:  # at first, for Bo, and better
                page.wait_for_timeout(50)
            page.wait_for_timeout(300)
            assert page.locator("#map-note[data-ready=no]").count()
    expect(page.locator("#title")).to_contain_text("on the map", timeout=8_000)
    chosen = int(page.locator("#title").text_content().split()[0])
    assert 0 < chosen < 70
    expect(page.locator("#selected")).to_contain_text(f"{chosen} selected")
    page.wait_for_selector("#map-note[data-ready=yes]", state="attached", timeout=15_000)
    visit.check()


def test_dots_of_the_class_at_hand_stand_out_and_of_a_selection_those(browser, address):
    visit = Visit(browser, address)
    page = visit.page
    page.wait_for_selector("#map-note[data-ready=yes]", state="attached", timeout=15_000)

    def bright(count: int) -> None:
        lit = '[...document.querySelectorAll("#map .point")].filter(dot => dot.style.opacity === "1").length'
        visit.until(f"{lit} === {count}")

    bright(int(page.locator("#about").text_content().split(" · ")[1].split()[0]))
    visit.key("Space", "Shift+ArrowRight")
    bright(2)
    visit.key("Escape", "j")
    visit.title("new-2")
    bright(int(page.locator("#about").text_content().split(" · ")[1].split()[0]))
    visit.check()


def test_known_classes_are_merged_only_after_a_question(browser, address, folder):
    visit = Visit(browser, address)
    page = visit.page
    known = [line.text_content() for line in page.locator("#kind-known ~ .class b").all()]
    visit.open(known[0])
    visit.key("m")
    page.locator(".picks .class", has=page.get_by_text(known[1], exact=True)).click()
    expect(page.get_by_role("dialog")).to_contain_text("your labelled images tell them apart")
    visit.key("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert actions(folder) == []
    visit.key("m")
    page.locator(".picks .class", has=page.get_by_text(known[1], exact=True)).click()
    page.get_by_role("button", name="Merge them").click()
    visit.says("are one class")
    assert actions(folder) == ["merge"]
    assert len({*known[:2]} & sizes(folder).keys()) == 1
    visit.check()


def test_unsure_images_are_accepted_as_guessed_selected_ones_or_those_above_a_cut(browser, address, folder):
    visit = Visit(browser, address)
    page, before = visit.page, Discovery.load(folder).classes
    visit.open("unsure")
    expect(page.get_by_text("These are of no class yet")).to_be_visible()
    expect(page.get_by_text("One kind in this class?")).to_be_hidden()
    waiting = page.evaluate("import('/page/store.js').then(({store}) => [store.rows, store.confidence])")
    rows, sure = waiting
    assert len(rows) > 4
    assert sure == sorted(sure, reverse=True)
    guess = before.names[int(before.assignment[rows[0]])]
    assert page.locator("#tile-0 .guess").text_content() == guess
    visit.key("Space", "Shift+ArrowRight", "a")
    visit.says("2 images accepted as guessed")
    edit = read_edits(folder)[-1]
    assert (edit.action, sorted(edit.rows)) == ("accept", sorted(rows[:2]))
    assert {*edit.classes} == {*before.assignment[rows[:2]].tolist()}
    expect(page.locator("#tile-0 img")).to_have_attribute("src", re.compile(rf"thumb.{rows[2]}\b"))  # they wait no more
    visit.key("a")
    expect(page.get_by_label("Confidence", exact=True)).to_be_focused()
    page.get_by_label("Confidence", exact=True).fill(str(sure[3]))
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Accept")).click()
    visit.says("accepted as guessed")
    above = [row for row, value in zip(rows, sure, strict=True) if value >= sure[3]][2:]
    assert sorted(read_edits(folder)[-1].rows) == sorted(above)
    now = Discovery.load(folder).classes
    assert now.assignment.tolist() == before.assignment.tolist()
    assert {*now.decided} == {*rows[:2], *above}
    visit.check()


def test_above_a_confidence_no_image_is_accepted_that_is_unsure_or_far_out_and_how_many_are_is_said(browser, tmp_path):
    folder = write_run(tmp_path, calibration=CALIBRATION._replace(outlier=Logistic(20.0, 15.0)), threshold=0.5)
    run = Discovery.load(folder)
    table, guess = run.assignments(), run.classes.assignment.numpy()
    confident = np.floor(100 * table["confidence"]) >= 30
    out = confident & (table["number"] < 0)
    number = int(np.bincount(guess[out]).argmax())
    taken = table.index[confident & ~out & (guess == number)].tolist()
    left = int((out & (guess == number)).sum())
    assert min(len(taken), left) > 0
    with serving(folder) as address:
        visit = Visit(browser, address)
        visit.open(run.classes.names[number])
        visit.key("Shift+A")
        visit.page.get_by_label("Confidence", exact=True).fill("30")
        dialog = visit.page.get_by_role("dialog")
        expect(dialog).to_contain_text(re.compile(rf"{left} images? that (is|are) unsure or far out"))
        dialog.get_by_role("button", name=re.compile(rf"^Accept {len(taken)} images?$")).click()
        visit.says(f"{len(taken)} image")
        assert sorted(read_edits(folder)[-1].rows) == taken
        visit.check()


def test_what_is_likely_for_a_kind_of_list_stands_first_and_outliers_are_no_guesses_to_accept(browser, tmp_path):
    folder = write_run(tmp_path, calibration=CALIBRATION._replace(outlier=Logistic(4.0, 3.0)))
    with serving(folder) as address:
        visit = Visit(browser, address)
        page = visit.page
        shown = page.locator("#class-tools button:visible")
        expected = {
            "cat": ["Accept all", "Accept above …", "Split …", "Merge …"],
            "new-2": ["Accept all", "Accept above …", "Merge …", "Split …"],
            "unsure": ["Accept as guessed", "Accept above …"],
            "outlier": ["New class from this", "More like this", "Set aside", "Accept as guessed"],
        }
        for name in ("cat", "new-2", "unsure", "outlier", "cat", "outlier"):
            visit.open(name)
            expect(shown).to_have_text(expected[name])
            expect(page.locator("#class-tools .main:visible")).to_have_text(expected[name][:1])
        visit.key("g", "Space", "Shift+ArrowRight")
        expect(shown).to_have_text(["New class from these", "More like these", "Set aside", "Accept as guessed"])
        beside = page.locator("#selection button[data-action]:visible")
        expect(beside).to_have_text(["Move to …", "Cut here", "✕"])  # nothing stands there twice
        rows = visit.tiles()[:2]
        page.locator("#class-tools .main").click()
        page.keyboard.type("sea pen")
        visit.key("Enter")
        visit.says("2 images are now “sea pen”")
        edit = read_edits(folder)[-1]
        assert (edit.action, sorted(edit.rows)) == ("move", sorted(rows))
        expect(page.locator("#title")).to_have_text("outlier")
        page.locator("#class-tools [data-action=setAside]").focus()
        visit.key("Enter")
        visit.says("1 image set aside")
        expect(page.locator("#class-tools [data-action=setAside]")).to_be_focused()
        visit.open("set aside")
        expect(shown).to_have_count(0)
        visit.check()


def test_labelled_images_stand_beside_known_classes_and_beside_new_ones_those_of_the_nearest(browser, address, folder):
    visit = Visit(browser, address)
    page, found = visit.page, Discovery.load(folder).found
    shown = "import('/page/store.js').then(({store, line}) => [line().number, line().known])"
    _, nearest = page.evaluate(shown)
    copies = page.locator("#known .strip img")
    expect(copies).to_have_count(len(found.references[nearest - 1]))
    assert page.locator("#labelled").is_hidden()
    visit.open(found.known[0])
    copies = page.locator("#labelled .strip img")
    expect(copies).to_have_count(len(found.references[0]))
    visit.until("[...document.querySelectorAll('#labelled img')].every(image => image.naturalWidth > 0)")
    assert page.locator("#known").is_hidden()
    visit.key("Enter")
    section = page.locator(".facts section", has_text=f"Labelled {found.known[0]}")
    expect(section.locator("img")).to_have_count(len(found.references[0]))
    visit.check()


def test_two_browsers_edit_at_once_and_see_each_other(browser, address, folder):
    with serving(folder, by="Bo") as second:
        one, other = Visit(browser, address), Visit(browser, second)
        one.title("new-1")
        other.key("j")
        other.title("new-2")
        for visit, name in ((one, "crab"), (other, "eel")):
            visit.key("r")
            visit.page.keyboard.type(name)
            visit.key("Enter")
            visit.title(name)
        expect(one.page.locator("#class-list")).to_contain_text("eel", timeout=8_000)
        expect(other.page.locator("#class-list")).to_contain_text("crab", timeout=8_000)
        assert sorted((edit.by, *edit.names) for edit in read_edits(folder)) == [("Ana", "crab"), ("Bo", "eel")]
        one.check()
        other.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_is_in_the_way_of_those_who_hear_the_page_or_need_contrast(browser, address, scheme):
    visit = Visit(browser, address, color_scheme=scheme, reduced_motion="reduce")
    page, axe = visit.page, Axe()
    page.wait_for_selector("#map .point", timeout=15_000)

    def serious() -> list[str]:
        found = axe.run(page).response["violations"]
        return [
            f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")
        ]

    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    visit.key("Space")
    assert serious() == []
    for key in ("r", "m", "s", "e", "?", "Enter"):
        visit.key(key)
        page.get_by_role("dialog").wait_for(timeout=8_000)
        page.wait_for_load_state("networkidle")
        assert serious() == [], key
        visit.key("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    visit.check()


def test_an_address_without_its_token_shows_nothing_of_the_run(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address.split("#")[0])
    expect(page.get_by_role("alert")).to_contain_text("lacks its token", timeout=8_000)
    assert "new-1" not in page.content()


@pytest.mark.processes
def test_of_200_edits_that_the_end_of_the_server_interrupts_every_confirmed_one_is_there(folder):
    """The command itself, in a process of its own, ended by SIGKILL while it writes."""
    line = [sys.executable, "-m", "newfound", "review", str(folder), "--no-open", "--as", "Ana"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=os.environ | {"RANK": "0"})
    assert server.stdout is not None
    address, _, token = server.stdout.readline().split()[-1].partition("#token=")

    def kill() -> None:
        path = folder / "edits.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not path.exists() or path.read_bytes().count(b"\n") < 60):
            time.sleep(0.001)
        os.kill(server.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    confirmed, ask = 0, urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    headers = {"X-Newfound-Token": token, "Content-Type": "application/json"}
    with contextlib.suppress(ConnectionError, urllib.error.URLError):
        for number in range(200):
            body = json.dumps({"action": "rename", "seen": number, "number": 3, "name": f"name {number}"}).encode()
            asked = urllib.request.Request(f"{address}api/edits", body, headers)
            try:
                with ask(asked, timeout=30) as answer:
                    assert json.load(answer)["length"] == number + 1
            except urllib.error.HTTPError as error:
                pytest.fail(error.read().decode())
            confirmed += 1
    killer.join()
    server.wait()
    server.stdout.close()
    said = [edit.names[0] for edit in read_edits(folder)]
    assert 59 <= confirmed < 200
    assert said[:confirmed] == [f"name {number}" for number in range(confirmed)]
    assert len(said) <= confirmed + 1  # one may have been written, and its confirmation lost
    run = Discovery.load(folder)
    with run.together():
        run.rename(3, "after")
    assert Discovery.load(folder).classes.names[3] == "after"
