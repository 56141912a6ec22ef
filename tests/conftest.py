"""One thread a process, and shapes checked in every test: both must stand before the package is imported. And what all
kinds of tests share.
"""

import os

import pytest
from jaxtyping import install_import_hook

from tests import shapes

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of two processes on two cores wait for each other
install_import_hook("newfound", f"{shapes.__name__}.checked")


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium. Of a module, for while it is open no other event loop runs in its thread."""
    from tests.browser import open_chromium  # half a second to import: only those who look at pages wait for it

    with open_chromium() as browser:
        yield browser
