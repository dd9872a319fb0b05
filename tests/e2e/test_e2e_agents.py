"""Agents (several services in one process) are killed under load, and lose nothing acknowledged."""

from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.loads.ledger import check_nothing_lost_twice_or_reordered
from tests.testkit.loads.steady_load import SteadyLoad, create_topic

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "steady"
PARTITIONS = 4
MORE_RECORDS = 300  # acknowledged after a kill before the next victim is chosen
RESTART_S = 60.0
VICTIMS = ["agent-1", "agent-2", "nats-server", "sequencer-1"]


def test_killing_each_of_two_agents_in_turn_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--flush-ms", "50", "--agents", "2") as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        with SteadyLoad(cluster.kafka, TOPIC, PARTITIONS) as load:
            for victim in VICTIMS:
                load.wait_for_more(MORE_RECORDS)
                cluster.kill(victim)
                load.wait_for_more(MORE_RECORDS)
            load.finish()
            assert load.ledger.failures == []
            assert check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC) == load.ledger.count
        wait_until(
            lambda: all(cluster.processes()[victim]["restarts"] >= 1 for victim in VICTIMS),
            RESTART_S,
            "the last victim to come back",
        )
        wait_until(
            lambda: cluster.metric("penstock_gateway_flush_messages_total"), RESTART_S, "the messages of gateways"
        )
        assert cluster.stop() == 0, "agents drain and stop cleanly"


def test_the_only_agent_is_also_the_sequencer_and_its_death_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SNAPSHOT_ENTRIES", "10")  # so that the child of the process writes some
    with running(tmp_path / "data", "--flush-ms", "50", "--sequencers", "0") as cluster:
        assert set(cluster.processes()) == {"agent-1", "nats-server"}
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        with SteadyLoad(cluster.kafka, TOPIC, PARTITIONS) as load:
            for victim in ("agent-1", "nats-server", "agent-1"):
                load.wait_for_more(MORE_RECORDS)
                cluster.kill(victim)
                load.wait_for_more(MORE_RECORDS)
            load.finish()
            assert load.ledger.failures == []
            assert check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC) == load.ledger.count
        snapshots = tmp_path / "data" / "objects" / "default" / "snapshots"
        wait_until(lambda: snapshots.is_dir() and any(snapshots.iterdir()), RESTART_S, "a snapshot")
        assert cluster.stop() == 0, "the agent drains and stops cleanly"
