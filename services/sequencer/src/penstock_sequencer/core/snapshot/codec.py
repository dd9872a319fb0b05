"""The codec of snapshots: the whole state as bytes, and back; replicas with the same entries write the same bytes.

Derived fields are not written, but computed anew: tables by other keys, the heap of alarms, counts of protocols. Dicts
are written and read in the order of their items, which the journal also determines. A partition that several tables
hold is written once, and the tables name it by its place.

The shapes are in `shapes.py`. docs/formats/snapshot.md describes the format.
"""

import struct
from array import array
from collections import deque
from collections.abc import Iterator
from heapq import heapify

import msgspec

from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import TopicId
from penstock_sequencer.core.groups.classic_group import count_protocols
from penstock_sequencer.core.log.partitions import enter_partition
from penstock_sequencer.core.log.segment_contents import fill_contents
from penstock_sequencer.core.snapshot import shapes as shapes
from penstock_sequencer.core.snapshot.migrations import NOTHING, read_later, without_owners, written_later
from penstock_sequencer.core.snapshot.transactions import enter_transaction, read_transaction, written_transaction
from penstock_sequencer.core.state.cluster import (
    Group,
    Partition,
    Producer,
    RecoverableTopic,
    RememberedCommit,
    State,
    Topic,
)
from penstock_sequencer.core.state.columns import column_bytes, read_column
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from penstock_sequencer.core.state.segments import Segments
from penstock_sequencer.core.topics.topics import metric_name
from penstock_sequencer.core.transactions.lifecycle import enter_deadlines

_STRAY = -1  # instead of the place of a topic: the partition is of a deleted topic

FRAGMENT_BYTES = 1024 * 1024
_FIXARRAY, _FIXARRAY_MAX = 0x90, 15
_ARRAY_16 = struct.Struct(">BH")
_ARRAY_32 = struct.Struct(">BI")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(shapes.WholeState)


def encode_state(state: State) -> bytes:
    """The canonical bytes of the state; a state that `decode_state` reads from them encodes to the same bytes."""
    return b"".join(encode_fragments(state))


def encode_fragments(state: State) -> Iterator[bytes]:
    """The bytes of `encode_state` in fragments, so that no caller needs memory for all of them.

    A fragment has about FRAGMENT_BYTES, or is one topic, one group, or one of the smaller parts.
    """
    fragment = bytearray()
    for part in _parts(state):
        fragment += part
        if len(fragment) >= FRAGMENT_BYTES:
            yield bytes(fragment)
            fragment.clear()
    yield bytes(fragment)


def _parts(state: State) -> Iterator[bytes]:
    """The fields of the state one after the other, and long lists item by item."""
    later = written_later(state)
    fields = shapes.State.__struct_fields__
    written = _written_state(state)
    lists: dict[str, tuple[int, Iterator[object]]] = {
        "topics": (len(state.topics), map(_written_topic, state.topics.values())),
        "groups": (len(state.groups), map(_written_group, state.groups.values())),
        "recoverable": (len(state.recoverable), map(_written_recoverable, state.recoverable.values())),
        "transactions": (len(state.transactions), map(written_transaction, state.transactions.values())),
    }
    yield _array_head(len(fields) + (later != NOTHING))
    for name in fields:
        if name in lists:
            count, items = lists[name]
            yield _array_head(count)
            yield from map(_encoder.encode, items)
        else:
            yield _encoder.encode(getattr(written, name))
    if later != NOTHING:
        yield _encoder.encode(later)


def _array_head(count: int) -> bytes:
    """The first bytes of a msgpack array of so many items."""
    if count <= _FIXARRAY_MAX:
        return bytes([_FIXARRAY | count])
    if count < 1 << 16:
        return _ARRAY_16.pack(0xDC, count)
    return _ARRAY_32.pack(0xDD, count)


def _written_state(state: State) -> shapes.State:
    """The fields of the state, without those that `_parts` writes item by item."""
    strays = _strays(state)
    places = _places(state)
    segments = state.segments
    return shapes.State(
        state.sequence,
        state.clock_ms,
        state.leader_epoch,
        bytes(segments.ids),
        segments.names,
        segments.columns(),
        [],
        state.deleted_topics,
        [shapes.Stray(partition.topic_id, _written(partition)) for partition, _ in strays.values()],
        [strays[id(partition)][1] for partition in state.pending_delete],
        state.partition_count,
        state.extent_count,
        {segment_id: _written_commit(commit) for segment_id, commit in state.commits.items()},
        state.next_producer_id,
        list(state.producer_births),
        state.producer_count,
        [_place(partition, places, strays) for partition in state.producer_sweep],
        [],
        state.group_bytes,
        state.idle_groups,
        sorted(state.deadlines.items()),
        state.custody,
        state.level,
        state.removed_sequence,
        state.replacements,
        state.leases,
        segments.next_number,
        [],
        [_place(partition, places, strays) for partition in state.trimmed],
        state.cluster_configs,
        column_bytes(state.tasks_ended_ms),
        state.task_leases,
        state.cluster_altered_sequence,
    )


def _strays(state: State) -> dict[int, tuple[Partition, int]]:
    """Partitions of deleted topics by object identity, each with its number."""
    strays: dict[int, tuple[Partition, int]] = {}
    for partition in (*state.pending_delete, *state.producer_sweep, *state.trimmed):
        if partition.deleted:
            strays.setdefault(id(partition), (partition, len(strays)))
    return strays


def _places(state: State) -> dict[TopicId, int]:
    return {topic_id: place for place, topic_id in enumerate((*state.topics_by_id, *state.recoverable))}


def _place(partition: Partition, places: dict[TopicId, int], strays: dict[int, tuple[Partition, int]]) -> shapes.Place:
    if partition.deleted:
        return _STRAY, strays[id(partition)][1]
    return places[partition.topic_id], partition.number


def _written_recoverable(each: RecoverableTopic) -> shapes.RecoverableTopic:
    return shapes.RecoverableTopic(
        _written_topic(each.topic), each.deleted_ms, each.until_ms, each.offsets, each.deleted_sequence
    )


def _written_topic(topic: Topic) -> shapes.Topic:
    partitions = [_written(each) for each in topic.partitions]
    return shapes.Topic(topic.name, topic.topic_id, topic.configs, partitions, topic.altered_sequence)


def _written(partition: Partition) -> shapes.Partition:
    producers = {
        producer_id: shapes.Producer(each.epoch, each.last_sequence, each.active_ms, column_bytes(each.recent))
        for producer_id, each in partition.producers.items()
    }
    ends = (partition.log_start_offset, partition.high_watermark)
    transactions = partition.transactions
    return shapes.Partition(
        partition.number,
        *ends,
        partition.in_sweep,
        partition.extents.columns(),
        producers,
        partition.cleaned_offset,
        partition.delete_horizon_ms,
        partition.pass_offset,
        partition.pass_horizon_ms,
        None if transactions is None else shapes.PartitionTransactions(transactions.open, transactions.columns()),
    )


def _written_commit(commit: RememberedCommit) -> shapes.Commit:
    return shapes.Commit(commit.expires_ms, commit.batches, column_bytes(commit.firsts), commit.exceptions)


def _written_group(group: Group) -> shapes.Group:
    return shapes.Group(
        group.group_id,
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        without_owners(group.members.values()),
        group.static_members,
        group.pending,
        list(group.fenced),
        group.offsets,
        group.join_deadline_ms,
        group.initial_delay_ms,
        group.initial_remaining_ms,
        group.newcomer,
        group.sync_deadline_ms,
    )


def decode_state(data: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> State:
    """The state that these bytes hold, with these limits; `Corrupt` if the bytes are no state."""
    try:
        return _read(_decoder.decode(data), limits)
    except (msgspec.DecodeError, ValueError, LookupError) as error:
        raise Corrupt(f"a state that cannot be read: {error}") from error


def _read(written: shapes.WholeState, limits: Limits) -> State:
    topics = [_read_topic(each) for each in written.topics]
    recoverable = [_read_recoverable(each) for each in written.recoverable]
    kept = [*topics, *(each.topic for each in recoverable)]
    strays = [_read_partition(each.topic_id, each.partition, deleted=True) for each in written.strays]

    def find(place: int, number: int) -> Partition:
        return strays[number] if place == _STRAY else kept[place].partitions[number]

    deadlines = dict(written.deadlines)
    alarms = [(deadline_ms, group_id) for group_id, deadline_ms in written.deadlines]
    heapify(alarms)
    state = State(
        segments=_read_segments(written),
        sequence=written.sequence,
        clock_ms=written.clock_ms,
        leader_epoch=written.leader_epoch,
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        topics_by_metric_name={metric_name(topic.name): topic for topic in topics},
        deleted_topics=written.deleted_topics,
        pending_delete=deque(strays[number] for number in written.pending_delete),
        partition_count=written.partition_count,
        extent_count=written.extent_count,
        commits={segment_id: _read_commit(each) for segment_id, each in written.commits.items()},
        next_producer_id=written.next_producer_id,
        producer_births=deque(written.producer_births),
        producer_count=written.producer_count,
        producer_sweep=deque(find(*place) for place in written.producer_sweep),
        groups={group.group_id: _read_group(group) for group in written.groups},
        group_bytes=written.group_bytes,
        idle_groups=written.idle_groups,
        deadlines=deadlines,
        alarms=alarms,
        custody=written.custody,
        level=written.level,
        removed_sequence=written.removed_sequence,
        replacements=written.replacements,
        leases=written.leases,
        leased={segment_id: job_id for job_id, lease in written.leases.items() for segment_id in lease.segment_ids},
        recoverable={each.topic.topic_id: each for each in recoverable},
        trimmed=deque(find(*place) for place in written.trimmed),
        cluster_configs=written.cluster_configs,
        tasks_ended_ms=_numbers(written.tasks_ended_ms),
        task_leases=written.task_leases,
        cluster_altered_sequence=written.cluster_altered_sequence,
        limits=limits,
    )
    for each in written.transactions:
        enter_transaction(state, read_transaction(each))
    enter_deadlines(state)
    for topic in kept:
        for partition in topic.partitions:
            enter_partition(state, partition)
            if partition.transactions is not None:
                state.aborted_count += partition.transactions.aborted_count
    for partition in state.trimmed:
        partition.in_trimmed = True
    # The contents of segments need the partitions' indexes, and the later parts need groups and topics.
    fill_contents(state)
    read_later(state, written.later)
    state.member_bytes = sum(each.member_bytes for each in state.principals.values())
    return state


def _read_segments(written: shapes.State) -> Segments:
    columns = (written.segment_ids, written.segment_names, written.segment_columns)
    return Segments.of_columns(*columns, written.next_segment_number, level=written.level)


def _read_recoverable(recoverable: shapes.RecoverableTopic) -> RecoverableTopic:
    topic = _read_topic(recoverable.topic)
    return RecoverableTopic(
        topic, recoverable.deleted_ms, recoverable.until_ms, recoverable.offsets, recoverable.deleted_sequence
    )


def _read_topic(topic: shapes.Topic) -> Topic:
    partitions = [_read_partition(topic.topic_id, each, deleted=False) for each in topic.partitions]
    return Topic(topic.name, topic.topic_id, partitions, topic.configs, topic.altered_sequence)


def _read_partition(topic_id: TopicId, partition: shapes.Partition, *, deleted: bool) -> Partition:
    producers = {
        producer_id: Producer(each.epoch, each.last_sequence, each.active_ms, _numbers(each.recent))
        for producer_id, each in partition.producers.items()
    }
    extents = Extents.of_columns(partition.extents)
    ends = (partition.log_start_offset, partition.high_watermark)
    return Partition(
        topic_id,
        partition.number,
        extents,
        producers,
        *ends,
        partition.in_sweep,
        deleted,
        cleaned_offset=partition.cleaned_offset,
        delete_horizon_ms=partition.delete_horizon_ms,
        pass_offset=partition.pass_offset,
        pass_horizon_ms=partition.pass_horizon_ms,
        size_bytes=sum(extents.lengths),
        transactions=_read_partition_transactions(partition.transactions),
    )


def _read_partition_transactions(written: shapes.PartitionTransactions | None) -> PartitionTransactions | None:
    return None if written is None else PartitionTransactions.of_columns(written.open, written.columns)


def _read_commit(commit: shapes.Commit) -> RememberedCommit:
    return RememberedCommit(commit.expires_ms, commit.batches, _numbers(commit.firsts), commit.exceptions)


def _read_group(written: shapes.Group) -> Group:
    group = Group(
        group_id=written.group_id,
        state=written.state,
        generation=written.generation,
        protocol_type=written.protocol_type,
        protocol=written.protocol,
        leader=written.leader,
        members={member.member_id: member for member in written.members},
        static_members=written.static_members,
        protocol_counts={},
        pending=written.pending,
        fenced=dict.fromkeys(written.fenced),
        offsets=written.offsets,
        join_deadline_ms=written.join_deadline_ms,
        initial_delay_ms=written.initial_delay_ms,
        initial_remaining_ms=written.initial_remaining_ms,
        newcomer=written.newcomer,
        sync_deadline_ms=written.sync_deadline_ms,
    )
    for member in written.members:
        count_protocols(group, member, 1)
    return group


def _numbers(data: bytes) -> "array[int]":
    column = array("q")
    read_column(column, data)
    return column
