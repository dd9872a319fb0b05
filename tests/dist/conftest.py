"""Fixtures: the wheels that `make dist` made."""

from pathlib import Path

import pytest

from penstock.version import VERSION

FOLDER = Path(__file__).parents[2] / "dist"


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel for all platforms."""
    found = FOLDER / f"penstock-{VERSION}-py3-none-any.whl"
    assert found.exists(), "run make test-dist, which makes the wheel first"
    return found
