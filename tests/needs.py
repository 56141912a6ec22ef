"""What a test needs of the machine."""

import os

import pytest


def need(condition: bool, reason: str) -> None:
    """Skip where something is missing; where NEWFOUND_REQUIRE_ALL=1 says that nothing may be, fail."""
    if condition:
        return
    if os.environ.get("NEWFOUND_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
