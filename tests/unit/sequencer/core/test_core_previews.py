"""Previews: a command that would be rejected is found without applying it, and only such a command."""

from collections import Counter
from typing import Any

import pytest

from penstock.contracts.commands import (
    Command,
    CommitOffsets,
    CommitTxnOffsets,
    GroupProtocol,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    PerItem,
    Rejected,
    SyncGroup,
    Tick,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.previews import PREVIEWS, preview
from penstock_sequencer.core.snapshot.codec import encode_state
from tests.unit.sequencer.core.core_walks import NEWEST_SEED, walk
from tests.unit.sequencer.core.core_world import START_MS, World, transaction_world

WALK_ENTRIES = 300
MAKES_A_GROUP = (CommitOffsets, CommitTxnOffsets)  # even if all of their offsets are rejected


def commands_of(seed: int) -> list[Command]:
    return [command for entry in walk(seed, WALK_ENTRIES) for request in entry for command in request]


def is_rejected(outcome: Any) -> bool:
    return isinstance(outcome, Rejected) or (isinstance(outcome, PerItem) and all(outcome.rejections))


@pytest.mark.parametrize("seed", [*range(6), NEWEST_SEED, NEWEST_SEED + 1])
def test_the_machine_gives_the_outcome_of_the_preview_and_changes_nothing(seed: int) -> None:
    world = World()
    for command in commands_of(seed):
        world.do(Tick(max(world.state.clock_ms, command.now_ms)))  # the deadlines that the command's time passes
        expected = preview(world.state, command)
        before = encode_state(world.state) if expected is not None else b""
        sequence, idle_groups = world.state.sequence, dict(world.state.idle_groups)
        outcome = world.do(command)
        if expected is None:
            continue
        assert outcome == expected, command
        if not isinstance(command, MAKES_A_GROUP):
            # The time since when a group is idle may be later. It only delays its removal.
            world.state.sequence, world.state.idle_groups = sequence, idle_groups
            assert encode_state(world.state) == before, command


def test_walks_reject_commands_of_each_kind_and_previews_find_most() -> None:
    """Otherwise the test above would test little."""
    found: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for seed in range(10):
        world = World()
        for command in commands_of(seed):
            world.do(Tick(max(world.state.clock_ms, command.now_ms)))
            expected = preview(world.state, command)
            if type(command) in PREVIEWS and is_rejected(world.do(command)):
                (missed if expected is None else found)[type(command).__name__] += 1
    for kind in ("JoinGroup", "SyncGroup", "LeaveGroup", "CommitOffsets", "CommitTxnOffsets", "AddPartitionsToTxn"):
        assert found[kind] > 10, kind
        assert found[kind] > missed[kind], kind


def joining(member_id: str = "", *, protocol: str = "range") -> JoinGroup:
    offered = [GroupProtocol(protocol, b"")]
    return JoinGroup(START_MS, "g", member_id, "new", None, False, "c", "h", 10_000, 10_000, "consumer", offered)


def syncing(member_id: str, generation: int, group_id: str = "g") -> SyncGroup:
    return SyncGroup(START_MS, group_id, generation, member_id, None, "consumer", "range", [])


def leaving(*member_ids: str, group_id: str = "g") -> LeaveGroup:
    return LeaveGroup(START_MS, group_id, [LeavingMember(each, None) for each in member_ids])


def test_strangers_and_old_generations_of_a_group_are_rejected() -> None:
    world = World()
    generation = world.classic.stable_group("m1", "m2")
    state = world.state
    unknown = Rejected(Rejection.UNKNOWN_MEMBER)
    assert preview(state, joining("stranger")) == unknown
    assert preview(state, joining(protocol="sticky")) == Rejected(Rejection.INCONSISTENT_PROTOCOL)
    assert preview(state, syncing("stranger", generation)) == unknown
    assert preview(state, syncing("m1", generation - 1)) == Rejected(Rejection.ILLEGAL_GENERATION)
    assert preview(state, syncing("m1", generation, "none")) == unknown
    assert preview(state, leaving("a", "b")) == PerItem([Rejection.UNKNOWN_MEMBER] * 2)
    assert preview(state, leaving("a", group_id="none")) == PerItem([Rejection.UNKNOWN_MEMBER])


def test_commands_of_members_are_not_rejected() -> None:
    world = World()
    generation = world.classic.stable_group("m1", "m2")
    for command in (joining(), joining("m1"), syncing("m1", generation), leaving("stranger", "m2")):
        assert preview(world.state, command) is None, command


def test_offsets_that_no_group_can_store_are_rejected() -> None:
    world = transaction_world()
    writer = world.transactions.init()
    unknown, long = OffsetToCommit("x", 0, 1, 0, ""), OffsetToCommit("t", 0, 1, 0, "m" * 4_097)
    rejections = PerItem([Rejection.UNKNOWN_TOPIC, Rejection.METADATA_TOO_LARGE])
    producer = (START_MS, writer.name, writer.producer_id, writer.epoch)
    assert preview(world.state, CommitOffsets(START_MS, "g", -1, "", None, [unknown, long])) == rejections
    txn_commit = CommitTxnOffsets(*producer, "g", -1, "", None, [unknown, long], adds=True)
    assert preview(world.state, txn_commit) == rejections
    good = OffsetToCommit("t", 0, 1, 0, "")
    assert preview(world.state, CommitOffsets(START_MS, "g", -1, "", None, [unknown, good])) is None
    assert preview(world.state, CommitOffsets(START_MS, "g", -1, "", None, [])) is None


def test_a_command_without_a_preview_is_journaled() -> None:
    assert preview(World().state, Tick(START_MS)) is None
