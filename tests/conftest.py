"""Shapes are checked in every test: the hook must stand before the package is imported."""

from jaxtyping import install_import_hook

from tests import shapes

install_import_hook("newfound", f"{shapes.__name__}.checked")
