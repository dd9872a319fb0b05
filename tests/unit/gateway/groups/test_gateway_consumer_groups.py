"""The APIs of consumer groups (KIP-848): which heartbeats are journaled, and Kafka's errors for rejections."""

from typing import Any

import pytest

from penstock.contracts.commands import ConsumerHeartbeat, ConsumerMembership, Outcome, Rejected, TopicPartitions
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL
from penstock.contracts.queries.consumer_groups import (
    ConsumerGroupsView,
    ConsumerGroupView,
    ConsumerHeartbeatView,
    ConsumerMemberView,
)
from penstock.contracts.queries.groups import GroupOffsetsQuery, GroupOffsetsView, GroupSummary, GroupsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import consumer_group_describe, consumer_group_heartbeat
from penstock.kafkawire.api.api_versions import ApiVersionsRequest, FinalizedFeatureKey, SupportedFeatureKey
from penstock.kafkawire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.kafkawire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.kafkawire.api.list_groups import ListGroupsRequest
from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.metadata.authorized_operations import GROUP_OPERATIONS
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

OFFSET_FETCH, LIST, API_VERSIONS, HEARTBEAT, DESCRIBE = 9, 16, 18, 68, 69
TOPIC_ID = bytes(range(16))
JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    instance_id="i",
    rack_id="r",
    rebalance_timeout_ms=9_000,
    subscribed_topic_names=["t"],
    subscribed_topic_regex="t.*",
    server_assignor="range",
    topic_partitions=[],
)
STAY = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
JOINED = ConsumerMembership("m", 3, 5_000, [TopicPartitions(TOPIC_ID, [0, 2])])


def answering(*asked: ConsumerMembership | Rejected | None, journaled: Outcome = JOINED) -> World:
    """Sequencers that give these answers to queries, in order, and this outcome to the command."""
    world = new_world()
    answers = iter(asked)
    world.sequencer.views["consumer_heartbeat"] = lambda query: ConsumerHeartbeatView(1, next(answers))
    world.sequencer.on_command = lambda command: journaled
    return world


async def test_a_heartbeat_that_changes_nothing_is_not_journaled() -> None:
    world = answering(ConsumerMembership("m", 3, 5_000, None))
    response = await ask(world, HEARTBEAT, 1, STAY)
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 3, 5_000)
    assert (response.member_id, response.assignment) == ("m", None)
    assert world.sequencer.commands == []


async def test_a_heartbeat_that_changes_something_is_journaled_unchanged() -> None:
    world = answering(None)
    world.sequencer.seen_sequence = 7
    client = new_client()
    client.client_id = "app"
    response = await ask(world, HEARTBEAT, 1, JOIN, client)
    assert response.assignment == consumer_group_heartbeat.Assignment(
        [consumer_group_heartbeat.TopicPartitions(TOPIC_ID, [0, 2])]
    )
    ((command,),) = world.sequencer.commands
    assert command == ConsumerHeartbeat(
        command.now_ms, "g", "m", 0, "i", "r", 9_000, command.client_id, "/127.0.0.1", ["t"], "t.*", "range", [], 7
    )


async def test_the_partitions_of_a_member_are_sent_in_ascending_order() -> None:
    world = answering(None)
    owned = [consumer_group_heartbeat.TopicPartitions(TOPIC_ID, [2, 0])]
    await ask(world, HEARTBEAT, 1, ConsumerGroupHeartbeatRequest("g", "m", 3, topic_partitions=owned))
    ((command,),) = world.sequencer.commands
    assert isinstance(command, ConsumerHeartbeat)
    assert command.owned == [TopicPartitions(TOPIC_ID, [0, 2])]


async def test_a_rejection_counts_if_a_fresh_query_confirms_it() -> None:
    rejected = Rejected(Rejection.FENCED_MEMBER_EPOCH, "why")
    world = answering(rejected, rejected)
    response = await ask(world, HEARTBEAT, 1, STAY)
    assert (response.error_code, response.error_message) == (ErrorCode.FENCED_MEMBER_EPOCH, "why")
    asked: list[Any] = [query for _, query in world.sequencer.queries]
    assert [query.fresh for query in asked] == [False, True]
    assert world.sequencer.commands == []


async def test_a_replica_that_is_behind_fences_no_member() -> None:
    world = answering(Rejected(Rejection.FENCED_MEMBER_EPOCH), ConsumerMembership("m", 3, 5_000, None))
    assert (await ask(world, HEARTBEAT, 1, STAY)).error_code == 0


@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (Rejection.UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID),
        (Rejection.UNKNOWN_GROUP, ErrorCode.GROUP_ID_NOT_FOUND),
        (Rejection.UNRELEASED_INSTANCE, ErrorCode.UNRELEASED_INSTANCE_ID),
        (Rejection.FENCED_INSTANCE, ErrorCode.FENCED_INSTANCE_ID),
        (Rejection.UNSUPPORTED_ASSIGNOR, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (Rejection.INVALID_PATTERN, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (Rejection.GROUP_FULL, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (Rejection.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (Rejection.UNSUPPORTED_YET, ErrorCode.UNSUPPORTED_VERSION),
        (Rejection.STALE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (Rejection.OVERLOADED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_each_rejection_has_its_error(rejection: Rejection, error: ErrorCode) -> None:
    world = answering(None, journaled=Rejected(rejection))
    response = await ask(world, HEARTBEAT, 1, STAY)
    assert (response.error_code, response.error_message) == (error, None)


async def test_without_sequencers_members_look_for_a_coordinator() -> None:
    world = answering()
    world.sequencer.is_down = True
    assert (await ask(world, HEARTBEAT, 1, STAY)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_in_version_0_the_coordinator_makes_the_member_id() -> None:
    world = answering(None)
    await ask(world, HEARTBEAT, 0, ConsumerGroupHeartbeatRequest("g", topic_partitions=[]))
    ((command,),) = world.sequencer.commands
    assert isinstance(command, ConsumerHeartbeat)
    assert len(command.member_id) == 22


async def test_in_version_1_a_member_makes_its_own_id() -> None:
    world = answering(None)
    await ask(world, HEARTBEAT, 1, ConsumerGroupHeartbeatRequest("g", topic_partitions=[]))
    ((command,),) = world.sequencer.commands
    assert isinstance(command, ConsumerHeartbeat)
    assert command.member_id == ""


# Descriptions and listings

MEMBER = ConsumerMemberView(
    "m",
    "i",
    None,
    3,
    "client",
    "/host",
    ["t"],
    "t.*",
    [TopicPartitions(TOPIC_ID, [0])],
    [TopicPartitions(TOPIC_ID, [0, 1]), TopicPartitions(bytes(16), [4])],
    is_classic=False,
)


def describing(*groups: ConsumerGroupView) -> World:
    world = new_world()
    by_id = {group.group_id: group for group in groups}
    world.sequencer.views["consumer_groups"] = lambda query: ConsumerGroupsView(
        1, [by_id[each] for each in query.group_ids]
    )
    return world


async def test_a_group_is_described_with_assignments_and_targets() -> None:
    world = describing(ConsumerGroupView("g", "Stable", 3, 2, "uniform", [MEMBER], [(TOPIC_ID, "t")]))
    (group,) = (await ask(world, DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"]))).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 2, "uniform")
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == ("m", "i", 3, 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "t.*")
    assert member.assignment == consumer_group_describe.Assignment(
        [consumer_group_describe.TopicPartitions(TOPIC_ID, "t", [0])]
    )
    assert member.target_assignment == consumer_group_describe.Assignment(
        [consumer_group_describe.TopicPartitions(TOPIC_ID, "t", [0, 1])]
    )


@pytest.mark.parametrize(("include", "operations"), [(False, -(2**31)), (True, GROUP_OPERATIONS)])
async def test_authorized_operations_are_in_the_answer_on_request(include: bool, operations: int) -> None:
    world = describing(ConsumerGroupView("g", "Stable", 3, 2, "uniform", [], []))
    (group,) = (await ask(world, DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"], include))).groups
    assert group.authorized_operations == operations


@pytest.mark.parametrize(
    ("is_classic", "message"), [(True, "Group g is not a consumer group."), (False, "Group g not found.")]
)
async def test_a_group_of_another_type_is_not_found(is_classic: bool, message: str) -> None:
    world = describing(ConsumerGroupView("g", "", 0, 0, "", [], [], is_classic=is_classic))
    (group,) = (await ask(world, DESCRIBE, 0, ConsumerGroupDescribeRequest(["g"]))).groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, message)


async def test_a_group_that_is_named_again_is_described_once() -> None:
    world = describing(ConsumerGroupView("g", "Stable", 3, 2, "uniform", [], []))
    (group,) = (await ask(world, DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"] * 1_000))).groups
    assert group.group_id == "g"
    assert len(world.sequencer.queries) == 1


async def test_a_group_needs_an_id_and_sequencers_to_be_described() -> None:
    world = new_world()
    world.sequencer.is_down = True
    groups = (await ask(world, DESCRIBE, 0, ConsumerGroupDescribeRequest(["", "g"]))).groups
    assert [each.error_code for each in groups] == [ErrorCode.INVALID_GROUP_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize(
    ("types", "listed"),
    [
        ([], [("old", "classic"), ("new", "consumer")]),
        (["Consumer"], [("new", "consumer")]),
        (["classic", "share"], [("old", "classic")]),
    ],
)
async def test_groups_are_listed_by_type(types: list[str], listed: list[tuple[str, str]]) -> None:
    world = new_world()
    summaries = [GroupSummary("old", "consumer", "Stable"), GroupSummary("new", "consumer", "Assigning", True)]
    world.sequencer.views["groups"] = lambda query: GroupsView(1, summaries)
    response = await ask(world, LIST, 5, ListGroupsRequest([], types))
    assert [(group.group_id, group.group_type) for group in response.groups] == listed


async def test_filters_by_state_may_be_in_upper_or_lower_case() -> None:
    world = new_world()
    asked: list[str] = []

    def view(query: Any) -> GroupsView:
        asked.extend(query.states)
        return GroupsView(1, [])

    world.sequencer.views["groups"] = view
    await ask(world, LIST, 5, ListGroupsRequest(["assigning", "RECONCILING"]))
    assert asked == ["Assigning", "Reconciling"]


async def test_an_offset_request_has_the_member_and_may_be_rejected() -> None:
    world = new_world()
    asked: list[GroupOffsetsQuery] = []

    def view(query: GroupOffsetsQuery) -> GroupOffsetsView:
        asked.append(query)
        return GroupOffsetsView(1, [], rejection=Rejection.STALE_MEMBER_EPOCH)

    world.sequencer.views["group_offsets"] = view
    group = OffsetFetchRequestGroup("g", "m", 3, None)
    (answer,) = (await ask(world, OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group]))).groups
    assert (asked[0].member_id, asked[0].member_epoch) == ("m", 3)
    assert answer.error_code == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(("version", "level_min"), [(3, 1), (4, 0)])
async def test_the_protocol_is_a_feature_once_all_sequencers_know_it(version: int, level_min: int) -> None:
    world = new_world()
    world.sequencer.seen_level = CONSUMER_GROUPS_LEVEL
    response = await ask(world, API_VERSIONS, version, ApiVersionsRequest("c", "1"))
    assert SupportedFeatureKey("group.version", level_min, 1) in response.supported_features
    assert FinalizedFeatureKey("group.version", 1, 1) in response.finalized_features
    world.sequencer.seen_level = CONSUMER_GROUPS_LEVEL - 1
    response = await ask(world, API_VERSIONS, version, ApiVersionsRequest("c", "1"))
    assert response.finalized_features == []
