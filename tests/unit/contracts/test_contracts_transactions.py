"""Releases with and without transactions read each other's messages."""

import msgspec
import pytest

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, Extent, SegmentRef
from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Command,
    CommandReply,
    CommandRequest,
    CommitTxnOffsets,
    EndTxn,
    InitTransactionalProducer,
    OffsetToCommit,
    TransactionEnded,
    TransactionPartition,
)
from penstock.contracts.levels import TRANSACTIONS_LEVEL, level_of
from penstock.contracts.messages import PartitionAdvance
from penstock.contracts.queries.groups import CommittedOffset
from penstock.contracts.queries.log import OffsetFound, PartitionPlan

WHO = (5, "tx", 7, 0)
COMMANDS = [
    InitTransactionalProducer(5, "tx", 60_000, 7, 0, 9),
    AddPartitionsToTxn(*WHO, [TransactionPartition(b"t" * 16, 3)], 9),
    AddOffsetsToTxn(*WHO, "g", 9),
    CommitTxnOffsets(*WHO, "g", 1, "m", None, [OffsetToCommit("t", 0, 5, 1, "")], adds=True, seen_sequence=9),
    EndTxn(*WHO, committed=True, bumps=True, seen_sequence=9),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_transactional_command_reads_back_as_it_was_and_needs_its_level(command: Command) -> None:
    request = CommandRequest([command])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=CommandRequest) == request
    assert level_of([command]) == TRANSACTIONS_LEVEL


def test_the_end_of_a_transaction_reads_back_as_it_was() -> None:
    reply = CommandReply(4, [TransactionEnded(7, 1)])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=CommandReply) == reply


SEGMENT = SegmentRef(b"s" * 16, 0, 10, "w", "z")
GROWN = [
    (BatchMeta(100, 2, 7, 1, 0, 0, TRANSACTIONAL), 7),
    (PartitionPlan(b"t" * 16, 0, 0, 0, 5, 5, [Extent(0, 4, SEGMENT, 0, 10, 7)]), 7),  # type: ignore[arg-type]
    (PartitionAdvance(b"t" * 16, 0, 0, 5, 5, []), 6),
    (CommittedOffset("t", 0, 5, 1, ""), 5),
    (OffsetFound(0, 5, None, 1, 0), 5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("message", "fields"), GROWN, ids=lambda each: type(each).__name__)
def test_messages_of_a_release_without_transactions_have_none(message: msgspec.Struct, fields: int) -> None:
    written = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    assert len(written) > fields
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(written[:fields]), type=type(message)) == message


def test_a_release_without_transactions_skips_unknown_fields() -> None:
    class Meta(msgspec.Struct, array_like=True):
        length: int
        record_count: int

    written = msgspec.msgpack.encode(BatchMeta(100, 2, 7, 1, 0, 0, TRANSACTIONAL, adds_partition=True))
    assert msgspec.msgpack.decode(written, type=Meta) == Meta(100, 2)
