"""Pictures of the review page at work, for docs/review.md, docs/tutorial.md and the README: Debian's clip art, eight
kinds, three of them known.

    apt install openclipart-png chromium
    python docs/screenshots.py

Goes through the tutorial as a person would, by keys, and photographs the page at each step, 1280 × 720. Writes
docs/tutorial-*.png, docs/review-light.png and docs/review-dark.png, in 256 colours, so that they are small.
"""

import io
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from newfound import discover
from newfound.data.decoding import configure_pillow
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.review.desk import Desk
from newfound.review.serve import HERE, configure, guarded, listen

ART = Path("/usr/share/openclipart/png")
KNOWN = ("food/fruit", "recreation/music", "animals/mammals")
NEW = ("signs_and_symbols/flags", "shapes/arrows", "animals/birds", "transportation/vehicles", "people/clothing")
EACH = 40
HERE_ARE = Path(__file__).parent
PATIENCE = 600_000
"""Milliseconds: nobody waits for these pictures."""


LOADED = """[...document.images].every(image => {
  const {top, bottom, width} = image.getBoundingClientRect();
  return image.complete || !width || bottom < 0 || top > innerHeight;
})"""


def copy(root: Path) -> dict[str, str]:
    """Half of the known kinds as labelled pictures; the others and the new kinds in one folder, under numbers. Returns
    the kind of each of these.
    """
    number, seen, kinds = 0, set[bytes](), dict[str, str]()
    for kind in (*KNOWN, *NEW):
        first = {file.read_bytes(): file for file in sorted((ART / kind).rglob("*.png"))}  # some are there twice
        files = [file for content, file in first.items() if content not in seen][: EACH if kind in NEW else 2 * EACH]
        seen |= {*first}
        for i, file in enumerate(files):
            labelled = kind in KNOWN and i % 2 == 0
            target = root / "known" / Path(kind).name / file.name if labelled else root / "new" / f"{number:04}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
            kinds[target.name] = kind
            number += 1
    return kinds


def most_of(run: Discovery, kinds: dict[str, str], kind: str) -> tuple[int, list[int]]:
    """The new class with the most pictures of a kind, and these."""
    now, names = run.classes, run.found.listing.names

    def theirs(number: int) -> list[int]:
        return [row for row in now.rows(number).tolist() if kinds[names[row]] == kind]

    number = max((number for number in now.numbers if now.kind(number) == "new"), key=lambda each: len(theirs(each)))
    return number, theirs(number)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of the page of a run."""
    desk = Desk(folder, by="Ana")
    with listen(0) as place:
        port = place.getsockname()[1]
        server = uvicorn.Server(configure(guarded(desk, None, "docs", port)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            yield f"http://{HERE}:{port}/#token=docs"
        finally:
            server.should_exit = True
            thread.join()


def visit(browser: Browser, address: str, scheme: str) -> Page:
    """The page once its map is drawn."""
    page = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme=scheme).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("#map-note[data-ready=yes]", state="attached")
    return page


def shoot(page: Page, name: str) -> None:
    """Photograph the page once all its pictures are there."""
    page.wait_for_load_state("networkidle")
    while not page.evaluate(LOADED):  # `wait_for_function` is forbidden by the page's security policy
        page.wait_for_timeout(100)
    page.wait_for_timeout(1000)
    picture = Image.open(io.BytesIO(page.screenshot()), formats=["PNG"]).convert("RGB")
    # By coverage, so that the colours of small dots are among the few.
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    few.save(HERE_ARE / f"{name}.png", optimize=True)
    print(f"docs/{name}.png", flush=True)


def open_class(page: Page, number: int) -> None:
    """Click on a line of the class list."""
    page.locator(f"#class-{number}").click()
    page.wait_for_selector(f"#class-{number}[aria-current=true]")
    expect(page.locator("#grid[aria-busy=true]")).to_have_count(0)


def go_through(page: Page, vehicles: int, mixed: int) -> None:
    """What the tutorial tells, step by step; the class of vehicles gets its name."""
    shoot(page, "tutorial-look")
    open_class(page, vehicles)
    page.keyboard.press("r")
    page.get_by_label("Name", exact=True).fill("vehicle")
    shoot(page, "tutorial-name")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("vehicle")
    open_class(page, mixed)
    page.keyboard.press("s")
    page.wait_for_selector(".parts section")
    shoot(page, "tutorial-split")
    page.keyboard.press("Escape")
    page.locator("#class-list .class", has_text="unsure").last.click()
    page.wait_for_selector(".tile .guess:not(:empty)")
    for key in ("Space", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    shoot(page, "tutorial-unsure")
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    page.get_by_label("Format", exact=True).select_option("folders")
    shoot(page, "tutorial-export")
    page.keyboard.press("Escape")


def main() -> None:
    """Discover, review, photograph."""
    expect.set_options(timeout=PATIENCE)
    with tempfile.TemporaryDirectory() as folder, configure_pillow(), sync_playwright() as playwright:
        root = Path(folder)
        kinds = copy(root)
        discover(
            known=root / "known",
            unlabelled=root / "new",
            classes=5,
            output=root / "run",
            run=Run(method="kmeans", device="cpu"),
            stage=StageOne(rehearse="no"),
        )
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        run = Discovery.load(root / "run", by="Ana")
        (vehicles, rows), (mixed, _) = (most_of(run, kinds, kind) for kind in (NEW[3], NEW[4]))
        with serving(root / "run") as address:
            go_through(visit(browser, address, "light"), vehicles, mixed)
            with run.together():
                run.accept(vehicles, images=rows)
            for scheme in ("light", "dark"):
                page = visit(browser, address, scheme)
                open_class(page, vehicles)
                for key in ("ArrowRight", "Space", "Shift+ArrowRight", "Shift+ArrowRight"):
                    page.keyboard.press(key)
                shoot(page, f"review-{scheme}")
        browser.close()


if __name__ == "__main__":
    main()
