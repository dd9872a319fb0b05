"""NATS as three servers: any one of them may fail, and the journal keeps all acknowledged records."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import ANSWER_TIMEOUT_S, Container, Project, running_project
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

SERVERS = ("nats", "nats-2", "nats-3")
JOURNAL = "penstock-journal-default"
MORE_RECORDS = 1000
LEADER_S = 60.0


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Project]:
    """Three servers, two sequencers."""
    with running_project("penstock-ha", "compose.yaml", "compose.ha.yaml", scale={"sequencer": 2}) as started:
        yield started


@pytest.fixture
def cluster(shared_cluster: Project) -> Iterator[Project]:
    """The module's project, healed after each test."""
    yield shared_cluster
    shared_cluster.heal()


def journal(server: Container) -> dict[str, Any]:
    """A server's report of the journal's stream."""
    url = f"http://{server.address}:8222/jsz?streams=true&config=true&accounts=true"
    with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:
        accounts = json.load(answer)["account_details"]
    (found,) = [stream for account in accounts for stream in account["stream_detail"] if stream["name"] == JOURNAL]
    return dict(found)


def leader(cluster: Project) -> str:
    """The service name of the server that leads the journal's stream."""

    def reported() -> str:
        with contextlib.suppress(OSError, LookupError, ValueError):  # a server that just started reports no stream yet
            return str(journal(cluster.one("nats"))["cluster"].get("leader", ""))
        return ""

    return str(wait_until(reported, LEADER_S, "a leader of the journal"))


def follower(cluster: Project) -> str:
    """The service name of a server that does not lead."""
    led_by = leader(cluster)
    return next(server for server in SERVERS if server != led_by)


def sequencer_restarts(cluster: Project) -> dict[str, int]:
    """How often each sequencer was restarted, also because NATS was not there yet at the start."""
    return {each.name: each.restarts for each in cluster.containers("sequencer")}


def test_the_journal_has_three_copies(cluster: Project) -> None:
    leader(cluster)  # after this the server knows the stream
    assert journal(cluster.one("nats"))["config"]["num_replicas"] == len(SERVERS)


@pytest.mark.parametrize("choose", [leader, follower], ids=["leader", "follower"])
def test_one_server_of_three_may_be_killed(cluster: Project, choose: Any) -> None:
    with steady_account(cluster.kafka, f"killed-{choose.__name__}") as account:
        account.load.wait_for_more(MORE_RECORDS)
        victim = choose(cluster)
        cluster.compose("kill", victim)
        account.load.wait_for_more(MORE_RECORDS)  # while the server is down
        cluster.start(victim)
        account.load.wait_for_more(MORE_RECORDS)
        assert account.settle() >= 3 * MORE_RECORDS
    cluster.wait_until_well()


def test_the_server_that_leads_may_freeze(cluster: Project) -> None:
    restarts = sequencer_restarts(cluster)
    with steady_account(cluster.kafka, "frozen-leader") as account:
        account.load.wait_for_more(MORE_RECORDS)
        victim = leader(cluster)
        cluster.pause(victim)
        try:
            account.load.wait_for_more(MORE_RECORDS)  # while it is frozen
        finally:
            cluster.compose("unpause", victim)
        account.load.wait_for_more(MORE_RECORDS)
        assert account.settle() >= 3 * MORE_RECORDS
    cluster.wait_until_well()
    assert sequencer_restarts(cluster) == restarts, "a sequencer halted"
