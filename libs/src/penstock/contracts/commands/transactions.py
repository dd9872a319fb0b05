"""Commands of transactional producers (ADR 0012).

Each names its producer by transactional id, producer id and epoch. In the old protocol the next transaction has the
same epoch, so a late command could apply to it. `seen_sequence` prevents that: it is the newest entry that the sender
knew when its client asked (-1: not given). If a later entry ended the last transaction or fenced the producer, the
command is rejected as STALE.
"""

import msgspec

from penstock.contracts.commands.offsets import OffsetToCommit
from penstock.contracts.ids import TopicId

NO_EPOCH = -1


class InitTransactionalProducer(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Start a producer with a transactional id; the previous producer is fenced, and its transaction is aborted.

    A running producer that sends its producer id and epoch gets a higher epoch (KIP-360). The outcome is
    `ProducerAllocated`.
    """

    now_ms: int
    transactional_id: str
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = NO_EPOCH
    seen_sequence: int = -1
    principal: str = ""  # as in `JoinGroup`


class TransactionPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a transaction writes to."""

    topic_id: TopicId
    partition: int


class AddPartitionsToTxn(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Add partitions to the ongoing transaction, or begin a transaction with them.

    The outcome is `PerItem`, with a rejection or NONE per partition. If one partition is rejected, none is added.
    """

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TransactionPartition]
    seen_sequence: int = -1


class AddOffsetsToTxn(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """Add offsets of the group to the ongoing transaction, or begin a transaction with them."""

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    seen_sequence: int = -1


class CommitTxnOffsets(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """Commit offsets of a group as part of a transaction; they take effect with its commit. The outcome is `PerItem`.

    With `adds` (transaction version 2) the command itself adds the group to the transaction.
    """

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: list[OffsetToCommit]
    adds: bool = False
    seen_sequence: int = -1
    topic_ids: dict[str, TopicId] = {}  # as in `CommitOffsets`


class EndTxn(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """Commit or abort the transaction, in all its partitions and groups at once. The outcome is `TransactionEnded`.

    With `bumps` (transaction version 2, KIP-890) the producer gets a higher epoch.
    """

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    bumps: bool = False
    seen_sequence: int = -1


class TransactionEnded(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The producer id and epoch for the next transaction. A retry gets the same outcome."""

    producer_id: int
    producer_epoch: int
