"""DescribeQuorum: lists sequencers as voters and gateways as observers, with their positions in the journal (KIP-595).

A sequencer's position is the newest entry that it has applied. The journal has no leader here. The sequencer that is
furthest stands for it, so that lags count from its position. A gateway reads the announcements of entries, one for
each. Its position is the newest entry up to which it has all of them, or knows that it misses some. Positions come with
the presences of both, and are up to a second old.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.contracts.messages import Presence
from penstock.kafkawire.api.describe_quorum import (
    API as API,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.broker_view import id_of, node_of
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasDirectory

METADATA_TOPIC, METADATA_PARTITION = "__cluster_metadata", 0
NO_LEADER = -1
EPOCH = 1  # a position in the journal is never taken back, so its epoch never changes
UNKNOWN_MS = -1


class Needs(HasClock, HasDirectory, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA_TOPIC, [METADATA_PARTITION])]:
        return DescribeQuorumResponse(topics=[_unknown(*each) async for each in Slices().of(asked)])
    sequencers = [each for each in gateway.directory.live("sequencer") if each.journal_sequence >= 0]
    gateways = gateway.directory.live("gateway")
    quorum = _quorum(sequencers, _positions(gateways, client.listener), gateway.clock.now_ms())
    return DescribeQuorumResponse(topics=[TopicData(METADATA_TOPIC, [quorum])])


def _unknown(name: str, indexes: Sequence[int]) -> TopicData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicData(name, [PartitionData(index, error, leader_id=NO_LEADER, leader_epoch=-1) for index in indexes])


def _positions(gateways: Iterable[Presence], listener: str) -> dict[int, int]:
    """The position of each broker that clients of the listener may use; of several at one address the smallest."""
    positions: dict[int, int] = {}
    for presence in gateways:
        sequence = presence.journal_sequence
        if sequence < 0:  # it has no announcement yet, or is of an older release
            continue
        for address in presence.listeners:
            if address.name == listener:
                broker_id = node_of(address.host, address.port, presence.zone).node_id
                positions[broker_id] = min(sequence, positions.get(broker_id, sequence))
    return positions


def _quorum(sequencers: Sequence[Presence], observers: Mapping[int, int], now_ms: int) -> PartitionData:
    if not sequencers:  # all of them are of a release that announces no position
        return PartitionData(METADATA_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE, leader_id=NO_LEADER)
    furthest = max(sequencers, key=lambda each: each.journal_sequence)
    newest = furthest.journal_sequence
    voters = [
        ReplicaState(
            replica_id=id_of(each.instance),
            log_end_offset=each.journal_sequence,
            last_fetch_timestamp=now_ms if each is furthest else UNKNOWN_MS,
            last_caught_up_timestamp=now_ms if each.journal_sequence == newest else each.journal_ms,
        )
        for each in sequencers
    ]
    return PartitionData(
        METADATA_PARTITION,
        leader_id=id_of(furthest.instance),
        leader_epoch=EPOCH,
        high_watermark=newest,
        current_voters=voters,
        observers=[_observer(broker_id, min(at, newest), newest, now_ms) for broker_id, at in observers.items()],
    )


def _observer(broker_id: int, position: int, newest: int, now_ms: int) -> ReplicaState:
    """A gateway; its presence may be newer than those of all sequencers, so the position ends at theirs."""
    caught_up_ms = now_ms if position == newest else UNKNOWN_MS
    return ReplicaState(
        replica_id=broker_id,
        log_end_offset=position,
        last_fetch_timestamp=UNKNOWN_MS,
        last_caught_up_timestamp=caught_up_ms,
    )
