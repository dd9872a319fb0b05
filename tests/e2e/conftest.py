"""The order of the e2e tests."""

import pytest

# A module runs in one process. Those that take longest begin first, so that the last process does not end long after
# the others.
LONGEST = ("test_e2e_up_secure", "test_e2e_janitor_leaks", "test_e2e_principal_shares", "test_e2e_fuzz", "test_e2e_up")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
