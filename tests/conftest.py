"""Fixtures for all tests."""

import logging
import os
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.testkit.clusters.cluster import LOG_FOLDERS, ends_of_logs
from tests.testkit.compiled import outdated
from tests.testkit.servers import engine
from tests.testkit.servers.nats import NatsServer, running_nats_server

# By default Hypothesis fails a test if one example takes 200 ms; on a busy machine any example may.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Spark has its own environment (`make test-spark`); without Spark these tests cannot be imported.
collect_ignore = [] if find_spec("pyspark") else ["spark"]


def pytest_configure() -> None:
    """Fail at once if a compiled module is old or a server is missing; remove leftovers of a killed run.

    Workers get this choice by the environment: with an own choice, a worker could collect other tests.
    """
    if found := list(outdated()):
        raise pytest.UsageError(f"older than its source, make it again with `make env`: {found[0]}")
    try:
        chosen = engine.choice()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    os.environ[engine.SETTING] = "always" if chosen.containers else "never"
    if chosen.containers:
        engine.remove_leftovers(own=False)


def pytest_report_header() -> str:
    """The source of servers in this run."""
    return str(engine.choice())


def pytest_sessionfinish() -> None:
    """Remove all containers of this run."""
    if engine.choice().containers:
        engine.remove_leftovers(own=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of servers that several tests share to the report of a failed test."""
    report = yield
    if report.failed:
        report.sections.extend((f"logs in {folder}", ends_of_logs(folder)) for folder in LOG_FOLDERS)
    return report


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the logging configuration after a test that runs a command in this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.is_configured():
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server for one test, which may kill and restart it."""
    folder = tmp_path / "nats"
    folder.mkdir()
    with running_nats_server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def shared_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server for tests that do not stop it; each test uses its own cluster name."""
    with running_nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server
