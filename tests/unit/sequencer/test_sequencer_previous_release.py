"""An upgrade: sequencers of this release continue the journal of the release before.

The recordings are in tests/fixtures; how they were made is in tests/testkit/loads/record_journal.py.
"""

import json
from pathlib import Path
from typing import Any

import crc32c
import msgspec
import pytest

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import (
    Command,
    CommitOffsets,
    CommitSegment,
    OffsetToCommit,
    RaiseLevel,
    RecordArchived,
    RecordSnapshot,
    Rejected,
    RemoveSegments,
    SegmentCommitted,
    TakeCustody,
)
from penstock.contracts.entries import GENESIS_HASH, Entry, decode_entry, encode_entry
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.storage.snapshot_format import FORMAT_VERSION, read_snapshot
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.loads.recorded_journal import read_entries, read_summary, replay, summary_of
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = sorted(FIXTURES.glob("journal-*"))
OLDEST = FIXTURES / "journal-0.1.0"
OLD_SNAPSHOT = FIXTURES / "snapshot-1"
SECOND_SNAPSHOT = FIXTURES / "snapshot-2"
GROUPS = FIXTURES / "groups-level-3"
GROUPS_STEP = 50  # entries from one checksum to the next
# The commands that 0.1.0 knew. A recording without one of them would prove nothing about it.
COMMANDS = {
    "Tick",
    "CommitSegment",
    "CreateTopic",
    "DeleteTopic",
    "CreatePartitions",
    "AllocateProducer",
    "JoinGroup",
    "SyncGroup",
    "LeaveGroup",
    "ExpireMember",
    "CommitOffsets",
    "DeleteGroup",
}

recorded = pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)


def test_there_is_a_recording_with_every_command_that_the_release_knew() -> None:
    entries = [decode_entry(data) for data in read_entries(OLDEST)]
    found = {type(command).__name__ for entry in entries for request in entry.requests for command in request}
    assert found == COMMANDS
    assert len({entry.author for entry in entries}) > 2, "several replicas, and several instances of them"


@recorded
def test_this_releases_machine_computes_the_same_state_from_the_entries(folder: Path) -> None:
    assert replay(read_entries(folder)) == read_summary(folder)


def test_consumer_groups_of_level_3_get_the_assignments_of_the_release_before() -> None:
    state = new_state()
    checksums = []
    for sequence, requests in enumerate(read_entries(GROUPS), 1):
        apply_entry(state, sequence, msgspec.msgpack.decode(requests, type=list[list[Command]]))
        if sequence % GROUPS_STEP == 0:
            checksums.append(crc32c.crc32c(msgspec.json.encode(partitions_of_members(state))))
    assert checksums == json.loads((GROUPS / "targets.json").read_text())


def partitions_of_members(state: State) -> list[Any]:
    """Each member's partitions and target; a target's topics in the order in which they are kept."""
    return [
        [
            group_id,
            [
                [name, member.epoch, in_order(member.assigned), in_order(member.target)]
                for name, member in sorted(group.consumer.members.items())
            ],
        ]
        for group_id, group in sorted(state.groups.items())
        if group.consumer is not None
    ]


def in_order(partitions: dict[TopicId, Any]) -> list[Any]:
    return [[topic_id.hex(), list(numbers)] for topic_id, numbers in partitions.items()]


def the_same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether the summaries of two states are equal, except for the time and the sequence."""
    reported: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return all(reported[key] == expected[key] for key in reported.keys() - {"sequence", "clock_ms"})


def fill(empty: SequencerRig, folder: Path) -> None:
    for data in read_entries(folder):
        empty.store.inject(data)


@recorded
@in_virtual_time
async def test_a_sequencer_replays_the_journal_to_the_same_hash_and_continues(folder: Path) -> None:
    async with rig() as one:
        fill(one, folder)
        expected = read_summary(folder)
        running = await one.start("a")
        replica = running.sequencer.replica
        behind = replica.applied_sequence - expected["sequence"]
        hashes = replica.snapshot(CLUSTER, behind + 1).hashes
        assert hashes[0].hex() == expected["hash"]
        assert the_same(summary_of(replica.state), expected)
        view = await one.client.query("metadata", MetadataQuery(0, None), MetadataView)
        assert [topic.name for topic in view.topics] == list(expected["topics"])
        await commits_go_on(one, expected)


async def commits_go_on(one: SequencerRig, expected: dict[str, Any]) -> None:
    """An idempotent producer of the old release sends its last batch again, and then the next one."""
    topic = expected["topics"]["orders"]
    topic_id = TopicId(bytes.fromhex(topic["id"]))
    [partition] = topic["partitions"][:1]
    producer_id, (epoch, last_sequence, _, recent) = next(iter(partition["producers"].items()))
    first, _, base_offset = recent[-3:]
    again = BatchMeta(100, last_sequence - first + 1, 0, int(producer_id), epoch, first, 0)
    following = BatchMeta(100, 1, 0, int(producer_id), epoch, last_sequence + 1, 0)
    now_ms = max(expected["clock_ms"], one.clock.now_ms())
    segment_id = new_segment_id(now_ms, one.entropy.take(10))
    runs = [BatchRun(topic_id, 0, 16, [again, following])]
    (outcome,) = await one.client.command([CommitSegment(now_ms, segment_id, 300, "f", "z", runs)], deadline_s=5)
    assert isinstance(outcome, SegmentCommitted), outcome
    duplicate, accepted = outcome.runs[0]
    assert (duplicate.base_offset, accepted.base_offset) == (base_offset, partition["high_watermark"])
    assert accepted.rejection == 0


@in_virtual_time
async def test_two_replicas_continue_the_old_journal_with_equal_states() -> None:
    async with rig() as both:
        fill(both, OLDEST)
        started = [await both.start(name) for name in ("a", "b")]
        for _ in range(5):
            (outcome,) = await both.client.command([both.create_topic(f"new-{_}")], deadline_s=5)
            assert not isinstance(outcome, Rejected)
        for running in started:
            await running.sequencer.replica.until_applied(both.store.last_sequence, 5)
        assert len({running.metric("chain_check") for running in started}) == 1


def state_behind_the_snapshot() -> State:
    """The state of the old snapshot, computed by this release from the journal and the later commands."""
    state = new_state()
    for sequence, data in enumerate(read_entries(OLDEST), 1):
        apply_entry(state, sequence, decode_entry(data).requests)
    now_ms = state.clock_ms + 1
    item = OffsetToCommit("orders", 0, 3, 1, "noted")
    entries: list[list[Command]] = [
        [TakeCustody(now_ms, "r")],
        [RecordArchived(now_ms + 1, "r", 5)],
        [RecordSnapshot(now_ms + 2, "r", 7), CommitOffsets(now_ms + 2, "assigned-by-hand", -1, "", None, [item])],
    ]
    for sequence, commands in enumerate(entries, state.sequence + 1):
        apply_entry(state, sequence, [[command] for command in commands])
    return state


def test_a_snapshot_of_the_first_format_is_read() -> None:
    data = (OLD_SNAPSHOT / "snapshot").read_bytes()
    assert int.from_bytes(data[8:10]) == 1 < FORMAT_VERSION
    state = read_snapshot(data).state
    assert json.loads(json.dumps(summary_of(state))) == json.loads((OLD_SNAPSHOT / "summary.json").read_text())
    assert state.custody.snapshots == [7]
    assert state.level == 0


def test_a_start_from_an_old_snapshot_gives_the_same_bytes_as_the_whole_journal() -> None:
    read = read_snapshot((OLD_SNAPSHOT / "snapshot").read_bytes()).state
    replayed = state_behind_the_snapshot()
    seen = read.sequence
    for offset in (8, 2, 8):
        command = OffsetToCommit("orders", 0, offset, 1, "")
        commit = CommitOffsets(read.clock_ms, "assigned-by-hand", -1, "", None, [command], seen)
        entry: list[list[Command]] = [[commit], [RaiseLevel(read.clock_ms, 1)]]
        outcomes = [apply_entry(state, state.sequence + 1, entry) for state in (read, replayed)]
        assert outcomes[0] == outcomes[1]
        assert encode_state(read) == encode_state(replayed)
    assert read.groups["assigned-by-hand"].offsets["orders"][0].offset == 2, "the last commit was late"


def test_a_snapshot_of_the_second_format_holds_the_state_that_the_whole_journal_gives() -> None:
    """Even after segments were removed, which the old format did not know."""
    data = (SECOND_SNAPSHOT / "snapshot").read_bytes()
    assert int.from_bytes(data[8:10]) == 2 < FORMAT_VERSION
    read, replayed = read_snapshot(data).state, new_state()
    for sequence, entry in enumerate(read_entries(SECOND_SNAPSHOT), 1):
        apply_entry(replayed, sequence, decode_entry(entry).requests)
    assert json.loads(json.dumps(summary_of(read))) == read_summary(SECOND_SNAPSHOT)
    assert encode_state(read) == encode_state(replayed)
    known = list(read.segments.all_ids())
    steps: list[Command] = [
        RaiseLevel(read.clock_ms, JANITOR_LEVEL),
        *(RemoveSegments(read.clock_ms, known[start::3]) for start in range(3)),
    ]
    for command in steps:
        outcomes = [apply_entry(state, state.sequence + 1, [[command]]) for state in (read, replayed)]
        assert outcomes[0] == outcomes[1]
        assert encode_state(read) == encode_state(replayed)
    assert 0 < len(read.segments) < len(known) / 10, "most segments were dead"


def entry_of_a_newer_release() -> bytes:
    """An entry of this release with an unknown command."""
    packed = encode_entry(Entry("x.1", "x", 0, GENESIS_HASH, []))
    fields = msgspec.msgpack.decode(packed[5:])
    fields[-1] = [[[99, 1_700_000_000_000]]]
    body = msgspec.msgpack.encode(fields)
    return packed[:1] + crc32c.crc32c(body).to_bytes(4) + body


@in_virtual_time
async def test_a_command_of_a_newer_release_halts_a_replica_and_is_not_skipped() -> None:
    async with rig() as one:
        one.store.inject(entry_of_a_newer_release())
        with pytest.raises(ExceptionGroup) as caught:
            await one.start("a")
        text = r"entry 1: journal entry that cannot be read: Invalid value 99.*\. Upgrade this replica: start"
        assert caught.group_contains(Halted, match=text)
