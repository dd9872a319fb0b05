"""Promises for commands with extreme values: an outcome for each, a state that is valid, and snapshots of it."""

from collections import Counter

import msgspec
import pytest

from penstock.contracts.batches import BatchMeta
from penstock.contracts.commands import CommandReply, CommitSegment, Rejected, SegmentCommitted
from penstock.contracts.messages import Advanced
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import INTEGER_MAX, OFFSET_MAX
from tests.unit.sequencer.core.core_extremes import ExtremeJournal
from tests.unit.sequencer.core.core_invariants import check_invariants
from tests.unit.sequencer.core.core_world import World, batch

ENTRIES = 150
SNAPSHOT_STEP = 10  # entries


def apply_and_check(seed: int, entries: int = ENTRIES) -> ExtremeJournal:
    journal = ExtremeJournal(seed)
    for number in range(entries):
        entry, (outcomes, effects) = journal.step()
        state = journal.state
        check_invariants(state)
        assert [len(each) for each in outcomes] == [len(each) for each in entry]
        for request in outcomes:
            msgspec.msgpack.decode(msgspec.msgpack.encode(CommandReply(state.sequence, request)), type=CommandReply)
        msgspec.msgpack.encode(Advanced(state.sequence, effects.partitions, effects.topics))
        if number % SNAPSHOT_STEP == 0:
            written = encode_state(state)
            read = decode_state(written)
            check_invariants(read)
            assert encode_state(read) == written
    return journal


@pytest.mark.parametrize("seed", range(40))
def test_extreme_commands_have_outcomes_and_lead_to_states_with_snapshots(seed: int) -> None:
    apply_and_check(seed)


def test_extreme_journals_fill_logs_and_have_commands_of_many_types() -> None:
    """Otherwise the promise above would test little."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        journal = ExtremeJournal(seed)
        for _ in range(ENTRIES):
            entry, (outcomes, _) = journal.step()
            for commands, answers in zip(entry, outcomes, strict=True):
                for command, outcome in zip(commands, answers, strict=True):
                    seen[type(command).__name__] += not isinstance(outcome, Rejected)
                    if isinstance(outcome, SegmentCommitted):
                        results = [each for run in outcome.runs for each in run]
                        seen["full"] += sum(each.rejection == Rejection.INVALID_REQUEST for each in results)
                        seen["last"] += sum(OFFSET_MAX - 2**32 < each.base_offset <= OFFSET_MAX for each in results)
    assert min(seen[each] for each in ("full", "last", "ShareRecords", "ReplaceExtents", "ConsumerHeartbeat")) > 50
    assert sum(count > 0 for count in seen.values()) > 30


def world_at(end: int) -> World:
    """A world with a topic of two empty partitions, the first of which ends at this offset."""
    world = World()
    world.topic(partitions=2)
    partition = world.partition()
    partition.log_start_offset = partition.high_watermark = end
    return world


def commit(world: World, *batches: BatchMeta) -> CommitSegment:
    """A segment with these batches for the first partition, and one more batch for the second."""
    return world.segment_command((1, 0, list(batches)), (1, 1, [batch()]))


@pytest.mark.parametrize("end", [OFFSET_MAX + 1, INTEGER_MAX, INTEGER_MAX + 1])
def test_a_full_log_rejects_its_batches_and_a_retry_gets_the_same_results(end: int) -> None:
    world = world_at(end)
    command = commit(world, batch(), batch(producer=world.producer(), epoch=0, sequence=0))
    first = world.do(command)
    assert [[each.rejection for each in run] for run in first.runs] == [[Rejection.INVALID_REQUEST] * 2, [0]]
    assert world.do(command) == first
    assert world.partition().high_watermark == end


def test_the_last_batches_of_a_log_keep_their_offsets_within_64_bits() -> None:
    world = world_at(OFFSET_MAX)
    command = commit(world, *[batch(records=2**31 - 1, length=1)] * 1_000)
    first = world.do(command)
    assert first.runs[0][0].base_offset == OFFSET_MAX
    assert first.runs[0][-1].base_offset == OFFSET_MAX + 999 * (2**31 - 1)
    assert world.do(command) == first
    assert world.do(commit(world, batch())).runs[0][0].rejection == Rejection.INVALID_REQUEST


def test_a_repeated_commit_with_impossible_numbers_is_rejected() -> None:
    world = world_at(0)
    command = commit(world, batch())
    world.do(command)
    run = msgspec.structs.replace(command.runs[0], batches=[batch(records=2**64 - 1)])
    other = world.do(msgspec.structs.replace(command, runs=[run, command.runs[1]]))
    assert other == Rejected(Rejection.INVALID_REQUEST, "the segment was committed with other batches")
