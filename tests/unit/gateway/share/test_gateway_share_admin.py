"""Share groups in administration APIs, and their members' heartbeats, against the real state machine."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.contracts.queries.share import SHARE_OFFSETS_ASKED_MAX
from penstock.kafkawire.api import (
    alter_share_group_offsets as altering,
    delete_share_group_offsets as deleting,
    describe_share_group_offsets as describing,
)
from penstock.kafkawire.api.list_groups import ListGroupsRequest
from penstock.kafkawire.api.share_group_describe import ShareGroupDescribeRequest
from penstock.kafkawire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.groups import list_groups
from penstock_gateway.handlers.share import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from tests.unit.gateway.gateway_read_world import World, batch_of
from tests.unit.gateway.gateway_share import ACCEPT, GROUP, joined_members, open_world

LEAVES = -1
NO_ID = bytes(16)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


async def ask(world: World, handler: Any, request: Any) -> Any:
    return await handler.handle(world.gateway, world.client, 1, request)


async def beat(world: World, epoch: int, topics: list[str] | None = None, member: str = "m1") -> Any:
    request = ShareGroupHeartbeatRequest(GROUP, member, epoch, None, topics)
    return await ask(world, share_group_heartbeat, request)


async def offsets(world: World, topics: Any = None, group: str = GROUP) -> Any:
    asked = describing.DescribeShareGroupOffsetsRequestGroup(group, topics)
    request = describing.DescribeShareGroupOffsetsRequest([asked])
    (answer,) = (await ask(world, describe_share_group_offsets, request)).groups
    return answer


async def test_a_member_joins_stays_and_leaves_by_heartbeats(world: World) -> None:
    topic_id = await open_world(world, partitions=2)
    joined = await beat(world, 0, ["t"])
    assert (joined.error_code, joined.member_id) == (ErrorCode.NONE, "m1")
    assert joined.member_epoch > 0
    ((assigned),) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic_id, [0, 1])
    entries = len(world.sequencer.entries)
    stays = await beat(world, joined.member_epoch)
    assert (stays.error_code, stays.member_epoch, stays.assignment) == (ErrorCode.NONE, joined.member_epoch, None)
    assert len(world.sequencer.entries) == entries, "a heartbeat without a change was journaled"
    assert (await beat(world, LEAVES)).member_epoch == LEAVES
    assert (await beat(world, joined.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_wrong_heartbeats_get_kafkas_errors(world: World) -> None:
    await open_world(world)
    assert (await beat(world, 7)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await beat(world, 0, ["t"])
    assert (await beat(world, 99)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (await beat(world, 3, member="other")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(world, 0, member="new")).error_code == ErrorCode.INVALID_REQUEST


async def test_groups_are_described_once_with_their_members(world: World) -> None:
    topic_id = await open_world(world)
    await joined_members(world, topic_id, "m1", "m2")
    request = ShareGroupDescribeRequest([GROUP, "none", "", GROUP], include_authorized_operations=True)
    found, none, nameless = (await ask(world, share_group_describe, request)).groups
    assert (found.error_code, found.group_state, found.assignor_name) == (ErrorCode.NONE, "Stable", "simple")
    assert [member.member_id for member in found.members] == ["m1", "m2"]
    assert [each.topic_name for each in found.members[0].assignment.topic_partitions] == ["t"]
    assert found.authorized_operations > 0
    assert (none.error_code, nameless.error_code) == (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)


async def test_share_groups_are_listed_with_their_type(world: World) -> None:
    topic_id = await open_world(world)
    await joined_members(world, topic_id, "m1")
    for types in ([], ["Share"]):
        (listed,) = (await ask(world, list_groups, ListGroupsRequest([], types))).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == (GROUP, "share", "Stable")
    assert (await ask(world, list_groups, ListGroupsRequest([], ["consumer"]))).groups == []


async def test_offsets_are_described_with_their_lag(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b", b"c")]})
    await one.fetch(0)
    await one.acknowledge({0: [(0, 0, ACCEPT), (2, 2, ACCEPT)]})
    ((topic),) = (await offsets(world)).topics
    ((partition),) = topic.partitions
    assert (topic.topic_name, topic.topic_id) == ("t", topic_id)
    assert (partition.partition_index, partition.start_offset, partition.lag) == (0, 1, 1)
    assert (await offsets(world, group="none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_a_group_that_is_named_often_are_described_once(world: World) -> None:
    topic_id = await open_world(world)
    await joined_members(world, topic_id, "m1")
    group = describing.DescribeShareGroupOffsetsRequestGroup(GROUP, None)
    request = describing.DescribeShareGroupOffsetsRequest([group] * 3)
    first, *others = (await ask(world, describe_share_group_offsets, request)).groups
    assert (first.error_code, len(first.topics)) == (ErrorCode.NONE, 1)
    assert [(each.error_code, each.topics) for each in others] == [(ErrorCode.INVALID_REQUEST, [])] * 2
    assert world.sequencer.asked.count("share_offsets") == 1


async def test_offsets_of_many_partitions_are_asked_for_in_parts_that_each_fit_a_message(world: World) -> None:
    topic_id = await open_world(world)
    await joined_members(world, topic_id, "m1")
    topic = describing.DescribeShareGroupOffsetsRequestTopic
    count = SHARE_OFFSETS_ASKED_MAX + 1
    answer = await offsets(world, [topic("no such topic", [3]), topic("t", list(range(count)))])
    assert world.sequencer.asked.count("share_offsets") == 2
    unknown, known = answer.topics
    unknown_topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.partition_index, each.error_code) for each in unknown.partitions] == [(3, unknown_topic)]
    assert [each.partition_index for each in known.partitions] == list(range(count))
    assert [each.error_code for each in known.partitions] == [ErrorCode.NONE] + [unknown_topic] * (count - 1)
    assert (await offsets(world, [], group="none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_an_empty_group_gets_new_offsets_and_loses_topics(world: World) -> None:
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b", b"c")]})
    partitions = [altering.AlterShareGroupOffsetsRequestPartition(0, 2)]
    topics = [
        altering.AlterShareGroupOffsetsRequestTopic("t", partitions),
        altering.AlterShareGroupOffsetsRequestTopic("no such topic", partitions),
    ]
    request = altering.AlterShareGroupOffsetsRequest(GROUP, topics)
    assert (await ask(world, alter_share_group_offsets, request)).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(world, LEAVES)
    answer = await ask(world, alter_share_group_offsets, request)
    assert [(each.topic_id, each.partitions[0].error_code) for each in answer.responses] == [
        (topic_id, ErrorCode.NONE),
        (NO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (await offsets(world)).topics[0].partitions[0].start_offset == 2
    remove = deleting.DeleteShareGroupOffsetsRequest(GROUP, [deleting.DeleteShareGroupOffsetsRequestTopic("t")])
    (gone,) = (await ask(world, delete_share_group_offsets, remove)).responses
    assert (gone.topic_name, gone.topic_id, gone.error_code) == ("t", topic_id, ErrorCode.NONE)
    assert not (await offsets(world)).topics
    assert one.epoch == 0
