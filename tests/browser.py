"""Debian's chromium, for the tests that look at pages as people do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.needs import need

QUIET = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """A browser that ends with the block."""
    chromium = shutil.which("chromium")
    need(chromium is not None, "chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield browser
        browser.close()
