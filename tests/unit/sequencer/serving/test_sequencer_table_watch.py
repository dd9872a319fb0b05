"""Shared tables: their sizes are metrics, and the service is degraded before one of them is full."""

from types import SimpleNamespace
from typing import cast

from prometheus_client import CollectorRegistry

from penstock.runtime.process.health import Health
from penstock_sequencer.core.state.limits import Limits, LogLimits, ProducerLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.serving.table_watch import TableWatch
from tests.unit.sequencer.core.core_world import World, batch

LABELS = {"table": "producers_of_one_partition"}


def test_the_service_is_degraded_while_a_table_is_almost_full() -> None:
    world = World(Limits(producers=ProducerLimits(producers_per_partition_max=5)))
    world.topic()
    registry, health = CollectorRegistry(), Health()
    replica = cast(Replica, SimpleNamespace(state=world.state))
    watch = TableWatch(replica=replica, metrics=SequencerMetrics(registry), health=health)
    for _ in range(3):
        world.produce(batch(producer=world.producer(), epoch=0, sequence=0))
    watch.look()
    assert health.degraded == []
    world.produce(batch(producer=world.producer(), epoch=0, sequence=0))
    watch.look()
    assert health.degraded == ["tables"]
    assert "producers_of_one_partition: 4 of 5" in health.report()["degraded"]["tables"]
    assert registry.get_sample_value("penstock_sequencer_table_rows", LABELS) == 4
    assert registry.get_sample_value("penstock_sequencer_table_rows_max", LABELS) == 5


def test_the_service_is_degraded_before_commits_are_rejected() -> None:
    world = World(Limits(log=LogLimits(remembered_commits_max=5)))
    world.topic()
    health = Health()
    replica = cast(Replica, SimpleNamespace(state=world.state))
    watch = TableWatch(replica=replica, metrics=SequencerMetrics(CollectorRegistry()), health=health)
    for _ in range(4):
        world.produce(batch())
    watch.look()
    assert "remembered_commits: 4 of 5" in health.report()["degraded"]["tables"]
