"""Transactions in a `World`: short forms to begin, write and end them, and the view of a read_committed reader."""

from typing import Any

import msgspec

from penstock.contracts.batches import TRANSACTIONAL, BatchResult
from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CommitTxnOffsets,
    EndTxn,
    InitTransactionalProducer,
    OffsetToCommit,
    RaiseLevel,
    TransactionPartition,
)
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.queries.log import PartitionPlan, PlanPartition, PlanQuery
from penstock_sequencer.core import queries
from tests.unit.sequencer.core.core_machine import Machine, batch, topic_id

TIMEOUT_MS = 60_000


class Writer(msgspec.Struct):
    """A transactional producer with the state that its client knows."""

    name: str
    producer_id: int
    epoch: int
    sequences: dict[tuple[int, int], int] = {}  # (topic's number, partition) -> next sequence


class Transactions:
    """Commands of transactional producers; the world must be at the level of transactions."""

    def __init__(self, world: Machine) -> None:
        self._world = world

    def begin(self) -> None:
        """Raise the level, and make topic "t" of two partitions."""
        self._world.do(RaiseLevel(self._world.now_ms, TRANSACTIONS_LEVEL))
        self._world.topic(partitions=2)

    def init(self, name: str = "tx", *, timeout_ms: int = TIMEOUT_MS, seen: int = -1) -> Writer:
        allocated = self._world.do(InitTransactionalProducer(self._world.now_ms, name, timeout_ms, seen_sequence=seen))
        return Writer(name, allocated.producer_id, allocated.producer_epoch)

    def init_again(self, writer: Writer, seen: int = -1) -> Any:
        command = InitTransactionalProducer(
            self._world.now_ms, writer.name, TIMEOUT_MS, writer.producer_id, writer.epoch, seen_sequence=seen
        )
        return self._world.do(command)

    def add(self, writer: Writer, *partitions: int, number: int = 1, seen: int = -1) -> Any:
        wanted = [TransactionPartition(topic_id(number), each) for each in partitions or (0,)]
        return self._world.do(AddPartitionsToTxn(*self._producer(writer), wanted, seen_sequence=seen))

    def write(
        self, writer: Writer, partition: int = 0, *, records: int = 1, number: int = 1, adds: bool = False
    ) -> BatchResult:
        """Write one batch, the next in sequence if it is accepted."""
        place = (number, partition)
        sequence = writer.sequences.get(place, 0)
        (result,) = self._world.produce(
            self.of(writer, sequence, records=records, adds=adds), partition=partition, number=number
        )
        if not result.rejection:
            writer.sequences[place] = sequence + records
        return result

    def of(self, writer: Writer, sequence: int, *, records: int = 1, adds: bool = False) -> Any:
        return batch(
            records,
            producer=writer.producer_id,
            epoch=writer.epoch,
            sequence=sequence,
            attributes=TRANSACTIONAL,
            adds=adds,
        )

    def end(self, writer: Writer, *, committed: bool = True, bumps: bool = False, seen: int = -1) -> Any:
        return self._world.do(EndTxn(*self._producer(writer), committed, bumps=bumps, seen_sequence=seen))

    def adopt(self, writer: Writer, outcome: Any) -> None:
        """Give the writer the producer id and epoch of the answer."""
        if (writer.producer_id, writer.epoch) != (outcome.producer_id, outcome.producer_epoch):
            writer.producer_id, writer.epoch = outcome.producer_id, outcome.producer_epoch
            writer.sequences = {}

    def add_offsets(self, writer: Writer, group_id: str = "g", seen: int = -1) -> Any:
        return self._world.do(AddOffsetsToTxn(*self._producer(writer), group_id, seen_sequence=seen))

    def commit_txn_offset(
        self,
        writer: Writer,
        offset: int = 5,
        *,
        topic: str = "t",
        partition: int = 0,
        generation: int = -1,
        member_id: str = "",
        adds: bool = False,
        seen: int = -1,
        group_id: str = "g",
    ) -> Any:
        sender = (*self._producer(writer), group_id, generation, member_id, None)
        item = OffsetToCommit(topic, partition, offset, 1, "")
        return self._world.do(CommitTxnOffsets(*sender, [item], adds=adds, seen_sequence=seen))

    def plan(self, offset: int = 0, partition: int = 0, number: int = 1, bytes_max: int = 2**30) -> PartitionPlan:
        wanted = PlanPartition(topic_id(number), partition, offset, bytes_max)
        return queries.plan(self._world.state, PlanQuery(0, [wanted], bytes_max)).partitions[0]

    def stable(self, partition: int = 0, number: int = 1) -> int:
        return self.plan(partition=partition, number=number).last_stable_offset

    def _producer(self, writer: Writer) -> tuple[int, str, int, int]:
        return self._world.now_ms, writer.name, writer.producer_id, writer.epoch
