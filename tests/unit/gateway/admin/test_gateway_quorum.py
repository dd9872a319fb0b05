"""DescribeQuorum: the sequencers and the gateways with their positions in the journal."""

from typing import Any

from penstock.contracts.messages import ListenerAddress, Presence
from penstock.kafkawire.api.describe_quorum import DescribeQuorumRequest, PartitionRequest, TopicRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.broker_view import node_of
from tests.unit.gateway.gateway_fakes import LISTENER, World, new_world
from tests.unit.gateway.gateway_wire import ask

QUORUM = 55


def announce(world: World, instance: str, sequence: int, at_ms: int = 0) -> None:
    world.directory.put(Presence("sequencer", "z1", instance, "1", journal_sequence=sequence, journal_ms=at_ms))


async def described(world: World, topic: str = "__cluster_metadata", partition: int = 0) -> Any:
    request = DescribeQuorumRequest([TopicRequest(topic, [PartitionRequest(partition)])])
    (answer,) = (await ask(world, QUORUM, 2, request)).topics
    assert answer.topic_name == topic
    (found,) = answer.partitions
    return found


async def test_the_sequencers_are_voters_and_the_furthest_stands_for_the_leader() -> None:
    world = new_world()
    for instance, sequence, at_ms in (("s1", 90, 7_000), ("s2", 100, 9_000), ("s3", 100, 9_000)):
        announce(world, instance, sequence, at_ms)
    found = await described(world)
    now_ms = world.gateway.clock.now_ms()
    positions = [(each.log_end_offset, each.last_caught_up_timestamp) for each in found.current_voters]
    assert positions == [(90, 7_000), (100, now_ms), (100, now_ms)]
    ids = [each.replica_id for each in found.current_voters]
    assert len(set(ids)) == 3 and min(ids) > 0
    assert (found.leader_id, found.high_watermark, found.error_code) == (ids[1], 100, 0)
    assert found.observers == []


def announce_gateway(world: World, instance: str, sequence: int, *ports: int, listener: str = LISTENER) -> None:
    listeners = tuple(ListenerAddress(listener, "h", port) for port in ports)
    world.directory.put(Presence("gateway", "z2", instance, "1", listeners=listeners, journal_sequence=sequence))


def port_of(replica_id: int) -> int:
    return next(port for port in range(1, 9) if node_of("h", port, "z2").node_id == replica_id)


async def test_gateways_of_all_zones_are_observers_by_their_broker_ids_for_this_listener() -> None:
    world = new_world()
    announce(world, "s1", 100)
    announce_gateway(world, "g1", 98, 1)
    announce_gateway(world, "g2", 103, 2)  # its presence is newer than that of the sequencer
    announce_gateway(world, "g3", 100, 3)
    announce_gateway(world, "g4", 95, 3)  # behind the same address as the one before
    announce_gateway(world, "new", -1, 4)
    announce_gateway(world, "other", 99, 5, listener="OTHER")
    found = await described(world)
    now_ms = world.gateway.clock.now_ms()
    assert {
        port_of(each.replica_id): (each.log_end_offset, each.last_caught_up_timestamp) for each in found.observers
    } == {
        1: (98, -1),
        2: (100, now_ms),
        3: (95, -1),
    }
    assert (len(found.current_voters), found.high_watermark) == (1, 100)


async def test_a_sequencer_of_an_older_release_has_no_position_and_is_no_voter() -> None:
    world = new_world()
    world.directory.put(Presence("sequencer", "z1", "old", "0"))
    assert (await described(world)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    announce(world, "new", 5)
    assert len((await described(world)).current_voters) == 1


async def test_any_other_partition_is_unknown() -> None:
    world = new_world()
    announce(world, "s1", 5)
    for topic, partition in (("orders", 0), ("__cluster_metadata", 1)):
        assert (await described(world, topic, partition)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
