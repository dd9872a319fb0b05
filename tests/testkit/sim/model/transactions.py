"""Transactional ids: their producers, epochs and ongoing transactions."""

from dataclasses import dataclass, field

from penstock.contracts.commands import EndTxn, InitTransactionalProducer
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"
NO_ONE = (-1, -1)

Producer = tuple[int, int]  # producer id and epoch
LogKey = tuple[TopicId, int]
GroupKey = tuple[str, TopicId, int]  # group, topic, partition


@dataclass
class PendingOffset:
    """An offset that takes effect when its transaction commits."""

    offset: int
    sequence: int  # of the entry that sent it


@dataclass
class ModelTransaction:
    """One transactional id."""

    name: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: str = EMPTY
    started_ms: int = 0
    partitions: dict[LogKey, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    offsets: dict[GroupKey, PendingOffset] = field(default_factory=dict)
    previous: Producer = NO_ONE  # the producer that continues with the present epoch (KIP-360)
    ended: tuple[int, int, bool] | None = None  # the last end: producer id, epoch, committed
    ends: dict[tuple[int, int, bool], None] = field(default_factory=dict)  # all of them
    active_ms: int = 0
    principal: str = ""  # that began it first

    @property
    def producer(self) -> Producer:
        """The producer that may write."""
        return self.producer_id, self.epoch

    def begin(self, clock_ms: int) -> None:
        """Begin a transaction, unless one is ongoing."""
        if self.state != ONGOING:
            self.state, self.started_ms = ONGOING, clock_ms

    @property
    def deadline_ms(self) -> int:
        """When the ongoing transaction is aborted."""
        return self.started_ms + self.timeout_ms

    def is_overdue(self, clock_ms: int) -> bool:
        """Whether the ongoing transaction has reached its timeout."""
        return self.state == ONGOING and self.deadline_ms <= clock_ms

    def clear(self, state: str) -> None:
        """Remove all partitions, groups and offsets of the transaction."""
        self.state = state
        self.partitions, self.groups, self.offsets = {}, {}, {}

    def is_repeated_init(self, command: InitTransactionalProducer) -> bool:
        """Whether the command was sent again by the producer that it has already advanced."""
        named = (command.producer_id, command.producer_epoch)
        return named not in (NO_ONE, self.producer) and named == self.previous

    def is_repeated_end(self, command: EndTxn) -> bool:
        """Whether the command asks for the end that was the last one."""
        named = (command.producer_id, command.producer_epoch)
        return self.ended == (*named, command.committed) and (named != self.producer or self.state != ONGOING)

    def wrong_rejection(self, producer: Producer, rejection: Rejection) -> str:
        """Why a producer must not be rejected in this way."""
        if rejection is Rejection.INVALID_PRODUCER_MAPPING and producer[0] == self.producer_id:
            return f"{self.name} has the producer id {producer[0]}"
        if rejection is Rejection.PRODUCER_FENCED and producer == self.producer:
            return f"{producer} is the producer of {self.name}, and was fenced"
        return ""
