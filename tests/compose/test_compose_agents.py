"""Agents in place of gateways, flushers and cachers: scaled and killed under load, and with no right too many."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.compose.test_compose_clients import brokers, until_brokers
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import POLL_S, NetworkClient, Project, docker, running_project
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

MORE_RECORDS = 500
RESTART_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def shared_agents() -> Iterator[Project]:
    """Two agents."""
    with running_project("penstock-agents", "compose.yaml", "compose.agents.yaml", scale={"agent": 2}) as started:
        yield started


@pytest.fixture
def agents(shared_agents: Project) -> Iterator[Project]:
    """The module's project, healed after each test."""
    yield shared_agents
    shared_agents.heal()


def addresses(project: Project) -> set[str]:
    return {f"{agent.address}:9092" for agent in project.containers("agent")}


def test_agents_replace_three_services_and_see_their_own_credentials_only(agents: Project) -> None:
    services = {container.service for container in agents.containers()}
    assert services == {"agent", "sequencer", "janitor", "console", "nats", "s3", "proxy"}
    facts = json.loads(docker("inspect", agents.one("agent").id))[0]
    assert [mount["Name"] for mount in facts["Mounts"]] == [f"{agents.name}_agent-credentials"]
    assert facts["Config"]["User"] == "10001:10001"
    assert facts["HostConfig"]["ReadonlyRootfs"]


def test_agents_are_scaled_and_killed_under_load_and_nothing_is_lost_doubled_or_reordered(agents: Project) -> None:
    with (
        steady_account(agents.kafka, "from-the-host") as account,
        NetworkClient(agents, "from-the-network") as inside,
    ):
        account.load.wait_for_more(MORE_RECORDS)
        agents.scale("agent", 3)
        assert len(addresses(agents)) == 3
        until_brokers(f"{agents.one('agent').address}:9092", addresses(agents))
        assert brokers(agents.kafka) == {agents.kafka}
        victim = agents.one("agent")
        assert victim.pid, "the agent does not run"  # kill(0) would kill this test
        os.kill(victim.pid, signal.SIGKILL)
        account.load.wait_for_more(MORE_RECORDS)
        inside.wait_for_more(MORE_RECORDS)
        # With no agent for some seconds, librdkafka 2.16.0 bootstraps again. Rarely, one of its clients then stalls for
        # minutes, while others in the same process go on.
        wait_until(lambda: agents.one("agent").restarts > victim.restarts, RESTART_TIMEOUT_S, "the restart", POLL_S)
        until_brokers(f"{agents.one('agent').address}:9092", addresses(agents))
        agents.scale("agent", 1)
        account.load.wait_for_more(MORE_RECORDS)
        inside.wait_for_more(MORE_RECORDS)
        assert inside.settle() >= 2 * MORE_RECORDS
        assert account.settle() >= 3 * MORE_RECORDS
    assert "Violation" not in agents.one("nats").logs()
