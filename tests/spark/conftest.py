"""One Spark session for all tests of a run: starting one takes seconds."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spark.session import open_session
from tests.testkit.compactors import JAVA_OPTIONS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that take minutes first: they mostly wait, and the others run beside them."""
    items.sort(key=lambda item: "tests/spark/" not in item.nodeid or item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on both cores of this machine."""
    settings = {"spark.sql.shuffle.partitions": "4", "spark.driver.defaultJavaOptions": JAVA_OPTIONS}
    session = open_session("penstock-tests", "local[2]", settings)
    yield session
    session.stop()
