"""Commands that are too large for every group or transaction: the state machine gives them the same outcome."""

import pytest

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    CommitOffsets,
    CommitTxnOffsets,
    ConfigChange,
    ConfigOperation,
    DeleteGroup,
    DeleteOffsets,
    DeleteShareOffsets,
    EndTxn,
    GroupProtocol,
    InitTransactionalProducer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    PerItem,
    Rejected,
    ShareRecords,
    SyncGroup,
)
from penstock.contracts.commands.group_sizes import GROUP_SIZES, TRANSACTIONAL_ID_LENGTH_MAX, oversize
from penstock.contracts.rejections import Rejection
from tests.unit.sequencer.core.core_world import START_MS, transaction_world

LONG_GROUP = "g" * (GROUP_SIZES.group_id_length_max + 1)
LONG_NAME = "m" * (GROUP_SIZES.member_names_length_max + 1)
LONG_TRANSACTION = "t" * (TRANSACTIONAL_ID_LENGTH_MAX + 1)
FIRST_PRODUCER = ("tx", 1, 0)  # the one that the world starts
STRANGER = (LONG_TRANSACTION, 1, 0)


def join(*, group: str = "g", member: str = "", new: str = "m", protocols: int = 1, size_bytes: int = 1) -> JoinGroup:
    offered = [GroupProtocol(f"{number}", bytes(size_bytes)) for number in range(protocols)]
    times_ms = (10_000, 10_000)
    return JoinGroup(START_MS, group, member, new, None, False, "client", "host", *times_ms, "consumer", offered)


OVERSIZED = [
    join(group=LONG_GROUP),
    join(new=LONG_NAME),
    join(protocols=GROUP_SIZES.protocols_per_member_max + 1),
    join(size_bytes=GROUP_SIZES.member_bytes_max),
    join(member=LONG_NAME),
    SyncGroup(START_MS, LONG_GROUP, 1, "m", None, None, None, []),
    SyncGroup(START_MS, "g", 1, LONG_NAME, None, None, None, []),
    LeaveGroup(START_MS, LONG_GROUP, [LeavingMember("m", None), LeavingMember("n", None)]),
    CommitOffsets(START_MS, LONG_GROUP, -1, "", None, []),
    CommitOffsets(START_MS, "g", 1, LONG_NAME, None, []),
    DeleteGroup(START_MS, LONG_GROUP),
    DeleteOffsets(START_MS, LONG_GROUP, []),
    AddOffsetsToTxn(START_MS, *FIRST_PRODUCER, LONG_GROUP),
    CommitTxnOffsets(START_MS, *FIRST_PRODUCER, LONG_GROUP, -1, "", None, [], adds=True),
    ShareRecords(START_MS, LONG_GROUP, "m", []),
    AlterShareOffsets(START_MS, LONG_GROUP, []),
    DeleteShareOffsets(START_MS, LONG_GROUP, []),
    AlterGroupConfigs(START_MS, LONG_GROUP, [ConfigChange("share.isolation.level", ConfigOperation.DELETE, "")]),
    InitTransactionalProducer(START_MS, LONG_TRANSACTION, 1_000),
    AddPartitionsToTxn(START_MS, *STRANGER, []),
    AddOffsetsToTxn(START_MS, *STRANGER, "g"),
    CommitTxnOffsets(START_MS, *STRANGER, "g", -1, "", None, []),
    EndTxn(START_MS, *STRANGER, True),
]


def rejections(outcome: object) -> list[Rejection]:
    assert isinstance(outcome, Rejected | PerItem)
    return [outcome.rejection] if isinstance(outcome, Rejected) else outcome.rejections


@pytest.mark.parametrize("command", OVERSIZED, ids=[f"{place}" for place in range(len(OVERSIZED))])
def test_the_state_machine_rejects_an_oversized_command_for_the_same_reason(command: Command) -> None:
    world = transaction_world()
    world.transactions.init(FIRST_PRODUCER[0])
    world.do(join())
    assert rejections(world.do(command)) == rejections(oversize(command))


@pytest.mark.parametrize(
    "command",
    [
        join(size_bytes=GROUP_SIZES.member_bytes_max - 1),
        join(group=LONG_GROUP[1:], protocols=GROUP_SIZES.protocols_per_member_max),
        SyncGroup(START_MS, "g", 1, LONG_NAME[1:], None, None, None, []),
        CommitOffsets(START_MS, "g", -1, "", None, []),
        InitTransactionalProducer(START_MS, LONG_TRANSACTION[1:], 1_000),
        AddOffsetsToTxn(START_MS, *FIRST_PRODUCER, LONG_GROUP[1:]),
    ],
)
def test_a_command_at_the_limit_is_journaled(command: Command) -> None:
    assert oversize(command) is None
