"""Compactors on logs with transactions, with a model of the written records and their transactions."""

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts.batches import NO_PRODUCER, NO_SEGMENT_ID, AbortedTransaction, BatchMeta
from penstock.contracts.commands import (
    CommitSegment,
    EndTxn,
    InitTransactionalProducer,
    ProducerAllocated,
    SegmentCommitted,
    TransactionEnded,
)
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.queries.log import PartitionPlan, PlanPartition, PlanQuery
from penstock.kafkawire.control import read_control_batch
from penstock.kafkawire.records import (
    Record,
    batches,
    build_batch,
    decode_records,
    is_control,
    is_transactional,
    place_batch,
    read_batch_header,
)
from penstock.segment import build_segment
from penstock.segment.keys import segment_key
from penstock.segment.transactions import marker_batch
from penstock.spark.ranges import StoreRanges
from penstock_compactor.planning.planner import PlanLimits
from penstock_sequencer.core import queries
from tests.unit.compactor.compactor_lake import CLUSTER, meta
from tests.unit.compactor.compactor_world import LIMITS, World

TIMEOUT_MS = 600_000
START_MS = 1_700_000_000_000
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"

Log = tuple[TopicId, int]
KeyValue = tuple[bytes | None, bytes | None]


class Transaction(msgspec.Struct, eq=False):
    """The state of a transaction, and the logs with its records."""

    state: str = OPEN
    logs: dict[Log, None] = {}


class Entry(msgspec.Struct, eq=False):
    """One offset of a log: a record, or None for a marker."""

    record: Record | None
    transaction: Transaction | None = None


class Producer(msgspec.Struct, eq=False):
    """A transactional producer."""

    name: str
    producer_id: int
    epoch: int
    sequences: dict[Log, int] = {}
    transaction: Transaction | None = None


class TransactionWorld(World):
    """Records with keys, some of them in transactions. `logs` is the model of them."""

    def __init__(self, folder: Path, limits: PlanLimits = LIMITS, spark: Any = None) -> None:
        super().__init__(folder, limits, spark)
        self.machine.state.level = TRANSACTIONS_LEVEL
        self.logs: dict[Log, list[Entry]] = {}

    def begin(self, name: str) -> Producer:
        """Start a producer with this transactional id. An earlier producer with the id is fenced."""
        (outcome,) = self.machine.apply(InitTransactionalProducer(self.machine.clock.now_ms(), name, TIMEOUT_MS))
        assert isinstance(outcome, ProducerAllocated), outcome
        return Producer(name, outcome.producer_id, outcome.producer_epoch)

    def write(self, *written: tuple[Log, Producer | None, Sequence[KeyValue]]) -> None:
        """One flushed segment of these batches."""
        now_ms = self.machine.clock.now_ms()
        segment_id = new_segment_id(now_ms, os.urandom(10))
        placed = []
        for log, producer, pairs in written:
            data = self._batch(log, producer, pairs)
            placed.append((*log, self._meta(data, producer), data))
        built = build_segment(segment_id, writer="flusher-1", created_ms=now_ms, level=0, batches=placed)
        with StoreRanges(self.place.url) as ranges:
            ranges.call(lambda store: store.put(segment_key("", CLUSTER, 0, segment_id), built.buffers))
        commit = CommitSegment(now_ms, segment_id, built.size_bytes, "flusher-1", "z1", built.runs)
        (outcome,) = self.machine.apply(commit)
        assert isinstance(outcome, SegmentCommitted), outcome
        assert not any(result.rejection for run in outcome.runs for result in run), outcome
        # A segment has its runs in the order of their partitions. A run has its batches in the order of arrival.
        for log, producer, pairs in written:
            self._record(log, producer, pairs)

    def end(self, producer: Producer, *, committed: bool) -> None:
        """End the producer's transaction, if it has one. The producer continues with the next epoch."""
        transaction, producer.transaction = producer.transaction, None
        if transaction is None:
            return
        identity = (producer.name, producer.producer_id, producer.epoch)
        (outcome,) = self.machine.apply(EndTxn(self.machine.clock.now_ms(), *identity, committed, bumps=True))
        assert isinstance(outcome, TransactionEnded), outcome
        producer.producer_id, producer.epoch, producer.sequences = outcome.producer_id, outcome.producer_epoch, {}
        transaction.state = COMMITTED if committed else ABORTED
        for log in transaction.logs:
            self.logs[log].append(Entry(None, transaction))

    def plan(self, log: Log, offset: int = 0, bytes_max: int = 2**40) -> PartitionPlan:
        wanted = PlanPartition(*log, offset, bytes_max)
        return queries.plan(self.machine.state, PlanQuery(0, [wanted], bytes_max)).partitions[0]

    def stable_offset(self, log: Log) -> int:
        """By the model: the first offset of an open transaction, or the log's end."""
        entries = self.logs[log]
        states = (each.transaction.state if each.transaction is not None else COMMITTED for each in entries)
        return next((at for at, state in enumerate(states) if state == OPEN), len(entries))

    def expected(self, log: Log) -> list[tuple[int, Record]]:
        """By the model: the records that a read_committed client reads of a log that is not compacted by key."""
        return [
            (at, each.record)
            for at, each in enumerate(self.logs[log][: self.stable_offset(log)])
            if each.record is not None and (each.transaction is None or each.transaction.state == COMMITTED)
        ]

    def latest(self, log: Log) -> list[tuple[int, Record]]:
        """The last record of each key among the expected ones."""
        last = {record.key: at for at, record in self.expected(log)}
        return [(at, record) for at, record in self.expected(log) if last[record.key] == at]

    def batches_of(self, log: Log, offset: int = 0, bytes_max: int = 2**40) -> tuple[list[bytes], PartitionPlan]:
        """The batches that a plan names, with their real offsets, and the markers among them."""
        plan = self.plan(log, offset, bytes_max)
        markers = {each.offset: each for each in plan.markers}
        found: list[bytes] = []
        with StoreRanges(self.place.url) as ranges:
            for extent in plan.extents:
                if extent.segment.segment_id == NO_SEGMENT_ID:
                    found.append(marker_batch(markers[extent.base_offset]))
                    continue
                key = segment_key("", CLUSTER, extent.segment.level, extent.segment.segment_id)
                data = ranges.call(lambda store, key=key, at=extent: store.get_range(key, at.position, at.length))  # type: ignore[misc]
                next_offset = extent.base_offset
                for position, header in batches(data):
                    batch = bytearray(data[position : position + header.length + 12])
                    base_offset = next_offset if extent.segment.level == 0 else header.base_offset
                    place_batch(batch, 0, base_offset, 0)
                    assert base_offset >= next_offset
                    next_offset = base_offset + header.last_offset_delta + 1
                    found.append(bytes(batch))
                assert next_offset == extent.last_offset + 1
        return found, plan

    def read_committed(self, log: Log, offset: int = 0, bytes_max: int = 2**40) -> list[tuple[int, Record]]:
        """One answer, read as the Java client reads it: a producer's records are skipped up to its abort marker."""
        found, plan = self.batches_of(log, offset, bytes_max)
        end = plan.last_stable_offset if plan.aborted_end_offset < 0 else plan.aborted_end_offset
        end = min(end, plan.last_stable_offset)
        records = _without_aborted(found, sorted(plan.aborted, key=lambda each: each.first_offset))
        return [(at, record) for at, record in records if offset <= at < end]

    def _batch(self, log: Log, producer: Producer | None, pairs: Sequence[KeyValue]) -> bytes:
        records = [Record(number, START_MS + number, key, value) for number, (key, value) in enumerate(pairs)]
        if producer is None:
            return build_batch(records)
        sequence = producer.sequences.get(log, 0)
        producer.sequences[log] = sequence + len(records)
        return build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def _meta(self, data: bytes, producer: Producer | None) -> BatchMeta:
        return msgspec.structs.replace(meta(data), adds_partition=producer is not None)

    def _record(self, log: Log, producer: Producer | None, pairs: Sequence[KeyValue]) -> None:
        transaction = None
        if producer is not None:
            transaction = producer.transaction = producer.transaction or Transaction()
            transaction.logs[log] = None
        entries = self.logs.setdefault(log, [])
        entries.extend(Entry(Record(0, START_MS + number, *pair), transaction) for number, pair in enumerate(pairs))


def _without_aborted(found: Sequence[bytes], aborted: Sequence[AbortedTransaction]) -> Iterator[tuple[int, Record]]:
    waiting, aborting = list(aborted), set[int]()
    for batch in found:
        header = read_batch_header(batch)
        while waiting and waiting[0].first_offset <= header.base_offset + header.last_offset_delta:
            aborting.add(waiting.pop(0).producer_id)
        if is_control(header):
            end = read_control_batch(batch)
            assert end is not None and header.producer_id != NO_PRODUCER
            if not end.committed:
                aborting.discard(header.producer_id)
        elif not (is_transactional(header) and header.producer_id in aborting):
            for record in decode_records(batch):
                yield header.base_offset + record.offset_delta, msgspec.structs.replace(record, offset_delta=0)


def random_step(world: TransactionWorld, chance: random.Random, logs: Sequence[Log], producers: list[Producer]) -> None:
    """Do one step of producers: flush a segment, or end a transaction."""
    if chance.random() < 0.35:
        world.end(chance.choice(producers), committed=chance.random() < 0.5)
        return
    written = []
    for log in sorted(chance.choices(logs, k=chance.randint(1, 4))):
        producer = chance.choice([None, *producers])
        pairs = [(b"k%d" % chance.randrange(6), b"v%d" % chance.randrange(10**6)) for _ in range(chance.randint(1, 3))]
        written.append((log, producer, pairs))
    world.write(*written)
