"""Every service is scaled from one container to three and back under load, and clients see only a delay."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.testkit.clusters.compose import Container, NetworkClient, Project
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

DRAIN_DEADLINE_MS = 10_000  # the default of `drain_deadline_ms`
SERVICES = ("gateway", "flusher", "sequencer", "cacher", "janitor")
MANY = 3
MORE_RECORDS = 1000


@contextmanager
def followed_logs(containers: list[Container]) -> Iterator[dict[str, list[str]]]:
    """The logs of the containers from now on, by name, also of removed ones. Complete after the block."""
    logs: dict[str, list[str]] = {each.name: [] for each in containers}
    with ExitStack() as stack:
        followers = {
            each.name: stack.enter_context(
                subprocess.Popen(
                    ["docker", "logs", "--follow", "--tail", "1", each.id],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for each in containers
        }
        for follower in followers.values():
            assert follower.stdout is not None
            assert follower.stdout.readline(), "docker logs prints no line"
        yield logs
        for name, follower in followers.items():
            if name.endswith("-1"):  # this container stays
                follower.terminate()
            assert follower.stdout is not None
            logs[name] += follower.stdout.readlines()


def drain_ms(lines: list[str]) -> float:
    """The drain time that a stopped service logged."""
    text = "".join(lines)
    found = re.search(r'^\{.*"event": ?"service_stopped".*$', text, re.MULTILINE)
    assert found, f"the service did not stop in order: {text[-2000:]}"
    return float(json.loads(found[0])["drained_ms"])


def test_scaling_each_service_to_three_and_back_loses_doubles_and_reorders_nothing(project: Project) -> None:
    with steady_account(project.kafka, "scaled-host") as account, NetworkClient(project, "scaled-network") as inside:
        inside.wait_for_more(1)
        for service in SERVICES:
            account.load.wait_for_more(MORE_RECORDS)
            project.scale(service, MANY)
            account.load.wait_for_more(MORE_RECORDS)
            inside.wait_for_more(MORE_RECORDS)
            with followed_logs(project.containers(service)) as logs:
                project.scale(service, 1)
            removed = [lines for name, lines in logs.items() if not name.endswith("-1")]
            assert len(removed) == MANY - 1
            assert "drain_cut_short" not in str(logs)
            drains_ms = [drain_ms(lines) for lines in removed]
            print(f"{service}: drained in {drains_ms} ms")
            assert all(each < DRAIN_DEADLINE_MS for each in drains_ms)
        account.load.wait_for_more(MORE_RECORDS)
        inside.wait_for_more(MORE_RECORDS)
        assert inside.settle() >= len(SERVICES) * MORE_RECORDS
        assert account.settle() >= 2 * len(SERVICES) * MORE_RECORDS
