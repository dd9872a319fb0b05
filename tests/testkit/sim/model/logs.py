"""The log of a partition: dense offsets, producers' sequence numbers, and the markers of transactions."""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.contracts.batches import NO_PRODUCER, TRANSACTIONAL, BatchMeta, BatchResult
from penstock.contracts.rejections import Rejection
from tests.testkit.sim.model.past import Past

ENTRIES_PER_FREE_PLACE = 7
SEQUENCES = 2**31  # sequence numbers begin again after so many


class ModelBatch(NamedTuple):
    """One batch in the log."""

    base_offset: int
    count: int
    producer_id: int
    epoch: int
    sequence: int


class Aborted(NamedTuple):
    """An aborted transaction in one partition."""

    producer_id: int
    first_offset: int
    last_offset: int  # of its marker


class Offsets(NamedTuple):
    """The offsets of a log that clients can ask for."""

    start: int = 0
    stable: int = 0
    end: int = 0


@dataclass
class ModelProducer:
    """A producer in one partition, with all its batches in the present epoch."""

    epoch: int
    next_sequence: int
    batches: dict[tuple[int, int], int] = field(default_factory=dict)  # first sequence and count -> base offset
    principal: str = ""  # that introduced it to the partition


def wrong_share(owned: int, entries: str) -> str:
    """Why a principal with so many entries must get another one, while there is a free place (ADR 0040)."""
    return f"its principal has {owned} {entries} only" if owned < ENTRIES_PER_FREE_PLACE else ""


@dataclass
class ModelLog:
    """One partition's log."""

    start: int = 0
    end: int = 0
    batches: dict[int, ModelBatch] = field(default_factory=dict)  # by base offset
    producers: dict[int, ModelProducer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset of its open transaction
    aborted: list[Aborted] = field(default_factory=list)
    markers: int = 0
    past: Past[Offsets] = field(default_factory=lambda: Past(Offsets()))

    @property
    def offsets(self) -> Offsets:
        """The present offsets; nothing from the first open transaction on is stable."""
        return Offsets(self.start, max(min(self.open.values(), default=self.end), self.start), self.end)

    def append(self, meta: BatchMeta, result: BatchResult, principal: str = "") -> str:
        """Take a batch with its outcome; why that outcome is wrong, or nothing."""
        if result.rejection:
            return self._wrong_share(principal, result) or self._wrong_rejection(meta, Rejection(result.rejection))
        if result.base_offset < self.end:
            return self._wrong_duplicate(meta, result.base_offset)
        if result.base_offset > self.end:
            return f"it got offset {result.base_offset}, the log ends at {self.end}"
        wrong = self._wrong_sequence(meta) if meta.producer_id != NO_PRODUCER else ""
        batch = ModelBatch(self.end, meta.record_count, meta.producer_id, meta.producer_epoch, meta.base_sequence)
        self.batches[self.end] = batch
        if meta.producer_id != NO_PRODUCER:
            self._remember(meta, principal)
        if meta.attributes & TRANSACTIONAL:
            self.open.setdefault(meta.producer_id, self.end)
        self.end += meta.record_count
        return wrong

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Write the marker of the producer's transaction, if it has records here."""
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        if not committed:
            self.aborted.append(Aborted(producer_id, first, self.end))
        self.markers += 1
        self.end += 1

    def _wrong_share(self, principal: str, result: BatchResult) -> str:
        """Why a new producer of the principal must have a place; no partition is full in a simulation."""
        if result.rejection != Rejection.PRODUCERS_FULL:
            return ""
        owned = sum(each.principal == principal for each in self.producers.values())
        return wrong_share(owned, "producers in the partition")

    def _remember(self, meta: BatchMeta, principal: str) -> None:
        producer = self.producers.get(meta.producer_id)
        if producer is None or producer.epoch != meta.producer_epoch:
            principal = principal if producer is None else producer.principal
            producer = self.producers[meta.producer_id] = ModelProducer(meta.producer_epoch, 0, principal=principal)
        producer.next_sequence = (meta.base_sequence + meta.record_count) % SEQUENCES
        producer.batches[meta.base_sequence, meta.record_count] = self.end

    def _wrong_sequence(self, meta: BatchMeta) -> str:
        """Why an accepted batch is not the next one of its producer; a producer without batches here may begin."""
        producer = self.producers.get(meta.producer_id)
        if producer is None or meta.producer_epoch > producer.epoch:
            is_next = producer is None or not meta.base_sequence
            return "" if is_next else f"a new epoch begins with sequence {meta.base_sequence}"
        if meta.producer_epoch < producer.epoch:
            return f"epoch {meta.producer_epoch} is over, {producer.epoch} has begun"
        if meta.base_sequence != producer.next_sequence:
            return f"sequence {meta.base_sequence} was accepted, the next one is {producer.next_sequence}"
        return ""

    def _wrong_duplicate(self, meta: BatchMeta, base_offset: int) -> str:
        found = self.batches.get(base_offset)
        expected = ModelBatch(base_offset, meta.record_count, meta.producer_id, meta.producer_epoch, meta.base_sequence)
        is_same = found == expected and meta.producer_id != NO_PRODUCER
        return "" if is_same else f"it is no duplicate of {found}"

    def _wrong_rejection(self, meta: BatchMeta, rejection: Rejection) -> str:
        """Why a batch must not be rejected; the model does not know all reasons of a rejection."""
        producer = self.producers.get(meta.producer_id)
        if producer is None or rejection is not Rejection.OUT_OF_ORDER_SEQUENCE:
            return ""
        is_next = meta.producer_epoch == producer.epoch and meta.base_sequence == producer.next_sequence
        return f"sequence {meta.base_sequence} is the next one, and was rejected" if is_next else ""
