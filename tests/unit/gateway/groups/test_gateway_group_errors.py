"""The answer to each request of a classic group in each state of the group, as in Kafka's GroupMetadataManager."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.contracts import commands
from penstock.contracts.commands import Command, ConfigChange, ConfigOperation, Outcome
from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL
from penstock.kafkawire.api.delete_groups import DeleteGroupsRequest
from penstock.kafkawire.api.describe_groups import DescribeGroupsRequest
from penstock.kafkawire.api.heartbeat import HeartbeatRequest
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.kafkawire.api.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.kafkawire.api.sync_group import SyncGroupRequest
from penstock.kafkawire.error_codes import ErrorCode as E
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import COMPLETING, EMPTY, PREPARING, STABLE, new_state
from tests.unit.gateway.gateway_fakes import new_world
from tests.unit.gateway.gateway_wire import ask

COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, DELETE, OFFSET_DELETE = 8, 11, 12, 13, 14, 15, 42, 47
READS_T = bytes((0, 3, 0, 0, 0, 1, 0, 1)) + b"t" + bytes(8)  # a consumer's metadata
LEADER, STATIC, OTHER, UNKNOWN = "m-1", "i-2", "m-3", "m-9"  # member ids
INSTANCE = "i"  # of STATIC
GENERATION = 1


class GroupWorld:
    """A gateway whose sequencer is the state machine itself."""

    def __init__(self) -> None:
        self.gateway = new_world()
        self.state = new_state()
        self.now_ms = 1_700_000_000_000
        sequencer = self.gateway.sequencer
        sequencer.on_command = self.do
        for name in ("heartbeat", "group_wait", "describe_groups"):
            sequencer.views[name] = lambda query, name=name: queries.QUERIES[name](self.state, query)
        self.do(commands.RaiseLevel(0, OFFSET_EXPIRY_LEVEL))
        for name in ("t", "u"):
            self.do(commands.CreateTopic(0, name, name.encode() * 16, 1, {}))

    def do(self, command: Command) -> Outcome:
        command = msgspec.structs.replace(command, now_ms=self.now_ms)
        ((outcome,),) = apply_entry(self.state, self.state.sequence + 1, [[command]])[0]
        self.gateway.sequencer.record_sequence(self.state.sequence)
        return outcome

    def configure(self, name: str, value: str) -> None:
        self.do(commands.AlterConfigs(0, "", [ConfigChange(name, ConfigOperation.SET, value)]))

    def join(self, member_id: str, instance_id: str | None = None, kind: str = "consumer") -> None:
        protocols = [commands.GroupProtocol("range", READS_T)]
        names = ("g", "", member_id, instance_id, False, "client", "/host")
        self.do(commands.JoinGroup(0, *names, 10_000, 60_000, kind, protocols))

    def sync(self, member_id: str, instance_id: str | None = None) -> None:
        self.do(commands.SyncGroup(0, "g", GENERATION, member_id, instance_id, None, None, []))

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.do(commands.Tick(0))

    def be(self, state: str) -> "GroupWorld":
        assert self.state.groups["g"].state == state
        return self


def absent() -> GroupWorld:
    """The group does not exist."""
    return GroupWorld()


def completing() -> GroupWorld:
    """A dynamic leader and a static member have joined, and wait for their assignments."""
    world = GroupWorld()
    world.join(LEADER)
    world.join(STATIC, INSTANCE)
    world.wait(500)
    world.wait(500)
    return world.be(COMPLETING)


def stable() -> GroupWorld:
    """Both members have their assignments."""
    world = completing()
    world.sync(LEADER)
    world.sync(STATIC, INSTANCE)
    return world.be(STABLE)


def preparing() -> GroupWorld:
    """A third member has joined; the other two have not joined again yet."""
    world = stable()
    world.join(OTHER)
    return world.be(PREPARING)


def empty() -> GroupWorld:
    """All members have left."""
    world = stable()
    leaving = [commands.LeavingMember(LEADER, None), commands.LeavingMember("", INSTANCE)]
    world.do(commands.LeaveGroup(0, "g", leaving))
    return world.be(EMPTY)


def full() -> GroupWorld:
    """The group has the largest allowed number of members."""
    world = stable()
    world.configure("group.max.size", "2")
    return world


def connectors() -> GroupWorld:
    """A member with another protocol type, whose metadata the gateway cannot decode."""
    world = GroupWorld()
    world.join(LEADER, kind="connect")
    return world.be(PREPARING)


def join(
    member_id: str = "",
    instance: str | None = None,
    *,
    group: str = "g",
    session_ms: int = 10_000,
    kind: str = "consumer",
    protocol: str = "range",
) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(protocol, READS_T)] if protocol else []
    return JoinGroupRequest(group, session_ms, 60_000, member_id, instance, kind, protocols)


def sync(
    member_id: str,
    instance: str | None = None,
    *,
    group: str = "g",
    generation: int = GENERATION,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(group, generation, member_id, instance, kind, protocol)


def beat(member_id: str, instance: str | None = None, *, group: str = "g", generation: int = GENERATION) -> Any:
    return HeartbeatRequest(group, generation, member_id, instance)


def leave(member_id: str = "", instance: str | None = None, *, group: str = "g") -> LeaveGroupRequest:
    return LeaveGroupRequest(group, member_id, [MemberIdentity(member_id, instance)])


def commit(member_id: str = "", generation: int = -1, instance: str | None = None, *, topic: str = "t") -> Any:
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
    return OffsetCommitRequest("g", generation, member_id, instance, topics=topics)


def remove(topic: str = "u", *, group: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])])


def first_error(answer: Any) -> E:
    """The error of the answer, or of its one item."""
    if getattr(answer, "error_code", 0):
        return E(answer.error_code)
    for part in ("members", "results", "groups", "topics"):
        for item in getattr(answer, part, []):
            items = getattr(item, "partitions", [item])
            return E(getattr(items[0], "error_code", 0))
    return E.NONE


async def error_of(world: GroupWorld, key: int, version: int, request: msgspec.Struct) -> E:
    return first_error(await ask(world.gateway, key, version, request))


Situation = Callable[[], GroupWorld]
TABLE: list[tuple[Situation, int, int, Any, E]] = [
    # JoinGroup: GroupCoordinatorService.joinGroup, classicGroupJoinToClassicGroup and their callees
    (absent, JOIN, 9, join(group=""), E.INVALID_GROUP_ID),
    (absent, JOIN, 9, join(session_ms=5_999), E.INVALID_SESSION_TIMEOUT),
    (absent, JOIN, 9, join(session_ms=1_800_001), E.INVALID_SESSION_TIMEOUT),
    (absent, JOIN, 9, join(UNKNOWN), E.UNKNOWN_MEMBER_ID),
    (absent, JOIN, 9, join(kind=""), E.INCONSISTENT_GROUP_PROTOCOL),
    (absent, JOIN, 9, join(protocol=""), E.INCONSISTENT_GROUP_PROTOCOL),
    (absent, JOIN, 4, join(), E.MEMBER_ID_REQUIRED),
    (empty, JOIN, 9, join(UNKNOWN), E.UNKNOWN_MEMBER_ID),
    (empty, JOIN, 9, join(LEADER), E.UNKNOWN_MEMBER_ID),
    (stable, JOIN, 9, join(), E.MEMBER_ID_REQUIRED),
    (stable, JOIN, 9, join(kind="connect"), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, JOIN, 9, join(protocol="sticky"), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, JOIN, 9, join(LEADER, protocol="sticky"), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, JOIN, 9, join(UNKNOWN), E.UNKNOWN_MEMBER_ID),
    (stable, JOIN, 9, join(UNKNOWN, INSTANCE), E.FENCED_INSTANCE_ID),
    (stable, JOIN, 9, join(UNKNOWN, "other"), E.UNKNOWN_MEMBER_ID),
    (stable, JOIN, 9, join(STATIC, INSTANCE), E.NONE),
    (stable, JOIN, 9, join("", INSTANCE), E.NONE),
    (completing, JOIN, 9, join(LEADER), E.NONE),
    (full, JOIN, 9, join(), E.GROUP_MAX_SIZE_REACHED),
    (full, JOIN, 3, join(), E.GROUP_MAX_SIZE_REACHED),
    (full, JOIN, 9, join("", "other"), E.GROUP_MAX_SIZE_REACHED),
    (full, JOIN, 9, join(STATIC, INSTANCE), E.NONE),
    # SyncGroup: KafkaApis.handleSyncGroupRequest, classicGroupSyncToClassicGroup, validateSyncGroup
    (absent, SYNC, 5, sync(LEADER, group=""), E.INVALID_GROUP_ID),
    (absent, SYNC, 5, sync(LEADER), E.UNKNOWN_MEMBER_ID),
    (empty, SYNC, 5, sync(LEADER), E.UNKNOWN_MEMBER_ID),
    (stable, SYNC, 5, sync(UNKNOWN), E.UNKNOWN_MEMBER_ID),
    (stable, SYNC, 5, sync(UNKNOWN, INSTANCE), E.FENCED_INSTANCE_ID),
    (stable, SYNC, 5, sync(UNKNOWN, "other"), E.UNKNOWN_MEMBER_ID),
    (stable, SYNC, 5, sync(LEADER, generation=2), E.ILLEGAL_GENERATION),
    (stable, SYNC, 5, sync(LEADER, generation=-1), E.ILLEGAL_GENERATION),
    (stable, SYNC, 5, sync(LEADER, kind="connect"), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, SYNC, 5, sync(LEADER, protocol="sticky"), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, SYNC, 5, sync(LEADER, kind=None), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, SYNC, 5, sync(LEADER, protocol=None), E.INCONSISTENT_GROUP_PROTOCOL),
    (stable, SYNC, 4, sync(LEADER, kind=None, protocol=None), E.NONE),
    (stable, SYNC, 5, sync(STATIC, INSTANCE), E.NONE),
    (stable, SYNC, 5, sync(STATIC), E.NONE),
    (preparing, SYNC, 5, sync(LEADER), E.REBALANCE_IN_PROGRESS),
    (preparing, SYNC, 5, sync(LEADER, generation=0), E.ILLEGAL_GENERATION),
    # Heartbeat: classicGroupHeartbeatToClassicGroup, validateClassicGroupHeartbeat
    (absent, HEARTBEAT, 4, beat(LEADER, group=""), E.INVALID_GROUP_ID),
    (absent, HEARTBEAT, 4, beat(LEADER), E.UNKNOWN_MEMBER_ID),
    (empty, HEARTBEAT, 4, beat(LEADER), E.UNKNOWN_MEMBER_ID),
    (stable, HEARTBEAT, 4, beat(LEADER), E.NONE),
    (stable, HEARTBEAT, 4, beat(STATIC, INSTANCE), E.NONE),
    (stable, HEARTBEAT, 4, beat(UNKNOWN, INSTANCE), E.FENCED_INSTANCE_ID),
    (stable, HEARTBEAT, 4, beat(UNKNOWN, "other"), E.UNKNOWN_MEMBER_ID),
    (stable, HEARTBEAT, 4, beat(LEADER, generation=0), E.ILLEGAL_GENERATION),
    (completing, HEARTBEAT, 4, beat(LEADER), E.NONE),
    (preparing, HEARTBEAT, 4, beat(LEADER), E.REBALANCE_IN_PROGRESS),
    # LeaveGroup: classicGroupLeaveToClassicGroup
    (absent, LEAVE, 5, leave(LEADER, group=""), E.INVALID_GROUP_ID),
    (absent, LEAVE, 5, leave(LEADER), E.UNKNOWN_MEMBER_ID),
    (absent, LEAVE, 0, leave(LEADER), E.UNKNOWN_MEMBER_ID),
    (stable, LEAVE, 5, leave(UNKNOWN), E.UNKNOWN_MEMBER_ID),
    (stable, LEAVE, 5, leave(), E.UNKNOWN_MEMBER_ID),
    (stable, LEAVE, 5, leave("", "other"), E.UNKNOWN_MEMBER_ID),
    (stable, LEAVE, 5, leave(UNKNOWN, INSTANCE), E.FENCED_INSTANCE_ID),
    (stable, LEAVE, 5, leave("", INSTANCE), E.NONE),
    (stable, LEAVE, 5, leave(STATIC, INSTANCE), E.NONE),
    (stable, LEAVE, 2, leave(LEADER), E.NONE),
    (preparing, LEAVE, 5, leave(LEADER), E.NONE),
    # OffsetCommit: OffsetMetadataManager.validateOffsetCommit, ClassicGroup.validateOffsetCommit
    (absent, COMMIT, 8, commit(), E.NONE),
    (absent, COMMIT, 8, commit(LEADER, 1), E.ILLEGAL_GENERATION),
    (absent, COMMIT, 9, commit(LEADER, 1), E.GROUP_ID_NOT_FOUND),
    (empty, COMMIT, 8, commit(), E.NONE),
    (empty, COMMIT, 8, commit(LEADER, 1), E.UNKNOWN_MEMBER_ID),
    (stable, COMMIT, 8, commit(), E.UNKNOWN_MEMBER_ID),
    (stable, COMMIT, 8, commit(LEADER, GENERATION), E.NONE),
    (stable, COMMIT, 8, commit(LEADER, GENERATION, topic="x"), E.UNKNOWN_TOPIC_OR_PARTITION),
    (stable, COMMIT, 8, commit(STATIC, GENERATION, INSTANCE), E.NONE),
    (stable, COMMIT, 8, commit(UNKNOWN, GENERATION, INSTANCE), E.FENCED_INSTANCE_ID),
    (stable, COMMIT, 8, commit(UNKNOWN, GENERATION), E.UNKNOWN_MEMBER_ID),
    (stable, COMMIT, 8, commit(LEADER, -1), E.ILLEGAL_GENERATION),
    (stable, COMMIT, 8, commit(LEADER, 7), E.ILLEGAL_GENERATION),
    (preparing, COMMIT, 8, commit(LEADER, GENERATION), E.NONE),
    (completing, COMMIT, 8, commit(LEADER, GENERATION), E.REBALANCE_IN_PROGRESS),
    (completing, COMMIT, 8, commit(LEADER, 7), E.ILLEGAL_GENERATION),
    # OffsetDelete: KafkaApis.handleOffsetDeleteRequest, ClassicGroup.validateOffsetDelete and isSubscribedToTopic
    (absent, OFFSET_DELETE, 0, remove(), E.GROUP_ID_NOT_FOUND),
    (absent, OFFSET_DELETE, 0, remove(group=""), E.INVALID_GROUP_ID),
    (empty, OFFSET_DELETE, 0, remove(), E.NONE),
    (empty, OFFSET_DELETE, 0, remove("t"), E.NONE),
    (empty, OFFSET_DELETE, 0, remove("x"), E.UNKNOWN_TOPIC_OR_PARTITION),
    (stable, OFFSET_DELETE, 0, remove(), E.NONE),
    (stable, OFFSET_DELETE, 0, remove("t"), E.GROUP_SUBSCRIBED_TO_TOPIC),
    (preparing, OFFSET_DELETE, 0, remove("t"), E.GROUP_SUBSCRIBED_TO_TOPIC),
    (completing, OFFSET_DELETE, 0, remove("t"), E.GROUP_SUBSCRIBED_TO_TOPIC),
    (connectors, OFFSET_DELETE, 0, remove(), E.NON_EMPTY_GROUP),
    # DeleteGroups: ClassicGroup.validateDeleteGroup
    (absent, DELETE, 2, DeleteGroupsRequest(["g"]), E.GROUP_ID_NOT_FOUND),
    (absent, DELETE, 2, DeleteGroupsRequest([""]), E.INVALID_GROUP_ID),
    (empty, DELETE, 2, DeleteGroupsRequest(["g"]), E.NONE),
    (stable, DELETE, 2, DeleteGroupsRequest(["g"]), E.NON_EMPTY_GROUP),
    (preparing, DELETE, 2, DeleteGroupsRequest(["g"]), E.NON_EMPTY_GROUP),
    (completing, DELETE, 2, DeleteGroupsRequest(["g"]), E.NON_EMPTY_GROUP),
    # DescribeGroups: GroupMetadataManager.describeGroups (KIP-1043 since version 6)
    (absent, DESCRIBE, 5, DescribeGroupsRequest(["g"]), E.NONE),
    (absent, DESCRIBE, 6, DescribeGroupsRequest(["g"]), E.GROUP_ID_NOT_FOUND),
    (empty, DESCRIBE, 6, DescribeGroupsRequest(["g"]), E.NONE),
    (stable, DESCRIBE, 6, DescribeGroupsRequest(["g"]), E.NONE),
]


@pytest.mark.parametrize(
    ("situation", "key", "version", "request_", "error"),
    [
        pytest.param(*row, id=f"{row[0].__name__}-{type(row[3]).__name__}{row[2]}-{row[4].name}-{number}")
        for number, row in enumerate(TABLE)
    ],
)
async def test_every_request_is_answered_as_kafka_does(
    situation: Situation, key: int, version: int, request_: msgspec.Struct, error: E
) -> None:
    assert await error_of(situation(), key, version, request_) == error


async def test_a_replaced_static_member_is_fenced_in_every_request() -> None:
    world = stable()
    assert await error_of(world, JOIN, 9, join("", INSTANCE)) == E.NONE
    for key, version, request in (
        (JOIN, 9, join(STATIC, INSTANCE)),
        (SYNC, 5, sync(STATIC, INSTANCE)),
        (HEARTBEAT, 4, beat(STATIC, INSTANCE)),
        (COMMIT, 8, commit(STATIC, GENERATION, INSTANCE)),
        (LEAVE, 5, leave(STATIC, INSTANCE)),
    ):
        assert await error_of(world, key, version, request) == E.FENCED_INSTANCE_ID


async def test_a_join_of_a_full_group_gets_no_member_id() -> None:
    answer = await ask(full().gateway, JOIN, 9, join("m-8"))
    assert (answer.error_code, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "m-8")
    pending = full()
    pending.state.groups["g"].pending["m-8"] = pending.now_ms + 10_000
    answer = await ask(pending.gateway, JOIN, 9, join("m-8"))
    assert (answer.error_code, answer.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")


async def test_an_unknown_group_is_named_in_its_error() -> None:
    (group,) = (await ask(absent().gateway, DESCRIBE, 6, DescribeGroupsRequest(["g"]))).groups
    assert (group.group_id, group.group_state, group.error_message) == ("g", "Dead", "Group g not found.")


async def test_offsets_that_were_committed_meanwhile_are_deleted_by_a_second_request() -> None:
    world = empty()
    assert await error_of(world, COMMIT, 8, commit()) == E.NONE
    world.gateway.sequencer.seen_sequence = world.state.sequence - 1
    assert await error_of(world, OFFSET_DELETE, 0, remove("t")) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert await error_of(world, OFFSET_DELETE, 0, remove("t")) == E.NONE
    assert not world.state.groups["g"].offsets


async def test_until_all_sequencers_can_delete_offsets_the_request_is_rejected_at_once() -> None:
    world = empty()
    world.gateway.sequencer.seen_level = OFFSET_EXPIRY_LEVEL - 1
    assert await error_of(world, OFFSET_DELETE, 0, remove()) == E.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("key", "request_"), [(OFFSET_DELETE, remove()), (LEAVE, leave(LEADER))])
async def test_without_sequencers_members_must_look_for_the_coordinator_again(
    key: int, request_: msgspec.Struct
) -> None:
    world = absent()
    world.gateway.sequencer.is_down = True
    version = 0 if key == OFFSET_DELETE else 5
    assert await error_of(world, key, version, request_) == E.COORDINATOR_NOT_AVAILABLE
