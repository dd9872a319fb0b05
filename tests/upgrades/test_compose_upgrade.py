"""The compose project is upgraded from the previous version, one service after the other, under load."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contracts.levels import NEWEST_LEVEL
from tests.testkit import previous
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import ROOT, Project, docker, running_project
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.upgrades, pytest.mark.timeout(1800)]

OLD, NEW = "upgrade-previous", "upgrade-new"  # tags, so that no image of another run is replaced
SCALE = {"sequencer": 2, "flusher": 2, "gateway": 2, "console": 0}
MORE_RECORDS = 200
LEVEL_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 1500.0
# Credentials as the compose file of the previous version had them made; that version knows no other options.
OLD_CREDENTIALS = """
services:
  credentials:
    entrypoint: ["python", "-m", "penstock.cli", "credentials", "/credentials", "--owner", "10001"]
"""


def build(context: Path, tag: str) -> None:
    """Build the images from the code in a folder, with the Dockerfile there and the compose file of today."""
    files = ["--project-directory", str(context), "--file", str(ROOT / "compose.yaml")]
    environ = {**os.environ, "PENSTOCK_VERSION": tag}
    docker("compose", *files, "build", "--quiet", *previous.SERVICES, timeout_s=BUILD_TIMEOUT_S, env=environ)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    if os.environ.get("PENSTOCK_E2E_IMAGES") != "built":
        old = previous.take_out(tmp_path / "previous")
        build(old, OLD)
        build(ROOT, NEW)
    credentials = tmp_path / "credentials.yaml"
    credentials.write_text(OLD_CREDENTIALS)
    files = ("compose.yaml", str(credentials))
    with running_project("penstock-upgrade", *files, scale=SCALE, PENSTOCK_VERSION=OLD) as started:
        yield started


def level(project: Project) -> list[float]:
    return [each.metric("penstock_sequencer_level") for each in project.containers("sequencer")]


def test_clients_see_no_failure_while_all_services_are_replaced(project: Project, tmp_path: Path) -> None:
    old_level = previous.level_of(previous.take_out(tmp_path / "level"))
    wait_until(lambda: set(level(project)) == {old_level}, LEVEL_TIMEOUT_S, "the level of the previous version")
    with steady_account(project.kafka, "upgraded") as account:
        account.load.wait_for_more(MORE_RECORDS)
        began_s = time.monotonic()
        for service in previous.SERVICES:
            project.set_version(service, NEW)
            account.load.wait_for_more(MORE_RECORDS)
            print(
                f"{time.monotonic() - began_s:5.1f} s {service}: {account.load.ledger.count} acknowledged, "
                f"{account.reader.count} read, {len(account.load.ledger.failures)} failed, "
                f"errors of the reader: {account.reader.errors}"
            )
            if service == "sequencer":
                wait_until(lambda: set(level(project)) == {NEWEST_LEVEL}, LEVEL_TIMEOUT_S, "the new level")
                print(f"{time.monotonic() - began_s:5.1f} s level {NEWEST_LEVEL}")
        print(f"{account.settle()} records in all")
        assert account.reader.errors == []
