"""The imports of `penstock.testing`, and its error where testcontainers is missing."""

import subprocess
import sys

import pytest

import penstock.testing
from penstock.contracts.errors import Invalid

LOADED_BY_PYTEST = """
import sys
import penstock.testing.plugin
print(*sorted(each for each in sys.modules if "penstock" in each))
"""


def test_the_plugin_costs_a_test_run_that_does_not_use_it_nothing() -> None:
    found = subprocess.run([sys.executable, "-c", LOADED_BY_PYTEST], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["penstock", "penstock.testing", "penstock.testing.plugin"]


def test_without_testcontainers_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    monkeypatch.delitem(sys.modules, "penstock.testing.container", raising=False)
    with pytest.raises(Invalid, match="pip install testcontainers"):
        _ = penstock.testing.PenstockContainer


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="PenstockBroker"):
        _ = penstock.testing.PenstockBroker  # type: ignore[attr-defined]
