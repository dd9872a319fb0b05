"""The sequence that a gateway had seen when a request came, so that late commands do not undo newer ones."""

from penstock.contracts.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    Done,
    Joined,
    JoinGroup,
    LeaveGroup,
    Outcome,
    PerItem,
    Rejected,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.delete_groups import DeleteGroupsRequest
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.kafkawire.api.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

COMMIT, JOIN, LEAVE, DELETE = 8, 11, 13, 42
NEWER = 45  # the entry with the present state


def world_with_newer_offsets() -> World:
    """Sequencers that reject commands of gateways that have not seen the newest entry; their answers name it."""
    world = new_world()

    def outcome_of(command: Command) -> Outcome:
        assert isinstance(command, CommitOffsets | DeleteGroup | JoinGroup | LeaveGroup)
        world.sequencer.record_sequence(NEWER + 1)
        is_stale = command.seen_sequence < NEWER
        if isinstance(command, CommitOffsets):
            return PerItem([Rejection.STALE if is_stale else Rejection.NONE] * len(command.offsets))
        if is_stale:
            return Rejected(Rejection.STALE)
        if isinstance(command, LeaveGroup):
            return PerItem([Rejection.NONE])
        return Joined(1, "consumer", "range", "i-1", "i-1", []) if isinstance(command, JoinGroup) else Done()

    world.sequencer.on_command = outcome_of
    world.sequencer.record_sequence(NEWER - 1)
    return world


async def commit(world: World, offset: int) -> int:
    topics = [OffsetCommitRequestTopic("a", partitions=[OffsetCommitRequestPartition(0, offset)])]
    response = await ask(world, COMMIT, 8, OffsetCommitRequest("g", 4, "m-1", topics=topics))
    code: int = response.topics[0].partitions[0].error_code
    return code


async def test_a_commit_without_the_newest_entry_is_retriable_and_the_second_one_succeeds() -> None:
    world = world_with_newer_offsets()
    assert await commit(world, 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(world.sequencer.commands) == 1, "the gateway retried, although the client may have given up"
    assert await commit(world, 5) == ErrorCode.NONE
    (first,), (second,) = world.sequencer.commands
    assert isinstance(first, CommitOffsets)
    assert isinstance(second, CommitOffsets)
    assert (first.seen_sequence, second.seen_sequence) == (NEWER - 1, NEWER + 1)


async def test_a_group_deletion_without_the_newest_entry_is_retriable_and_the_second_one_succeeds() -> None:
    world = world_with_newer_offsets()
    for expected in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE):
        response = await ask(world, DELETE, 2, DeleteGroupsRequest(["g"]))
        assert [each.error_code for each in response.results] == [expected]


async def test_a_static_join_without_the_newest_entry_is_retriable_and_the_second_one_succeeds() -> None:
    world = world_with_newer_offsets()
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest("g", 10_000, 10_000, "", "i", "consumer", protocols)
    answers = [await ask(world, JOIN, 9, request) for _ in range(2)]
    assert [each.error_code for each in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]


async def test_the_leave_of_an_instance_without_the_newest_entry_is_retriable_and_the_second_one_succeeds() -> None:
    world = world_with_newer_offsets()
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity("", "i")])
    answers = [await ask(world, LEAVE, 5, request) for _ in range(2)]
    assert [each.error_code for each in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
