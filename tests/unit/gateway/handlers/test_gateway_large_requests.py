"""Requests with many items: other tasks run between the slices of their work."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import Outcome, PerItem
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.groups import CommittedOffset, GroupOffsetsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import (
    add_partitions_to_txn,
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_share_group_offsets,
    delete_topics,
    describe_producers,
    describe_topic_partitions,
    leave_group,
    offset_delete,
    offset_fetch,
    write_txn_markers,
)
from tests.unit.gateway.gateway_fakes import World, new_client, new_world

ITEMS = 10_000
TURNS_MIN = ITEMS // 256
NAMES = [f"/{number}" for number in range(ITEMS)]  # no topic has such a name, so no sequencer is asked
PARTITIONS = list(range(ITEMS))

# By API: a version, and a request with as many items.
REQUESTS: dict[int, tuple[int, Callable[[], msgspec.Struct]]] = {
    create_topics.API.key: (
        7,
        lambda: create_topics.CreateTopicsRequest([create_topics.CreatableTopic(each, 1, 1) for each in NAMES]),
    ),
    create_partitions.API.key: (
        3,
        lambda: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(each, 2, None) for each in NAMES]
        ),
    ),
    delete_topics.API.key: (5, lambda: delete_topics.DeleteTopicsRequest(topic_names=NAMES)),
    describe_topic_partitions.API.key: (
        0,
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(each) for each in NAMES]
        ),
    ),
    alter_client_quotas.API.key: (
        1,
        lambda: alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.EntryData(
                    [alter_client_quotas.EntityData("user", each)], [alter_client_quotas.OpData("unknown")]
                )
                for each in NAMES
            ]
        ),
    ),
    add_partitions_to_txn.API.key: (
        3,
        lambda: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic("t", PARTITIONS)]
        ),
    ),
    write_txn_markers.API.key: (
        1,
        lambda: write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    transaction_result=True, topics=[write_txn_markers.WritableTxnMarkerTopic("t", PARTITIONS)]
                )
            ]
        ),
    ),
    describe_producers.API.key: (
        0,
        lambda: describe_producers.DescribeProducersRequest([describe_producers.TopicRequest("t", PARTITIONS)]),
    ),
    leave_group.API.key: (
        5,
        lambda: leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity()] * ITEMS),
    ),
    offset_delete.API.key: (
        0,
        lambda: offset_delete.OffsetDeleteRequest(
            "g",
            [
                offset_delete.OffsetDeleteRequestTopic(
                    "t", [offset_delete.OffsetDeleteRequestPartition(each) for each in PARTITIONS]
                )
            ],
        ),
    ),
    offset_fetch.API.key: (
        9,
        lambda: offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=None)]),
    ),
    delete_share_group_offsets.API.key: (
        0,
        lambda: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            "g", [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(each) for each in NAMES]
        ),
    ),
}


def none_of_all(command: Any) -> Outcome:
    """Sequencers that accept each item of a command."""
    return PerItem([Rejection.NONE] * ITEMS)


@pytest.fixture
def world() -> World:
    made = new_world(share_groups=True)
    made.sequencer.seen_level = NEWEST_LEVEL
    made.sequencer.on_command = none_of_all
    offsets = [CommittedOffset("t", each, 5, 1, "") for each in PARTITIONS]
    made.sequencer.views["group_offsets"] = lambda query: GroupOffsetsView(1, offsets)
    return made


@pytest.mark.parametrize("api_key", REQUESTS)
async def test_other_requests_run_while_one_with_many_items_is_handled(world: World, api_key: int) -> None:
    version, made = REQUESTS[api_key]
    handling = asyncio.ensure_future(world.handlers[api_key](world.gateway, new_client(), version, made()))
    turns = 0
    while not handling.done():
        turns += 1
        await asyncio.sleep(0)
    await handling
    assert turns > TURNS_MIN
