"""One thread a process, and shapes checked in every test: both must stand before the package is imported."""

import os

from jaxtyping import install_import_hook

from tests import shapes

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of two processes on two cores wait for each other
install_import_hook("newfound", f"{shapes.__name__}.checked")
