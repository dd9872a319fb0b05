"""One Spark session for all tests of a run, because a start takes seconds."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spark.session import open_session
from penstock_compactor.shared import FAIR
from tests.testkit.clusters.compactors import JAVA_OPTIONS

LONGEST = ("test_spark_tables.py", "test_spark_compaction.py", "test_spark_key_e2e.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that take minutes first, the longest of them before: they mostly wait, beside the other tests."""
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    if "tests/spark/" not in item.nodeid or item.get_closest_marker("slow") is None:
        return len(LONGEST) + 1
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)


@pytest.fixture(scope="session", autouse=True)
def sessions_start_quickly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spark defaults for quick starts, also for the sessions of commands and queries that tests start."""
    folder = tmp_path_factory.mktemp("spark-conf")
    (folder / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {JAVA_OPTIONS}\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def spark(sessions_start_quickly: None) -> Iterator[Any]:
    """A session on both cores of this machine."""
    session = open_session("penstock-tests", "local[2]", FAIR | {"spark.sql.shuffle.partitions": "4"})
    yield session
    session.stop()
