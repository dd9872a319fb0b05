"""A record of all requests and results of transactional producers and readers, for the transaction checker.

Moments are growing numbers from the `History`, or from the same clock in another process. An event with a lower
moment certainly happened before one with a higher moment. So a request takes its moment before it is sent, and an
answer takes its moment after it came.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

Place = tuple[str, int]  # a topic and a partition of it
GroupPlace = tuple[str, Place]  # a group and a partition with a committed offset


class Outcome(Enum):
    """The outcome of a transaction as its client knows it."""

    ABORTED = "aborted"  # certainly, for example without a request to commit
    COMMITTED = "committed"
    UNKNOWN = "unknown"  # a commit was requested, and no answer shows the outcome


class Isolation(Enum):
    """The isolation level of a reader."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@dataclass(eq=False)
class Sent:
    """One record with a unique value, and its offset when that is known."""

    place: Place
    value: bytes
    offset: int | None = None


@dataclass(eq=False)
class Life:
    """One session under a transactional id, from the answer to InitProducerId on; later sessions fence earlier ones."""

    transactional_id: str
    order: tuple[int, ...]
    begun_at: int
    transactions: list["Transaction"] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.transactional_id}{list(self.order)}"


@dataclass(eq=False)
class Transaction:
    """The records and the consumed offsets of one transaction, and its outcome."""

    life: Life
    number: int  # in its life
    sent: list[Sent] = field(default_factory=list)
    consumed: dict[GroupPlace, tuple[int, int]] = field(default_factory=dict)  # the first and the end offset
    asked_at: int | None = None  # the moment of the request to commit
    committed_at: int | None = None  # the moment of the answer
    outcome: Outcome = Outcome.ABORTED

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.life}, {self.outcome.value},"


@dataclass(frozen=True)
class Seen:
    """A record that a reader got."""

    offset: int
    value: bytes
    at: int


@dataclass(eq=False)
class Reading:
    """The records of one reader by place, in the order of reading; complete if it reached the ends."""

    name: str
    isolation: Isolation
    seen: dict[Place, list[Seen]]
    is_complete: bool = False


@dataclass(frozen=True)
class Observed:
    """A group's committed offset (0 if none) in an answer, with the moments of request and answer."""

    group_place: GroupPlace
    offset: int
    asked_at: int
    answered_at: int
    is_last: bool  # no transaction follows


class History:
    """All events of one run; `clock` makes the moments, by default it counts.

    `at` is the moment of an event that another process reports, by default now.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self.lives: list[Life] = []
        self.readings: list[Reading] = []
        self.observed: list[Observed] = []
        self._clock = clock or itertools.count(1).__next__

    def moment(self) -> int:
        """A new moment."""
        return self._clock()

    @property
    def transactions(self) -> list[Transaction]:
        """All transactions of all sessions."""
        return [each for life in self.lives for each in life.transactions]

    def begin_life(self, transactional_id: str, order: tuple[int, ...] | None = None, at: int | None = None) -> Life:
        """Record an answer to InitProducerId; `order` sorts the sessions, by default the order of the answers."""
        life = Life(transactional_id, (len(self.lives),) if order is None else order, self._at(at))
        self.lives.append(life)
        return life

    def begin(self, life: Life) -> Transaction:
        """Record the begin of a transaction."""
        transaction = Transaction(life, len(life.transactions))
        life.transactions.append(transaction)
        return transaction

    def ask(self, transaction: Transaction, at: int | None = None) -> None:
        """Record the request to commit a transaction; its outcome is unknown until an answer comes."""
        transaction.asked_at = self._at(at)
        transaction.outcome = Outcome.UNKNOWN

    def committed(self, transaction: Transaction, at: int | None = None) -> None:
        """Record the answer that a transaction is committed."""
        transaction.committed_at = self._at(at)
        transaction.outcome = Outcome.COMMITTED

    def read(self, name: str, isolation: Isolation, places: Iterable[Place]) -> Reading:
        """Record a new reader of these places."""
        reading = Reading(name, isolation, {place: [] for place in places})
        self.readings.append(reading)
        return reading

    def see(self, reading: Reading, place: Place, offset: int, value: bytes) -> None:
        """Record that a reader got a record."""
        reading.seen[place].append(Seen(offset, value, self.moment()))

    def observe(
        self, group_place: GroupPlace, offset: int, asked_at: int, at: int | None = None, *, is_last: bool = False
    ) -> None:
        """Record the answer to a request for a group's committed offset."""
        self.observed.append(Observed(group_place, offset, asked_at, self._at(at), is_last))

    def _at(self, at: int | None) -> int:
        return self.moment() if at is None else at
