"""Transactions of which a journal lost some entries: no half is ever committed, and every former producer is fenced."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from penstock.contracts.batches import NO_SEGMENT_ID, TRANSACTIONAL, BatchMeta
from penstock.contracts.commands import EndTxn, InitTransactionalProducer, ProducerAllocated, RaiseLevel, Rejected
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.segment import SegmentIndex
from penstock.segment.transactions import Aborted
from penstock_sequencer.core.log import control_markers
from penstock_sequencer.core.log.partitions import last_stable_offset
from penstock_sequencer.core.state.cluster import State
from tests.unit.sequencer.core.core_world import World
from tests.unit.sequencer.rebuild.rebuild_lost import commit_of, of, partition, recover
from tests.unit.sequencer.rebuild.rebuild_segments import BORN_MS, batch


class Book(World):
    """A world with transactions; the archive holds all that was done before a rebuild."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = BORN_MS
        self.do(RaiseLevel(self.now_ms, TRANSACTIONS_LEVEL))
        self.topic("t", partitions=1, number=1)

    def init(self, name: str = "tx") -> ProducerAllocated:
        return self.do(InitTransactionalProducer(self.now_ms, name, 60_000))  # type: ignore[no-any-return]

    def of(self, writer: ProducerAllocated, sequence: int = 0, *, epoch: int = 0) -> BatchMeta:
        meta = batch(writer.producer_id, epoch, sequence)
        return msgspec.structs.replace(meta, attributes=TRANSACTIONAL)

    def write(self, writer: ProducerAllocated) -> Rejection:
        (result,) = self.produce(msgspec.structs.replace(self.of(writer), adds_partition=True))
        return Rejection(result.rejection)

    def end(self, writer: ProducerAllocated, name: str = "tx") -> Any:
        return self.do(EndTxn(self.now_ms, name, writer.producer_id, writer.producer_epoch, True))

    @property
    def aborted(self) -> list[tuple[int, int]]:
        known = partition(self).transactions
        return [] if known is None else [each[1:] for each in map(msgspec.structs.astuple, known.aborted(0, 99, 99)[0])]


def test_an_ongoing_transaction_is_recovered_completely_and_aborted() -> None:
    """Its end may be lost, or offsets that should be committed with it."""
    book = Book()
    writer = book.init()
    book.write(writer)
    report = recover(book, of("a", 10, book.of(writer, 1)), of("b", 20, book.of(writer, 2)))
    assert (report.recovered_batches, report.refused_batches, report.aborted_transactions) == (2, {}, 1)
    assert book.aborted == [(0, 3)]
    assert (last_stable_offset(partition(book)), partition(book).high_watermark) == (4, 4)


def test_a_transaction_that_is_not_in_the_archive_is_aborted() -> None:
    book = Book()
    writer = book.init()
    book.write(writer)
    book.end(writer)
    report = recover(book, of("a", 10, book.of(writer, 1)))
    assert (report.recovered_batches, report.aborted_transactions) == (1, 1)
    assert book.aborted == [(2, 3)], "a transaction committed before the archive's end stays committed"


def test_batches_of_a_transaction_after_its_lost_end_are_rejected() -> None:
    """The lost end raised the epoch, so no client can have committed later batches."""
    book = Book()
    writer = book.init()
    book.write(writer)
    report = recover(book, of("a", 10, book.of(writer, 0, epoch=1)))
    assert report.refused_batches == {"producer_fenced": 1}
    assert book.aborted == [(0, 1)]


def test_no_producer_continues_with_an_epoch_that_may_be_used_twice() -> None:
    book = Book()
    idle, ongoing = book.init("idle"), book.init("ongoing")
    book.write(ongoing)
    report = recover(book)
    assert (report.forgotten_transactional_ids, report.aborted_transactions) == (2, 1)
    assert not (book.state.transactions or book.state.transactions_by_producer or book.state.ongoing)
    for name, each in (("idle", idle), ("ongoing", ongoing)):
        assert book.write(each) == Rejection.INVALID_PRODUCER_MAPPING
        assert book.end(each, name) == Rejected(Rejection.INVALID_PRODUCER_MAPPING)
        again = book.init(name)
        assert again.producer_id not in (idle.producer_id, ongoing.producer_id)
        assert book.write(again) == Rejection.NONE
        assert not isinstance(book.end(again, name), Rejected)


class RandomTransactions(Book):
    """Random transactions, with one batch in each segment; `committed` has the committed segments."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = Random(seed)
        self.sent: list[SegmentIndex] = []
        self.writers: dict[str, ProducerAllocated] = {}
        self.ongoing: dict[str, list[bytes]] = {}  # segments of each producer's transaction
        self.committed: set[bytes] = set()

    def step(self) -> None:
        name = self.chance.choice("abc")
        if name not in self.writers or self.chance.random() < 0.05:
            self.writers[name] = self.init(name)
            self.ongoing[name] = []
        elif self.chance.random() < 0.3 and self.ongoing[name]:
            self.end_some(name)
        elif self.chance.random() < 0.1:
            self.send(batch(), self.committed.add)
        else:
            sequence = self.chance.choice([0, len(self.ongoing[name])]) if self.chance.random() < 0.1 else -1
            sequence = len(self.ongoing[name]) if sequence < 0 else sequence
            self.send(self.of(self.writers[name], sequence), self.ongoing[name].append)

    def of(self, writer: ProducerAllocated, sequence: int = 0, *, epoch: int = 0) -> BatchMeta:
        meta = batch(writer.producer_id, writer.producer_epoch, sequence)
        return msgspec.structs.replace(meta, attributes=TRANSACTIONAL, adds_partition=True)

    def send(self, meta: BatchMeta, record: Callable[[bytes], None]) -> None:
        index = of(self.chance.choice("xyz"), len(self.sent) + 1, meta)
        (result,) = commit_of(self, index).runs[0]
        if not result.rejection and result.base_offset == partition(self).high_watermark - 1:
            record(index.segment_id)
        stored = msgspec.structs.replace(meta, adds_partition=False)  # as in footers
        self.sent.append(of(index.writer, len(self.sent) + 1, stored))

    def end_some(self, name: str) -> None:
        writer, committed = self.writers[name], self.chance.random() < 0.7
        ended = self.do(EndTxn(self.now_ms, name, writer.producer_id, writer.producer_epoch, committed, bumps=True))
        self.writers[name] = ProducerAllocated(ended.producer_id, ended.producer_epoch)
        if committed:
            self.committed.update(self.ongoing[name])
        self.ongoing[name] = []


def visible(state: State, metas: dict[bytes, BatchMeta]) -> set[bytes]:
    """The segments whose batch a read_committed reader sees."""
    log = state.topics["t"].partitions[0]
    known = log.transactions
    aborted = Aborted(known.aborted(0, log.high_watermark, 10**6)[0] if known is not None else ())
    found = set()
    for row in range(log.extents.head, log.extents.end):
        segment_id = control_markers.segment_id(state, log.extents.segments[row])
        offset = log.extents.base_offsets[row]
        if segment_id == NO_SEGMENT_ID or offset >= last_stable_offset(log):
            continue
        meta = metas[segment_id]
        if not (meta.attributes & TRANSACTIONAL and aborted.has(meta.producer_id, offset)):
            found.add(segment_id)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_no_half_of_a_transaction_is_ever_committed_by_a_rebuild(seed: int) -> None:
    """Exactly the transactions that were committed in the archive are committed, wherever the archive ends."""
    run = RandomTransactions(seed)
    for _ in range(run.chance.randint(5, 40)):
        run.step()
    archived, known, count = copy.deepcopy(run.state), set(run.committed), len(run.sent)
    for _ in range(run.chance.randint(0, 20)):
        run.step()
    metas = {index.segment_id: index.runs[0].batches[0] for index in run.sent}
    assert visible(run.state, metas) <= run.committed
    plain = {each for each, meta in metas.items() if not meta.attributes & TRANSACTIONAL}
    run.state = archived
    report = recover(run, *run.sent[count:])
    assert visible(run.state, metas) == known | plain
    assert last_stable_offset(partition(run)) == partition(run).high_watermark
    assert not report.refused_segments
