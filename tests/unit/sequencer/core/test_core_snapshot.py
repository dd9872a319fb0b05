"""A state that was written and read has the same bytes, the same answers and the same later states."""

import hashlib
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DeleteTopic,
    EndTaskLease,
    LeaseJob,
    LogOffset,
    RaiseLevel,
    RecordArchived,
    RecordSnapshot,
    RemoveSegments,
    TakeCustody,
    TakeTaskLease,
    Tick,
)
from penstock.contracts.errors import Corrupt
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL, JANITOR_LEVEL
from penstock.contracts.regex.regex_subscriptions import Pattern
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import Partition, State, new_state
from penstock_sequencer.core.state.columns import IS_BIG_ENDIAN, column_bytes, read_column, read_columns
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, LogLimits
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from tests.unit.sequencer.core.core_strategies import Log, logs
from tests.unit.sequencer.core.core_walks import SEEDS, walk
from tests.unit.sequencer.core.core_world import START_MS, World, batch, check_invariants, topic_id

any_log = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
any_walk = pytest.mark.parametrize("seed", SEEDS)
WALK_ENTRIES = 300
# Of `a_bit_of_everything`. If it changes, so has the format: give it another version (docs/formats/snapshot.md).
GOLDEN = "c6864bbe17d6a8254fc367b6ce52ed6b88d1e89e55610e9087681bcba326bfe3"


SLOW = Limits(log=LogLimits(extents_dropped_per_command_max=2))  # so that many extents wait to be dropped


VALID_IN_ONE_PROCESS = ("index", "next_index", "partitions_by_index")


def replay(state: State, first: int, log: Log) -> list[Any]:
    return [apply_entry(state, sequence, entry) for sequence, entry in enumerate(log, first)]


def read_again(state: State) -> State:
    return decode_state(encode_state(state), state.limits)


def plain(value: Any) -> Any:
    """All of a state by value; a partition that several tables share has the same number in each of them."""
    numbers: dict[int, int] = {}

    def walk_in(value: Any) -> Any:
        if isinstance(value, Partition):
            if id(value) in numbers:
                return ("partition", numbers[id(value)])
            numbers[id(value)] = len(numbers)
        if isinstance(value, msgspec.Struct):
            return {
                name: walk_in(getattr(value, name))
                for name in value.__struct_fields__
                if name not in VALID_IN_ONE_PROCESS
            }
        if isinstance(value, dict):
            return [(walk_in(key), walk_in(each)) for key, each in value.items()]
        if isinstance(value, list | tuple) or type(value).__name__ == "deque":
            return [walk_in(each) for each in value]
        if isinstance(value, Pattern):
            return "compiled"  # from the text, which is its key
        if isinstance(value, PartitionTransactions):
            return [walk_in(value.open), value.columns()]
        if type(value).__name__ == "Extents":
            return value.columns()
        if type(value).__name__ == "Segments":
            derived = [value.by_number, value.by_id, value.dead, sorted(value.free), value.next_number]
            totals = [value.size_bytes_total, value.live_bytes_total, value.dead_count, value.dead_size_bytes]
            return [value.ids, value.names, value.name_numbers, value.columns(), derived, totals]
        return value

    return walk_in(value)


def in_order(rows: list[Any]) -> list[Any]:
    """The rows of a table by their keys, and so the rows of the tables in it."""
    return sorted((key, in_order(each) if isinstance(each, list) else each) for key, each in rows)


def everything(state: State) -> Any:
    """All of the state, except meaningless differences: the order of derived tables and counts, and stale alarms.

    The indexes of partitions are valid in one process only. The invariants check them.
    """
    found = plain(state)
    del found["first_expiry_ms"]  # only a lower bound
    found["deadlines"] = sorted(state.deadlines.items())
    found["ongoing"] = found["transaction_alarms"] = sorted(state.ongoing)
    found["transactions_by_producer"] = sorted(state.transactions_by_producer)
    by_group = state.transactions_by_group.items()
    found["transactions_by_group"] = sorted((group_id, *sorted(known)) for group_id, known in by_group)
    subscribed = state.subscriptions.groups_by_topic.items()
    found["subscriptions"]["groups_by_topic"] = sorted((name, sorted(groups.items())) for name, groups in subscribed)
    found["share_topics"] = sorted((topic, sorted(groups)) for topic, groups in state.share_topics.items())
    found["alarms"] = sorted({each for each in state.alarms if state.deadlines.get(each[1]) == each[0]})
    for (_, written), group in zip(found["groups"], state.groups.values(), strict=True):
        written["protocol_counts"] = sorted(group.protocol_counts.items())
        if group.streams is not None:
            tables = written["streams"]["tables"]
            del tables["configured"]  # computed when it is needed
            written["streams"]["tables"] = {name: in_order(rows) for name, rows in tables.items()}
    for log in (*found["pending_delete"], *found["producer_sweep"], *found["trimmed"]):
        if isinstance(log, dict) and log["deleted"]:
            del log["first_new_producer_id"]  # no producer writes to a deleted log
    return found


@any_walk
def test_a_state_that_was_written_and_read_is_the_same(seed: int) -> None:
    state = new_state(SLOW)
    replay(state, 1, walk(seed, WALK_ENTRIES, SLOW))
    again = read_again(state)
    assert everything(again) == everything(state)
    assert encode_state(again) == encode_state(state)
    check_invariants(again)


@any_walk
def test_a_snapshot_and_the_entries_after_it_lead_to_the_state_of_the_whole_journal(seed: int) -> None:
    log = walk(seed, WALK_ENTRIES, SLOW)
    whole = new_state(SLOW)
    answers = replay(whole, 1, log)
    for cut in (0, 1, seed * 9 + 5, WALK_ENTRIES - 1):
        state = new_state(SLOW)
        replay(state, 1, log[:cut])
        state = read_again(state)
        assert replay(state, cut + 1, log[cut:]) == answers[cut:]
        assert encode_state(state) == encode_state(whole)
        assert everything(state) == everything(whole)


@any_log
@given(logs, st.data())
def test_a_snapshot_may_be_taken_after_any_entry_of_any_log(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    whole, state = new_state(), new_state()
    answers = replay(whole, 1, log)
    replay(state, 1, log[:cut])
    state = read_again(state)
    assert replay(state, cut + 1, log[cut:]) == answers[cut:]
    assert everything(state) == everything(whole)


def test_a_subscription_by_pattern_is_restored_with_its_topics() -> None:
    world = World()
    world.do(RaiseLevel(world.now_ms, CONSUMER_GROUPS_LEVEL))
    world.topic("orders")
    world.consumers.join("a", pattern="ord.*", topics=None)
    again = read_again(world.state)
    assert list(again.subscriptions.patterns["ord.*"].topics) == ["orders"]
    assert everything(again) == everything(world.state)


def test_partitions_of_deleted_topics_are_restored_in_every_table_that_holds_them() -> None:
    world = World()
    world.topic("t")
    producer = world.producer()
    world.produce(batch(producer=producer, epoch=0, sequence=0))
    extents = world.state.topics["t"].partitions[0].extents
    for _ in range(2 * DEFAULT_LIMITS.log.extents_dropped_per_step_max):
        extents.append(extents.last_offsets[-1] + 1, extents.last_offsets[-1] + 1, 0, 0, 1, START_MS)
    many = len(extents) - 1
    world.state.topics["t"].partitions[0].high_watermark += many
    world.state.topics["t"].partitions[0].size_bytes += many
    world.state.segments.gain(0, many, many)
    world.state.extent_count += many
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.topic("u", number=2)
    assert len(world.state.pending_delete) == len(world.state.producer_sweep) == 1
    world.state = read_again(world.state)
    assert world.state.pending_delete[0] is world.state.producer_sweep[0]
    world.do(Tick(world.now_ms))
    world.do(Tick(world.now_ms))
    assert not world.state.pending_delete
    assert not world.state.producer_sweep
    assert world.state.extent_count == 0


def test_a_log_deleted_while_it_was_trimmed_is_restored_even_without_extents() -> None:
    world = World(Limits(log=LogLimits(extents_dropped_per_command_max=1)))
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.topic("t")
    for _ in range(6):
        world.produce(batch(10, 100))
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 55)]))
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    while world.state.pending_delete:
        world.do(Tick(world.now_ms))
    assert len(world.state.trimmed) == 1
    assert everything(read_again(world.state)) == everything(world.state)


WRITE = """
import hashlib
from tests.unit.sequencer.core.core_walks import walk
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
state = new_state()
for sequence, entry in enumerate(walk(7, 500), 1):
    if sequence % 100 == 0:
        state = decode_state(encode_state(state))
    apply_entry(state, sequence, entry)
print(hashlib.sha256(encode_state(state)).hexdigest())
"""


def test_replicas_with_different_hash_seeds_and_snapshots_have_the_same_bytes() -> None:
    state = new_state()
    replay(state, 1, walk(7, 500))
    digests = {hashlib.sha256(encode_state(state)).hexdigest()}
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[4])}
        run = subprocess.run([sys.executable, "-c", WRITE], env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout.strip())
    assert len(digests) == 1


def a_bit_of_everything() -> State:
    """A state in which no table is empty."""
    world = World(SLOW)
    world.do(RaiseLevel(world.now_ms, 1))
    world.do(TakeCustody(world.now_ms, "r1"))
    world.topic("t", 2)
    world.topic("gone", number=2, **{"retention.ms": "1000"})
    producer = world.producer()
    segment = world.segment_command(
        (1, 0, [batch(producer=producer, epoch=0, sequence=0), batch(), batch(producer=producer, epoch=0, sequence=9)]),
        (2, 0, [batch(producer=producer, epoch=0, sequence=0)]),
    )
    world.do(segment)
    world.classic.stable_group("m1", "m2")
    world.classic.join("m3", instance="i", require_known_member=True)
    world.commit_offset(metadata="said", member_id="m1", generation=1)
    world.do(DeleteTopic(world.now_ms, "gone", bytes(16)))
    world.do(RecordArchived(world.now_ms, "r1", 3))
    world.do(RecordSnapshot(world.now_ms, "r1", 4))
    world.produce(batch(3, 200))
    late = world.job((1, 0, 1, 2))
    world.do(world.job((1, 0, 0, 1), (1, 0, 1, 2), cleaned=True, delete_horizon_ms=START_MS + 9_000))
    world.do(late)
    world.do(world.job((1, 0, 0, 1), level=2, cleaned=True))
    world.produce(batch(1, 70), partition=1)
    world.do(LeaseJob(world.now_ms, "j", "c1", [world.state.segments.id(row) for row in (1, 3)], 60_000))
    janitors_work(world)
    transactions(world)
    return world.state


def janitors_work(world: World) -> None:
    """Add deleted topics, logs that begin after their first extents, free slots, and task leases."""
    state = world.state
    world.do(RaiseLevel(world.now_ms, 2))
    world.do(AlterConfigs(world.now_ms, "", [ConfigChange("log.retention.ms", ConfigOperation.SET, "60000")]))
    world.do(AlterConfigs(world.now_ms, "t", [ConfigChange("retention.bytes", ConfigOperation.SET, "9")]))
    window = {"penstock.undelete.window.ms": "60000"}
    for number, configs in ((3, {}), (4, window), (5, {})):
        world.topic(f"t{number}", number=number, **configs)
        producer = world.producer()
        for sequence in range(4):
            world.produce(batch(producer=producer, epoch=0, sequence=sequence), number=number)
    world.commit_offset(topic="t4", member_id="m1", generation=1)
    for number in (4, 5):
        world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(number), 0, 3)]))
    for name in ("t3", "t4"):
        world.do(DeleteTopic(world.now_ms, name, bytes(16)))
    world.do(RemoveSegments(world.now_ms, [state.segments.id(slot) for slot in state.segments.dead[:2]]))
    for holder in ("a", "b"):
        world.do(TakeTaskLease(world.now_ms, holder, 0, 5, 60_000, 60_000))
    world.do(EndTaskLease(world.now_ms, "a", 0, done=True))
    assert state.pending_delete, "some extents of the deleted topic wait to be dropped"
    assert [each.topic_id for each in state.trimmed] == [topic_id(4), topic_id(5)]
    assert list(state.recoverable[topic_id(4)].offsets) == ["g"]
    assert state.segments.free
    assert state.segments.dead
    assert (state.task_leases.keys(), state.tasks_ended_ms[0]) == ({1}, world.now_ms)


def transactions(world: World) -> None:
    """Add open, committed and aborted transactions, with markers, pending offsets, and a recoverable topic."""
    world.do(RaiseLevel(world.now_ms, 3))
    world.topic("t6", 2, number=6, **{"penstock.undelete.window.ms": "60000"})
    world.topic("t7", 2, number=7)
    first, second, third = (world.transactions.init(name) for name in ("first", "second", "third"))
    for number in (6, 7):
        for writer in (first, second):
            world.transactions.add(writer, 0, 1, number=number)
            world.transactions.write(writer, number=number)
    world.transactions.end(first, committed=False)
    world.transactions.end(second)
    world.transactions.write(third, number=6, adds=True)
    world.do(DeleteTopic(world.now_ms, "t6", bytes(16)))
    world.transactions.adopt(third, world.transactions.end(third, bumps=True))
    world.transactions.write(third, number=7, adds=True)
    world.transactions.commit_txn_offset(third, topic="t7", group_id="later", adds=True)
    assert list(world.state.ongoing) == ["third"]


def test_the_format_matches_its_version() -> None:
    again = read_again(a_bit_of_everything())
    check_invariants(again)
    assert everything(again) == everything(a_bit_of_everything())
    assert hashlib.sha256(encode_state(a_bit_of_everything())).hexdigest() == GOLDEN


def test_columns_are_little_endian_on_every_machine() -> None:
    numbers = array("q", [1, -2, 2**40])
    assert column_bytes(numbers) == b"".join(each.to_bytes(8, "little", signed=True) for each in numbers)
    # A machine with the other byte order holds the same numbers as the reversed bytes.
    other = not IS_BIG_ENDIAN
    reversed_numbers = array("q", numbers)
    reversed_numbers.byteswap()
    data = column_bytes(reversed_numbers, is_big_endian=other)
    assert data == b"".join(each.to_bytes(8, "little", signed=True) for each in numbers)
    read: array[int] = array("q")
    read_column(read, data, is_big_endian=other)
    assert read == reversed_numbers


def test_bytes_that_are_no_state_are_corrupt() -> None:
    world = World()
    world.topic("t")
    world.produce(batch())
    whole = encode_state(world.state)
    for data in (b"", b"\x00", whole[:-1], whole[:100], whole.replace(b"\xc4\x08", b"\xc4\x09", 1)):
        with pytest.raises(Corrupt, match="a state that cannot be read"):
            decode_state(data)


def test_columns_that_do_not_belong_together_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"columns of \[1, 2\] rows"):
        read_columns([array("q"), array("I")], [bytes(8), bytes(8)])
    with pytest.raises(ValueError, match="argument"):
        read_columns([array("q"), array("I")], [bytes(8)])
