"""What a gateway says it knew when it was asked, so that what arrives late undoes nothing newer."""

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
NEWER = 45  # the entry that stored what is there


def world_with_newer_offsets() -> World:
    """Sequencers that refuse whoever has not seen the newest entry, and whose answers tell of it."""
    world = new_world()

    def judge(command: Command) -> Outcome:
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

    world.sequencer.on_command = judge
    world.sequencer.record_sequence(NEWER - 1)
    return world


async def commit(world: World, offset: int) -> int:
    topics = [OffsetCommitRequestTopic("a", [OffsetCommitRequestPartition(0, offset)])]
    response = await ask(world, COMMIT, 8, OffsetCommitRequest("g", 4, "m-1", topics=topics))
    code: int = response.topics[0].partitions[0].error_code
    return code


async def test_who_commits_without_knowing_what_is_stored_is_told_to_ask_again_and_then_may() -> None:
    world = world_with_newer_offsets()
    assert await commit(world, 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(world.sequencer.commands) == 1, "whether the client still waits, only the client knows"
    assert await commit(world, 5) == ErrorCode.NONE
    (first,), (second,) = world.sequencer.commands
    assert isinstance(first, CommitOffsets)
    assert isinstance(second, CommitOffsets)
    assert (first.seen_sequence, second.seen_sequence) == (NEWER - 1, NEWER + 1)


async def test_who_deletes_a_group_without_knowing_its_newest_offsets_is_told_to_ask_again_and_then_may() -> None:
    world = world_with_newer_offsets()
    for expected in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE):
        response = await ask(world, DELETE, 2, DeleteGroupsRequest(["g"]))
        assert [each.error_code for each in response.results] == [expected]


async def test_who_takes_a_static_members_place_without_knowing_of_it_is_told_to_ask_again_and_then_may() -> None:
    world = world_with_newer_offsets()
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest("g", 10_000, 10_000, "", "i", "consumer", protocols)
    answers = [await ask(world, JOIN, 9, request) for _ in range(2)]
    assert [each.error_code for each in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]


async def test_who_has_an_instance_leave_without_knowing_it_is_told_to_ask_again_and_then_may() -> None:
    world = world_with_newer_offsets()
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity("", "i")])
    answers = [await ask(world, LEAVE, 5, request) for _ in range(2)]
    assert [each.error_code for each in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
