"""Containers are killed, frozen and stopped under load: no acknowledged record is lost, and all services recover."""

import os
import signal
import time

import pytest

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import POLL_S, Project
from tests.testkit.loads.steady_load import Account, steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

SERVICES = ["gateway", "flusher", "sequencer", "cacher", "nats", "s3"]
MORE_RECORDS = 1000
# How long a container stays frozen, and the store stopped. docs/testing.md asks for longer times before a release;
# every change is tested with these.
PAUSE_S = float(os.environ.get("PENSTOCK_E2E_PAUSE_S", "6"))
STORE_AWAY_S = float(os.environ.get("PENSTOCK_E2E_STORE_AWAY_S", "15"))
RESTART_TIMEOUT_S = 60.0


def hold(seconds: float) -> None:
    """Wait; the load continues in its threads."""
    until_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until_s, seconds + 1, "the end of the fault")


def die(project: Project, service: str) -> None:
    """Kill the process from within, like a crash; return when the engine has restarted it."""
    victim = project.one(service)
    assert victim.pid, f"{service} does not run"  # kill(0) would kill this test
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(
        lambda: project.one(service).restarts > victim.restarts, RESTART_TIMEOUT_S, f"{service} to restart", POLL_S
    )


def recover(account: Account, what: str) -> None:
    """Wait until records are acknowledged again, and print how long that took."""
    started_s = time.monotonic()
    account.load.wait_for_more(1)
    print(f"{what}: acknowledged again after {time.monotonic() - started_s:.1f} s")
    account.load.wait_for_more(MORE_RECORDS)


def test_after_a_kill_of_the_only_container_and_a_start_clients_continue(project: Project) -> None:
    with steady_account(project.kafka, "killed") as account:
        for service in SERVICES:
            account.load.wait_for_more(MORE_RECORDS)
            project.compose("kill", service)
            project.start(service)
            recover(account, f"{service} killed")
        assert account.settle() >= 2 * MORE_RECORDS * len(SERVICES)
    project.wait_until_well()


def test_the_engine_restarts_a_process_that_dies(project: Project) -> None:
    with steady_account(project.kafka, "died") as account:
        for service in SERVICES:
            account.load.wait_for_more(MORE_RECORDS)
            die(project, service)
            recover(account, f"{service} died")
        assert account.settle() >= 2 * MORE_RECORDS * len(SERVICES)
    project.wait_until_well()


def test_a_frozen_container_costs_a_delay_and_nothing_else(project: Project) -> None:
    with steady_account(project.kafka, "frozen") as account:
        for service in SERVICES:
            account.load.wait_for_more(MORE_RECORDS)
            project.pause(service)
            try:
                hold(PAUSE_S)
            finally:
                project.compose("unpause", service)
            recover(account, f"{service} frozen for {PAUSE_S:g} s")
        assert account.settle() >= 2 * MORE_RECORDS * len(SERVICES)
    project.wait_until_well()


def test_an_s3_server_that_is_stopped_for_a_while_costs_a_delay_and_nothing_else(project: Project) -> None:
    with steady_account(project.kafka, "store-away") as account:
        account.load.wait_for_more(MORE_RECORDS)
        project.compose("stop", "s3")
        try:
            hold(STORE_AWAY_S)
        finally:
            project.start("s3")
        recover(account, f"s3 stopped for {STORE_AWAY_S:g} s")
        assert account.settle() >= 2 * MORE_RECORDS
    project.wait_until_well()


def test_after_a_kill_of_all_containers_every_acknowledged_record_is_there(project: Project) -> None:
    with steady_account(project.kafka, "all-killed") as account:
        account.load.wait_for_more(MORE_RECORDS)
        started_s = time.monotonic()
        project.compose("kill")
        project.up()
        recover(account, f"everything killed, {time.monotonic() - started_s:.1f} s ago,")
        assert account.settle() >= 2 * MORE_RECORDS
