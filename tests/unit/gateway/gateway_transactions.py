"""Transactional producers on the gateway's read path, and a reader that works like Kafka's clients."""

from typing import cast

import msgspec

from penstock.contracts.commands import (
    EndTxn,
    InitTransactionalProducer,
    ProducerAllocated,
    RaiseLevel,
    TransactionEnded,
)
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.kafkawire.api.fetch import FetchRequest, PartitionData
from penstock.kafkawire.control import read_control_batch
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import Record, batches, build_batch, decode_records, is_control, is_transactional
from tests.unit.gateway.gateway_read_world import START_MS, World, asking, partitions_of

COMMITTED, UNCOMMITTED = 1, 0


class Writer(msgspec.Struct):
    """A producer with a transactional id, of transaction version 2."""

    name: str
    producer_id: int
    epoch: int
    sequences: dict[int, int] = {}  # partition -> the next sequence

    def batch(self, *values: bytes, partition: int = 0) -> bytes:
        """The next batch of the transaction."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        return build_batch(
            [Record(delta, START_MS + delta, None, value) for delta, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )


async def open_world(world: World, partitions: int = 2) -> TopicId:
    """Create a topic, in a cluster with transactions."""
    topic_id = await world.open(partitions=partitions)
    await world.commit([RaiseLevel(START_MS, TRANSACTIONS_LEVEL)])
    return topic_id


async def new_writer(world: World, name: str = "w") -> Writer:
    (allocated,) = await world.commit([InitTransactionalProducer(START_MS, name, 60_000)])
    assert isinstance(allocated, ProducerAllocated)
    return Writer(name, allocated.producer_id, allocated.producer_epoch)


async def write(
    world: World, topic_id: TopicId, writer: Writer, *values: bytes, partition: int = 0, announce: bool = True
) -> None:
    """Write one batch in the writer's transaction."""
    await world.produce(topic_id, {partition: [writer.batch(*values, partition=partition)]}, announce=announce)


async def end(world: World, writer: Writer, *, committed: bool, announce: bool = True) -> None:
    """End the writer's transaction; the writer continues with the next epoch."""
    command = EndTxn(START_MS, writer.name, writer.producer_id, writer.epoch, committed, bumps=True)
    (ended,) = await world.commit([command], announce=announce)
    assert isinstance(ended, TransactionEnded)
    writer.producer_id, writer.epoch, writer.sequences = ended.producer_id, ended.producer_epoch, {}


def taken(data: PartitionData, offset: int) -> tuple[dict[int, bytes | None], int]:
    """The records that a read_committed reader keeps of an answer, and its next offset: as in Kafka's Java client."""
    waiting = sorted(data.aborted_transactions or [], key=lambda each: each.first_offset)
    aborted: set[int] = set()
    found: dict[int, bytes | None] = {}
    buffer = bytes(cast(Buffer, data.records or b""))
    for position, header in batches(buffer):
        last_offset = header.base_offset + header.last_offset_delta
        while waiting and waiting[0].first_offset <= last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if is_control(header):
            ended = read_control_batch(buffer[position:])
            assert ended is not None, "a control record is no end of a transaction"
            assert ended.committed == (header.producer_id not in aborted), (
                f"{header} contradicts the list of aborted transactions"
            )
            aborted.discard(header.producer_id)
        elif not (is_transactional(header) and header.producer_id in aborted):
            for record in decode_records(buffer[position:]):
                found[header.base_offset + record.offset_delta] = record.value
        offset = max(offset, last_offset + 1)
    return found, offset


async def read_committed(world: World, offset: int, *, partition: int = 0, **limits: int) -> dict[int, bytes | None]:
    """All committed records from an offset on, read with several fetches."""
    found: dict[int, bytes | None] = {}
    start = offset
    while True:
        request: FetchRequest = asking({partition: offset}, isolation_level=COMMITTED, **limits)
        data = partitions_of(await world.fetch(request))[partition]
        assert data.error_code == 0
        values, position = taken(data, offset)
        assert not found.keys() & values.keys(), "read twice"
        found |= {place: value for place, value in values.items() if place >= start}
        if position == offset:
            assert offset == max(data.last_stable_offset, offset)
            return found
        offset = position
