"""The use of a virtual cluster, which a sequencer announces with the quotas that gateways enforce."""

from penstock.clusters.record import ClusterQuotas
from penstock.contracts.commands import DeleteRecords, DeleteTopic, LogOffset
from penstock.contracts.messages import ClusterUse
from penstock_sequencer.serving.cluster_quotas import cluster_use
from tests.unit.sequencer.core.core_world import World, batch, topic_id

QUOTAS = ClusterQuotas(partitions=9, stored_bytes=1000, produced_bytes_per_s=10, consumed_bytes_per_s=20)


def stored(world: World) -> int:
    return cluster_use(world.state, QUOTAS).stored_bytes


def test_the_use_has_the_quotas_in_bytes_and_the_stored_bytes_and_partitions() -> None:
    world = World()
    world.topic("t", partitions=2)
    world.produce(batch(length=300), batch(length=50), partition=1)
    assert cluster_use(world.state, QUOTAS) == ClusterUse(10, 20, 1000, 350, 2)


def test_deleted_records_and_topics_are_not_stored_any_more_after_one_tick() -> None:
    world = World()
    world.topic("t")
    world.topic("u", number=2)
    for number in (1, 2):
        world.produce(batch(length=300), number=number)
        world.produce(batch(length=50), number=number)
    assert stored(world) == 700
    end = world.partition().extents.base_offsets[1]
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, end)]))
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    world.wait(1000)
    assert stored(world) == 50
