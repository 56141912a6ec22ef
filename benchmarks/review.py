"""The review page with 50 000 images in 500 classes: what a person waits for, and what the server needs.

    python -m benchmarks.review

Thumbnails are generated; the server is a process of its own, the browser Debian's chromium. Times of the page are
by the wall clock, medians: run it on a machine that does nothing else. Beside the longest block stands what the longest
task took of the processor, which other programs do not lengthen; the times of functions are such too.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from newfound.data.listing import Listing
from newfound.discovery.edits import Edit, classes
from newfound.discovery.found import Clusters, Found
from newfound.discovery.storage import write_found
from newfound.functional.calibration import Calibration, Logistic
from newfound.functional.geometry import distances
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model
from newfound.review import views
from newfound.review.measures import begin_measures, measure_again
from newfound.types import generator, seeded

IMAGES, CLASSES, KNOWN, DIM, REPEAT = 50_000, 500, 20, 128, 5
TASK = "ThreadControllerImpl::RunTask"
"""What chromium calls a task of a thread in its traces."""
SCROLL = """async () => {
  const grid = document.querySelector("#grid"), waits = [];
  let last = performance.now();
  for (let i = 0; i < 120; i++) {
    grid.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    waits.push(now - last);
    last = now;
  }
  return Math.max(...waits.slice(2));
}"""
EDIT = """async ([number, token]) => {
  const headers = {"X-Newfound-Token": token, "Content-Type": "application/json"};
  const seen = (await (await fetch("/api/length", {headers})).json()).length;
  const body = JSON.stringify({action: "rename", seen, number: 30, name: `name ${number}`});
  const began = performance.now();
  await (await fetch("/api/edits", {method: "POST", headers, body})).json();
  return performance.now() - began;
}"""
WATCH = """() => {
  window.blocks = [0];
  const note = list => list.getEntries().forEach(each => blocks.push(each.duration));
  new PerformanceObserver(note).observe({type: "longtask"});
}"""


def make_found(root: Path) -> Found:
    """Points about 500 centres, their pictures a few files under many names."""
    random = generator("review")
    centres = 0.75 * torch.randn(CLASSES, DIM, generator=random)  # so near that a part of the images is unsure
    share = 1 / torch.arange(10.0, 10.0 + CLASSES)  # a few large classes, many small ones
    there = torch.multinomial(share, IMAGES, replacement=True, generator=random)
    features = centres[there] + torch.randn(IMAGES, DIM, generator=random)
    sizes = torch.bincount(there, minlength=CLASSES)
    with seeded("review"):
        model = Model(Adapter(DIM, DIM), 28, 3, tuple(f"known {i}" for i in range(KNOWN)))
    return Found(
        Listing.of([f"{row // 1000:02}/{row}.jpg" for row in range(IMAGES)], root=root),
        model,
        features,
        Clusters(there, centres, sizes, unit=False),
        Calibration(Logistic(3.0, -0.5), Logistic(2.0, 0.0)),
        0.5,
        known=model.classes,
        references={place: torch.zeros(4, 3, 96, 96, dtype=torch.uint8) for place in range(KNOWN)},
    )


def draw(found: Found) -> None:
    """A picture for every image: a gradient of its own."""
    ramp = np.linspace(0, 1, 160)[:, None, None] * np.ones((160, 160, 1))
    for row, file in enumerate(found.listing.files):
        file.parent.mkdir(parents=True, exist_ok=True)
        colour = np.array([row % 251, row // 251 % 251, 128])
        Image.fromarray((ramp * colour).astype(np.uint8)).save(file, quality=70)


def say(what: str, value: float, unit: str, asked: str) -> None:
    print(f"{what:<60} {value:>9.1f} {unit:<3} asked {asked}", flush=True)


def time_views(found: Found) -> None:
    """The pure part, in this process."""
    between = distances(found.clusters.centres)
    now = classes(found, [])
    measures = begin_measures(now)
    edits = [Edit("rename", (30,), names=("x",))]
    rows = classes(found, []).rows(40).tolist()
    edits.append(Edit("split", (40,), parts=(tuple(rows[1:]), tuple(rows[:1])), made=(501,), names=("y",)))
    began = time.process_time()
    now = classes(found, edits)
    say("classes(found, edits)", 1000 * (time.process_time() - began), "ms", "≤ 50")
    began = time.process_time()
    scene = views.view_scene(now, measure_again(measures, now), between)
    text = json.dumps(views.view_state(scene, edits))
    say("measures and class list after an edit", 1000 * (time.process_time() - began), "ms", "")
    say("class list as JSON", len(text) / 1024, "kB", "")


def memory(process: int) -> float:
    """Resident memory in MB, at its highest."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def processor_time(process: int) -> float:
    """Milliseconds of processor time that a process has used by now."""
    used = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return 1000 * sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def find_tasks(trace: bytes) -> list[float]:
    """Milliseconds of processor time of each task of a page's main thread, by chromium's own account."""
    events = json.loads(trace)["traceEvents"]
    named = [event for event in events if event.get("name") == "thread_name"]
    main = {(event["pid"], event["tid"]) for event in named if event["args"]["name"] == "CrRendererMain"}
    tasks = [event for event in events if event["name"] == TASK and (event["pid"], event["tid"]) in main]
    return [event.get("tdur", 0) / 1000 for event in tasks]


def watch(page: Page, action: Callable[[], object]) -> tuple[float, float]:
    """The longest block of the page's main thread while something is done, by the wall clock (0 where none is over
    50 ms) and in processor time.
    """
    page.evaluate("blocks.length = 1")
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["toplevel"])
    action()
    used = find_tasks(browser.stop_tracing())
    return page.evaluate("Math.max(...blocks)"), max(used, default=0.0)


def say_blocks(what: str, blocks: Sequence[tuple[float, float]]) -> None:
    """Both medians; the second is what the page costs where nothing else runs."""
    wall, used = (statistics.median(values) for values in zip(*blocks, strict=True))
    say(f"{what}, longest block", wall, "ms", "≤ 50")
    say(f"{what}, longest task in processor time", used, "ms", "≤ 50")


def visit(browser: Browser, address: str) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
    page.set_default_timeout(300_000)
    page.add_init_script(f"({WATCH})()")
    page.goto(address)
    page.wait_for_selector(".tile img")
    return page


def time_opening(browser: Browser, address: str, server: int) -> None:
    """From the address to the first images, several times anew."""
    paints, images, pages, servers = [], [], [], []
    for _ in range(REPEAT):
        browser.start_tracing(categories=["toplevel"])
        began, before = time.perf_counter(), processor_time(server)
        page = visit(browser, address)
        images.append(1000 * (time.perf_counter() - began))
        servers.append(processor_time(server) - before)
        pages.append(sum(find_tasks(browser.stop_tracing())))
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"))
        page.context.close()
    say(f"first paint (median of {REPEAT})", statistics.median(paints), "ms", "≤ 1000")
    say("first images in the grid", statistics.median(images), "ms", "≤ 1000")
    say("until then, processor time of the page's main thread", statistics.median(pages), "ms", "")
    say("until then, processor time of the server", statistics.median(servers), "ms", "")


def time_work(page: Page, token: str) -> None:
    """Scrolling, going from class to class, editing: with the map drawn beside."""
    page.wait_for_selector("#map-note[data-ready]", state="attached")
    page.wait_for_timeout(2000)
    say_blocks("from class to class", [watch(page, lambda: press(page, "j")) for _ in range(REPEAT)])
    page.evaluate("import('/page/store.js').then(({tell}) => tell('open', -1))")  # unsure: the largest list
    page.wait_for_timeout(2000)
    say_blocks("scrolling", [watch(page, lambda: page.evaluate(SCROLL)) for _ in range(REPEAT)])
    waits = [page.evaluate(EDIT, [number, token]) for number in range(4 * REPEAT)]
    say(f"an edit confirmed (median of {len(waits)})", statistics.median(waits), "ms", "≤ 100")
    say_blocks("an edit shown", [watch(page, lambda: press(page, "x")) for _ in range(REPEAT)])


def press(page: Page, key: str) -> None:
    page.keyboard.press(key)
    page.wait_for_timeout(800)


def time_page(folder: Path) -> None:
    """The page in a browser."""
    line = [sys.executable, "-m", "newfound", "review", str(folder), "--no-open"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().split()[-1]
    try:
        with sync_playwright() as playwright:
            arguments = ["--headless=new", "--no-sandbox", "--disable-gpu"]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            time_opening(browser, address, server.pid)
            time_work(visit(browser, address), address.partition("token=")[2])
            browser.close()
        say("the server's memory at its highest", memory(server.pid), "MB", "≤ 500")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def reviewing() -> None:
    """All of it."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        found = make_found(root / "images")
        draw(found)
        time_views(found)
        write_found(found, root / "run")
        time_page(root / "run")
    print(f"Load of the machine in the last minute: {os.getloadavg()[0]:.1f}; of its cores: {os.cpu_count()}.")


if __name__ == "__main__":
    reviewing()
