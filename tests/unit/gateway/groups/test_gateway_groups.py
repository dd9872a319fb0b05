"""The group APIs: Kafka's answers for the sequencers' outcomes, and the end of each wait."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.contracts import commands
from penstock.contracts.commands import (
    Done,
    GroupProtocol,
    Joined,
    JoinedMember,
    MemberIdRequired,
    Outcome,
    PerItem,
    ProducerAllocated,
    Rejected,
    Synced,
    Waiting,
)
from penstock.contracts.commands.group_sizes import GROUP_SIZES
from penstock.contracts.queries.groups import (
    CommittedOffset,
    DescribeGroupsQuery,
    DescribeGroupsView,
    GroupOffsetsQuery,
    GroupOffsetsView,
    GroupsQuery,
    GroupSummary,
    GroupsView,
    GroupTopicPartitions,
    GroupView,
    GroupWaitView,
    HeartbeatView,
    MemberView,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.delete_groups import DeleteGroupsRequest
from penstock.kafkawire.api.describe_groups import DescribeGroupsRequest
from penstock.kafkawire.api.find_coordinator import FindCoordinatorRequest
from penstock.kafkawire.api.heartbeat import HeartbeatRequest
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.kafkawire.api.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.kafkawire.api.list_groups import ListGroupsRequest
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.kafkawire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.discovery import find_coordinator
from penstock_gateway.handlers.groups.join_group import NO_SUBSCRIPTION
from penstock_gateway.kafka.broker_view import node_of
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.testkit.cancelling import turns
from tests.unit.gateway.gateway_fakes import LISTENER, World, gateway_presence, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 10, 11, 12, 13, 14
DESCRIBE, LIST, COMMIT, FETCH, INIT_PRODUCER, DELETE = 15, 16, 8, 9, 22, 42

JOINED = Joined(4, "consumer", "range", "m-1", "m-1", [JoinedMember("m-1", None, b"meta")])


def answering(outcome: Outcome) -> World:
    world = new_world()
    world.sequencer.on_command = lambda command: outcome
    return world


def sent(world: World) -> Any:
    ((command,),) = world.sequencer.commands
    return command


def join_request(**changes: Any) -> JoinGroupRequest:
    given: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", b"meta")],
    }
    return JoinGroupRequest(**(given | changes))


async def test_a_join_is_answered_with_the_generation_and_its_members() -> None:
    response = await ask(answering(JOINED), JOIN, 9, join_request(member_id="m-1"))
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 4, "range")
    assert (response.leader, response.member_id, response.skip_assignment) == ("m-1", "m-1", False)
    assert [(member.member_id, member.metadata) for member in response.members] == [("m-1", b"meta")]


@pytest.mark.parametrize(("version", "required"), [(3, False), (4, True), (9, True)])
async def test_from_version_4_on_a_new_member_must_join_again_with_its_id(version: int, required: bool) -> None:
    world = answering(MemberIdRequired("test-client-7"))
    response = await ask(world, JOIN, version, join_request())
    assert (response.error_code, response.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "test-client-7")
    assert sent(world).require_known_member == required


@pytest.mark.parametrize(
    ("version", "changes", "metadata"),
    [
        (9, {}, NO_SUBSCRIPTION),
        (9, {"member_id": "m-1"}, b"meta"),
        (9, {"group_instance_id": "i-1"}, b"meta"),
        (3, {}, b"meta"),
    ],
)
async def test_a_join_that_only_asks_for_a_member_id_brings_no_metadata(
    version: int, changes: dict[str, str], metadata: bytes
) -> None:
    world = answering(MemberIdRequired("test-client-7"))
    await ask(world, JOIN, version, join_request(**changes))
    assert sent(world).protocols == [GroupProtocol("range", metadata)]


async def test_a_member_too_large_for_every_group_gets_no_member_id() -> None:
    world = answering(MemberIdRequired("test-client-7"))
    large = bytes(GROUP_SIZES.member_bytes_max + 1)
    response = await ask(world, JOIN, 9, join_request(protocols=[JoinGroupRequestProtocol("range", large)]))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert world.sequencer.commands == []


async def test_a_static_member_need_not_join_again_with_its_id() -> None:
    world = answering(JOINED)
    await ask(world, JOIN, 9, join_request(group_instance_id="i-1"))
    assert not sent(world).require_known_member
    assert sent(world).new_member_id.startswith("i-1-")


async def test_a_new_members_id_begins_with_the_client_id_and_is_never_the_same() -> None:
    world = answering(JOINED)
    for _ in range(2):
        await ask(world, JOIN, 5, join_request())
    made = [command.new_member_id for (command,) in world.sequencer.commands]  # type: ignore[union-attr]
    assert all(each.startswith("test-client-") for each in made)
    assert len(set(made)) == 2


async def test_the_first_version_has_the_session_time_out_for_both() -> None:
    world = answering(JOINED)
    await ask(world, JOIN, 0, join_request())
    assert (sent(world).session_timeout_ms, sent(world).rebalance_timeout_ms) == (10_000, 10_000)


@pytest.mark.parametrize("version", range(10))
async def test_a_refused_join_has_kafkas_error_in_every_version(version: int) -> None:
    response = await ask(
        answering(Rejected(Rejection.INCONSISTENT_PROTOCOL)), JOIN, version, join_request(member_id="m")
    )
    assert (response.error_code, response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "m")


async def test_a_join_waits_until_the_rebalance_is_over() -> None:
    world = answering(Waiting("m-1", 3))
    outcomes: list[Outcome] = [Waiting("m-1", 3), Waiting("m-1", 3), JOINED]
    world.sequencer.views["group_wait"] = lambda query: GroupWaitView(1, outcomes.pop(0))
    response = await ask(world, JOIN, 9, join_request())
    assert (response.error_code, response.generation_id) == (0, 4)
    asked: Any = [query for name, query in world.sequencer.queries if name == "group_wait"]
    assert {(query.kind, query.group_id, query.member_id, query.generation) for query in asked} == {
        ("join", "g", "m-1", 3)
    }
    assert all(0 < query.wait_ms <= 1_000 for query in asked)


async def test_a_join_that_is_never_answered_ends_after_the_rebalance_time_out() -> None:
    world = answering(Waiting("m-1", 3))

    def wait(query: Any) -> GroupWaitView:
        world.clock.now_s += query.wait_ms / 1000
        return GroupWaitView(1, Waiting("m-1", 3))

    world.sequencer.views["group_wait"] = wait
    began_s = world.clock.now_s
    response = await ask(world, JOIN, 9, join_request(rebalance_timeout_ms=60_000))
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 60 <= world.clock.now_s - began_s <= 90


async def test_a_waiting_join_ends_when_the_gateway_drains() -> None:
    world, client = answering(Waiting("m-1", 3)), new_client()

    def wait(query: Any) -> GroupWaitView:
        client.is_leaving = True
        return GroupWaitView(1, Waiting("m-1", 3))

    world.sequencer.views["group_wait"] = wait
    response = await ask(world, JOIN, 9, join_request(), client)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_waiting_join_ends_with_its_connection() -> None:
    world = answering(Waiting("m-1", 3))
    world.sequencer.views["group_wait"] = lambda query: GroupWaitView(1, Waiting("m-1", 3))
    task = asyncio.create_task(ask(world, JOIN, 9, join_request()))
    await turns()
    task.cancel()
    await asyncio.wait({task})
    asked = len(world.sequencer.queries)
    await turns()
    assert task.cancelled() and len(world.sequencer.queries) == asked


async def test_the_leader_sends_all_assignments_and_gets_its_own() -> None:
    world = answering(Synced("consumer", "range", b"mine"))
    asked = SyncGroupRequest("g", 4, "m-1", None, "consumer", "range", [SyncGroupRequestAssignment("m-2", b"yours")])
    response = await ask(world, SYNC, 5, asked)
    assert (response.error_code, response.assignment, response.protocol_name) == (0, b"mine", "range")
    assert sent(world).assignments == [commands.MemberAssignment("m-2", b"yours")]
    assert (sent(world).generation, sent(world).protocol) == (4, "range")


async def test_a_follower_waits_for_the_leaders_assignments() -> None:
    world = answering(Waiting("m-2", 4))
    world.sequencer.views["group_wait"] = lambda query: GroupWaitView(1, Synced("consumer", "range", b"yours"))
    assert (await ask(world, SYNC, 4, SyncGroupRequest("g", 4, "m-2"))).assignment == b"yours"


@pytest.mark.parametrize("version", range(6))
async def test_a_refused_sync_has_kafkas_error(version: int) -> None:
    world = answering(Rejected(Rejection.ILLEGAL_GENERATION))
    request = SyncGroupRequest("g", protocol_type="consumer", protocol_name="range")
    assert (await ask(world, SYNC, version, request)).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (Rejection.NONE, ErrorCode.NONE),
        (Rejection.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS),
        (Rejection.UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID),
        (Rejection.FENCED_INSTANCE, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
async def test_a_heartbeat_reports_the_state_of_the_group(rejection: Rejection, error: ErrorCode) -> None:
    world = new_world()
    world.sequencer.views["heartbeat"] = lambda query: HeartbeatView(1, rejection)
    assert (await ask(world, HEARTBEAT, 4, HeartbeatRequest("g", 4, "m-1"))).error_code == error


async def test_one_member_leaves_in_old_versions_and_its_error_is_the_answers() -> None:
    world = answering(PerItem([Rejection.UNKNOWN_MEMBER]))
    response = await ask(world, LEAVE, 2, LeaveGroupRequest("g", "m-1"))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sent(world).members == [commands.LeavingMember("m-1", None)]


async def test_many_members_leave_and_each_has_its_own_error() -> None:
    world = answering(PerItem([Rejection.NONE, Rejection.UNKNOWN_MEMBER]))
    members = [MemberIdentity("m-1"), MemberIdentity("", "i-2")]
    response = await ask(world, LEAVE, 5, LeaveGroupRequest("g", members=members))
    assert response.error_code == 0
    assert [(member.group_instance_id, member.error_code) for member in response.members] == [(None, 0), ("i-2", 25)]


async def test_a_group_refused_as_a_whole_has_the_error_for_every_leaving_member() -> None:
    response = await ask(answering(Rejected(Rejection.INVALID_GROUP)), LEAVE, 4, LeaveGroupRequest(""))
    assert response.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(2, 10))
async def test_every_committed_offset_has_its_own_result(version: int) -> None:
    world = answering(PerItem([Rejection.NONE, Rejection.METADATA_TOO_LARGE, Rejection.UNKNOWN_TOPIC]))
    partitions = [OffsetCommitRequestPartition(0, 10, 3, "note"), OffsetCommitRequestPartition(1, 11, -1, None)]
    topics = [
        OffsetCommitRequestTopic("a", partitions=partitions),
        OffsetCommitRequestTopic("b", partitions=[OffsetCommitRequestPartition(7, 1)]),
    ]
    response = await ask(world, COMMIT, version, OffsetCommitRequest("g", 4, "m-1", topics=topics))
    answered = [(t.name, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]
    assert answered == [("a", 0, 0), ("a", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE), ("b", 7, 3)]
    first, second, third = sent(world).offsets
    assert (first.topic, first.partition, first.offset, first.metadata) == ("a", 0, 10, "note")
    assert first.leader_epoch == (3 if version >= 6 else -1)
    assert (second.metadata, third.topic) == ("", "b")


async def test_a_refused_commit_refuses_every_offset() -> None:
    topics = [
        OffsetCommitRequestTopic("a", partitions=[OffsetCommitRequestPartition(0), OffsetCommitRequestPartition(1)])
    ]
    response = await ask(
        answering(Rejected(Rejection.UNKNOWN_MEMBER)), COMMIT, 8, OffsetCommitRequest("g", topics=topics)
    )
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def offsets_world() -> World:
    world = new_world()
    found = [
        CommittedOffset("a", 0, 10, 3, "note"),
        CommittedOffset("a", 1, -1, -1, ""),
        CommittedOffset("b", 0, 5, -1, ""),
    ]
    world.sequencer.views["group_offsets"] = lambda query: GroupOffsetsView(1, found)
    return world


@pytest.mark.parametrize("version", range(1, 8))
async def test_committed_offsets_are_answered_by_topic(version: int) -> None:
    world = offsets_world()
    topics = [OffsetFetchRequestTopic("a", [0, 1]), OffsetFetchRequestTopic("b", [0])]
    response = await ask(world, FETCH, version, OffsetFetchRequest("g", topics))
    answered = [
        (t.name, p.partition_index, p.committed_offset, p.metadata) for t in response.topics for p in t.partitions
    ]
    assert answered == [("a", 0, 10, "note"), ("a", 1, -1, ""), ("b", 0, 5, "")]
    query: Any = world.sequencer.queries[0][1]
    assert query.topics == [GroupTopicPartitions("a", [0, 1]), GroupTopicPartitions("b", [0])]


@pytest.mark.parametrize("version", [8, 9])
async def test_several_groups_are_answered_each_in_its_place(version: int) -> None:
    world = offsets_world()
    groups = [
        OffsetFetchRequestGroup("g1", topics=None),
        OffsetFetchRequestGroup("g2", topics=[OffsetFetchRequestTopics("a", partition_indexes=[0])]),
    ]
    response = await ask(world, FETCH, version, OffsetFetchRequest(groups=groups))
    assert [(group.group_id, group.error_code) for group in response.groups] == [("g1", 0), ("g2", 0)]
    assert response.groups[0].topics[0].partitions[0].committed_offset == 10
    assert [query for _, query in world.sequencer.queries] == [
        GroupOffsetsQuery(0, "g1", None, fresh=True, after=("", -1)),
        GroupOffsetsQuery(0, "g2", [GroupTopicPartitions("a", [0])], fresh=True, after=("", -1)),
    ]


@pytest.mark.parametrize("version", [8, 10])
async def test_the_offsets_of_a_group_that_is_named_often_are_in_the_answer_once(version: int) -> None:
    world = offsets_world()
    groups = [OffsetFetchRequestGroup(name, topics=None) for name in ("g1", "g1", "g2", "g1")]
    response = await ask(world, FETCH, version, OffsetFetchRequest(groups=groups))
    repeated = ErrorCode.INVALID_REQUEST
    answered = [(group.group_id, group.error_code) for group in response.groups]
    assert answered == [("g1", 0), ("g1", repeated), ("g2", 0), ("g1", repeated)]
    asked = [query.group_id for name, query in world.sequencer.queries if name == "group_offsets"]  # type: ignore[attr-defined]
    assert asked == ["g1", "g2"]


async def test_a_commit_by_topic_id_names_the_topic_and_sends_its_id_along() -> None:
    world = answering(PerItem([Rejection.NONE, Rejection.UNKNOWN_TOPIC]))
    known, unknown = world.sequencer.add_topic("a").topic_id, b"unknown topic id"
    both = [OffsetCommitRequestPartition(0, 10), OffsetCommitRequestPartition(9, 11)]
    topics = [OffsetCommitRequestTopic(topic_id=each, partitions=both) for each in (unknown, known)]
    response = await ask(world, COMMIT, 10, OffsetCommitRequest("g", topics=topics))
    answered = [(t.topic_id, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]
    no_topic = ErrorCode.UNKNOWN_TOPIC_ID
    assert answered == [(unknown, 0, no_topic), (unknown, 9, no_topic), (known, 0, 0), (known, 9, 3)]
    assert [(each.topic, each.partition) for each in sent(world).offsets] == [("a", 0), ("a", 9)]
    assert sent(world).topic_ids == {"a": known}


async def test_a_commit_of_unknown_topics_alone_is_no_command() -> None:
    world = answering(PerItem([]))
    topics = [OffsetCommitRequestTopic(topic_id=b"unknown topic id", partitions=[OffsetCommitRequestPartition(0, 1)])]
    response = await ask(world, COMMIT, 10, OffsetCommitRequest("g", topics=topics))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert world.sequencer.commands == []


async def test_offsets_by_topic_id_have_the_ids_of_topics_that_exist() -> None:
    world = offsets_world()
    known, unknown = world.sequencer.add_topic("a").topic_id, b"unknown topic id"
    named = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (known, unknown)]
    groups = [OffsetFetchRequestGroup("g1", topics=None), OffsetFetchRequestGroup("g2", topics=named)]
    response = await ask(world, FETCH, 10, OffsetFetchRequest(groups=groups))
    first, second = (
        [(t.topic_id, p.partition_index, p.committed_offset, p.error_code) for t in group.topics for p in t.partitions]
        for group in response.groups
    )
    assert first == [(known, 0, 10, 0), (known, 1, -1, 0)]  # the topic "b" has been deleted
    assert second == [*first, (unknown, 0, -1, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert world.sequencer.queries[-2][1].topics == [GroupTopicPartitions("a", [0])]


async def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    world = new_world()
    world.sequencer.views["group_offsets"] = lambda query: GroupOffsetsView(1, [CommittedOffset("a", 0, -1, -1, "")])
    response = await ask(world, FETCH, 7, OffsetFetchRequest("absent", [OffsetFetchRequestTopic("a", [0])]))
    assert response.error_code == 0
    assert response.topics[0].partitions[0].committed_offset == -1
    assert response.topics[0].partitions[0].error_code == 0


async def test_without_sequencers_an_offset_is_never_answered_as_missing() -> None:
    """Otherwise a consumer would restart at the first or the last offset."""
    world = new_world()
    world.sequencer.is_down = True
    asked = [OffsetFetchRequestTopic("a", [0])]
    first = await ask(world, FETCH, 1, OffsetFetchRequest("g", asked))
    assert first.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    second = await ask(world, FETCH, 7, OffsetFetchRequest("g", asked))
    assert (second.error_code, second.topics) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    third = await ask(world, FETCH, 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]))
    assert third.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_groups_are_listed_with_their_states() -> None:
    world = new_world()
    world.sequencer.views["groups"] = lambda query: GroupsView(1, [GroupSummary("g", "consumer", "Stable")])
    response = await ask(world, LIST, 4, ListGroupsRequest(["Stable"]))
    assert [(group.group_id, group.protocol_type, group.group_state) for group in response.groups] == [
        ("g", "consumer", "Stable")
    ]
    assert world.sequencer.queries[0][1] == GroupsQuery(0, ["Stable"], fresh=True, after="")


@pytest.mark.parametrize("types", [[], ["classic"], ["Classic", "share"]])
async def test_groups_are_listed_with_their_type(types: list[str]) -> None:
    world = new_world()
    world.sequencer.views["groups"] = lambda query: GroupsView(1, [GroupSummary("g", "consumer", "Stable")])
    response = await ask(world, LIST, 5, ListGroupsRequest([], types))
    assert [(group.group_id, group.group_type) for group in response.groups] == [("g", "classic")]


async def test_an_unknown_type_lists_no_group() -> None:
    world = new_world()
    response = await ask(world, LIST, 5, ListGroupsRequest([], ["stream", "other"]))
    assert (response.error_code, response.groups) == (0, [])


async def test_filters_by_state_may_be_in_upper_or_lower_case() -> None:
    world = new_world()
    world.sequencer.views["groups"] = lambda query: GroupsView(1, [])
    await ask(world, LIST, 5, ListGroupsRequest(["stable", "PREPARINGREBALANCE", "other"]))
    assert world.sequencer.queries[0][1] == GroupsQuery(
        0, ["Stable", "PreparingRebalance", "other"], fresh=True, after=""
    )


async def test_groups_are_described_in_the_order_asked_and_unknown_ones_are_dead() -> None:
    world = new_world()
    member = MemberView("m-1", "i-1", "client", "/1.2.3.4", b"meta", b"assigned")
    views = {"g": GroupView("g", "Stable", "consumer", "range", [member])}
    world.sequencer.views["describe_groups"] = lambda query: DescribeGroupsView(
        1, [views.get(each, GroupView(each, "Dead", "", "", [])) for each in query.group_ids]
    )
    response = await ask(world, DESCRIBE, 5, DescribeGroupsRequest(["x", "g"]))
    dead, group = response.groups
    assert (dead.group_id, dead.group_state, dead.error_code) == ("x", "Dead", 0)
    assert (group.group_state, group.protocol_data, group.members[0].group_instance_id) == ("Stable", "range", "i-1")
    assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"meta", b"assigned")
    assert [query for _, query in world.sequencer.queries] == [
        DescribeGroupsQuery(0, [group_id], fresh=True) for group_id in ("x", "g")
    ]


async def test_a_group_that_is_named_again_is_described_once() -> None:
    world = new_world()
    world.sequencer.views["describe_groups"] = lambda query: DescribeGroupsView(
        1, [GroupView(each, "Empty", "consumer", "", []) for each in query.group_ids]
    )
    response = await ask(world, DESCRIBE, 5, DescribeGroupsRequest(["g", "x", *["g"] * 1_000]))
    assert [group.group_id for group in response.groups] == ["g", "x"]
    assert len(world.sequencer.queries) == 2


async def test_groups_are_deleted_one_by_one() -> None:
    world = new_world()
    outcomes: dict[str, Outcome] = {
        "a": Done(),
        "b": Rejected(Rejection.GROUP_NOT_EMPTY),
        "c": Rejected(Rejection.UNKNOWN_GROUP),
    }
    world.sequencer.on_command = lambda command: outcomes[command.group_id]  # type: ignore[union-attr]
    response = await ask(world, DELETE, 2, DeleteGroupsRequest(["a", "b", "c", "a"]))
    assert [(each.group_id, each.error_code) for each in response.results] == [("a", 0), ("b", 68), ("c", 69)]


@pytest.mark.parametrize("version", range(5))
async def test_the_gateway_that_is_asked_coordinates_every_group(version: int) -> None:
    world = new_world()
    node = world.gateway.nodes[LISTENER]
    response = await ask(world, FIND_COORDINATOR, version, FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]))
    found = response.coordinators if version >= 4 else [response]
    assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (0, node.node_id, node.host, node.port)
    ] * len(found)
    assert len(found) == (2 if version >= 4 else 1)


async def test_a_question_for_very_many_coordinators_lets_other_tasks_run() -> None:
    """With 300,000 keys the gateway stood still for three seconds, and undecided requests lost their connections."""
    keys = [str(number) for number in range(20_000)]
    asked = FindCoordinatorRequest(coordinator_keys=keys)
    task = asyncio.create_task(find_coordinator.handle(new_world().gateway, new_client(), 4, asked))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert [each.key for each in task.result().coordinators] == keys
    assert turns > 20


@pytest.mark.parametrize(("listener", "host"), [("INTERNAL", "10.0.0.1"), ("EXTERNAL", "localhost")])
async def test_a_coordinator_has_the_address_for_the_clients_listener(listener: str, host: str) -> None:
    world = new_world(nodes={"INTERNAL": node_of("10.0.0.1", 9092, "z1"), "EXTERNAL": node_of("localhost", 9092, "z1")})
    found = await ask(world, FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g"), new_client(listener=listener))
    assert (found.error_code, found.host, found.node_id) == (0, host, world.gateway.nodes[listener].node_id)


async def test_a_client_of_another_zone_is_sent_to_a_coordinator_there() -> None:
    world = new_world()
    world.directory.put(gateway_presence("g2", "z2", **{LISTENER: ("10.0.0.2", 9092)}))
    found = await ask(world, FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g"), new_client("app;zone=z2"))
    assert (found.error_code, found.host, found.port) == (0, "10.0.0.2", 9092)


async def test_a_client_of_another_pool_is_sent_to_a_coordinator_there() -> None:
    world = new_world()
    there = gateway_presence("g2", **{LISTENER: ("10.0.0.2", 9092)})
    world.directory.put(msgspec.structs.replace(there, pool="analytics"))
    found = await ask(world, FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g"), new_client("app;pool=analytics"))
    assert (found.error_code, found.host, found.port) == (0, "10.0.0.2", 9092)
    with pytest.raises(CloseConnection, match="no gateway of the pool 'typo' with a listener PLAINTEXT is live"):
        await ask(world, FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g"), new_client("pool=typo"))


async def test_other_types_of_coordinators_get_a_final_error() -> None:
    asked = FindCoordinatorRequest(key="t", key_type=2, coordinator_keys=["t"])
    assert (await ask(new_world(), FIND_COORDINATOR, 2, asked)).error_code == ErrorCode.INVALID_REQUEST
    assert (await ask(new_world(), FIND_COORDINATOR, 4, asked)).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(5))
async def test_an_idempotent_producer_gets_its_own_id(version: int) -> None:
    response = await ask(answering(ProducerAllocated(42, 0)), INIT_PRODUCER, version, InitProducerIdRequest(None))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 42, 0)


async def test_an_empty_transactional_id_is_refused() -> None:
    response = await ask(new_world(), INIT_PRODUCER, 4, InitProducerIdRequest(""))
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
