"""DescribeQuorum: lists the sequencers as voters, with the newest journal entry that each has applied (KIP-595).

The journal has no leader here. The sequencer that is furthest stands for it, so that lags count from its position.
Positions come with the presences of sequencers, and are up to a second old.
"""

from collections.abc import Sequence
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
from penstock_gateway.kafka.broker_view import id_of
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
        return DescribeQuorumResponse(topics=[_unknown(name, indexes) for name, indexes in asked])
    sequencers = [each for each in gateway.directory.live("sequencer") if each.journal_sequence >= 0]
    quorum = _quorum(sequencers, gateway.clock.now_ms())
    return DescribeQuorumResponse(topics=[TopicData(METADATA_TOPIC, [quorum])])


def _unknown(name: str, indexes: Sequence[int]) -> TopicData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicData(name, [PartitionData(index, error, leader_id=NO_LEADER, leader_epoch=-1) for index in indexes])


def _quorum(sequencers: Sequence[Presence], now_ms: int) -> PartitionData:
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
    )
