"""Readers of transactional records, which use isolation levels and aborted transactions as the Java client does."""

from collections.abc import Iterator

from penstock.kafkawire.api.fetch import AbortedTransaction, PartitionData
from penstock.kafkawire.control import read_control_batch
from penstock.kafkawire.records import (
    BatchHeader,
    Record,
    batches,
    decode_records,
    is_control,
    is_transactional,
    size_bytes,
)
from tests.testkit.loads.transaction_history import History, Isolation
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import READ_COMMITTED, READ_UNCOMMITTED, Reading
from tests.testkit.sim.clients.kafka import KafkaClient

LEVELS = {Isolation.COMMITTED: READ_COMMITTED, Isolation.UNCOMMITTED: READ_UNCOMMITTED}


class IsolatedReading(Reading):
    """Adds the records that a client gives to its user to the `History`, if their values have the `prefix`."""

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        topic: str,
        partitions: int,
        history: History,
        isolation: Isolation,
        prefix: bytes,
    ) -> None:
        super().__init__(client, oracle, topic)
        self.isolation_level = LEVELS[isolation]
        places = [(topic, partition) for partition in range(partitions)]
        self.history_reading = history.read(f"{client.name}, {isolation.value}", isolation, places)
        self._history = history
        self._prefix = prefix

    def taken(self, partition: PartitionData, offset: int) -> None:
        """Pass on the allowed records of the isolation level. No undecided record may come; hidden ones are aborted."""
        number = partition.partition_index
        log = self._oracle.log(self._topic, number)
        where = f"the last stable offset of {self._topic}-{number}"
        if not 0 <= partition.last_stable_offset <= min(log.stable, partition.high_watermark):
            reported = f"{partition.last_stable_offset} of {partition.high_watermark}"
            self._oracle.rejected(self._client.name, where, f"reported is {reported}, correct is {log.stable}")
        is_committed = self.isolation_level == READ_COMMITTED
        if is_committed and self.positions[number] > log.stable:
            self._oracle.rejected(
                self._client.name, where, f"the reader got to {self.positions[number]}, correct is {log.stable}"
            )
        data = b"" if partition.records is None else bytes(partition.records)
        aborted = partition.aborted_transactions or []
        for header, records, is_hidden in _batches(data, aborted if is_committed else []):
            truth = log.at(header.base_offset)
            if is_committed and records and truth is not None and truth.is_aborted != is_hidden:
                why = f"aborted is {truth.is_aborted}, the answer has {aborted}"
                self._oracle.rejected(self._client.name, f"{self._topic}-{number} at {header.base_offset}", why)
            for record in records if not is_hidden else ():
                at = header.base_offset + record.offset_delta
                if at >= offset and record.value is not None and record.value.startswith(self._prefix):
                    self._history.see(self.history_reading, (self._topic, number), at, record.value)


def _batches(data: bytes, aborted: list[AbortedTransaction]) -> Iterator[tuple[BatchHeader, list[Record], bool]]:
    """Batches of records, and whether a client hides them from its user because of the aborted transactions."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    hidden: set[int] = set()  # producers whose transactions at this offset are aborted
    for position, header in batches(data):
        while waiting and waiting[0].first_offset <= header.base_offset + header.last_offset_delta:
            hidden.add(waiting.pop(0).producer_id)
        batch = data[position : position + size_bytes(header)]
        if is_control(header):
            end = read_control_batch(batch)
            if end is not None and not end.committed:
                hidden.discard(header.producer_id)
        else:
            yield header, decode_records(batch), is_transactional(header) and header.producer_id in hidden
