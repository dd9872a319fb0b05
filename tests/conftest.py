"""Fixtures that any test may ask for."""

import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.testkit.servers import engine
from tests.testkit.servers.nats import NatsServer, running_nats_server

# By itself Hypothesis fails a test of which one example takes 200 ms, which on a busy machine any may.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Spark is in an environment of its own (`make test-spark`); the other one cannot even import these tests.
collect_ignore = [] if find_spec("pyspark") else ["spark"]


def pytest_configure() -> None:
    """Say at once if servers cannot come from where they must; remove what a killed run left.

    Workers are told what was found here: one that heard late from an engine would have other tests than the others.
    """
    try:
        chosen = engine.choice()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    os.environ[engine.SETTING] = "always" if chosen.containers else "never"
    if chosen.containers:
        engine.remove_leftovers(own=False)


def pytest_report_header() -> str:
    """Where servers come from in this run."""
    return str(engine.choice())


def pytest_sessionfinish() -> None:
    """Leave no container behind, whatever the tests did."""
    if engine.choice().containers:
        engine.remove_leftovers(own=True)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """What a test configures, by running a command as a process would, ends with it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.is_configured():
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


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
