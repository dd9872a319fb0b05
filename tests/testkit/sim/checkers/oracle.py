"""Compares the answers to clients with the journal, whose entries it reads as they are stored.

The oracle builds a log of each partition from accepted commits only. It also checks the state machine: offsets are
dense, each sequence number is accepted once and in order, and each committed object is in the store.
"""

from collections.abc import Callable

from penstock.contracts.batches import NO_PRODUCER, BatchMeta, BatchResult
from penstock.contracts.commands import Command, CommitOffsets, CommitSegment, Outcome, PerItem, SegmentCommitted
from penstock.contracts.entries import decode_entry
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.levels import LATE_COMMANDS_LEVEL, NEWEST_LEVEL
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import BatchHeader, batches, size_bytes
from penstock.segment.keys import segment_key
from penstock_sequencer.core import machine
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import Limits
from penstock_sequencer.core.state.segments import MARKERS
from tests.testkit.sim.checkers.marker_checker import LogKey, MarkerChecker
from tests.testkit.sim.checkers.partition_log import LogBatch, PartitionLog
from tests.testkit.sim.environment.store import StoreServer

SEQUENCE_MASK = 2**31 - 1
PLACED_BYTES = 16  # base offset, length and leader epoch, which differ in a reader's copy of a batch

Fail = Callable[[str], None]
Applied = Callable[[list[Command], list[Outcome]], None]  # an entry's commands and their outcomes


class Oracle:
    """The true state of a run, and the checks of all answers against it."""

    def __init__(self, cluster: str, store: StoreServer, fail: Fail, record: Fail, limits: Limits) -> None:
        """`limits` are those of the state machine."""
        self.state: State = new_state(limits)
        self.markers = MarkerChecker(self.state, fail)
        self.logs: dict[tuple[TopicId, int], PartitionLog] = {}
        self._cluster = cluster
        self._store = store
        self._fail = fail
        self._record = record
        self._offsets: dict[tuple[str, int], tuple[int, int]] = {}  # group and partition -> offset, and the level then
        self._lowered: dict[tuple[str, int], None] = {}
        self._committed: dict[SegmentId, list[list[BatchResult]]] = {}
        self.on_applied: list[Applied] = []

    def observe(self, sequence: int, data: bytes) -> None:
        """Take an entry at the moment when the journal stores it."""
        entry = decode_entry(data, NEWEST_LEVEL)
        requests = entry.requests
        self._record(f"journal {sequence} {entry.entry_id}: {_summary(requests)}")
        level_before = self.state.level
        outcomes, _ = machine.apply_entry(self.state, sequence, requests)
        for request, answers in zip(requests, outcomes, strict=True):
            for command, outcome in zip(request, answers, strict=True):
                if isinstance(command, CommitSegment) and isinstance(outcome, SegmentCommitted):
                    self._take(command, outcome)
                elif isinstance(command, CommitOffsets) and isinstance(outcome, PerItem):
                    self._record_offsets(command, outcome, level_before)
                else:
                    self.markers.applied(command, outcome)
        self.markers.settle()
        commands = [command for request in requests for command in request]
        for applied in self.on_applied:
            applied(commands, [outcome for answers in outcomes for outcome in answers])

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition, by its topic's name."""
        found = self.state.topics.get(topic)
        if found is None:
            return PartitionLog()
        return self.logs.setdefault((found.topic_id, partition), PartitionLog())

    def first_at(self, topic: str, partition: int, time_ms: int) -> int:
        """The first offset at or after a time, or -1; all records of a batch have the same time."""
        batches_there = self.log(topic, partition).batches
        return next((each.base_offset for each in batches_there if each.meta.max_timestamp >= time_ms), -1)

    def acknowledged(self, who: str, topic: str, partition: int, offset: int, batch: bytes) -> None:
        """Check an acknowledgement of a batch at an offset."""
        found = self.log(topic, partition).at(offset)
        where = f"{who}: {topic}-{partition} at {offset}"
        if found is None or found.base_offset != offset:
            self._fail(f"{where} was acknowledged and is not in the journal")
        elif found.data != batch:
            self._fail(f"{where} was acknowledged and holds another batch")

    def observed(self, who: str, what: str) -> None:
        """Write an answer or event of a client to the trace."""
        self._record(f"{who}: {what}")

    def rejected(self, who: str, what: str, error: str) -> None:
        """Fail the run: no client may get this answer."""
        self._fail(f"{who}: {what}: {error}")

    def fetched(self, who: str, topic: str, partition: int, offset: int, records: bytes, high_watermark: int) -> int:
        """Check fetched records; the offset of the next fetch."""
        log = self.log(topic, partition)
        where = f"{who}: {topic}-{partition}"
        if high_watermark > log.end:
            self._fail(f"{where} shows a high watermark of {high_watermark}, committed is {log.end}")
        try:
            found = list(batches(records))
        except DecodeError as error:
            self._fail(f"{where} from {offset} on is no sequence of batches: {error}")
            return offset
        for position, header in found:
            truth = log.at(header.base_offset)
            last_offset = header.base_offset + header.last_offset_delta
            if truth is None or truth.base_offset != header.base_offset:
                self._fail(f"{where} shows {header.base_offset}, which is not committed")
                return offset
            is_skipped = header.base_offset > offset and log.may_skip(offset, header.base_offset)
            if not header.base_offset <= offset <= last_offset and not is_skipped:
                self._fail(f"{where} continues with {header.base_offset} to {last_offset} instead of {offset}")
                return offset
            if not is_same(truth, header, records[position : position + size_bytes(header)]):
                self._fail(f"{where} at {header.base_offset} differs from the stored batch")
            offset = last_offset + 1
        return offset

    def was_lowered(self, group_id: str, partition: int) -> bool:
        """Whether the journal took a lower offset after a higher one, which is possible before level 1."""
        return (group_id, partition) in self._lowered

    def check_objects(self) -> None:
        """Every extent's object exists, and contains the produced batches at the extent's position."""
        for partition in self.state.partitions_by_index.values():
            extents = partition.extents
            for row in range(extents.head, extents.end):
                log = self.logs.setdefault((partition.topic_id, partition.number), PartitionLog())
                where = f"{partition.topic_id.hex()}-{partition.number} at {extents.base_offsets[row]}"
                if extents.segments[row] == MARKERS:
                    continue
                ref = self.state.segments.ref(extents.segments[row])
                data = self._store.read(segment_key("", self._cluster, ref.level, ref.segment_id))
                if data is None:
                    self._fail(f"{where} points to a missing object")
                    continue
                span = (extents.base_offsets[row], extents.last_offsets[row])
                position, length = extents.positions[row], extents.lengths[row]
                self._check_bytes(where, log, span, data[position : position + length], is_placed=ref.level > 0)

    def _check_bytes(
        self, where: str, log: PartitionLog, span: tuple[int, int], data: bytes, *, is_placed: bool
    ) -> None:
        """An extent contains the produced batches of its offsets, except those that readers may skip."""
        offset, last_offset = span
        for position, header in batches(data):
            base_offset = header.base_offset if is_placed else offset
            batch = log.at(base_offset)
            if batch is None or not log.may_skip(offset, base_offset):
                self._fail(f"{where} has {base_offset} instead of {offset}")
                return
            if not is_same(batch, header, data[position : position + size_bytes(header)]):
                self._fail(f"{where} has other bytes at {base_offset} than the produced batch")
            offset = base_offset + header.last_offset_delta + 1
        if offset != last_offset + 1:
            self._fail(f"{where} ends before {offset} instead of after {last_offset}")

    def content(self, topic: str, partition: int) -> list[bytes]:
        """All produced batches of a partition, in order."""
        return [batch.data for batch in self.log(topic, partition).batches]

    def _record_offsets(self, command: CommitOffsets, outcome: PerItem, level_before: int) -> None:
        """Check committed offsets. `level_before` is the level before the entry, which may raise it later."""
        for offset, rejection in zip(command.offsets, outcome.rejections, strict=True):
            key = (command.group_id, offset.partition)
            if rejection:
                continue
            before, level = self._offsets.get(key, (0, 0))
            if offset.offset < before and level < LATE_COMMANDS_LEVEL:  # the machine did not record the entry then
                self._lowered[key] = None
            elif offset.offset < before:
                self._fail(f"the offset of {key[0]}-{key[1]} went back from {before} to {offset.offset} in the journal")
            self._offsets[key] = (offset.offset, level_before)

    def _stored(self, command: CommitSegment) -> bytes:
        data = self._store.read(segment_key("", self._cluster, 0, command.segment_id)) or b""
        if len(data) != command.size_bytes:
            name = command.segment_id.hex()
            self._fail(f"segment {name} of {command.size_bytes} bytes is committed, the store has {len(data)}")
        return data

    def _take(self, command: CommitSegment, outcome: SegmentCommitted) -> None:
        before = self._committed.setdefault(command.segment_id, outcome.runs)
        if before is not outcome.runs:
            if before != outcome.runs:
                self._fail(f"segment {command.segment_id.hex()} got other results when committed again")
            return
        data = self._stored(command)
        for run, results in zip(command.runs, outcome.runs, strict=True):
            key = (run.topic_id, run.partition)
            log = self.logs.setdefault(key, PartitionLog())
            position = run.position
            for meta, result in zip(run.batches, results, strict=True):
                if not result.rejection:
                    self._accept(key, log, LogBatch(result.base_offset, meta, data[position : position + meta.length]))
                position += meta.length

    def _accept(self, key: LogKey, log: PartitionLog, batch: LogBatch) -> None:
        meta = batch.meta
        self.markers.take_markers(key, log, batch.base_offset)
        if batch.base_offset < log.end:
            first = log.at(batch.base_offset)
            if first is None or _sequence_of(first.meta) != _sequence_of(meta) or meta.producer_id == NO_PRODUCER:
                self._fail(
                    f"a batch of producer {meta.producer_id} got offset {batch.base_offset}, which another batch has"
                )
            return
        if batch.base_offset != log.end:
            self._fail(f"offset {batch.base_offset} was assigned instead of {log.end}")
        if meta.producer_id != NO_PRODUCER:
            epoch, expected = log.next_sequences.get(meta.producer_id, (meta.producer_epoch, 0))
            if epoch != meta.producer_epoch:
                expected = 0
            if meta.base_sequence != expected:
                what = "twice" if meta.base_sequence < expected else "out of order"
                self._fail(f"producer {meta.producer_id}'s sequence {meta.base_sequence} was accepted {what}")
            following = (meta.base_sequence + meta.record_count) & SEQUENCE_MASK
            log.next_sequences[meta.producer_id] = (meta.producer_epoch, following)
        self.markers.accepted(key, log, batch)
        log.append(batch)


def is_same(truth: LogBatch, header: BatchHeader, data: bytes) -> bool:
    """Whether this is the produced batch, or an empty batch in place of an aborted one."""
    if data[PLACED_BYTES:] == truth.data[PLACED_BYTES:]:
        return True
    is_empty = not header.record_count and header.base_offset + header.last_offset_delta == truth.last_offset
    return truth.is_aborted and is_empty


def _summary(requests: list[list[Command]]) -> str:
    return " ".join(_description(command) for request in requests for command in request)


def _description(command: Command) -> str:
    name = type(command).__name__
    if isinstance(command, CommitSegment):
        return f"{name}({command.segment_id.hex()})"
    if isinstance(command, CommitOffsets):
        offsets = {each.partition: each.offset for each in command.offsets}
        return f"{name}({command.generation} {command.member_id[-4:]} {offsets})"
    return name


def _sequence_of(meta: BatchMeta) -> tuple[int, int, int, int]:
    return meta.producer_id, meta.producer_epoch, meta.base_sequence, meta.record_count
