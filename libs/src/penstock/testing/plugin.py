"""The fixtures of pytest; their module is loaded in each run, so it imports nothing else of Penstock."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.server import PenstockServer


@pytest.fixture(scope="session")
def penstock_arguments() -> Sequence[str]:
    """More flags of `penstock up` for the server of the run; a `conftest.py` may replace this fixture."""
    return ()


@pytest.fixture(scope="session")
def penstock_server(
    tmp_path_factory: pytest.TempPathFactory, penstock_arguments: Sequence[str]
) -> "Iterator[PenstockServer]":
    """A Penstock on free ports, which starts with the first test that uses it and stops after the last one."""
    from penstock.contracts.errors import PenstockError
    from penstock.testing.server import PenstockServer

    server = PenstockServer(tmp_path_factory.mktemp("penstock"), *penstock_arguments)
    try:
        server.start()
    except PenstockError as error:
        pytest.fail(f"the fixture penstock_server cannot start: {error}", pytrace=False)
    yield server
    server.stop()


@pytest.fixture
def penstock_topic(penstock_server: "PenstockServer") -> str:
    """The name of a new topic with one partition, for one test."""
    return penstock_server.create_topic()
