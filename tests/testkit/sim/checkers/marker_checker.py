"""Checks transactions in the journal: the open ones of each log, and the outcome of their batches.

The checker reads accepted batches, answered ends of transactions, and the markers in the state machine's logs. Each
end must leave a marker in every log with records of the transaction, in the same entry. No other markers may exist.
No producer may write after its successor has got an epoch.
"""

from collections import defaultdict
from collections.abc import Callable

from penstock.contracts.batches import MARKER_BYTES, NO_PRODUCER, TRANSACTIONAL, BatchMeta, Marker
from penstock.contracts.commands import (
    Command,
    EndTxn,
    InitTransactionalProducer,
    Outcome,
    ProducerAllocated,
    TransactionEnded,
)
from penstock.contracts.ids import TopicId
from penstock.kafkawire.records import CONTROL
from penstock.segment.transactions import marker_batch
from penstock_sequencer.core.log.control_markers import is_marker, marker_at
from penstock_sequencer.core.state.cluster import Partition, State
from tests.testkit.sim.checkers.partition_log import LogBatch, PartitionLog

LogKey = tuple[TopicId, int]
Owner = tuple[int, int]  # producer id and epoch


class MarkerChecker:
    """The open transactions by producer; the oracle calls it for each entry."""

    def __init__(self, state: State, fail: Callable[[str], None]) -> None:
        self.committed = 0  # markers
        self.aborted = 0
        self._state = state
        self._fail = fail
        self._open: dict[Owner, dict[LogKey, PartitionLog]] = defaultdict(dict)
        self._newest: dict[int, int] = {}  # epochs by producer id

    def accepted(self, key: LogKey, log: PartitionLog, batch: LogBatch) -> None:
        """Take a batch that the journal accepted."""
        meta = batch.meta
        if meta.producer_epoch < self._newest.get(meta.producer_id, meta.producer_epoch):
            what = f"epoch {meta.producer_epoch} of producer {meta.producer_id}"
            self._fail(f"{_name(key)} took a batch of {what}, which is at {self._newest[meta.producer_id]}")
        if meta.attributes & TRANSACTIONAL:
            batch.is_open = True
            log.open.setdefault(meta.producer_id, []).append(batch)
            self._open[meta.producer_id, meta.producer_epoch][key] = log

    def applied(self, command: Command, outcome: Outcome) -> None:
        """Take a command with its outcome."""
        if isinstance(command, EndTxn) and isinstance(outcome, TransactionEnded):
            self._end(command)
            self._record_epoch(outcome.producer_id, outcome.producer_epoch)
        elif isinstance(command, InitTransactionalProducer) and isinstance(outcome, ProducerAllocated):
            self._record_epoch(outcome.producer_id, outcome.producer_epoch)

    def take_markers(self, key: LogKey, log: PartitionLog, stop: int) -> None:
        """Take the markers up to `stop`. No producer requested these ends, so they must be aborts."""
        while log.end < stop:
            marker = self._next_marker(key, log)
            if marker is None:
                return
            if marker.committed:
                self._fail(f"{_name(key)} at {marker.offset} commits what producer {marker.producer_id} did not end")
            self._take(key, log, marker)

    def settle(self) -> None:
        """Take the remaining markers of an applied entry."""
        for owner, logs in list(self._open.items()):
            for key, log in list(logs.items()):
                partition = self._partition(key)
                if partition is not None:
                    self.take_markers(key, log, partition.high_watermark)
            if not logs:
                self._open.pop(owner, None)

    def _record_epoch(self, producer_id: int, epoch: int) -> None:
        self._newest[producer_id] = max(epoch, self._newest.get(producer_id, 0))

    def _end(self, command: EndTxn) -> None:
        """Check the markers of an ended transaction, unless they were checked at an earlier answer."""
        producer_id = command.producer_id
        for key, log in list(self._open.get((producer_id, command.producer_epoch), {}).items()):
            partition = self._partition(key)
            if partition is None:
                continue
            while producer_id in log.open:
                marker = self._next_marker(key, log)
                if marker is None:
                    self._fail(f"{_name(key)} has no marker of the ended transaction of producer {producer_id}")
                    return
                expected = command.committed if marker.producer_id == producer_id else False
                if marker.committed != expected:
                    what = f"{'commit' if marker.committed else 'abort'} of producer {marker.producer_id}"
                    self._fail(f"{_name(key)} at {marker.offset} has the {what}, which requested the opposite")
                self._take(key, log, marker)

    def _next_marker(self, key: LogKey, log: PartitionLog) -> Marker | None:
        """The marker at the current end of the log."""
        partition = self._partition(key)
        if partition is None or partition.high_watermark <= log.end:
            return None
        row = partition.extents.find_offset(log.end)
        return marker_at(partition, row) if is_marker(partition, row) else None

    def _take(self, key: LogKey, log: PartitionLog, marker: Marker) -> None:
        batches = log.open.pop(marker.producer_id, [])
        if not batches or batches[0].base_offset != marker.first_offset:
            first = batches[0].base_offset if batches else None
            self._fail(f"{_name(key)} has {marker}, the transaction's first offset is {first}")
        for batch in batches:
            batch.is_open = False
            batch.is_aborted = not marker.committed
            self._open[batch.meta.producer_id, batch.meta.producer_epoch].pop(key, None)
        self.committed += marker.committed
        self.aborted += not marker.committed
        attributes = TRANSACTIONAL | CONTROL
        meta = BatchMeta(MARKER_BYTES, 1, marker.timestamp, NO_PRODUCER, marker.producer_epoch, -1, attributes)
        log.append(LogBatch(marker.offset, meta, marker_batch(marker), is_aborted=not marker.committed))

    def _partition(self, key: LogKey) -> Partition | None:
        topic = self._state.topics_by_id.get(key[0])
        return None if topic is None else topic.partitions[key[1]]


def _name(key: LogKey) -> str:
    return f"{key[0].hex()}-{key[1]}"
