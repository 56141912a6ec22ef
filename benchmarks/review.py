"""The review page with 50 000 images in 500 classes: what a person waits for, and what the server needs.

    python -m benchmarks.review

Thumbnails are generated; the server is a process of its own, the browser Debian's chromium. Times of the page are
by the wall clock: run it on a machine that does nothing else. Those of functions are of the processor.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import sync_playwright

from newfound.data.listing import Listing
from newfound.discovery.edits import Edit, classes
from newfound.discovery.found import Clusters, Found
from newfound.discovery.storage import write_found
from newfound.functional.calibration import Calibration, Logistic
from newfound.functional.geometry import distances
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.review import views
from newfound.review.measures import begin_measures, measure_again
from newfound.types import generator, seeded

IMAGES, CLASSES, DIM = 50_000, 500, 128
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
WATCH = """() => {
  window.blocks = [0];
  const note = list => list.getEntries().forEach(each => blocks.push(each.duration));
  new PerformanceObserver(note).observe({type: "longtask"});
}"""


def make_found(root: Path) -> Found:
    """Points about 500 centres, their pictures a few files under many names."""
    random = generator("review")
    centres = 4 * torch.randn(CLASSES, DIM, generator=random)
    there = torch.randint(CLASSES, (IMAGES,), generator=random)
    features = centres[there] + torch.randn(IMAGES, DIM, generator=random)
    sizes = torch.bincount(there, minlength=CLASSES)
    with seeded("review"):
        model = Model(SmallResNet(2, 2), 28, 3, tuple(f"known {i}" for i in range(20)))
    return Found(
        Listing.of([f"{row // 1000:02}/{row}.jpg" for row in range(IMAGES)], root=root),
        model,
        features,
        Clusters(there, centres, sizes, unit=False),
        Calibration(Logistic(3.0, -0.5), Logistic(2.0, 0.0)),
        0.5,
        known=model.classes,
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
            page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
            page.add_init_script(f"({WATCH})()")
            began = time.perf_counter()
            page.goto(address)
            page.wait_for_selector(".tile img")
            say("first images in the grid", 1000 * (time.perf_counter() - began), "ms", "≤ 1000")
            paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
            say("first contentful paint", paint, "ms", "≤ 1000")
            page.wait_for_selector("#map .point", timeout=120_000)
            page.wait_for_timeout(3000)
            page.locator(".class", has_text="unsure").last.click()
            page.wait_for_timeout(2000)
            page.evaluate("blocks.length = 1")
            page.evaluate(SCROLL)
            say("longest block of the main thread while scrolling", page.evaluate("Math.max(...blocks)"), "ms", "≤ 50")
            waits = []
            for number in range(10):
                began = time.perf_counter()
                page.evaluate(
                    """async ([number, token]) => {
                      const told = await fetch("/api/length", {headers: {"X-Newfound-Token": token}});
                      const seen = (await told.json()).length;
                      window.began = performance.now();
                      await fetch("/api/edits", {method: "POST", headers: {"X-Newfound-Token": token,
                        "Content-Type": "application/json"}, body: JSON.stringify({action: "rename", seen, number: 30,
                        name: `name ${number}`})}).then(answer => answer.json());
                      window.took = performance.now() - window.began;
                    }""",
                    [number, address.partition("token=")[2]],
                )
                waits.append(page.evaluate("window.took"))
            say("an edit confirmed (median of 10)", sorted(waits)[5], "ms", "≤ 100")
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
        write_found(replace(found), root / "run")
        time_page(root / "run")


if __name__ == "__main__":
    reviewing()
