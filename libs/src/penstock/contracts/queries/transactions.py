"""Queries of administrators about transactions and producers."""

import msgspec

from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection


class DescribeTransactionsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Transactions by their transactional ids."""

    min_sequence: int
    transactional_ids: list[str]
    fresh: bool = False


class TransactionTopic(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic in a transaction."""

    topic: str
    partitions: list[int]


class TransactionView(msgspec.Struct, frozen=True, array_like=True):
    """One transaction; `state` is Kafka's: Empty, Ongoing, CompleteCommit, CompleteAbort, or Dead if it is unknown."""

    transactional_id: str
    state: str
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = -1
    started_ms: int = -1  # by the state machine's clock, -1 unless it is ongoing
    topics: list[TransactionTopic] = []  # existing topics of an ongoing transaction


class DescribeTransactionsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per id, in the query's order, for the first ids: at least one, maybe not all."""

    sequence: int
    transactions: list[TransactionView]
    failure: str | None = None


class TransactionsQuery(msgspec.Struct, frozen=True, array_like=True):
    """All transactions with ids greater than `after`; an empty filter and a negative `duration_ms` match all.

    `pattern` is a regular expression for the whole transactional id, in RE2's syntax.
    """

    min_sequence: int
    states: list[str] = []
    producer_ids: list[int] = []
    duration_ms: int = -1  # ongoing for longer than this
    fresh: bool = False
    after: str = ""
    pattern: str = ""


class TransactionSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transaction in a listing."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionsView(msgspec.Struct, frozen=True, array_like=True):
    """The first matching transactions, ordered by id; none with a `rejection`."""

    sequence: int
    transactions: list[TransactionSummary]
    failure: str | None = None
    is_more: bool = False  # there may be more after the last of these, or after `after`
    rejection: Rejection = Rejection.NONE
    after: str = ""  # with a pattern: the last id that was compared with it


class ProducersQuery(msgspec.Struct, frozen=True, array_like=True):
    """The idempotent producers of partitions."""

    min_sequence: int
    partitions: list[tuple[TopicId, int]]
    fresh: bool = False


class ProducerView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of an idempotent producer in a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    active_ms: int  # the state machine's clock at its last accepted batch
    coordinator_epoch: int  # -1 if it is not transactional
    first_offset: int  # of its open transaction in the partition, -1 without one


class PartitionProducers(msgspec.Struct, frozen=True, array_like=True):
    """The producers of one partition."""

    rejection: Rejection
    producers: list[ProducerView] = []


class ProducersView(msgspec.Struct, frozen=True, array_like=True):
    """One answer per partition, in the query's order, for the first partitions: at least one, maybe not all."""

    sequence: int
    partitions: list[PartitionProducers]
    failure: str | None = None
