"""The commands of transactional producers; `commands` offers them with all the others (ADR 0012).

Each names its producer by transactional id, producer id and epoch. A producer of the old protocol keeps its epoch from
one transaction to the next, so a command that comes late could meet the next one: `seen_sequence` is the newest entry
that its sender knew of when it was asked (-1: not told), and where the last transaction was ended, or the producer
fenced, by a later one, the command is refused as STALE.
"""

import msgspec

from penstock.contracts.commands.offsets import OffsetToCommit
from penstock.contracts.ids import TopicId

NO_EPOCH = -1


class InitTransactionalProducer(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """A producer begins its life under a transactional id; who had the id before is fenced, its transaction aborted.

    With the producer id and epoch that it has, a producer that lives goes on with a higher epoch (KIP-360). The outcome
    is `ProducerAllocated`.
    """

    now_ms: int
    transactional_id: str
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = NO_EPOCH
    seen_sequence: int = -1


class TransactionPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a transaction writes to."""

    topic_id: TopicId
    partition: int


class AddPartitionsToTxn(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """The producer is going to write to these partitions; begins a transaction where none is ongoing.

    `PerItem`: a refusal for each of them; if one is refused none is added.
    """

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TransactionPartition]
    seen_sequence: int = -1


class AddOffsetsToTxn(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """The producer is going to commit offsets of the group; begins a transaction where none is ongoing."""

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    seen_sequence: int = -1


class CommitTxnOffsets(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """A group's offsets, which count when the transaction is committed; `PerItem`.

    With `adds` (transaction version 2) the group needs not be added before.
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


class EndTxn(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """The transaction is committed or aborted, in all its partitions and groups at once; `TransactionEnded`.

    With `bumps` (transaction version 2, KIP-890) the producer goes on with a higher epoch.
    """

    now_ms: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    bumps: bool = False
    seen_sequence: int = -1


class TransactionEnded(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The producer id and epoch to go on with. The same again for the same command."""

    producer_id: int
    producer_epoch: int
