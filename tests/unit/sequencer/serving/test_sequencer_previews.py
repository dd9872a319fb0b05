"""Large commands that the state rejects: they are answered, and take no room in the journal."""

from penstock.contracts.commands import (
    Command,
    CommitOffsets,
    CommitTxnOffsets,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetToCommit,
    Outcome,
    PerItem,
    Rejected,
    SyncGroup,
    Waiting,
)
from penstock.contracts.rejections import Rejection
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import SequencerRig, rig

LARGE = "x" * 60  # in each of many items
ITEMS = 1_000


def syncing(one: SequencerRig, member_id: str) -> SyncGroup:
    assignments = [MemberAssignment(f"{number}", LARGE.encode()) for number in range(ITEMS)]
    return SyncGroup(one.clock.now_ms(), "g", 1, member_id, None, "consumer", "range", assignments)


def leaving(one: SequencerRig) -> LeaveGroup:
    members = [LeavingMember(f"{LARGE}{number}", None) for number in range(ITEMS)]
    return LeaveGroup(one.clock.now_ms(), "g", members)


def offsets(topic: str) -> list[OffsetToCommit]:
    return [OffsetToCommit(topic, number, 1, 0, LARGE) for number in range(ITEMS)]


def rejection(outcome: Outcome) -> list[Rejection]:
    assert isinstance(outcome, Rejected | PerItem), outcome
    return list(dict.fromkeys([outcome.rejection] if isinstance(outcome, Rejected) else outcome.rejections))


def large_commands(one: SequencerRig) -> list[tuple[Command, Rejection]]:
    now_ms = one.clock.now_ms()
    return [
        (syncing(one, "stranger"), Rejection.UNKNOWN_MEMBER),
        (leaving(one), Rejection.UNKNOWN_MEMBER),
        (CommitOffsets(now_ms, "g", 7, "stranger", None, offsets("t")), Rejection.UNKNOWN_MEMBER),
        (CommitOffsets(now_ms, "other", -1, "", None, offsets("none")), Rejection.UNKNOWN_TOPIC),
        (
            CommitTxnOffsets(now_ms, "tx", 1, 0, "g", -1, "", None, offsets("t")),
            Rejection.INVALID_PRODUCER_MAPPING,
        ),
    ]


@in_virtual_time
async def test_large_commands_of_strangers_are_not_journaled() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t"), one.join("g", "m1")], deadline_s=5)
        entries = len(one.entries())
        for command, expected in large_commands(one):
            (outcome,) = await one.client.command([command], deadline_s=5)
            assert rejection(outcome) == [expected], type(command)
        assert not [each for entry in one.entries()[entries:] for request in entry.requests for each in request]


@in_virtual_time
async def test_a_request_with_one_accepted_command_is_journaled_as_a_whole() -> None:
    async with rig("a") as one:
        rejected, joined = await one.client.command([syncing(one, "stranger"), one.join("g", "m1")], deadline_s=5)
        assert rejection(rejected) == [Rejection.UNKNOWN_MEMBER]
        assert isinstance(joined, Waiting)
        (entry,) = [entry for entry in one.entries() if any(isinstance(each, JoinGroup) for each in entry.requests[0])]
        assert [type(each) for each in entry.requests[0]] == [SyncGroup, JoinGroup]
