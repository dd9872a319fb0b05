"""Fixtures that any test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.nats import NatsServer, running_nats_server


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server of the test's own, to be killed and started again at will."""
    folder = tmp_path / "nats"
    folder.mkdir()
    with running_nats_server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def shared_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server for tests that leave it alone; each takes a cluster name of its own."""
    with running_nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server
