"""Pictures of the review page at work, for docs/review.md: Debian's clip art, eight kinds, three of them known.

    apt install openclipart-png chromium
    python docs/screenshots.py

Writes docs/review-light.png and docs/review-dark.png, 1280 × 720.
"""

import shutil
import tempfile
import threading
from pathlib import Path

import uvicorn
from playwright.sync_api import expect, sync_playwright

from newfound import discover
from newfound.data.decoding import configure_pillow
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run
from newfound.review.desk import Desk
from newfound.review.serve import HERE, configure, guarded, listen

ART = Path("/usr/share/openclipart/png")
KNOWN = ("food/fruit", "recreation/music", "animals/mammals")
NEW = ("signs_and_symbols/flags", "shapes/arrows", "animals/birds", "transportation/vehicles", "people/clothing")
EACH = 40
HERE_ARE = Path(__file__).parent


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


def review_some(run: Discovery, kinds: dict[str, str]) -> None:
    """As somebody would who has begun: the class with the most vehicles is named, and those in it are accepted."""
    now, names = run.classes, run.found.listing.names

    def vehicles(number: int) -> list[int]:
        return [row for row in now.rows(number).tolist() if kinds[names[row]] == "transportation/vehicles"]

    number = max((number for number in now.numbers if now.kind(number) == "new"), key=lambda each: len(vehicles(each)))
    with run.together():
        run.rename(number, "vehicle")
        run.accept(number, images=vehicles(number))


def shoot(address: str) -> None:
    """The page in the light and in the dark, with some images selected."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless=new", "--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme=scheme).new_page()
            page.goto(address)
            page.wait_for_selector("html[data-ready]")
            page.wait_for_selector("#map .point")
            expect(page.locator("#map-note")).not_to_contain_text("sketch", timeout=180_000)
            for key in ("ArrowRight", "Space", "Shift+ArrowRight", "Shift+ArrowRight"):
                page.keyboard.press(key)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(1000)
            page.screenshot(path=HERE_ARE / f"review-{scheme}.png")
        browser.close()


def main() -> None:
    """Discover, begin a review, photograph it."""
    with tempfile.TemporaryDirectory() as folder, configure_pillow():
        root = Path(folder)
        kinds = copy(root)
        settings = Run(method="kmeans", device="cpu")
        discover(known=root / "known", unlabelled=root / "new", classes=5, output=root / "run", run=settings)
        review_some(Discovery.load(root / "run", by="Ana"), kinds)
        desk = Desk(root / "run", by="Ana")
        with listen(0) as place:
            port = place.getsockname()[1]
            server = uvicorn.Server(configure(guarded(desk, None, "docs", port)))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
            thread.start()
            try:
                shoot(f"http://{HERE}:{port}/#token=docs")
            finally:
                server.should_exit = True
                thread.join()


if __name__ == "__main__":
    main()
