"""Shapes are checked in every test: the hook must stand before the package is imported."""

from jaxtyping import install_import_hook

install_import_hook("newfound", "tests.shapes.checked")
